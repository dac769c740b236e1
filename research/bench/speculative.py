"""`bench speculative`: tokens per second, accept length τ and speed-up over plain decoding, method by method (Tables 2
and 4 of the ARC-Decode paper), with the proposals γ of a pass and τ/(γ + 1); with `--pruning`, other rules of pruning
(Table 8); with `--sweep`, over temperatures and θ (Figures 4 and 5).

The rows *as published* are the paper's own method: trees of one size whose drafter does not know the noise of sampling,
the paper's acceptance, constants and pruning; its EAGLE-3 is what ARC is compared with there.

All methods continue the same prompts, in turns, so that other load affects all equally. The target's pass over the
prompt is not counted. Each method keeps its drafter's acceptance estimates from prompt to prompt, as the app does; with
`--sweep` they are made at each temperature before anything is counted, because acceptance depends on it. The prompts of
each kind are a sample: `_ci` is half of the 95 % interval over prompts. `speed_up` and `to_lossless`, the mean
difference of τ to the same drafter without ARC, are paired by prompt.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from statistics import mean, median
from typing import Annotated, Any, TypeVar

import numpy as np
import typer

from core.errors import InputError
from core.models import LanguageModel, load_model
from core.models.costs import CostCurve, finished, timing
from core.speculative import (
    Memory,
    NgramDrafter,
    SuffixDrafter,
    SuperposedDrafter,
    TargetSampling,
    Token,
    generate,
)
from core.speculative.cycles import Statistics
from core.speculative.drafters import Drafter
from core.speculative.options import SpeculationMode
from research import plots
from research.chat import chat_template
from research.drafters import ARC, AS_PUBLISHED, accept_length, arcs, base_stores, eagle3
from research.evals.verified import logprobs
from research.options import Head, MixedOptions, PrecisionOptions, TextOptions, chosen, numbers
from research.prompts import prompts
from research.report import Progress, Report, ReportRow, counted, turned
from research.scores import half_interval, ratio_interval
from research.scores import mean as mean_of
from research.tolerance import SCORES, fuzzy, pruned_as_published, pruned_by, typical

T = TypeVar("T")

LENGTH = 64  # tokens after each prompt
PLAIN = "plain"
TEMPERATURES = (0.1, 0.3, 0.5, 0.7, 0.9, 1.0, 1.2, 1.5)
THETAS = (0.3, 0.5, 0.7, 0.9)
EAGLE = "EAGLE-3"
WHOLE = "EAGLE-3, whole trees"  # verifies all proposals, even if fewer would be faster
PAPERS = "as published: "  # before the name of a method
WITH_ARC = " + ARC"
ALL = "all"
WARM = 1  # prompts of each kind with which estimates are made before a temperature is measured
BY_DEPTH = "pruned by depth"
BOUNDS = (0.4, 0.6, 0.8)  # of FSD in Table 2; ln 2 = 0.69 nats is the largest divergence
ALPHAS = (0.25, 0.5, 1.0, 2.0, 4.0)  # weights of the depth that are searched: Table 8 has the best one


@dataclass
class SpeculativeMethod:
    """A way to decode, and its results: seconds and tokens by kind of prompt."""

    name: str
    drafter: Drafter | None
    mode: SpeculationMode
    options: dict[str, Any] = field(default_factory=dict)
    memory: Memory = field(default_factory=Memory)
    statistics: dict[str, list[Statistics]] = field(default_factory=dict)  # by kind, of each prompt
    logprobs: dict[str, list[float]] = field(default_factory=dict)  # by kind, ln p of each token by the target at T = 1
    lossless: SpeculativeMethod | None = None  # the same drafter without ARC

    def of(self, kind: str) -> list[Statistics]:
        """Returns the statistics of the prompts of a kind, or of ALL."""
        return _of(self.statistics, kind)

    def tau(self, kind: str) -> float:
        return accept_length(self.of(kind))

    def tokens_per_s(self, kind: str) -> float:
        statistics = self.of(kind)
        return sum(s.tokens for s in statistics) / sum(s.seconds for s in statistics)


@dataclass(frozen=True)
class SpeculativeOptions(MixedOptions, PrecisionOptions, TextOptions):
    prompts: Annotated[int, typer.Option(min=1, help="Prompts of each kind.")] = 4
    head: Head = None
    tree_size: Annotated[
        int | None,
        typer.Option(
            min=1,
            max=256,
            help="Always verify so many proposals (the papers: 32), so that accept lengths do not depend on the "
            "machine; by default as many as save most time.",
        ),
    ] = None
    methods: Annotated[
        str | None,
        typer.Option(help="Only these rows, and plain, with commas; without --sweep.", metavar="NAME,NAME,…"),
    ] = None
    pruning: Annotated[
        bool, typer.Option("--pruning", help="Also measure other rules of pruning (the paper's Table 8).")
    ] = False
    sweep: Annotated[
        bool, typer.Option("--sweep", help="Measure temperatures and θ, instead of all methods at T = 1.")
    ] = False
    temperatures: Annotated[
        str | None, typer.Option(help="With --sweep: only these temperatures, with commas.", metavar="T,T,…")
    ] = None
    plots: Annotated[
        Path | None, typer.Option(help="With --sweep: draw the curves to this SVG file.", metavar="FILE")
    ] = None

    def __post_init__(self) -> None:
        if self.plots is not None and not self.sweep:
            raise InputError("--plots changes nothing without --sweep, whose curves it draws; add --sweep.")
        if self.temperatures is not None and not self.sweep:
            raise InputError("--temperatures changes nothing without --sweep; add --sweep.")
        for flag, given in (("--pruning", self.pruning), ("--methods", self.methods is not None)):
            if given and self.sweep:
                raise InputError(f"{flag} changes nothing with --sweep; leave one of them out.")


def methods(model: LanguageModel, options: SpeculativeOptions, progress: Progress) -> list[SpeculativeMethod]:
    """Returns all methods: EAGLE-3 if there is a head and the backend provides hidden states, ARC if the model is
    calibrated. Reports the reason for a missing method. `options.methods` leaves out others than plain decoding. Raises
    InputError for an unknown name."""
    fixed: dict[str, Any] = {} if options.tree_size is None else {"tree_size": options.tree_size}
    stores = base_stores(model, options.store)
    compared = [
        SpeculativeMethod(PLAIN, None, "off"),
        SpeculativeMethod("n-gram", NgramDrafter(stores), "lossless", fixed),
        SpeculativeMethod("suffix automaton", SuffixDrafter(stores), "lossless", fixed),
        SpeculativeMethod("superposed tree", SuperposedDrafter(model, 3), "lossless", fixed),
    ]
    if drafter := eagle3(model, progress, options.head):  # all methods share one head, which can continue any text
        if not fixed:
            compared.append(SpeculativeMethod(WHOLE, drafter, "lossless", {"tree_size": drafter.most}))
        compared.append(SpeculativeMethod(EAGLE, drafter, "lossless", fixed))
    best = compared[-1] if compared[-1].name == EAGLE else compared[1]
    assert best.drafter is not None
    ways = {"{} + typical": {"tolerance": typical(), "prune": False}, **_pruned_only(options.pruning)}
    if best.name == EAGLE:  # the n-grams have no distribution over the tokens
        fsd = {"{} + FSD": fuzzy()} | {f"{{}} + FSD, {bound:g} nats": fuzzy(bound) for bound in BOUNDS}
        ways |= {name: {"tolerance": rule, "prune": False, "distributions": True} for name, rule in fsd.items()}
    if options.pruning:
        paper = {"tolerance": "none", "prune": pruned_as_published, "distributions": True}
        ways["{}, pruned by the paper's equations"] = paper
        ways["{}, pruned at λ = 0"] = {"tolerance": "none", "lam": 0.0}
    compared += [*_after(best, ways), *with_arc(model, best, options, progress)]
    wanted = chosen("--methods", options.methods, {method.name: method for method in compared})
    return [method for method in compared if method.name in {PLAIN, *wanted}]


def with_arc(
    model: LanguageModel,
    best: SpeculativeMethod,
    options: SpeculativeOptions,
    progress: Progress,
    temperature: float = 1.0,
) -> list[SpeculativeMethod]:
    """Returns ARC with this method's drafter: ours, and as published after the paper's EAGLE-3. Reports the reasons why
    the model is not calibrated at this temperature, and leaves their rows out."""
    assert best.drafter is not None
    kinds_of_arc = arcs(model, progress, TargetSampling(temperature))
    variants: list[SpeculativeMethod] = []
    if ARC in kinds_of_arc:
        variants += _after(best, _tolerant(kinds_of_arc[ARC].how))
    if AS_PUBLISHED in kinds_of_arc:
        paper = kinds_of_arc[AS_PUBLISHED]
        how = paper.options | {"tree_size": options.tree_size or best.drafter.most}
        base = SpeculativeMethod(PAPERS + best.name, best.drafter, "lossless", how)
        variants += [base, *_after(base, _pruned_only(options.pruning) | _tolerant(paper.how))]
    return variants


def _after(lossless: SpeculativeMethod, ways: dict[str, dict[str, Any]]) -> list[SpeculativeMethod]:
    """Returns methods with the drafter and the options of a lossless one, by names with a place for its name."""
    return [
        SpeculativeMethod(
            name.format(lossless.name), lossless.drafter, "arc", lossless.options | way, lossless=lossless
        )
        for name, way in ways.items()
    ]


def _tolerant(how: dict[str, Any]) -> dict[str, dict[str, Any]]:
    return {"{}, ARC LTS-only": how | {"prune": False}, "{}" + WITH_ARC: how}


def _pruned_only(others_too: bool) -> dict[str, dict[str, Any]]:
    """Returns the ways of pruning without tolerance: ARC's, and others."""
    ways: dict[str, dict[str, Any]] = {"{}, ARC prune-only": {"tolerance": "none"}}
    if others_too:
        rules = {f"{{}}, {BY_DEPTH}, α = {alpha:g}": pruned_by("depth", alpha) for alpha in ALPHAS}
        rules |= {f"{{}}, pruned by {by}": pruned_by(by) for by in SCORES if by != "depth"}
        ways |= {name: {"tolerance": "none", "prune": rule} for name, rule in rules.items()}
    return ways


