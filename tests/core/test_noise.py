"""Chance laid down in advance: the right distribution, the same for the same place, and nothing else for another."""

from __future__ import annotations

from collections import Counter

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from core.noise import SeededNoise
from tests.chi_squared import chi_squared

N = 8_000


def test_draws_have_their_distribution() -> None:
    """χ² of 8,000 draws each, over places, over seeds and over drafts; a true one fails once in 30,000."""
    p = np.array([0.0, 0.5, 0.2, 0.15, 0.1, 0.04, 0.01])
    expected = {(i,): x for i, x in enumerate(p)}
    ways = {"places": lambda n: SeededNoise(1).draw(p, n), "seeds": lambda n: SeededNoise(n).draw(p, 7)}
    ways["drafts"] = lambda n: SeededNoise(3, n).draw(p, 7)
    for way, drawn in ways.items():
        assert chi_squared(Counter((drawn(n),) for n in range(N)), expected, N) < 4, way


def test_neighbouring_places_know_nothing_of_each_other() -> None:
    p = np.array([0.4, 0.3, 0.3])
    pairs = Counter((SeededNoise(n).draw(p, 4), SeededNoise(n).draw(p, 5)) for n in range(N))
    assert chi_squared(pairs, {(a, b): p[a] * p[b] for a in range(3) for b in range(3)}, N) < 4


@given(
    arrays(float, 12, elements=st.floats(0, 5)).filter(lambda p: p.max() > 0), st.integers(0, 2**31), st.integers(0, 99)
)
def test_a_draw_is_the_gumbel_max_trick_and_never_what_has_no_probability(p: np.ndarray, seed: int, place: int) -> None:
    noise = SeededNoise(seed, 2)
    token = noise.draw(p, place)
    assert p[token] > 0
    with np.errstate(divide="ignore"):
        scores = np.log(p) + noise.gumbel(place, np.arange(12))
    assert scores[token] >= scores.max() - 1e-9
    assert noise.draw(p * 3, place) == token


def test_the_noise_of_a_token_does_not_depend_on_the_others_requested() -> None:
    noise = SeededNoise(11)
    every = noise.gumbel(3, np.arange(50))
    assert np.array_equal(noise.gumbel(3, np.array([40, 2])), every[[40, 2]])
    assert not np.array_equal(noise.gumbel(4, np.arange(50)), every)
    assert abs(noise.gumbel(0, np.arange(100_000)).mean() - np.euler_gamma) < 0.02
