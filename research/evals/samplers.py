"""`eval samplers`: three drafts by each rule, at temperatures 0.5 to 4, compared with the writer's text.

The probability that a draft agrees with the writer for m tokens is the product of the m probabilities q(y) along the
writer's text, so no sampling is needed: one of three drafts matches with probability 1 - (1 - Π q(y))³. The same
distributions give the probability and the number of the kept tokens, their entropy, the number of different first
tokens of three drafts, and the model's own perplexity, without temperature and rule, of the sampled tokens. Self-BLEU-2
and distinct-2 of whole drafts need samples, which are drawn at fewer places. The papers claim that accuracy at high
temperature decreases for top-p and min-p but not for top-nσ and Top-W.

With `--matched` all rules are equally strong (`research.evals.matched`): what differs is which tokens they keep.

`_ci` is half of the 95 % confidence interval of a mean over texts; `_difference` is to Top-nσ at the same temperature,
by the same texts, and the column "to top-n-sigma" says what these differences decide.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from statistics import fmean, median
from typing import Annotated, Literal

import numpy as np
import torch
import typer
from torch import Tensor

from core.autocomplete import Autocomplete, load_autocomplete
from core.controls import CATALOG, PRESETS
from core.models import Sequence
from core.modes.start import draft
from core.options import Value
from core.samplers import DRY, XTC, Mirostat, Rule, Temperature
from core.samplers.chain import parts
from research import texts as text
from research.evals.matched import DRAWS, PEER, REACHED, Strength, solved
from research.options import BackendOptions, PlotOptions, Temperatures, TextOptions, amount, numbers
from research.plots import lines, page, series
from research.positions import along, runs
from research.report import Progress, Report, ReportRow, counted, number_in, one_thread
from research.scores import half_interval, median_interval

LENGTH = 6  # tokens of a draft
DRAWN_OF = 4  # whole drafts are sampled at one place of every fourth text
TEMPERATURES = (0.5, 1.0, 1.5, 2.0, 3.0, 4.0)
NEVER = frozenset[int]()
COMPARED = ("prefix", "match_1_percent", "different", "surprise")  # with Top-nσ
UNDECIDED = "does not decide"

Setting = tuple[str, dict[str, Value], ReportRow]  # a rule, its values, and what the table says about them


@dataclass(frozen=True)
class SamplersEvalOptions(PlotOptions, BackendOptions, TextOptions):
    repetitions: Annotated[int, amount("Texts.")] = 30
    temperatures: Temperatures = None
    matched: Annotated[
        Literal["mass", "variety"] | None,
        typer.Option(help="Compare rules that keep equally much probability as Top-nσ, or as many different tokens."),
    ] = None


def measure(options: SamplersEvalOptions, progress: Progress) -> Report:
    autocomplete = load_autocomplete(options.model, options.backend, None)
    texts = runs(autocomplete.model.tokenizer, text.load(options.text), options.repetitions)
    temperatures = numbers("temperatures", options.temperatures, 0.05, 10) or TEMPERATURES
    report = Report("samplers")
    with one_thread():
        sequence = autocomplete.model.open()
        logits = [along(sequence, before, written) for before, written in counted(texts, "text", progress)]
        for t in temperatures:
            if options.matched is None:
                settings = {name: (rule, values, {}) for name, (rule, values) in _settings().items()}
            else:
                settings = dict(_matched(autocomplete, torch.cat(logits), t, options.matched, progress))
            figures: dict[str, list[dict[str, float]]] = {}
            for name, (rule, values, about) in settings.items():
                progress(f"T = {t:g}: {name}")
                sampler = autocomplete.sampler(rule, values, t)
                figures[name] = [
                    expected(sampler, rows, before, written, t)
                    for rows, (before, written) in zip(logits, texts, strict=True)
                ]
                drawn = [
                    _drafts(autocomplete, sequence, before, sampler, number)
                    for number, (before, _) in enumerate(texts)
                    if number % DRAWN_OF == 0
                ]
                peers = None if name == PEER else figures.get(PEER)
                report.rows.append({"rule": name, "T": t, **about} | row(figures[name], peers) | _variety(drawn))
        sequence.close()
    autocomplete.model.close()
    if options.matched is None:
        _add_targets(report)
    return report


def _add_targets(report: Report) -> None:
    for name in ("top-n-sigma", "top-w (the paper's)", "top-w (ours)", "top-p", "min-p"):
        prefix = {row["T"]: number_in(row, "prefix") for row in report.rows if row["rule"] == name}
        if {1.0, 3.0} <= prefix.keys():
            # The claim concerns the papers' rules; the others are listed for comparison.
            bound = ">= 0.9" if name.startswith(("top-n", "top-w")) else "<= 0.9"
            report.target(f"{name}: prefix at T = 3 / at T = 1", prefix[3.0] / max(prefix[1.0], 1e-9), bound)


def expected(
    rule: Rule, logits: Tensor, before: list[int], written: list[int], temperature: float = 1.0
) -> dict[str, float]:
    """Evaluates a rule along the writer's text, with logits (n, V) after `before` and each token of `written` except
    the last.

    Args:
        rule: with the temperature.

    Returns: means over the n places: match_1_percent, different (first tokens of three drafts), surprise of the sampled
    tokens in nats, kept_mass (the probability of the kept tokens at the temperature), entropy (of the kept tokens,
    renormalised, in nats), kept (median); prefix, the mean length that the best of three drafts of LENGTH tokens shares
    with the writer's text, over the places that have LENGTH tokens after them.
    """
    if any(isinstance(part, Mirostat | DRY | XTC) for part in parts(rule)):
        # The rule depends on the tokens before, which are the writer's here.
        contexts = [before + written[:n] for n in range(len(written))]
        rows = [rule(torch.tensor([ids]), row[None])[0] for ids, row in zip(contexts, logits, strict=True)]
        cropped = torch.stack(rows)
    else:
        cropped = rule(None, logits)
    kept = cropped > -torch.inf
    q = cropped.softmax(1)  # (n, V)
    p_written = q[torch.arange(len(written)), torch.tensor(written)].double().numpy()
    surprise = -(q * logits.log_softmax(1)).sum(1)
    paths = np.array([np.cumprod(p_written[n : n + LENGTH]) for n in range(len(written) - LENGTH + 1)])
    return {
        "match_1_percent": 100 * float(np.mean(1 - (1 - p_written) ** DRAWS)),
        "prefix": float((1 - (1 - paths) ** DRAWS).sum(1).mean()),
        "different": float((1 - (1 - q) ** DRAWS).sum(1).mean()),
        "surprise": float(surprise.mean()),
        "kept_mass": float(torch.where(kept, (logits / temperature).softmax(1), 0).sum(1).mean()),
        "entropy": float(torch.special.entr(q).sum(1).mean()),
        "kept": float(kept.sum(1).double().median()),
    }


def row(figures: list[dict[str, float]], peers: list[dict[str, float]] | None = None) -> ReportRow:
    """Returns the columns of one rule from the figures of each text, and their differences to those of PEER.

    The interval of the perplexity is from perplexity / perplexity_times to perplexity · perplexity_times; `kept` is a
    median.
    """
    columns: ReportRow = {"texts": len(figures)}
    for name in figures[0]:
        values = [each[name] for each in figures]
        if name == "surprise":
            columns |= {"perplexity": math.exp(fmean(values)), "perplexity_times": math.exp(half_interval(values))}
        elif name == "kept":
            low, high = median_interval(values)
            columns |= {"kept": median(values), "kept_low": low, "kept_high": high}
        else:
            columns |= {name: fmean(values), f"{name}_ci": half_interval(values)}
    if peers is not None:
        decided = []
        for name in COMPARED:
            apart = [ours[name] - theirs[name] for ours, theirs in zip(figures, peers, strict=True)]
            difference, ci = fmean(apart), half_interval(apart)
            columns |= {f"{name}_difference": difference, f"{name}_difference_ci": ci}
            if abs(difference) > ci:
                decided.append(f"{name.removesuffix('_1_percent')} {'more' if difference > 0 else 'less'}")
        columns[f"to {PEER}"] = ", ".join(decided) or UNDECIDED
    return columns


def _matched(
    autocomplete: Autocomplete, logits: Tensor, t: float, by: Strength, progress: Progress
) -> Iterator[tuple[str, Setting]]:
    """Yields each rule with the parameter at which it is as strong as Top-nσ on all logits (n, V)."""
    progress(f"T = {t:g}: the parameters with equal {by}")
    target = math.nan
    for rule in solved(Temperature(t)(None, logits), t, by, autocomplete.geometries):
        if rule.rule == PEER:
            target = rule.strength
        reached = "yes" if abs(rule.strength - target) <= REACHED else "no"
        about: ReportRow = {"parameter": rule.control, "value": rule.value, "as strong": reached}
        yield rule.rule, (rule.rule, rule.values, about)


def plots(report: Report) -> str:
    """Draws the table as curves over T, one chart per figure, as SVG."""
    figures = {
        "prefix": "tokens in common with the writer, best of 3 drafts",
        "match_1_percent": "one of 3 drafts begins with the writer's token, %",
        "different": "different first tokens of 3 drafts",
        "self_bleu": "self-BLEU-2 of the 3 drafts",
        "perplexity": "perplexity of the sampled tokens",
        "kept": "tokens kept, median",
    }
    return page(
        [
            lines(title, "temperature", series(report.rows, "rule", "T", figure), figure in ("perplexity", "kept"))
            for figure, title in figures.items()
        ]
    )


def _settings() -> dict[str, tuple[str, dict[str, Value]]]:
    """Returns Top-nσ, with which all are compared, alone and with DRY as in its appendix E; every other rule with its
    defaults; and Top-W's presets."""
    by_name: dict[str, tuple[str, dict[str, Value]]] = {PEER: (PEER, {})}
    by_name |= {n: (n, {}) for n in CATALOG if n not in (PEER, "greedy", "top-w")}
    by_name[f"{PEER}, dry"] = (f"{PEER}+dry", {})
    by_name["top-k"] = ("top-k", {"top_k": 20})
    by_name["top-w (the paper's)"] = ("top-w", dict(next(p for p in PRESETS if p.name == "Top-W, the paper's").values))
    by_name["top-w (ours)"] = ("top-w", {})
    return by_name