def measure(options: SpeculativeOptions, progress: Progress) -> Report:
    model = load_model(options.model, options.backend, options.precision)
    compared = methods(model, options, progress)
    progress("measuring the cost curve")
    curve = CostCurve.of_times(finished(timing(model, "tokens")))
    report = Report("speculative")
    count = options.prompts
    read = prompts(options.text, model.tokenizer, count + WARM, chat_template(options.model))
    by_kind = {kind: of_kind[:count] for kind, of_kind in read.items()}
    if options.sweep:
        # A text with no more prompts than are measured is warmed up on with those.
        warm = {kind: of_kind[count:] or of_kind[:WARM] for kind, of_kind in read.items()}
        _sweep(model, curve, by_kind, warm, compared, report, options, progress)
    else:
        _run(model, curve, by_kind, compared, progress)
        report.rows += table(list(by_kind), compared)
        _add_targets(report, by_kind, compared)
    report.rows += costs(curve)
    model.close()
    return report


def costs(curve: CostCurve) -> list[ReportRow]:
    """Returns the cost curve as t(n) = α_t + n·β_t(n): α_t, the time of a pass that does not depend on n, is fitted by
    least squares of the relative error, and β_t(n) is the rest for each token."""
    n, ms = np.array(curve.sizes, dtype=float), np.array(curve.ms)
    if len(n) > 1:
        fixed = max(float(np.linalg.lstsq(np.stack([1 / ms, n / ms], 1), np.ones(len(n)))[0][0]), 0.0)
    else:
        fixed = 0.0
    about = {"prompts": "cost curve", "alpha_t_ms": fixed}
    return [
        about | {"tokens": size, "ms": t, "beta_t_ms": (t - fixed) / size}
        for size, t in zip(curve.sizes, curve.ms, strict=True)
    ]


