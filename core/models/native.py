"""Layers of the Llama family and its relatives in compiled code: a whole pass in one call of `native/pass.cpp`.

The code is compiled on first use, in a few seconds, and cached (`native_library`); if that fails, `why_not_width`
gives the reason. `llama.py` computes whole models with it, `eagle3_cpu.py` EAGLE-3 heads.
"""

from __future__ import annotations

import ctypes
import platform
import sys
import time
from collections.abc import Iterable, Mapping, Sequence
from ctypes import POINTER, Structure, c_char_p, c_double, c_int64, c_void_p, pointer
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from core.errors import ContextFull
from core.models import native_library
from core.models.adapter import LowRank, Projection
from core.models.coded import Coded, Form, Weight, filled, in_panels, joined
from core.models.families import Shape
from core.models.native_library import CannotCompile, CppSource
from core.models.threads import Threads

# For ARM, compilers call the processor -mcpu; their -march is the instruction set alone.
TUNED = "-mcpu=native" if platform.machine().lower() in ("aarch64", "arm64") else "-march=native"
WIDEST = 256  # of a head
SETS = 4  # of adapters that stay arranged: with and without the one to prose, and one or two of stores

NO_MEMORY = 1  # return value of `polydraft_forward`
# Of weights, in the numbering of `native/interface.h`: types, and forms of coded ones.
KINDS = (
    *(torch.float32, torch.bfloat16, torch.float16),
    *(Form(8, False), Form(4, True), Form(6, False), Form(6, True)),
    *(Form(4, True, scaled=True), Form(6, True, scaled=True), Form(6, False, scaled=True, group=16)),
)

SIGNED_BYTES = KINDS.index(Form(8, False))  # of an adapter's factors; their scales are among its strengths


class _LowRank(Structure):
    _fields_ = [
        *((name, c_void_p) for name in ("a", "b", "first", "strengths")),
        *((name, c_int64) for name in ("rank", "count", "kind", "a_bytes", "b_bytes")),
    ]


class _Part(Structure):
    _fields_ = [("panels", c_void_p), *((name, c_int64) for name in ("out", "kind", "bytes"))]


class _Matrix(Structure):
    _fields_ = [
        ("part", _Part * 3),
        ("parts", c_int64),
        *((name, c_void_p) for name in ("bias", "norm")),
        *((name, c_int64) for name in ("out", "inputs")),
        ("low", POINTER(_LowRank)),
    ]


class _Stored(Structure):
    _fields_ = [
        ("rows", c_void_p),
        *((name, c_int64) for name in ("type", "out", "inputs", "row_bytes")),
        ("order", c_void_p),
        ("outputs", c_int64),
        ("panels", c_void_p),
        *((name, c_int64) for name in ("bytes", "threads")),
    ]


class _Rows(Structure):
    _fields_ = [
        ("part", _Part),
        ("inputs", c_int64),
        ("ids", c_void_p),
        ("count", c_int64),
        ("rows", c_void_p),
    ]


class _Layer(Structure):
    _fields_ = [
        *((name, _Matrix) for name in ("qkv", "out", "gate", "up", "down")),
        *((name, c_void_p) for name in ("q_norm", "k_norm", "after_attention", "after_feed_forward")),
        *((name, c_int64) for name in ("table", "near", "plain")),
    ]


class _Model(Structure):
    _fields_ = [
        *((name, c_int64) for name in ("layers", "dim", "heads", "key_heads", "width", "inner")),
        *((name, c_int64) for name in ("turned", "tables", "window", "gelu", "whole", "rounded")),
        *((name, c_double) for name in ("eps", "attention", "residual", "logits", "attention_cap", "logit_cap")),
        ("layer", POINTER(_Layer)),
        ("head", _Matrix),
    ]


class _Line(Structure):
    _fields_ = [
        *((name, c_int64) for name in ("n", "past")),
        ("cache", c_void_p),
        *((name, c_int64) for name in ("of_plane", "of_head", "cache_size")),
        *((name, c_void_p) for name in ("seen", "near")),
    ]


