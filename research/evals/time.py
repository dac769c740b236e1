"""`eval time`: the time that drafts save a simulated typist, who pays for reading them and for taking them.

Drafts are computed once at every position of a passage, with the page's settings; for the last policy they grow
farther, as on the page. Then typists of four speeds write the passage with several policies for what is shown:

    none       no drafts
    one        the best row
    always     all k rows
    threshold  the rows that branch with a probability of at least THRESHOLD
    pays       the rows that `core.time_saved` chooses

At every key the typist pays a look for each row that was not on the screen before, and takes the row, or the words at
its beginning, that saves most time, if any does; see `core.time_saved` for the gain. The typist takes only text that is
right and ends where the writer's word ends. Each other character takes the time of its key. Times between keys are
log-normal around their mean, the same for every policy. research/docs/evaluation.md has the sources of the constants.

The same with keys as cost: a look is free, a taken row or word costs one key.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import product
from statistics import fmean
from typing import Annotated

from app.options.settings import DraftSettings, drafting
from app.options.typist import Passage, passages
from core.autocomplete import Autocomplete
from core.time_saved import END_BELOW, LOOKS, Costs, RowPath, is_new, rows_that_pay, word_ends
from research.cut_calibration import Making, fitted
from research.options import (
    AutocompleteOptions,
    DraftCountOptions,
    DraftCounts,
    Part,
    PlotOptions,
    TextOptions,
    amount,
    loaded,
)
from research.places import texts
from research.plots import PlotPoint, page, points, scatter
from research.report import Progress, Report, ReportRow, counted, number_in
from research.scores import half_interval

KEYS_MS = (120.0, 157.0, 240.0, 480.0)  # fast, desktop, mean and slow typists
TAKES_MS = (400.0, 700.0, 1100.0)
LOOKS_MS = (30.0, 50.0)
WORD_MS = 120.0
SIGMA = 0.4  # of the logarithms of times between keys
THRESHOLD = 0.3
TYPICAL_MS = 157.0  # the speed at which rows and acceptances are counted
KEYS = Costs(key_ms=1, look_ms=0, take_ms=1, word_ms=1)
SETTINGS = tuple(product(LOOKS_MS, TAKES_MS, KEYS_MS))
TARGET_K = 3
BINS = 10  # of probabilities
SEEN = 0.05  # least probability of cuts that a person may see
GRID = (0.5, 1.0, 1.5, 2.0, 3.0, 4.0)  # looks that a new row must be worth

# (look, take) -> the least percent of time saved at each of KEYS_MS, k = 3
LEAST = {(50.0, 700.0): (13, 21, 33, 52), (30.0, 400.0): (27, 37, 49, 63)}
MOST_NEW = 22  # newly shown rows per 100 characters at TYPICAL_MS, with the first of these costs
MARGIN = -1  # points that the rule may save less than another policy, in any setting


@dataclass(frozen=True)
class RowsAt:
    """The rows for one position.

    Attributes:
        rows: as they are if all are shown.
        p_branch: of each one.
        best: the number of the row with the longest expected match.
        farther: as they are if only those that save time are shown.
        made: how each of these was made.
    """

    rows: tuple[RowPath, ...]
    p_branch: tuple[float, ...]
    best: int | None
    farther: tuple[RowPath, ...]
    made: tuple[Making, ...] = ()


@dataclass(frozen=True)
class Shown:
    """A row on the screen, up to `end`."""

    row: RowPath
    end: int

    @property
    def text(self) -> str:
        return self.row.text[: self.end]


# Returns what is shown, of an answer, to a writer with these costs, who sees these texts already.
Policy = Callable[[RowsAt, Costs, Sequence[str]], list[Shown]]


def none(answer: RowsAt, costs: Costs, on_screen: Sequence[str]) -> list[Shown]:
    return []


def one(answer: RowsAt, costs: Costs, on_screen: Sequence[str]) -> list[Shown]:
    return [Shown(row, len(row.text)) for row in answer.rows if row.id == answer.best]


def always(answer: RowsAt, costs: Costs, on_screen: Sequence[str]) -> list[Shown]:
    return [Shown(row, len(row.text)) for row in answer.rows]


def threshold(answer: RowsAt, costs: Costs, on_screen: Sequence[str]) -> list[Shown]:
    rows = zip(answer.rows, answer.p_branch, strict=True)
    return [Shown(row, len(row.text)) for row, p_branch in rows if p_branch >= THRESHOLD]


def paying(looks: float = LOOKS) -> Policy:
    def pays(answer: RowsAt, costs: Costs, on_screen: Sequence[str]) -> list[Shown]:
        by_id = {row.id: row for row in answer.farther}
        chosen = rows_that_pay(answer.farther, costs, on_screen, looks).rows
        return [Shown(by_id[row.id], len(row.text)) for row in chosen]

    return pays


POLICIES: dict[str, Policy] = {
    "none": none,
    "one": one,
    "always": always,
    "threshold": threshold,
    "pays": paying(),
}


@dataclass(frozen=True)
class WrittenPassage:
    """One passage, written by one typist: its characters, the time, without drafts and with them, in ms or in keys, the
    newly shown rows, and the takings."""

    characters: int
    alone: float
    time: float
    new_rows: int
    taken: int


@dataclass(frozen=True)
class TimeOptions(PlotOptions, DraftCountOptions, AutocompleteOptions, TextOptions):
    repetitions: Annotated[int, amount("Characters written per kind of text.")] = 1000
    part: Part = "all"
    k: DraftCounts = "1,3,5,9"


def measure(options: TimeOptions, progress: Progress) -> Report:
    autocomplete = loaded(options)
    chosen = passages(texts(options.text, options.part), options.repetitions)
    ngrams = autocomplete.ngrams is not None
    report = Report("eval time")
    for k in options.ks:
        settings = DraftSettings(k=k, ngrams=ngrams)
        each = counted(chosen, f"k={k}, passage", progress)
        drafted = [(passage, answers(autocomplete, passage, settings)) for passage in each]
        report.rows += compared(k, drafted)
        if k == TARGET_K:
            add_targets(report)
            report.rows += reliability(k, drafted)
            if options.part == "validation":
                report.rows += fits(k, drafted)
    autocomplete.model.close()
    return report


Drafted = Sequence[tuple[Passage, Sequence[RowsAt]]]  # the answer at every position of each passage


def answers(autocomplete: Autocomplete, passage: Passage, settings: DraftSettings) -> list[RowsAt]:
    """Returns the complete drafts at every position of a passage, each made without those before it."""
    session, shown = autocomplete.open(), []
    for at in range(len(passage.rest)):
        before = passage.before + passage.rest[:at]
        usual = session.complete(drafting(settings, before=before)).finish(autocomplete.model)
        farther = session.complete(drafting(settings, before=before, end_below=END_BELOW)).finish(autocomplete.model)
        p_branch = tuple(draft.probability for draft in usual.drafts)
        ways = (Making(farther.inside, draft.tail == "superposed") for draft in farther.drafts)
        shown.append(RowsAt(tuple(usual.paths), p_branch, usual.best, tuple(farther.paths), tuple(ways)))
    session.close()
    return shown


def typing_times(passage: Passage, key_ms: float, sigma: float = SIGMA) -> list[float]:
    """Returns the time of each key of a passage, in ms: log-normal with this mean, and the same draws at every
    speed."""
    rng = random.Random(passage.rest)
    return [key_ms * math.exp(sigma * rng.gauss(0, 1) - sigma**2 / 2) for _ in passage.rest]


def write(rest: str, answers: Sequence[RowsAt], policy: Policy, costs: Costs, times: Sequence[float]) -> WrittenPassage:
    """Writes a passage. `times` are those of its keys."""
    time, new_rows, taken, at = 0.0, 0, 0, 0
    on_screen: list[str] = []
    while at < len(rest):
        shown = policy(answers[at], costs, on_screen)
        new = sum(is_new(row.text, on_screen) for row in shown)
        new_rows += new
        gain, length = max((taking(row, rest[at:], costs) for row in shown), default=(0.0, 0))
        if gain > 0:
            taken += 1
            time += length * costs.key_ms - gain
        else:
            length = 1
            time += times[at]
        time += new * costs.look_ms
        written = rest[at : at + length]
        on_screen = [row.text[length:] for row in shown if row.text.startswith(written) and row.end > length]
        at += length
    return WrittenPassage(len(rest), sum(times), time, new_rows, taken)


def taking(shown: Shown, rest: str, costs: Costs) -> tuple[float, int]:
    """Returns the best gain of taking a row or words of its beginning, in ms, and the characters. (0, 0): none is
    right."""
    takings = [(0.0, 0)]
    inside = [cut.end for cut in shown.row.cuts if cut.end < shown.end]
    for m, end in enumerate([*inside, shown.end]):
        if not rest.startswith(shown.row.text[:end]):
            break
        whole = end == shown.end
        if word_ends(rest, end) and (whole or costs.word_ms is not None):
            words = 0.0 if whole else m * (costs.word_ms or 0.0)
            takings.append((end * costs.key_ms - costs.take_ms - words, end))
    return max(takings)


def typed(drafted: Drafted, policy: Policy, costs: Costs, sigma: float = SIGMA) -> list[WrittenPassage]:
    """Returns every passage, written by one typist."""
    return [
        write(passage.rest, answers_of, policy, costs, typing_times(passage, costs.key_ms, sigma))
        for passage, answers_of in drafted
    ]


def saved(written: Sequence[WrittenPassage]) -> float:
    """Returns the percent of the time that the drafts save in all passages."""
    return 100 * (1 - sum(w.time for w in written) / sum(w.alone for w in written))


def compared(k: int, drafted: Drafted) -> list[ReportRow]:
    """Makes a row for each policy with each costs of looking and taking, and one for each with keys as cost."""
    rows: list[ReportRow] = []
    for look, take in product(LOOKS_MS, TAKES_MS):
        for name, policy in POLICIES.items():
            costs = {key: Costs(key, look, take, WORD_MS) for key in KEYS_MS}
            written = {key: typed(drafted, policy, costs[key]) for key in KEYS_MS}
            typical = written[TYPICAL_MS]
            row: ReportRow = {"policy": name, "k": k, "look_ms": look, "take_ms": take}
            row |= {f"saved_{key:g}": saved(written[key]) for key in KEYS_MS}
            row["ci_157"] = half_interval([saved([passage]) for passage in typical])
            row["seconds_157"] = sum(passage.time for passage in typical) / 1000
            rows.append(row | {f"{what}_157": value for what, value in _counts(typical).items()})
    for name, policy in POLICIES.items():
        written = typed(drafted, policy, KEYS, sigma=0)
        row = {"policy": name, "k": k, "keys_saved_percent": saved(written)}
        row["keys_ci"] = half_interval([saved([passage]) for passage in written])
        row["keys"] = sum(passage.time for passage in written)
        rows.append(row | {f"{what}_per_100": value for what, value in _counts(written).items()})
    return rows


def _counts(written: Sequence[WrittenPassage]) -> dict[str, float]:
    """Returns newly shown rows and takings per 100 characters of text."""
    characters = sum(passage.characters for passage in written)
    return {
        "new_rows": 100 * sum(passage.new_rows for passage in written) / characters,
        "taken": 100 * sum(passage.taken for passage in written) / characters,
    }


def add_targets(report: Report) -> None:
    """Adds the targets, from the rows with TARGET_K drafts."""
    timed = [row for row in report.rows if row["k"] == TARGET_K and "take_ms" in row]
    of = {(row["policy"], row["look_ms"], row["take_ms"]): row for row in timed}
    for (look, take), least in LEAST.items():
        for key, bound in zip(KEYS_MS, least, strict=True):
            value = number_in(of["pays", look, take], f"saved_{key:g}")
            report.target(f"time saved in percent, look {look:g} ms, take {take:g}, key {key:g}", value, f">= {bound}")
    new = number_in(of["pays", *next(iter(LEAST))], "new_rows_157")
    report.target(f"newly shown rows per 100 characters, key {TYPICAL_MS:g} ms", new, f"<= {MOST_NEW}")
    worst = min(
        number_in(of["pays", look, take], f"saved_{key:g}") - number_in(of[other, look, take], f"saved_{key:g}")
        for (look, take, key), other in product(SETTINGS, POLICIES)
    )
    report.target("time saved less that of the best other policy, in the worst of 24 settings", worst, f">= {MARGIN}")


CutOutcome = tuple[float, bool]  # a probability, and whether it came true


def reliability(k: int, drafted: Drafted) -> list[ReportRow]:
    """Compares the probabilities of all cuts with the share that came true, by tenths. Then, for all cuts, for those
    with at least SEEN, and for each way of making drafts, the expected calibration error: the mean difference over the
    tenths, weighted by the number of cuts."""
    outcomes = [pair for position in cut_outcomes(drafted).values() for pair in position]
    rows: list[ReportRow] = []
    for number, cuts in enumerate(_tenths(outcomes)):
        if cuts:
            predicted, true = fmean(p for p, _ in cuts), fmean(right for _, right in cuts)
            label = f"{number / BINS:.1f} to {(number + 1) / BINS:.1f}"
            rows.append({"probability": label, "k": k, "predicted": predicted, "true": true, "cuts": len(cuts)})
    groups = {"all": outcomes, f"at least {SEEN}": [pair for pair in outcomes if pair[0] >= SEEN]}
    groups |= {str(making): cuts for making, cuts in cut_outcomes(drafted).items()}
    for name, cuts in groups.items():
        rows.append({"calibration": name, "k": k, "error": calibration_error(cuts), "cuts": len(cuts)})
    return rows


def calibration_error(outcomes: Sequence[CutOutcome]) -> float:
    """Returns the expected calibration error over tenths; nan without cuts."""
    bins = [cuts for cuts in _tenths(outcomes) if cuts]
    differences = (abs(sum(p for p, _ in cuts) - sum(right for _, right in cuts)) for cuts in bins)
    return sum(differences) / len(outcomes) if outcomes else math.nan


def _tenths(outcomes: Sequence[CutOutcome]) -> list[list[CutOutcome]]:
    bins: list[list[CutOutcome]] = [[] for _ in range(BINS)]
    for probability, right in outcomes:
        bins[min(int(probability * BINS), BINS - 1)].append((probability, right))
    return bins


def cut_outcomes(drafted: Drafted) -> dict[Making, list[CutOutcome]]:
    """Returns every cut of the rows at each position once, by how its row was made: its probability, and whether the
    text goes on like that. Cuts behind the passage's end are left out."""
    outcomes: dict[Making, list[CutOutcome]] = {}
    for passage, answers in drafted:
        for at, answer in enumerate(answers):
            rest, known = passage.rest[at:], set[str]()
            for making, row in zip(answer.made, answer.farther, strict=True):
                for cut in row.cuts:
                    text = row.text[: cut.end]
                    if text not in known and len(text) <= len(rest):
                        known.add(text)
                        right = rest.startswith(text) and word_ends(rest, len(text))
                        outcomes.setdefault(making, []).append((math.exp(cut.log_chance), right))
    return outcomes