def _run(
    model: LanguageModel,
    curve: CostCurve,
    by_kind: dict[str, list[list[int]]],
    compared: Sequence[SpeculativeMethod],
    progress: Progress,
    temperature: float = 1.0,
) -> None:
    """Runs every method on every prompt; each prompt begins with another method."""
    for kind, of_kind in by_kind.items():
        for number, ids in enumerate(counted(of_kind, f"T = {temperature:g}, {kind}, prompt", progress)):
            for method in turned(compared, number):
                how = {**method.options, "length": LENGTH, "temperature": temperature, "seed": number}
                generation = generate(
                    model, method.drafter, ids, method.mode, curve=curve, estimates=method.memory, **how
                )
                method.logprobs.setdefault(kind, []).extend(by_the_model(model, ids, list(generation), temperature))
                method.statistics.setdefault(kind, []).append(generation.statistics)


def warm_up(
    model: LanguageModel,
    prompts_of_each: dict[str, list[list[int]]],
    compared: Sequence[SpeculativeMethod],
    temperature: float,
) -> None:
    """Makes the estimates of the methods whose trees have no fixed size, on other prompts than those that are counted.
    Whole trees are verified, because only a proposal that was verified is learned from: a method that begins with too
    low an estimate verifies none, and would never learn that they are accepted."""
    for method in compared:
        if method.drafter is None or "tree_size" in method.options:
            continue
        how = {**method.options, "length": LENGTH, "temperature": temperature, "tree_size": method.drafter.most}
        for of_kind in prompts_of_each.values():
            for number, ids in enumerate(of_kind):
                list(generate(model, method.drafter, ids, method.mode, estimates=method.memory, seed=number, **how))


