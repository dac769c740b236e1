"""`eval coverage`: the share of questions for which one of several drafts is correct (Superposed Decoding, Figure 5 and
Table 2).

The questions are those of `templated`, because a small model can answer hardly any question of TriviaQA, or those of a
file (`research.questions`), for a larger model. A draft is correct if it begins with the answer. P@k is the share of
questions with a correct draft among the first k of one method (Figure 5). `_ci` is half of the 95 % confidence
interval.

For Table 2, nucleus sampling draws n drafts (NS). NS_SPDk keeps the first SAMPLED tokens of each, and Superposed
Decoding continues them with k drafts, at the cost of as many passes of one row. As in the paper, n-grams are off. With
`--splices` NS_SPD3 also begins after every other number of tokens.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from statistics import fmean
from typing import Annotated

import typer

from core.models import Sequence, load_model
from research.evals.methods import SHIPPED, Method, by_the_paper, methods, nucleus, superposed
from research.evals.templated import KINDS, questions
from research.options import BackendOptions, PlotOptions, QuestionOptions, amount
from research.plots import lines, page
from research.questions import Question, read
from research.report import Progress, Report, ReportRow, counted, number_in, text_in
from research.scores import half_interval

QUESTIONS = 40  # per kind
LENGTH = 6  # tokens of a draft
KS = (1, 2, 3)
BUDGETS = (1, 2, 5, 10, 20, 50, 100)  # nucleus drafts
SAMPLED = 2  # tokens; before a number the first one is a space
# NS_SPDk: k, and the number of sampled tokens
PAPER = {"NS_SPD2": (2, SAMPLED), "NS_SPD3": (3, SAMPLED)}
SPLICES = {f"NS_SPD3 after {n}": (3, n) for n in range(1, LENGTH) if n != SAMPLED}


@dataclass(frozen=True)
class CoverageOptions(PlotOptions, BackendOptions, QuestionOptions):
    repetitions: Annotated[int | None, amount("Questions of each kind; by default 40, or all of a file.")] = None
    splices: Annotated[bool, typer.Option("--splices", help="NS_SPD3 after each number of sampled tokens.")] = False


def measure(options: CoverageOptions, progress: Progress) -> Report:
    model = load_model(options.model, options.backend)
    plain = {method.name: method.draft for method in methods(None, None)}
    compared: dict[str, Method] = {
        "nucleus": nucleus(None),
        "beam": plain["beam"],
        "superposed, the paper's": by_the_paper(None),
        f"superposed, r={SHIPPED.exact_steps}": superposed(None, SHIPPED.exact_steps),
    }
    spliced = PAPER | (SPLICES if options.splices else {})
    report, sequence = Report("eval coverage"), model.open()
    asked = (
        read(options.text, options.repetitions)
        if options.text is not None
        else {kind: questions(kind, options.repetitions or QUESTIONS) for kind in KINDS}
    )
    for kind, sample in asked.items():
        precise: dict[str, list[list[bool]]] = {name: [] for name in compared}
        spread: dict[str, list[list[bool]]] = {name: [] for name in ("NS", *spliced)}
        sampled = nucleus(None)
        for question in counted(sample, f"{kind}: question", progress):
            ids = question.ids(model.tokenizer)
            for name, draft in compared.items():
                sequence.sync(ids)
                precise[name].append(correct(question, sequence, draft(sequence, ids, max(KS), LENGTH)))
            for name, each in spread_out(question, sequence, ids, sampled, spliced).items():
                spread[name].append(each)
        report.rows += [_row(kind, name, marks, "P@", KS) for name, marks in precise.items()]
        report.rows += [_row(kind, name, marks, "n=", BUDGETS) for name, marks in spread.items()]
    sequence.close()
    model.close()
    return report


def correct(question: Question, sequence: Sequence, drafts: list[list[int]]) -> list[bool]:
    decode = sequence.model.tokenizer.decode
    return [question.is_answered_by(decode(ids)) for ids in drafts]


def spread_out(
    question: Question,
    sequence: Sequence,
    ids: list[int],
    sampled: Method,
    spliced: Mapping[str, tuple[int, int]] = PAPER,
) -> dict[str, list[bool]]:
    """Returns, for NS and each NS_SPDk, whether each nucleus draft, or one of the drafts that continue its first
    tokens, is correct."""
    sequence.sync(ids)
    drafts = sampled(sequence, ids, max(BUDGETS), LENGTH)
    by_method = {"NS": correct(question, sequence, drafts)}
    for name, (k, kept) in spliced.items():
        continued: dict[tuple[int, ...], bool] = {}  # by the first tokens, which many drafts share
        for first in {tuple(draft[:kept]) for draft in drafts}:
            prefix = [*ids, *first]
            sequence.sync(prefix)
            rest = by_the_paper(None)(sequence, prefix, k, LENGTH - kept)
            continued[first] = any(correct(question, sequence, [[*first, *more] for more in rest]))
        by_method[name] = [continued[tuple(draft[:kept])] for draft in drafts]
    return by_method


def _row(kind: str, method: str, marks: list[list[bool]], name: str, numbers: tuple[int, ...]) -> ReportRow:
    """Returns the shares of questions with a correct draft among the first n, for each number n."""
    row: ReportRow = {"kind": kind, "method": method, "questions": len(marks)}
    for n in numbers:
        hits = [float(any(each[:n])) for each in marks]
        row |= {f"{name}{n}": fmean(hits), f"{name}{n}_ci": half_interval(hits)}
    return row


def plots(report: Report) -> str:
    """Draws P@k by method (Figure 5), and the coverage against the number of nucleus samples (Table 2)."""
    charts = []
    for kind in dict.fromkeys(text_in(row, "kind") for row in report.rows):
        for prefix, x_label in (("P@", "k"), ("n=", "n")):
            rows = [row for row in report.rows if row["kind"] == kind and f"{prefix}1" in row]
            of_kind = {text_in(row, "method"): row for row in rows}
            columns = [
                name for name in next(iter(of_kind.values())) if name.startswith(prefix) and not name.endswith("_ci")
            ]
            drawn = {method: [(int(c[2:]), number_in(row, c)) for c in columns] for method, row in of_kind.items()}
            charts.append(lines(f"{kind}: share with a correct draft", x_label, drawn))
    return page(charts)
