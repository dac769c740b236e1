"""The torch backend: any causal language model that transformers reads, behind `LanguageModel`.

transformers runs the layers; the cache is ours, because sequences here fork, rewind and advance together in
changing company. It knows nothing of drafts.

How the cache is laid out. Keys and values live in *stores*. A store has one line per sequence and a column
per position; sequences that advance together live in neighbouring lines of one store and end in the same
column:

          column   0 1 2 3 4 5 6 7 8 9
          line 0   a a a a a a a . . .      a, b, c: what each sequence was fed, right-aligned
          line 1   0 0 0 b b b b . . .      0: zeros in front of a shorter one, masked
          line 2   a a a a a c c . . .      .: room to grow

So a step of all of them appends one column in place and hands the model a view: nothing is copied. Three
rules:

* A fork shares its parent's line until either of them advances; who advances on a shared line moves away
  first.
* Sequences that do not stand like this, or have no room left, are copied once into a new store, where they
  do.
* Rewinding only moves a sequence's end. What lies behind the end is never looked at, and overwritten later.

A tree of tokens is written behind the end, under a mask that shows each token its own path; keeping a path moves
its columns together and the end behind them.

Masks and positions follow transformers' conventions for left-padded batches, so models with sliding windows
or ALiBi work like the rest.
"""

from __future__ import annotations

import inspect
import socket
import struct
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache, cached_property
from logging import CRITICAL
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit
from urllib.request import getproxies
from weakref import WeakSet

import torch
from huggingface_hub import constants as hub
from huggingface_hub.errors import StrictDataclassError
from safetensors import SafetensorError
from torch import Tensor, nn

from core.errors import ContextFull, InputError, ModelFileError, ModelNotFound, PolydraftError
from core.models import gguf_check, gguf_file, lean, native, native_gguf
from core.models.base import LanguageModel, Row, Sequence, Tokenizer, as_embeddings, depths, is_chain
from core.models.coded import Coded
from core.models.hf_tokenizer import HFTokenizer, from_gguf, from_transformers
from core.models.lean import LeanLlama
from core.models.memory import free_bytes, room_in_cache
from core.models.native import NativeLlama

MAX_CONTEXT = 8192  # positions; what a model's configuration allows beyond that would cost gigabytes of cache
UNKNOWN_CONTEXT = 2048  # positions, where the configuration does not say

# Rows of different sizes share a pass while filling them up is cheaper than a second pass. A pass reads all
# weights once, which costs about as much as computing this many positions.
PADDING = 16  # inputs
# A short history beside a long one is filled up with zeros; past this many, they had better go separately.
MARGIN = 512  # cached positions
# The least that a new store leaves free behind its sequences: enough for a set of drafts.
ROOM = 64  # columns

# What transformers and the file readers raise for a file that is damaged or of an unsupported kind.
_UNREADABLE = (
    OSError,
    ValueError,
    ArithmeticError,
    AssertionError,
    LookupError,
    MemoryError,
    TypeError,
    AttributeError,
    RuntimeError,
    ImportError,
    NotImplementedError,
    struct.error,
    SafetensorError,
    StrictDataclassError,
)


if TYPE_CHECKING:
    from transformers import PreTrainedModel

    Module = PreTrainedModel | LeanLlama | NativeLlama


