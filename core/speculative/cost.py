"""The cost t(n) of a pass over n tokens, measured once per model, backend and machine, and stored in the user's cache
folder."""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Callable, Generator, Sequence
from contextlib import suppress
from pathlib import Path

import platformdirs
from pydantic import TypeAdapter, ValidationError

from core.errors import InputError
from core.files import recall, remember
from core.models.base import LanguageModel
from core.models.costs import CostCurve
from core.models.processor import cores, cpu

SIZES = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48)  # tokens of the timed passes
ROUNDS = 5
BEFORE = 64  # tokens in the cache before each timed pass
REMEMBERED = 32  # curves in the cache file


def measure(
    model: LanguageModel,
    sizes: Sequence[int] = SIZES,
    rounds: int = ROUNDS,
    clock: Callable[[], float] = time.perf_counter,
) -> CostCurve:
    """Measures passes over trees of n tokens. Takes the minimum of several rounds, because other load only adds
    time."""
    passes = measuring(model, sizes, rounds, clock)
    while True:
        try:
            next(passes)
        except StopIteration as end:
            return end.value


def measuring(
    model: LanguageModel,
    sizes: Sequence[int] = SIZES,
    rounds: int = ROUNDS,
    clock: Callable[[], float] = time.perf_counter,
) -> Generator[None, None, CostCurve]:
    """Does the same as `measure` in steps of one pass, for a thread with other work in between. Returns the curve."""
    sizes = [n for n in sizes if BEFORE + n < model.context_length] or [1]
    ids = [i % model.vocab_size for i in range(100, 100 + max(*sizes, BEFORE))]
    sequence = model.open()
    taken: dict[int, list[float]] = {n: [] for n in sizes}
    try:
        sequence.feed(ids[: min(BEFORE, model.context_length - max(sizes) - 1)])
        yield
        for number in range(-1, rounds):
            for n in sizes:
                # A comb, which is a chain with a sibling of each token; a chain for models that take no trees.
                parents = [max(i - 1 - i % 2, -1) if model.takes_trees else i - 1 for i in range(n)]
                start = clock()
                sequence.feed_tree(ids[:n], parents)
                if number >= 0:
                    taken[n].append((clock() - start) * 1000)
                sequence.keep([])
                yield
    finally:
        sequence.close()
    return CostCurve.of_times(taken)


def cost_curve(model: LanguageModel) -> CostCurve:
    """Returns the curve of a model on this machine: the stored one, or one that is measured now and stored."""
    curve = known_curve(model)
    if curve is None:
        curve = measure(model)
        remember_curve(model, curve)
    return curve


def known_curve(model: LanguageModel) -> CostCurve | None:
    """Returns the stored curve, or None."""
    stored = recall(_file()).get(_key(model))
    try:
        return None if stored is None else TypeAdapter(CostCurve).validate_python(stored)
    except (InputError, ValidationError):
        return None  # the entry has an older form or is damaged, and the curve is measured again


def remember_curve(model: LanguageModel, curve: CostCurve) -> None:
    """Stores a curve. If the file cannot be written, the curve is measured again the next time."""
    entry = {"sizes": list(curve.sizes), "ms": [round(t, 4) for t in curve.ms]}
    with suppress(OSError):
        remember(_file(), {_key(model): entry}, REMEMBERED)


def _file() -> Path:
    return platformdirs.user_cache_path("polydraft") / "costs.json"


def _key(model: LanguageModel) -> str:
    about = [model.name, model.backend, model.device, model.arithmetic, model.vocab_size, model.dim, cpu(), cores()]
    return hashlib.sha256(json.dumps(about).encode()).hexdigest()[:32]
