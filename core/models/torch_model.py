"""The torch backend: any causal language model that transformers reads, or `NativeLlama`, behind `LanguageModel`.

The module runs the layers; the cache is ours (`store.py`), because sequences fork, rewind and advance in changing
groups. Transformers' layers compute a batch of rows of equal length, so rows are padded, and their sequences move to
neighbouring lines. `NativeLlama` computes rows of any lengths in one pass, each where its sequence is. Masks and
positions follow transformers' conventions for left-padded batches, so models with sliding windows or ALiBi work like
the rest. `hf.py` loads models.
"""

from __future__ import annotations

import math
from collections.abc import Sequence as Ordered
from typing import TYPE_CHECKING
from weakref import WeakSet

import torch
from torch import Tensor

from core.errors import InputError, ModelFileError, first_line
from core.models.base import LanguageModel, Row, Sequence, as_embeddings, finite, is_chain
from core.models.capture import memory_full
from core.models.memory import free_bytes, room_in_cache, usual_limit
from core.models.module import DOES_NOT_RUN, Layers
from core.models.native import Line
from core.models.recurrent import refuse_recurrent
from core.models.rows import PADDING, added_masks, result, trees, wanted
from core.models.store import KeyValueStore
from core.models.tokenizer import Tokenizer

if TYPE_CHECKING:
    from core.models.adapter import Adapter
    from core.models.module import Module

# A short history beside a long one is padded with zeros; if the difference is larger, separate passes are better.
MARGIN = 512  # cached positions
# The least room that a new store has after its sequences: enough for a set of drafts.
ROOM = 64  # columns


