"""`eval keytype`: KeyTypeBench's cases of inline prose completion, by its rules, for one draft and the best of k.

A shown text is acceptable if it equals an acceptable text, begins with it, or is a shorter beginning of it that ends at
a boundary after a word-like part. In a case that expects an insertion, an acceptable text scores 1, no text .3, a wrong
text 0. In a case that expects no insertion, no text scores 1 and any text 0. Quality is the mean.

KeyTypeBench shows one suggestion. The page shows k, so the report adds two figures: whether the best draft is
acceptable at its best cut, and whether one of the k drafts is.

Where only what pays is shown, it is measured in two ways. `time_`: the ghost that `core.time_saved` chooses for a
writer of whom nothing is known. `value_`: the same principle, expected value, with the benchmark's own payoff, in which
a right text is worth the same whatever its length: the most probable cut of all drafts, shown if it is more probable
than the score of no text.

Cases with text after the caret are measured twice: with and without that text as an input of the drafts. From other
text than the benchmark's, cases of the same three forms are made: without text after the caret, with three words
missing before it, and with no words missing.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import fmean
from typing import Annotated, Any

import typer

from app.options.settings import DraftSettings, drafting
from core.autocomplete import Autocomplete
from core.errors import InputError
from core.session import Session
from core.time_saved import END_BELOW, Costs, RowPath, rows_that_pay
from research import texts as own_text
from research.options import AutocompleteOptions, DraftCountOptions, DraftCounts, amount, loaded
from research.report import Progress, Report, ReportRow, counted
from research.scores import half_interval, mean

SILENT = 0.3  # the score of no text if an insertion is expected
SURE = 0.3  # the lowest branch probability at which the cautious row shows its best draft
OWN_CASES = 60  # places of a text, if no cases of the benchmark are given
MISSING, FOLLOWING = 3, 160  # missing words, and following characters, in the cases of a place


@dataclass(frozen=True)
class Case:
    """A place in a text and its acceptable insertions.

    Attributes:
        acceptable: texts; empty if no insertion is expected.
        tokens: maximum length of the shown text.
    """

    before: str
    after: str
    acceptable: tuple[str, ...]
    tokens: int


@dataclass(frozen=True)
class CaseScore:
    """The drafts of a case, the best first, with the best one's branch probability, and its text cut to length; the
    texts that are shown by expected time and by expected value, likewise."""

    case: Case
    drafts: list[str]
    probability: float
    cut: str
    by_time: str
    by_value: str


@dataclass(frozen=True)
class KeytypeOptions(DraftCountOptions, AutocompleteOptions):
    text: Annotated[Path | None, typer.Option(help="KeyTypeBench's core.jsonl, or other text.")] = None
    repetitions: Annotated[int | None, amount("Cases; by default all of a file's, or 60 places of text.")] = None
    k: DraftCounts = "1,3,9"


def measure(options: KeytypeOptions, progress: Progress) -> Report:
    wanted = cases(options.text, options.repetitions)
    autocomplete = loaded(options)
    report = Report("eval keytype")
    session = autocomplete.open()
    for k in options.ks:
        alone = [case for case in wanted if not case.after]
        between = [case for case in wanted if case.after]
        for name, some, knowing in (
            ("no text after", alone, False),
            ("text after, not shown to the drafts", between, False),
            ("text after", between, True),
        ):
            each = counted(some, f"k={k}, {name}, case", progress)
            answers = [answered(autocomplete, session, case, k, knowing) for case in each]
            if answers:
                report.rows.append(_row(name, k, answers))
    session.close()
    autocomplete.model.close()
    return report


def cases(path: Path | None, most: int | None = None) -> list[Case]:
    """Returns the first `most` cases of a .jsonl file in KeyTypeBench's form, or those of `most` places in other text.

    Raises: InputError.
    """
    if path is None or path.suffix != ".jsonl":
        places = own_text.words(own_text.load(path), most or OWN_CASES)
        return [case for place in places for case in _cases_of(place)]
    try:
        lines = path.read_text("utf-8").splitlines()
        return [_case(json.loads(line)) for line in lines if line.strip()][:most]
    except OSError as error:
        raise InputError(f"{path} cannot be read: {error.strerror}. Give KeyTypeBench's core.jsonl.") from error
    except (ValueError, KeyError, TypeError) as error:
        raise InputError(f"{path} has no cases in KeyTypeBench's form ({error}); give its core.jsonl.") from error


def _cases_of(place: own_text.WordPlace) -> list[Case]:
    """Returns the cases of a place in a text: without following text, with missing words, and without missing words."""
    rest = place.document[place.at : place.at + FOLLOWING]
    line = rest.partition("\n")[0]
    words = line.split()
    parts = [Case(place.before, "", (" ".join(rest.split()[: MISSING + 1]),), MISSING + 1)]
    if len(words) > 2 * MISSING:
        gap = re.match(rf"(?:\S+\s+){{{MISSING}}}", line)
        assert gap is not None
        parts.append(Case(place.before, rest[gap.end() :], (gap[0].strip(),), MISSING + 2))
        parts.append(Case(place.before, rest, (), MISSING + 1))
    return parts


def _case(read: dict[str, Any]) -> Case:
    context, expected = read["context"], read["expected"]
    acceptable = expected["shownAcceptable"] if expected["kind"] == "insert" else []
    return Case(
        context["beforeCursor"], context["afterCursor"], tuple(acceptable), int(read["limits"]["maxCompletionTokens"])
    )


def answered(autocomplete: Autocomplete, session: Session, case: Case, k: int, knowing: bool = True) -> CaseScore:
    """Makes drafts with the page's default settings, and `knowing` the text after the caret or not."""
    after = case.after if knowing else ""
    autocomplete.row_costs = None  # the comparison with the text after the caret is never skipped
    settings, tokenizer = DraftSettings(k=k), autocomplete.model.tokenizer
    model, ask = session.equipped.model, drafting(settings, before=case.before, after=after)
    usual = session.complete(ask).finish(model)
    paths = session.complete(replace(ask, end_below=END_BELOW)).finish(model).paths
    drafts = sorted(usual.drafts, key=lambda draft: draft.id != usual.best)

    def cut(text: str) -> str:
        return tokenizer.decode(tokenizer.encode(text)[: case.tokens]).rstrip("\ufffd")

    pays, likeliest = rows_that_pay(paths, Costs()).rows, most_probable(paths)
    return CaseScore(
        case,
        [draft.text for draft in drafts],
        drafts[0].probability if drafts else 0.0,
        cut(drafts[0].text) if drafts else "",
        cut(pays[0].text) if pays else "",
        cut(likeliest[0]) if likeliest[1] > SILENT else "",
    )


