"""Checks that marisa-trie can read the bytes of a trie without leaving them.

marisa-trie trusts its files: it follows the offsets, node numbers and counts in them. So a file from another source is
checked against every assumption of the library before the library reads it. After this check every read
of a look-up or an iteration is inside the trie, and both terminate soon:

    bit vectors     ranks and positions are recomputed from the bits and must be equal
    tree (LOUDS)    each node has one parent, which precedes it, and at most 256 children; no key is too long
    links           point to a node of the next trie, or to a terminated string of the tail
    cache           contains a node, its parent and its label as in the tree

The layout is that of marisa-trie 0.2 and later, little-endian: `LoudsTrie::map_` in its `louds-trie.cc`. The check does
not verify that the keys and counts are the ones that their author claims.
"""

from __future__ import annotations

import numpy as np

HEADER = b"We love Marisa.\0"
MOST_TRIES = 127  # nested tries: the library's own limit
MOST_CHILDREN = 256  # the labels of siblings differ in their first byte
BLOCK = 512  # bits of a vector that share one entry of its rank index
NO_LINK = 0xFFFFFF  # replaces a link's upper bits if a node's label is one byte
UNUSED = 0xFFFFFFFF  # parent and child of a free place in the cache


class Malformed(Exception):
    """A description of the error in the trie."""


def check_trie(data: memoryview, longest: int) -> None:
    """Checks a trie and the ones nested in it.

    Args:
        data: the bytes that marisa-trie would map, no more.
        longest: maximum bytes of a key.

    Raises: Malformed.
    """
    reader = _Reader(data)
    if bytes(reader.take(len(HEADER))) != HEADER:
        raise Malformed("it does not begin like a trie")
    _key_lengths(reader, longest, depth=1)
    if reader.left:
        raise Malformed("bytes follow its end")


def _key_lengths(reader: _Reader, longest: int, depth: int) -> np.ndarray:
    """Checks the next trie of the file, and its nested ones; returns the number of bytes up to each node, (N,)."""
    if depth > MOST_TRIES:
        raise Malformed("too many nested tries")
    outer = depth == 1  # only the outer trie is searched from its root; the others are read towards theirs
    louds = reader.bits("ranks", "zeros", "ones") if outer else reader.bits("ranks", "ones")
    terminals = reader.bits("ranks", "ones") if outer else reader.bits()
    link_flags = reader.bits("ranks")
    linked = np.flatnonzero(link_flags)
    bases, extras = reader.vector("<u1"), reader.packed(len(linked))
    tail, ends = reader.vector("<u1"), reader.bits()
    size = len(bases)
    parents = _parents(louds, size)
    if len(link_flags) != size or len(terminals) != (size + 1 if outer else 0):
        raise Malformed("its lists of nodes have different lengths")
    if extras.max(initial=0) >= NO_LINK:
        raise Malformed("a link is too large")
    labels = bases | np.full(size, NO_LINK << 8, dtype=np.uint32)  # (N,) a byte, or a link to more of them
    labels[linked] = links = bases[linked] | extras << 8

    lengths = np.ones(size, dtype=np.int32)  # (N,) bytes of each label
    if len(linked):
        known = _string_lengths(tail, ends) if len(tail) else _key_lengths(reader, longest, depth + 1)
        if links.max() >= len(known):
            raise Malformed("a link points outside its table")
        lengths[linked] = known[links]
        if lengths[linked].min() < 1:
            raise Malformed("a label is empty")
    _check_cache(reader.vector("<u4"), parents, labels)
    if reader.number("<u4") != np.count_nonzero(parents[1:] == 0):
        raise Malformed("its number of children of the root is wrong")
    reader.number("<u4")  # options, which the library checks itself

    # Children have larger numbers than their parents, so the nodes of a level are one range: add its labels at once.
    lengths[0], start, end = 0, 1, 1
    while start < size:
        end = int(np.searchsorted(parents, end))  # parents ascend
        lengths[start:end] += lengths[parents[start:end]]
        if lengths[start:end].max() > longest:
            raise Malformed(f"a key has more than {longest} bytes")
        start = end
    return lengths


def _parents(louds: np.ndarray, size: int) -> np.ndarray:
    """The parent of each node, (N,) ascending; the root's, which has none, is 0.

    The bits are 10, then for each node a 1 for each child and a 0, then a 0. The 1s number the nodes.
    """
    ones = np.flatnonzero(louds)
    if not size or len(ones) != size or len(louds) != 2 * size + 2 or ones[0]:
        raise Malformed("its tree has another size than its nodes")
    numbers = np.arange(size)
    parents = ones - numbers - 1
    parents[0] = 0
    if (parents[1:] >= numbers[1:]).any() or (parents[1:] < 0).any():
        raise Malformed("its tree has a node without an earlier parent")
    siblings = parents[1:]
    if (siblings[MOST_CHILDREN:] == siblings[:-MOST_CHILDREN]).any():
        raise Malformed(f"a node has more than {MOST_CHILDREN} children")
    return parents


