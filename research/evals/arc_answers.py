"""`eval arc-answers`: correct answers under ARC and beside lossless speculation (ARC-Decode, Table 3).

The questions are those of `templated`, because a small model answers hardly any question of the paper's four sets. The
answers are sampled at T = 1, the temperature of the calibration, with the same seeds under every rule; the lossless
ones are those of plain decoding. *As published* is the paper's own rule and constants, if `polydraft calibrate --paper`
was run. `difference` is in exact match to the lossless answers to the same questions, and its `_ci` half of the 95 %
confidence interval over questions. Our rule never tolerates digits (docs/speculative.md), so sums show what it keeps,
and facts what tolerance may change.
"""

from __future__ import annotations

from dataclasses import dataclass
from statistics import fmean
from typing import Annotated, Any

from core.models import LanguageModel, load_model
from core.speculative import Drafter, Statistics, generate
from core.speculative.options import SpeculationMode
from research.drafters import accept_length, arcs, base_stores, best_drafter
from research.evals.templated import KINDS, questions
from research.options import MixedOptions, amount
from research.questions import Question
from research.report import Progress, Report, ReportRow, counted
from research.scores import half_interval
from research.tolerance import typical

N = 4  # answers to each
LENGTH = 4  # tokens of an answer
TREE = 8  # proposals of a pass
LOSSLESS = "lossless"


def ways(model: LanguageModel, progress: Progress) -> dict[str, tuple[SpeculationMode, dict[str, Any]]]:
    """Returns the mode and the options of `generate` by the names in the table."""
    by_name: dict[str, tuple[SpeculationMode, dict[str, Any]]] = {
        LOSSLESS: ("lossless", {}),
        "typical": ("arc", {"tolerance": typical(), "prune": False}),
    }
    for name, arc in arcs(model, progress).items():
        by_name |= {name: ("arc", arc.how), f"{name}, LTS-only": ("arc", arc.how | {"prune": False})}
    return by_name


@dataclass(frozen=True)
class ArcAnswersOptions(MixedOptions):
    repetitions: Annotated[int, amount("Questions of each kind.")] = 60


def measure(options: ArcAnswersOptions, progress: Progress) -> Report:
    model = load_model(options.model, options.backend)
    compared = ways(model, progress)
    drafter = best_drafter(model, base_stores(model, options.store), progress)
    report = Report("eval arc-answers")
    for kind in KINDS:
        sample = questions(kind, options.repetitions)
        shares: dict[str, list[float]] = {name: [] for name in compared}
        counts: dict[str, list[Statistics]] = {name: [] for name in compared}
        for question in counted(sample, f"{kind}: question", progress):
            for name, (mode, how) in compared.items():
                share, statistics = answered(model, drafter, question, mode, how)
                shares[name].append(share)
                counts[name] += statistics
        report.rows += [row(kind, drafter.name, name, shares, counts[name]) for name in compared]
    drafter.close()
    model.close()
    return report


def answered(
    model: LanguageModel, drafter: Drafter, question: Question, mode: SpeculationMode, how: dict[str, Any], n: int = N
) -> tuple[float, list[Statistics]]:
    """Returns the share of correct answers, and the counts of each."""
    ids, right, counts = model.tokenizer.encode(question.prompt), [], []
    sequence = model.open()
    for seed in range(n):
        options = {**how, "length": LENGTH, "seed": seed, "tree_size": TREE, "stop_ids": frozenset()}
        generation = generate(model, drafter, ids, mode, sequence=sequence, **options)
        text = model.tokenizer.decode([token.id for token in generation])
        right.append(question.is_answered_by(text))
        counts.append(generation.statistics)
    sequence.close()
    return fmean(right), counts


def row(kind: str, drafter: str, name: str, shares: dict[str, list[float]], counts: list[Statistics]) -> ReportRow:
    """Returns one line of the table. `shares[name]` are the shares of correct answers, by question."""
    apart = [ours - theirs for ours, theirs in zip(shares[name], shares[LOSSLESS], strict=True)]
    return {
        "kind": kind,
        "drafter": drafter,
        "method": name,
        "questions": len(apart),
        "exact_match": fmean(shares[name]),
        "difference": fmean(apart),
        "difference_ci": half_interval(apart),
        "accept_length": accept_length(counts),
        "tolerated_percent": 100 * sum(s.tolerated for s in counts) / sum(s.tokens for s in counts),
    }
