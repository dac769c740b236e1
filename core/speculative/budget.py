"""The budget of speculation: how deep to draft, and how many proposals to verify.

How likely a proposal is accepted is learnt while decoding. The tree is cut to the n proposals with the most expected
tokens per millisecond, by the machine's cost curve t(n) (`core.speculative.cost`):

    n* = argmax_n  (1 + Σ_{c among the n likeliest} P(c accepted)) / t(1 + n)

What speculation has lost against plain decoding is summed up; where more than a small share would be lost, it ends.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from core.speculative.drafters.base import Drafter
from core.speculative.tree import TokenTree

SLACK = 0.02  # share of plain decoding's time that speculation may lose
CHEAP = 0.05  # steps of plain decoding for a level; cheaper levels are drafted first and chosen among afterwards
GRACE = 128  # tokens whose slack is there from the start, to find out whether speculation pays

Curve = Callable[[int], float]  # tokens of a pass -> ms


class Estimates:
    """How often proposals are accepted once their parents are, by the drafter's confidence and by depth. Learns fast:
    what is old counts less. Outlives a generation, so that the next one starts knowing."""

    BELIEF = 4.0  # proposals that the first belief counts for
    MEMORY = 200.0  # proposals; beyond that, older ones fade
    EDGES = (0.02, 0.05, 0.1, 0.2, 0.35, 0.5, 0.65, 0.8, 0.9)

    def __init__(self) -> None:
        self._tried = np.zeros((len(self.EDGES) + 1, 2))
        self._held = np.zeros((len(self.EDGES) + 1, 2))

    def chance(self, confidence: float, depth: int) -> float:
        """P(accepted | its parent was). The first belief is half the drafter's confidence: to be proven."""
        at = self._place(confidence, depth)
        return (self._held[at] + self.BELIEF * 0.5 * confidence) / (self._tried[at] + self.BELIEF)

    def note(self, confidence: float, depth: int, accepted: bool) -> None:
        """One proposal whose parent was accepted was looked at."""
        at = self._place(confidence, depth)
        if self._tried[at] >= self.MEMORY:
            self._tried[at] *= 0.9
            self._held[at] *= 0.9
        self._tried[at] += 1
        self._held[at] += accepted

    def chances(self, tree: TokenTree) -> np.ndarray:
        """(n,) P(accepted), parents and all."""
        return tree.products([self.chance(q, d) for q, d in zip(tree.confidence, tree.depths, strict=True)])

    def _place(self, confidence: float, depth: int) -> tuple[int, int]:
        return int(np.searchsorted(self.EDGES, confidence)), min(depth, 1)


def best_size(chances: np.ndarray, cost: Curve, most: int) -> tuple[list[int], float]:
    """The proposals worth verifying, out of those with these chances, and the expected tokens per ms with them.

    A child is never likelier than its parent and stands behind it, so what is chosen is a tree.
    """
    order = np.argsort(-chances, kind="stable")[:most]
    expected = 1.0 + np.concatenate([[0.0], np.cumsum(chances[order])])
    rates = expected / np.array([cost(1 + n) for n in range(len(order) + 1)])
    n = int(rates.argmax())
    return sorted(order[:n].tolist()), float(rates[n])


