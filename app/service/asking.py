"""Makes of a request what the model is asked: the one value that is passed on from here."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields
from functools import cache
from typing import TYPE_CHECKING

from app.options import sampling
from app.service.requests import DraftRequest

if TYPE_CHECKING:
    from app.service.requests import KeptDraft
    from core.ask import Ask
    from core.autocomplete import Autocomplete


def asked(autocomplete: Autocomplete, request: DraftRequest, kept: Sequence[KeptDraft]) -> Ask:
    """What a request asks, with these of its kept rows. A field of the request that an `Ask` has, too, is passed on as
    it is. Raises as `app.options.sampling.asked`."""
    from core.ask import KeptRow  # torch comes with it

    own = {name: getattr(request, name) for name in _shared()}
    own |= {
        "kept": [KeptRow(row.id, row.text, row.chosen) for row in kept],
        "tails": request.holds_tails,
        "repeats": request.detailed,
    }
    if not request.settings.reset_every:
        own["end_below"] = request.end_below
    return sampling.asked(autocomplete, request.settings, **own)


@cache
def _shared() -> list[str]:
    from core.ask import Ask

    return [field.name for field in fields(Ask) if field.name in DraftRequest.model_fields]