class TorchModel(LanguageModel):
    """A transformers model on one device. See `LanguageModel` for the attributes."""

    backend = "torch"

    def __init__(self, module: Module, tokenizer: Tokenizer, name: str, context_length: int) -> None:
        """Raises ModelFileError for a model whose cache cannot be rewound, or that takes no embeddings."""
        self.name = name
        self.tokenizer = tokenizer
        self.context_length = context_length
        self._module: Module | None = module.eval().requires_grad_(False)
        self._device = next(module.parameters()).device
        self._dtype = module.dtype
        self._lean = isinstance(module, LeanLlama | NativeLlama)
        self.device = str(self._device)
        self.arithmetic = getattr(module, "arithmetic", str(module.dtype))
        self.embeddings = _embedding_table(module)  # (V, D)
        self.vocab_size, self.dim = self.embeddings.shape
        accepted = inspect.signature(module.forward).parameters
        self._takes_positions = "position_ids" in accepted
        self._keeps_some = "logits_to_keep" in accepted
        self._planes = _probe_planes(module, name)
        self._stores: WeakSet[_Store] = WeakSet()
        self.depth = len(self._planes) // 2
        self._windows = _windows(module)
        self._check_embeddings()
        # Where positions are not given but counted off the mask (ALiBi), a tree's cannot be said.
        self.takes_trees = self._takes_positions and self._reads_trees()

    def open(self) -> TorchSequence:
        return TorchSequence(self)

    def close(self) -> None:
        self._module = None
        self.embeddings = torch.empty(0, self.dim)

    @property
    def position_bytes(self) -> int:
        """What one position of one sequence takes in the cache."""
        return sum(heads * width for heads, width in self._planes) * self._dtype.itemsize

    @property
    def cache_bytes(self) -> int:
        """What the cache takes now; a store takes its memory for as long as one sequence stands in it."""
        return sum(len(store.tenants) * store.capacity for store in self._stores) * self.position_bytes

    def has_room(self, positions: int) -> bool:
        return room_in_cache(self.cache_bytes, positions * self.position_bytes, free_bytes(self._device))

    def _forward(self, rows: list[Row]) -> list[Tensor]:
        for row in rows:
            assert isinstance(row.sequence, TorchSequence)
            if row.sequence.model is not self or row.sequence.closed or self._module is None:
                raise InputError("The sequence is closed, or belongs to another model; open a new one.")
            if row.sequence.length + len(row.inputs) > self.context_length:
                raise ContextFull(
                    f"{row.sequence.length} positions are held and {len(row.inputs)} more were given, but "
                    f"the model has room for {self.context_length}; shorten the text."
                )
        logits: dict[int, Tensor] = {}
        for group in _similar_rows(rows):
            # A row's new positions only count once the caller has noted them, so a group that went
            # through before another one failed has changed nothing that can be seen.
            logits |= zip(map(id, group), self._pass(group), strict=True)
        return [logits[id(row)] for row in rows]

    def _pass(self, rows: list[Row]) -> list[Tensor]:
        """Run B rows as one batch of n inputs each; rows with fewer are filled up on the right."""
        assert self._module is not None
        sequences = [row.sequence for row in rows if isinstance(row.sequence, TorchSequence)]
        sizes = [len(row.inputs) for row in rows]
        n = max(sizes)
        try:
            store, first, end = self._place(sequences, n)
            starts = [end - sequence.length for sequence in sequences]
            begin = min(starts)  # columns left of it are nobody's
            inputs: dict[str, Any] = self._batch(rows, n)
            if any(row.parents is not None and not is_chain(row.parents) for row in rows):
                inputs["attention_mask"] = self._tree_mask(rows, [start - begin for start in starts], end - begin, n)
            elif min(sizes) < n or max(starts) > begin:  # somebody is padded
                column = torch.arange(begin, end + n)
                held = (column >= torch.tensor(starts)[:, None]) & (
                    column < torch.tensor([end + size for size in sizes])[:, None]
                )
                inputs["attention_mask"] = held.long().to(self._device)  # (B, columns)
            if self._takes_positions:
                at = torch.tensor([sequence.length for sequence in sequences])[:, None] + _steps(rows, n)
                # Padding may lie beyond the last position that the model has learnt.
                inputs["position_ids"] = at.clamp_(max=self.context_length - 1).to(self._device)  # (B, n)
            wanted = sorted({i for row, size in zip(rows, sizes, strict=True) for i in _wanted(row, size)})
            if self._keeps_some:
                last_only = wanted == [n - 1]
                inputs["logits_to_keep"] = 1 if last_only else torch.tensor(wanted, device=self._device)
            else:
                wanted = list(range(n))
            with torch.inference_mode():
                appender = _Appender if self._lean else _transformers_appender()
                output = self._module(
                    **inputs,
                    **self._to_watch(self.watched),
                    past_key_values=appender(store, first, len(rows), begin, end, n),
                    use_cache=True,
                    return_dict=True,
                )
                logits = output.logits.to(device="cpu", dtype=torch.float32)  # (B, kept, V)
                self._see(sequences, sizes, output)
        except torch.OutOfMemoryError as error:
            raise ContextFull(f"The memory of {self.device} is full; close sequences or shorten the text.") from error
        if store is not sequences[0].store:
            for line, sequence in enumerate(sequences):
                sequence.move(store, line, starts[line])
        kept = {position: i for i, position in enumerate(wanted)}
        # Cloned outside of inference mode: ordinary tensors, which keep no batch alive.
        return [
            torch.empty(0)
            if row.silent
            else after[[kept[i] for i in _wanted(row, size)]]
            if row.every or row.parents is not None
            else after[kept[size - 1]].clone()
            for row, size, after in zip(rows, sizes, logits, strict=True)
        ]

    def watch(self, layers: tuple[int, ...]) -> None:
        self._check_layers(layers)
        self.watched = tuple(layers)

    def _check_layers(self, layers: tuple[int, ...]) -> None:
        if any(not 0 <= layer < self.depth for layer in layers):
            raise InputError(f"Layers {layers} of {self.name} asked for; it has layers 0 to {self.depth - 1}.")

    def _to_watch(self, layers: tuple[int, ...]) -> dict[str, Any]:
        """What the module is asked for besides, so that `_entering` finds these layers in its output."""
        if not layers:
            return {}
        return {"feature_layers": layers} if self._lean else {"output_hidden_states": True}

    def _entering(self, layers: tuple[int, ...], output: Any) -> Tensor:
        """The hidden states (B, n, W) that entered these layers, side by side."""
        return output.features if self._lean else torch.cat([output.hidden_states[i] for i in layers], -1)

    def _see(self, sequences: list[TorchSequence], sizes: list[int], output: Any) -> None:
        """Hand the hidden states of watched layers over: (n, W) to each sequence."""
        if not self.watched:
            return
        for sequence, size, of_row in zip(sequences, sizes, self._entering(self.watched, output), strict=True):
            sequence._fresh = of_row[:size].to(device="cpu", dtype=torch.float32)

    def _place(self, sequences: list[TorchSequence], n: int) -> tuple[_Store, int, int]:
        """A store where `sequences` are neighbours that end in one column with n free ones behind it.

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
        return self._new_store(sequences, n)

    def _new_store(self, sequences: list[TorchSequence], n: int) -> tuple[_Store, int, int]:
        """A copy of the sequences in a store of their own; returns what `_place` returns."""
        end = max(sequence.length for sequence in sequences)
        # Half as much again: copying stays a constant share of the work, however long the text grows.
        room = max(ROOM, (end + n) // 2)
        store = _Store(self._planes, len(sequences), end + n + room, self._dtype, self._device)
        self._stores.add(store)
        for line, sequence in enumerate(sequences):
            store.take(line, end, sequence)
        return store, 0, end

    def _batch(self, rows: list[Row], n: int) -> dict[str, Tensor]:
        """The rows as `input_ids` (B, n), or as `inputs_embeds` (B, n, D) if any of them holds embeddings."""
        if not any(isinstance(row.inputs, Tensor) for row in rows):
            ids = [[*row.inputs, *[0] * (n - len(row.inputs))] for row in rows]
            return {"input_ids": torch.tensor(ids, device=self._device)}
        vectors = torch.zeros(len(rows), n, self.dim)
        for line, row in enumerate(rows):
            vectors[line, : len(row.inputs)] = as_embeddings(self, row.inputs)
        return {"inputs_embeds": vectors.to(device=self._device, dtype=self._dtype)}

    def _tree_mask(self, rows: list[Row], starts: list[int], past: int, n: int) -> Tensor | dict[str, Tensor]:
        """What each of n inputs of B rows sees of `past` held columns and of the inputs: 0 or the least number,
        (B, 1, n, past + n); one mask for each kind of layer if there are several."""
        parents = [range(-1, n - 1) if row.parents is None else row.parents for row in rows]
        seen = torch.zeros(len(rows), n, past + n, dtype=torch.bool)
        for line, (start, above) in enumerate(zip(starts, parents, strict=True)):
            seen[line, :, start:past] = True
            for i in range(n):
                parent = above[i] if i < len(above) else -1  # padding sees itself, for a row of nothing is NaN
                if parent >= 0:
                    seen[line, i, past:] = seen[line, parent, past:]
                seen[line, i, past + i] = True
        # Distance in positions, not columns: branches stand side by side.
        step = _steps(rows, n).expand(len(rows), n)  # (B, n)
        column = torch.cat([torch.arange(-past, 0).expand(len(rows), past), step], dim=1)  # (B, past + n)
        distance = step[:, :, None] - column[:, None, :]
        least = torch.finfo(self._dtype).min
        masks = {
            kind: torch.zeros(seen.shape, dtype=self._dtype)
            .masked_fill_(~(seen if width is None else seen & (distance < width)), least)[:, None]
            .to(self._device)
            for kind, width in self._windows.items()
        }
        return masks if len(masks) > 1 else next(iter(masks.values()))

    def _check_embeddings(self) -> None:
        """Feed one token as an id and as its embedding: the interface promises that this is the same."""
        token = self.tokenizer.document_start
        try:
            by_id, by_vector = self.open(), self.open()
            logits = self._forward([Row(by_id, [token])])[0]
            same = self._forward([Row(by_vector, self.embeddings[token : token + 1])])[0]
        except _UNREADABLE as error:
            raise ModelFileError(
                f"{self.name} does not run behind our cache ({_first_line(error)}); choose another model."
            ) from error
        if logits.shape != (self.vocab_size,) or not torch.allclose(logits, same, rtol=1e-2, atol=1e-2):
            raise ModelFileError(
                f"{self.name} needs more than the embedding of a token, so mixtures cannot be fed; choose "
                f"another model."
            )

    def _reads_trees(self) -> bool:
        """Whether a token of a tree sees its own path and nothing else."""
        a, b = 0, self.vocab_size - 1
        try:
            plain = self._forward([Row(self.open(), [a, b], every=True)])[0]
            tree = self._forward([Row(self.open(), [a, a, b], parents=[-1, 0, 0])])[0]
        except _UNREADABLE:
            return False
        return torch.allclose(plain[1], tree[2], rtol=1e-2, atol=1e-2)


class TorchSequence(Sequence):
    """A sequence and its place in a store: columns `start` to `end` of line `line`."""

    def __init__(self, model: TorchModel) -> None:
        super().__init__(model)
        self.store: _Store | None = None  # None: nothing cached yet
        self.line = 0
        self.start = 0
        self.closed = False

    @property
    def end(self) -> int:
        """The column where the next input goes."""
        return self.start + self.length

    def move(self, store: _Store | None, line: int = 0, start: int = 0) -> None:
        """Give the present place up and take another."""
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
        """`end` follows `length`, which the caller shortens; nothing else changes."""

    def _fork(self) -> TorchSequence:
        assert isinstance(self.model, TorchModel)
        if self.closed:
            raise InputError("The sequence is closed; open a new one.")
        child = TorchSequence(self.model)
        child.move(self.store, self.line, self.start)
        return child

    def settle(self) -> None:
        """Leave a store of several lines, which keeps the memory of all of them for as long as one is in use."""
        if self.store is None or len(self.store.tenants) == 1 or self.store.tenants[self.line] > 1:
            return
        assert isinstance(self.model, TorchModel)
        store, line, end = self.model._new_store([self], 0)
        self.move(store, line, end - self.length)

    def close(self) -> None:
        self.closed = True
        self.move(None)

    def __del__(self) -> None:
        # A fork that was dropped without closing should not make its parent move.
        self.move(None)


class _Store:
    """Keys and values of a few sequences. See the head of this file.

    A plane is the keys, or the values, of one layer: plane 2·i has the keys of layer i, plane 2·i + 1 its
    values. Planes of one shape (in most models, all of them) share one tensor, so that taking a sequence over
    is one copy.

    Attributes:
        planes: (heads, width) of each plane.
        blocks: by shape (heads, width), the planes of that shape: (planes, lines, heads, columns, width).
        capacity: columns.
        tenants: how many sequences stand on each line.
    """

    def __init__(
        self,
        planes: list[tuple[int, int]],
        lines: int,
        capacity: int,
        dtype: torch.dtype,
        device: torch.device,
    ) -> None:
        self.planes = planes
        self.capacity = capacity
        self.tenants = [0] * lines
        self.blocks = {
            (heads, width): torch.empty(
                planes.count((heads, width)), lines, heads, capacity, width, dtype=dtype, device=device
            )
            for heads, width in dict.fromkeys(planes)
        }

    def take(self, line: int, end: int, sequence: TorchSequence) -> None:
        """Copy a sequence so that it ends in column `end`; what is free before it becomes zeros."""
        start = end - sequence.length
        for shape, block in self.blocks.items():
            block[:, line, :, :start].zero_()  # masked, but 0 · NaN would still be NaN
            if sequence.store is not None:
                held = sequence.store.blocks[shape][:, sequence.line, :, sequence.start : sequence.end]
                block[:, line, :, start:end] = held

    def gather(self, line: int, end: int, path: list[int]) -> None:
        """Move columns `end` + p of a line, for each p of `path`, together behind `end`."""
        for block in self.blocks.values():
            places = torch.tensor(path, device=block.device)
            block[:, line, :, end : end + len(path)] = block[:, line, :, end:].index_select(2, places)

    def window(self, first: int, lines: int, begin: int, end: int) -> list[Tensor]:
        """A view (lines, heads, end - begin, width) of each plane."""
        views = {
            shape: iter(block[:, first : first + lines, :, begin:end].unbind(0)) for shape, block in self.blocks.items()
        }
        return [next(views[shape]) for shape in self.planes]


class _Appender:
    """What a module sees of a store in one pass: columns `begin` to `end` as the past, n more to fill."""

    def __init__(self, store: _Store, first: int, lines: int, begin: int, end: int, n: int) -> None:
        self._store, self._first, self._lines = store, first, lines
        self._begin, self._end, self._n = begin, end, n

    @property
    def block(self) -> Tensor:
        """All planes, if they are of one shape, with room for what is new: (planes, lines, heads, C, width)."""
        (block,) = self._store.blocks.values()
        return block[:, self._first : self._first + self._lines, :, self._begin : self._end + self._n]

    @cached_property
    def _all(self) -> list[Tensor]:
        return self._store.window(self._first, self._lines, self._begin, self._end + self._n)

    @cached_property
    def _new(self) -> list[Tensor]:
        return self._store.window(self._first, self._lines, self._end, self._end + self._n)

    def update(
        self, key_states: Tensor, value_states: Tensor, layer_idx: int, *args: Any, **kwargs: Any
    ) -> tuple[Tensor, Tensor]:
        """Append keys and values (B, heads, n, width); returns all of them, with the past."""
        keys, values = 2 * layer_idx, 2 * layer_idx + 1
        self._new[keys].copy_(key_states)
        self._new[values].copy_(value_states)
        return self._all[keys], self._all[values]

    def get_seq_length(self, layer_idx: int = 0) -> int:
        return self._end - self._begin

    def get_mask_sizes(self, query_length: int, layer_idx: int) -> tuple[int, int]:
        # Layers with a sliding window keep everything too, so that they can be rewound; their mask hides it.
        return self._end - self._begin + query_length, 0


@cache
def _transformers_appender() -> type[_Appender]:
    """The same for transformers' own layers, which accept only their `Cache`. Imports transformers."""
    from transformers.cache_utils import Cache

    class Appender(_Appender, Cache):
        def __init__(self, *place: Any) -> None:
            Cache.__init__(self, layers=[])
            _Appender.__init__(self, *place)

    return Appender