def _string_lengths(tail: np.ndarray, ends: np.ndarray) -> np.ndarray:
    """The length of the string that begins at each byte of the tail, (n,): up to a zero byte, or including a flagged
    one."""
    if len(ends) not in (0, len(tail)):
        raise Malformed("the number of end flags differs from the number of bytes")
    flagged = np.flatnonzero(ends) if len(ends) else np.flatnonzero(tail == 0)
    if not len(flagged) or flagged[-1] != len(tail) - 1:
        raise Malformed("its last string is not terminated")
    at = np.arange(len(tail))
    lengths = flagged[np.searchsorted(flagged, at)] - at + (1 if len(ends) else 0)
    return np.minimum(lengths, 1 << 30).astype(np.int32)


def _check_cache(cache: np.ndarray, parents: np.ndarray, labels: np.ndarray) -> None:
    """Compares the cached entries (parent, child, label) with the tree."""
    count = len(cache) // 3
    if not count or len(cache) % 3 or count & (count - 1):
        raise Malformed(f"its cache has {len(cache) / 3:g} entries, not a power of two")
    parent, child, label = cache.reshape(-1, 3)[~(cache.reshape(-1, 3)[:, :2] == UNUSED).all(axis=1)].T
    if not len(child):
        return
    if child.min() < 1 or child.max() >= len(parents):
        raise Malformed("its cache points outside the tree")
    if (parents[child] != parent).any() or (labels[child] != label).any():
        raise Malformed("its cache does not fit the tree")


class _Reader:
    """Reads the parts of the file one after the other. Raises Malformed if one is incomplete."""

    def __init__(self, data: memoryview) -> None:
        self._rest = data

    @property
    def left(self) -> int:
        """The number of bytes not yet read."""
        return len(self._rest)

    def take(self, size: int) -> memoryview:
        if size > len(self._rest):
            raise Malformed("it is truncated")
        taken, self._rest = self._rest[:size], self._rest[size:]
        return taken

    def number(self, dtype: str) -> int:
        return int(np.frombuffer(self.take(np.dtype(dtype).itemsize), dtype)[0])

    def vector(self, dtype: str) -> np.ndarray:
        """A list of numbers preceded by its size in bytes, padded to a multiple of 8."""
        size = self.number("<u8")
        data = self.take(size)
        self.take(-size % 8)
        if size % np.dtype(dtype).itemsize:
            raise Malformed("a list ends inside a number")
        return np.frombuffer(data, dtype)

    def packed(self, size: int) -> np.ndarray:
        """A list of `size` numbers of a few bits each, (n,) uint32."""
        units, width, mask, stated = self.vector("<u8"), self.number("<u4"), self.number("<u4"), self.number("<u8")
        needed = max(-(-width * size // 64), 1) if size else 0
        if stated != size or width > 32 or mask != (1 << width) - 1 or len(units) != needed:
            raise Malformed("its packed numbers do not fit their list")
        if not size:
            return np.zeros(0, dtype=np.uint32)
        bit = np.arange(size, dtype=np.uint64) * np.uint64(width)
        at, shift = (bit >> 6).astype(np.int64), bit & np.uint64(63)
        low = units[at] >> shift
        # A shift by 64 is undefined, so the bits of the next word move in two steps.
        high = units[np.minimum(at + 1, len(units) - 1)] << np.uint64(1) << (np.uint64(63) - shift)
        return ((low | high) & np.uint64(mask)).astype(np.uint32)

    def bits(self, *indexes: str) -> np.ndarray:
        """A bit vector, (n,) uint8 of 0 and 1, with exactly these indexes, all of them correct."""
        units, size, ones = self.vector("<u8"), self.number("<u4"), self.number("<u4")
        stored = {name: self.vector("<u4") for name in ("ranks", "zeros", "ones")}
        if len(units) != -(-size // 64):
            raise Malformed("a bit vector differs from its stated length")
        bits = np.unpackbits(units.view(np.uint8), bitorder="little")
        if bits[size:].any():
            raise Malformed("a bit vector has bits after its end")
        bits = bits[:size]
        if np.count_nonzero(bits) != ones:
            raise Malformed("a bit vector has a wrong number of bits")
        for name, values in stored.items():
            expected: np.ndarray | list[int] = []
            if name in indexes:
                expected = _ranks(units, size) if name == "ranks" else _positions(bits == (name == "ones"), size)
            if not np.array_equal(values, expected):
                raise Malformed("an index does not fit its bit vector")
        return bits


def _ranks(units: np.ndarray, size: int) -> np.ndarray:
    """The rank index of a bit vector: for each block of 512 bits and one more, the number of 1s before it (32 bits),
    and before its second to eighth word of 64 bits (7, 8, 8, 9 and 9, 9, 9 bits)."""
    blocks = -(-size // BLOCK) + 1
    counts = np.zeros(blocks * 8, dtype=np.uint32)
    counts[: len(units)] = np.bitwise_count(units)
    within = np.cumsum(counts.reshape(blocks, 8), axis=1, dtype=np.uint32).T
    before = np.cumsum(within[7], dtype=np.uint32) - within[7]
    low = within[0] | within[1] << 7 | within[2] << 15 | within[3] << 23
    return np.stack([before, low, within[4] | within[5] << 9 | within[6] << 18], axis=1).reshape(-1)


def _positions(marked: np.ndarray, size: int) -> np.ndarray:
    """The select index of a bit vector: the position of every 512th of the marked bits, and its size."""
    return np.append(np.flatnonzero(marked)[::BLOCK], size)
