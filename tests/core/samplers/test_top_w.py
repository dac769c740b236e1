"""Top-W: the authors' outputs, the alternation as the paper states it, and its metrics."""

from __future__ import annotations

import json
import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from core.samplers import Geometry, TopW
from core.samplers.geometry import METRICS
from core.samplers.top_w import FLOOR, _s_step, _Weights
from tests.paths import DATA

pytestmark = pytest.mark.usefixtures("one_thread")

GOLDEN = np.load(DATA / "top_w_golden.npz", allow_pickle=False)
SETTINGS = json.loads(str(GOLDEN["settings_json"]))
INF = float("inf")


def golden_logits(row: int, vocabulary: int) -> torch.Tensor:
    """The 1,300 largest logits; all others share the remaining probability equally."""
    logits = torch.full((vocabulary,), float(GOLDEN["rest"][row]))
    logits[torch.from_numpy(GOLDEN["ids"][row].astype(np.int64))] = torch.from_numpy(GOLDEN["logits"][row])
    return logits


def golden_rule(name: str, geometry: Geometry) -> TopW:
    s = SETTINGS[name]
    return TopW(
        geometry,
        lam=s["lam_fixed"],
        beta=s["beta"],
        top_m=s["top_m"],
        warm_start=s["init_top_p"],
        alternations=s["alt_iters"],
        geom_scale=s["geom_scale"],
        selection_temperature=s["selection_temperature"],
        metric="cosine",
    )


@pytest.fixture(scope="module")
def geometry(llama_model) -> Geometry:
    return Geometry(llama_model.embeddings, "cosine")


@pytest.mark.parametrize("name", SETTINGS)
def test_the_cosine_metric_keeps_what_the_authors_code_keeps(name, geometry):
    rule = golden_rule(name, geometry)
    kept, off = GOLDEN[f"kept:{name}"], GOLDEN[f"off:{name}"]
    for row in range(len(GOLDEN["ids"])):
        logits = golden_logits(row, geometry.embeddings.shape[0])
        expected = kept[off[row] : off[row + 1]].tolist()
        if not row:
            assert torch.nonzero(rule(None, logits[None])[0] > -INF).flatten().tolist() == expected
        selection = rule.select(logits)
        assert sorted(selection.ids) == expected
        assert selection.rounds == GOLDEN[f"rounds:{name}"][row]
        assert selection.geometry_mattered == GOLDEN[f"geometry:{name}"][row]


# --- the S step -------------------------------------------------------------------------------------------


class Scripted:
    """Distances given beforehand, in place of a geometry's."""

    farthest = 2.0

    def __init__(self, d: np.ndarray) -> None:
        self.d = d

    def distances(self, places, in_S):
        return self.d[places]


@settings(max_examples=100)
@given(
    seed=st.integers(0, 10**6),
    lam=st.floats(0, 4),
    c=st.floats(0.01, 4),
    sharp=st.floats(0.2, 4),
    factor=st.sampled_from([-1.0, 0.5, 1.0]),
)
def test_the_s_step_is_the_scan_of_the_whole_pool(seed, lam, c, sharp, factor):
    """Theorem I.1: the candidates that it skips would change nothing."""
    chance = np.random.default_rng(seed)
    p = np.sort(np.exp(chance.normal(size=700) * sharp))[::-1]
    p /= p.sum()
    d = chance.uniform(0, 2, size=700)
    in_S = chance.uniform(size=700) < 0.3
    in_S[0] = True
    d[in_S] = 0
    weights = _Weights(lam, lam + c, 0.9, factor, 1.0)
    logp = np.log(np.maximum(p, FLOOR))
    chosen = _s_step(p, logp, weights, Scripted(d), in_S)
    phi = factor * d + lam * logp
    order = np.argsort(-phi, kind="stable")
    gamma = np.cumsum(p[order])
    score = np.cumsum((p * phi)[order]) / gamma + c * np.log(gamma)
    assert score[len(chosen) - 1] == pytest.approx(score.max(), abs=1e-8)
    assert sorted(chosen) == sorted(order[: len(chosen)])


@pytest.mark.parametrize("factor", [-1.0, 1.0])
def test_the_s_step_looks_at_few_candidates(factor):
    """A peaked distribution is decided by its head: distances of the tail are never computed."""
    asked = []

    class Watched(Scripted):
        def distances(self, places, in_S):
            asked.extend(places)
            return super().distances(places, in_S)

    p = np.exp(-0.2 * np.arange(1200.0))
    p /= p.sum()
    in_S = np.arange(1200) < 5
    _s_step(p, np.log(np.maximum(p, FLOOR)), _Weights(2.2, 2.8, 0.9, factor, 1), Watched(np.zeros(1200)), in_S)
    assert len(asked) < 300


