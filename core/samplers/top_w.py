"""Top-W: keeps tokens by distance, probability and total mass (Gholami Davoodi et al., arXiv 2602.10346).

The objective is W1(p, q_S) + λ·H(q_S) - β·log Γ_S over kept sets S (eq. 5). W1 is replaced by Σ p_i·f_i - Σ q_i·f_i
with a potential f, which is at most W1 (eq. 20). The kept set is that of the alternation

    f-step   f_i = -dist(i, S), minus the distance of token i to the kept tokens ("attractive", eq. 16);
             +dist(i, S) ("repulsive", section 4.1); or 0 ("none")
    S-step   φ_i = f_i + λ·log p_i; S = the prefix in the order of φ that maximises Φ_k/Γ_k + (β - λ)·log Γ_k
             (theorem 3.4; for β ≤ λ the single token that maximises f_i + β·log p_i)

until S does not change. At the S of the f-step Σ q_i·f_i is 0. So the bound that "attractive" gives, the paper's and
its code's, is at most 0 there and says nothing of W1; that of "repulsive" is the mean distance of a token to S.

Of the pool, only the part is read that the candidate-pool theorem (I.1) requires.

Shapes: B rows, V vocabulary, m candidate pool, D width.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from numbers import Integral
from typing import Literal

import numpy as np
import torch
from torch import Tensor

from core.errors import InputError
from core.samplers.base import DROPPED, PerRow, Rule, column, in_range, without_nan
from core.samplers.geometry import Geometry, Metric

FLOOR = 1e-12  # lower bound of p inside the logarithm, as in the authors' code
Potential = Literal["attractive", "none", "repulsive"]
_SIGNS: dict[Potential, float] = {"attractive": -1.0, "none": 0.0, "repulsive": 1.0}
_FIRST_LOOK = 64  # candidates that are tried first, then four times as many, …
_SURE = 1e-9  # tolerance of the comparison with a bound, in units of the score


@dataclass(frozen=True)
class Selection:
    """Top-W's choice on one row.

    Attributes:
        ids: the kept tokens, most probable first.
        rounds: S-steps taken; the last one changed nothing, unless alternations ran out.
        without_geometry: the ids kept with f = 0.
        geometry_mattered: whether the two differ.
    """

    ids: list[int]
    rounds: int
    without_geometry: list[int]

    @property
    def geometry_mattered(self) -> bool:
        return set(self.ids) != set(self.without_geometry)


@dataclass(frozen=True)
class _Weights:
    """The parameters of one row, in the paper's letters; f_i = `factor`·dist(i, S)."""

    lam: float
    beta: float
    warm: float
    factor: float
    t: float