class _Pass(Structure):
    _fields_ = [
        *((name, c_int64) for name in ("lines", "inputs", "threads")),
        ("line", POINTER(_Line)),
        *((name, c_void_p) for name in ("h", "entering")),
        ("entering_width", c_int64),
        *((name, c_void_p) for name in ("cos", "sin", "kept")),
        ("kept_count", c_int64),
        ("logits", c_void_p),
        ("watched", c_void_p),
        ("watched_count", c_int64),
        ("features", c_void_p),
    ]


def openmp(system: str = sys.platform) -> tuple[tuple[str, ...], ...]:
    """The options for OpenMP to try in turn; with the last ones, none, the code has one thread.

    Apple's compiler understands OpenMP and does not bring its library. Torch does, and a second copy of it would end
    the process.
    """
    if system != "darwin":
        return (("-fopenmp",), ())
    folder = Path(torch.__file__).with_name("lib")
    return (("-Xclang", "-fopenmp", f"-L{folder}", "-lomp", f"-Wl,-rpath,{folder}"), ())


SOURCE = CppSource(
    Path(__file__).with_name("native") / "pass.cpp", ("-std=c++17", "-O3", TUNED, "-shared", "-fPIC"), openmp()
)


@cache
def library() -> ctypes.CDLL:
    """The compiled code. Raises CannotCompile."""
    loaded = native_library.load(SOURCE)
    loaded.polydraft_forward.argtypes = loaded.polydraft_fault.argtypes = [POINTER(_Model), POINTER(_Pass)]
    loaded.polydraft_fault.restype = c_char_p
    loaded.polydraft_rows.argtypes = [POINTER(_Rows)]
    loaded.polydraft_panels.argtypes = [POINTER(_Stored)]
    loaded.polydraft_panel_bytes.argtypes, loaded.polydraft_panel_bytes.restype = [c_int64] * 3, c_int64
    return loaded


def rounds() -> bool:
    """Whether this processor has instructions for products with inputs of 8 bits. Raises CannotCompile."""
    return bool(library().polydraft_rounds())


def library_path() -> Path:
    """Where it is kept. Raises CannotCompile."""
    library()
    return native_library.path_of(SOURCE)


def why_not_width(width: int) -> str:
    """Why there is no compiled code for attention heads of this width, or ""."""
    try:
        lanes = library().polydraft_lanes()
    except CannotCompile as error:
        return str(error)
    return (
        f"its heads are {width} wide, not a multiple of {lanes} up to {WIDEST}"
        if width % lanes or width > WIDEST
        else ""
    )


Map = tuple[Weight, Tensor | None]  # weight (out, in), bias (out,): x Wᵀ + b


@dataclass(frozen=True)
class LayerMaps:
    """The maps and norms of one layer.

    Attributes:
        before, between: weights (D,) of the norms before attention and before the feed-forward part. They may be None
            and be included in the next maps: W (g · x) = (W g) x.
        q_norm, k_norm: weights of the norms of each query and key, (w,), or (H · w,) and (K · w,); None for no norm.
        after_attention, after_feed_forward: weights (D,) of norms of what these parts add; None for no norm.
        table: the kind of rotation of queries and keys, None for none.
        near: attention is limited to the window.
        plain: there are no norms before attention and before the feed-forward part.
    """

    q: Map
    k: Map
    v: Map
    out: Map
    gate: Map
    up: Map
    down: Map
    before: Tensor | None = None
    between: Tensor | None = None
    q_norm: Tensor | None = None
    k_norm: Tensor | None = None
    after_attention: Tensor | None = None
    after_feed_forward: Tensor | None = None
    table: int | None = 0
    near: bool = False
    plain: bool = False


@dataclass(frozen=True)
class Change:
    """An addition to one projection: strength · B (A x), with A (r, in) and B (out, r)."""

    low: LowRank
    strength: float


@dataclass(frozen=True)
class Line:
    """One sequence in a pass.

    Attributes:
        block: (planes, K, C, w), keys and values of each layer in turn: `past` columns, then room for n more. No other
            line of the pass has the same memory.
        past, n: cached columns, and inputs.
        seen: (n, past + n) bool, the columns that each input attends to; None is everything up to itself.
        near: the same in layers with a window; given if `seen` is and the model has a window.
    """

    block: Tensor
    past: int
    n: int
    seen: Tensor | None = None
    near: Tensor | None = None


