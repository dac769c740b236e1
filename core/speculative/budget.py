"""The budget of speculation: how deep to draft, and how many proposals to verify.

The probability that a proposal is accepted is estimated while decoding. The tree is cut to the n proposals with the
highest expected number of tokens per millisecond, by the machine's cost curve t(n) (`core.models.costs`):

    n* = argmax_n  (1 + Σ_{c among the n most probable} P(c accepted)) / t(1 + n)

The time that speculation has lost against plain decoding is summed up; speculation ends before the loss exceeds a small
share.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from core.speculative.drafters.base import Drafter
from core.speculative.tree import TokenTree

SLACK = 0.004  # share of plain decoding's time that speculation may lose
CHEAP = 0.05  # steps of plain decoding per level; from cheaper levels, proposals are selected after drafting
GRACE = 640  # the tokens whose slack is granted at the start, so that the first estimates can be made

Curve = Callable[[int], float]  # tokens of a pass -> ms


class _Rates:
    """How often proposals were accepted, in several classes. Old observations count less."""

    PRIOR = 4.0  # the weight of the prior, in proposals

    def __init__(self, shape: tuple[int, ...], memory: float) -> None:
        """`memory`: proposals; beyond this number, older ones lose weight."""
        self.tried, self.accepted, self._memory = np.zeros(shape), np.zeros(shape), memory

    def note(self, at: tuple[int, ...], accepted: bool) -> None:
        if self.tried[at] >= self._memory:
            self.tried[at] *= 0.9
            self.accepted[at] *= 0.9
        self.tried[at] += 1
        self.accepted[at] += accepted

    def rates(self, prior: float, at: tuple[int, ...] = ()) -> np.ndarray:
        return (self.accepted[at] + self.PRIOR * prior) / (self.tried[at] + self.PRIOR)


class Estimates:
    """Estimates how often a proposal is accepted after its parent, by the drafter's confidence and by depth. The
    estimates remain for later generations."""

    EDGES = (0.02, 0.05, 0.1, 0.2, 0.35, 0.5, 0.65, 0.8, 0.9)

    def __init__(self) -> None:
        self._rates = _Rates((len(self.EDGES) + 1, 2), memory=200.0)

    def acceptance_rate(self, confidence: float, depth: int) -> float:
        """Returns P(accepted | its parent was accepted). The prior is half the drafter's confidence."""
        return float(self._rates.rates(0.5 * confidence, self._place(confidence, depth)))

    def note(self, confidence: float, depth: int, accepted: bool) -> None:
        """Records one verified proposal whose parent was accepted."""
        self._rates.note(self._place(confidence, depth), accepted)

    def p_accepted(self, tree: TokenTree) -> np.ndarray:
        """Returns (n,) P(accepted) of each token together with its ancestors."""
        return tree.products([self.acceptance_rate(q, d) for q, d in zip(tree.confidence, tree.depths, strict=True)])

    def _place(self, confidence: float, depth: int) -> tuple[int, int]:
        return int(np.searchsorted(self.EDGES, confidence)), min(depth, 1)


def best_size(p_accepted: np.ndarray, cost: Curve, most: int) -> tuple[list[int], float]:
    """Returns the proposals to verify, given P(accepted) of all, and the expected number of tokens per ms with them.

    A child is never more probable than its parent and comes after it, so the result is a tree.
    """
    order = np.argsort(-p_accepted, kind="stable")[:most]
    expected = 1.0 + np.concatenate([[0.0], np.cumsum(p_accepted[order])])
    rates = expected / np.array([cost(1 + n) for n in range(len(order) + 1)])
    n = int(rates.argmax())
    return sorted(order[:n].tolist()), float(rates[n])