def load(source: Path | str, name: str, dtype: torch.dtype | None = None, plain: bool = False) -> TorchModel:
    """Load a model.

    Args:
        source: a GGUF file, a Hugging Face directory, or the id of a model on the Hugging Face hub.
        name: what the user asked for.
        dtype: of the weights on a CPU, float32 or bfloat16; None is as a GGUF file has them, or else float32. Models
            that cannot run lean stay at float32.
        plain: keep transformers' layers, where the Llama family would run without them on a CPU; see `made_lean`.
    Raises: ModelNotFound for an id that neither the hub nor the local cache has; ModelFileError for files
        that are incomplete, damaged, not in safetensors, or of an architecture that transformers cannot read.
    """
    if isinstance(source, Path) and source.is_file():
        gguf_check.check(gguf_file.read(source))
        straight = _load_straight(source, name) if dtype is None and not plain else None
        if straight is not None:
            return straight
    from transformers import AutoConfig

    with _quiet(), _read_once():
        options = _SAFELY
        if isinstance(source, str):
            reachable = _hub_reachable()
            options = options | {"local_files_only": not reachable}
            try:
                AutoConfig.from_pretrained(source, **options)
            except OSError as error:
                where = "on the Hugging Face hub" if reachable else "among the downloaded ones"
                fetch = "" if reachable else f"fetch it with `hf download {source}`, or "
                raise ModelNotFound(
                    f"No model {source!r} {where}; {fetch}give a path to a GGUF file or a directory, or the id of a "
                    f"public model (owner/name)."
                ) from error
            except _UNREADABLE as error:
                raise _unreadable(source, error) from error
        elif source.is_dir() and not (source / "config.json").is_file():
            raise ModelFileError(f"{source} has no config.json; give the directory of a Hugging Face model.")
        with _reading(source):
            module, info = _load_module(source, options)
        if info["missing_keys"]:
            missing = sorted(info["missing_keys"])
            raise ModelFileError(
                f"{source} lacks {len(missing)} of the model's weights ({missing[0]}, …); get a complete copy."
            )
        vocab_size = _embedding_weight(module).shape[0]
        with _reading(source, "the tokenizer of "):
            tokenizer = _load_tokenizer(source, options, module, vocab_size)
        with _reading(source):  # sizes that do not fit together show when the layers first run
            model = TorchModel(module, tokenizer, name, _context_length(module))
        return model if plain else made_lean(model, dtype, source if isinstance(source, Path) else None)


