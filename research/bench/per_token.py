"""`bench per-token`: the whole time of a generated token under each rule, pass and sampling included (Top-W, Table 4).

Every rule continues the same prefixes, in turns, so that other load affects all equally. The pass over the prefix is
not counted. Overheads are ratios within a turn: to top-p at the same temperature, as in the paper, and to sampling
without a rule.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass
from statistics import fmean, median
from typing import Annotated

import typer

from core.autocomplete import load_autocomplete
from core.controls import PRESETS
from core.models import LanguageModel
from core.samplers import Geometry, Rule
from core.samplers.catalog import sampler
from core.speculative import generate
from research import texts as text
from research.options import BackendOptions, TextOptions
from research.report import Progress, Report, ReportRow, counted, number_in, turned

TEMPERATURES = (1.0, 2.0)  # of the paper's table
TOKENS = 32  # after each prefix
PREFIX = 64
OURS, BASE, NONE = "top-w", "top-p", "none"
PAPERS = "Top-W, the paper's"  # a preset
RULES = (OURS, PAPERS, "top-h", "min-p", BASE, NONE)


@dataclass(frozen=True)
class PerTokenOptions(BackendOptions, TextOptions):
    repetitions: Annotated[int, typer.Option(min=1, help="Prefixes that are continued.")] = 12


def measure(options: PerTokenOptions, progress: Progress) -> Report:
    autocomplete = load_autocomplete(options.model, options.backend, None)
    model = autocomplete.model
    prefixes = text.prefixes(model.tokenizer, text.load(options.text), options.repetitions, PREFIX)
    report = Report("per-token")
    for t in TEMPERATURES:
        rules = {name: rule(name, t, autocomplete.geometries) for name in RULES}
        taken: dict[str, list[float]] = {name: [] for name in RULES}
        for number, prefix in enumerate(counted(prefixes, f"T = {t:g}, prefix", progress)):
            for name in turned(RULES, number):
                taken[name].append(ms_per_token(model, rules[name], prefix, number))
        report.rows += [row(t, name, taken) for name in RULES]
    model.close()
    overheads = [number_in(of_rule, "over_top_p_percent") for of_rule in report.rows if of_rule["rule"] == OURS]
    report.target(f"{OURS}: more time per token than {BASE}, %", fmean(overheads), "<= 5.4")
    return report


def rule(name: str, t: float, geometries: Mapping[str, Geometry]) -> Rule:
    """Returns a rule of the catalogue with its default values, or one of a preset, after the temperature."""
    preset = next((p for p in PRESETS if p.name == name), None)
    return sampler(preset.rule if preset else name, preset.values if preset else {}, t, geometries)


def ms_per_token(model: LanguageModel, rule: Rule, prefix: list[int], seed: int, tokens: int = TOKENS) -> float:
    """Returns the time of each token of a sampled text, without the pass over the prefix."""
    tokens_of = generate(model, None, prefix, "off", rule=rule, seed=seed, length=tokens + 1, stop_ids=frozenset[int]())
    next(tokens_of)  # the prefix's own pass
    began = time.perf_counter()
    count = sum(1 for _ in tokens_of)
    tokens_of.close()
    return 1000 * (time.perf_counter() - began) / count


def row(t: float, name: str, taken: Mapping[str, list[float]]) -> ReportRow:
    """Returns the median time of a rule, and the medians of its overhead at the same places, in percent."""

    def over(other: str) -> float:
        return 100 * (median(a / b for a, b in zip(taken[name], taken[other], strict=True)) - 1)

    times = {"places": len(taken[name]), "ms_per_token": median(taken[name])}
    return {"T": t, "rule": name, **times, "over_top_p_percent": over(BASE), "over_none_percent": over(NONE)}
