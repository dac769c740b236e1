"""Interpolated modified Kneser-Ney smoothing (Chen and Goodman 1998, section 3 and eq. 26) and stupid backoff (Brants
et al. 2007), to compare our own stores with. Everything is in memory: some 300 bytes for each token of the text.

N-grams are known by 64-bit hashes, sorted by order. Two of a text's n-grams share one with a probability below 10⁻⁴ for
50 M n-grams.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

_FACTOR = np.uint64(0x9E3779B97F4A7C15)
_DISCOUNTS = np.array([0.0, 0.5, 1.0, 1.5])  # where counts of counts are missing, as KenLM's --discount_fallback has
BACKOFF = 0.4  # of stupid backoff, for each order


@dataclass(frozen=True)
class GramLevel:
    """The n-grams of one order, ascending by their hashes, and their contexts, in the order of the level below.

    Attributes:
        keys: hashes (g,) uint64.
        counts: occurrences (g,).
        adjusted: of the highest order the occurrences, else the number of different tokens before the n-gram (g,); the
            beginning of a document counts as one.
        following: occurrences of all continuations of a context (h,).
        lower: by stupid backoff, the scores that the order below gives to all continuations of a context (h,).
        total: sum of the adjusted counts of the continuations (h,).
        discounts: D₀ = 0, D₁, D₂, D₃₊ (eq. 26).
        discounted: the sum of the discounts of the continuations (h,).
    """

    keys: np.ndarray
    counts: np.ndarray
    adjusted: np.ndarray
    following: np.ndarray
    lower: np.ndarray
    total: np.ndarray
    discounts: np.ndarray
    discounted: np.ndarray

    def find(self, keys: np.ndarray) -> np.ndarray:
        """The number of each n-gram (k,), -1 for those that are unknown."""
        at = np.minimum(self.keys.searchsorted(keys), len(self.keys) - 1)
        return np.where(self.keys[at] == keys, at, -1)


class TextGrams:
    """The n-grams of a text, orders 1 to `order`."""

    def __init__(self, documents: Sequence[Sequence[int]], vocab_size: int, order: int = 6) -> None:
        """No n-gram crosses from one document to the next."""
        self.vocab_size, self.order = vocab_size, order
        self._table = np.random.default_rng(0).integers(0, 2**64, vocab_size + 1, dtype=np.uint64)
        boundary = vocab_size
        ids = np.concatenate([np.array([boundary, *document]) for document in documents])
        hashes = self._hashes(ids)
        ends = np.append(np.flatnonzero(ids == boundary), len(ids))
        room = ends[ends.searchsorted(np.arange(len(ids)))] - np.arange(len(ids))  # tokens up to the next boundary
        self.levels = [GramLevel(hashes[0][:1], *np.zeros((7, 1)))]  # of the empty n-gram
        scores = np.zeros(1)  # of the n-grams of the level below, by stupid backoff
        for n in range(1, order + 1):
            places = np.flatnonzero(room >= n)
            keys, first, counts = np.unique(hashes[n][places], return_index=True, return_counts=True)
            adjusted = counts
            if n < order:
                _, some = np.unique(hashes[n + 1][places - 1], return_index=True)
                _, adjusted = np.unique(hashes[n][places[some]], return_counts=True)
            below, at = self.levels[-1], places[first]
            context, suffix = below.find(hashes[n - 1][at]), below.find(hashes[n - 1][at + 1])
            contexts = len(below.keys)
            discounts = discounts_of(adjusted)
            following = np.bincount(context, counts, contexts)
            self.levels.append(
                GramLevel(
                    keys, counts, adjusted, following,
                    lower=np.bincount(context, scores[suffix], contexts),
                    total=np.bincount(context, adjusted, contexts),
                    discounts=discounts,
                    discounted=np.bincount(context, discounts[np.minimum(adjusted, 3)], contexts),
                )
            )  # fmt: skip
            scores = counts / following[context]

    def kneser_ney(self, ids: Sequence[int], start: int) -> np.ndarray:
        """The probability of each token of a text from `start` on, after those before it."""
        p = np.full(len(ids) - start, 1 / self.vocab_size)
        for level, gram, context in self._looked_up(ids, start):
            adjusted = np.where(gram < 0, 0, level.adjusted[gram])
            total = np.where(context < 0, 0, level.total[context])
            own = adjusted - level.discounts[np.minimum(adjusted, 3)] + level.discounted[context] * p
            p = np.where(total > 0, own / np.maximum(total, 1), p)
        return p

    def stupid_backoff(self, ids: Sequence[int], start: int) -> np.ndarray:
        """The same, with the scores divided by their sum over all tokens."""
        score, everything = np.zeros(len(ids) - start), np.zeros(len(ids) - start)
        for level, gram, context in self._looked_up(ids, start):
            following = np.where(context < 0, 0, level.following[context])
            own = np.where(gram < 0, 0, level.counts[gram]) / np.maximum(following, 1)
            score = np.where(own > 0, own, BACKOFF * score)
            everything = BACKOFF * (everything - np.where(following > 0, level.lower[context], 0)) + (following > 0)
        return score / everything

    def known(self, ids: Sequence[int], start: int) -> np.ndarray:
        """Occurrences of what follows the last 0, 1, … tokens before each place from `start` on, (places, order)."""
        looked_up = self._looked_up(ids, start)
        return np.stack([np.where(at < 0, 0, level.following[at]) for level, _, at in looked_up], axis=1)

    def _looked_up(self, ids: Sequence[int], start: int) -> list[tuple[GramLevel, np.ndarray, np.ndarray]]:
        """For each order the level, and for each token from `start` on the numbers of the n-gram that ends with it and
        of its context in the level below; -1 for what is unknown or extends before the text."""
        hashes, found = self._hashes(np.asarray(ids)), list[tuple[GramLevel, np.ndarray, np.ndarray]]()
        for n in range(1, min(self.order, len(ids)) + 1):
            first = np.arange(start, len(ids)) - n + 1
            inside = np.maximum(first, 0)
            gram = self.levels[n].find(hashes[n][inside])
            context = self.levels[n - 1].find(hashes[n - 1][inside])
            found.append((self.levels[n], np.where(first < 0, -1, gram), np.where(first < 0, -1, context)))
        return found

    def _hashes(self, ids: np.ndarray) -> list[np.ndarray]:
        """For n = 0, 1, … the hashes of the n tokens from each place on."""
        hashes = [np.zeros(len(ids) + 1, dtype=np.uint64)]
        for n in range(self.order):
            hashes.append(hashes[-1][:-1] * _FACTOR + self._table[ids[n:]])
        return hashes


def discounts_of(counts: np.ndarray) -> np.ndarray:
    """D₀ = 0, D₁, D₂ and D₃₊ from the counts of counts (eq. 26)."""
    n1, n2, n3, n4 = (int(np.count_nonzero(counts == count)) for count in (1, 2, 3, 4))
    if not n1 * n2 * n3 * n4:
        return _DISCOUNTS
    y = n1 / (n1 + 2 * n2)
    return np.array([0, 1 - 2 * y * n2 / n1, 2 - 3 * y * n3 / n2, 3 - 4 * y * n4 / n3])