def _load_straight(path: Path, name: str) -> TorchModel | None:
    """A GGUF file that is put into compiled code as it is, or None. It asks nothing of transformers that takes seconds
    to import."""
    file = gguf_file.read(path)
    module = native_gguf.read(file)
    if module is None:
        return None
    with _reading(path, "the tokenizer of "):
        tokenizer = from_gguf(file.fields, module.embed_tokens.num_embeddings)
    if tokenizer is None:
        return None
    gguf_file.forget()
    return TorchModel(module, tokenizer, name, _context_length(module))


def made_lean(model: TorchModel, dtype: torch.dtype | None = None, source: Path | None = None) -> TorchModel:
    """The same model without transformers' layers: in compiled code, or else on oneDNN, or else as it is.

    Without a `dtype`, weights that `source` has coded stay so; it must be the file that the model was loaded from.
    `notice` of what is returned says when there could have been compiled code.
    """
    module: Any = model._module
    assert not model._lean
    if lean.why_not_llama(module):
        return model
    if not (reason := native.why_not(module)):
        coded = _coded(source) if source and source.is_file() and dtype is None else None
        made: Module = NativeLlama.of(module, dtype or torch.float32, coded)
    elif not lean.why_not(module, dtype or torch.float32):
        made = LeanLlama(module, dtype or torch.float32)
    else:
        return model
    found = TorchModel(made, model.tokenizer, model.name, model.context_length)
    found.notice = f"Drafts take twice as long as they could on this CPU: {reason}." if reason else None
    return found


