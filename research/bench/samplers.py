"""`bench samplers`: the time of a rule per call, beside Hugging Face's own rule of the same kind in the same round.

Logits are the default model's for its own vocabulary, and N(0, 2.5²) for the others. Top-W runs on real next-token
distributions, beside a NumPy version of the authors' method over a table that was whitened before. torch uses one
thread. A row's time is the minimum of three, to exclude other load on the machine.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass
from statistics import median
from timeit import repeat
from typing import Annotated

import numpy as np
import torch
import typer
from torch import Tensor

from core.autocomplete import Autocomplete, load_autocomplete
from core.controls import PRESETS
from core.models import LanguageModel
from core.samplers import Eta, Geometry, Greedy, MinP, Mirostat, Rule, Temperature, TopH, TopK, TopNSigma, TopP, Typical
from core.samplers.catalog import sampler
from core.samplers.view import look, sweep, top_w_map
from research import texts as text
from research.options import BackendOptions, TextOptions
from research.report import Progress, Report, ReportRow, interleaved, number_in, one_thread

VOCABULARIES = (32_000, 49_152, 128_256)
BATCHES = (1, 8)
ROUNDS = 7
PREFIX = 32


@dataclass(frozen=True)
class SamplersBenchOptions(BackendOptions, TextOptions):
    repetitions: Annotated[
        int, typer.Option(min=1, help="Places whose real distributions Top-W and the views are timed on.")
    ] = 60


def measure(options: SamplersBenchOptions, progress: Progress) -> Report:
    autocomplete = load_autocomplete(options.model, options.backend, None)
    model = autocomplete.model
    prefixes = text.prefixes(model.tokenizer, text.load(options.text), options.repetitions, PREFIX)
    real = torch.stack([_after(model, prefix) for prefix in prefixes])  # (n, V)
    report = Report("samplers")
    with one_thread():
        for vocabulary in VOCABULARIES:
            for batch in BATCHES:
                progress(f"V = {vocabulary}, batch {batch}")
                _rules(report, real, vocabulary, batch)
        progress("Top-W")
        _top_w(report, real, autocomplete.geometries)
        progress("views")
        _views(report, real, autocomplete)
    return report


def _after(model: LanguageModel, prefix: list[int]) -> Tensor:
    with closing(model.open()) as sequence:
        return sequence.feed(prefix)


def _rules(report: Report, real: Tensor, vocabulary: int, batch: int) -> None:
    rng = torch.Generator().manual_seed(vocabulary)
    logits = torch.randn(batch, vocabulary, generator=rng) * 2.5
    if real.shape[1] == vocabulary:
        logits = real[:batch]
    ids = torch.zeros(batch, 1, dtype=torch.int64)
    runs: dict[str, Callable[[], object]] = {}
    for ours, theirs in _pairs():
        runs[ours.title] = lambda ours=ours: ours(ids, logits)
        if theirs is not None:
            runs[ours.title + " theirs"] = lambda theirs=theirs: theirs(ids, logits)
    timings = interleaved(runs, ROUNDS)
    for ours, theirs in _pairs():
        name = ours.title
        row: ReportRow = {"V": vocabulary, "batch": batch, "rule": name, "ms": timings.median(name) * 1000}
        if theirs is not None:
            row["peer"] = "the paper's listing" if theirs is listed_top_n_sigma else type(theirs).__name__
            row["peer_ms"] = timings.median(name + " theirs") * 1000
            row["times_faster"] = timings.ratio(name + " theirs", name)
        report.rows.append(row)
        if name == "top-p" and vocabulary == VOCABULARIES[-1]:
            faster = number_in(row, "times_faster")
            report.target(f"top-p, V = {vocabulary}, batch {batch}, times faster", faster, ">= 3")


def _pairs() -> list[tuple[Rule, Callable[..., Tensor] | None]]:
    from transformers.generation import logits_process as hf

    return [
        (Temperature(1.5), hf.TemperatureLogitsWarper(1.5)),
        (TopK(50), hf.TopKLogitsWarper(50)),
        (TopP(0.9), hf.TopPLogitsWarper(0.9)),
        (MinP(0.1), hf.MinPLogitsWarper(0.1)),
        (Typical(0.9), hf.TypicalLogitsWarper(0.9)),
        (Eta(9e-4), hf.EtaLogitsWarper(9e-4)),
        (TopH(0.4), hf.TopHLogitsWarper(0.4)),
        (TopNSigma(1.0), listed_top_n_sigma),
        (Mirostat(), None),
        (Greedy(), None),
    ]


def listed_top_n_sigma(input_ids: Tensor, logits: Tensor, n: float = 1.0) -> Tensor:
    """The paper's code 1."""
    top, deviation = logits.max(dim=-1, keepdim=True).values, logits.std(dim=-1, keepdim=True)
    return logits.masked_fill(logits < top - n * deviation, -torch.inf)


