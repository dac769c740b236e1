"""Where k drafts branch: the tree of continuations, and the k of its paths with the highest expected match.

The value of k drafts is the expected length of the longest match between one of them and the text that is written:

    E[longest match] = Σ P(node) · length(node), over the union of the nodes of the k paths.

A node is one token, and its length is in bytes, because the aim is to save keys. `Continuations` is the part of the
tree that passes have computed. `choose` repeatedly takes the path that adds most to the union. In a tree this greedy
choice is optimal; research/docs/superposed-decoding.md has the proof.

This module uses scores and the bytes of tokens; it runs no pass.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field
from itertools import accumulate

import numpy as np

Beginning = tuple[list[int], float, float]  # ids, ln P, ln P without personal stores


@dataclass(eq=False)
class Node:
    """One token of a continuation.

    Attributes:
        ids: tokens from the prefix to this one.
        text: their bytes.
        start: the number of `ids` that belong to the half-typed word, before the first own token.
        logprob: ln P(node): of all of `ids`, given the prefix and the typed letters.
        without: the same without personal stores.
        stops: whether the token ends the draft.
        children: the next tokens; [] until the node is expanded.
    """

    ids: list[int]
    text: bytes
    start: int
    logprob: float
    without: float
    stops: bool = False
    parent: Node | None = None
    children: list[Node] = field(default_factory=list)
    expanded: bool = False

    @property
    def is_leaf(self) -> bool:
        return not self.children and not self.expanded

    @property
    def worth(self) -> float:
        """The node's share of the expected match, in bytes."""
        return math.exp(self.logprob) * (len(self.text) - (len(self.parent.text) if self.parent else 0))

    @property
    def depth(self) -> int:
        """The number of own tokens on its path, including itself."""
        return len(self.ids) - self.start

    @property
    def row(self) -> Path:
        return Path(self.ids, self.text)

    @property
    def path(self) -> list[Node]:
        """The nodes from the first own token to this one."""
        return [*(self.parent.path if self.parent else []), self]


class Continuations:
    """The known part of the tree of continuations."""

    def __init__(self, beginnings: Iterable[Beginning], pieces: Sequence[bytes], stop: frozenset[int]) -> None:
        self._pieces, self._stop = pieces, stop
        self.roots = [
            self._node(ids, self.row(ids).text, len(ids) - 1, score, without, None)
            for ids, score, without in beginnings
        ]

    def unexpanded(self, depth: int, most: int) -> list[Node]:
        """The most probable nodes with fewer own tokens than `depth` and unknown children, at most `most` of them."""
        open_ = (n for n in self.leaves() if not n.stops and n.depth < depth)
        return sorted(open_, key=lambda n: -n.logprob)[:most]

    def expand(self, node: Node, tokens: np.ndarray, scores: np.ndarray, without: np.ndarray) -> None:
        """Adds the next tokens of a node: ids, ln p and ln p without personal stores, (m,) each."""
        node.expanded = True
        node.children = [
            self._node(
                [*node.ids, int(token)],
                node.text + self._pieces[token],
                node.start,
                node.logprob + float(score),
                node.without + float(other),
                node,
            )
            for token, score, other in zip(tokens, scores, without, strict=True)
            if np.isfinite(score)
        ]

    def row(self, ids: list[int]) -> Path:
        return Path(ids, b"".join(self._pieces[i] for i in ids))

    def ends(self, ids: list[int]) -> list[int]:
        """Where each token of a row ends in the row's text, in bytes."""
        return list(accumulate(len(self._pieces[i]) for i in ids))

    def leaves(self) -> list[Node]:
        """The nodes whose children are unknown."""
        return [node for node in self.nodes() if node.is_leaf]

    def nodes(self) -> list[Node]:
        nodes, open_ = [], list(self.roots)
        while open_:
            nodes.append(node := open_.pop())
            open_ += node.children
        return nodes

    def _node(
        self, ids: list[int], text: bytes, start: int, logprob: float, without: float, parent: Node | None
    ) -> Node:
        return Node(ids, text, start, logprob, without, ids[-1] in self._stop, parent)


@dataclass(frozen=True)
class Path:
    """The tokens of a row after the prefix, and their bytes."""

    ids: list[int]
    text: bytes

    def passes(self, node: Node | Path) -> bool:
        """Whether the row contains a node, or continues a shorter row: compared by tokens, or by text if a word ends
        there, because the row's text may be split into other tokens than the tree's."""
        n = len(node.text)
        if self.ids[: len(node.ids)] == node.ids:
            return True
        return self.text.startswith(node.text) and not (
            _in_word(self.text[n - 1 : n]) and _in_word(self.text[n : n + 1])
        )


def _in_word(byte: bytes) -> bool:
    return byte.isalnum() or byte >= b"\x80"


def choose(leaves: Iterable[Node], k: int, kept: Sequence[Path] = (), least: float = 0.0) -> list[Node]:
    """The k leaves whose paths, with the kept rows, have the highest value; first the one that adds most.

    Args:
        least: leaves that branch from the others with less probability are omitted, unless there are no rows yet.
    """
    paths = {leaf: leaf.path for leaf in leaves}
    worth = {node: node.worth for path in paths.values() for node in path}
    outside = {node for node in worth if not any(row.passes(node) for row in kept)}  # in no row so far
    chosen: list[Node] = []
    while len(chosen) < k:
        best, most = None, 0.0
        for leaf, path in paths.items():
            new = [node for node in path if node in outside]
            gain = sum(worth[node] for node in new)
            if gain > most and (math.exp(new[0].logprob) >= least or not (kept or chosen)):
                best, most = leaf, gain
        if best is None:
            break
        chosen.append(best)
        row = best.row
        outside = {node for node in outside if not row.passes(node)}
    return chosen


def find_replaceable(
    nodes: Sequence[Node], k: int, kept: Sequence[Path], share: float, fixed: Collection[int] = ()
) -> int | None:
    """The index of the kept row with the lowest value, if another path would add more than 1 / `share` times as much;
    else None. A row that branches from the others beyond the known tree is not replaced, nor are those with the indices
    `fixed`."""
    alone = []
    for i, row in enumerate(kept):
        on = [node for node in nodes if row.passes(node) and not any(o.passes(node) for o in kept if o is not row)]
        alone.append(sum(node.worth for node in on) if on and i not in fixed else math.inf)
    least = min(range(len(kept)), key=alone.__getitem__)
    others = [row for row in kept if row is not kept[least]]
    leaves = [node for node in nodes if node.is_leaf]
    chosen = choose(leaves, k - len(others), others)
    if len(chosen) < k - len(others) or kept[least].passes(chosen[-1]):
        return None
    rows = [*others, *(leaf.row for leaf in chosen[:-1])]
    gain = sum(node.worth for node in chosen[-1].path if not any(row.passes(node) for row in rows))
    return least if alone[least] < share * gain else None


def branch_probabilities(nodes: Iterable[Node], rows: Sequence[Path]) -> list[float]:
    """For each row, the probability of its first known node that no other row contains; of its deepest known node, if
    the row branches beyond the known tree; nan if none of its nodes is known."""
    probabilities = []
    nodes = sorted(nodes, key=lambda node: len(node.text))
    for i, row in enumerate(rows):
        others = [other for j, other in enumerate(rows) if j != i]
        on = [node for node in nodes if row.passes(node)]
        alone = [node for node in on if not any(other.passes(node) for other in others)]
        node = alone[0] if alone else on[-1] if on else None
        probabilities.append(float(np.exp(node.logprob)) if node else float("nan"))
    return probabilities
