"""Trees of proposed tokens, which a drafter returns and the target verifies in one pass. Plain data.

A tree branches off the end of the text. Tokens are numbered 0 … n-1, parents before their children. The parent -1 is
the text itself; in the target's input it is the text's last token.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

import numpy as np
from torch import Tensor

from core.errors import InputError
from core.models.base import depths, path_to


@dataclass(frozen=True)
class DraftDistribution:
    """A drafter's own distribution q after one parent, without the sampling noise.

    Attributes:
        logits: (V_d,) of the tokens in the drafter's vocabulary.
        vocabulary: (V_d,) their ids; None if it is the whole vocabulary.
        temperature: T of q.
    """

    logits: Tensor
    vocabulary: Tensor | None = None
    temperature: float = 1.0

    def over(self, size: int) -> np.ndarray:
        """Returns q (V,) float64 for a vocabulary of this size; 0 for tokens outside the drafter's vocabulary."""
        known = (self.logits.double() / self.temperature).softmax(0).numpy()
        if self.vocabulary is None:
            return known
        q = np.zeros(size)
        q[self.vocabulary.numpy()] = known
        return q


@dataclass(frozen=True)
class TokenTree:
    """n proposed tokens.

    Attributes:
        ids: (n,) token ids; children of one parent differ.
        parents: (n,) indices of the parents, -1 for the text.
        confidence: (n,) the drafter's probability of each token after its parent, 0 to 1; with known noise, its
            probability that the target samples the token.
        likelihood: (n,) q(token | its parent) by the drafter's own distribution; None if it is `confidence`.
        own: by parent, that distribution, if it was requested (`Moment.distributions`) and the drafter has one.
    """

    ids: list[int] = field(default_factory=list)
    parents: list[int] = field(default_factory=list)
    confidence: list[float] = field(default_factory=list)
    likelihood: list[float] | None = None
    own: dict[int, DraftDistribution] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if not len(self.ids) == len(self.parents) == len(self.confidence):
            raise InputError(
                f"A tree of {len(self.ids)} tokens with {len(self.parents)} parents and {len(self.confidence)} "
                "confidences given; as many of each expected."
            )
        if self.likelihood is not None and len(self.likelihood) != len(self.ids):
            raise InputError(
                f"A tree of {len(self.ids)} tokens with {len(self.likelihood)} likelihoods given; as many expected."
            )
        for i, parent in enumerate(self.parents):
            if not -1 <= parent < i:
                raise InputError(f"Token {i} of a tree has the parent {parent}; -1 to {i - 1} expected.")

    def __len__(self) -> int:
        return len(self.ids)

    @classmethod
    def of_paths(cls, paths: Iterable[Sequence[tuple[int, float]]]) -> TokenTree:
        """Makes a tree of continuations, each a list of (id, confidence), and joins their common beginnings. The first
        confidence of a joined token is used."""
        tree = cls()
        known: dict[tuple[int, int], int] = {}
        for path in paths:
            at = -1
            for token, confidence in path:
                if (at, token) not in known:
                    known[at, token] = len(tree.ids)
                    tree.ids.append(token)
                    tree.parents.append(at)
                    tree.confidence.append(confidence)
                at = known[at, token]
        return tree

    @property
    def depths(self) -> list[int]:
        """The depth d(c) of each token: 0 for the first ones after the text."""
        return depths(self.parents)

    def children(self) -> dict[int, list[int]]:
        """Returns the indices of each parent's children, in their order."""
        children: dict[int, list[int]] = {}
        for node, parent in enumerate(self.parents):
            children.setdefault(parent, []).append(node)
        return children

    def indices(self) -> dict[tuple[int, ...], int]:
        """Returns the number of each token's node, by the tokens on the path to it."""
        return {tuple(self.ids[p] for p in path_to(node, self.parents)): node for node in range(len(self))}

    def products(self, factors: Sequence[float] | None = None) -> np.ndarray:
        """Returns (n,) for each token the product of `factors` (by default the confidences) along its path."""
        factors = self.confidence if factors is None else factors
        products = np.ones(len(self.ids))
        for node, (parent, factor) in enumerate(zip(self.parents, factors, strict=True)):
            products[node] = factor * (products[parent] if parent >= 0 else 1.0)
        return products

    def mass(self, noise: bool = True) -> np.ndarray:
        """Returns (n,) the probability of the path to each token: that the target samples it, which the drafter knows
        better with the sampling noise; without `noise`, e^ℓ(c) by the drafter's own distribution."""
        return self.products(None if noise else self.likelihood)

    def only(self, indices: Iterable[int]) -> TokenTree:
        """Returns the tree of these tokens alone. Raises InputError if a token's parent is not among them."""
        kept = sorted(set(indices))
        new = {-1: -1} | {old: i for i, old in enumerate(kept)}
        if any(self.parents[old] not in new for old in kept):
            raise InputError(
                "A part of a tree without the beginnings of its paths given; keep each token's parent too."
            )
        return TokenTree(
            [self.ids[old] for old in kept],
            [new[self.parents[old]] for old in kept],
            [self.confidence[old] for old in kept],
            None if self.likelihood is None else [self.likelihood[old] for old in kept],
            {new[old]: q for old, q in self.own.items() if old in new},
        )

    def first_chain(self) -> TokenTree:
        """Returns the path of first children, for targets that take no branches."""
        indices: list[int] = []
        at = -1
        for node, parent in enumerate(self.parents):
            if parent == at:
                indices.append(node)
                at = node
        return self.only(indices)

    def under(self, token: int) -> tuple[list[int], list[int]]:
        """Returns the target's input, ids and parents (1 + n,): `token`, the text's last, which is not fed yet, and
        then the tree."""
        return [token, *self.ids], [-1, *(parent + 1 for parent in self.parents)]
