"""Cycles of speculative decoding: propose, verify, emit.

A cycle: limit the proposals → draft → prune → one pass over each text's last token and its tree → accept from the root
downwards → keep the accepted path in the cache. The target's own token after the path is the last token of the next
cycle, so no token is fed twice.
"""

from __future__ import annotations

import math
import time
from collections.abc import Generator
from dataclasses import dataclass, field
from typing import Literal

import numpy as np
from torch import Tensor

from core.models.base import Row, Sequence
from core.noise import SeededNoise
from core.speculative.acceptance import rejection
from core.speculative.budget import Budget, Curve, FixedBudget, Memory
from core.speculative.drafters.base import Drafter, Moment
from core.speculative.options import SpeculationOptions
from core.speculative.target import TargetSampling
from core.speculative.tree import DraftDistribution, TokenTree

How = Literal["plain", "accepted", "tolerated", "corrected", "bonus"]


@dataclass(frozen=True)
class Token:
    """One token of the text.

    Attributes:
        id: the token.
        how: plain (without proposals at its position), accepted (a proposal that the target chose), tolerated (a
            proposal that only a tolerant rule accepted), corrected (the target's own in place of a proposal), bonus
            (the target's own after a completely accepted path).
        lts: the local tolerance score of a token that ARC tolerated, else None.
        logprob: ln p(token) of the target, after temperature and rule.
    """

    id: int
    how: How
    logprob: float
    lts: float | None = None


@dataclass
class Statistics:
    """Counts of a generation so far.

    Attributes:
        cycles: passes of the target, without the pass over the prompt.
        tokens: of the text, without the token that the prompt's pass gave.
        drafted, pruned, proposed, accepted, tolerated: the number of proposals made by the drafter, dropped by pruning,
            verified (proposals that would not have saved time are neither), accepted, and tolerated.
        fed: tokens computed by the target, without the prompt.
        seconds, drafting: the total time of the passes with their drafting, and the drafter's part of it.
        prefill, accepting: the time of the pass over the prompt, and of choosing tokens after the passes, in seconds.
        ms: the time of the same passes by the cost curve, if there is one, with the drafting.
        notice: a sentence for the user if speculation has switched itself off.
    """

    cycles: int = 0
    tokens: int = 0
    drafted: int = 0
    pruned: int = 0
    proposed: int = 0
    accepted: int = 0
    tolerated: int = 0
    fed: int = 0
    seconds: float = 0.0
    drafting: float = 0.0
    prefill: float = 0.0
    accepting: float = 0.0
    ms: float = 0.0
    notice: str | None = None

    @property
    def accept_length(self) -> float:
        """τ: tokens of the text per pass, including the target's own."""
        return self.tokens / self.cycles if self.cycles else 0.0

    def count(self, proposed: int, tokens: int, seconds: float, drafting: float, curve: Curve | None) -> None:
        """Adds one cycle, with the seconds of its pass and of its drafting."""
        self.cycles += 1
        self.tokens += tokens
        self.proposed += proposed
        self.fed += 1 + proposed
        self.seconds += seconds + drafting
        self.drafting += drafting
        if curve is not None:
            self.ms += curve(1 + proposed) + drafting * 1000

    @property
    def switched_off(self) -> str:
        """The notice for the user if speculation ends now."""
        if not self.cycles:
            return (
                "Speculation was switched off: from the cost of passes on this machine and the tokens accepted before, "
                "it is slower than one token per pass."
            )
        passes = "1 pass" if self.cycles == 1 else f"{self.cycles} passes"
        return (
            f"Speculation was switched off after {passes}: longer passes with {self.accept_length:.2f} tokens each are "
            "slower on this machine than one token per pass."
        )


@dataclass
class Text:
    """One of the texts that `cycles` continues together.

    Attributes:
        sequence: of the target; it contains the text without its last token.
        ids: the text, at least one token; it grows in place.
        end: the highest number of tokens in the text.
        p: (V,) the distribution from which the last token was chosen.
        statistics: counts of this text.
        noise: the noise with which tokens are sampled; None takes the most probable.
        sampling: how its tokens are chosen; None as the options say.
    """

    sequence: Sequence
    ids: list[int]
    end: int
    p: np.ndarray
    statistics: Statistics = field(default_factory=Statistics)
    noise: SeededNoise | None = None
    sampling: TargetSampling | None = None


Cycles = Generator[tuple[list[Row], list[list[Token]]], tuple[list[Tensor], float], None]


