"""A static KV cache, and a decode step that a GPU replays as one graph.

The plain torch backend extends its cache in any free place, and Python iterates over the layers at every step.
On a GPU that takes longer than reading the weights. Here every sequence is a *line* of one block of fixed
size, so a step always uses the same memory and can be captured once per number of lines, then replayed:

          column   0 1 2 3 4 5 6 7        a, b: the inputs of each sequence, from column 0 on
          line 0   a a a a a . . .        .: zeros, or data of a rewound sequence; masked, and overwritten later
          line 1   b b . . . . . .
          line 2   . . . . . . . .        free

The host sends a step's embeddings and lengths in one copy and receives its logits in one, so there is one
synchronisation per step. Passes of a few tokens, or of a tree of them, are captured the same way, and so is keeping
a tree's path.

The hidden states of watched layers never leave the device: each sequence copies its own into its buffer.

Without CUDA the same code runs uncaptured. Shapes: B lines, n inputs each, D width, V vocabulary, C columns, W the
width of all watched layers together.
"""

from __future__ import annotations

from collections.abc import Sequence as Ordered
from typing import Any

import torch
from torch import Tensor
from transformers.cache_utils import Cache

from core.errors import BackendUnavailable, ContextFull, first_line
from core.models.adapter import Adapter
from core.models.base import LanguageModel, Row, Sequence, as_embeddings
from core.models.capture import Graphs, bucket, memory_full, sent
from core.models.memory import free_bytes
from core.models.module import DOES_NOT_RUN
from core.models.rows import PADDING, added_masks, result, trees, wanted
from core.models.torch_model import TorchModel

LINES = 32  # sequences by default: a few people, and a set of drafts with exact steps for each
CAPACITY = 1024  # positions of each by default
FEW = 64  # inputs: the text typed between two requests, or a tree of drafted tokens
MOST_LOGITS = 2**26  # maximum numbers in the logits of such a pass
LEAST_POSITIONS = 512  # positions; a text of a page needs at least these
COLUMNS = 64  # the smallest number of columns that a step reads; more in powers of two, with a graph for each
CHUNK = 512  # inputs of a line per pass while a text is read


