"""The base store: the n-grams that everybody's drafts are mixed with, the user's choice.

The app comes with one for the default model's tokenizer. `polydraft ngram build` makes others, of a domain's text or
for another tokenizer.
"""

from __future__ import annotations

from pathlib import Path

from core.ngram.store import NgramStore, StoreError

BASE_STORE = Path(__file__).resolve().parents[2] / "assets" / "base.ngram"  # for the default model
NONE = "none"


def chosen(said: str | None) -> Path | None:
    """The store that a user named: a file, "none" (None), or nothing, which is the one that comes with the app.

    Raises: StoreError for a file that is no intact store.
    """
    if said is None:
        return BASE_STORE
    if said == NONE:
        return None
    path = Path(said).expanduser().resolve()
    NgramStore.open(path)
    return path


def base_store(fingerprint: str, path: Path | None = BASE_STORE) -> tuple[NgramStore | None, str]:
    """Opens a base store for the tokenizer with this fingerprint. Returns also why there is none, or "".

    Raises: StoreError for a store of the user's own that cannot be used with this tokenizer. The one that comes with
        the app is left out for other models.
    """
    if path is None:
        return None, ""
    try:
        return NgramStore.open(path, fingerprint), ""
    except StoreError as error:
        if path != BASE_STORE:
            raise
        return None, f"No n-grams: {error}"
