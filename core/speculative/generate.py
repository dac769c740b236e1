"""Speculative decoding: a drafter proposes a tree of tokens, the target verifies it in one pass, and the text continues
with one of its paths.

A cycle: limit the proposals → draft → prune → one pass over the text's last token and the tree → accept from the root
downwards → keep the accepted path in the cache. The target's own token after the path is the last token of the next
cycle, so no token is fed twice.

mode="off" is plain decoding, one token per pass. "lossless" has exactly its distribution. "arc" also accepts proposals
by a tolerant rule (ARC's LTS by default), and prunes before it verifies.
"""

from __future__ import annotations

import math
import time
from collections.abc import Generator, Iterator
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
from torch import Tensor

from core.errors import InputError
from core.models.base import LanguageModel, Row, Sequence
from core.noise import SeededNoise
from core.speculative.acceptance import rejection
from core.speculative.budget import Budget, Curve, FixedBudget, Memory
from core.speculative.cost import CostCurve, cost_curve
from core.speculative.drafters.base import Drafter, Moment
from core.speculative.options import SpeculationMode, SpeculationOptions
from core.speculative.tree import TokenTree

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


def generate(
    target: LanguageModel,
    drafter: Drafter | None,
    prefix_ids: list[int],
    mode: SpeculationMode = "lossless",
    *,
    sequence: Sequence | None = None,
    curve: CostCurve | None = None,
    estimates: Memory | None = None,
    **options: Any,
) -> Generation:
    """Continues a text. Returns an iterator over `Token`s with running `.statistics`, which may be stopped at any
    token.

    Args:
        target: the model that the text's distribution comes from.
        drafter: proposes tokens; None is plain decoding.
        prefix_ids: the text so far, at least one id.
        mode: "off", "lossless" or "arc".
        sequence: of the target; it may contain a part of the text. Afterwards it contains only text.
        curve: t(n); None is measured once per model and machine (only for tree_size="auto").
        estimates: of acceptance and cost, from earlier generations with this drafter.
        length: the highest number of tokens. stop_ids: tokens that end the text; None for the tokenizer's.
        temperature, rule: how the target's token is sampled; at 0 it takes the most probable. rule: of `core.samplers`.
        seed: of all samples.
        draws: "coupled": the target samples a token, which may be among the proposals, and the drafter knows the noise;
            "independent": the drafter does not know it, and proposes what is most probable, as EAGLE-3's authors do;
            "rejection": proposals are samples of the drafter's own distribution, accepted with probability
            min(1, p / q), for a `ModelDrafter` and a fixed tree_size. All are lossless; only the text of the rejection
            sampler is not that of plain decoding for each seed.
        tree_size: "auto", or the highest number of verified proposals; a fixed size disables automatic switching off.
        depth: the highest number of drafted levels.
        tolerance: of mode "arc": "lts" (needs a `calibration` for this temperature, and no rule), "published" (the same
            as its paper has it; see `PUBLISHED` in `core.speculative.options`), "typical" (Medusa), "none", or "fsd"
            (with `threshold`, for drafters with a distribution).
        theta: the lowest accepted LTS. prune, lam, epsilon: pruning before verification (eqs. 1-4). prune_by: another
            rule of `core.speculative.arc.RULES` that keeps the same number of proposals, for comparison; prune_alpha is
            its weight of the depth. prune_noise: whether pruning knows the noise of the samples, as the drafter does;
            False with lam=0 is the paper's equations.
    Raises: InputError for an empty text or a value out of range; CalibrationError; ContextFull.
    """
    o = SpeculationOptions(mode=mode, **options)
    statistics, ids = Statistics(), list(prefix_ids)
    if not ids:
        raise InputError("An empty prefix given; at least one token id expected.")
    if drafter is not None:
        o.check(target, drafter)
        if curve is None and o.mode != "off" and o.tree_size == "auto":
            curve = cost_curve(target)
    return Generation(ids, statistics, _tokens(target, drafter, ids, o, statistics, sequence, curve, estimates))