class Compiled:
    """Layers and an output matrix, in the order in which the compiled code reads them."""

    def __init__(
        self,
        shape: Shape,
        layers: Iterable[LayerMaps],
        output: Map,
        norm: Tensor | None = None,
        dtype: torch.dtype | None = None,
        rounded: bool = False,
    ) -> None:
        """`why_not_width(shape.width)` must be "".

        Args:
            layers: each is needed only until the next one is read.
            output: the output rows.
            norm: (D,) of the norm before the output rows, unless they include it.
            dtype: of weights that are not coded; None keeps their own (float32, bfloat16 or float16).
            rounded: products of coded weights round their inputs to 8 bits; those of the gate and of its twin only if
                both are coded.
        """
        self._library, self._shape, self._threads = library(), shape, Threads()
        self._panel, self._dtype = self._library.polydraft_panel(), dtype
        self._held: list[Tensor] = []  # keeps the tensors behind the structures' pointers alive
        # The additions of the latest adapters, by the identity of their changes, the newest last, and their tensors.
        self._adapted: dict[tuple[Any, ...], tuple[dict[tuple[int, str], Any], Any, Any]] = {}
        self.dim, self.outputs = shape.dim, len(output[0])
        arranged = [self._layer(layer) for layer in layers]
        self.layers = len(arranged)
        self._model = _Model(
            **vars(shape) | {"turned": shape.rotated, "attention": shape.of_scores},
            layers=self.layers,
            rounded=rounded,
            layer=(_Layer * self.layers)(*arranged),
            head=self._matrix([output], norm),
        )
        self.output_rows = StoredRows(self._model.head.part[0], shape.dim, self._held)
        if fault := self._library.polydraft_fault(self._model, None):
            raise ValueError(f"The weights do not fit together: {fault.decode()}.")

    @property
    def bytes(self) -> int:
        """Bytes of weights that a pass reads, without adapters."""
        return sum(x.nbytes for x in self._held)

    @property
    def shape_and_types(self) -> str:
        """What the time of a pass depends on, without adapters. With the shape, the bytes give the weights' types."""
        rounded = ", inputs in 8 bits" if self._model.rounded else ""
        return f"{self._shape}, {self._model.layers} layers, {self.outputs} outputs, {self.bytes} bytes{rounded}"

    def adapt(self, changes: Mapping[Projection, Sequence[Change]]) -> None:
        """Adds these changes of projections, by layer and name, in place of all earlier ones. The arrangements of the
        latest few sets are kept, because arranging one takes a second."""
        key = tuple((at, id(change.low), change.strength) for at, every in changes.items() for change in every)
        additions, *held = self._adapted.pop(key, None) or self._arranged(changes)
        for (i, matrix), addition in additions.items():
            getattr(self._model.layer[i], matrix).low = addition
        self._adapted[key] = additions, *held
        for old in list(self._adapted)[:-SETS]:
            del self._adapted[old]

    def _arranged(self, changes: Mapping[Projection, Sequence[Change]]) -> tuple[dict[tuple[int, str], Any], Any, Any]:
        """The additions to the matrices, by layer and name, and what must stay in memory with them."""
        s, nothing = self._shape, POINTER(_LowRank)()
        of_keys = s.key_heads * s.width
        parts = {
            "qkv": [("q_proj", s.heads * s.width), ("k_proj", of_keys), ("v_proj", of_keys)],
            "out": [("o_proj", s.dim)],
            "gate": [("gate_proj", s.inner)],
            "up": [("up_proj", s.inner)],
            "down": [("down_proj", s.dim)],
        }
        held: list[object] = []
        additions: dict[tuple[int, str], Any] = {}
        for i in range(self._model.layers):
            for matrix, projections in parts.items():
                changed = [(changes.get((i, name), ()), rows) for name, rows in projections]
                some = any(changes for changes, _ in changed)
                stored = _outputs(getattr(self._model.layer[i], matrix))
                additions[i, matrix] = self._low_rank(changed, stored, held) if some else nothing
        return additions, held, changes

    def _low_rank(self, parts: list[tuple[Sequence[Change], int]], stored: list[int], held: list[object]) -> Any:
        """Returns the addition to a matrix of these projections, each with its changes and outputs; `stored` are the
        outputs of each of its parts. `held` keeps its tensors alive."""
        every = [change for changes, _ in parts for change in changes]
        a = torch.cat([change.low.a for change in every])  # (R, in)
        strengths = torch.cat([torch.full((len(change.low.a),), change.strength) for change in every])
        rank = len(a)
        b = torch.zeros(sum(rows for _, rows in parts), rank)
        used = torch.zeros(b.shape, dtype=torch.bool)
        row = column = 0
        for changes, rows in parts:
            for change in changes:
                columns = slice(column, column + change.low.b.shape[1])
                b[row : row + rows, columns], used[row : row + rows, columns] = change.low.b, True
                column = columns.stop
            row += rows
        if self._model.rounded and all(x.isfinite().all() for x in (a, b)):  # others are refused when they are tried
            a, of_rows = _in_bytes(a, 1)
            b, of_columns = _in_bytes(b, 0)
            strengths = strengths * of_rows * of_columns
        b, used = (torch.cat([filled(part, self._panel) for part in x.split(stored)]) for x in (b, used))
        # The columns of B that a panel uses are neighbours; every panel has as many as the one that uses most.
        some = in_panels(used, self._panel).any(1)  # (panels, R)
        begins = some.int().argmax(1)
        count = int((rank - some.flip(1).int().argmax(1) - begins).masked_fill(~some.any(1), 0).max())
        begins = begins.clamp(max=rank - count)
        columns = begins[:, None] + torch.arange(count)
        b = in_panels(b, self._panel).transpose(1, 2)  # (panels, R, panel)
        b = b.gather(1, columns[:, :, None].expand(-1, -1, self._panel)).contiguous()
        if a.dtype == torch.float32 and all(torch.equal(x, x.to(torch.bfloat16).float()) for x in (a, b)):
            a, b = a.to(torch.bfloat16), b.to(torch.bfloat16)
        kind = SIGNED_BYTES if a.dtype == torch.int8 else KINDS.index(a.dtype)
        tensors = (a.contiguous(), b, begins.masked_fill(~some.any(1), -1).contiguous(), strengths)
        addition = _LowRank(*(x.data_ptr() for x in tensors), rank, count, kind, a.nbytes, b.nbytes)
        held += [tensors, addition]
        return pointer(addition)

    def __call__(
        self,
        h: Tensor,
        turn: tuple[Tensor, Tensor],
        lines: Sequence[Line],
        *,
        kept: Tensor | None = None,
        watched: tuple[int, ...] = (),
        entering: Tensor | None = None,
    ) -> tuple[Tensor, Tensor]:
        """Advances each line by its inputs, N in all; their keys and values go to its columns `past` … `past` + n.

        Args:
            h: (N, D) embeddings, overwritten by the output of the last layer.
            turn: cosines and sines of the kinds of rotation, (tables, N, turned).
            kept: (inputs,) those of the N inputs after which logits are computed, None all.
            watched: layers whose input residual stream is returned; their number stands for the output of the last one.
            entering: (N, …) the input of the first layer's queries, keys and values; None is h, normed.
        Returns: logits (kept, V), and the watched streams side by side (N, watched · D).
        Raises: ContextFull if there is no memory for intermediate results.
        """
        N = len(h)
        kept = torch.arange(N) if kept is None else kept.contiguous()
        self._check(h, turn, lines, kept, entering)
        logits = torch.empty(len(kept), self.outputs)
        layers = torch.tensor(sorted(watched))
        features = torch.empty(N, len(watched) * self.dim)
        threads = self._threads.for_pass(N, torch.get_num_threads())
        began = time.perf_counter()
        failed = self._library.polydraft_forward(
            self._model,
            _Pass(
                lines=len(lines),
                inputs=N,
                threads=threads,
                line=(_Line * len(lines))(*map(_stated, lines)),
                h=h.data_ptr(),
                entering=None if entering is None else entering.data_ptr(),
                entering_width=0 if entering is None else entering.shape[-1],
                cos=turn[0].data_ptr(),
                sin=turn[1].data_ptr(),
                kept=kept.data_ptr(),
                kept_count=len(kept),
                logits=logits.data_ptr(),
                watched=layers.data_ptr(),
                watched_count=len(layers),
                features=features.data_ptr(),
            ),
        )
        self._threads.took(N, threads, time.perf_counter() - began)
        if failed == NO_MEMORY:
            raise ContextFull("The memory is full; close sequences or shorten the text.")
        assert not failed, "a pass that the compiled code refuses"
        return logits, features

    def _check(
        self, h: Tensor, turn: tuple[Tensor, Tensor], lines: Sequence[Line], kept: Tensor, entering: Tensor | None
    ) -> None:
        """Checks that the pointers refer to as many numbers as `native/interface.h` states. Compiled code cannot check
        this."""
        s, N = self._shape, len(h)
        floats = [h, *turn, *(line.block for line in lines), *([] if entering is None else [entering])]
        assert all(x.dtype == torch.float32 and x.device.type == "cpu" for x in floats) and kept.dtype == torch.int64
        assert all(x is None or x.is_contiguous() for x in (h, *turn, entering)), "strides"
        assert h.shape == (N, s.dim), "shapes of the inputs"
        assert all(x.shape == (s.tables, N, s.rotated) for x in turn), "shapes of the rotation"
        assert entering is None or (entering.ndim == 2 and len(entering) == N), "shapes of the inputs"
        assert sum(line.n for line in lines) == N, "number of inputs"
        for line in lines:
            block, columns = line.block, line.past + line.n
            assert block.shape[0] >= 2 * self._model.layers and block.shape[1] == s.key_heads, "shape of the cache"
            assert block.shape[2] >= columns and block.shape[3] == s.width, "shape of the cache"
            assert block.stride()[2:] == (s.width, 1), "strides of the cache"
            for mask in (line.seen, line.near):
                if mask is not None:
                    assert mask.dtype == torch.bool and mask.is_contiguous(), "the mask"
                    assert mask.shape == (line.n, columns), "shape of the mask"

    def _layer(self, maps: LayerMaps) -> _Layer:
        s = self._shape
        of_queries, of_keys = (s.heads * s.width, s.key_heads * s.width) if s.whole else (s.width, s.width)
        return _Layer(
            qkv=self._matrix([maps.q, maps.k, maps.v], maps.before),
            out=self._matrix([maps.out]),
            gate=self._matrix([maps.gate], maps.between),
            up=self._matrix([maps.up], maps.between),
            down=self._matrix([maps.down]),
            q_norm=self._address(maps.q_norm, of_queries),
            k_norm=self._address(maps.k_norm, of_keys),
            after_attention=self._address(maps.after_attention, s.dim),
            after_feed_forward=self._address(maps.after_feed_forward, s.dim),
            table=-1 if maps.table is None else maps.table,
            near=maps.near,
            plain=maps.plain,
        )

    def _matrix(self, maps: list[Map], norm: Tensor | None = None) -> _Matrix:
        """One matrix of maps of the same inputs."""
        weights = joined(
            weight if isinstance(weight, Coded) or self._dtype is None else weight.to(self._dtype) for weight, _ in maps
        )
        out, inputs = sum(map(len, weights)), weights[0].shape[1]
        if any(weight.shape[1] != inputs for weight in weights):
            raise ValueError("Maps of different inputs are given as one.")
        bias = None
        if any(each is not None for _, each in maps):
            bias = torch.cat([torch.zeros(len(w)) if each is None else each.float() for w, each in maps])
        parts = (_Part * 3)(*map(self._part, weights))
        return _Matrix(parts, len(weights), self._address(bias, out), self._address(norm, inputs), out, inputs)

    def _part(self, weight: Weight) -> _Part:
        panels = panels_of(weight, self._panel)
        self._held.append(panels)
        return _part_of(weight, panels)

    def _address(self, x: Tensor | None, numbers: int) -> int | None:
        if x is None:
            return None
        if x.numel() != numbers:
            raise ValueError(f"A bias or norm of {x.numel()} numbers given; {numbers} expected.")
        self._held.append(x.to(torch.float32).contiguous())
        return self._held[-1].data_ptr()


