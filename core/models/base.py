"""One interface to a causal language model on any backend.

A `LanguageModel` holds weights and a tokenizer. A `Sequence` is one text in its cache: feed it tokens
or embeddings, rewind it, fork it. Many sequences advance in one pass through `LanguageModel.forward`.
This module handles no drafts, files or widgets.

Shapes: V is the vocabulary size, D the width of an embedding, n a number of positions.
"""

from __future__ import annotations

import hashlib
import math
from abc import ABC, abstractmethod
from collections import OrderedDict
from collections.abc import Mapping
from collections.abc import Sequence as Ordered
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from core.errors import BackendUnavailable, ContextFull, InputError, NotFinite
from core.models.adapter import Adapter, AdapterError, Projection
from core.models.capture import sent
from core.models.embeddings import Embeddings, Ids
from core.models.tokenizer import Tokenizer

SAMPLED = 1024  # rows of the embedding table in a fingerprint
TRIED = 4  # sets of adapters that need not be tried again: two tabs may alternate between them at every key
SNAPSHOTS = 4  # logits kept per sequence, V float32 each (197 kB for the default model)


@dataclass(frozen=True)
class Row:
    """The inputs of one sequence in a pass.

    Attributes:
        sequence: the sequence that grows.
        inputs: token ids, or embeddings (n, D) float32.
        every: logits after each input (n, V) instead of after the last one (V,).
        silent: no logits at all, an empty tensor; the output layer is a third of a small model.
        parents: makes the inputs a tree of tokens: input i follows input `parents[i]` of this row, which
            precedes it, or the end of the sequence if that is -1. Logits after each input, as with `every`. The
            sequence is unchanged until `Sequence.keep` chooses a path.
    """

    sequence: Sequence
    inputs: list[int] | Tensor
    every: bool = False
    silent: bool = False
    parents: list[int] | None = None


