"""The drafts of one request, step by step: the driver's methods, and the fields of the newest state."""

from __future__ import annotations

from contextlib import closing
from dataclasses import replace
from typing import Any

from torch import Tensor

from core.ask import Ask
from core.autocomplete import Autocomplete
from core.completion import Completion
from core.models.base import Row
from core.session import Session


class Completing:
    def __init__(self, session: Session, ask: Ask) -> None:
        self.model, self.driven = session.equipped.model, session.complete(ask)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.driven.latest, name)

    @property
    def done(self) -> bool:
        return self.driven.done

    def rows(self) -> list[Row]:
        return self.driven.rows()

    def advance(self, logits: list[Tensor]) -> Completion:
        return self.driven.advance(logits)

    def finish(self) -> Completion:
        return self.driven.finish(self.model)

    def close(self) -> None:
        self.driven.close()


def complete(session: Session, before: str, ask: Ask | None = None, **changes: Any) -> Completing:
    return Completing(session, replace(ask or Ask(), before=before, **changes))


def completed(autocomplete: Autocomplete, before: str, ask: Ask | None = None, **changes: Any) -> Completion:
    """The last state of one request, in a session of its own."""
    with closing(autocomplete.open()) as session:
        return complete(session, before, ask, **changes).finish()
