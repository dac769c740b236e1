"""Compiled code of another processor in place of this one's: an emulator runs it, in a process of its own.

A call's memory is copied there and back. `core/models/native/interface.h` says how much each address refers to.
"""

from __future__ import annotations

import ctypes
import struct
import subprocess
from ctypes import Structure, addressof, c_int64, sizeof, string_at
from pathlib import Path
from typing import IO, Any

from core.models import native

HERE = Path(__file__).parent
COMPILER, EMULATOR = "aarch64-linux-gnu-g++", "qemu-aarch64"
# NEON with dot products, as Apple's processors from the M1 and most others since 2018 have it.
OPTIONS = ("-std=c++17", "-O2", "-march=armv8.2-a+dotprod", "-fopenmp", "-static")
SIZES, FAULT, FORWARD, ROWS, PANEL_BYTES, PANELS = range(6)


class Remote:
    """The functions of the compiled library."""

    def __init__(self, folder: Path) -> None:
        program = folder / "remote"
        if not program.exists():
            command = [COMPILER, *OPTIONS, f"-I{native.SOURCE.path.parent}", HERE / "remote.cpp", "-o", program]
            subprocess.run([*map(str, command)], check=True)
        self._process = subprocess.Popen([EMULATOR, program], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        self._ask(SIZES, None, None)
        self._panel, self._lanes, self._rounds = self._numbers(3)

    def polydraft_panel(self) -> int:
        return self._panel

    def polydraft_lanes(self) -> int:
        return self._lanes

    def polydraft_rounds(self) -> int:
        return self._rounds

    def polydraft_fault(self, model: Structure, given: Structure | None) -> bytes | None:
        self._ask(FAULT, model, given)
        (length,) = self._numbers(1)
        return None if length < 0 else self._out.read(length)

    def polydraft_forward(self, model: Structure, given: Structure) -> int:
        return self._written(FORWARD, model, given)

    def polydraft_rows(self, given: Structure) -> int:
        return self._written(ROWS, given)

    def polydraft_panel_bytes(self, type: int, inputs: int, panel: int) -> int:
        self._ask(PANEL_BYTES, native._Stored(type=type, inputs=inputs, outputs=panel), None)
        return self._numbers(1)[0]

    def polydraft_panels(self, given: Structure) -> int:
        return self._written(PANELS, given)

    def _written(self, call: int, first: Structure, given: Structure | None = None) -> int:
        """The result of a call that writes to the memory which it is given."""
        memory = self._ask(call, first, given)
        (result,) = self._numbers(1)
        memory.take(self._out.read(memory.bytes))
        return result

    @property
    def _out(self) -> IO[bytes]:
        assert self._process.stdout is not None
        return self._process.stdout

    def _numbers(self, count: int) -> tuple[int, ...]:
        return struct.unpack(f"<{count}q", self._out.read(8 * count))

    def _ask(self, call: int, model: Any, given: Any) -> Memory:
        memory = Memory()
        at = [memory.add(model, getattr(self, "_panel", 0), model), memory.add(given, 0, model)]
        data, places = memory.data(at)
        assert self._process.stdin is not None
        self._process.stdin.write(struct.pack("<5q", call, *places[:2], len(data), len(places) - 2))
        self._process.stdin.write(struct.pack(f"<{len(places) - 2}q", *places[2:]) + data)
        self._process.stdin.flush()
        return memory


class Memory:
    """What a call reads and writes: ranges of memory, and the addresses in them."""

    def __init__(self) -> None:
        self._ranges: list[tuple[int, int, bool]] = []  # begin, end, whether it is written
        self._addresses: list[int] = []  # of addresses
        self._kept: list[tuple[int, int, bool]] = []
        self.bytes = 0

    def add(self, of: Any, panel: int, model: Any) -> int | None:
        """Adds a structure and all that it refers to; returns its address."""
        if of is None:
            return None
        self._range(addressof(of), sizeof(of))
        self._fields(of, panel, model)
        return addressof(of)

    def _range(self, begin: int, size: int, written: bool = False) -> None:
        self._ranges.append((begin, begin + size, written))

    def _refers(self, of: Structure, field: str, size: int, written: bool = False) -> None:
        """To `size` bytes, unless the address is null."""
        if address := getattr(of, field):
            self._addresses.append(addressof(of) + getattr(type(of), field).offset)
            self._range(address, size, written)

    def _array(self, of: Any, field: str, count: int, panel: int, model: Any) -> None:
        pointer = getattr(of, field)
        if not pointer:
            return
        self._addresses.append(addressof(of) + getattr(type(of), field).offset)
        first = pointer[0]
        self._range(addressof(first), sizeof(first) * count)
        for i in range(count):
            self._fields(pointer[i], panel, model)

    def _fields(self, of: Any, panel: int, m: Any) -> None:
        match of:
            case native._Model():
                self._array(of, "layer", of.layers, panel, m)
                self._fields(of.head, panel, m)
            case native._Layer():
                for name in ("qkv", "out", "gate", "up", "down"):
                    self._fields(getattr(of, name), panel, m)
                self._refers(of, "q_norm", 4 * m.width * (m.heads if m.whole else 1))
                self._refers(of, "k_norm", 4 * m.width * (m.key_heads if m.whole else 1))
                self._refers(of, "after_attention", 4 * m.dim)
                self._refers(of, "after_feed_forward", 4 * m.dim)
            case native._Matrix():
                for i in range(of.parts):
                    self._refers(of.part[i], "panels", of.part[i].bytes)
                self._refers(of, "bias", 4 * of.out)
                self._refers(of, "norm", 4 * of.inputs)
                panels = sum(-(-of.part[i].out // panel) for i in range(of.parts))
                self._array(of, "low", 1, panels, m)
            case native._LowRank():
                self._refers(of, "a", of.a_bytes)
                self._refers(of, "b", of.b_bytes)
                self._refers(of, "first", 8 * panel)
                self._refers(of, "strengths", 4 * of.rank)
            case native._Pass():
                self._array(of, "line", of.lines, panel, m)
                self._refers(of, "h", 4 * of.inputs * m.dim, written=True)
                self._refers(of, "entering", 4 * of.inputs * of.entering_width)
                for name in ("cos", "sin"):
                    self._refers(of, name, 4 * m.tables * of.inputs * m.turned)
                self._refers(of, "kept", 8 * of.kept_count)
                self._refers(of, "logits", 4 * of.kept_count * m.head.out, written=True)
                self._refers(of, "watched", 8 * of.watched_count)
                self._refers(of, "features", 4 * of.inputs * of.watched_count * m.dim, written=True)
            case native._Rows():
                self._refers(of.part, "panels", of.part.bytes)
                self._refers(of, "ids", 8 * of.count)
                self._refers(of, "rows", 4 * of.count * of.inputs, written=True)
            case native._Stored():
                self._refers(of, "rows", of.row_bytes)
                self._refers(of, "order", 8 * of.out)
                self._refers(of, "panels", of.bytes, written=True)
            case native._Line():
                self._refers(of, "cache", 4 * of.cache_size, written=True)
                for name in ("seen", "near"):
                    self._refers(of, name, of.n * (of.past + of.n))

    def data(self, wanted: list[int | None]) -> tuple[bytes, list[int]]:
        """The memory as it is sent, with places for addresses; and the places of those wanted (-1 for none) and of all
        addresses."""
        for begin, end, written in sorted(self._ranges):
            if self._kept and begin <= self._kept[-1][1]:  # caches of several lines may be one array
                first, last, before = self._kept[-1]
                self._kept[-1] = first, max(last, end), before or written
            else:
                self._kept.append((begin, end, written))
        made, starts = bytearray(), []
        for begin, end, _ in self._kept:
            made += bytes(-len(made) % 64)
            starts.append(len(made))
            made += string_at(begin, end - begin)
        self._starts, self.bytes = starts, len(made)

        def place(address: int) -> int:
            for (begin, end, _), start in zip(self._kept, starts, strict=True):
                if begin <= address <= end:
                    return start + address - begin
            raise AssertionError("an address outside of what is sent")

        places = []
        for each in self._addresses:
            at = place(each)
            made[at : at + 8] = struct.pack("<q", place(c_int64.from_address(each).value))
            places.append(at)
        return bytes(made), [-1 if each is None else place(each) for each in wanted] + places

    def take(self, data: bytes) -> None:
        """Copies back what the call may have written."""
        for (begin, end, written), start in zip(self._kept, self._starts, strict=True):
            if written:
                ctypes.memmove(begin, data[start : start + end - begin], end - begin)