class Levels:
    """Estimates acceptance per level, from which the depth of the next draft follows. For drafters whose levels are
    expensive."""

    FIRST = 0.5  # the prior
    FADING = 0.97
    DEEPEST = 8

    def __init__(self) -> None:
        self._rates = _Rates((self.DEEPEST,), memory=100.0)
        # Running mean of the time that drafting one level takes for each of n texts that are drafted together, by n.
        self._ms: dict[int, float] = {}

    def note(self, depth: int, accepted: bool) -> None:
        """Records whether a proposal at this depth was accepted."""
        self._rates.note((min(depth, self.DEEPEST - 1),), accepted)

    def fade(self) -> None:
        """Reduces the weight of all observations, after a cycle without a draft."""
        self._rates.tried *= self.FADING
        self._rates.accepted *= self.FADING

    def took(self, ms: float, levels: int, texts: int) -> None:
        """Records the time of drafting for `texts` texts together, `levels` levels in all."""
        each = ms / max(levels, 1)
        self._ms[texts] = 0.8 * self._ms.get(texts, each) + 0.2 * each

    def ms(self, texts: int) -> float:
        """Returns one text's share of the time of drafting one level for `texts` texts together; 0 if unknown."""
        return self._ms.get(texts, 0.0)

    def best(self, cost: Curve, pace: float, width: int, most: int, texts: int) -> int:
        """Returns the depth with the highest expected number of tokens per ms; 0 if a plain step is faster. Passes take
        `pace` times the curve's ms."""
        reach, level = np.cumprod(self._rates.rates(self.FIRST)), self.ms(texts)
        best, depth = 1.0 / (cost(1) * pace), 0
        for d in range(1, min(len(reach), most // width) + 1):
            rate = (1.0 + reach[:d].sum()) / (cost(1 + d * width) * pace + d * level)
            if rate > best:
                best, depth = rate, d
        return depth


class Memory:
    """The estimates for a drafter with a target: how often its proposals are accepted, and its cost so far. Several
    generations share one object.

    Attributes:
        lost: the time that speculation has lost so far, in steps of plain decoding; negative if it has saved time.
        tokens: the number of tokens decoded so far.
    """

    def __init__(self) -> None:
        self.estimates, self.levels = Estimates(), Levels()
        self.lost, self.tokens = 0.0, 0

    def learn(self, tree: TokenTree, indices: list[int], accepted: int | None, depth: int) -> None:
        """Records that the children of one parent, at `indices`, were verified, and one of them, or none, accepted."""
        for node in indices:
            self.estimates.note(tree.confidence[node], depth, node == accepted)
        self.levels.note(depth, accepted is not None)


class FixedBudget:
    """A fixed number of proposals."""

    def __init__(self, size: int) -> None:
        self.size = size

    def limits(self, drafter: Drafter, depth: int, most: int, left: int, texts: int) -> tuple[int, int] | None:
        """Returns the highest numbers of levels to draft and of proposals to verify in the next cycle; None ends
        speculation.

        Args:
            depth: the number of levels that the text has room for.
            most: the number of proposals that the cache has room for.
            left: the number of tokens until the text has its full length.
            texts: the number of texts that are drafted for together.
        """
        most = min(self.size, most)
        return min(depth, most), most

    def worth_verifying(self, tree: TokenTree, most: int) -> TokenTree:
        """Returns the part of a tree of proposals that will be verified."""
        if len(tree) <= most:
            return tree
        return tree.only(np.argsort(-tree.products(), kind="stable")[:most].tolist())

    def account(self, ms: float, drafting: float, fed: int, tokens: int, first: bool) -> None:
        """Records one cycle.

        Args:
            ms, drafting: the times of its pass and of its drafting, in ms.
            fed, tokens: the number of tokens that it fed, and of those that it added to the text.
            first: whether it is the first of its generation.
        """


class Budget(FixedBudget):
    """The number of proposals with the highest expected speed."""

    def __init__(self, memory: Memory, cost: Curve, plain: Callable[[], float]) -> None:
        """
        Args:
            cost: ms of a pass over n tokens; a text's share, if several share a pass.
            plain: ms of a step of plain decoding, which is `cost(1)` while no text has reached its full length. Texts
                get there in fewer passes with speculation, and leave the following passes to the others.
        """
        super().__init__(0)
        self.memory, self._cost, self._plain = memory, cost, plain
        self._pace = 1.0  # the current duration of passes, as a share of the curve's

    def limits(self, drafter: Drafter, depth: int, most: int, left: int, texts: int) -> tuple[int, int] | None:
        cost, plain, memory, most = self._cost, self._plain(), self.memory, min(drafter.most, most)
        slack = SLACK * max(memory.tokens + left, GRACE) - memory.lost
        while most and cost(1 + most) > cost(1) + slack * plain:
            most -= 1  # until one pass loses at most the slack
        # A text's share of the time of drafting one level, in steps of plain decoding.
        level = memory.levels.ms(texts) / (plain * self._pace)
        if not most or level > slack:
            return None
        depth = min(depth, int(slack / level)) if level else 1  # one level, to measure its time
        if level > CHEAP:  # the depth is decided before drafting
            depth = min(depth, memory.levels.best(cost, self._pace, drafter.width, most, texts))
        if depth < 1:
            memory.levels.fade()
        return depth, most

    def worth_verifying(self, tree: TokenTree, most: int) -> TokenTree:
        return tree.only(best_size(self.memory.estimates.p_accepted(tree), self._cost, most)[0])

    def account(self, ms: float, drafting: float, fed: int, tokens: int, first: bool) -> None:
        pace = ms / self._cost(fed)
        self._pace = pace if first else 0.8 * self._pace + 0.2 * pace
        self.memory.tokens += tokens
        # The cost comes from the curve and not from the clock, so that other programs' load does not end speculation.
        self.memory.lost += (self._cost(fed) + drafting / self._pace) / self._plain() - tokens
