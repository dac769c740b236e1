"""Counts of all n-grams of one person's text, in memory, for the look-ups of a personal store.

A sorted list of windows (`windows.py`) holds nearly all of them; of a large store a second list, of older text, is in
a file. Text added since the lists were built is counted immediately in dictionaries.

This module handles token ids, no text and no files.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import numpy as np

from core.errors import InputError
from core.ngram.store import CandidateIds, Contexts, TypedEvidence, asked_of
from core.ngram.windows import BITS, ORDER, SHIFTS, SYMBOL, Windows

REMEMBERED = 1 << 16  # n-grams whose counts are cached
REMEMBERED_LISTS = 1 << 14  # contexts whose continuations are cached
_FEW = 32  # windows of a range that are examined one by one
# The distance in `hi` from the windows of one context of this many symbols to those of the next; and the part of `lo`
# that belongs to it.
_WIDTHS = np.int64(1) << np.array([3, 2, 1, 0, 0, 0]) * BITS
_KEPT = -(np.int64(1) << np.array([3, 3, 3, 3, 2, 1]) * BITS) & ((1 << 3 * BITS) - 1)
_UNKNOWN = SYMBOL  # the symbol of an id out of range, which no window contains


def windows_of(passages: Iterable[tuple[Sequence[int] | np.ndarray, int]], vocab_size: int) -> Windows:
    """Counts passages of token ids, each with its multiplicity. Raises InputError for an id of V or above."""
    parts, times_of = [np.zeros(1, dtype=np.int64)], [np.zeros(1, dtype=np.int64)]
    for passage, times in passages:
        parts += [np.asarray(passage, dtype=np.int64) + 1, np.zeros(1, dtype=np.int64)]
        times_of.append(np.full(len(passage) + 1, times))
    symbols = np.concatenate(parts)
    if symbols.max() > vocab_size:
        raise InputError(f"Token {symbols.max() - 1} given; ids below {vocab_size} expected.")
    begins = np.flatnonzero(symbols)
    return Windows.beginning(symbols, begins, np.concatenate(times_of)[begins])


class Counts:
    """n-gram counts, orders 1 to ORDER.

    Attributes:
        orders: those that give probabilities: 2 … ORDER.
        windows: all but the fresh and the older passages.
        fresh: tokens added since the windows were built; they slow look-ups down.
    """

    orders = tuple(range(2, ORDER + 1))

    def __init__(self, vocab_size: int, windows: Windows, older: Windows | None = None) -> None:
        """`older`: windows that `windows` stand `beside`."""
        if vocab_size >= _UNKNOWN:
            raise InputError(f"A vocabulary of {vocab_size} tokens given; fewer than {_UNKNOWN} expected.")
        self.windows, self.fresh = windows, 0
        self._lists = [windows] if older is None else [older, windows]
        self._v = vocab_size
        self._added: dict[tuple[int, ...], dict[int, int]] = {}  # context -> continuation -> count
        self._passages: list[tuple[list[int], int]] = []  # the same
        self._known: dict[tuple[int, ...], int] = {}
        self._followers: dict[tuple[tuple[int, ...], int], list[tuple[int, int]]] = {}  # of `quick_continuations`

    @classmethod
    def of(cls, vocab_size: int, passages: Iterable[tuple[Sequence[int] | np.ndarray, int]] = ()) -> Counts:
        """Counts passages.

        Args:
            vocab_size: V; ids of V and above are invalid.
            passages: token ids, and the multiplicity of each; an n-gram does not cross from one to the next.
        """
        return cls(vocab_size, windows_of(passages, vocab_size))

    def add(self, passage: Sequence[int], times: int = 1) -> None:
        """Counts one more passage immediately."""
        ids = [int(i) for i in passage]
        if ids and not 0 <= min(ids) <= max(ids) < self._v:
            raise InputError(f"Tokens from {min(ids)} to {max(ids)} given; ids from 0 to {self._v - 1} expected.")
        self.fresh += len(ids)
        self._passages.append((ids, times))
        self._known.clear()
        self._followers.clear()
        for n in range(ORDER):  # tokens of context
            for i in range(len(ids) - n):
                following = self._added.setdefault(tuple(ids[i : i + n]), {})
                following[ids[i + n]] = following.get(ids[i + n], 0) + times

    @property
    def nbytes(self) -> int:
        """Bytes of the windows, without the text added since."""
        return self.windows.nbytes

    # ---------------------------------------------------------------- one n-gram

    def count(self, ids: Sequence[int]) -> int:
        """The number of occurrences of this n-gram; for the empty one the number of tokens."""
        gram = tuple(ids)
        known = self._known.get(gram)
        if known is None:
            if len(self._known) > REMEMBERED:
                self._known.clear()
            known = self._known[gram] = self._count(gram)
        return known

    def total(self, ids: Sequence[int]) -> int:
        """The number of tokens that followed this context."""
        return sum(count for _, count in self.continuations(ids))

    def continuations(self, context: Sequence[int], limit: int | None = None) -> list[tuple[int, int]]:
        """The tokens that followed this context: (id, count), most frequent first, then by id."""
        following = dict(self._added.get(tuple(context), {}))
        symbols = self._symbols(context)
        if symbols is not None and len(symbols) < ORDER:
            found = [some.next(some.range(symbols), len(symbols)) for some in self._lists]
            tokens, counts = found[0] if len(found) == 1 else _summed(found)
            tokens, counts = tokens[tokens > 0] - 1, counts[tokens > 0]
            if limit is not None and not following and len(tokens) > 4 * limit:
                best = np.argpartition(-counts, limit)[:limit]
                # Which of the ties at the limit are listed is arbitrary; their counts are equal.
                tokens, counts = tokens[best], counts[best]
            for token, count in zip(tokens.tolist(), counts.tolist(), strict=True):
                following[token] = following.get(token, 0) + count
        return sorted(following.items(), key=lambda pair: (-pair[1], pair[0]))[:limit]

    def quick_continuations(self, context: Sequence[int], limit: int) -> list[tuple[int, int]]:
        """`continuations`, which are cached."""
        gram = tuple(context)
        if not self.count(gram[-2:]):
            return []  # nothing follows a context whose end is unknown, and most are
        if (known := self._followers.get((gram, limit))) is None:
            if len(self._followers) >= REMEMBERED_LISTS:
                self._followers.clear()
            known = self._followers[gram, limit] = self.continuations(gram, limit)
        return [*known]

    def ngrams(self) -> Iterator[tuple[tuple[int, ...], int, int]]:
        """All n-grams with count and total, in no particular order; the empty one, with count 0, as a context. One that
        both older and newer text contains comes once for each of them."""
        yield (), 0, self.count(())
        *older, windows = self._lists
        for some in (*older, windows.merged(windows_of(self._passages, self._v))):
            yield from some.ngrams()

    def _count(self, gram: tuple[int, ...]) -> int:
        symbols = self._symbols(gram)
        fresh = self._added.get(gram[:-1], {}).get(gram[-1], 0) if gram else sum(self._added.get((), {}).values())
        if symbols is None:
            return fresh
        return sum(some.count(symbols) for some in self._lists) + fresh

    def _symbols(self, gram: Sequence[int]) -> list[int] | None:
        """The n-gram as symbols; None if no window can begin with it."""
        if len(gram) > ORDER or not all(0 <= token < self._v for token in gram):
            return None
        return [token + 1 for token in gram]

    # ---------------------------------------------------------------- many at once

    def evidence(
        self, contexts: Contexts, candidates: CandidateIds, orders: Sequence[int] | None = None
    ) -> TypedEvidence:
        """The counts for each candidate; see `NgramStore.evidence`."""
        wanted, ids = asked_of(self.orders, contexts, np.asarray(candidates, dtype=np.int64), orders)
        d, m = len(contexts), ids.shape[-1]
        known = TypedEvidence(wanted, np.zeros((d, len(wanted), m)), *(np.zeros((d, len(wanted))) for _ in range(3)))
        if any(map(len, self._lists)) and d and wanted:
            tails, symbols = self._tails(contexts), np.where((ids >= 0) & (ids < self._v), ids + 1, _UNKNOWN)
            for some in filter(len, self._lists):
                self._look_up(known, some, tails, symbols)
        if self._added:
            self._add_fresh(contexts, ids, known)
        return known

    def _look_up(self, known: TypedEvidence, windows: Windows, tails: np.ndarray, symbols: np.ndarray) -> None:
        """Adds the windows' counts after `tails` (d, 5) for the candidates `symbols` (m,) or (d, m).

        A context is addressed by (row, column) of `known`. Contexts at the beginning of few windows are examined window
        by window, all of them at once; in the range of any other context the candidates are searched.
        """
        lengths = np.array(known.orders) - 1
        reach = tails.shape[1]
        # The beginning of `hi` and `lo` in the windows of each context, (d, 5), for contexts of 1 to 5 symbols.
        hi, lo = np.zeros_like(tails), np.zeros_like(tails)
        for place in range(reach):
            word, shift = (hi, 2 - place) if place < 3 else (lo, 5 - place)
            word[:, place:] |= tails[:, place:][:, ::-1] << BITS * shift
        hi = hi[:, lengths - 1]  # (d, N)
        bounds = windows.hi.searchsorted(np.concatenate([hi, hi + _WIDTHS[lengths]]))
        first, end = bounds[: len(tails)], bounds[len(tails) :]
        size = end - first  # of the ranges that share the first three symbols
        few = ((size > 0) & (size <= _FEW)).nonzero()
        if len(few[0]):
            self._look_at(known, windows, few, first[few], size[few], lo, lengths[few[1]], symbols)
        many = size > _FEW
        short = (many & (lengths < 3)).nonzero()
        if len(short[0]):
            self._search_short(known, windows, short, hi[short], (first[short], end[short]), lengths[short[1]], symbols)
        for row, column in zip(*(axis.tolist() for axis in (many & (lengths > 2)).nonzero()), strict=True):
            self._search(
                known, windows, row, column, (int(first[row, column]), int(end[row, column])), lo[row], symbols
            )

    def _look_at(
        self,
        known: TypedEvidence,
        windows: Windows,
        contexts: tuple[np.ndarray, ...],
        first: np.ndarray,
        size: np.ndarray,
        lo: np.ndarray,
        length: np.ndarray,
        symbols: np.ndarray,
    ) -> None:
        """Examines every window of small ranges (q,); t windows in all."""
        rows, columns = contexts
        starts = size.cumsum() - size
        at = (first - starts).repeat(size)  # (t,)
        at += np.arange(len(at))
        place = length.repeat(size)
        words = windows.lo[at]
        # Beyond three symbols a range also contains windows of other contexts.
        own = words & _KEPT[place] == lo[rows, length - 1].repeat(size)
        next_ = np.where(place < 3, windows.hi[at], words) >> SHIFTS[place] & SYMBOL
        weights = (windows.before[at + 1] - windows.before[at]) * own.astype(np.float64)
        goes_on = next_ > 0
        followed = weights * goes_on
        new = own & goes_on & (windows.known[at] <= place)  # its symbol differs from that of the previous window
        seen, totals, types = np.add.reduceat(np.stack([weights, followed, new]), starts, axis=1)
        known.seen[contexts] += seen
        known.totals[contexts] += totals
        known.types[contexts] += types
        some = followed.nonzero()[0]
        if len(some):
            queried = symbols if symbols.ndim == 1 else symbols[rows.repeat(size)[some]]
            hits, candidate = (next_[some][:, None] == queried).nonzero()
            hit = some[hits]
            context = np.arange(len(rows)).repeat(size)[hit]
            np.add.at(known.counts, (rows[context], columns[context], candidate), followed[hit])

    def _search_short(
        self,
        known: TypedEvidence,
        windows: Windows,
        contexts: tuple[np.ndarray, ...],
        prefix: np.ndarray,
        within: tuple[np.ndarray, np.ndarray],
        length: np.ndarray,
        symbols: np.ndarray,
    ) -> None:
        """Searches large ranges (q,) for the candidates after one or two symbols."""
        (first, end), before, words = within, windows.before, windows.hi
        width = _WIDTHS[length + 1]
        ended = words[first] - prefix < width
        known.seen[contexts] += before[end] - before[first]
        known.totals[contexts] += before[end] - before[first + ended]
        known.types[contexts] += windows.changes[length - 1, end - 1] - windows.changes[length - 1, first]
        known.types[contexts] += ~ended & (windows.known[first] <= length)
        queried = symbols if symbols.ndim == 1 else symbols[contexts[0]]
        begin = prefix[:, None] + queried * width[:, None]  # (q, m)
        at = words.searchsorted(begin)
        beyond = words[np.minimum(at, len(words) - 1)] - begin  # of the first window, if it belongs to this candidate
        hits = ((beyond >= 0) & (beyond < width[:, None])).nonzero()
        places = at[hits]
        counts = np.zeros(begin.shape)
        counts[hits] = before[words.searchsorted(begin[hits] + width[hits[0]])] - before[places]
        known.counts[contexts] += counts

    def _search(
        self,
        known: TypedEvidence,
        windows: Windows,
        row: int,
        column: int,
        within: tuple[int, int],
        lo: np.ndarray,
        symbols: np.ndarray,
    ) -> None:
        """Searches a large range for one context of three symbols or more, and for every candidate after it."""
        first, end = within
        length = known.orders[column] - 1
        prefix, width = int(lo[length - 1]), 1 << BITS * (5 - length)
        if length > 3:
            inside = windows.lo[first:end].searchsorted(np.array([prefix, prefix + (width << BITS)]))
            first, end = first + int(inside[0]), first + int(inside[1])
            if first == end:
                return
        words, before = windows.lo[first:end], windows.before[first : end + 1]
        ended = prefix + width > int(words[0])
        known.seen[row, column] += before[-1] - before[0]
        known.totals[row, column] += before[-1] - before[int(ended)]
        new = not ended and windows.known[first] <= length
        known.types[row, column] += np.count_nonzero(windows.known[first + 1 : end] == length) + new
        begin = prefix + (symbols if symbols.ndim == 1 else symbols[row]) * width
        at = before[words.searchsorted(np.concatenate([begin, begin + width]))]
        known.counts[row, column] += at[len(begin) :] - at[: len(begin)]

    def _tails(self, contexts: Contexts) -> np.ndarray:
        """The last five tokens of each context as symbols (d, 5); missing ones get a symbol that no window contains."""
        reach = ORDER - 1
        tails = [[-1] * (reach - len(context)) + list(context[-reach:]) for context in contexts]
        ids = np.array(tails, dtype=np.int64)
        return np.where((ids >= 0) & (ids < self._v), ids + 1, _UNKNOWN)

    def _add_fresh(self, contexts: Contexts, ids: np.ndarray, known: TypedEvidence) -> None:
        """Adds the counts of the text added since the windows were built to `known`."""
        for row, context in enumerate(contexts):
            candidates = (ids[row] if ids.ndim == 2 else ids).tolist()
            for column, n in enumerate(known.orders):
                if len(context) < n - 1:
                    break
                gram = tuple(context[len(context) - n + 1 :])
                times = self._added.get(gram[:-1], {}).get(gram[-1], 0)
                if not times:
                    break  # an n-gram is not among the added ones if its suffix is not
                known.seen[row, column] += times
                following = self._added.get(gram)
                if following:
                    known.totals[row, column] += sum(following.values())
                    known.counts[row, column] += [following.get(i, 0) for i in candidates]
                    grams = [[t + 1 for t in (*gram, i)] for i in following]
                    known.types[row, column] += sum(not any(some.count(g) for some in self._lists) for g in grams)


def _summed(found: Sequence[tuple[np.ndarray, np.ndarray]]) -> tuple[np.ndarray, np.ndarray]:
    """Symbols and counts of several lists, each symbol once."""
    symbols, places = np.unique(np.concatenate([symbols for symbols, _ in found]), return_inverse=True)
    counts = np.zeros(len(symbols), dtype=np.int64)
    np.add.at(counts, places, np.concatenate([counts for _, counts in found]))
    return symbols, counts
