"""Kneser-Ney smoothing and stupid backoff, against the formulas written out with dictionaries."""

from __future__ import annotations

import random
from collections import Counter
from functools import cache

import numpy as np
import pytest

from research.kneser_ney import BACKOFF, TextGrams, discounts_of

V, ORDER = 7, 3
RNG = random.Random(5)
DOCUMENTS = [[min(int(RNG.expovariate(0.6)), V - 2) for _ in range(RNG.randrange(1, 30))] for _ in range(12)]
TEXT = [*DOCUMENTS[0][:4], V - 1, 0, 1, 0, 0, 1, 2, 0, 0, 1]  # V - 1 occurs in no document


@cache
def counted() -> TextGrams:
    return TextGrams(DOCUMENTS, V, ORDER)


def times(n: int) -> Counter[tuple[int, ...]]:
    return Counter(tuple(text[i : i + n]) for text in DOCUMENTS for i in range(len(text) - n + 1))


@cache
def adjusted(n: int) -> Counter[tuple[int, ...]]:
    if n == ORDER:
        return times(n)
    starts = {(-1, *text[:n]) for text in DOCUMENTS if len(text) >= n}
    return Counter(gram[1:] for gram in starts | times(n + 1).keys())


def kneser_ney(context: tuple[int, ...], token: int) -> float:
    """Chen and Goodman's eq. 25, from the longest order down."""
    n = len(context) + 1
    below = kneser_ney(context[1:], token) if context else 1 / V
    found = {gram[-1]: count for gram, count in adjusted(n).items() if gram[:-1] == context}
    if not found:
        return below
    discounts = discounts_of(np.array(list(adjusted(n).values())))
    d = {token: discounts[min(count, 3)] for token, count in found.items()}
    own = found.get(token, 0) - d.get(token, 0)
    return (own + sum(d.values()) * below) / sum(found.values())


def backoff(context: tuple[int, ...], token: int) -> float:
    found = {gram[-1]: count for gram, count in times(len(context) + 1).items() if gram[:-1] == context}
    if token in found:
        return found[token] / sum(found.values())
    return BACKOFF * backoff(context[1:], token) if context else 0.0


def contexts() -> list[tuple[int, ...]]:
    return [tuple(TEXT[max(at - ORDER + 1, 0) : at]) for at in range(1, len(TEXT))]


def test_probabilities_are_those_of_the_formulas() -> None:
    expected = [kneser_ney(context, token) for context, token in zip(contexts(), TEXT[1:], strict=True)]
    assert counted().kneser_ney(TEXT, 1) == pytest.approx(expected)
    for token in range(V):
        assert counted().kneser_ney([0, 1, token], 2)[0] == pytest.approx(kneser_ney((0, 1), token))
    assert sum(counted().kneser_ney([0, 1, token], 2)[0] for token in range(V)) == pytest.approx(1)


def test_stupid_backoff_is_normalised() -> None:
    for context, token in zip(contexts(), TEXT[1:], strict=True):
        everything = sum(backoff(context, other) for other in range(V))
        found = counted().stupid_backoff([*context, token], len(context))
        assert found == pytest.approx([backoff(context, token) / everything])


def test_discounts_follow_the_counts_of_counts() -> None:
    """Y = 8 / (8 + 2 · 4) = 1/2."""
    counts = np.repeat([1, 2, 3, 4, 9], [8, 4, 2, 1, 3])
    assert discounts_of(counts) == pytest.approx([0, 1 - 4 / 8, 2 - 1.5 * 2 / 4, 3 - 2 / 2])
    assert discounts_of(np.array([1, 1, 2])) == pytest.approx([0, 0.5, 1, 1.5])


def test_known_counts_what_follows_each_context() -> None:
    following = Counter(gram[:2] for gram in times(3).elements())
    assert counted().known([0, 1, 4], 2).tolist() == [
        [sum(times(1).values()), Counter(gram[:1] for gram in times(2).elements())[1,], following[0, 1]]
    ]