class StaticModel(LanguageModel):
    """A torch model behind a static cache."""

    backend = "torch"

    def __init__(
        self,
        model: TorchModel,
        lines: int = LINES,
        capacity: int = CAPACITY,
        check: bool = True,
    ) -> None:
        """Moves a model to a static cache.

        Args:
            lines: number of sequences that can be open at once.
            capacity: positions that each can hold.
            check: compare a few positions with the plain path first.
        Raises: BackendUnavailable, in one sentence, for an unsupported model.
        """
        self.layers = layers = model.layers
        if layers.compiled:
            raise BackendUnavailable(f"{model.name} runs in compiled code on the CPU, which has its own cache.")
        self.name, self.tokenizer, self.device = model.name, model.tokenizer, model.device
        self.arithmetic = f"static, {model.arithmetic}"
        self.vocab_size, self.dim, self.embeddings = model.vocab_size, model.dim, model.embeddings
        self.lines, self.context_length = lines, min(capacity, model.context_length)
        self._capacity = -(-self.context_length // COLUMNS) * COLUMNS
        self._plain, self.takes_trees, self.depth = model, model.takes_trees, model.depth
        self._free = list(range(lines - 1, -1, -1))
        # Keys and values of each layer, numbered like `TorchModel`'s planes: (lines, heads, capacity + 1, width). The
        # last column is write-only scratch for padding. One tensor for each, because a compiled layer is given its own.
        self._planes = [
            torch.zeros(lines, heads, self._capacity + 1, width, dtype=layers.dtype, device=layers.device)
            for heads, width in layers.planes
        ]
        self.graphs = Graphs(layers.device)
        # Passes of rows up to this many inputs are captured; without CUDA capturing has no benefit.
        self.few = FEW if layers.device.type == "cuda" else 0
        if check:
            self._check()

    @property
    def bytes_per_line(self) -> int:
        """Bytes of one sequence's keys and values."""
        return sum(plane[0].numel() * plane.element_size() for plane in self._planes)

    def open(self) -> StaticSequence:
        return StaticSequence(self, self._take_line())

    def adapt(self, adapters: Ordered[tuple[Adapter, float]]) -> None:
        self._plain.adapt(adapters)  # tries them there, because all lines here may be in use
        self.adapters = self._plain.adapters
        self.graphs.clear()  # they were captured with other adapters

    def embedded_there(self, ids: Tensor) -> Tensor:
        """The embedding layer's output for ids (…,) on the device: (…, D) there."""
        return self.layers.module.get_input_embeddings()(ids)

    def close(self) -> None:
        self.graphs.clear()
        self._planes.clear()
        self._plain.close()

    def _forward(self, rows: list[Row]) -> list[Tensor]:
        if all(len(row.inputs) == 1 for row in rows):
            return self._step(rows)
        logits: dict[int, Tensor] = {}
        for group in _neighbours(rows):
            read = self._read_few if self._few(group) else self._read
            logits |= zip(map(id, group), read(group), strict=True)
        return [logits[id(row)] for row in rows]

    def _step(self, rows: list[Row]) -> list[Tensor]:
        """One input each, captured."""
        first, lines = self._span(rows)
        fed = torch.zeros(lines, 1 + self.dim)
        fed[:, 0] = self._capacity  # an idle line's input goes to the last column
        for row in rows:
            line = fed[_line(row) - first]
            line[0] = row.sequence.length  # exact below 2²⁴
            line[1:] = as_embeddings(self, row.inputs)[0]
        columns = min(bucket(max(row.sequence.length for row in rows) + 1, COLUMNS), self._capacity)
        key = ("step", first, columns, lines, self.watched)
        logits, *seen = self.graphs(key, lambda x: self._stepped(x, first, columns), fed)
        for of_all in seen:
            for row in rows:
                row.sequence.fresh = of_all[_line(row) - first].clone()
        places = [_line(row) - first for row in rows if not row.silent]
        after = iter(logits[places].to("cpu") if places else [])  # the only synchronisation of a step
        return [torch.empty(0) if row.silent else result(row, next(after)[None].clone()) for row in rows]

    def _stepped(self, fed: Tensor, first: int, columns: int) -> tuple[Tensor, ...]:
        """Lengths (B, 1) and embeddings (B, D), side by side -> logits (B, V), watched layers (B, 1, W) if there are
        any."""
        vectors = fed[:, None, 1:].to(self.layers.dtype)
        logits, seen = self._run(vectors, fed[:, :1].long()[:, 0], first, columns, 1)
        logits = logits[:, -1].float()
        return (logits,) if seen is None else (logits, seen)

    def _few(self, rows: list[Row]) -> bool:
        """Whether to capture a pass over these rows: a few tokens or a tree of them, with logits of limited size."""
        most = max(len(row.inputs) for row in rows)
        return (
            most <= self.few
            and not any(isinstance(row.inputs, Tensor) for row in rows)
            and len(rows) * bucket(most, 1) * self.vocab_size <= MOST_LOGITS
        )

    def _read_few(self, rows: list[Row]) -> list[Tensor]:
        """The same as `_read` for a few tokens, or trees of them, captured once per power of two of inputs."""
        first, lines = _line(rows[0]), len(rows)
        n = bucket(max(len(row.inputs) for row in rows), 1)
        depth, sees = trees(rows, n)
        fed = torch.zeros(lines, 2 * n + 1 + n * n, dtype=torch.long)
        for line, row in enumerate(rows):
            fed[line, : len(row.inputs)] = torch.tensor(row.inputs)
            fed[line, n] = row.sequence.length
        fed[:, n + 1 : 2 * n + 1], fed[:, 2 * n + 1 :] = depth, sees.flatten(1)
        columns = min(bucket(max(row.sequence.length for row in rows) + n, COLUMNS), self._capacity)
        key = ("read", first, columns, n, lines, self.watched)
        logits, *seen = self.graphs(key, lambda x: self._branching(x, first, columns, n), fed)
        for of_all in seen:
            for row, of_row in zip(rows, of_all, strict=True):  # copies, because other graphs reuse this memory
                row.sequence.fresh = of_row[: len(row.inputs)].clone()
        places = [line * n + i for line, row in enumerate(rows) if not row.silent for i in wanted(row)]
        # Copies only what is wanted, in the precision of the weights: the logits of a large vocabulary are megabytes.
        after = logits.flatten(0, 1)[sent(places, self.layers.device)].to("cpu").float()  # (wanted, V)
        of_rows = iter(after.split([len(wanted(row)) for row in rows if not row.silent]))
        return [torch.empty(0) if row.silent else result(row, next(of_rows).clone()) for row in rows]

    def _branching(self, fed: Tensor, first: int, columns: int, n: int) -> tuple[Tensor, ...]:
        """ids (B, n), length (B, 1), depths (B, n), which inputs see which (B, n·n), side by side -> logits (B, n, V),
        watched layers (B, n, W) if there are any."""
        vectors = self.embedded_there(fed[:, :n]).to(self.layers.dtype)
        tree = fed[:, n + 1 : 2 * n + 1], fed[:, 2 * n + 1 :].view(-1, n, n).bool()
        every = torch.arange(n, device=self.layers.device)
        logits, seen = self._run(vectors, fed[:, n], first, columns, every, tree)
        return (logits,) if seen is None else (logits, seen)

    def _read(self, rows: list[Row]) -> list[Tensor]:
        """Feeds rows on neighbouring lines as a batch, uncaptured, in chunks of any length; trees in one chunk."""
        sequences = [row.sequence for row in rows]
        sizes = [len(row.inputs) for row in rows]
        first, lines = sequences[0].line, len(rows)  # type: ignore[attr-defined]
        vectors = torch.zeros(lines, max(sizes), self.dim)
        for line, row in enumerate(rows):
            vectors[line, : sizes[line]] = as_embeddings(self, row.inputs)
        lengths = torch.tensor([sequence.length for sequence in sequences])
        kept: list[list[Tensor]] = [[] for _ in rows]
        seen: list[Tensor] = []  # watched layers of each chunk, (B, n, W)
        tree = None
        if any(row.parents is not None for row in rows):
            depth, sees = trees(rows, max(sizes))
            tree = depth.to(self.layers.device), sees.to(self.layers.device)
        chunk = CHUNK if tree is None else max(sizes)
        try:
            for at in range(0, max(sizes), chunk):
                part = vectors[:, at : at + chunk]
                n = part.shape[1]
                here = [[i - at for i in wanted(row) if at <= i < at + n] for row in rows]
                some = sorted({i for line in here for i in line}) or [n - 1]
                columns = min(bucket(int(lengths.max()) + at + n, COLUMNS), self._capacity)
                with torch.inference_mode():
                    after, of_chunk = self._run(
                        part.to(device=self.layers.device, dtype=self.layers.dtype),
                        (lengths + at).to(self.layers.device),
                        first,
                        columns,
                        torch.tensor(some, device=self.layers.device),
                        tree,
                    )
                    after = after.to(device="cpu", dtype=torch.float32)  # (B, some, V)
                    if of_chunk is not None:
                        seen.append(of_chunk)
                for line, places in enumerate(here):
                    kept[line] += [after[line, some.index(i)].clone() for i in places]
        except torch.OutOfMemoryError as error:
            raise memory_full(self.device) from error
        if seen:
            for sequence, size, of_row in zip(sequences, sizes, torch.cat(seen, 1), strict=True):
                sequence.fresh = of_row[:size]
        return [result(row, torch.stack(logits)) for row, logits in zip(rows, kept, strict=True)]

    def _run(
        self,
        vectors: Tensor,
        lengths: Tensor,
        first: int,
        columns: int,
        keep: Tensor | int,
        tree: tuple[Tensor, Tensor] | None = None,
    ) -> tuple[Tensor, Tensor | None]:
        """One pass, on the device only: embeddings (B, n, D) after `lengths` (B,) -> logits (B, kept, V), and watched
        layers (B, n, W) or None."""
        B, n, _ = vectors.shape
        where = lengths[:, None] + torch.arange(n, device=self.layers.device)  # (B, n), columns
        column = torch.arange(columns, device=self.layers.device)
        if tree is None:
            at, of_column = where, column[None, None]  # positions are columns
            hidden = column > at[:, :, None]  # (B, n, C)
        else:
            depth, sees = tree
            at = lengths[:, None] + depth
            more = torch.arange(columns + n, device=self.layers.device)  # padding may be behind the last column
            of_column = more.repeat(B, 1).scatter_(1, where, at)[:, None, :columns]
            hidden = (more >= lengths[:, None, None]).repeat(1, n, 1)
            hidden = hidden.scatter_(2, where[:, None].expand(B, n, n), ~sees)[:, :, :columns]
        return self.layers(
            vectors,
            Columns([plane[first : first + B] for plane in self._planes], where.clamp(max=self._capacity), columns),
            keep,
            mask=added_masks(hidden, at[:, :, None] - of_column, self.layers.windows, self.layers.dtype),
            positions=at.clamp(max=self.context_length - 1),
            watched=self.watched,
        )

    def _move(self, line: int, path: list[int], to: int) -> None:
        """Moves columns of a line, `to` + p for each p of `path`, together, starting at `to`."""
        n = bucket(len(path), 1)
        fed = torch.full((2 * n + 1,), self._capacity)  # padding moves within the last column
        nothing = fed.clone()
        fed[0] = nothing[0] = line
        fed[1 : 1 + len(path)] = torch.tensor(path) + to
        fed[1 + n : 1 + n + len(path)] = torch.arange(to, to + len(path))
        self.graphs(("move", n), self._moved, fed, nothing)

    def _moved(self, fed: Tensor) -> tuple[Tensor, ...]:
        """A line (1,), columns to read and columns to write (n,), side by side."""
        line, (old, new) = fed[:1], fed[1:].chunk(2)
        for plane in self._planes:
            plane[line, :, new] = plane[line, :, old]
        return ()

    def _span(self, rows: list[Row]) -> tuple[int, int]:
        """The lines of a step: first, and number. On a GPU fewer different spans mean fewer graphs, and lines
        without a row in the step cost little."""
        low, high = min(map(_line, rows)), max(map(_line, rows)) + 1
        return (0, min(bucket(high, 1), self.lines)) if self.layers.device.type == "cuda" else (low, high - low)

    def _take_line(self) -> int:
        if not self._free:
            raise ContextFull(f"All {self.lines} lines of the cache are in use; close a sequence first.")
        return self._free.pop()

    def _check(self) -> None:
        """Compares a few positions of lines of different length, as tokens and as embeddings, with the plain path."""
        count = min(2, self.lines)
        texts = [[1, 2, 3, 4, 5], [3, 1]][:count]
        ours, theirs = [self.open() for _ in texts], [self._plain.open() for _ in texts]
        try:
            self.forward([Row(s, ids) for s, ids in zip(ours, texts, strict=True)])
            self._plain.forward([Row(s, ids) for s, ids in zip(theirs, texts, strict=True)])
            vectors = [(0.7 * self.embeddings[4] + 0.3 * self.embeddings[2])[None], self.embeddings[2:3]][:count]
            results = self.forward([Row(s, v) for s, v in zip(ours, vectors, strict=True)])
            expected = self._plain.forward([Row(s, v) for s, v in zip(theirs, vectors, strict=True)])
        except DOES_NOT_RUN as error:
            raise BackendUnavailable(
                f"{self.name} does not run on a static cache ({first_line(error)}); it runs step by step instead."
            ) from error
        finally:
            for sequence in [*ours, *theirs]:
                sequence.close()
        loose = 1e-3 if self.layers.dtype == torch.float32 else 0.1
        for logits, reference in zip(results, expected, strict=True):
            best = logits.topk(min(8, self.vocab_size)).indices
            if not torch.allclose(logits[best], reference[best], rtol=loose, atol=loose * float(reference.std())):
                raise BackendUnavailable(
                    f"{self.name} computes different logits on a static cache; it runs step by step instead."
                )


class StaticSequence(Sequence):
    """A sequence: one line of the block, for as long as it is open."""

    model: StaticModel

    def __init__(self, model: StaticModel, line: int) -> None:
        super().__init__(model)
        self.line = line
        self._lines = model._free

    def _rewind(self, length: int) -> None:
        """Only the length marks the end of a line."""

    def _keep(self, path: list[int]) -> None:
        """Of a tree that was fed after the end, moves the columns of one path together."""
        if path and path != list(range(len(path))):
            self.model._move(self.line, path, self.length)

    def _fork(self) -> StaticSequence:
        model = self.model
        child = StaticSequence(model, model._take_line())
        for plane in model._planes:
            plane[child.line, :, : self.length] = plane[self.line, :, : self.length]
        return child

    def _close(self) -> None:
        self._lines.append(self.line)

    def __del__(self) -> None:
        self.close()  # a fork dropped without closing should not keep its line


class Columns(Cache):
    """The cache interface for transformers of the lines in one pass.

    Attributes:
        planes: keys and values of each layer in turn.
        at: (B, 1, n, 1), the column that each input fills.
        columns: C, so many are read.
    """

    def __init__(self, planes: list[Tensor], at: Tensor, columns: int) -> None:
        super().__init__(layers=[])
        self.planes, self.at, self.columns = planes, at[:, None, :, None], columns

    def update(
        self, key_states: Tensor, value_states: Tensor, layer_idx: int, *args: Any, **kwargs: Any
    ) -> tuple[Tensor, Tensor]:
        """Writes keys and values (B, heads, n, width) to their columns; returns all columns."""
        keys, values = self.planes[2 * layer_idx], self.planes[2 * layer_idx + 1]
        for plane, new in ((keys, key_states), (values, value_states)):
            plane.scatter_(2, self.at.expand(new.shape), new.to(plane.dtype))
        return keys[:, :, : self.columns], values[:, :, : self.columns]

    def get_seq_length(self, layer_idx: int = 0) -> int:
        return 0  # masks and positions are given

    def get_mask_sizes(self, query_length: int, layer_idx: int) -> tuple[int, int]:
        return self.columns, 0


def on_static_cache(model: TorchModel, lines: int = LINES, share: float = 0.5) -> LanguageModel:
    """The model with a static cache; if that is impossible, the model unchanged, with a notice of the reason.

    Args:
        lines: sequences at once.
        share: of the free memory, for the cache.
    """
    free = free_bytes(model.layers.device)
    capacity = min(model.context_length, int(free * share / (lines * model.layers.position_bytes)))
    try:
        if capacity < LEAST_POSITIONS:
            raise BackendUnavailable(
                f"{model.name} leaves memory for only {capacity} positions of {lines} sequences on {model.device}; it "
                f"runs step by step instead."
            )
        return StaticModel(model, lines, capacity)
    except BackendUnavailable as error:
        model.notice = str(error)
        return model


def _neighbours(rows: list[Row]) -> list[list[Row]]:
    """Groups rows on consecutive lines with about the same size."""
    groups: list[list[Row]] = []
    for row in sorted(rows, key=_line):
        last = groups[-1][-1] if groups else None
        if (
            last is not None
            and _line(row) == _line(last) + 1
            and abs(len(row.inputs) - len(groups[-1][0].inputs)) <= PADDING
        ):
            groups[-1].append(row)
        else:
            groups.append([row])
    return groups


def _line(row: Row) -> int:
    assert isinstance(row.sequence, StaticSequence)
    return row.sequence.line