def by_the_model(model: LanguageModel, prompt: list[int], tokens: list[Token], temperature: float) -> list[float]:
    """Returns ln p of each token of a text that was sampled at a temperature, by the model at T = 1."""
    if temperature == 1:
        return [token.logprob for token in tokens]
    with closing(model.open()) as sequence:
        return logprobs(sequence, prompt, [token.id for token in tokens])


def _add_targets(report: Report, by_kind: dict[str, list[list[int]]], compared: Sequence[SpeculativeMethod]) -> None:
    for method in compared[1:]:
        if method.name == WHOLE:
            continue  # this method ignores its cost by design
        slowest = min(_speed_up(method, compared[0], kind) for kind in by_kind)
        report.target(f"{method.name}: speed of plain decoding kept, slowest set", slowest, ">= 0.97")
        if (more := off_cost(method, compared[0])) is not None:
            report.target(f"{method.name}: more time than plain decoding while it is off, %", more, "<= 0.5")
    named = {method.name: method for method in compared}
    if eagle := named.get(EAGLE):
        report.target(
            "EAGLE-3: speed-up, mean of the sets", mean(_speed_up(eagle, compared[0], k) for k in by_kind), ">= 1.3"
        )
        lengths = [eagle.tau(k) for k in by_kind]
        report.target("EAGLE-3: accept length, mean of the sets", mean(lengths), ">= 2.3")
        if whole := named.get(WHOLE):
            report.target(f"{WHOLE}: accept length", mean(whole.tau(k) for k in by_kind), ">= 2.3")
        if arc := named.get(EAGLE + WITH_ARC):
            longer = mean(arc.tau(k) for k in by_kind) / mean(lengths)
            report.target("ARC: accept length over EAGLE-3's", longer, ">= 1.25")
            faster = sum(_speed_up(arc, eagle, k) >= 1.2 for k in by_kind)
            report.target("ARC: sets with 1.2 x EAGLE-3's speed", faster, ">= 3")


def off_cost(method: SpeculativeMethod, plain: SpeculativeMethod) -> float | None:
    """Returns by how many percent a method's token takes longer than a plain one where the method has given up: the
    median over the prompts with fewer proposals than one for ten tokens. None if these are fewer than half."""
    pairs = list(zip(method.of(ALL), plain.of(ALL), strict=True))
    off = [(ours, theirs) for ours, theirs in pairs if ours.tokens and ours.proposed < ours.tokens / 10]
    if 2 * len(off) < len(pairs) or not off:
        return None
    ratios = [ours.seconds / ours.tokens * theirs.tokens / theirs.seconds for ours, theirs in off]
    return 100 * (median(ratios) - 1)


def table(kinds: Sequence[str], compared: Sequence[SpeculativeMethod]) -> list[ReportRow]:
    """Returns the rows of all methods, by kind of prompt and over all prompts, and another row for the best α of
    pruning by depth."""
    rows = [row(kind, method, compared[0]) for kind in (*kinds, ALL) for method in compared]
    by_depth = [method for method in compared if BY_DEPTH in method.name]
    for published_too in (False, True):
        group = [method for method in by_depth if method.name.startswith(PAPERS) == published_too]
        if group:
            best = max(group, key=lambda method: method.tau(ALL))
            rows.append(row(ALL, best, compared[0]) | {"method": f"{best.name}, the best α"})
    return rows