def cycles(
    texts: list[Text],
    options: SpeculationOptions,
    drafter: Drafter | None,
    curve: Curve | None = None,
    memory: Memory | None = None,
    temperature: float | None = None,
) -> Cycles:
    """Continues texts together, with one call of the drafter and one pass for all in a cycle.

    Yields the rows of the next pass, one for each text that is not at its end, with every text's tokens of the last
    pass. Receives the logits (1 + n, V) of each row and the seconds of the pass. The last yielded rows are [].

    Args:
        texts: of one target, at least one.
        curve: ms of a pass over n tokens; needed for a drafter and tree_size="auto".
        memory: of acceptance and cost, from earlier generations with this drafter.
        temperature: the temperature of sampling, if the options' rule does not contain it; None if it does.
    """
    yield from _Cycles(texts, options, drafter, curve, memory or Memory(), temperature).steps()


class _Cycles:
    """Texts of one target that are continued together.

    Attributes:
        drafter: None once speculation has switched itself off.
        active: the numbers of the texts that are not at their end.
        unstopped: the number of those without a token that ends them.
        tokens: of the latest pass, by text.
    """

    def __init__(
        self,
        texts: list[Text],
        options: SpeculationOptions,
        drafter: Drafter | None,
        curve: Curve | None,
        memory: Memory,
        temperature: float | None,
    ) -> None:
        self.texts, self.options, self.memory, self.temperature = texts, options, memory, temperature
        self.target = texts[0].sequence.model
        self.drafter = None if options.mode == "off" or options.tree_size == 0 else drafter
        self.stop = self.target.tokenizer.eos_ids if options.stop_ids is None else options.stop_ids
        self.active: list[int] = []
        self.unstopped = len(texts)
        self.tokens: list[list[Token]] = [[] for _ in texts]
        self.curve = curve
        if options.tree_size == "auto":
            self.budget = Budget(memory, self.cost, self.plain_cost)
        else:
            self.budget = FixedBudget(options.tree_size)

    def steps(self) -> Cycles:
        while active := [n for n, text in enumerate(self.texts) if not self.over(text)]:
            self.active = active
            self.unstopped = sum(text.ids[-1] not in self.stop for text in self.texts)
            drafted, drafting = self.propose()
            trees = {n: drafted.get(n, TokenTree()) for n in active}
            logits, seconds = yield [_row(self.texts[n], trees[n]) for n in active], self.tokens
            self.tokens = [[] for _ in self.texts]
            for n, after in zip(active, logits, strict=True):
                self.emit(n, trees[n], after, seconds / len(active), drafting if n in drafted else 0.0)
        yield [], self.tokens

    def propose(self) -> tuple[dict[int, TokenTree], float]:
        """Drafts trees by the number of their text, which leave room for the target's own tokens after them, and prunes
        them. Returns also each text's share of the seconds."""
        limits = self.limits()
        if self.drafter is None or not limits:
            return {}, 0.0
        began = time.perf_counter()
        moments = [_moment(self.texts[n], self.drafter, self.options, self.temperature) for n in limits]
        levels = [depth for depth, _ in limits.values()]
        drafted = self.drafter.draft_all(moments, levels)
        seconds = time.perf_counter() - began
        if all(
            self.texts[n].statistics.cycles for n in limits
        ):  # the first draft reads whole texts, and does not count
            self.memory.levels.took(seconds * 1000, sum(levels), len(self.active))
        trees = zip(limits.items(), drafted, strict=True)
        return {n: self.verified(self.texts[n], tree, most) for (n, (_, most)), tree in trees}, seconds / len(limits)

    def limits(self) -> dict[int, tuple[int, int]]:
        """The highest numbers of levels and of verified proposals, for each text that has any."""
        limits: dict[int, tuple[int, int]] = {}
        for n in self.active:
            text = self.texts[n]
            left, most = text.end - len(text.ids), self.target.context_length - len(text.ids)
            if self.drafter is None or (room := min(left - 1, most)) < 1:
                continue
            depth = min(self.options.depth, room)
            limit = self.budget.limits(self.drafter, depth, most, left, len(self.active))
            if limit is None:  # for all texts, because they share the cost of drafting
                self.drafter, text.statistics.notice = None, text.statistics.switched_off
            elif limit[0] >= 1:
                limits[n] = limit
        return limits

    def verified(self, text: Text, tree: TokenTree, most: int) -> TokenTree:
        """The part of a tree that is worth a pass, at most `most` proposals."""
        pruned = self.options.pruned(tree, text.p)
        text.statistics.drafted += len(tree)
        text.statistics.pruned += len(tree) - len(pruned)
        return self.budget.worth_verifying(pruned if self.target.takes_trees else pruned.first_chain(), most)

    def emit(self, n: int, tree: TokenTree, after: Tensor, seconds: float, drafting: float) -> None:
        """Chooses a text's next tokens by the logits (1 + n, V) of its pass, and keeps them in the cache, but for the
        target's own token after the accepted path, which the next cycle feeds."""
        text, statistics = self.texts[n], self.texts[n].statistics
        began = time.perf_counter()
        path = self.accept(n, tree, after)
        statistics.accepting += time.perf_counter() - began
        text.sequence.keep([0, *(node + 1 for node in path)])
        added = len(self.tokens[n])
        statistics.count(len(tree), added, seconds, drafting, None if self.curve is None else self.cost)
        if self.drafter is not None:
            first = statistics.cycles == 1
            self.budget.account(seconds * 1000, drafting * 1000, 1 + len(tree), added, first=first)

    def accept(self, n: int, tree: TokenTree, after: Tensor) -> list[int]:
        """Accepts proposals from the root downwards, and returns the path that the target's pass computed. Lossless:
        the target samples a token, which may be among the proposals."""
        o, text, children, at, path = self.options, self.texts[n], tree.children(), -1, list[int]()
        while True:
            p = text.p = (text.sampling or o.sampling).probabilities(after[at + 1], text.ids)
            nodes = children.get(at, [])
            among = [tree.ids[node] for node in nodes]
            sampled = o.draws == "rejection" and text.noise is not None and nodes
            token, which = self.choose(text, p, among, tree.own[at] if sampled else None)
            how: How = "accepted" if which is not None else "corrected" if nodes else "bonus" if path else "plain"
            tolerated, lts = o.tolerated(tree, nodes, p, self.target, len(path), token)
            if tolerated is not None:
                which, how, token = tolerated, "tolerated", among[tolerated]
            if nodes:
                self.memory.learn(tree, nodes, None if which is None else nodes[which], len(path))
            text.ids.append(token)
            self.tokens[n].append(Token(token, how, logarithm(p, token), lts))
            text.statistics.accepted += how == "accepted"
            text.statistics.tolerated += how == "tolerated"
            if which is None or self.over(text):  # the text's last token is neither fed nor kept in this cycle
                return path
            at = nodes[which]
            path.append(at)

    def choose(
        self, text: Text, p: np.ndarray, among: list[int], own: DraftDistribution | None
    ) -> tuple[int, int | None]:
        """The target's token, and its number among the proposals if it is one of them.

        Args:
            own: for the rejection sampler, the drafter's distribution of which the proposals are samples.
        """
        if own is None or text.noise is None:
            token = drawn(p, text.noise, len(text.ids))
            return token, among.index(token) if token in among else None
        uniform = text.noise.uniform(len(text.ids), len(among))
        which, left = rejection(p, own.over(len(p)), among, uniform.tolist())
        return (drawn(left, text.noise, len(text.ids)) if which is None else among[which]), which

    def over(self, text: Text) -> bool:
        return len(text.ids) >= text.end or text.ids[-1] in self.stop

    def cost(self, n: int) -> float:
        """One text's share of the ms of a pass in which every text has n tokens."""
        assert self.curve is not None
        return self.curve(len(self.active) * n) / len(self.active)

    def plain_cost(self) -> float:
        """One text's share of the ms of a pass with one token per text, if no text were at its full length."""
        assert self.curve is not None
        return self.curve(self.unstopped) / self.unstopped


def _moment(text: Text, drafter: Drafter, o: SpeculationOptions, temperature: float | None) -> Moment:
    features, noise, sampled = text.sequence.features if drafter.layers else None, text.noise, False
    if o.draws == "independent":
        noise = None
    elif o.draws == "rejection" and noise is not None:
        noise, sampled = noise.other(SeededNoise.PROPOSALS), True
    divisor = temperature or o.sampling.overall_temperature or 1.0
    return Moment(text.ids, features, noise, divisor, o.needs_distributions, sampled)


def _row(text: Text, tree: TokenTree) -> Row:
    inputs, parents = tree.under(text.ids[-1])
    return Row(text.sequence, inputs, parents=parents)


def drawn(p: np.ndarray, noise: SeededNoise | None, position: int) -> int:
    """The token that is sampled from p (V,) at a position; without noise the most probable one."""
    return int(p.argmax()) if noise is None else noise.draw(p, position)


def logarithm(p: np.ndarray, token: int) -> float:
    """ln p of a token, which is finite."""
    return math.log(max(float(p[token]), 1e-300))
