"""Drafts for a text, behind one interface.

An `Autocomplete` belongs to a model, a `Session` to one text that is being typed, an `Ask` to one request. The drafts
of a request are a generator that computes no pass itself (`core.completing`), so that the caller can join the rows of
several texts in one pass, and can stop between two passes.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from core.equipped import EquippedModel
from core.models import load_model
from core.models.adapter import AdapterError
from core.models.prose import prose_of
from core.ngram import StoreError
from core.ngram.base import BASE_STORE, BaseShelf, base_store
from core.ngram.shelf import Shelf
from core.options import Backend, Precision
from core.session import Session


class Autocomplete(EquippedModel):
    """Makes drafts with one model."""

    def open(self) -> Session:
        """Opens a session with its own cached sequence. Raises ContextFull if there are too many."""
        return Session(self)


def load_autocomplete(
    model: str = "default",
    backend: Backend = "auto",
    store: Path | None = BASE_STORE,
    personal: bool = True,
    precision: Precision = "file",
    in_background: bool = False,
    bases: Callable[[str], BaseShelf] | None = None,
    prose: bool = False,
) -> Autocomplete:
    """The model by name, with the base n-gram store where it belongs to the model's tokenizer.

    `backend` and `precision` are those of `load_model`. `store` is the base store, None for none; with `bases`, a
    function of the tokenizer's fingerprint, those of the user's choice are used instead. With `personal`, drafts use
    the user's personal stores that are on, too. With `in_background`, drafts never wait for the counts of much personal
    text: a thread makes them (`Shelf`). With `prose`, drafts use the app's adapter to general prose, if it is for this
    model.

    Raises: as `load_model`; StoreError for another base store than the app's that cannot be used. For the app's own and
        another model there is a notice.
    """
    loaded = load_model(model, backend, precision)
    notices = [loaded.notice] if loaded.notice else []
    try:
        shelved = None if bases is None else bases(loaded.tokenizer.fingerprint)
        ngrams, missing = base_store(loaded.tokenizer.fingerprint, None if shelved else store)
        missing = missing if shelved is None else shelved.notice
    except StoreError:
        loaded.close()
        raise
    notices += [missing] if missing else []
    shelf = Shelf(loaded.tokenizer, in_background=in_background) if personal else None
    if shelf and in_background:
        shelf.active()  # they begin to count
    adapter = None
    try:
        adapter = prose_of(loaded) if prose else None
    except AdapterError as error:
        notices.append(f"The adapter of prose is not used: {error}")
    autocomplete = Autocomplete(loaded, ngrams, " ".join(notices) or None, shelf, shelved, adapter)
    autocomplete.adapt()
    return autocomplete