def _sweep(
    model: LanguageModel,
    curve: CostCurve,
    by_kind: dict[str, list[list[int]]],
    warm: dict[str, list[list[int]]],
    compared: Sequence[SpeculativeMethod],
    report: Report,
    options: SpeculativeOptions,
    progress: Progress,
) -> None:
    """Measures plain decoding, the best lossless drafter, and the same with ARC, ours and as published, over
    temperatures; and both ARCs over θ. ARC is left out at temperatures without a calibration."""
    best = next((method for method in compared if method.name == EAGLE), compared[1])
    settings = [(t, None) for t in numbers("temperatures", options.temperatures, 0.05, 10) or TEMPERATURES]
    if any(method.name.endswith(WITH_ARC) for method in compared):
        settings += [(1.0, theta) for theta in THETAS]
    curves: dict[str, dict[str, list[tuple[float, float]]]] = {}
    for temperature, theta in settings:
        left_out: list[str] = []  # constants hold at the temperature at which they were measured
        lossless = SpeculativeMethod(best.name, best.drafter, "lossless", best.options)
        chosen = [SpeculativeMethod(PLAIN, None, "off"), lossless]
        variants = with_arc(model, lossless, options, left_out.append, temperature)
        chosen += [method for method in variants if method.mode == "lossless" or method.name.endswith(WITH_ARC)]
        if theta is not None:
            chosen = [method for method in chosen if method.mode != "lossless"]
            for method in chosen[1:]:
                method.options["theta"] = theta
        report.rows += [
            {"temperature": temperature, "method": best.name + WITH_ARC, "left out": why} for why in left_out
        ]
        warm_up(model, warm, chosen, temperature)
        _run(model, curve, by_kind, chosen, progress, temperature)
        setting = {"temperature": temperature} | ({} if theta is None else {"theta": theta})
        report.rows += [setting | row(kind, method, chosen[0]) for method in chosen for kind in (*by_kind, ALL)]
        figure, x = ("temperature", temperature) if theta is None else ("θ", theta)
        for method in chosen[1:]:
            drawn = curves.setdefault(figure, {})
            drawn.setdefault(f"τ {method.name}", []).append((x, method.tau(ALL)))
            drawn.setdefault(f"speed-up {method.name}", []).append((x, _speed_up(method, chosen[0], ALL)))
    if options.plots is not None:
        charts = [plots.lines("τ and speed-up", name, series) for name, series in curves.items()]
        options.plots.write_text(plots.page(charts), encoding="utf-8")


def row(kind: str, method: SpeculativeMethod, plain: SpeculativeMethod) -> ReportRow:
    """Returns one line of the paper's Tables 1, 2 and 4."""
    statistics = method.of(kind)
    tokens, seconds = [s.tokens for s in statistics], [s.seconds for s in statistics]
    plain_tokens, plain_seconds = [s.tokens for s in plain.of(kind)], [s.seconds for s in plain.of(kind)]
    apart: list[float] = []
    if method.lossless is not None and method.lossless.statistics:  # over θ it is not measured again
        pairs = zip(statistics, method.lossless.of(kind), strict=True)
        # An answer of one token takes no cycle.
        apart = [ours.accept_length - theirs.accept_length for ours, theirs in pairs if ours.cycles and theirs.cycles]
    proposals = sum(s.proposed for s in statistics) / sum(s.cycles for s in statistics)  # γ, of a tree
    return {
        "prompts": kind,
        "sample": len(statistics),
        "method": method.name,
        "tokens_per_s": method.tokens_per_s(kind),
        "tokens_per_s_ci": ratio_interval([tokens], [seconds]),
        "accept_length": method.tau(kind),
        "accept_length_ci": ratio_interval([tokens], [[s.cycles for s in statistics]]),
        "to_lossless": mean_of(apart) if apart else None,
        "to_lossless_ci": half_interval(apart) if apart else None,
        "proposals": proposals,
        "per_proposal": method.tau(kind) / (proposals + 1),
        "speed_up": _speed_up(method, plain, kind),
        "speed_up_ci": None if method is plain else ratio_interval([tokens, plain_seconds], [seconds, plain_tokens]),
        "perplexity": math.exp(-mean(_of(method.logprobs, kind))),
        "pruned_percent": 100 * sum(s.pruned for s in statistics) / max(sum(s.drafted for s in statistics), 1),
        **phases(statistics),
        "drafting_us": 1e6 * sum(s.drafting for s in statistics) / sum(s.cycles for s in statistics),
        "tolerated_percent": 100 * sum(s.tolerated for s in statistics) / sum(s.tokens for s in statistics),
        "switched_off": sum(s.notice is not None for s in statistics),
    }


def phases(statistics: Sequence[Statistics]) -> dict[str, float]:
    """Returns the shares of the time that the phases took, which sum to 100 (the paper's Table 1)."""
    seconds = {
        "prefill": sum(s.prefill for s in statistics),
        "drafting": sum(s.drafting for s in statistics),
        "verification": sum(s.seconds - s.drafting for s in statistics),
        "rejection": sum(s.accepting for s in statistics),
    }
    total = sum(seconds.values())
    return {f"{phase}_percent": 100 * part / total for phase, part in seconds.items()}


def _of(by_kind: dict[str, list[T]], kind: str) -> list[T]:
    return [value for of_kind in by_kind.values() for value in of_kind] if kind == ALL else by_kind[kind]


def _speed_up(method: SpeculativeMethod, plain: SpeculativeMethod, kind: str) -> float:
    return method.tokens_per_s(kind) / plain.tokens_per_s(kind)
