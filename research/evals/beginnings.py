"""`eval beginnings`: drafts where a person begins to write, beside drafts inside paragraphs.

The places are those of `research/beginnings.py`. The drafts are the page's, as shipped. At each place:

    hit          whether a draft begins with the writer's next word
    keys saved   percent, by the typist of `app/options/typist.py`, who writes the next six words
    odd starts   share of the shown drafts that begin with something that does not belong there
    lower case   share of them that begin with a small letter where a sentence begins, and the writer's with a capital

Odd starts are white space, an opening bracket, a quotation mark or apostrophe, and the mark of a list, heading, quote
or table. One of these belongs to a place if the writer's text begins with the same, or, at the beginning of a line or
after its mark, if one of the last four lines of text does: dialogue goes on with dialogue, and a list with a list.
White space never belongs, since every place is after white space or in an empty text.

`_ci` is half of a 95 % confidence interval. That of a share of drafts is computed over places, because the drafts of
one place depend on each other.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Annotated

import regex

from app.options.settings import DraftSettings, drafting
from app.options.typist import PIECE, Passage, Way, typed
from core.autocomplete import Autocomplete
from core.time_saved import word_ends
from research.beginnings import INSIDE, KINDS, MARK, PARAGRAPH, Beginning, drawn
from research.options import AutocompleteOptions, DraftCountOptions, DraftCounts, TextOptions, amount, loaded
from research.places import texts
from research.report import Progress, Report, ReportRow, counted
from research.scores import half_interval

TARGET_K = 3
LAST = 4  # lines that show what belongs to the beginning of a line
LEAST_OF_INSIDE = 0.75
MOST_ODD = 0.01

_STARTS = {
    "space": regex.compile(r"\s"),
    "item": regex.compile(r"(?:[-*+•–—]|\d{1,3}[.)])(?:\s|$)"),
    "heading": regex.compile(r"#{1,6}(?:\s|$)"),
    "quoted block": regex.compile(r">"),
    "table": regex.compile(r"\|"),
    "bracket": regex.compile(r"[(\[{<]"),
    "quote": regex.compile(r"[\"“”„«‹'‘’‚「『]"),
}
_SENTENCE_BEGINS = regex.compile(r"(?:\n|[.!?][\"”’]?\s|^)\s*$")


@dataclass(frozen=True)
class Begun:
    """What the drafts at one place were worth.

    Attributes:
        saved: percent of the keys for the next six words.
        shown: the number of drafts.
        odd, small: those of them with an odd start, or in lower case where a sentence begins.
    """

    hit: bool
    saved: float
    shown: int
    odd: int
    small: int


@dataclass(frozen=True)
class BeginningsOptions(DraftCountOptions, AutocompleteOptions, TextOptions):
    repetitions: Annotated[int, amount("Places per kind of beginning.")] = 100
    k: DraftCounts = "3"


def measure(options: BeginningsOptions, progress: Progress) -> Report:
    places = drawn(texts(options.text), options.repetitions)
    autocomplete = loaded(options)
    report = Report("eval beginnings")
    for k in options.ks:
        way = Way("as shipped", DraftSettings(k=k, ngrams=autocomplete.ngrams is not None))
        by_kind: dict[str, list[Begun]] = {}
        for place in counted(places, f"k={k}, place", progress):
            by_kind.setdefault(place.kind, []).append(begun(autocomplete, place, way))
        report.rows += rows(k, by_kind)
        if k == TARGET_K:
            add_targets(report, by_kind)
    autocomplete.model.close()
    return report


def begun(autocomplete: Autocomplete, place: Beginning, way: Way) -> Begun:
    """Makes the drafts of a place, and writes its six words."""
    session = autocomplete.open()
    drafts = session.complete(drafting(way.settings, before=place.before)).finish(session.equipped.model).drafts
    session.close()
    shown = [draft.text for draft in drafts if draft.probability >= way.settings.min_confidence]
    return Begun(
        any(hits(text, place.rest) for text in shown),
        typed(autocomplete, Passage(place.kind, place.before, place.rest), way).saved,
        len(shown),
        sum(is_odd(text, place) for text in shown),
        sum(is_small(text, place) for text in shown),
    )


def hits(draft: str, rest: str) -> bool:
    """Whether a draft begins with the first word of the writer's text."""
    word = PIECE.match(rest)
    return word is not None and draft.startswith(word[0]) and word_ends(draft, word.end())


