"""Top-W: the authors' outputs, and the paper's theorems by brute force over all subsets of small vocabularies."""

from __future__ import annotations

import itertools
import json
import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from core.errors import InputError
from core.samplers import Geometry, TopH, TopK, TopW
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


# --- small vocabularies -----------------------------------------------------------------------------------


def small(draw) -> tuple[np.ndarray, np.ndarray]:
    """A distribution p (n,), largest first, and a potential f ≤ 0 (n,)."""
    n = draw(st.integers(2, 8))
    logits = draw(st.lists(st.floats(-4, 4), min_size=n, max_size=n, unique=True))
    f = -np.array(draw(st.lists(st.floats(0, 2), min_size=n, max_size=n)))
    p = np.exp(np.sort(np.round(logits, 3))[::-1] - 1e-3 * np.arange(n))  # no ties
    return p / p.sum(), f


def subsets(n: int):
    return (list(s) for size in range(1, n + 1) for s in itertools.combinations(range(n), size))


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


# --- the uniform metric -----------------------------------------------------------------------------------


def objective(S, p, lam, beta) -> float:
    """F(S), eq. 54: under the 0-1 metric W1 is the mass that is moved."""
    mass = p[S].sum()
    q = p[S] / mass
    return float(1 - mass + lam * -(q * np.log(q)).sum() - beta * np.log(mass))


@settings(max_examples=60)
@given(data=st.data(), lam=st.floats(0.05, 2))
def test_uniform_metric_without_beta_is_top_h(data, lam):
    """The minimiser of (1 - Γ) + λH(q) is the set that Top-H keeps at the resulting entropy, if that is a run."""
    p, _ = small(data.draw)
    n = len(p)
    S = min(subsets(n), key=lambda S: objective(S, p, lam, 0))
    if list(range(len(S))) != S or len(S) == n:
        return
    q = p[S] / p[S].sum()
    alpha = -(q * np.log(q)).sum() / -(p * np.log(p)).sum()
    out = TopH(min(1.0, max(alpha * (1 + 1e-9), 1e-9)))(None, torch.from_numpy(np.log(p))[None])[0]
    assert torch.nonzero(out > -INF).flatten().tolist() == S


def test_without_distances_the_kept_set_is_a_run_of_the_likeliest():
    logits = torch.randn(1, 3000, generator=torch.Generator().manual_seed(6)) * 3
    for beta in (2.5, 4.0, 8.0):
        out = TopW(metric="uniform", beta=beta, warm_start=0.5)(None, logits)[0]
        size = int((out > -INF).sum())
        assert torch.equal(out, TopK(size)(None, logits)[0])


# --- geometry ---------------------------------------------------------------------------------------------


def test_l2_is_the_papers_metric_on_unit_vectors():
    """Appendix A, then unit length (eq. 1); distances of at most 2."""
    table = torch.randn(50, 8, generator=torch.Generator().manual_seed(7)) + 1
    unit = table / table.norm(dim=1, keepdim=True)
    white = (unit - unit.mean(0)) / unit.std(0, correction=0)
    white /= white.norm(dim=1, keepdim=True)
    geometry = Geometry(table, "l2")
    ids = torch.arange(50)
    assert torch.allclose(geometry.vectors(ids), white, atol=1e-5)
    d = geometry.distances(geometry.vectors(ids), geometry.vectors(ids))
    assert torch.allclose(d, torch.cdist(white, white), atol=2e-3)
    assert float(d.max()) <= 2


def test_whitened_is_the_metric_of_appendix_a():
    """Eq. 17, without the unit length of eq. 1; the nearest of several is the least distance."""
    table = torch.randn(50, 8, generator=torch.Generator().manual_seed(7)) + 1
    unit = table / table.norm(dim=1, keepdim=True)
    white = (unit - unit.mean(0)) / unit.std(0, correction=0)
    geometry = Geometry(table, "whitened")
    u = geometry.vectors(torch.arange(50))
    assert torch.allclose(u, white, atol=1e-5)
    expected = torch.cdist(white[:20], white[20:])
    assert torch.allclose(geometry.distances(u[:20], u[20:]), expected, atol=2e-3)
    assert torch.allclose(geometry.nearest(u[:20], u[20:]), expected.amin(1), atol=2e-3)
    assert float(expected.mean()) > 2, "a distance of √(2·D) = 4, where unit vectors are at most 2 apart"


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


@settings(max_examples=150)
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


def test_a_repulsive_single_token_may_be_another_than_the_most_probable():
    """For β ≤ λ eq. 13 maximises f_i + β·log p_i, and only a repulsive f is larger outside S."""
    table = torch.eye(4)
    logits = torch.tensor([[1.0, 0.8, -3.0, -3.0]])
    kept = {
        potential: torch.nonzero(
            TopW(table, lam=1.0, beta=0.5, warm_start=0.4, alternations=1, potential=potential)(None, logits)[0] > -INF
        )
        .flatten()
        .tolist()
        for potential in ("attractive", "none", "repulsive")
    }
    assert kept == {"attractive": [0], "none": [0], "repulsive": [1]}


def test_an_unknown_potential_is_refused():
    with pytest.raises(InputError, match="potential 'magnetic' given; one of attractive, none, repulsive expected"):
        TopW(metric="uniform", potential="magnetic")


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


def test_k_nearest_neighbours_are_another_potential():
    chance = torch.Generator().manual_seed(9)
    table, logits = torch.randn(400, 16, generator=chance), torch.randn(3, 400, generator=chance) * 2
    one, many = (TopW(table, lam=0.5, warm_start=0.5, geom_scale=2.0, neighbours=n) for n in (1, 8))
    assert not torch.equal(one(None, logits), many(None, logits))
    assert len(many.select(logits[0]).ids) == int((many(None, logits)[0] > -INF).sum())


def test_tempered_choice_returns_untempered_logits():
    logits = torch.randn(2, 300, generator=torch.Generator().manual_seed(10)) * 4
    warm = TopW(metric="uniform", selection_temperature=2.0)(None, logits)
    keep = TopW(metric="uniform")(None, logits / 2) > -INF
    assert torch.equal(warm, torch.where(keep, logits, -math.inf))
