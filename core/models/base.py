"""One interface to a causal language model, whichever backend runs it.

A `LanguageModel` holds weights and a tokenizer. A `Sequence` is one line of thought in its cache: feed it tokens
or embeddings, rewind it, fork it. Many sequences advance in one pass through `LanguageModel.forward`.
Nothing here knows about drafts, files or widgets.

Shapes: V is the vocabulary size, D the width of an embedding, n a number of positions.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import OrderedDict
from dataclasses import dataclass

import torch
from torch import Tensor

from core.errors import BackendUnavailable, InputError
from core.models.capture import sent
from core.models.tokenizer import Tokenizer

SNAPSHOTS = 4  # logits kept per sequence, V float32 each (197 kB for the default model)


@dataclass(frozen=True)
class Row:
    """What one sequence contributes to a pass.

    Attributes:
        sequence: the sequence that grows.
        inputs: token ids, or embeddings (n, D) float32.
        every: logits after each input (n, V) instead of after the last one (V,).
        silent: no logits at all, an empty tensor; the output layer is a third of a small model.
        parents: makes the inputs a tree of tokens: input i follows input `parents[i]` of this row, which stands
            before it, or what the sequence holds where that is -1. Logits after each input, as with `every`. The
            sequence stays as it was until `Sequence.keep` says which path it goes on with.
    """

    sequence: Sequence
    inputs: list[int] | Tensor
    every: bool = False
    silent: bool = False
    parents: list[int] | None = None


class LanguageModel(ABC):
    """A causal language model on one backend.

    Attributes:
        name: what the user asked for, shown in the status line.
        backend: "torch" or "llama.cpp".
        device: "cpu", "cuda:0", …
        arithmetic: how this backend computes with the weights, where there are several ways: what a pass costs depends
            on it.
        vocab_size, dim: V and D.
        embeddings: (V, D) float32 tensor on the CPU. Feeding `embeddings[i]` is feeding token i.
        context_length: positions that one sequence can hold.
        tokenizer: see `Tokenizer`.
        tokens_fed: inputs that went through the model since it was loaded, for tests and the status line.
    """

    name: str
    backend: str
    device: str
    vocab_size: int
    dim: int
    embeddings: Tensor
    context_length: int
    tokenizer: Tokenizer
    arithmetic: str = ""
    tokens_fed: int = 0
    takes_trees: bool = True  # else only those without branches
    notice: str | None = None  # what the user should know about how it was loaded
    depth: int = 0  # its layers, where a backend tells
    watched: tuple[int, ...] = ()  # see `watch`

    @abstractmethod
    def open(self) -> Sequence:
        """A new, empty sequence. Raises ContextFull when the cache has no free sequence."""

    def watch(self, layers: tuple[int, ...]) -> None:
        """From now on sequences remember, in `Sequence.features`, the hidden states that enter these layers.
        Raises BackendUnavailable where a backend does not give them."""
        if layers != self.watched:
            raise BackendUnavailable(
                f"{self.backend} on {self.device} does not give hidden states, which an EAGLE-3 head reads; use "
                "--backend torch, or another drafter."
            )

    @abstractmethod
    def _forward(self, rows: list[Row]) -> list[Tensor]:
        """Run the rows in one pass. `forward` has checked the inputs, keeps the books, and removes what a failed pass
        appended."""

    @abstractmethod
    def close(self) -> None:
        """Give the weights back. Sequences of a closed model must not be used."""

    def forward(self, rows: list[Row]) -> list[Tensor]:
        """Advance several sequences, one row each, in one pass.

        Returns: for each row float32 logits on the CPU, (V,), with `every` or `parents` (n, V), with `silent` (0,).
            The tensors are the caller's.
        Raises: InputError for an empty row, an id outside the vocabulary, embeddings of another width, a sequence
            that appears twice, or parents that make no tree or one that the model does not take; ContextFull when
            there is no room. After any error every sequence is as it was.
        """
        seen: set[int] = set()
        for row in rows:
            if id(row.sequence) in seen:
                raise InputError("A sequence appears twice in one pass; give each sequence one row.")
            seen.add(id(row.sequence))
            self._check_inputs(row.inputs)
            self._check_tree(row)
        for row in rows:
            row.sequence.forget_tree()
            row.sequence.fresh = None
        lengths = [row.sequence.length for row in rows]
        try:
            logits = self._forward(rows)
            for row, after in zip(rows, logits, strict=True):
                if row.parents is not None:
                    row.sequence._tree = Tree(list(row.inputs), list(row.parents), after)  # pyright: ignore[reportArgumentType]
                else:
                    row.sequence.remember(row.sequence.fresh)
                    row.sequence._note(row.inputs, None if row.silent else after[-1] if row.every else after)
        except BaseException:
            for row, length in zip(rows, lengths, strict=True):
                row.sequence._restore(length)
            raise
        self.tokens_fed += sum(len(row.inputs) for row in rows)
        return logits

    def has_room(self, positions: int) -> bool:
        """Whether so many more positions keep the cache within its share of memory; see `core.models.memory`. A cache
        of fixed size has room until it raises ContextFull."""
        return True

    def _check_tree(self, row: Row) -> None:
        if row.parents is None:
            return
        if isinstance(row.inputs, Tensor) or row.silent:
            raise InputError("A tree of embeddings, or one without logits, given; token ids and logits expected.")
        if len(row.parents) != len(row.inputs):
            raise InputError(f"{len(row.parents)} parents given for {len(row.inputs)} tokens; one for each expected.")
        for i, parent in enumerate(row.parents):
            if not -1 <= parent < i:
                raise InputError(f"Token {i} of a tree has the parent {parent}; -1 to {i - 1} expected.")
        if not self.takes_trees and not is_chain(row.parents):
            raise InputError(f"{self.name} cannot tell the branches of a tree apart; give a chain of tokens.")

    def _check_inputs(self, inputs: list[int] | Tensor) -> None:
        if len(inputs) == 0:
            raise InputError("Nothing to feed: give at least one token id or embedding.")
        if isinstance(inputs, Tensor):
            if inputs.ndim != 2 or inputs.shape[1] != self.dim:
                raise InputError(f"Embeddings of shape {tuple(inputs.shape)} given; (n, {self.dim}) expected.")
            return
        low, high = min(inputs), max(inputs)
        if low < 0 or high >= self.vocab_size:
            wrong = low if low < 0 else high
            raise InputError(f"Token id {wrong} is outside the vocabulary: 0 to {self.vocab_size - 1} expected.")


@dataclass(frozen=True)
class Tree:
    """A tree of tokens in the cache, of which no path is chosen yet: ids, parents, and the logits (n, V)."""

    ids: list[int]
    parents: list[int]
    logits: Tensor


class Sequence(ABC):
    """One sequence in a model's cache: what was fed, where it can be rewound to.

    Attributes:
        model: the model it belongs to.
        inputs: what was fed, position by position: a token id, or None for an embedding.
    """

    def __init__(self, model: LanguageModel, inputs: list[int | None] | None = None) -> None:
        self.model = model
        self.inputs: list[int | None] = list(inputs or [])
        # Logits after a prefix stay true for as long as that prefix stands: keep the latest few, so that going
        # back to one of them (typing on inside a word) costs no pass.
        self._logits: OrderedDict[int, Tensor] = OrderedDict()
        self._tree: Tree | None = None
        self.fresh: Tensor | None = None  # features of the latest pass, (n, W)
        self._features = torch.empty(0, 0)  # a buffer with room to grow, (capacity, W)
        self._known = 0  # its rows that count: fewer than `length` where the model was not watched all along
        self._layers: tuple[int, ...] = ()  # the watched layers whose states it holds

    @property
    def features(self) -> Tensor | None:
        """(length, W): of each position, the hidden states of the layers that the model is told to `watch`, side by
        side. None where it was not watched since the first of them. Valid until the sequence changes. They are where
        the backend hands them over: float32 on the CPU, or in the model's precision on its device."""
        whole = self.model.watched and self._layers == self.model.watched and self._known == self.length
        return self._features[: self.length] if whole else None

    def reveal(self) -> None:
        """Make `features` cover every position: rewind to 0, so that all are fed again, where some were fed before the
        model was watched."""
        if self.features is None:
            self.rewind(0)

    def remember(self, fresh: Tensor | None) -> None:
        """Rows (n, W) behind the others; called before the positions are counted."""
        self.fresh = None
        if fresh is None or self._known < self.length:
            return
        if self._layers != self.model.watched:
            if self.length:
                return
            self._features, self._layers = fresh.new_empty(0, fresh.shape[1]), self.model.watched
        end = self._known + len(fresh)
        if end > len(self._features):
            grown = fresh.new_empty(2 * end, fresh.shape[1])
            grown[: self._known] = self._features[: self._known]
            self._features = grown
        self._features[self._known : end] = fresh
        self._known = end

    @property
    def length(self) -> int:
        """Positions fed so far."""
        return len(self.inputs)

    def feed(self, ids: list[int]) -> Tensor:
        """Append tokens; returns the logits (V,) after the last of them."""
        return self.model.forward([Row(self, list(ids))])[0]

    def feed_every(self, ids: list[int]) -> Tensor:
        """Append n tokens in one pass; returns the logits (n, V) after each of them."""
        return self.model.forward([Row(self, list(ids), every=True)])[0]

    def feed_embedding(self, vector: Tensor) -> Tensor:
        """Append one position given as an embedding (D,); returns the logits (V,) after it."""
        return self.model.forward([Row(self, vector.reshape(1, -1))])[0]

    def feed_tree(self, ids: list[int], parents: list[int]) -> Tensor:
        """Look at n tokens that branch off the end, in one pass: token i follows token `parents[i]` < i, or the end
        where that is -1. Returns the logits (n, V) after each, as if only its own path stood before it.

        Nothing is appended until `keep`; whatever else is done with the sequence forgets the tree.
        """
        return self.model.forward([Row(self, list(ids), parents=list(parents))])[0]

    def keep(self, path: list[int]) -> None:
        """Append a path of the tree that was fed last, given as places in it, and forget the rest; [] forgets it all.
        Raises InputError unless the path begins at the end of the sequence."""
        tree = self._tree
        if tree is None:
            raise InputError("No tree to keep anything of: feed one first.")
        at = -1
        for place in path:
            if not 0 <= place < len(tree.ids) or tree.parents[place] != at:
                raise InputError(f"{path} is no path of the tree: each place must be a child of the one before it.")
            at = place
        self._keep(path)
        self._tree = None
        if path:
            self.remember(None if self.fresh is None else _rows(self.fresh, path))
            self._note([tree.ids[place] for place in path], tree.logits[at])

    def rewind(self, length: int) -> None:
        """Forget every position from `length` on. Raises InputError when there are not that many."""
        if not 0 <= length <= self.length:
            raise InputError(f"Cannot rewind to {length}: the sequence holds {self.length} positions.")
        self.forget_tree()
        if length < self.length:
            self._rewind(length)
            del self.inputs[length:]
            self._known = min(self._known, length)
        for stale in [at for at in self._logits if at > length]:
            del self._logits[stale]

    def fork(self) -> Sequence:
        """A second sequence that starts as this one stands; the two then go their own ways."""
        self.forget_tree()
        child = self._fork()
        child.inputs = list(self.inputs)
        child._logits = OrderedDict(self._logits)
        child._features, child._known = self._features[: self._known].clone(), self._known
        child._layers = self._layers
        return child

    def common_prefix(self, ids: list[int]) -> int:
        """How many leading positions already hold `ids`; superposed positions never match."""
        n = 0
        for held, wanted in zip(self.inputs, ids, strict=False):
            if held != wanted:
                break
            n += 1
        return n

    def resume(self, ids: list[int]) -> Tensor | None:
        """Rewind to what this sequence shares with `ids`, so that `ids[self.length:]` remains to be fed.

        Returns the logits (V,) after `ids` if they are still known, in which case nothing remains.
        """
        shared = self.common_prefix(ids)
        if shared == len(ids) and shared not in self._logits:
            shared -= 1  # the last position is fed again, to see its logits
        self.rewind(max(shared, 0))
        return self._logits[len(ids)].clone() if shared == len(ids) else None

    def sync(self, ids: list[int]) -> Tensor:
        """Make this sequence hold exactly `ids`, feeding only the tail that changed.

        Returns the logits (V,) after the last id. Raises InputError when `ids` is empty.
        """
        if not ids:
            raise InputError("Nothing to hold: give at least one token id.")
        known = self.resume(ids)
        return known if known is not None else self.feed(ids[self.length :])

    def _note(self, inputs: list[int] | Tensor, last: Tensor | None) -> None:
        self.inputs.extend([None] * len(inputs) if isinstance(inputs, Tensor) else inputs)
        if last is not None and not isinstance(inputs, Tensor):  # superposed positions are never gone back to
            self._logits[self.length] = last.clone()  # callers may write on theirs
            while len(self._logits) > SNAPSHOTS:
                self._logits.popitem(last=False)

    def forget_tree(self) -> None:
        if self._tree is not None:
            self.keep([])

    def _restore(self, length: int) -> None:
        """After a pass that failed anywhere: be as before it, when there were `length` positions and no tree."""
        del self.inputs[length:]
        self._known = min(self._known, length)
        for at in [at for at in self._logits if at > length]:
            del self._logits[at]
        self._tree = self.fresh = None
        self._keep([])
        self._rewind(length)

    @abstractmethod
    def _keep(self, path: list[int]) -> None:
        """Leave this path of the tree in the cache, as if it had been fed; the rest of the tree goes."""

    @abstractmethod
    def _rewind(self, length: int) -> None:
        """Drop the cache from `length` on; 0 <= length <= self.length."""

    @abstractmethod
    def _fork(self) -> Sequence:
        """A sequence of the same class over a copy, or a shared view, of this one's cache."""

    def settle(self) -> None:  # noqa: B027 most backends have nothing to do
        """Nothing is fed for a while: give back what the cache holds beside this sequence because of passes that it
        shared."""

    @abstractmethod
    def close(self) -> None:
        """Give this sequence's place in the cache back; closing twice is harmless."""


def as_embeddings(model: LanguageModel, inputs: list[int] | Tensor) -> Tensor:
    """Inputs (n,) or (n, D) as embeddings (n, D) float32, so that tokens and mixtures can share one pass."""
    if isinstance(inputs, Tensor):
        return inputs.to(torch.float32)
    return model.embeddings[torch.tensor(inputs)]


def _rows(x: Tensor, places: list[int]) -> Tensor:
    """Rows of x (n, W), on whatever device it is."""
    if places == list(range(len(places))):
        return x[: len(places)]
    return x.index_select(0, sent(places, x.device))


def is_chain(parents: list[int]) -> bool:
    """Whether a tree has no branches."""
    return all(parent == i - 1 for i, parent in enumerate(parents))


def depths(parents: list[int]) -> list[int]:
    """How many inputs of the tree stand before each."""
    found: list[int] = []
    for parent in parents:
        found.append(0 if parent < 0 else found[parent] + 1)
    return found


def path_to(place: int, parents: list[int]) -> list[int]:
    """The inputs from the tree's beginning to `place`."""
    path: list[int] = []
    while place >= 0:
        path.append(place)
        place = parents[place]
    return path[::-1]