class TopW(Rule):
    """The rule. Its defaults are the paper's λ, β and pool with the authors' warm start."""

    title = "Top-W"
    on_cpu = True

    def __init__(
        self,
        embeddings: Tensor | Geometry | None = None,
        lam: PerRow = 2.2,
        beta: PerRow = 2.8,
        top_m: int = 1200,
        warm_start: PerRow = 0.999,
        alternations: int = 9,
        geom_scale: PerRow | None = None,
        selection_temperature: PerRow = 1.0,
        metric: Metric = "l2",
        neighbours: int = 1,
        potential: Potential = "attractive",
    ) -> None:
        """
        Args:
            embeddings: the model's input embeddings (V, D), or a `Geometry` to share; not for metric "uniform".
            lam: λ ≥ 0, the cost of entropy.
            beta: β ≥ 0, the value of mass. At β ≤ λ a single token is kept: the most probable one, unless the potential
                is "repulsive".
            top_m: the size of the candidate pool, the most probable tokens.
            warm_start: the first S is the shortest run of most probable tokens with this share of the pool's mass.
            alternations: maximum rounds of f- and S-step.
            geom_scale: multiplies distances. None is 1, and 0.6 for metric "cosine", as in the authors' code.
            selection_temperature: T of the distribution for the choice; the returned logits have no temperature.
            metric: "l2" (the paper), "whitened" (its appendix A), "cosine" (the authors' code) or "uniform"; see
                `Geometry`.
            neighbours: dist(i, S) is the mean distance to this many nearest tokens of S: 1 is the nearest-set
                potential, more the k-NN potential.
            potential: "attractive" (the paper and its code) prefers tokens near S, "repulsive" tokens far from it;
                "none" ignores distances.
            λ, β, warm_start, geom_scale and selection_temperature also take one value per row.
        Raises: InputError.
        """
        if isinstance(embeddings, Geometry):
            if embeddings.metric != metric:
                raise InputError(f"A geometry of metric {embeddings.metric!r} given for metric {metric!r}.")
            self.geometry = embeddings
        else:
            self.geometry = Geometry(embeddings, metric)
        self.lam = in_range("lam", lam, 0, float("inf"))
        self.beta = in_range("beta", beta, 0, float("inf"))
        self.warm_start = in_range("warm_start", warm_start, 0, 1)
        self.geom_scale = in_range(
            "geom_scale", (0.6 if metric == "cosine" else 1.0) if geom_scale is None else geom_scale, 0, float("inf")
        )
        self.selection_temperature = in_range(
            "selection_temperature", selection_temperature, 0, float("inf"), open_low=True
        )
        for name, value in (("top_m", top_m), ("alternations", alternations), ("neighbours", neighbours)):
            if not isinstance(value, Integral) or value < 1:
                raise InputError(f"{name} {value!r:.80} given; at least 1 expected, a whole number.")
        self.top_m, self.alternations, self.neighbours = top_m, alternations, neighbours
        if potential not in tuple(_SIGNS):
            raise InputError(f"potential {potential!r:.80} given; one of {', '.join(_SIGNS)} expected.")
        self.potential: Potential = potential

    def crop(self, x: Tensor, best: Tensor, input_ids: Tensor | None) -> Tensor:
        out = torch.full_like(x, DROPPED)
        for row, kept, weights in zip(x, out, self._weights(x), strict=True):
            ids, _ = self._choice(row, weights)
            kept[ids] = row[ids]
        return out

    def select(self, logits: Tensor) -> Selection:
        """The choice on one row (V,), and the effect of the geometry. Unusual rows: as in the call.

        Raises: InputError for another shape.
        """
        if logits.ndim != 1 or not len(logits):
            raise InputError(f"Logits of shape {tuple(logits.shape)} given; one row (V,) expected.")
        x, _ = without_nan(logits[None].cpu().float())
        weights = self._weights(x)[0]
        ids, rounds = self._choice(x[0], weights)
        plain, _ = self._choice(x[0], replace(weights, factor=0.0))
        return Selection(ids.tolist(), rounds, plain.tolist())

    def _weights(self, x: Tensor) -> list[_Weights]:
        """The parameters of each row."""
        names = (self.lam, self.beta, self.warm_start, self.geom_scale, self.selection_temperature)
        columns = [column(v, x, torch.float64).expand(len(x), 1).flatten().tolist() for v in names]
        sign = _SIGNS[self.potential]
        return [_Weights(lam, beta, warm, sign * scale, t) for lam, beta, warm, scale, t in zip(*columns, strict=True)]

    def _choice(self, row: Tensor, w: _Weights) -> tuple[Tensor, int]:
        """The kept ids of one row (V,), most probable first, and the number of rounds."""
        ids, p = _pool(row, self.top_m, w.t)  # (m,) most probable first; p sums to 1 over the vocabulary
        if w.beta <= w.lam and (w.factor == 0 or (w.factor < 0 and self.neighbours == 1)):
            # Eq. 13: the most probable token is in the first S, so no token is nearer to S or more probable.
            return ids[:1], 1 if w.warm * p.sum() <= p[0] else min(2, self.alternations)
        mass = np.cumsum(p)
        in_S = (mass - p) < w.warm * mass[-1]  # (m,)
        in_S[0] = True
        logp = np.log(np.maximum(p, FLOOR))
        near = _Nearest(self.geometry, ids, self.neighbours) if w.factor else None
        rounds = 0
        while rounds < self.alternations:
            rounds += 1
            chosen = _s_step(p, logp, w, near, in_S)
            same = len(chosen) == int(in_S.sum()) and bool(in_S[chosen].all())
            in_S = np.zeros(len(p), dtype=bool)
            in_S[chosen] = True
            if same:
                break
        return ids[torch.from_numpy(np.flatnonzero(in_S))], rounds