# --- geometry ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("metric", ["l2", "whitened"])
def test_the_metrics_are_those_of_appendix_a(metric):
    """Eq. 17, for "l2" then unit length (eq. 1); the nearest of several is the least distance."""
    table = torch.randn(50, 8, generator=torch.Generator().manual_seed(7)) + 1
    unit = table / table.norm(dim=1, keepdim=True)
    white = (unit - unit.mean(0)) / unit.std(0, correction=0)
    if metric == "l2":
        white /= white.norm(dim=1, keepdim=True)
    geometry = Geometry(table, metric)
    u = geometry.vectors(torch.arange(50))
    assert torch.allclose(u, white, atol=1e-5)
    expected = torch.cdist(white[:20], white[20:])
    assert torch.allclose(geometry.distances(u[:20], u[20:]), expected, atol=2e-3)
    assert torch.allclose(geometry.nearest(u[:20], u[20:]), expected.amin(1), atol=2e-3)
    assert (float(expected.max()) <= 2) == (metric == "l2")


def plainly_kept(rule: TopW, logits: torch.Tensor) -> tuple[list[int], int]:
    """The alternation as the module states it, on one row (V,); and the rounds."""
    ids = torch.argsort(logits, descending=True)[: rule.top_m]
    p = logits.double().softmax(0)[ids].numpy()
    u = rule.geometry.vectors(ids) if rule.geometry.metric != "uniform" else None
    d = rule.geometry.distances(u, u).double().numpy() if u is not None else np.ones((len(p), len(p)))
    np.fill_diagonal(d, 0)
    sign = {"attractive": -1, "none": 0, "repulsive": 1}[rule.potential]
    S = [i for i in range(len(p)) if i == 0 or p[:i].sum() < rule.warm_start * p.sum()]
    rounds = 0
    while rounds < rule.alternations:
        rounds += 1
        f = sign * rule.geom_scale * np.sort(d[:, S])[:, : rule.neighbours].mean(1)
        if rule.beta <= rule.lam:
            after = [int(np.argmax(f + rule.beta * np.log(p)))]
        else:
            phi = f + rule.lam * np.log(p)
            order = np.argsort(-phi, kind="stable")
            scores = [surrogate(order[:k], p, phi, rule.beta - rule.lam) for k in range(1, len(p) + 1)]
            after = sorted(order[: int(np.argmax(scores)) + 1].tolist())
        if after == S:
            break
        S = after
    return sorted(ids[S].tolist()), rounds


def surrogate(S, p, phi, c) -> float:
    """G_f(S), eq. 9."""
    mass = p[S].sum()
    return float((p[S] * phi[S]).sum() / mass + c * np.log(mass))


@settings(max_examples=60)
@given(
    seed=st.integers(0, 10**6),
    potential=st.sampled_from(["attractive", "none", "repulsive"]),
    metric=st.sampled_from(METRICS),
    lam=st.just(0.0) | st.floats(1e-3, 3),  # smaller ones leave all sets equal but for rounding
    beta=st.just(0.0) | st.floats(1e-3, 5),
    scale=st.floats(0.05, 3),
    warm=st.floats(0, 1),
    sharp=st.floats(0.5, 5),
    neighbours=st.sampled_from([1, 1, 8]),
)
def test_every_potential_keeps_what_the_plain_alternation_keeps(
    seed, potential, metric, lam, beta, scale, warm, sharp, neighbours
):
    chance = torch.Generator().manual_seed(seed)
    table, logits = torch.randn(300, 12, generator=chance), torch.randn(300, generator=chance) * sharp
    if metric == "whitened":
        scale /= 5  # its distances are about √(2·D)
    geometry = Geometry(table, metric)
    rule = TopW(geometry, lam, beta, 120, warm, 6, scale, 1.0, metric, neighbours, potential)
    expected, rounds = plainly_kept(rule, logits)
    selection = rule.select(logits)
    assert (sorted(selection.ids), selection.rounds) == (expected, rounds)
    assert torch.nonzero(rule(None, logits[None])[0] > -INF).flatten().tolist() == expected
    none = TopW(geometry, lam, beta, 120, warm, 6, metric=metric, potential="none").select(logits)
    assert selection.without_geometry == none.ids


def test_near_tokens_are_kept_before_far_ones():
    """Two tokens of equal probability, one a neighbour of the kept one: the neighbour stays."""
    table = torch.randn(200, 16, generator=torch.Generator().manual_seed(8))
    table[1] = table[0] + 0.05 * table[3]
    logits = torch.full((1, 200), -9.0)
    logits[0, :3] = torch.tensor([2.0, 1.0, 1.0])
    rule = TopW(table, lam=1.0, beta=2.0, warm_start=0.4)
    kept = torch.nonzero(rule(None, logits)[0] > -INF).flatten().tolist()
    assert kept == [0, 1]
    assert rule.select(logits[0]).geometry_mattered


def test_tempered_choice_returns_untempered_logits():
    logits = torch.randn(2, 300, generator=torch.Generator().manual_seed(10)) * 4
    warm = TopW(metric="uniform", selection_temperature=2.0)(None, logits)
    keep = TopW(metric="uniform")(None, logits / 2) > -INF
    assert torch.equal(warm, torch.where(keep, logits, -math.inf))
