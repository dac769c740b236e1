"""The cost of a pass over n inputs, timed once for each model on a machine and kept in the user's cache folder.

Of models in compiled code the cost of rows is timed, sequences that read one token each: where four rows cost little
more than one, drafts may have a row each (`core.drafting.tails`). Speculation needs the cost of the tokens of a tree.
"""

from __future__ import annotations

import hashlib
import json
import math
import time
from collections.abc import Callable, Generator, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median
from typing import Literal, TypeVar

import numpy as np
import platformdirs
from pydantic import TypeAdapter, ValidationError

from core.errors import InputError
from core.files import recall, remember
from core.models import native
from core.models.base import LanguageModel, Row
from core.models.processor import cores, cpu

What = Literal["rows", "tokens"]
# Of the timed passes.
SIZES: dict[What, tuple[int, ...]] = {"rows": (1, 2, 4, 8, 12), "tokens": (1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48)}
ROUNDS = 5
CALM = 1.3  # the most that a usual pass may take, as a multiple of the fastest one, in times of rows that are kept
BEFORE = 64  # tokens in the cache before each timed pass
REMEMBERED = 64  # curves in the file

Times = dict[int, list[float]]  # ms of the passes, by size
T = TypeVar("T")


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
    def of_times(cls, times: Times) -> CostCurve:
        """The curve of the fastest passes: other load only adds time. A pass takes no longer than one of a larger size,
        so the minimum over all larger sizes is an upper bound."""
        sizes = sorted(times)
        ms = np.minimum.accumulate([min(times[n]) for n in reversed(sizes)])[::-1]
        return cls(tuple(sizes), tuple(ms.tolist()))


def timing(
    model: LanguageModel,
    what: What,
    sizes: Sequence[int] | None = None,
    rounds: int = ROUNDS,
    clock: Callable[[], float] = time.perf_counter,
) -> Generator[None, None, Times]:
    """Times passes over so many rows or tokens, in steps of one pass, for a thread with other work in between. Raises
    ContextFull if the cache has no room for the rows."""
    sizes = sizes or SIZES[what]
    if what == "tokens":
        sizes = [n for n in sizes if BEFORE + n < model.context_length] or [1]
    before = max(min(BEFORE, model.context_length - 1), 1)
    ids = [i % model.vocab_size for i in range(100, 100 + max(before, *sizes))]
    lines, taken = [model.open()], {n: list[float]() for n in sizes}
    try:
        lines[0].feed(ids[:before])
        yield
        if what == "rows":
            lines += [lines[0].fork() for _ in range(max(sizes) - 1)]
        for number in range(-1, rounds):  # before the first round, the forks move apart
            for n in sizes:
                # A comb of tokens, which is a chain with a sibling of each; a chain for models that take no trees.
                comb = [max(i - 1 - i % 2, -1) if model.takes_trees else i - 1 for i in range(n)]
                rows = [Row(line, ids[:1]) for line in lines[:n]]
                rows = rows if what == "rows" else [Row(lines[0], ids[:n], parents=comb)]
                began = clock()
                model.forward(rows)
                if number >= 0:
                    taken[n].append((clock() - began) * 1000)
                for row in rows:
                    row.sequence.rewind(before)
                yield
    finally:
        for line in lines:
            line.close()
    return taken


def measuring(model: LanguageModel, what: What) -> Generator[None, None, CostCurve]:
    """Times passes as `timing` does, and keeps their curve. Times of rows that other programs disturbed serve this
    process alone. If the file cannot be written, the curve is measured again the next time."""
    times = yield from timing(model, what)
    curve = CostCurve.of_times(times)
    if what == "tokens" or all(median(ms) <= CALM * min(ms) for ms in times.values()):
        keep(model, what, curve)
    return curve


def finished(steps: Generator[None, None, T]) -> T:
    """Takes all steps, and returns their result."""
    while True:
        try:
            next(steps)
        except StopIteration as end:
            return end.value


def cost_curve(model: LanguageModel) -> CostCurve:
    """The cost of tokens on this machine: the one that is kept, or one that is measured now."""
    return known(model, "tokens") or finished(measuring(model, "tokens"))


def known(model: LanguageModel, what: What) -> CostCurve | None:
    """The cost that was measured earlier; None if it was not, or if its file is damaged."""
    try:
        return TypeAdapter(CostCurve).validate_python(recall(_file())[_key(model, what)])
    except (InputError, KeyError, ValidationError):
        return None


def keep(model: LanguageModel, what: What, curve: CostCurve) -> None:
    with suppress(OSError):
        remember(_file(), {_key(model, what): asdict(curve)}, REMEMBERED)


def _file() -> Path:
    return platformdirs.user_cache_path("polydraft") / "costs.json"


def _key(model: LanguageModel, what: What) -> str:
    """Of everything on which the cost depends. Models in compiled code share it if they have the same shape and types;
    other code has other costs."""
    about = [what, model.vocab_size, model.dim, cpu(), cores()]
    if model.compiled_as:
        about += [model.compiled_as, native.library_path().name]
    else:
        about += [model.name, model.backend, model.device, model.arithmetic]
    return hashlib.sha256(json.dumps(about).encode()).hexdigest()[:32]
