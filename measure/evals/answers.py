"""`eval answers`: correct answers of sampling rules against the temperature (Top-nσ, Table 1, Figures 4 and 5; Top-W,
Table 1).

The questions are those of `templated`. Every rule samples N answers to each question. `exact_match` is the share of
correct answers; `majority` the share of questions whose most frequent answer is correct (majority@N). The rows `n = …`
are the map of n × T of Top-nσ's Figure 5; `greedy` is the deterministic peer.
"""

from __future__ import annotations

import re
from collections import Counter
from statistics import fmean
from typing import Any

from core.autocomplete import load_autocomplete
from core.controls import PRESETS
from core.modes.start import draft
from core.options import Value
from measure.evals.templated import KINDS, Question, questions
from measure.options import EvalOptions
from measure.plots import heat_map, lines, page, series
from measure.report import Progress, Report, ReportRow, number_in, text_in
from measure.scores import half_interval

QUESTIONS = 16  # per kind
N = 8
LENGTH = 4  # tokens of an answer
TEMPERATURES = (0.5, 1.0, 1.5, 2.0, 3.0, 4.0)
SIGMAS = (0.3, 0.5, 0.8, 1.3, 2.0, 3.0)  # n of Top-nσ, beside its default
NEVER = frozenset[int]()  # no token ends an answer


def settings() -> dict[str, tuple[str, dict[str, Value]]]:
    """Rules by the names in the table: the rule's name and its values."""
    paper = next(preset for preset in PRESETS if preset.name == "Top-W, the paper's")
    by_name: dict[str, tuple[str, dict[str, Value]]] = {
        name: (name, {}) for name in ("none", "top-p", "min-p", "top-h")
    }
    by_name |= {"top-n-sigma": ("top-n-sigma", {}), "top-w": ("top-w", {}), paper.name: ("top-w", dict(paper.values))}
    for n in SIGMAS:
        by_name[f"n = {n:g}"] = ("top-n-sigma", {"n": n})
    return by_name


def measure(options: EvalOptions, progress: Progress) -> Report:
    autocomplete = load_autocomplete(options.model, options.backend, None)
    model, report = autocomplete.model, Report("eval answers")
    sequence = model.open()
    for kind in KINDS:
        sample = [(q, model.tokenizer.encode(q.prompt)) for q in questions(kind, options.repetitions or QUESTIONS)]

        def answers(question: Question, ids: list[int], mode: str, k: int, **how: Any) -> list[str]:
            how |= {"k": k, "length": LENGTH, "stop_ids": NEVER, "end_below": 0.0}
            *_, last = draft(model, ids, mode, sequence=sequence, **how)
            return [answer_of(model.tokenizer.decode(sampled)) for sampled in last.ids]

        greedy = [answers(question, ids, "greedy", 1) for question, ids in sample]
        report.rows.append(row(kind, "greedy", 0.0, [q for q, _ in sample], greedy))
        for name, (rule, values) in settings().items():
            for temperature in TEMPERATURES:
                progress(f"{kind}: {name}, T = {temperature:g}")
                sampler = autocomplete.sampler(rule, values, temperature)
                answered = [answers(q, ids, "sampled", N, rule=sampler, seed=i) for i, (q, ids) in enumerate(sample)]
                report.rows.append(row(kind, name, temperature, [q for q, _ in sample], answered))
    sequence.close()
    model.close()
    return report


def answer_of(text: str) -> str:
    """Returns the word or number at the beginning of a continuation; "" if there is none."""
    match = re.match(r"\s*(\w+)", text)
    return match[1] if match else ""


def row(kind: str, rule: str, temperature: float, sample: list[Question], answers: list[list[str]]) -> ReportRow:
    """Returns one line of the table. `answers[i]` are the answers to `sample[i]`."""
    shares = [fmean(text == question.answer for text in votes) for question, votes in zip(sample, answers, strict=True)]
    ballots = [Counter(votes).most_common(1)[0][0] for votes in answers]
    return {
        "kind": kind,
        "rule": rule,
        "T": temperature,
        "questions": len(sample),
        "exact_match": fmean(shares),
        "exact_match_ci": half_interval(shares),
        "majority": fmean(most == question.answer for most, question in zip(ballots, sample, strict=True)),
    }


def plots(report: Report) -> str:
    """Exact match and majority against T for every rule, and Top-nσ's exact match as a map of n × T (its Figure 5)."""
    charts = []
    for kind in KINDS:
        rows = [r for r in report.rows if r["kind"] == kind and r["rule"] != "greedy"]
        rules = [r for r in rows if not text_in(r, "rule").startswith("n =")]
        for figure in ("exact_match", "majority"):
            title = f"{kind}: {figure.replace('_', ' ')}"
            charts.append(lines(title, "temperature", series(rules, "rule", "T", figure)))
        of_n = {
            (float(text_in(r, "rule")[4:]), number_in(r, "T")): number_in(r, "exact_match")
            for r in rows
            if text_in(r, "rule").startswith("n =")
        }
        charts.append(heat_map(f"{kind}: exact match of Top-nσ", "n", "T", of_n))
    return page(charts, across=3)
