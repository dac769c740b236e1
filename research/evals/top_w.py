"""`eval top-w`: at which real positions distances change the tokens that Top-W keeps, and whether that improves the
match.

All figures are computed from distributions, without sampling: with a rule that keeps q, 3 samples contain the writer's
token y with probability 1 - (1 - q(y))³, and Σ 1 - (1 - q(i))³ different tokens on average. Each setting is compared
with the same setting without distances, and with a mass cut (top-p) with the same number of different tokens: a rule
that keeps more tokens always matches more, so rules are comparable only at equal variety. `to_none` is the difference
of the gain over a mass cut to that without distances, `to_none_ci` half of its 95 % confidence interval over places.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import product
from statistics import fmean
from typing import Annotated, Literal

import numpy as np
import torch
import typer
from torch import Tensor

from core.autocomplete import load_autocomplete
from core.samplers import Geometry, Temperature, TopW
from core.samplers.top_w import Potential
from research import texts as text
from research.options import BackendOptions, Temperatures, TextOptions, amount, numbers
from research.positions import positions
from research.report import Progress, Report, ReportRow, one_thread
from research.scores import half_interval

DRAWS = 3
TEMPERATURES = (1.0, 2.0)
METRICS: tuple[Literal["l2", "cosine"], ...] = ("l2", "cosine")
WARM = (0.1, 0.3, 0.5, 0.7, 0.9, 0.999)
# λ and β: the paper's, those from which our default was chosen (research/docs/samplers.md), and settings that keep
# more tokens
WEIGHTS = (
    (2.2, 2.8),
    *((2.2, beta) for beta in (3.2, 3.6, 4.0, 4.5, 5.0)),
    (1.0, 2.8),
    (0.5, 2.8),
    (0.5, 1.5),
)
POTENTIALS: tuple[Potential, ...] = ("attractive", "repulsive")
SCALES = (0.3, 1.0, 2.0)
_P = np.concatenate([[0.0], np.geomspace(0.02, 1, 40)])  # of the mass cuts for comparison


@dataclass(frozen=True)
class TopWOptions(BackendOptions, TextOptions):
    repetitions: Annotated[int, amount("Places.")] = 240
    temperatures: Temperatures = None
    metric: Annotated[Literal["l2", "cosine"] | None, typer.Option(help="Only this metric.", metavar="l2|cosine")] = (
        None
    )
    warm_starts: Annotated[
        str | None, typer.Option(help="Only these warm starts, with commas.", metavar="SHARE,SHARE,…")
    ] = None


def measure(options: TopWOptions, progress: Progress) -> Report:
    temperatures = numbers("temperatures", options.temperatures, 0.05, 10) or TEMPERATURES
    warm_starts = numbers("warm_starts", options.warm_starts, 0, 1) or WARM
    autocomplete = load_autocomplete(options.model, options.backend, None)
    files = text.load(options.text)
    logits, chosen = positions(autocomplete.model, files, options.repetitions)
    report = Report("top-w")
    with one_thread():
        for t in temperatures:
            tempered = Temperature(t)(None, logits)
            cuts = mass_cuts(tempered, chosen)
            for metric in METRICS if options.metric is None else (options.metric,):
                for warm in warm_starts:
                    progress(f"T = {t:g}, {metric}, warm start {warm:g}")
                    geometry = autocomplete.geometries[metric]
                    report.rows += _settings(tempered, chosen, cuts, geometry, t, warm)
    return report


def _settings(
    logits: Tensor, chosen: Tensor, cuts: np.ndarray, geometry: Geometry, t: float, warm: float
) -> list[ReportRow]:
    rows: list[ReportRow] = []
    for lam, beta in WEIGHTS:
        plain: np.ndarray | None = None
        for potential, scale in product(POTENTIALS, SCALES):
            rule = TopW(
                geometry,
                lam,
                beta,
                warm_start=warm,
                geom_scale=scale,
                metric=geometry.metric,
                potential=potential,
            )
            chosen_sets = [rule.select(row) for row in logits]
            with_ = match_and_variety(logits, [s.ids for s in chosen_sets], chosen)
            if plain is None:
                plain = gains(match_and_variety(logits, [s.without_geometry for s in chosen_sets], chosen), cuts)
            gained = gains(with_, cuts)
            rows.append(
                {
                    "T": t,
                    "metric": geometry.metric,
                    "warm_start": warm,
                    "lam": lam,
                    "beta": beta,
                    "potential": potential,
                    "distance": scale,
                    "geometry_mattered_percent": 100 * float(np.mean([s.geometry_mattered for s in chosen_sets])),
                    "kept": float(np.median([len(s.ids) for s in chosen_sets])),
                    "match_percent": float(with_[:, 1].mean()),
                    "different": float(with_[:, 0].mean()),
                    "gain_over_mass_cut": fmean(gained),
                    "gain_without_distances": fmean(plain),
                    "to_none": fmean(gained - plain),
                    "to_none_ci": half_interval([*(gained - plain)]),
                }
            )
    return rows


def match_and_variety(logits: Tensor, kept: list[list[int]], chosen: Tensor) -> np.ndarray:
    """Returns for each place (n, 2) the expected number of different tokens among 3 samples, and the probability in
    percent that one of them is the writer's."""
    found = []
    for row, ids, y in zip(logits, kept, chosen.tolist(), strict=True):
        q = row[torch.tensor(ids)].double().softmax(0)
        shown = 1 - (1 - q) ** DRAWS
        found.append((float(shown.sum()), 100 * float(shown[ids.index(y)]) if y in ids else 0.0))
    return np.array(found)


def mass_cuts(logits: Tensor, chosen: Tensor) -> np.ndarray:
    """Returns the same of top-p at each place, for p from 0 to 1 (n, cuts, 2), by increasing variety in the mean."""
    points = np.zeros((len(logits), len(_P), 2))
    for of_place, row, y in zip(points, logits, chosen.tolist(), strict=True):
        p = row.double().softmax(0)
        ordered, ids = p.topk(min(len(p), 20_000))
        mass = ordered.cumsum(0)
        sizes = (torch.searchsorted(mass, torch.from_numpy(_P)) + 1).clamp(max=len(mass))
        where = (ids == y).nonzero().flatten()
        at = int(where[0]) if len(where) else len(mass)
        for n, size in enumerate(sizes.tolist()):
            shown = 1 - (1 - ordered[:size] / mass[size - 1]) ** DRAWS
            of_place[n] = float(shown.sum()), 100 * float(shown[at]) if at < size else 0.0
    return points[:, np.argsort(points[:, :, 0].mean(0), kind="stable")]


def gains(result: np.ndarray, cuts: np.ndarray) -> np.ndarray:
    """Returns what each place (n,) contributes to the gain, which is their mean: how much greater the match is than
    that of a mass cut with as many different tokens in the mean.

    That cut lies between two of `mass_cuts`. Where a place has more different tokens than it, the match counts that
    much less as the match of cuts grows with their variety: so the places' variety is part of an interval.
    """
    different, match = result.T
    x, y = cuts.mean(0).T
    after = int(np.searchsorted(x, different.mean()).clip(1, len(x) - 1))
    low, high = cuts[:, after - 1], cuts[:, after]
    width = x[after] - x[after - 1]
    share = float(np.clip((different.mean() - x[after - 1]) / width, 0, 1)) if width else 0.0
    cut = low + share * (high - low)
    slope = (y[after] - y[after - 1]) / width if 0 < share < 1 else 0.0
    return match - cut[:, 1] - slope * (different - cut[:, 0])
