"""`bench healing`: how often one of 3 drafts restores a word cut after 1 to 4 letters, with and without healing.

The letters are typed one by one into one session, so the cache holds the state of the previous letter.
"""

from __future__ import annotations

from collections.abc import Callable

from app.bench import text
from app.bench.report import BenchOptions, Report
from core.autocomplete import Autocomplete, Session, load_autocomplete

WORDS = 250
CUTS = {1: ">= 65", 2: ">= 75", 3: ">= 85", 4: ">= 95"}  # letters typed -> target, %
K = 3
LENGTH = 10


def measure(options: BenchOptions, progress: Callable[[str], None]) -> Report:
    progress("loading the model")
    autocomplete = load_autocomplete(options.model, options.backend, options.store)
    places = text.words(text.load(options.text), options.repetitions or WORDS)
    restored_counts = {(heal, cut): 0 for heal in (True, False) for cut in CUTS}
    steps: dict[tuple[bool, int], list[int]] = {key: [] for key in restored_counts}
    for number, place in enumerate(places, 1):
        progress(f"word {number} of {len(places)}")
        before = text.last_tokens(autocomplete.model.tokenizer, place.before)
        for heal in (True, False):
            session = autocomplete.open()
            _attempt(autocomplete, session, before, "", heal)
            for cut in CUTS:
                typed, rest = place.word[:cut], place.word[cut:]
                found, first = _attempt(autocomplete, session, before + typed, rest, heal)
                restored_counts[heal, cut] += found
                steps[heal, cut].append(first)
            session.close()
    report = Report("healing")
    for cut in CUTS:
        report.rows.append(
            {
                "letters": cut,
                "words": len(places),
                "restored_percent": _percent(restored_counts[True, cut], len(places)),
                "without_healing_percent": _percent(restored_counts[False, cut], len(places)),
                "steps_to_first_draft": _mean(steps[True, cut]),
                "steps_without_healing": _mean(steps[False, cut]),
            }
        )
    for cut, target in CUTS.items():
        value = _percent(restored_counts[True, cut], len(places))
        report.target(f"words restored after {cut} letters, %", value, target)
    later = [a - b for cut in CUTS for a, b in zip(steps[True, cut], steps[False, cut], strict=True)]
    report.target("first draft later than without healing, steps, worst case", max(later), "<= 1")
    return report


def restores(draft: str, rest: str) -> bool:
    """Whether the draft completes the word: `rest`, and no further letter."""
    return draft.startswith(rest) and not draft[len(rest) : len(rest) + 1].isalpha()


def _attempt(autocomplete: Autocomplete, session: Session, before: str, rest: str, heal: bool) -> tuple[bool, int]:
    """Whether one of the drafts restores the word, and the number of passes until the first draft."""
    completion = session.complete(before, k=K, length=LENGTH, heal=heal)
    passes, first = 0, None
    while True:
        drafts = [draft.text for draft in completion.drafts]
        if first is None and any(drafts):
            first = passes
        # A draft that is still inside the word may restore it; when none is, the remaining steps are not needed.
        if completion.done or (drafts and not any(rest.startswith(draft) for draft in drafts)):
            completion.close()
            return any(restores(draft, rest) for draft in drafts), passes if first is None else first
        completion.advance(autocomplete.model.forward(completion.rows()))
        passes += 1


def _percent(part: int, whole: int) -> float:
    return 100 * part / max(whole, 1)


def _mean(values: list[int]) -> float:
    return sum(values) / max(len(values), 1)
