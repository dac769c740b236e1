"""Explains complete drafts, for requests that ask for it: how each visible token was made, and what the passes took."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, replace

from core.completion import Completion, Explained
from core.drafting.drafts import Draft, Drafts
from core.drafting.driver import Steps
from core.drafting.growth import begins_word
from core.drafting.record import Made, Record
from core.equipped import EquippedModel
from core.models.costs import known
from core.present import Presentation, TextDraft


@dataclass(frozen=True)
class Explaining:
    """How the drafts of one request were made.

    Attributes:
        record: filled by the drafting.
        presentation: how the drafts are shown.
        kept: the tokens of the kept rows, by slot.
    """

    record: Record
    presentation: Presentation
    kept: Mapping[int, list[int]]

    def __call__(self, rows: list[TextDraft], drafts: Drafts) -> list[TextDraft]:
        """The rows of these drafts, with how their tokens were made."""
        by_ids = {tuple(draft.ids): draft for draft in [*drafts.drafts, *drafts.finished]}
        return [replace(row, made=self._tokens(row, by_ids[row.ids])) for row in rows]

    def _tokens(self, row: TextDraft, draft: Draft) -> tuple[tuple[int, int, Made], ...]:
        ends = self.presentation.ends(draft.ids)
        ranges = [(n, ends[n], min(ends[n + 1], len(row.text))) for n in range(draft.start, len(draft.ids))]
        return tuple((a, b, self._made(draft, n)) for n, a, b in ranges if a < b)

    def _made(self, draft: Draft, n: int) -> Made:
        kept = self.kept.get(draft.slot, [])
        if n < len(kept) and draft.ids[: len(kept)] == kept:
            return Made("kept")
        made = self.record.made(draft, n)
        if n == draft.start and self._completes_word(draft):
            return replace(made, by="healing", store=None)
        if n < len(draft.how) and (how := draft.how[n][0]) != "plain":
            return replace(made, by=how, store=None)
        return made

    def _completes_word(self, draft: Draft) -> bool:
        """Whether the first token contains letters of the half-typed word, or goes on inside it."""
        pieces, typed = self.presentation.tokenizer.pieces, self.presentation.typed
        begins = sum(len(pieces[i]) for i in draft.ids[: draft.start])
        return begins < len(typed) or (bool(typed) and not begins_word(pieces[draft.ids[draft.start]]))


def explain_cost(steps: Steps[Completion], equipped: EquippedModel) -> Steps[Completion]:
    """Yields the same, and adds what the passes took to the last state."""
    passes = rows_fed = 0
    began = ended = reading = 0.0  # in seconds; reading: of the passes before the first drafts
    try:
        rows, state = next(steps)
        while rows:
            before = time.perf_counter()
            logits = yield rows, state
            began, ended = began or before, time.perf_counter()
            passes, rows_fed = passes + 1, rows_fed + len(rows)
            reading += 0.0 if state.step else ended - before
            rows, state = steps.send(logits)
        apart = _apart_ms(state, equipped, reading * 1000)
        yield [], replace(state, explained=Explained(passes, rows_fed, (ended - began) * 1000, apart))
    finally:
        steps.close()


def _apart_ms(state: Completion, equipped: EquippedModel, reading: float) -> float | None:
    costs = equipped.row_costs or known(equipped.model, "tokens")
    if costs is None:
        return None
    return reading + sum(max(len(draft.made) - 1, 0) for draft in state.drafts) * costs(1)