def _top_w(report: Report, real: Tensor, geometries: dict[str, Geometry]) -> None:
    white = (
        geometries["cosine"].vectors(torch.arange(real.shape[1])).numpy()
    )  # (V, D), in the form of the authors' code
    for preset in (p for p in PRESETS if p.rule == "top-w"):
        rule = sampler("top-w", preset.values, 1.0, geometries)
        ours = [_least(lambda rule=rule, row=row: rule(None, row), 3) * 1000 for row in real.split(1)]
        row: ReportRow = {"V": real.shape[1], "batch": 1, "rule": preset.name, "ms": median(ours)}
        row["most_ms"] = max(ours)
        kept = [int((rule(None, scored_row) > -torch.inf).sum()) for scored_row in real.split(1)]
        row["kept"] = median(kept)
        if preset.name == "Top-W, the authors' code":
            scores = real.numpy()
            theirs = [
                _least(lambda scored_row=scored_row: plain_top_w(scored_row, white), 1) * 1000 for scored_row in scores
            ]
            row["peer"], row["peer_ms"] = "the same in plain NumPy", median(theirs)
            row["times_faster"] = faster = median(b / a for a, b in zip(ours, theirs, strict=True))
            report.target("Top-W (cosine), times faster than plain NumPy, median", faster, ">= 10")
        report.rows.append(row)
        report.target(f"{preset.name}: median, ms", number_in(row, "ms"), "<= 1.5")
        report.target(f"{preset.name}: slowest position, ms", number_in(row, "most_ms"), "<= 8")


def _views(report: Report, real: Tensor, autocomplete: Autocomplete) -> None:
    """Measures the computation for the charts after one slider move: all rules on cached logits."""
    tokenizer, geometries = autocomplete.model.tokenizer, autocomplete.geometries
    calls: dict[str, Callable[[Tensor], object]] = {
        "view of all rules": lambda row: look(row, tokenizer, 1.5, None, geometries),
        "sweep of all rules, 9 temperatures": lambda row: sweep(row, None, geometries),
        "map of Top-W": lambda row: top_w_map(row, tokenizer, 1.5, None, geometries),
    }
    for name, run in calls.items():
        taken = [_least(lambda run=run, row=row: run(row), 2) * 1000 for row in real[:12]]
        report.rows.append({"V": real.shape[1], "batch": 1, "rule": name, "ms": median(taken), "most_ms": max(taken)})
        if name == "view of all rules":
            report.target(f"{name}, slowest position, ms", max(taken), "<= 50")


def _least(run: Callable[[], object], times: int) -> float:
    """Returns the seconds of the quickest run."""
    return min(repeat(run, number=1, repeat=times))


def plain_top_w(
    logits: np.ndarray,
    white: np.ndarray,
    lam: float = 2.2,
    beta: float = 2.8,
    top_m: int = 1200,
    warm_start: float = 0.999,
    alternations: int = 9,
    geom_scale: float = 0.6,
) -> np.ndarray:
    """Top-W as in the authors' code, step by step: logits (V,), whitened unit vectors (V, D)."""
    x = logits.astype(np.float64)
    p = np.exp(x - x.max())
    p /= p.sum()
    pool = np.argsort(-p, kind="stable")[:top_m]
    q = p[pool]
    S = np.arange(len(pool)) <= np.searchsorted(np.cumsum(q), warm_start * q.sum())
    vectors = white[pool]
    for _ in range(alternations):
        d = 1 - np.clip(vectors @ vectors[S].T, -1, 1).max(1)
        phi = lam * np.log(np.maximum(q, 1e-12)) - geom_scale * d
        order = np.argsort(-phi, kind="stable")
        mass = np.maximum(np.cumsum(q[order]), 1e-12)
        score = np.cumsum(q[order] * phi[order]) / mass + (beta - lam) * np.log(mass)
        new = np.zeros(len(pool), dtype=bool)
        new[order[: int(score.argmax()) + 1]] = True
        if (new == S).all():
            break
        S = new
    out = np.full_like(logits, -np.inf)
    out[pool[S]] = logits[pool[S]]
    return out
