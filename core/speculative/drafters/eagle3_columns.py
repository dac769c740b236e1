"""Which columns of an EAGLE-3 head's cache contain which positions of which text.

Several texts share one cache. Texts with a common beginning share its columns, so each position of k drafts after one
prefix is computed and stored once. The columns of texts that are no longer given are dropped, and the others move
together:

          column   0 1 2 3 4 5 6 7 8      p: the common prefix
                   p p p p a b a b b      a, b: the positions that one text has alone, in the order of computation
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple


class Known(NamedTuple):
    """A text in the cache.

    Attributes:
        ids: (T,)
        columns: (T - 1,) of its positions. Position t needs the token t + 1, so the last token has none.
    """

    ids: list[int]
    columns: list[int]


class Arrangement(NamedTuple):
    """Where several texts are in the cache.

    Attributes:
        kept: the earlier columns that are still used; they become the columns 0 … len(kept) - 1, in this order.
        texts: each text with its new columns.
        starts: each text's first position that must be computed. These positions have the columns from len(kept) on,
            text by text.
    """

    kept: list[int]
    texts: list[Known]
    starts: list[int]


def arrange(known: Sequence[Known], texts: Sequence[list[int]]) -> Arrangement:
    """Returns the columns of texts of at least two tokens, after those that the cache contains.

    The last position of every text gets a column that must be computed, also if the cache contains it, because its
    output is not stored. Two of the texts may share it.
    """
    reused = [
        max((_shared(earlier_text, ids) for earlier_text in known), key=len, default=[])[: len(ids) - 2]
        for ids in texts
    ]
    kept = sorted({column for columns in reused for column in columns})
    moved = {column: n for n, column in enumerate(kept)}
    end, arranged, starts = len(kept), list[Known](), list[int]()
    for ids, old in zip(texts, reused, strict=True):
        columns = [moved[column] for column in old]
        for earlier in arranged:
            also = _shared(earlier, ids)
            if len(also) == len(ids) - 1 and also[-1] < len(kept):  # an earlier text computes no output here
                also.pop()
            columns = max(columns, also, key=len)
        starts.append(len(columns))
        fresh = len(ids) - 1 - len(columns)
        arranged.append(Known(list(ids), [*columns, *range(end, end + fresh)]))
        end += fresh
    return Arrangement(kept, arranged, starts)


def _shared(known: Known, ids: list[int]) -> list[int]:
    """Returns the columns of the positions that a text has in common with one in the cache."""
    low, high = 0, min(len(known.ids), len(ids))
    while low < high:  # the first `low` tokens are equal; slices compare faster than single tokens
        middle = (low + high + 1) // 2
        if known.ids[low:middle] == ids[low:middle]:
            low = middle
        else:
            high = middle - 1
    return known.columns[: max(low - 1, 0)]