def _coded(path: Path) -> Callable[[str], Coded | None]:
    """What a GGUF file has of a name, if it is in a form that stays as it is."""
    tensors = gguf_file.read(path).tensors
    return lambda name: Coded.of(tensors[name]) if name in tensors else None


# Never run code that comes with a model, never unpickle its weights.
_SAFELY: dict[str, Any] = {"trust_remote_code": False}


def _hub_reachable() -> bool:
    """Whether to ask the hub at all: without a network, transformers goes on asking for 23 s."""
    if hub.HF_HUB_OFFLINE:
        return False
    if getproxies():
        return True  # only the proxy knows
    address = urlsplit(hub.ENDPOINT)
    try:
        socket.create_connection((address.hostname or "", address.port or 443), timeout=3).close()
    except OSError:
        return False
    return True


def _load_module(source: Path | str, options: dict[str, Any]) -> tuple[PreTrainedModel, dict[str, Any]]:
    """The weights on the GPU in 16 bits where there is one, else on the CPU in float32."""
    from transformers import AutoModelForCausalLM, GgufConfig

    device, dtype = torch.device("cpu"), torch.float32
    if torch.cuda.is_available():
        device = torch.device("cuda", torch.cuda.current_device())
        dtype = torch.bfloat16 if torch.cuda.is_bf16_supported() else torch.float16
    options = options | {"dtype": dtype, "output_loading_info": True}
    if isinstance(source, Path) and source.is_file():
        options |= {"gguf_file": source.name, "quantization_config": GgufConfig(dequantize=True)}
        source = source.parent
    else:
        options["use_safetensors"] = True
    loaded: Any = AutoModelForCausalLM.from_pretrained(str(source), **options)
    module, info = loaded
    return module.to(device), info


