"""`eval rewording`: how often a writer's own word is among the nine that the page offers in its place.

Each word is left out of its text, and the text before and after it remains, as `core.rewording` reads them. Words are
drawn from all words of a text, as often as they are written, from the 200th character on; half of them from each kind
of text, if there are two.

    offered       share of the words that are among the nine offered
    before alone  the same without the text after: the model's own ranking of whole words
    gain          their difference in points, with its interval
    chance        mean of the chance that the nine together are said to have; right if it is `offered`

Intervals are those of a bootstrap over the words, which are drawn anew for both rankings at once.
"""

from __future__ import annotations

import random
import time
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean, median
from typing import Annotated

import numpy as np

from core.autocomplete import Autocomplete
from core.completion import Completion
from core.drafting.driver import Driven, Steps
from core.rewording import OFFERED, Alternative, alternatives
from core.session import Session
from core.words import WORD
from research.options import AutocompleteOptions, TextOptions, amount, loaded
from research.places import texts
from research.report import Progress, Report, ReportRow, counted

FIRST = 200  # characters before the first word that is drawn
REACH, FOLLOWING = 1024, 256  # characters before and after a word
LONG = 5  # letters of a word that has a row of its own
RESAMPLED = 10_000
GAIN = 15  # points


@dataclass(frozen=True)
class Hole:
    """A word that is left out, and the text around it."""

    kind: str
    before: str
    word: str
    after: str


@dataclass(frozen=True)
class Filled:
    """What was offered for a word.

    Attributes:
        offered, alone: whether it is among the nine, by the text before and after, and by the text before alone.
        chance: of the nine together.
        ms: that finding them took, the reading of the text before it included.
        inputs: of the passes after that.
    """

    hole: Hole
    offered: bool
    alone: bool
    chance: float
    ms: float
    inputs: int


@dataclass(frozen=True)
class RewordingOptions(AutocompleteOptions, TextOptions):
    repetitions: Annotated[int, amount("Words.")] = 500


def measure(options: RewordingOptions, progress: Progress) -> Report:
    holes = drawn(texts(options.text), options.repetitions)
    autocomplete = loaded(options)
    report = Report("eval rewording")
    filled = [fill(autocomplete, hole) for hole in counted(holes, "word", progress)]
    autocomplete.model.close()
    groups = {
        kind: [each for each in filled if each.hole.kind == kind] for kind in dict.fromkeys(h.kind for h in holes)
    }
    groups[f"{LONG} letters and more"] = [each for each in filled if len(each.hole.word) >= LONG]
    groups["all"] = filled
    report.rows = [_row(name, group) for name, group in groups.items() if group]
    report.target("points that the text after adds", 100 * gain(filled), f">= {GAIN}")
    return report


def drawn(by_kind: dict[str, list[str]], count: int, seed: int = 0) -> list[Hole]:
    """Returns `count` places, or as many as there are; the same for the same seed."""
    turns: list[list[Hole]] = []
    for kind, documents in by_kind.items():
        rng = random.Random(f"{kind} {seed}")
        places = [(text, match.span()) for text in documents for match in WORD.finditer(text, FIRST)]
        some = rng.sample(places, min(count, len(places)))
        turns.append([_hole(kind, text, *span) for text, span in some])
    longest = max(map(len, turns), default=0)
    return [turn[n] for n in range(longest) for turn in turns if n < len(turn)][:count]


def _hole(kind: str, text: str, start: int, end: int) -> Hole:
    return Hole(kind, text[max(start - REACH, 0) : start], text[start:end], text[end : end + FOLLOWING])


def fill(autocomplete: Autocomplete, hole: Hole) -> Filled:
    """Finds what could stand in a hole, twice."""
    session = autocomplete.open()
    began = time.perf_counter()
    both, inputs = found(session, hole.before, hole.after)
    ms = 1000 * (time.perf_counter() - began)
    alone, _ = found(session, hole.before, "")  # the text before is in the cache
    session.close()
    nine = both[:OFFERED]
    return Filled(
        hole,
        hole.word in [each.text for each in nine],
        hole.word in [each.text for each in alone[:OFFERED]],
        sum(each.chance for each in nine),
        ms,
        inputs,
    )


def found(session: Session, before: str, after: str) -> tuple[list[Alternative], int]:
    """Returns the alternatives, and the inputs of the passes after that over the text before."""
    result, inputs = list[Alternative](), 0

    def steps() -> Steps[Completion]:
        result.extend((yield from alternatives(session, before, after)))
        yield [], Completion([], done=True)

    running = Driven(steps())
    while not running.done:
        inputs += sum(len(row.inputs) for row in running.rows() if row.parents is not None or row.every)
        running.advance(session.equipped.model.forward(running.rows()))
    return result, inputs


def gain(filled: Sequence[Filled]) -> float:
    """Returns how much the text after adds to the share that is offered."""
    return fmean(each.offered - each.alone for each in filled)


def interval(values: Sequence[float], seed: int = 0) -> tuple[float, float]:
    """Returns the 95 % interval of a mean, by the bootstrap's percentiles."""
    drawn_anew = np.random.default_rng(seed).integers(len(values), size=(RESAMPLED, len(values)))
    low, high = np.percentile(np.asarray(values, float)[drawn_anew].mean(1), (2.5, 97.5))
    return float(low), float(high)


def _row(name: str, filled: Sequence[Filled]) -> ReportRow:
    low, high = interval([each.offered - each.alone for each in filled])
    offered_low, offered_high = interval([float(each.offered) for each in filled])
    return {
        "words": name,
        "count": len(filled),
        "offered": fmean(each.offered for each in filled),
        "offered_low": offered_low,
        "offered_high": offered_high,
        "before_alone": fmean(each.alone for each in filled),
        "gain": gain(filled),
        "gain_low": low,
        "gain_high": high,
        "chance": fmean(each.chance for each in filled),
        "inputs": median(each.inputs for each in filled),
        "ms": median(each.ms for each in filled),
    }