def most_probable(paths: Sequence[RowPath]) -> tuple[str, float]:
    """Returns the most probable cut of all rows, the longest of several, and its probability; ("", 0) without cuts."""
    cuts = [(cut.log_chance, cut.end, path.text[: cut.end]) for path in paths for cut in path.cuts]
    logprob, _, text = max(cuts, default=(-math.inf, 0, ""))
    return text, math.exp(logprob)


def _row(places: str, k: int, answers: Sequence[CaseScore]) -> ReportRow:
    insert = [a for a in answers if a.case.acceptable]
    cut = [acceptable(a.cut, a.case.acceptable) for a in insert]
    best = [at_best_cut(a.drafts[:1], a.case.acceptable) for a in insert]
    any_ = [at_best_cut(a.drafts, a.case.acceptable) for a in insert]
    return {
        "cases": places,
        "k": k,
        "count": len(answers),
        "best_cut_acceptable": mean(cut),
        "best_acceptable": mean(best),
        "best_of_k": mean(any_),
        "best_of_k_ci": half_interval(any_),
        **_shown("", answers, [a.cut for a in answers]),
        **_shown("cautious_", answers, [a.cut if a.probability >= SURE else "" for a in answers]),
        **_shown("time_", answers, [a.by_time for a in answers]),
        **_shown("value_", answers, [a.by_value for a in answers]),
    }


def _shown(name: str, answers: Sequence[CaseScore], texts: Sequence[str]) -> dict[str, float]:
    """Returns KeyTypeBench's four figures for the texts that are shown; an empty one is none."""
    points, shown, right, wrong = [], 0, 0, 0
    for a, text in zip(answers, texts, strict=True):
        visible = bool(text.strip())
        good = visible and acceptable(text, a.case.acceptable)
        shown, right, wrong = shown + visible, right + good, wrong + (visible and not good)
        points.append(float(good) if visible else SILENT if a.case.acceptable else 1.0)
    insert = sum(bool(a.case.acceptable) for a in answers)
    return {
        f"{name}quality": fmean(points),
        f"{name}precision": right / shown if shown else float("nan"),
        f"{name}coverage": right / insert if insert else float("nan"),
        f"{name}wrong_show": wrong / len(answers),
    }


def at_best_cut(drafts: Sequence[str], wanted: Sequence[str]) -> bool:
    """Whether a beginning of one of the drafts that ends at a word is acceptable."""
    return any(acceptable(draft[: end.end()], wanted) for draft in drafts for end in re.finditer(r"\S+(?=\s|$)", draft))


def acceptable(shown: str, wanted: Sequence[str]) -> bool:
    """Whether a shown text is acceptable, begins with an acceptable one, or is a beginning of one that ends at a
    boundary."""
    text = " ".join(shown.split())
    return any(_fits(text, " ".join(text_wanted.split())) for text_wanted in wanted)


def _fits(text: str, wanted: str) -> bool:
    if not text or not wanted:
        return False
    if text.startswith(wanted):
        return True
    bare = text.rstrip(".,;:!?…)]}\"'’”")  # without closing punctuation
    if not bare or not wanted.startswith(bare) or not re.search(r"\w", bare):
        return False
    following = wanted[len(bare) : len(bare) + 1]
    return following.isspace() or bool(re.match(r"\w", bare[-1])) != bool(re.match(r"\w", following))
