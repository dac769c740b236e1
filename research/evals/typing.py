"""`eval typing`: a simulated typist writes a text by the page's rules, and takes a draft whenever that saves keys.

`app/options/typist.py` describes the typist, who also measures what an adapter is worth to its owner.

The same passages are also measured as in ChaI-TeA (arXiv 2412.18377): at the beginning of each word, the typist takes
the longest correct beginning of a draft that ends at a word, with one key at any rank. If there is none, the typist
types the whole word.

    saved@k = (accepted characters - acceptances) / (characters - 1)
"""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass
from statistics import fmean
from typing import Annotated, Any

import typer

from app.options.settings import DraftSettings
from app.options.typist import Passage, Typed, Way, drafted, passages, typed
from core.autocomplete import Autocomplete
from research.evals import slips
from research.options import AutocompleteOptions, TextOptions, amount, loaded
from research.places import texts
from research.report import Progress, Report, ReportRow, counted
from research.scores import half_interval

KS = (1, 3, 5, 9)
REJECTS = 2  # keys without a right draft after which one typist asks for other drafts
PEERS_K = 3  # drafts of the peers that have several
SHIPPED = "as shipped"

_WORD = re.compile(r"\s*\S+")  # for ChaI-TeA: up to the next space


def ways(ngrams: bool) -> list[Way]:
    """Returns the page's drafts for each k, then their peers."""

    def settings(k: int, **changes: Any) -> DraftSettings:
        return DraftSettings(k=k, ngrams=ngrams, **changes)

    return [
        *(Way(SHIPPED, settings(k)) for k in KS),
        *(Way("distinct beginnings", settings(k, forks=0)) for k in KS[1:]),
        *(Way(f"others after {REJECTS} rejections", settings(k), rejects=REJECTS) for k in KS[:2]),
        Way("one greedy draft", settings(1, end_below=0, refill=False), "greedy"),
        Way("branching greedy", settings(PEERS_K, end_below=0, refill=False), "branching"),
        Way("beam", settings(PEERS_K, end_below=0, refill=False), "beam"),
    ]


@dataclass(frozen=True)
class TypingOptions(AutocompleteOptions, TextOptions):
    repetitions: Annotated[int, amount("Characters written per kind of text.")] = 1500
    slips: Annotated[
        float | None,
        typer.Option(min=0.1, help="Slips of the typist in 100 letters, with rows that correct and without."),
    ] = None


def measure(options: TypingOptions, progress: Progress) -> Report:
    autocomplete = loaded(options)
    written = passages(texts(options.text), options.repetitions)
    if options.slips is not None:
        report = slips.measure(autocomplete, written, options.slips / 100, progress)
        autocomplete.model.close()
        return report
    compared = ways(autocomplete.ngrams is not None)
    results: dict[Way, list[tuple[str, Typed, float]]] = {way: [] for way in compared}
    for passage in counted(written, "passage", progress):
        for way in compared:
            saved_at_k = 100 * chai_tea(autocomplete, passage, way)
            results[way].append((passage.kind, typed(autocomplete, passage, way), saved_at_k))
    autocomplete.model.close()
    return report_of(results)


def report_of(results: dict[Way, list[tuple[str, Typed, float]]]) -> Report:
    """Makes rows for every kind of text and for all, and the targets over all."""
    report = Report("eval typing")
    kinds = sorted({kind for results_of in results.values() for kind, _, _ in results_of})
    shipped = {way.settings.k: of_way for way, of_way in results.items() if way.name == SHIPPED}
    for kind in [*kinds, "all"] if len(kinds) > 1 else kinds:
        for way, results_of in results.items():
            numbers = [n for n, passage in enumerate(results_of) if kind in (passage[0], "all")]
            as_shipped = shipped[way.settings.k]
            more = [results_of[n][1].saved - as_shipped[n][1].saved for n in numbers]
            row = _row(kind, way, [results_of[n] for n in numbers])
            report.rows.append(row | {"more_than_shipped": fmean(more), "more_ci": half_interval(more)})
    saved = {
        (way.name, way.settings.k): fmean(t.saved for _, t, _ in results_of) for way, results_of in results.items()
    }
    greedy = saved["one greedy draft", 1]
    for k, least in ((3, 60), (5, 63), (9, 67)):
        report.target(f"keys saved in percent, k={k}", saved[SHIPPED, k], f">= {least}")
    ratio = saved[SHIPPED, 3] / greedy if greedy > 0 else float("nan")
    report.target("keys saved, k=3 / one greedy draft", ratio, ">= 1.42")
    return report


def _row(kind: str, way: Way, passages: list[tuple[str, Typed, float]]) -> ReportRow:
    saved = [t.saved for _, t, _ in passages]
    keys = sum((t.keys for _, t, _ in passages), Counter[str]())
    return {
        "kind": kind,
        "drafts": way.name,
        "k": way.settings.k,
        "passages": len(passages),
        "keys_saved_percent": fmean(saved),
        "ci": half_interval(saved),
        "saved_at_k_percent": fmean(at_k for _, _, at_k in passages),
        "at_k_ci": half_interval([at_k for _, _, at_k in passages]),
        **{f"{name}_keys": keys[name] / keys.total() for name in ("character", "word", "draft", "others")},
    }


def chai_tea(autocomplete: Autocomplete, passage: Passage, way: Way) -> float:
    """Returns saved@k of a passage, from 0 to 1."""
    session = autocomplete.open()
    at, accepted, acceptances = 0, 0, 0
    while at < len(passage.rest):
        rest = passage.rest[at:]
        drafts = drafted(autocomplete, session, passage.before + passage.rest[:at], way, rest)
        length = max((right_words(draft.text, rest) for draft in drafts), default=0)
        if length:
            accepted, acceptances = accepted + length, acceptances + 1
        else:
            word = _WORD.match(rest)
            length = len(word[0]) if word else len(rest)
        at += length
    session.close()
    return (accepted - acceptances) / (len(passage.rest) - 1)


def right_words(draft: str, rest: str) -> int:
    """Returns the length of the longest beginning of a draft that ends at a word and agrees with the writer's text."""
    ends = [word.end() for word in _WORD.finditer(draft)]
    return max((end for end in ends if rest.startswith(draft[:end]) and not rest[end : end + 1].isalnum()), default=0)