class StoredRows:
    """A matrix (out, in) in the order of compiled code, of which single rows are read."""

    def __init__(self, part: _Part, inputs: int, held: object) -> None:
        """`held` keeps the memory of the part alive."""
        self.shape, self._part, self._held, self._library = (part.out, inputs), part, held, library()

    @staticmethod
    def of(weight: Weight) -> StoredRows:
        panels = panels_of(weight, library().polydraft_panel())
        return StoredRows(_part_of(weight, panels), weight.shape[1], panels)

    def __call__(self, ids: Tensor) -> Tensor:
        """Row numbers (n,) -> rows (n, in) float32, decoded. Numbers below 0 count from the end. Raises IndexError."""
        ids = torch.where(ids < 0, ids + self.shape[0], ids).contiguous()
        rows = torch.empty(len(ids), self.shape[1])
        given = _Rows(self._part, self.shape[1], ids.data_ptr(), len(ids), rows.data_ptr())
        if ids.dtype != torch.int64 or (len(ids) and self._library.polydraft_rows(given)):
            raise IndexError(f"A matrix of {self.shape[0]} rows has not all of the {len(ids)} given.")
        return rows


def panels_of(weight: Weight, panel: int) -> Tensor:
    """A weight (out, in) as compiled code reads it, in panels of so many outputs."""
    if isinstance(weight, Coded):
        return _coded_panels(weight, panel)
    panels = in_panels(weight, panel).transpose(1, 2)  # (panels, in, panel)
    if weight.dtype.itemsize == 2:  # two inputs in a word
        panels = F.pad(panels, (0, 0, 0, weight.shape[1] % 2)).unflatten(1, (-1, 2)).transpose(2, 3)
    return panels.contiguous()