def _load_tokenizer(
    source: Path | str, options: dict[str, Any], module: PreTrainedModel, vocab_size: int
) -> HFTokenizer:
    from transformers import AutoTokenizer, PreTrainedTokenizerFast

    if isinstance(source, Path) and source.is_file():
        tokenizer = from_gguf(gguf_file.read(source).fields, vocab_size)
        if tokenizer is not None:
            return tokenizer
        options = options | {"gguf_file": source.name}
        source = source.parent
    tokenizer = AutoTokenizer.from_pretrained(str(source), **options)
    if not isinstance(tokenizer, PreTrainedTokenizerFast):
        raise ModelFileError(f"{source} has no tokenizer.json, which we read; choose a model that has one.")
    eos_ids: list[int] = []
    for config in (module.config.get_text_config(), module.generation_config):
        stated = getattr(config, "eos_token_id", None)
        eos_ids += stated if isinstance(stated, list) else [] if stated is None else [stated]
    return from_transformers(tokenizer, vocab_size, eos_ids)


def _context_length(module: Module) -> int:
    config = module.config.get_text_config()
    for key in ("max_position_embeddings", "max_seq_len", "seq_length"):
        stated = getattr(config, key, None)
        if isinstance(stated, int) and stated > 0:
            return min(stated, MAX_CONTEXT)
    return UNKNOWN_CONTEXT


