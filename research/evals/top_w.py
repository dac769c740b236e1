"""`eval top-w`: at which real positions distances change the tokens that Top-W keeps, and whether that improves the
match.

All figures are computed from distributions, without sampling: with a rule that keeps q, 3 samples contain the writer's
token y with probability 1 - (1 - q(y))³, and Σ 1 - (1 - q(i))³ different tokens on average. Each setting is compared
with the same setting without distances, and with a mass cut (top-p) with the same number of different tokens: a rule
that keeps more tokens always matches more, so rules are comparable only at equal variety.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

import numpy as np
import torch
from torch import Tensor

from core.autocomplete import load_autocomplete
from core.samplers import Geometry, Temperature, TopW
from research.options import BackendOptions, TextOptions, amount
from research.positions import positions
from research.report import Progress, Report, ReportRow, one_thread
from training import texts as text

DRAWS = 3
TEMPERATURES = (1.0, 2.0)
METRICS = ("l2", "cosine")
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
SCALES = (0.3, 1.0, 2.0)
_P = np.concatenate([[0.0], np.geomspace(0.02, 1, 40)])  # of the mass cuts for comparison


@dataclass(frozen=True)
class TopWOptions(BackendOptions, TextOptions):
    repetitions: Annotated[int, amount("Places.")] = 240


def measure(options: TopWOptions, progress: Progress) -> Report:
    autocomplete = load_autocomplete(options.model, options.backend, None)
    files = text.load(options.text)
    logits, chosen = positions(autocomplete.model, files, options.repetitions)
    report = Report("top-w")
    with one_thread():
        for t in TEMPERATURES:
            tempered = Temperature(t)(None, logits)
            cuts = mass_cuts(tempered, chosen)
            for metric in METRICS:
                for warm in WARM:
                    progress(f"T = {t:g}, {metric}, warm start {warm:g}")
                    geometry = autocomplete.geometries[metric]
                    report.rows += _settings(tempered, chosen, cuts, geometry, t, warm)
    return report


def _settings(
    logits: Tensor, chosen: Tensor, cuts: np.ndarray, geometry: Geometry, t: float, warm: float
) -> list[ReportRow]:
    rows = []
    for lam, beta in WEIGHTS:
        plain: dict[str, float] | None = None
        for scale in SCALES:
            rule = TopW(geometry, lam, beta, warm_start=warm, geom_scale=scale, metric=geometry.metric)
            chosen_sets = [rule.select(row) for row in logits]
            with_ = match_and_variety(logits, [s.ids for s in chosen_sets], chosen)
            plain = plain or match_and_variety(logits, [s.without_geometry for s in chosen_sets], chosen)
            rows.append(
                {
                    "T": t,
                    "metric": geometry.metric,
                    "warm_start": warm,
                    "lam": lam,
                    "beta": beta,
                    "distance": scale,
                    "geometry_mattered_percent": 100 * float(np.mean([s.geometry_mattered for s in chosen_sets])),
                    "kept": float(np.median([len(s.ids) for s in chosen_sets])),
                    "match_percent": with_["match"],
                    "different": with_["different"],
                    "gain_over_mass_cut": gain(with_, cuts),
                    "gain_without_distances": gain(plain, cuts),
                }
            )
    return rows


def match_and_variety(logits: Tensor, kept: list[list[int]], chosen: Tensor) -> dict[str, float]:
    """Returns the percentage of positions at which one of 3 samples is the writer's token, and the number of different
    samples."""
    match, different = [], []
    for row, ids, y in zip(logits, kept, chosen.tolist(), strict=True):
        q = row[torch.tensor(ids)].double().softmax(0)
        shown = 1 - (1 - q) ** DRAWS
        match.append(float(shown[ids.index(y)]) if y in ids else 0.0)
        different.append(float(shown.sum()))
    return {"match": 100 * float(np.mean(match)), "different": float(np.mean(different))}


def mass_cuts(logits: Tensor, chosen: Tensor) -> np.ndarray:
    """Returns (different, match) of top-p for p from 0 to 1, by increasing variety."""
    points = np.zeros((len(_P), 2))
    for row, y in zip(logits, chosen.tolist(), strict=True):
        p = row.double().softmax(0)
        ordered, ids = p.topk(min(len(p), 20_000))
        mass = ordered.cumsum(0)
        sizes = (torch.searchsorted(mass, torch.from_numpy(_P)) + 1).clamp(max=len(mass))
        where = (ids == y).nonzero().flatten()
        at = int(where[0]) if len(where) else len(mass)
        for n, size in enumerate(sizes.tolist()):
            shown = 1 - (1 - ordered[:size] / mass[size - 1]) ** DRAWS
            points[n] += (float(shown.sum()), 100 * float(shown[at]) if at < size else 0.0)
    points /= len(logits)
    return points[np.argsort(points[:, 0])]


def gain(result: dict[str, float], cuts: np.ndarray) -> float:
    """Returns how much greater the match is than that of a mass cut with as many different tokens."""
    return result["match"] - float(np.interp(result["different"], cuts[:, 0], cuts[:, 1]))
