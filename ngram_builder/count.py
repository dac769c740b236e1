"""Packs windows of tokens into words, sorts them and sums up equal ones.

Each position of a document gives one window: its token and the following tokens up to the highest order, padded with
zeros at the document's end. Sorted windows have the n-grams of every order next to each other, so one pass over them
counts all orders (see `levels`). A 64-bit word packs several tokens of a window (token + 1, so that 0 is "no token"),
most significant first, so sorting words sorts windows.

Shapes: W words per window, N windows. This module handles no text and no files.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class Packing:
    """The packing of windows of `order` tokens into words, for token ids below `vocab_size`."""

    order: int
    vocab_size: int

    @property
    def bits(self) -> int:
        """Bits per token; 0 is reserved for "no token"."""
        return self.vocab_size.bit_length()

    @property
    def per_word(self) -> int:
        """Tokens per word."""
        return 64 // self.bits

    @property
    def words(self) -> int:
        """W, the words per window."""
        return -(-self.order // self.per_word)

    def shift(self, column: int) -> tuple[int, np.uint64]:
        """The position of column `column` of a window: (word, bits to shift right)."""
        word, place = divmod(column, self.per_word)
        return word, np.uint64(self.bits * (self.per_word - 1 - place))

    def first(self, token: int) -> tuple[int, ...]:
        """The smallest window that begins with this token or a later one, as W words."""
        _, shift = self.shift(0)
        return ((token + 1) << int(shift), *[0] * (self.words - 1))

    def column(self, words: np.ndarray, column: int) -> np.ndarray:
        """One token of every window, as token + 1, (N,) uint64."""
        word, shift = self.shift(column)
        return (words[word] >> shift) & np.uint64((1 << self.bits) - 1)

    def prefix(self, words: np.ndarray, n: int) -> np.ndarray:
        """The windows truncated to their first n tokens, (W, N); the rest is zero."""
        cut = words.copy()
        full, part = divmod(n, self.per_word)
        if full < len(words):
            used = self.bits * part
            spare = self.bits * self.per_word - used
            cut[full] &= np.uint64(((1 << used) - 1) << spare)
            cut[full + 1 :] = 0
        return cut

    def pack(self, ngrams: Sequence[Sequence[int]]) -> np.ndarray:
        """Packs N n-grams of token ids into words (W, N), padded with "no token"."""
        words = np.zeros((self.words, len(ngrams)), dtype=np.uint64)
        padding = (-1,) * self.order
        ids = np.array([(*ids, *padding[len(ids) :]) for ids in ngrams], dtype=np.int64).reshape(-1, self.order)
        for column, tokens in enumerate(ids.T + 1):
            word, shift = self.shift(column)
            words[word] |= tokens.astype(np.uint64) << shift
        return words

    def windows(self, ids: np.ndarray, most: int | None = None) -> np.ndarray:
        """The windows (W, N) of a stream of tokens (uint32, as token + 1) with a 0 after every document; only those
        that begin at its first `most` positions."""
        n = len(ids) if most is None else min(most, len(ids))
        padded = np.concatenate([ids, np.zeros(self.order, dtype=ids.dtype)])
        words = np.zeros((self.words, n), dtype=np.uint64)
        alive = np.ones(n, dtype=bool)
        for column in range(self.order):
            tokens = padded[column : column + n]
            alive &= tokens != 0  # no window crosses the end of a document
            word, shift = self.shift(column)
            words[word] |= np.where(alive, tokens, 0).astype(np.uint64) << shift
        return words[:, ids[:n] != 0]


def starts_of_groups(words: np.ndarray) -> np.ndarray:
    """The indices of sorted rows (W, N) that differ from the previous row; the first row always counts."""
    n = words.shape[1]
    new = np.ones(n, dtype=bool)
    if n:
        new[1:] = False
        for word in words:
            new[1:] |= word[1:] != word[:-1]
    return np.flatnonzero(new)


def sort_order(words: np.ndarray) -> np.ndarray:
    """The permutation that sorts rows (W, N). Most rows differ in their first word, so only the others are compared by
    all words."""
    order = np.argsort(words[0])
    if len(words) == 1:
        return order
    first = words[0][order]
    equal = np.zeros(len(first) + 1, dtype=bool)
    equal[1:-1] = first[1:] == first[:-1]
    rows = np.flatnonzero(equal[1:] | equal[:-1])
    if 2 * len(rows) > len(order):
        return np.lexsort(words[::-1])
    among = order[rows]
    order[rows] = among[np.lexsort((*(word[among] for word in words[:0:-1]), first[rows]))]
    return order


def sum_rows(words: np.ndarray, values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Sorts rows (W, N), merges equal ones, and sums their values (K, N)."""
    order = sort_order(words)
    words = np.stack([word[order] for word in words])
    starts = starts_of_groups(words)
    if not len(starts):
        return words, values[:, :0]
    sums = np.stack([np.add.reduceat(value[order], starts) for value in values])
    return words[:, starts], sums


def count_rows(words: np.ndarray) -> KeptGrams:
    """Sorts rows (W, N), merges equal ones, and counts them."""
    order = sort_order(words)
    words = np.stack([word[order] for word in words])
    starts = starts_of_groups(words)
    return words[:, starts], np.diff(starts, append=words.shape[1]).astype(np.uint64)


@dataclass(frozen=True)
class Entries:
    """The n-grams of one order: words (W, N) sorted, counts and continuation totals (N,) uint64. A context that was
    pruned itself but has stored continuations has count 0."""

    words: np.ndarray
    counts: np.ndarray
    totals: np.ndarray


# n-grams of one order: words (W, N) sorted and distinct, counts (N,) uint64
KeptGrams = tuple[np.ndarray, np.ndarray]