def start_of(text: str) -> str:
    """What a text begins with, a key of `_STARTS`; "" for anything else."""
    return next((name for name, start in _STARTS.items() if start.match(text)), "")


def is_odd(draft: str, place: Beginning) -> bool:
    """Whether a draft begins with something that does not belong to a place, as described above."""
    start = start_of(draft)
    if start in ("", "space"):
        return bool(start)
    above, _, line = place.before.rpartition("\n")
    lines = [each for each in above.split("\n") if each.strip()][-LAST:]
    known = {start_of(place.rest)}
    if not line.strip() or MARK.fullmatch(line):
        known |= {start_of(part) for each in lines for part in (each, MARK.sub("", each, count=1))}
    return start not in known


def is_small(draft: str, place: Beginning) -> bool:
    """Whether a draft begins with a small letter where a sentence begins, and the writer's text with a capital."""
    begins = _SENTENCE_BEGINS.search(MARK.sub("", place.before.rpartition("\n")[2])) is not None
    return begins and draft[:1].islower() and place.rest[:1].isupper()


def rows(k: int, by_kind: dict[str, list[Begun]]) -> list[ReportRow]:
    """Makes a row for each kind of beginning, and one for all of them except the places inside paragraphs."""
    inside = [place.saved for place in by_kind.get(INSIDE, [])]
    groups = {kind: by_kind[kind] for kind in KINDS if kind in by_kind}
    groups["all but inside"] = [place for kind, places in groups.items() if kind != INSIDE for place in places]
    return [_row(k, kind, places, inside) for kind, places in groups.items() if places]


def _row(k: int, kind: str, places: Sequence[Begun], inside: Sequence[float]) -> ReportRow:
    saved = [place.saved for place in places]
    ratio, ratio_ci = (1.0, math.nan) if kind == INSIDE else ratio_of_means(saved, inside)
    odd, odd_ci = share_of_drafts(places, [place.odd for place in places])
    small, small_ci = share_of_drafts(places, [place.small for place in places])
    return {
        "kind": kind,
        "k": k,
        "places": len(places),
        "hit": fmean(place.hit for place in places),
        "hit_ci": half_interval([float(place.hit) for place in places]),
        "keys_saved_percent": fmean(saved),
        "keys_ci": half_interval(saved),
        "of_inside": ratio,
        "of_inside_ci": ratio_ci,
        "drafts": sum(place.shown for place in places),
        "odd_starts": odd,
        "odd_ci": odd_ci,
        "lower_case": small,
        "lower_ci": small_ci,
    }


def ratio_of_means(values: Sequence[float], base: Sequence[float]) -> tuple[float, float]:
    """Returns the ratio of the means of independent values, and half of its interval, linearised; nan without a base
    above 0."""
    below = fmean(base) if base else 0.0
    if below <= 0:
        return math.nan, math.nan
    ratio = fmean(values) / below
    return ratio, math.hypot(half_interval(values), ratio * half_interval(base)) / below


def share_of_drafts(places: Sequence[Begun], of_them: Sequence[int]) -> tuple[float, float]:
    """Returns the share of all shown drafts, given their number at each place, and half of its interval over places;
    nan without drafts."""
    shown = [place.shown for place in places]
    if not sum(shown):
        return math.nan, math.nan
    share = sum(of_them) / sum(shown)
    beyond = [n - share * of for n, of in zip(of_them, shown, strict=True)]
    return share, half_interval(beyond) / fmean(shown)


def add_targets(report: Report, by_kind: dict[str, list[Begun]]) -> None:
    """Adds the targets, for TARGET_K drafts. Without places of both kinds, keys have no target."""
    saved = {kind: [place.saved for place in places] for kind, places in by_kind.items()}
    if {PARAGRAPH, INSIDE} <= saved.keys():
        ratio, _ = ratio_of_means(saved[PARAGRAPH], saved[INSIDE])
        name = f"keys saved over six words, k={TARGET_K}: a paragraph's first / inside paragraphs"
        report.target(name, ratio, f">= {LEAST_OF_INSIDE}")
    places = [place for kind, of_kind in by_kind.items() if kind != INSIDE for place in of_kind]
    odd, _ = share_of_drafts(places, [place.odd for place in places])
    report.target(f"odd starts, k={TARGET_K}, of all beginnings' drafts", odd, f"<= {MOST_ODD}")
