"""The keys that drafts save on a person's own held-out text, without and with the adapter: a typist of `eval typing`
writes some passages of it."""

from __future__ import annotations

from collections.abc import Callable
from statistics import fmean
from types import SimpleNamespace
from typing import cast

from app.evals.typing import Way, passages, typed
from app.settings import DraftSettings
from core.autocomplete import Autocomplete
from core.models import load_model
from core.models.adapter import Adapter
from core.ngram.counts import Counts
from core.ngram.interpolation import Store
from core.ngram.shelf import Shelf
from core.ngram.store import NgramStore

CHARACTERS = 2000  # at most


def shelf_of(store: Store) -> Shelf:
    """Returns a shelf with these n-grams only."""
    return cast(Shelf, SimpleNamespace(active=lambda: [store]))


def keys_saved(
    model: str,
    base: NgramStore | None,
    adapter: Adapter,
    known: list[list[int]],
    held: list[list[int]],
    seconds: float,
    clock: Callable[[], float],
    going: Callable[[], None],
) -> tuple[int, float, float]:
    """Types at least one passage each way, and more until the time is over. Returns the number of characters, and the
    percentages of keys saved without and with the adapter.

    Args:
        model: by name.
        known, held: documents of ids: learned, and held out.
        clock, going: see `training.personal.learn`.
    """
    loaded = load_model(model, "torch")
    learned = Counts.of(loaded.vocab_size, [(ids, 1) for ids in known])  # the store also has the held-out text
    autocomplete = Autocomplete(loaded, base, shelf=shelf_of(learned))
    way = Way("as shipped", DraftSettings(k=3))
    written = passages({"own": [loaded.tokenizer.decode(ids) for ids in held]}, CHARACTERS)
    began, characters = clock(), 0
    saved: list[tuple[float, float]] = []
    for passage in written:
        both = []
        for adapters in ([], [(adapter, adapter.result.strength)]):
            loaded.adapt(adapters)
            both.append(typed(autocomplete, passage, way, going).saved)
        saved.append((both[0], both[1]))
        characters += len(passage.rest)
        if clock() - began > seconds:
            break
    loaded.close()
    return characters, fmean(one for one, _ in saved), fmean(other for _, other in saved)