class LanguageModel(ABC):
    """A causal language model on one backend.

    Attributes:
        name: the name that the user gave, shown in the status line.
        backend: "torch" or "llama.cpp".
        device: "cpu", "cuda:0", …
        arithmetic: how this backend computes with the weights, if there are several ways; the cost of a pass depends
            on it.
        vocab_size, dim: V and D.
        context_length: positions that one sequence can hold.
        tokenizer: see `Tokenizer`.
        most_cache: the most bytes of the cache, if somebody has chosen a limit; see `core.models.memory`.
        adapters: those with which it computes, with their strengths; see `adapt`.
        languages: ISO 639-1 codes of the languages that the model's file states; () if it states none.
        compiled_as: what the time of its passes depends on, for models in our compiled code; "" for others.
        tokens_fed: inputs that went through the model since it was loaded, for tests and the status line.
    """

    name: str
    backend: str
    device: str
    vocab_size: int
    dim: int
    _table: Embeddings
    context_length: int
    tokenizer: Tokenizer
    arithmetic: str = ""
    languages: tuple[str, ...] = ()
    compiled_as: str = ""
    tokens_fed: int = 0
    takes_trees: bool = True  # otherwise only chains, trees without branches
    notice: str | None = None  # a message for the user about how it was loaded
    depth: int = 0  # number of layers, if the backend provides it
    watched: tuple[int, ...] = ()  # see `watch`
    cache_grows: bool = False  # otherwise its size is fixed, and `most_cache` changes nothing
    most_cache: int | None = None
    adapters: tuple[tuple[Adapter, float], ...] = ()
    _tried: tuple[tuple[tuple[Adapter, float], ...], ...] = ()  # the latest adapters that were fed tokens

    @property
    def embeddings(self) -> Tensor:
        """(V, D) float32 tensor on the CPU; a file in another form is decoded by the first use, so most callers need
        `embedded`. Feeding `embeddings[i]` is equivalent to feeding token i."""
        return self._table.whole()

    @embeddings.setter
    def embeddings(self, table: Tensor) -> None:
        self._table = Embeddings.of_tensor(table)

    def embedded(self, ids: Ids) -> Tensor:
        """Rows (n, D) of `embeddings`, a copy; the others are not decoded."""
        return self._table.rows(ids)

    @abstractmethod
    def open(self) -> Sequence:
        """A new, empty sequence. Raises ContextFull when the cache has no free sequence."""

    def watch(self, layers: tuple[int, ...]) -> None:
        """Makes sequences record, in `Sequence.features`, the hidden states that enter these layers.
        Raises BackendUnavailable if the backend does not provide them, InputError for others than the model has."""
        if layers and not self.depth:
            raise BackendUnavailable(
                f"{self.backend} on {self.device} does not provide hidden states, which an EAGLE-3 head needs; use "
                "--backend torch, or another drafter."
            )
        if any(not 0 <= layer < self.depth for layer in layers):
            raise InputError(f"Layers {layers} of {self.name} requested; it has layers 0 to {self.depth - 1}.")
        self.watched = tuple(layers)

    def adapt(self, adapters: Ordered[tuple[Adapter, float]]) -> None:
        """Computes with these adapters, each with its strength, from the next pass on; [] for none. Sequences keep
        what they computed before, so the caller drops them. New adapters are fed a few tokens first. An adapter is of
        this model, or of the model with one of the others.

        Raises: BackendUnavailable if the backend has no adapters; AdapterError for one of another model, and for
            adapters with which the model's numbers are not finite; ContextFull if there is no room for the tokens.
            After any error the model computes as before.
        """
        before = self.adapters
        self._adapt(adapters)
        self.adapters = tuple(adapters)
        try:
            if adapters and not any(same_adapters(adapters, tried) for tried in self._tried):
                self._try_out()
                self._tried = (self.adapters, *self._tried)[:TRIED]
        except BaseException as error:
            self._adapt(before)
            self.adapters = before
            if isinstance(error, NotFinite):
                which = "The adapter makes" if len(adapters) == 1 else "The adapters together make"
                raise AdapterError(
                    f"{which} the numbers of {self.name} not finite; train it anew with `polydraft learn`."
                ) from error
            raise

    def _adapt(self, adapters: Ordered[tuple[Adapter, float]]) -> None:
        """Replaces the adapters in use, or raises and changes nothing; `adapt` tries them."""
        if adapters:
            raise BackendUnavailable(f"{self.backend} on {self.device} does not use adapters; use --backend torch.")

    def _try_out(self) -> None:
        """Feeds a few tokens; after a single one, queries and keys would not matter. Raises NotFinite."""
        ids = [self.tokenizer.document_start, 0, self.vocab_size // 2, self.vocab_size - 1]
        sequence = self.open()
        try:
            sequence.feed(ids[: self.context_length])
        finally:
            sequence.close()

    def _check_adapters(
        self, adapters: Ordered[tuple[Adapter, float]], shapes: Mapping[Projection, tuple[int, int]]
    ) -> None:
        """Raises AdapterError for an adapter of another model, and for one that does not fit projections of these
        shapes (out, in)."""
        models = {self.fingerprint, *(adapter.identity for adapter, _ in adapters)}
        for adapter, _ in adapters:
            adapter.check(models, shapes)

    @cached_property
    def fingerprint(self) -> str:
        """Hexadecimal SHA-256 of the tokenizer and a sample of the embedding table, rounded to bfloat16: the same on
        all engines."""
        size = f"{self.tokenizer.fingerprint} {self.vocab_size} {self.dim}"
        rows = torch.linspace(0, self.vocab_size - 1, min(SAMPLED, self.vocab_size)).long()
        sample = self.embedded(rows).to(torch.bfloat16).contiguous().view(torch.int16).numpy()
        return hashlib.sha256(size.encode() + sample.astype("<i2").tobytes()).hexdigest()

    @abstractmethod
    def _forward(self, rows: list[Row]) -> list[Tensor]:
        """Runs the rows in one pass. `forward` validates the inputs, records the new positions, and removes the
        positions of a failed pass."""

    @abstractmethod
    def close(self) -> None:
        """Releases the weights. Sequences of a closed model must not be used."""

    def forward(self, rows: list[Row]) -> list[Tensor]:
        """Advances several sequences, one row each, in one pass.

        Returns: for each row float32 logits on the CPU, (V,), with `every` or `parents` (n, V), with `silent` (0,).
            The caller owns the tensors.
        Raises: InputError for an empty row, an id outside the vocabulary, embeddings of another width, a sequence
            that appears twice, is closed or belongs to another model, or parents that form no tree or one that the
            model does not support; ContextFull when there is no room; NotFinite for logits that are. After any error
            every sequence is unchanged.
        """
        seen: set[int] = set()
        for row in rows:
            if id(row.sequence) in seen:
                raise InputError("A sequence appears twice in one pass; give each sequence one row.")
            seen.add(id(row.sequence))
            self._check_inputs(row.inputs)
            self._check_tree(row)
            self._check_sequence(row.sequence, len(row.inputs))
        for row in rows:
            row.sequence.forget_tree()
            row.sequence.fresh = None
        lengths = [row.sequence.length for row in rows]
        try:
            logits = self._forward(rows)
            if not all(map(finite, logits)):
                raise self._not_finite()
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
        """Whether this many more positions keep the cache within its share of memory; see `core.models.memory`. A cache
        of fixed size returns True, and raises ContextFull when it is full."""
        return True

    def _not_finite(self) -> NotFinite:
        if not self.adapters:
            return NotFinite(
                f"{self.name} computed numbers that are not finite, so its weights are damaged or too large; download "
                "it again, or choose another model."
            )
        names = [adapter.store for adapter, _ in self.adapters if adapter.store]
        return NotFinite(
            f"{self.name} computed numbers that are not finite with the adapter of {' and '.join(names) or 'a store'}. "
            "Train it anew with `polydraft learn`, or switch it off in My writing."
        )

    def _check_sequence(self, sequence: Sequence, more: int) -> None:
        if sequence.model is not self or sequence.closed:
            raise InputError("The sequence is closed, or belongs to another model; open a new one.")
        if sequence.length + more > self.context_length:
            raise ContextFull(
                f"{sequence.length} positions are held and {more} more were given, but {self.name} has room for "
                f"{self.context_length}; shorten the text."
            )

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
            raise InputError(f"{self.name} does not support trees with branches; give a chain of tokens.")

    def _check_inputs(self, inputs: list[int] | Tensor) -> None:
        if len(inputs) == 0:
            raise InputError("No input given; at least one token id or embedding expected.")
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
    """A tree of tokens in the cache, before a path is chosen: ids, parents, and the logits (n, V)."""

    ids: list[int]
    parents: list[int]
    logits: Tensor


class Sequence(ABC):
    """One sequence in a model's cache: its inputs, and the positions to which it can be rewound.

    Attributes:
        model: the model it belongs to.
        inputs: by position: a token id, or None for an embedding.
        closed: whether it has given back its place in the cache.
    """

    def __init__(self, model: LanguageModel) -> None:
        self.model, self.closed = model, False
        self.inputs: list[int | None] = []
        # Logits after a prefix stay valid as long as the prefix is unchanged. The latest few are kept, so that
        # returning to one of them (typing on inside a word) costs no pass.
        self._logits: OrderedDict[int, Tensor] = OrderedDict()
        self._tree: Tree | None = None
        self.fresh: Tensor | None = None  # features of the latest pass, (n, W)
        self._features = torch.empty(0, 0)  # a buffer with room to grow, (capacity, W)
        self._known = 0  # its valid rows: fewer than `length` if the model was not watched from the start
        self._layers: tuple[int, ...] = ()  # the watched layers whose states it contains

    @property
    def features(self) -> Tensor | None:
        """(length, W): for each position, the hidden states of the layers given to `watch`, side by side.
        None if recording did not start at the first position. Valid until the sequence changes. They are on
        the backend's device: float32 on the CPU, or in the model's precision on its device."""
        whole = self.model.watched and self._layers == self.model.watched and self._known == self.length
        return self._features[: self.length] if whole else None

    def reveal(self) -> None:
        """Makes `features` cover every position: rewinds to 0, so that all are fed again, if some were fed before the
        model was watched."""
        if self.features is None:
            self.rewind(0)

    def remember(self, fresh: Tensor | None) -> None:
        """Appends rows (n, W); called before the positions are counted."""
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
        """The number of positions fed so far."""
        return len(self.inputs)

    def feed(self, ids: list[int]) -> Tensor:
        """Appends tokens; returns the logits (V,) after the last of them."""
        return self.model.forward([Row(self, list(ids))])[0]

    def feed_every(self, ids: list[int]) -> Tensor:
        """Appends n tokens in one pass; returns the logits (n, V) after each of them."""
        return self.model.forward([Row(self, list(ids), every=True)])[0]

    def feed_embedding(self, vector: Tensor) -> Tensor:
        """Appends one position given as an embedding (D,); returns the logits (V,) after it."""
        return self.model.forward([Row(self, vector.reshape(1, -1))])[0]

    def feed_tree(self, ids: list[int], parents: list[int]) -> Tensor:
        """Evaluates n tokens that branch off the end, in one pass: token i follows token `parents[i]` < i, or the end
        if that is -1. Returns the logits (n, V) after each, as if only its own path preceded it.

        Nothing is appended until `keep`; any other operation on the sequence drops the tree.
        """
        return self.model.forward([Row(self, list(ids), parents=list(parents))])[0]

    def keep(self, path: list[int]) -> None:
        """Appends a path of the tree that was fed last, given as indices into it, and drops the rest; [] drops the
        whole tree.
        Raises InputError unless the path begins at the end of the sequence."""
        tree = self._tree
        if tree is None:
            raise InputError("There is no tree; feed one before calling keep.")
        at = -1
        for node in path:
            if not 0 <= node < len(tree.ids) or tree.parents[node] != at:
                raise InputError(f"{path} is not a path of the tree; each index must be a child of the one before it.")
            at = node
        self._keep(path)
        self._tree = None
        if path:
            self.remember(None if self.fresh is None else _rows(self.fresh, path))
            self._note([tree.ids[node] for node in path], tree.logits[at])

    def rewind(self, length: int) -> None:
        """Drops every position from `length` on. Raises InputError if there are fewer."""
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
        """A second sequence with the same contents; the two then change independently. Raises InputError if this one is
        closed."""
        if self.closed:
            raise InputError("The sequence is closed; open a new one.")
        self.forget_tree()
        child = self._fork()
        child.inputs = list(self.inputs)
        child._logits = OrderedDict(self._logits)
        child._features, child._known = self._features[: self._known].clone(), self._known
        child._layers = self._layers
        return child

    def common_prefix(self, ids: list[int]) -> int:
        """The number of leading positions that hold `ids`; superposed positions never match."""
        return common(self.inputs, ids)

    def resume(self, ids: list[int]) -> Tensor | None:
        """Rewinds to the common prefix with `ids`, so that `ids[self.length:]` remains to be fed.

        Returns the logits (V,) after `ids` if they are cached, in which case nothing remains to be fed.
        """
        shared = self.common_prefix(ids)
        if shared == len(ids) and shared not in self._logits:
            shared -= 1  # the last position is fed again for its logits
        self.rewind(max(shared, 0))
        return self._logits[len(ids)].clone() if shared == len(ids) else None

    def sync(self, ids: list[int]) -> Tensor:
        """Makes this sequence hold exactly `ids`, feeding only the tail that changed.

        Returns the logits (V,) after the last id. Raises InputError when `ids` is empty.
        """
        if not ids:
            raise InputError("No token ids given; at least one expected.")
        known = self.resume(ids)
        return known if known is not None else self.feed(ids[self.length :])

    def _note(self, inputs: list[int] | Tensor, last: Tensor | None) -> None:
        self.inputs.extend([None] * len(inputs) if isinstance(inputs, Tensor) else inputs)
        if last is not None and not isinstance(inputs, Tensor):  # superposed positions are never revisited
            self._logits[self.length] = last.clone()  # callers may modify theirs
            while len(self._logits) > SNAPSHOTS:
                self._logits.popitem(last=False)

    def forget_logits(self) -> None:
        """Drops the cached logits of all but the last position, which only rewinding a little would need."""
        self._logits = OrderedDict((at, logits) for at, logits in self._logits.items() if at == self.length)

    def forget_tree(self) -> None:
        if self._tree is not None:
            self.keep([])

    def _restore(self, length: int) -> None:
        """Restores the state before a failed pass, with `length` positions and no tree."""
        del self.inputs[length:]
        self._known = min(self._known, length)
        for at in [at for at in self._logits if at > length]:
            del self._logits[at]
        self._tree = self.fresh = None
        self._keep([])
        self._rewind(length)

    @abstractmethod
    def _keep(self, path: list[int]) -> None:
        """Keeps this path of the tree in the cache, as if it had been fed; removes the rest of the tree."""

    @abstractmethod
    def _rewind(self, length: int) -> None:
        """Drops the cache from `length` on; 0 <= length <= self.length."""

    @abstractmethod
    def _fork(self) -> Sequence:
        """A sequence of the same class over a copy, or a shared view, of this one's cache."""

    def settle(self) -> None:  # noqa: B027 most backends have nothing to do
        """Called before a pause: releases cache memory that this sequence only shares because of earlier joint
        passes."""

    def close(self) -> None:
        """Releases this sequence's place in the cache; closing twice is harmless."""
        if not self.closed:
            self._close()
            self.closed = True

    @abstractmethod
    def _close(self) -> None:
        """Releases this sequence's place in the cache."""


def same_adapters(a: Ordered[tuple[Adapter, float]], b: Ordered[tuple[Adapter, float]]) -> bool:
    """Whether these are the same adapters, with the same strengths."""
    return [(id(one), strength) for one, strength in a] == [(id(one), strength) for one, strength in b]


def finite(x: Tensor) -> bool:
    """Whether all numbers of a tensor on the CPU are finite. Then the largest and the least are; both are NaN if any
    number is. It takes a tenth of the time of `isfinite`, and numpy stays in this thread, while torch wakes others."""
    numbers = x.numpy()
    return not numbers.size or (math.isfinite(numbers.max()) and math.isfinite(numbers.min()))


def common(a: Ordered[object], b: Ordered[object]) -> int:
    """The length of the common beginning of two sequences."""
    n = 0
    for x, y in zip(a, b, strict=False):  # takes two thirds of a generator's time, at every key
        if x != y:
            break
        n += 1
    return n


def as_embeddings(model: LanguageModel, inputs: list[int] | Tensor) -> Tensor:
    """Inputs (n,) or (n, D) as embeddings (n, D) float32, so that tokens and mixtures can share one pass."""
    if isinstance(inputs, Tensor):
        return inputs.to(torch.float32)
    return model.embedded(inputs)


def _rows(x: Tensor, positions: list[int]) -> Tensor:
    """Rows of x (n, W), on its device."""
    if positions == list(range(len(positions))):
        return x[: len(positions)]
    return x.index_select(0, sent(positions, x.device))


def is_chain(parents: list[int]) -> bool:
    """Whether a tree has no branches."""
    return all(parent == i - 1 for i, parent in enumerate(parents))


def depths(parents: list[int]) -> list[int]:
    """The number of ancestors of each input of the tree."""
    levels: list[int] = []
    for parent in parents:
        levels.append(0 if parent < 0 else levels[parent] + 1)
    return levels


def path_to(node: int, parents: list[int]) -> list[int]:
    """The inputs from the tree's root to a node."""
    path: list[int] = []
    while node >= 0:
        path.append(node)
        node = parents[node]
    return path[::-1]