class Generation(Iterator[Token]):
    """Yields the tokens of a text while they are made.

    Attributes:
        ids: the text so far, with the prefix.
        statistics: counts so far.
    """

    def __init__(self, ids: list[int], statistics: Statistics, tokens: Generator[Token, None, None]) -> None:
        self.ids, self.statistics, self._tokens = ids, statistics, tokens

    def __next__(self) -> Token:
        return next(self._tokens)

    def close(self) -> None:
        """Stops the generation; allowed at any token, and twice."""
        self._tokens.close()


def _tokens(
    target: LanguageModel,
    drafter: Drafter | None,
    ids: list[int],
    o: SpeculationOptions,
    statistics: Statistics,
    sequence: Sequence | None,
    curve: Curve | None,
    memory: Memory | None,
) -> Generator[Token, None, None]:
    """Runs `cycles` to the end, with a new sequence if none is given."""
    held = target.open() if sequence is None else sequence
    noise = None if o.sampling.greedy else SeededNoise(o.seed)
    try:
        if drafter is not None and drafter.layers and o.mode != "off":
            held.reveal()
        began = time.perf_counter()
        logits = held.sync(ids)
        statistics.prefill = time.perf_counter() - began
        p = o.sampling.probabilities(logits, ids)
        first = _drawn(p, noise, len(ids))
        ids.append(first)
        yield Token(first, "plain", _logarithm(p, first))
        text = Text(held, ids, len(ids) + o.length - 1, p, statistics, noise)
        running = cycles([text], o, drafter, curve, memory)
        rows, (tokens,) = next(running)
        while rows:
            began = time.perf_counter()
            after = target.forward(rows)
            rows, (tokens,) = running.send((after, time.perf_counter() - began))
            yield from tokens
    finally:
        if sequence is None:
            held.close()


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
    """

    sequence: Sequence
    ids: list[int]
    end: int
    p: np.ndarray
    statistics: Statistics = field(default_factory=Statistics)
    noise: SeededNoise | None = None


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
        curve, memory: see `generate`.
        temperature: the temperature of sampling, if the options' rule does not contain it; None if it does.
    """
    o, target, memory = options, texts[0].sequence.model, memory or Memory()
    if curve is None and o.tree_size == "auto":
        curve = cost_curve(target)
    drafter = None if o.mode == "off" or o.tree_size == 0 else drafter
    stop = target.tokenizer.eos_ids if o.stop_ids is None else o.stop_ids
    tokens: list[list[Token]] = [[] for _ in texts]
    active: list[int] = []  # the numbers of the texts that are not at their end
    unstopped = len(texts)  # the number of those without a token that ends them

    def over(text: Text) -> bool:
        return len(text.ids) >= text.end or text.ids[-1] in stop

    def cost(n: int) -> float:
        """Returns one text's share of the ms of a pass in which every text has n tokens."""
        assert curve is not None
        return curve(len(active) * n) / len(active)

    def plain() -> float:
        """Returns one text's share of the ms of a pass with one token per text, if no text were at its full length."""
        assert curve is not None
        return curve(unstopped) / unstopped

    budget = FixedBudget(o.tree_size) if o.tree_size != "auto" else Budget(memory, cost, plain)

    def accept(n: int, tree: TokenTree, after: Tensor) -> list[int]:
        """Accepts proposals from the root downwards, and returns the path that the target's pass computed. Lossless:
        the target samples a token, which may be among the proposals."""
        text, children, at, path = texts[n], tree.children(), -1, list[int]()
        while True:
            p = text.p = o.sampling.probabilities(after[at + 1], text.ids)
            nodes = children.get(at, [])
            among = [tree.ids[node] for node in nodes]
            if o.draws == "rejection" and text.noise is not None and nodes:
                uniform = text.noise.uniform(len(text.ids), len(among))
                which, left = rejection(p, tree.own[at].over(len(p)), among, uniform.tolist())
                token = _drawn(left, text.noise, len(text.ids)) if which is None else among[which]
            else:
                token = _drawn(p, text.noise, len(text.ids))
                which = among.index(token) if token in among else None
            how: How = "accepted" if which is not None else "corrected" if nodes else "bonus" if path else "plain"
            tolerated, lts = o.tolerated(tree, nodes, p, target, len(path), token)
            if tolerated is not None:
                which, how, token = tolerated, "tolerated", among[tolerated]
            if nodes:
                memory.learn(tree, nodes, None if which is None else nodes[which], len(path))
            text.ids.append(token)
            tokens[n].append(Token(token, how, _logarithm(p, token), lts))
            text.statistics.accepted += how == "accepted"
            text.statistics.tolerated += how == "tolerated"
            if which is None or over(text):  # the text's last token is neither fed nor kept in this cycle
                return path
            at = nodes[which]
            path.append(at)

    while active := [n for n, text in enumerate(texts) if not over(text)]:
        unstopped = sum(text.ids[-1] not in stop for text in texts)
        # 1. Propose trees that leave room for the target's own tokens after them.
        limits: dict[int, tuple[int, int]] = {}  # the highest numbers of levels and of verified proposals
        for n in active:
            text, s = texts[n], texts[n].statistics
            left, most = text.end - len(text.ids), target.context_length - len(text.ids)
            if drafter is not None and (room := min(left - 1, most)) >= 1:
                limit = budget.limits(drafter, min(o.depth, room), most, left, len(active))
                if limit is None:  # for all texts, because they share the cost of drafting
                    drafter, s.notice = None, s.switched_off
                elif limit[0] >= 1:
                    limits[n] = limit
        trees, drafting = (
            {n: TokenTree() for n in active},
            dict.fromkeys(active, 0.0),
        )  # each text's share of the seconds
        if drafter is not None and limits:
            began = time.perf_counter()
            moments = [_moment(texts[n], drafter, o, temperature) for n in limits]
            levels = [depth for depth, _ in limits.values()]
            drafted = drafter.draft_all(moments, levels)
            seconds = time.perf_counter() - began
            drafting |= dict.fromkeys(limits, seconds / len(limits))
            if all(texts[n].statistics.cycles for n in limits):  # the first draft reads whole texts and does not count
                memory.levels.took(seconds * 1000, sum(levels), len(active))
            for (n, (_, most)), tree in zip(limits.items(), drafted, strict=True):
                s = texts[n].statistics
                s.drafted += len(tree)
                before, tree = len(tree), o.pruned(tree, texts[n].p)
                s.pruned += before - len(tree)
                if not target.takes_trees:
                    tree = tree.first_chain()
                trees[n] = budget.worth_verifying(tree, most)

        # 2. One pass of the target over each text's last token and the tree below it.
        rows = [_row(texts[n], trees[n]) for n in active]
        logits, seconds = yield rows, tokens
        each, tokens = seconds / len(rows), [[] for _ in texts]

        for n, after in zip(active, logits, strict=True):
            # 3. Choose the next tokens.
            tree, s, began = trees[n], texts[n].statistics, time.perf_counter()
            path = accept(n, tree, after)
            s.accepting += time.perf_counter() - began

            # 4. Keep the text's last token and the accepted path; the target's own token is fed in the next cycle.
            texts[n].sequence.keep([0, *(node + 1 for node in path)])
            s.count(len(tree), len(tokens[n]), each, drafting[n], None if curve is None else cost)
            if drafter is not None:
                fed, added = 1 + len(tree), len(tokens[n])
                budget.account(each * 1000, drafting[n] * 1000, fed, added, first=s.cycles == 1)
    yield [], tokens


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


def _drawn(p: np.ndarray, noise: SeededNoise | None, position: int) -> int:
    return int(p.argmax()) if noise is None else noise.draw(p, position)


def _logarithm(p: np.ndarray, token: int) -> float:
    return math.log(max(float(p[token]), 1e-300))