def _embedding_table(module: Module) -> Tensor:
    """What the embedding layer says for each id, (V, D) float32 on the CPU; some models scale its weights."""
    layer, weight = module.get_input_embeddings(), _embedding_weight(module)
    if type(layer) is nn.Embedding:
        return weight.detach().to(device="cpu", dtype=torch.float32)  # no copy where it is that already
    with torch.no_grad():
        return layer(torch.arange(weight.shape[0], device=weight.device)).to(device="cpu", dtype=torch.float32)


def _embedding_weight(module: Module) -> Tensor:
    weight = module.get_input_embeddings().weight
    assert isinstance(weight, Tensor)
    return weight


def _probe_planes(module: Module, name: str) -> list[tuple[int, int]]:
    """(heads, width) of each layer's keys and values, as one token leaves them in transformers' own cache."""
    if isinstance(module, NativeLlama):
        return module.planes
    from transformers.cache_utils import DynamicCache, DynamicLayer, DynamicSlidingWindowLayer

    cache = DynamicCache(config=module.config.get_text_config())
    with torch.inference_mode():
        module(
            input_ids=torch.zeros(1, 1, dtype=torch.long, device=module.device),
            past_key_values=cache,
            use_cache=True,
        )
    planes: list[tuple[int, int]] = []
    for layer in cache.layers:
        keys, values = getattr(layer, "keys", None), getattr(layer, "values", None)
        if type(layer) not in (DynamicLayer, DynamicSlidingWindowLayer) or keys is None or values is None:
            raise ModelFileError(
                f"{name} has layers whose memory cannot be rewound ({type(layer).__name__}); choose a model "
                f"with plain attention."
            )
        planes += [(kept.shape[1], kept.shape[3]) for kept in (keys, values)]
    return planes


