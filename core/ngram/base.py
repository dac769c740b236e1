"""The base store: the n-grams of general text that are mixed into all drafts; the user can choose another one.

The app comes with one for the default model's tokenizer. `polydraft ngram build` builds others, from a domain's text or
for another tokenizer.
"""

from __future__ import annotations

from pathlib import Path

from core.ngram.store import NgramStore, StoreError

BASE_STORE = Path(__file__).resolve().parents[2] / "assets" / "base.ngram"  # for the default model
NONE = "none"


def chosen(option: str | None) -> Path | None:
    """The path of the base store for the user's option: a file; None for "none"; without an option, the app's own
    store.

    Raises: StoreError for a file that is not an intact store.
    """
    if option is None:
        return BASE_STORE
    if option == NONE:
        return None
    path = Path(option).expanduser().resolve()
    NgramStore.open(path)
    return path


def base_store(fingerprint: str, path: Path | None = BASE_STORE) -> tuple[NgramStore | None, str]:
    """Opens a base store for the tokenizer with this fingerprint. Returns also the reason why there is none, or "".

    Raises: StoreError for a user's store that cannot be used with this tokenizer. The app's own store is omitted for
        other models.
    """
    if path is None:
        return None, ""
    try:
        return NgramStore.open(path, fingerprint), ""
    except StoreError as error:
        if path != BASE_STORE:
            raise
        return None, f"No n-grams: {error}"