def _s_step(p: np.ndarray, logp: np.ndarray, w: _Weights, near: _Nearest | None, in_S: np.ndarray) -> np.ndarray:
    """Positions in the pool of the next S, from the f of the current one.

    For β > λ it considers the L most probable candidates first. All others have φ ≤ t = λ·log p_{L+1} + max f, where
    max f is 0, or for a repulsive f the largest distance. So the candidates with φ ≥ t are the beginning of the whole
    pool's order (theorem I.1), and any extension of the k of them, up to the mass G of the whole pool, scores at most
    t + (Φ_k - t·Γ_k)/G + (β - λ)·log G or the score of S_k itself (the paper's step 2 in appendix C). If a shorter
    prefix exceeds that, the other candidates do not matter. Where distances have no bound it considers the whole pool.
    """
    m, c = len(p), w.beta - w.lam
    farthest = w.factor * near.farthest if near is not None and w.factor > 0 else 0.0  # max f
    f = np.zeros(m)
    known = 0
    look = _FIRST_LOOK if c > 0 and np.isfinite(farthest) else m
    while True:
        look = min(look, m)
        if near is not None:
            f[known:look] = w.factor * near.distances(np.arange(known, look), in_S)
            known = look
        if c <= 0:
            return np.array([(f + w.beta * logp).argmax()])  # eq. 13
        phi = f[:look] + w.lam * logp[:look]
        order = np.argsort(-phi, kind="stable")
        t = w.lam * logp[look] + farthest if look < m else -np.inf
        k = int(np.searchsorted(-phi[order], -t, side="right"))
        if k:
            head = order[:k]
            gamma = np.cumsum(p[head])
            score = np.cumsum(p[head] * phi[head]) / gamma + c * np.log(gamma)  # J_k, eq. 12
            at = int(score.argmax())
            if look == m:
                return head[: at + 1]
            everything = p.sum()
            beyond = t + (score[-1] - c * np.log(gamma[-1]) - t) * gamma[-1] / everything + c * np.log(everything)
            if beyond < score[at] - _SURE:
                return head[: at + 1]
        look *= 4


class _Nearest:
    """Distances from positions in the pool to the kept set; vectors are read once, and only if needed."""

    def __init__(self, geometry: Geometry, ids: Tensor, neighbours: int) -> None:
        self._geometry, self._ids, self._neighbours = geometry, ids, neighbours
        self._vectors = torch.empty(0)
        self._have = np.zeros(len(ids), dtype=bool)
        self.farthest = geometry.farthest

    def distances(self, places: np.ndarray, in_S: np.ndarray) -> np.ndarray:
        """dist(i, S) (n,) for positions (n,): the mean over the nearest few tokens of S."""
        d = np.zeros(len(places))
        # A token of S is itself its nearest one.
        apart = np.flatnonzero(~in_S[places]) if self._neighbours == 1 else np.arange(len(places))
        if len(apart):
            d[apart] = self._to_nearest(places[apart], np.flatnonzero(in_S))
        return d

    def _to_nearest(self, places: np.ndarray, S: np.ndarray) -> np.ndarray | float:
        uniform = self._geometry.metric == "uniform"
        if self._neighbours == 1:
            return 1.0 if uniform else self._geometry.nearest(self._look_up(places), self._look_up(S)).double().numpy()
        if uniform:
            d = torch.ones(len(places), len(S))
        else:
            d = self._geometry.distances(self._look_up(places), self._look_up(S))
        d[torch.from_numpy(places[:, None] == S)] = 0.0
        return d.topk(min(self._neighbours, len(S)), largest=False).values.double().mean(1).numpy()

    def _look_up(self, places: np.ndarray) -> Tensor:
        if not len(self._vectors):
            self._vectors = torch.empty(len(self._ids), self._geometry.embeddings.shape[1])
        new = places[~self._have[places]]
        if len(new):
            at = torch.from_numpy(new)
            self._vectors[at] = self._geometry.vectors(self._ids[at]).cpu()
            self._have[new] = True
        return self._vectors[torch.from_numpy(places)]


def _pool(row: Tensor, m: int, t: float) -> tuple[Tensor, np.ndarray]:
    """The m most probable tokens of a row (V,) with p > 0, in order, and their probabilities p at temperature t."""
    x = row.numpy()
    if m < len(x):
        least = np.partition(x, len(x) - m)[len(x) - m]
        ids = np.flatnonzero(x >= least)
    else:
        ids = np.flatnonzero(x > DROPPED)
    ids = ids[np.argsort(-x[ids], kind="stable")[:m]]
    ids = ids[x[ids] > DROPPED]
    best = x[ids[0]]
    z = np.exp((x - best) / x.dtype.type(t)).sum(dtype=np.float64)
    p = np.exp((x[ids].astype(np.float64) - best) / t) / z
    return torch.from_numpy(ids[p > 0]), p[p > 0]
