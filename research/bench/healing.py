"""`bench healing`: how often one of 3 drafts restores a word cut after 1 to 4 letters, with and without healing.

The letters are typed one by one into one session, so the cache holds the state of the previous letter.
"""

from __future__ import annotations

from dataclasses import dataclass
from statistics import fmean
from typing import Annotated

import typer

from core.ask import Ask
from core.autocomplete import Autocomplete, load_autocomplete
from core.errors import InputError
from core.session import Session
from research import texts as text
from research.options import MixedOptions, TextOptions
from research.report import Progress, Report, counted

CUTS = {1: ">= 65", 2: ">= 75", 3: ">= 85", 4: ">= 95"}  # letters typed -> target, %
K = 3
LENGTH = 10


@dataclass(frozen=True)
class HealingOptions(MixedOptions, TextOptions):
    repetitions: Annotated[int, typer.Option(min=1, help="Words.")] = 250


def measure(options: HealingOptions, progress: Progress) -> Report:
    places = text.words(text.load(options.text), options.repetitions)
    if not places:
        raise InputError("The text is too short to measure on: no word of 5 letters has 200 characters before it.")
    autocomplete = load_autocomplete(options.model, options.backend, options.store)
    attempts: dict[tuple[bool, int], list[tuple[bool, int]]] = {(heal, n): [] for heal in (True, False) for n in CUTS}
    for place in counted(places, "word", progress):
        before = text.last_tokens(autocomplete.model.tokenizer, place.before)
        for heal in (True, False):
            session = autocomplete.open()
            _attempt(autocomplete, session, before, "", heal)
            for cut in CUTS:
                typed, rest = place.word[:cut], place.word[cut:]
                attempts[heal, cut].append(_attempt(autocomplete, session, before + typed, rest, heal))
            session.close()
    report = Report("healing")
    later: list[int] = []
    for cut, target in CUTS.items():
        healed, plain = attempts[True, cut], attempts[False, cut]
        restored = 100 * fmean(was_restored for was_restored, _ in healed)
        report.rows.append(
            {
                "letters": cut,
                "words": len(places),
                "restored_percent": restored,
                "without_healing_percent": 100 * fmean(was_restored for was_restored, _ in plain),
                "steps_to_first_draft": fmean(first for _, first in healed),
                "steps_without_healing": fmean(first for _, first in plain),
            }
        )
        report.target(f"words restored after {cut} letters, %", restored, target)
        later += [ours - theirs for (_, ours), (_, theirs) in zip(healed, plain, strict=True)]
    report.target("first draft later than without healing, steps, worst case", max(later), "<= 1")
    return report


def restores(draft: str, rest: str) -> bool:
    """Whether the draft completes the word: `rest`, and no further letter."""
    return draft.startswith(rest) and not draft[len(rest) : len(rest) + 1].isalpha()


def _attempt(autocomplete: Autocomplete, session: Session, before: str, rest: str, heal: bool) -> tuple[bool, int]:
    """Whether one of the drafts restores the word, and the number of passes until the first draft."""
    driven = session.complete(Ask(before=before, k=K, length=LENGTH, heal=heal))
    passes, first = 0, None
    while True:
        drafts = [draft.text for draft in driven.latest.drafts]
        if first is None and any(drafts):
            first = passes
        # A draft that is still inside the word may restore it; when none is, the remaining steps are not needed.
        if driven.done or (drafts and not any(rest.startswith(draft) for draft in drafts)):
            driven.close()
            return any(restores(draft, rest) for draft in drafts), passes if first is None else first
        driven.advance(autocomplete.model.forward(driven.rows()))
        passes += 1
