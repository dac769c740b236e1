"""The tokens from which drafts have stepped back, because they began a phrase that no draft may contain."""

from __future__ import annotations

from collections import Counter, defaultdict

from core.noise import SeededNoise

NONE: frozenset[int] = frozenset()


class RemovedTokens:
    """The tokens that no longer follow a text in the drafts of one request.

    Attributes:
        apart: whether each draft has its own, by its slot, as drafts that are drawn independently do. Others share
            them.
        prefix: the number of tokens before the drafts, with which every context begins.
    """

    def __init__(self, prefix: int, apart: bool = False) -> None:
        self.apart = apart
        self.prefix = prefix
        self._always: defaultdict[tuple[int, ...], set[int]] = defaultdict(set)
        self._after: defaultdict[tuple[int, tuple[int, ...]], set[int]] = defaultdict(set)
        self._positions: defaultdict[int, list[int]] = defaultdict(list)
        self._times = Counter[int]()

    def __bool__(self) -> bool:
        """Whether any are removed."""
        return bool(self._after or self._always)

    def remove(self, ids: tuple[int, ...], token: int) -> None:
        """Removes a token after the first ones of a draft, in all drafts."""
        self._always[ids].add(token)

    def step_back(self, slot: int, ids: list[int], at: int) -> None:
        """Removes token number `at` of a draft after the tokens before it."""
        self._times[slot] += 1
        draft = slot if self.apart else 0
        self._after[draft, tuple(ids[:at])].add(ids[at])
        self._positions[draft].append(self.prefix + at)

    def times(self, slot: int) -> int:
        """How often the draft in this slot has stepped back."""
        return self._times[slot]

    def after(self, context: list[int], slot: int = 0) -> set[int] | frozenset[int]:
        """The tokens that are removed after a context of a draft."""
        ids = tuple(context[self.prefix :])
        removed, always = self._after.get((slot if self.apart else 0, ids), NONE), self._always.get(ids, NONE)
        return removed | always

    def noise(self, seed: int, slot: int) -> SeededNoise:
        """The noise of a draft. What is drawn after a step back is independent of what was drawn there before."""
        return SeededNoise(seed, slot, renewed=tuple(self._positions[slot]) if self.apart else ())