def _similar_rows(rows: list[Row]) -> list[list[Row]]:
    """Split rows into groups that are worth a joint pass, each in the order of its lines."""
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


def _wanted(row: Row, size: int) -> range:
    """The inputs of a row after which somebody wants logits."""
    return range(size) if row.every or row.parents is not None else range(size - 1, size)


def _steps(rows: list[Row], n: int) -> Tensor:
    """How many positions each input stands behind the end of its sequence: (B, n), or (1, n) without trees."""
    if all(row.parents is None for row in rows):
        return torch.arange(n)[None]
    found = torch.arange(n).repeat(len(rows), 1)
    for line, row in enumerate(rows):
        if row.parents is not None:
            found[line, : len(row.parents)] = torch.tensor(depths(row.parents))
    return found


def _windows(module: Module) -> dict[str, int | None]:
    """How far back each kind of layer looks, in positions; None for all the way."""
    config = module.config.get_text_config()
    width = getattr(config, "sliding_window", None)
    kinds = getattr(config, "layer_types", None) or ["sliding_attention" if width else "full_attention"]
    return {kind: width if kind == "sliding_attention" else None for kind in dict.fromkeys(kinds)}


@contextmanager
def _quiet() -> Iterator[None]:
    """Keep transformers' progress bars and advice out of our output; they speak to programmers."""
    from huggingface_hub import utils as hub_utils
    from transformers import modeling_gguf_pytorch_utils
    from transformers.utils import logging

    verbosity, bars = logging.get_verbosity(), logging.is_progress_bar_enabled()
    hub_bars = not hub_utils.are_progress_bars_disabled()
    gguf_reader: Any = modeling_gguf_pytorch_utils
    gguf_bar = gguf_reader.tqdm  # obeys no switch
    logging.set_verbosity(CRITICAL)
    logging.disable_progress_bar()
    hub_utils.disable_progress_bars()
    gguf_reader.tqdm = lambda tensors, **_: tensors
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        gguf_reader.tqdm = gguf_bar
        logging.set_verbosity(verbosity)
        if bars:
            logging.enable_progress_bar()
        if hub_bars:
            hub_utils.enable_progress_bars()


@contextmanager
def _read_once() -> Iterator[None]:
    """While transformers loads a GGUF file it parses it twice, and makes the table of tensor names for every module:
    more than half of the time. Both are the same every time."""
    import gguf

    reader, name_map = gguf.GGUFReader, gguf.get_tensor_name_map
    library: Any = gguf
    library.GGUFReader = cache(reader)
    library.get_tensor_name_map = cache(name_map)
    try:
        yield
    finally:
        library.GGUFReader, library.get_tensor_name_map = reader, name_map
        gguf_file.forget()


@contextmanager
def _reading(source: Path | str, part: str = "") -> Iterator[None]:
    """Make one sentence of whatever a library raises for a file that no one vouches for: `tokenizers` raises Exception
    itself, and its panics are not even that."""
    try:
        yield
    except (PolydraftError, KeyboardInterrupt, SystemExit):
        raise
    except BaseException as error:
        raise _unreadable(source, error, part) from error


def _unreadable(source: Path | str, error: BaseException, part: str = "") -> ModelFileError:
    expected = "a directory with safetensors weights"
    if isinstance(source, Path) and source.is_file():
        expected = "a complete GGUF file"
    return ModelFileError(
        f"Cannot read {part}{source} ({_first_line(error)}); give {expected} of an architecture that "
        f"transformers knows."
    )


def _first_line(error: BaseException) -> str:
    lines = str(error).strip().splitlines() or [type(error).__name__]
    line = " ".join(lines[: 2 if lines[0].endswith(":") else 1]).rstrip(".")
    return line if len(line) <= 200 else line[:199] + "…"