def _coded_panels(weight: Coded, panel: int) -> Tensor:
    """(panels, bytes)"""
    out, inputs = weight.shape
    blocks, order = weight.blocks.contiguous(), None if weight.order is None else weight.order.contiguous()
    size = library().polydraft_panel_bytes(int(weight.type), inputs, panel)
    panels = torch.empty(-(-out // panel), size, dtype=torch.uint8)
    given = _Stored(
        rows=blocks.data_ptr(),
        type=int(weight.type),
        out=out,
        inputs=inputs,
        row_bytes=blocks.nbytes,
        order=None if order is None else order.data_ptr(),
        outputs=panel,
        panels=panels.data_ptr(),
        bytes=panels.nbytes,
        threads=torch.get_num_threads(),
    )
    if library().polydraft_panels(given):
        raise ValueError(
            f"A matrix of {weight.type.name} of {out} outputs and {inputs} inputs has no panels of {panel}."
        )
    return panels


def _part_of(weight: Weight, panels: Tensor) -> _Part:
    kind = weight.form if isinstance(weight, Coded) else weight.dtype
    return _Part(panels.data_ptr(), len(weight), KINDS.index(kind), panels.nbytes)


def _outputs(matrix: _Matrix) -> list[int]:
    """Of each of its parts."""
    return [part.out for part in matrix.part[: matrix.parts]]


def _in_bytes(x: Tensor, dim: int) -> tuple[Tensor, Tensor]:
    """Returns x (n, m) as signed bytes from -127 to 127, and their factors along the other dimension."""
    factors = x.abs().amax(dim) / 127
    factors = factors.where(factors > 0, 1.0)
    return (x / factors.unsqueeze(dim)).round_().to(torch.int8), factors


def _stated(line: Line) -> _Line:
    block = line.block
    return _Line(
        n=line.n,
        past=line.past,
        cache=block.data_ptr(),
        of_plane=block.stride(0),
        of_head=block.stride(1),
        cache_size=block.untyped_storage().nbytes() // 4 - block.storage_offset(),
        seen=None if line.seen is None else line.seen.data_ptr(),
        near=None if line.near is None else line.near.data_ptr(),
    )