class TorchModel(LanguageModel):
    """A causal model on one device. See `LanguageModel` for the attributes."""

    backend = "torch"
    cache_grows = True

    def __init__(self, module: Module, tokenizer: Tokenizer, name: str, context_length: int) -> None:
        """Raises ModelFileError for a model whose cache cannot be rewound, or that accepts no embeddings."""
        refuse_recurrent(getattr(module.config, "model_type", None), name)
        self.name = name
        self.tokenizer = tokenizer
        self.context_length = context_length
        layers = Layers(module, name)
        self._layers: Layers | None = layers
        self.device = str(layers.device)
        self.arithmetic = layers.arithmetic
        self.compiled_as = layers.module.shape_and_types if layers.compiled else ""
        self._table = layers.table
        self.vocab_size, self.dim = self._table.shape
        self.depth = layers.depth
        self._stores: WeakSet[KeyValueStore] = WeakSet()
        logits = self._checked_logits()
        if not layers.compiled:  # our own code takes embeddings and reads trees; these passes would delay every start
            self._check_embeddings(logits)
            # Models that count positions from the mask (ALiBi) do not support the positions of a tree.
            self.takes_trees = layers.takes_positions and self._reads_trees()

    @property
    def layers(self) -> Layers:
        """The module. Raises InputError after the model is closed."""
        if self._layers is None:
            raise InputError(f"{self.name} is closed; load it again.")
        return self._layers

    def open(self) -> TorchSequence:
        return TorchSequence(self)

    def close(self) -> None:
        self._layers = None
        self.embeddings = torch.empty(0, self.dim)

    @property
    def cache_bytes(self) -> int:
        """Bytes of the cache now; a store keeps its memory as long as it contains a sequence."""
        return sum(len(store.tenants) * store.capacity for store in self._stores) * self.layers.position_bytes

    def has_room(self, positions: int) -> bool:
        size, device, most = self.layers.position_bytes, self.layers.device, self.most_cache
        if most is None:
            most = usual_limit(size) if device.type == "cpu" else math.inf
        return room_in_cache(self.cache_bytes, positions * size, free_bytes(device), size, most)

    def _forward(self, rows: list[Row]) -> list[Tensor]:
        if self.layers.compiled:
            return self._compiled_pass(rows)
        logits: dict[int, Tensor] = {}
        for group in _similar_rows(rows):
            # A row's new positions become visible only when the caller records them, so if a later group fails, an
            # earlier one has changed nothing.
            logits |= zip(map(id, group), self._pass(group), strict=True)
        return [logits[id(row)] for row in rows]

    def _pass(self, rows: list[Row]) -> list[Tensor]:
        """Runs B rows as one batch of n inputs each; rows with fewer are padded on the right."""
        from core.models.store_cache import StoreCache  # imports transformers

        layers = self.layers
        sequences = [row.sequence for row in rows if isinstance(row.sequence, TorchSequence)]
        sizes = [len(row.inputs) for row in rows]
        n = max(sizes)
        try:
            store, first, end = self._place(sequences, n)
            starts = [end - sequence.length for sequence in sequences]
            begin = min(starts)  # columns to the left belong to no sequence
            depth = torch.arange(n)[None]  # (1, n) or (B, n), positions behind each sequence's end
            mask: Tensor | dict[str, Tensor] | None = None
            if any(row.parents is not None and not is_chain(row.parents) for row in rows):
                depth, sees = trees(rows, n)
                mask = self._tree_mask(depth, sees, [start - begin for start in starts], end - begin)
            elif min(sizes) < n or max(starts) > begin:  # some row is padded
                column = torch.arange(begin, end + n)
                held = (column >= torch.tensor(starts)[:, None]) & (
                    column < torch.tensor([end + size for size in sizes])[:, None]
                )
                mask = held.long().to(layers.device)  # (B, columns)
            at = torch.tensor([sequence.length for sequence in sequences])[:, None] + depth
            positions = sorted({i for row in rows for i in wanted(row)})
            with torch.inference_mode():
                after, features = layers(
                    self._batch(rows, n),
                    StoreCache(store, first, len(rows), begin, end, n),
                    1 if positions == [n - 1] else torch.tensor(positions, device=layers.device),
                    mask=mask,
                    # Padding may exceed the model's last learned position.
                    positions=at.clamp_(max=self.context_length - 1).to(layers.device),
                    watched=self.watched,
                )
                logits = after.to(device="cpu", dtype=torch.float32)  # (B, positions, V)
                if features is not None:
                    for sequence, size, of_row in zip(sequences, sizes, features, strict=True):
                        sequence.fresh = of_row[:size].to(device="cpu", dtype=torch.float32)
        except torch.OutOfMemoryError as error:
            raise memory_full(self.device) from error
        if store is not sequences[0].store:
            for line, sequence in enumerate(sequences):
                sequence.move(store, line, starts[line])
        kept = {position: i for i, position in enumerate(positions)}
        # Copied outside of inference mode: ordinary tensors, which keep no batch alive.
        return [result(row, part[[kept[i] for i in wanted(row)]]) for row, part in zip(rows, logits, strict=True)]

    def _compiled_pass(self, rows: list[Row]) -> list[Tensor]:
        """Runs rows of any lengths in one pass of the compiled code."""
        lines: list[Line] = []
        moves: list[tuple[TorchSequence, KeyValueStore, int, int]] = []  # of sequences that get a new line
        positions: list[Tensor] = []
        kept: list[range] = []  # of all inputs, those of each row after which logits are computed
        first = 0  # input of the row
        for row in rows:
            sequence, n = row.sequence, len(row.inputs)
            assert isinstance(sequence, TorchSequence)
            past = sequence.length
            store, line, end = self._place([sequence], n)
            if store is not sequence.store:
                moves.append((sequence, store, line, end - past))
            depth, seen = torch.arange(n), None
            if row.parents is not None and not is_chain(row.parents):
                depths, sees = trees([row], n)
                depth, seen = depths[0], torch.cat([torch.ones(n, past, dtype=torch.bool), sees[0]], 1)
            lines.append(Line(store.of_line(line, end - past, end + n), past, n, seen))
            positions.append(past + depth)
            kept.append(range(0) if row.silent else range(first + wanted(row).start, first + wanted(row).stop))
            first += n
        with torch.no_grad():
            logits, features = self.layers.module(
                self._embedded(rows),
                torch.cat(positions),
                lines,
                torch.tensor([i for of_row in kept for i in of_row], dtype=torch.long),
                self.watched,
            )
        for sequence, store, line, start in moves:
            sequence.move(store, line, start)
        if self.watched:
            for row, of_row in zip(rows, features.split([line.n for line in lines]), strict=True):
                row.sequence.fresh = of_row
        # Cloned, so that none keeps the logits of all rows alive.
        of_rows = logits.split([len(of_row) for of_row in kept])
        return [result(row, part.clone()) for row, part in zip(rows, of_rows, strict=True)]

    def _embedded(self, rows: list[Row]) -> Tensor:
        """The inputs of all rows (N, D); those that are ids are looked up at once."""
        ids = [token for row in rows if not isinstance(row.inputs, Tensor) for token in row.inputs]
        vectors = self.embedded(ids)
        if len(ids) == sum(len(row.inputs) for row in rows):
            return vectors
        sizes = [len(row.inputs) for row in rows if not isinstance(row.inputs, Tensor)]
        of_ids = iter(vectors.split(sizes))
        return torch.cat([row.inputs.float() if isinstance(row.inputs, Tensor) else next(of_ids) for row in rows])

    def _adapt(self, adapters: Ordered[tuple[Adapter, float]]) -> None:
        self._check_adapters(adapters, self.layers.projections)
        self.layers.adapt(adapters)

    def _place(self, sequences: list[TorchSequence], n: int) -> tuple[KeyValueStore, int, int]:
        """A store where `sequences` are neighbours that end in one column with n free ones after it.

        Returns: the store, the line of the first sequence, and the column where all of them end. If the store
            is new, they still have to `move` there.
        """
        leader = sequences[0]
        store = leader.store
        if (
            store is not None
            and leader.end + n <= store.capacity
            and all(
                s.store is store and s.line == leader.line + i and s.end == leader.end and store.tenants[s.line] == 1
                for i, s in enumerate(sequences)
            )
        ):
            return store, leader.line, leader.end
        return self.new_store(sequences, n)

    def new_store(self, sequences: list[TorchSequence], n: int) -> tuple[KeyValueStore, int, int]:
        """A copy of the sequences in a new store; returns the same as `_place`."""
        end = max(sequence.length for sequence in sequences)
        # Half as much again, so that copying stays a constant share of the work for any length of the text.
        room, layers = max(ROOM, (end + n) // 2), self.layers
        store = KeyValueStore(layers.planes, len(sequences), end + n + room, layers.dtype, layers.device)
        self._stores.add(store)
        for line, sequence in enumerate(sequences):
            store.take(line, end, sequence.store, sequence.line, range(sequence.start, sequence.end))
        return store, 0, end

    def _batch(self, rows: list[Row], n: int) -> Tensor:
        """The rows as ids (B, n), or as embeddings (B, n, D) if any of them contains embeddings."""
        if not any(isinstance(row.inputs, Tensor) for row in rows):
            ids = [[*row.inputs, *[0] * (n - len(row.inputs))] for row in rows]
            return torch.tensor(ids, device=self.layers.device)
        vectors = torch.zeros(len(rows), n, self.dim)
        for line, row in enumerate(rows):
            vectors[line, : len(row.inputs)] = as_embeddings(self, row.inputs)
        return vectors.to(device=self.layers.device, dtype=self.layers.dtype)

    def _tree_mask(self, depth: Tensor, sees: Tensor, starts: list[int], past: int) -> Tensor | dict[str, Tensor]:
        """The mask of inputs with these depths (B, n), of which each attends to some (B, n, n), after `past` columns,
        of which a row's own begin at its start."""
        B, n = depth.shape
        hidden = torch.arange(past)[None, None] < torch.tensor(starts)[:, None, None]  # (B, 1, past)
        hidden = torch.cat([hidden.expand(B, n, past), ~sees], dim=2)
        # Distance in positions, not columns, because branches are in neighbouring columns.
        column = torch.cat([torch.arange(-past, 0).expand(B, past), depth], dim=1)  # (B, past + n)
        distance = depth[:, :, None] - column[:, None, :]
        device = self.layers.device
        return added_masks(hidden.to(device), distance.to(device), self.layers.windows, self.layers.dtype)

    def _first_logits(self, inputs: list[int] | Tensor) -> Tensor:
        """What follows one token, (V,). Raises ModelFileError."""
        try:
            return self._forward([Row(self.open(), inputs)])[0]
        except DOES_NOT_RUN as error:
            raise ModelFileError(
                f"{self.name} does not run with our cache ({first_line(error)}); choose another model."
            ) from error

    def _checked_logits(self) -> Tensor:
        """What follows the token that begins a document, (V,), once its numbers and their count are checked."""
        logits = self._first_logits([self.tokenizer.document_start])
        if not self._table.finite or not finite(logits):
            raise ModelFileError(f"{self.name} computes numbers that are not finite; download it again.")
        if logits.shape != (self.vocab_size,):
            raise ModelFileError(
                f"{self.name} has {self.vocab_size} embeddings and computes {len(logits)} logits; choose another model."
            )
        return logits

    def _check_embeddings(self, logits: Tensor) -> None:
        """Feeds the embedding of that token, which must give the same logits."""
        same = self._first_logits(self.embedded([self.tokenizer.document_start]))
        if not torch.allclose(logits, same, rtol=1e-2, atol=1e-2):
            raise ModelFileError(
                f"{self.name} needs more than the embedding of a token, so mixtures cannot be fed; choose "
                f"another model."
            )

    def _reads_trees(self) -> bool:
        """Tests whether a token of a tree attends only to its own path."""
        a, b = 0, self.vocab_size - 1
        try:
            plain = self._forward([Row(self.open(), [a, b], every=True)])[0]
            tree = self._forward([Row(self.open(), [a, a, b], parents=[-1, 0, 0])])[0]
        except DOES_NOT_RUN:
            return False
        return torch.allclose(plain[1], tree[2], rtol=1e-2, atol=1e-2)


class TorchSequence(Sequence):
    """A sequence and its place in a store: columns `start` to `end` of line `line`."""

    model: TorchModel

    def __init__(self, model: TorchModel) -> None:
        super().__init__(model)
        self.store: KeyValueStore | None = None  # None: nothing cached yet
        self.line = 0
        self.start = 0

    @property
    def end(self) -> int:
        """The column where the next input goes."""
        return self.start + self.length

    def move(self, store: KeyValueStore | None, line: int = 0, start: int = 0) -> None:
        """Moves to another place and releases the present one."""
        if self.store is not None:
            self.store.tenants[self.line] -= 1
        if store is not None:
            store.tenants[line] += 1
        self.store, self.line, self.start = store, line, start

    def _keep(self, path: list[int]) -> None:
        if path and path != list(range(len(path))):
            assert self.store is not None
            self.store.gather(self.line, self.end, path)

    def _rewind(self, length: int) -> None:
        """`end` follows `length`, which the caller reduces; nothing else changes."""

    def _fork(self) -> TorchSequence:
        child = TorchSequence(self.model)
        child.move(self.store, self.line, self.start)
        return child

    def settle(self) -> None:
        """Leaves a store of several lines, which keeps the memory of all of them as long as one is in use."""
        if self.store is None or len(self.store.tenants) == 1 or self.store.tenants[self.line] > 1:
            return
        store, line, end = self.model.new_store([self], 0)
        self.move(store, line, end - self.length)

    def _close(self) -> None:
        self.move(None)

    def __del__(self) -> None:
        # A fork dropped without closing should not make its parent move.
        self.move(None)


def _similar_rows(rows: list[Row]) -> list[list[Row]]:
    """Splits rows into groups that benefit from a joint pass, each in the order of its lines."""
    groups: list[list[Row]] = []
    for row in sorted(rows, key=lambda row: (-row.sequence.length, -len(row.inputs))):
        for group in groups:
            leader = group[0]  # the longest history
            if (
                abs(len(leader.inputs) - len(row.inputs)) <= PADDING
                and leader.sequence.length <= 2 * row.sequence.length + MARGIN
            ):
                group.append(row)
                break
        else:
            groups.append([row])
    return [sorted(group, key=_line) for group in groups]


def _line(row: Row) -> int:
    assert isinstance(row.sequence, TorchSequence)
    return row.sequence.line
