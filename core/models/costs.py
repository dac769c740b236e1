"""The cost of a pass, and the measured one of rows: the time of a pass in which n sequences read one token each.

Rows are measured for models in compiled code alone, once for each library and each shape and types of weights, and
kept in a file beside the compiled library. Where four rows cost little more than one, drafts may have a row each
(`core.drafting.tails`).
"""

from __future__ import annotations

import hashlib
import json
import math
import time
from collections.abc import Callable, Generator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from statistics import median

import numpy as np

from core.errors import InputError
from core.files import recall, remember
from core.models import native
from core.models.base import LanguageModel, Row
from core.models.native_library import CannotCompile
from core.models.processor import cores

ROWS = (1, 2, 4, 8, 12)  # of the timed passes
ROUNDS = 5
CALM = 1.3  # the most that a usual pass may take, as a multiple of the fastest one, in times that are kept
BEFORE = 64  # tokens in the cache before each timed pass
REMEMBERED = 32  # models in the file


@dataclass(frozen=True)
class CostCurve:
    """t(n) in ms at some n, interpolated linearly.

    Attributes:
        sizes: n, increasing from 1.
        ms: the time of a pass of size n, which its maker defines. It never decreases, because a decrease would be
            noise.
    """

    sizes: tuple[int, ...]
    ms: tuple[float, ...]

    def __post_init__(self) -> None:
        rising = all(a < b for a, b in zip(self.sizes, self.sizes[1:], strict=False))
        usable = all(math.isfinite(t) and t > 0 for t in self.ms)
        if not self.sizes or len(self.sizes) != len(self.ms) or self.sizes[0] != 1 or not rising or not usable:
            raise InputError(f"A cost curve at {self.sizes} of {self.ms} ms given; increasing sizes from 1 expected.")

    def __call__(self, n: int) -> float:
        """Returns the ms of a pass of size n; beyond the largest timed n, in proportion to it."""
        if n >= self.sizes[-1]:
            return self.ms[-1] * n / self.sizes[-1]
        return float(np.interp(n, self.sizes, self.ms))

    @classmethod
    def of_times(cls, times: dict[int, list[float]]) -> CostCurve:
        """The curve of the fastest passes, in ms by size: other load only adds time. A pass takes no longer than one of
        a larger size, so the minimum over all larger sizes is an upper bound."""
        sizes = sorted(times)
        ms = np.minimum.accumulate([min(times[n]) for n in reversed(sizes)])[::-1]
        return cls(tuple(sizes), tuple(ms.tolist()))


def timing_rows(
    model: LanguageModel,
    sizes: Sequence[int] = ROWS,
    rounds: int = ROUNDS,
    clock: Callable[[], float] = time.perf_counter,
) -> Generator[None, None, dict[int, list[float]]]:
    """Times passes of n rows with one token each, in steps of one pass, for a thread with other work in between.
    Returns the ms of the passes by n. Raises ContextFull if the cache has no room for the rows."""
    before = max(min(BEFORE, model.context_length - 1), 1)
    ids = [i % model.vocab_size for i in range(100, 100 + before)]
    lines = [model.open()]
    taken: dict[int, list[float]] = {n: [] for n in sizes}
    try:
        lines[0].feed(ids)
        yield
        lines += [lines[0].fork() for _ in range(max(sizes) - 1)]
        for number in range(-1, rounds):  # before the first round, the forks move apart
            for n in sizes:
                rows = [Row(line, [ids[0]]) for line in lines[:n]]
                began = clock()
                model.forward(rows)
                if number >= 0:
                    taken[n].append((clock() - began) * 1000)
                for line in lines[:n]:
                    line.rewind(before)
                yield
    finally:
        for line in lines:
            line.close()
    return taken


def are_calm(times: dict[int, list[float]]) -> bool:
    """Whether other programs left the processor to most of these passes."""
    return all(median(ms) <= CALM * min(ms) for ms in times.values())


def known_rows(model: LanguageModel) -> CostCurve | None:
    """The cost of rows that was measured earlier; None if it was not, or if its file is damaged."""
    if not model.compiled_as:
        return None
    try:
        stored = recall(_file())[_key(model)]
        curve = CostCurve(tuple(map(int, stored["rows"])), tuple(map(float, stored["ms"])))
    except (CannotCompile, KeyError, TypeError, ValueError, OverflowError, InputError):
        return None
    return curve


def remember_rows(model: LanguageModel, curve: CostCurve) -> None:
    """Stores the cost of rows. If the file cannot be written, rows are measured again the next time."""
    entry = {"rows": list(curve.sizes), "ms": [round(t, 4) for t in curve.ms]}
    with suppress(OSError, CannotCompile):
        remember(_file(), {_key(model): entry}, REMEMBERED)


def _file() -> Path:
    return native.beside_library(".rows.json")


def _key(model: LanguageModel) -> str:
    return hashlib.sha256(json.dumps([model.compiled_as, cores()]).encode()).hexdigest()[:32]
