"""`eval typing --slips N`: a typist who makes N slips in 100 letters, with rows that correct them and without.

After a slip the typist takes a row that leads back to the text, if there is one. Otherwise the typist notices two
letters later, or at the end of the word, and deletes back to the slip. Every key counts, also those of corrections.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean

from app.options.settings import DraftSettings, drafting
from app.options.typist import PIECE, Passage
from core.ask import KeptRow
from core.autocomplete import Autocomplete
from core.present import TextDraft
from core.session import Session
from core.slips import NEIGHBOURS
from research.report import Progress, Report, counted
from research.scores import half_interval

K = 3
NOTICED = 2  # letters after a slip until the typist notices it


@dataclass
class SlippedPassage:
    """How a passage was written: its characters, the keys, the places with only right letters, and those of them at
    which a row would have corrected something."""

    characters: int
    keys: int = 0
    places: int = 0
    wronged: int = 0

    @property
    def saved(self) -> float:
        """Percent of the keys."""
        return 100 * (1 - self.keys / self.characters)


def measure(autocomplete: Autocomplete, chosen: Sequence[Passage], rate: float, progress: Progress) -> Report:
    """Writes the passages with slips in this share of the letters, and without."""
    report = Report("eval typing")
    ways = [(slips, corrects) for slips in (rate, 0.0) for corrects in (True, False)]
    results: dict[tuple[float, bool], list[SlippedPassage]] = {way: [] for way in ways}
    for number, passage in enumerate(counted(chosen, "passage", progress)):
        for way in ways:
            results[way].append(written(autocomplete, passage, *way, random.Random(number)))
    saved = {way: fmean(result.saved for result in several) for way, several in results.items()}
    for (slips, corrects), several in results.items():
        report.rows.append(
            {
                "slips_percent": 100 * slips,
                "corrects": "yes" if corrects else "no",
                "passages": len(several),
                "keys_saved_percent": saved[slips, corrects],
                "ci": half_interval([result.saved for result in several]),
            }
        )
    right = results[0.0, True]
    report.target("keys saved with slips, more by rows that correct", saved[rate, True] - saved[rate, False], ">= 3")
    report.target(
        "keys saved without slips, more by rows that correct", saved[0.0, True] - saved[0.0, False], ">= -0.1"
    )
    wronged = sum(result.wronged for result in right) / sum(result.places for result in right)
    report.target("percent of places at which a row corrects right words", 100 * wronged, "<= 0.5")
    return report


def written(
    autocomplete: Autocomplete, passage: Passage, rate: float, corrects: bool, rng: random.Random
) -> SlippedPassage:
    """Writes a passage with a slip at this share of its letters."""
    session, result = autocomplete.open(), SlippedPassage(len(passage.rest))
    text, at, rows = passage.before + passage.rest, len(passage.before), list[KeptRow]()
    while at < len(text):
        drafts = _drafts(session, text[:at], rows, corrects)
        result.places, result.wronged = result.places + 1, result.wronged + any(d.replace for d in drafts)
        end = max(at + 1, _reached(drafts, text[:at], text))
        if end == at + 1 and text[at].islower() and text[at].isascii() and rng.random() < rate and at + 2 < len(text):
            end = _after_slip(session, text, at, corrects, rng, result)
            rows = []
        else:
            taken = text[at:end]
            rows = [KeptRow(d.id, d.text[len(taken) :]) for d in drafts if _goes_on(d, taken)]
            result.keys += 1
        at = end
    session.close()
    return result


def _after_slip(
    session: Session, text: str, at: int, corrects: bool, rng: random.Random, result: SlippedPassage
) -> int:
    """Writes wrong letters at a place, and what follows until they are corrected. Returns the place then."""
    wrong, meant = slip(text[at : at + 2], rng)
    right = at + meant  # the place that the typist believes to have reached
    result.keys += len(wrong)
    for _ in range(NOTICED + 1):
        if (end := _reached(_drafts(session, text[:at] + wrong, [], corrects), text[:at] + wrong, text)) >= right:
            result.keys += 1
            return end
        if not text[right : right + 1].isalpha():
            break
        wrong, right, result.keys = wrong + text[right], right + 1, result.keys + 1
    result.keys += len(wrong) + 1  # deletes them, and types the letter again
    return at + 1


def slip(letters: str, rng: random.Random) -> tuple[str, int]:
    """What a slip makes of the first of two letters, and the number of letters that were meant by it."""
    kind = rng.choices(("neighbour", "doubled", "dropped", "swapped"), (5, 1, 2, 2))[0]
    if kind == "doubled":
        return letters[0] * 2, 1
    if kind == "dropped" and letters[1].isalpha() and letters[1] != letters[0]:
        return letters[1], 2
    if kind == "swapped" and letters[1].isalpha() and letters[1] != letters[0]:
        return letters[1] + letters[0], 2
    return rng.choice(NEIGHBOURS[letters[0]]), 1


def _drafts(session: Session, before: str, rows: list[KeptRow], corrects: bool) -> list[TextDraft]:
    ask = drafting(DraftSettings(k=K), before=before, kept=rows, corrects=corrects)
    return session.complete(ask).finish(session.equipped.model).drafts


def _reached(drafts: list[TextDraft], before: str, text: str) -> int:
    """The place that one key reaches: that of the longest draft, or first word of one, that agrees with the text."""
    reached = [0]
    for draft in drafts:
        stem = before[: len(before) - draft.replace]
        word = PIECE.match(draft.text)
        parts = [draft.text, word[0] if word else ""]
        reached += [len(stem) + len(part) for part in parts if part and text.startswith(stem + part)]
    return max(reached)


def _goes_on(draft: TextDraft, taken: str) -> bool:
    return not draft.replace and draft.text.startswith(taken) and len(draft.text) > len(taken)
