"""`eval top-w-objective`: how far the sets that Top-W keeps are from the least value of its objective, by potential.

F(S) = W1(p, q_S) + λ·H(q_S) - β·log Γ_S (eq. 5) is computed exactly, with W1 as the cost of the cheapest transport
(`research.transport`). p is the distribution of the next token after places of a text, on a pool of the most probable
candidates. `gap` is F of the kept set minus the least F that was found: among the sets of all potentials and the
prefixes by probability, and from the best of these on by adding or removing one token at a time, as long as that makes
F smaller. So a gap is at most as large as that to the minimum. `to_none` is the difference to the gap without
geometry, and `_ci` half of the 95 % confidence interval over places.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from contextlib import closing
from dataclasses import dataclass
from functools import cache
from statistics import fmean, median
from typing import Annotated

import numpy as np
import torch
import typer
from torch import Tensor

from core.autocomplete import load_autocomplete
from core.controls import CATALOG, PRESETS
from core.options import Value
from core.samplers import Geometry, TopK, TopW
from core.samplers.catalog import cuts
from research.options import BackendOptions, TextOptions, amount
from research.report import Progress, Report, ReportRow, one_thread
from research.scores import half_interval
from research.texts import load, prefixes
from research.transport import transport

_PAPERS = next(preset for preset in PRESETS if preset.name == "Top-W, the paper's")
SETTINGS: dict[str, Mapping[str, Value]] = {
    "ours": {},
    "the paper's": dict(_PAPERS.values),
    "λ = 0.5, β = 1.5": {"lam": 0.5, "beta": 1.5},
}
POTENTIALS = CATALOG["top-w"].control("potential").choices
EQUAL = 1e-9  # a gap that rounding makes


@dataclass(frozen=True)
class TopWObjectiveOptions(BackendOptions, TextOptions):
    repetitions: Annotated[int, amount("Places.")] = 32
    pool: Annotated[int, typer.Option(min=2, max=200, help="Most probable candidates.")] = 48


def measure(options: TopWObjectiveOptions, progress: Progress) -> Report:
    autocomplete = load_autocomplete(options.model, options.backend, None)
    model, report = autocomplete.model, Report("eval top-w-objective")
    with closing(model.open()) as sequence:
        logits = [sequence.sync(ids) for ids in prefixes(model.tokenizer, load(options.text), options.repetitions)]
    gaps: dict[tuple[str, str], list[float]] = {}
    sizes: dict[tuple[str, str], list[int]] = {}
    with one_thread():
        for n, row in enumerate(logits):
            progress(f"place {n + 1} of {len(logits)}")
            for case, (gap, size) in at_place(row, options.pool, autocomplete.geometries).items():
                gaps.setdefault(case, []).append(gap)
                sizes.setdefault(case, []).append(size)
    for (setting, potential), of_set in gaps.items():
        columns: ReportRow = {"setting": setting, "potential": potential, "places": len(of_set)}
        columns |= {"kept": median(sizes[setting, potential]), "gap": fmean(of_set), "gap_ci": half_interval(of_set)}
        columns["least_percent"] = 100 * fmean(gap < EQUAL for gap in of_set)
        if potential != "none":
            apart = [ours - theirs for ours, theirs in zip(of_set, gaps[setting, "none"], strict=True)]
            columns |= {"to_none": fmean(apart), "to_none_ci": half_interval(apart)}
        report.rows.append(columns)
    model.close()
    return report


def at_place(logits: Tensor, pool: int, geometries: Mapping[str, Geometry]) -> dict[tuple[str, str], tuple[float, int]]:
    """Returns the gap and the number of kept tokens by setting and potential, at one place with logits (V,)."""
    row = TopK(pool)(None, logits[None])[0].double()
    ids = row.topk(min(pool, int(row.isfinite().sum()))).indices
    candidates = pool_of(row[ids], ids, geometries["l2"])
    found: dict[tuple[str, str], tuple[float, int]] = {}
    for setting, values in SETTINGS.items():
        lam, beta = (float(values.get(name, CATALOG["top-w"].control(name).default)) for name in ("lam", "beta"))
        objective = Objective(candidates, lam, beta)
        kept: dict[str, frozenset[int]] = {}
        for potential in POTENTIALS:
            (rule,) = cuts("top-w", {**values, "potential": potential}, embeddings=geometries)
            assert isinstance(rule, TopW)
            chosen = torch.isin(ids, torch.tensor(rule.select(row).ids))
            kept[potential] = frozenset(chosen.nonzero().flatten().tolist())
        least = objective.least(kept.values())
        found |= {(setting, potential): (objective.value(S) - least, len(S)) for potential, S in kept.items()}
    return found


class Pool:
    """Candidates, most probable first.

    Attributes:
        p: (m,) probabilities, of sum 1.
        d: (m, m) distances.
    """

    def __init__(self, p: np.ndarray, d: np.ndarray) -> None:
        self.p, self.d = p, d
        self.w1 = cache(self._w1)

    def cropped(self, S: Iterable[int]) -> np.ndarray:
        """q_S (m,)."""
        q = np.zeros_like(self.p)
        q[[*S]] = self.p[[*S]]
        return q / q.sum()

    def _w1(self, S: frozenset[int]) -> float:
        """W1(p, q_S)."""
        return transport(self.p, self.cropped(S), self.d).cost


def pool_of(logits: Tensor, ids: Tensor, geometry: Geometry) -> Pool:
    """The tokens `ids` (m,) with their logits (m,), descending."""
    u = geometry.vectors(ids)
    d = geometry.distances(u, u).double().numpy()
    np.fill_diagonal(d, 0)
    return Pool(logits.softmax(0).numpy(), (d + d.T) / 2)


class Objective:
    """F(S) over nonempty sets S of positions in a pool (eq. 5)."""

    def __init__(self, pool: Pool, lam: float, beta: float) -> None:
        self.pool, self.lam, self.beta = pool, lam, beta

    def value(self, S: frozenset[int]) -> float:
        """F(S)."""
        return self.pool.w1(S) + self._without_transport(S)

    def bound(self, S: frozenset[int]) -> float:
        """A lower bound on F(S), with that of the repulsive potential on W1: Σ p_i·dist(i, S)."""
        return float(self.pool.p @ self.pool.d[:, [*S]].min(1)) + self._without_transport(S)

    def least(self, sets: Iterable[frozenset[int]]) -> float:
        """The least F found among sets and prefixes, and from there by changes of one token."""
        size = len(self.pool.p)
        S = min(sets, key=self.value)
        S = self._better(S, [frozenset(range(k)) for k in range(1, size + 1)]) or S
        while better := self._better(S, [S ^ {i} for i in range(size) if {i} != S]):
            S = better
        return self.value(S)

    def _better(self, S: frozenset[int], others: Iterable[frozenset[int]]) -> frozenset[int] | None:
        """The set of least F among others, if that is less than F(S). Sets whose bound excludes them cost no W1."""
        least, found = self.value(S), None
        for bound, other in sorted(((self.bound(other), other) for other in others), key=lambda pair: pair[0]):
            if bound >= least:
                break
            if self.value(other) < least:
                least, found = self.value(other), other
        return found

    def _without_transport(self, S: frozenset[int]) -> float:
        p = self.pool.p[[*S]]
        q = p / p.sum()
        return float(-self.lam * (q * np.log(q)).sum() - self.beta * np.log(p.sum()))
