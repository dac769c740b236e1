"""`eval top-w-beta`: correct answers of Top-W against β for fixed λ (its Figure 3), and by each metric.

The paper's figure is the accuracy on GSM8K at T = 1, 1.5 and 2: with a growing β Top-W keeps more tokens and becomes
less accurate. Here the questions are those of `templated`, and the figure is the probability of a right answer
(`research.exact_answers`), without sampling. The other settings are those that the app ships. The metrics other than
"l2" are compared at the paper's λ: `whitened` is its appendix A, `cosine` the authors' code, `uniform` has no geometry.

`_ci` is half of the 95 % confidence interval over questions; `to_l2` is the mean difference to the metric "l2" with
the same λ and β.
"""

from __future__ import annotations

from dataclasses import dataclass
from statistics import fmean, median
from typing import Annotated

import torch

from core.autocomplete import load_autocomplete
from core.samplers import Rule
from core.samplers.geometry import METRICS
from research.evals.templated import KINDS, questions
from research.exact_answers import Answers, p_right, read
from research.options import BackendOptions, PlotOptions, Temperatures, amount, numbers
from research.plots import lines, page, points
from research.report import Progress, Report, ReportRow, one_thread, text_in
from research.scores import half_interval

TEMPERATURES = (1.0, 1.5, 2.0)
LAMBDAS = (0.5, 1.0, 2.2)
BETAS = (0.5, 1.0, 1.5, 2.0, 2.5, 2.8, 3.2, 3.6, 4.0, 5.0)
PAPERS_LAMBDA = 2.2
SETTINGS = [("l2", lam) for lam in LAMBDAS] + [(metric, PAPERS_LAMBDA) for metric in METRICS if metric != "l2"]


@dataclass(frozen=True)
class TopWBetaOptions(PlotOptions, BackendOptions):
    repetitions: Annotated[int, amount("Questions of each kind.")] = 64
    temperatures: Temperatures = None


def measure(options: TopWBetaOptions, progress: Progress) -> Report:
    temperatures = numbers("temperatures", options.temperatures, 0.05, 10) or TEMPERATURES
    autocomplete = load_autocomplete(options.model, options.backend, None)
    report = Report("eval top-w-beta")
    with one_thread():
        for kind in KINDS:
            progress(f"{kind}: reading the questions")
            answers = read(autocomplete.model, questions(kind, options.repetitions))
            for t in temperatures:
                l2: dict[tuple[float, float], list[float]] = {}
                for metric, lam in SETTINGS:
                    progress(f"{kind}, T = {t:g}: {metric}, λ = {lam:g}")
                    for beta in BETAS:
                        values = {"lam": lam, "beta": beta, "metric": metric}
                        rule = autocomplete.sampler("top-w", values, t)
                        right = p_right(answers, rule)
                        about: ReportRow = {"kind": kind, "T": t, "metric": metric, "lam": lam, "beta": beta}
                        report.rows.append(about | row(right, l2.get((lam, beta))) | _kept(answers, rule))
                        if metric == "l2":
                            l2[lam, beta] = right
    autocomplete.model.close()
    return report


def row(right: list[float], l2: list[float] | None = None) -> ReportRow:
    """Returns the columns of a setting from the probability of a right answer to each question, and from that with the
    metric "l2"."""
    columns: ReportRow = {"questions": len(right), "correct": fmean(right), "correct_ci": half_interval(right)}
    if l2 is not None:
        apart = [ours - theirs for ours, theirs in zip(right, l2, strict=True)]
        columns |= {"to_l2": fmean(apart), "to_l2_ci": half_interval(apart)}
    return columns


def _kept(answers: Answers, rule: Rule) -> ReportRow:
    """Returns the median and the mean number of tokens kept where an answer begins."""
    first = torch.cat([torch.tensor([True]), answers.of_answer[1:] != answers.of_answer[:-1]])
    kept = [int(n) for rows in answers.logits[first].split(64) for n in (rule(None, rows) > -torch.inf).sum(1)]
    return {"kept": median(kept), "kept_mean": fmean(kept)}


def plots(report: Report) -> str:
    """Draws the paper's figure for each kind and temperature, a line per λ and metric."""
    charts = []
    for kind, t in dict.fromkeys((text_in(row, "kind"), row["T"]) for row in report.rows):
        of_t = [row for row in report.rows if (row["kind"], row["T"]) == (kind, t)]
        drawn = {
            f"λ = {lam:g}, {metric}": points(
                [row for row in of_t if (row["metric"], row["lam"]) == (metric, lam)], "beta", "correct"
            )
            for metric, lam in SETTINGS
        }
        charts.append(lines(f"{kind}, T = {t:g}: correct answers", "β", drawn))
    return page(charts)