def _drafts(
    autocomplete: Autocomplete, sequence: Sequence, before: list[int], rule: Rule, seed: int
) -> list[list[int]]:
    """Samples three drafts."""
    options = {"k": DRAWS, "length": LENGTH, "rule": rule, "seed": seed, "stop_ids": NEVER, "sequence": sequence}
    *_, drafts = draft(autocomplete.model, before, "sampled", **options)
    return drafts.ids


def _variety(groups: list[list[list[int]]]) -> ReportRow:
    """Returns means over the places whose drafts were drawn."""
    columns: ReportRow = {}
    for name, figure in (("self_bleu", self_bleu), ("distinct_2", distinct_2)):
        values = [figure(group) for group in groups]
        columns |= {name: fmean(values), f"{name}_ci": half_interval(values)}
    return columns


def distinct_2(drafts: list[list[int]]) -> float:
    """Returns the share of different pairs of neighbouring tokens among those of some drafts."""
    pairs = [pair for ids in drafts for pair in pairwise(ids)]
    return len(set(pairs)) / max(len(pairs), 1)


def self_bleu(drafts: list[list[int]]) -> float:
    """Returns the mean BLEU-2 of each draft against the others, from 0 (nothing in common) to 1 (all equal)."""
    scores = []
    for n, ids in enumerate(drafts):
        others = drafts[:n] + drafts[n + 1 :]
        shares = []
        for order in (1, 2):
            own = _grams(ids, order)
            most: Counter[tuple[int, ...]] = Counter()
            for other in others:
                most |= _grams(other, order)
            shares.append(sum((own & most).values()) / max(sum(own.values()), 1))
        scores.append(math.sqrt(shares[0] * shares[1]))
    return float(np.mean(scores)) if scores else 0.0


def _grams(ids: list[int], order: int) -> Counter[tuple[int, ...]]:
    return Counter(tuple(ids[i : i + order]) for i in range(len(ids) - order + 1))