class Levels:
    """How deep to draw: acceptance per level, for drafters whose proposals must not be chosen among afterwards."""

    BELIEF, FIRST, MEMORY = 4.0, 0.5, 100.0
    FADING = 0.97

    def __init__(self, deepest: int = 8) -> None:
        self._tried, self._held = np.zeros(deepest), np.zeros(deepest)
        self.ms = 0.0  # drafting one level, a running mean

    def note(self, depth: int, accepted: bool) -> None:
        depth = min(depth, len(self._tried) - 1)
        if self._tried[depth] >= self.MEMORY:
            self._tried[depth] *= 0.9
            self._held[depth] *= 0.9
        self._tried[depth] += 1
        self._held[depth] += accepted

    def fade(self) -> None:
        """Nothing was drafted, for it would not have paid: what is known of it is growing old."""
        self._tried *= self.FADING
        self._held *= self.FADING

    def took(self, ms: float, levels: int) -> None:
        """Drafting so many levels took so long."""
        each = ms / max(levels, 1)
        self.ms = each if not self.ms else 0.8 * self.ms + 0.2 * each

    def best(self, cost: Curve, pace: float, width: int, most: int) -> int:
        """The depth with the most expected tokens per ms; 0 where none beats a plain step. Passes take `pace` times
        what the curve says."""
        rates = (self._held + self.BELIEF * self.FIRST) / (self._tried + self.BELIEF)
        reach = np.cumprod(rates)
        best, depth = 1.0 / (cost(1) * pace), 0
        for d in range(1, min(len(reach), most // width) + 1):
            rate = (1.0 + reach[:d].sum()) / (cost(1 + d * width) * pace + d * self.ms)
            if rate > best:
                best, depth = rate, d
        return depth


class Memory:
    """Estimates of a drafter with a target: how often its proposals are accepted, and its cost so far. It outlives a
    generation.

    Attributes:
        lost: steps of plain decoding that speculation has cost so far; below 0 it has saved.
        tokens: decoded so far.
    """

    def __init__(self) -> None:
        self.estimates, self.levels = Estimates(), Levels()
        self.lost, self.tokens = 0.0, 0

    def learn(self, tree: TokenTree, places: list[int], accepted: int | None, depth: int) -> None:
        """Children of one parent were looked at, and one of them, or none, was accepted."""
        for place in places:
            self.estimates.note(tree.confidence[place], depth, place == accepted)
        self.levels.note(depth, accepted is not None)


class FixedBudget:
    """A given number of proposals."""

    def __init__(self, size: int) -> None:
        self.size = size

    def limits(self, drafter: Drafter, depth: int, most: int, left: int) -> tuple[int, int] | None:
        """Levels to draft and proposals to verify at most, in the next cycle; None ends speculation.

        Args:
            depth: levels that the text has room for.
            most: proposals that the cache has room for.
            left: tokens until the text has its full length.
        """
        most = min(self.size, most)
        return min(depth, max(most // drafter.width, 1)) if drafter.draws else depth, most

    def worth_verifying(self, tree: TokenTree, most: int) -> TokenTree:
        """The part of a tree of proposals that is verified."""
        if len(tree) <= most:
            return tree
        return tree.only(np.argsort(-tree.products(), kind="stable")[:most].tolist())

    def account(self, ms: float, drafting: float, fed: int, tokens: int, first: bool) -> None:
        """A cycle's pass took `ms` and its drafting so long; it fed so many tokens and gave so many. `first`: of its
        generation."""


class Budget(FixedBudget):
    """As many proposals as pay."""

    def __init__(self, memory: Memory, cost: Curve) -> None:
        super().__init__(0)
        self.memory, self._cost = memory, cost
        self._pace = 1.0  # how long passes take now, as a share of the curve

    def limits(self, drafter: Drafter, depth: int, most: int, left: int) -> tuple[int, int] | None:
        cost, memory, most = self._cost, self.memory, min(drafter.most, most)
        slack = SLACK * max(memory.tokens + left, GRACE) - memory.lost
        while most and cost(1 + most) > (1 + slack) * cost(1):
            most -= 1  # so that one pass loses no more than the slack
        level = memory.levels.ms / (cost(1) * self._pace)  # steps of plain decoding that drafting one level takes
        if not most or level > slack:
            return None
        depth = min(depth, int(slack / level)) if level else 1  # one level, to measure its time
        if drafter.draws or level > CHEAP:
            # Drafting costs something, or must not be chosen among afterwards: decide before it.
            depth = min(depth, memory.levels.best(cost, self._pace, drafter.width, most))
        if drafter.draws:
            depth = min(depth, max(most // drafter.width, 1))
        if depth < 1:
            memory.levels.fade()
        return depth, most

    def worth_verifying(self, tree: TokenTree, most: int) -> TokenTree:
        return tree.only(best_size(self.memory.estimates.chances(tree), self._cost, most)[0])

    def account(self, ms: float, drafting: float, fed: int, tokens: int, first: bool) -> None:
        pace = ms / self._cost(fed)
        self._pace = pace if first else 0.8 * self._pace + 0.2 * pace
        self.memory.tokens += tokens
        # The curve, not the clock, gives the cost of this pass: a pass that others slowed down is no reason to stop.
        self.memory.lost += (self._cost(fed) + drafting / self._pace) / self._cost(1) - tokens