def plots(report: Report) -> str:
    """Returns the reliability diagram as an SVG image."""
    tenths = [row for row in report.rows if "predicted" in row]
    true = [PlotPoint(x, y) for x, y in points(tenths, "predicted", "true")]
    drawn = {"came true": true, "as predicted": [PlotPoint(0.0, 0.0), PlotPoint(1.0, 1.0)]}
    return page([scatter("Share of cuts that came true", "probability", drawn)])


def fits(k: int, drafted: Drafted) -> list[ReportRow]:
    """Compares constants of the rule by the mean time saved in the 24 settings, and fits a calibration for each way of
    making drafts."""
    rows: list[ReportRow] = []
    for looks in GRID:
        policy = paying(looks)
        each = {
            (look, take, key): typed(drafted, policy, Costs(key, look, take, WORD_MS)) for look, take, key in SETTINGS
        }
        mean = fmean(map(saved, each.values()))
        typical = each[50.0, 700.0, TYPICAL_MS]
        row: ReportRow = {"looks": looks, "k": k, "mean_saved_percent": mean}
        rows.append(row | {"new_rows_157": _counts(typical)["new_rows"]})
    for making, cuts in cut_outcomes(drafted).items():
        rows.append({"fitted": str(making), "k": k, "points": str(fitted(cuts).points), "cuts": len(cuts)})
    return rows
