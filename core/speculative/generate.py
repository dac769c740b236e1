"""Speculative decoding: a drafter proposes a tree of tokens, the target looks at all of it in one pass, and the text
goes on with a path of it.

A cycle: choose how much to propose → draft → prune → one pass over the text's last token and the tree → accept
from there downwards → keep the accepted path in the cache. The token after the path (the target's own) is the last
token of the next cycle, so nothing is ever fed twice.

mode="off" is plain decoding, one token per pass. "lossless" has exactly its distribution. "arc" also lets
proposals stand that a tolerant rule passes (ARC's LTS by default), and prunes before verifying.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Generator, Iterator
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from torch import Tensor

from core.controls import PRUNE_EPSILON, PRUNE_LAMBDA, THETA
from core.dice import Dice
from core.errors import InputError
from core.models.base import LanguageModel, Row, Sequence
from core.samplers.base import Processor
from core.speculative import arc
from core.speculative.acceptance import fuzzy, recursive_rejection, typical
from core.speculative.calibration import Calibration
from core.speculative.cost import CostCurve, Estimates, Levels, best_size, cost_curve
from core.speculative.drafters.base import Drafter, Moment
from core.speculative.target import Choice
from core.speculative.tree import TokenTree

SpeculationMode = Literal["off", "lossless", "arc"]
How = Literal["plain", "accepted", "tolerated", "corrected", "bonus"]

DEPTH = 8  # levels that a drafter is asked for
SLACK = 0.02  # share of plain decoding's time that speculation may lose
CHEAP = 0.05  # steps of plain decoding for a level; cheaper levels are drafted first and chosen among afterwards
GRACE = 128  # tokens whose slack is there from the start, to find out whether speculation pays


@dataclass(frozen=True)
class Token:
    """One token of the text.

    Attributes:
        id: the token.
        how: plain (nothing was proposed here), accepted (proposed, and chosen by the target), tolerated (proposed,
            lost the draw, and let stand), corrected (the target's own in place of a proposal), bonus (the
            target's own after a path that was accepted to its end).
        lts: the local tolerance score of a token that ARC tolerated, else None.
        logprob: ln p(token) under the target's distribution, temperature and rule applied.
    """

    id: int
    how: How
    logprob: float
    lts: float | None = None


@dataclass
class Statistics:
    """Counts of a generation so far.

    Attributes:
        cycles: passes of the target, without the one that read the prompt.
        tokens: of the text, without the one that the prompt's own pass gave.
        proposed, pruned, accepted, tolerated: proposals that were verified, that were dropped before, that were
            accepted, that were tolerated.
        fed: tokens that went through the target, without the prompt.
        seconds, drafting: from the first cycle on; of them inside the drafter.
        ms: the time of the same passes by the cost curve, where there is one, the drafting included.
        notice: one sentence once speculation has switched itself off.
    """

    cycles: int = 0
    tokens: int = 0
    proposed: int = 0
    pruned: int = 0
    accepted: int = 0
    tolerated: int = 0
    fed: int = 0
    seconds: float = 0.0
    drafting: float = 0.0
    ms: float = 0.0
    notice: str | None = None

    @property
    def accept_length(self) -> float:
        """τ: tokens of the text per pass, the target's own included."""
        return self.tokens / self.cycles if self.cycles else 0.0


@dataclass(frozen=True)
class Speculating:
    """How to generate; see `generate`."""

    mode: SpeculationMode = "lossless"
    length: int = 64
    temperature: float = 1.0
    rule: Processor | None = None
    seed: int = 0
    tree_size: int | Literal["auto"] = "auto"
    depth: int = DEPTH
    stop_ids: frozenset[int] | None = None
    tolerance: Literal["lts", "typical", "fsd", "none"] = "lts"
    calibration: Calibration | None = None
    theta: float = THETA
    prune: bool = True
    prune_by: str = "entropy"
    lam: float = PRUNE_LAMBDA
    epsilon: float = PRUNE_EPSILON
    threshold: float = 0.3

    def __post_init__(self) -> None:
        if self.mode not in ("off", "lossless", "arc"):
            raise InputError(f"mode {self.mode!r} given; 'off', 'lossless' or 'arc' expected.")
        if self.prune_by not in ("entropy", *arc.RULES):
            raise InputError(f"prune_by {self.prune_by!r} given; 'entropy' or one of {', '.join(arc.RULES)} expected.")
        if self.tolerance not in ("lts", "typical", "fsd", "none"):
            raise InputError(f"tolerance {self.tolerance!r} given; 'lts', 'typical', 'fsd' or 'none' expected.")
        if self.length < 1 or self.depth < 1:
            raise InputError(f"length {self.length} and depth {self.depth} given; at least 1 of each expected.")
        if self.tree_size != "auto" and (not isinstance(self.tree_size, int) or self.tree_size < 0):
            raise InputError(f"tree_size {self.tree_size!r} given; 'auto' or a number of tokens expected.")
        if self.theta > 1:
            raise InputError(f"theta {self.theta} given; at most 1 expected: no score is above it.")
        Choice(self.temperature, self.rule)
        arc.Pruning(self.lam, self.epsilon)

    @property
    def scored(self) -> bool:
        """Whether LTS decides."""
        return self.mode == "arc" and self.tolerance == "lts"


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
    """Go on from a text. An iterator over `Token`s, with the running `.statistics`; it may be stopped at any token.

    Args:
        target: whose text it is.
        drafter: proposes tokens; None is plain decoding.
        prefix_ids: the text so far, at least one id.
        mode: "off", "lossless" or "arc".
        sequence: of the target, which may hold part of the text already. It holds nothing but text afterwards.
        curve: t(n); None is measured once per model and machine (only for tree_size="auto").
        estimates: acceptance and cost, learnt by earlier generations with this drafter.
        length: tokens at most. stop_ids: tokens that end the text; None for the tokenizer's.
        temperature, rule: how the target's token is drawn; 0 takes the likeliest. rule: of `core.samplers`.
        seed: of all draws.
        tree_size: "auto", or the number of proposals verified at most; a fixed size disables automatic switching off.
        depth: levels that are drafted at most.
        tolerance: of mode "arc": "lts" (needs `calibration`), "typical" (Medusa), "fsd" (with `threshold`), "none".
        theta: the least LTS that passes. prune, lam, epsilon: pruning before verification (eqs. 1-4). prune_by: another
            rule for as many proposals, of `core.speculative.arc.RULES`, to compare with.
    Raises: InputError for an empty text or a value out of range; CalibrationError; ContextFull.
    """
    made = Speculating(mode=mode, **options)
    dice = Dice(made.seed) if made.temperature else None
    return Generation(target, drafter, prefix_ids, made, sequence, curve, estimates, dice)


class Memory:
    """Estimates of a drafter with a target: how often its proposals are accepted, and its cost so far.

    Attributes:
        lost: steps of plain decoding that speculation has cost so far; below 0 it has saved.
        tokens: decoded so far.
    """

    def __init__(self) -> None:
        self.estimates, self.levels = Estimates(), Levels()
        self.lost, self.tokens = 0.0, 0


class Generation(Iterator[Token]):
    """See `generate`.

    Attributes:
        ids: the text so far, with the prefix.
        statistics: counts so far.
    """

    def __init__(
        self,
        target: LanguageModel,
        drafter: Drafter | None,
        prefix_ids: list[int],
        options: Speculating,
        sequence: Sequence | None = None,
        curve: Callable[[int], float] | None = None,
        memory: Memory | None = None,
        dice: Dice | None = None,
        heat: float | None = None,
    ) -> None:
        if not prefix_ids:
            raise InputError("An empty prefix given; at least one token id expected.")
        o = options
        if o.scored and drafter is not None:
            if o.calibration is None:
                raise InputError("ARC's tolerance needs a calibration of the target; give one, or another tolerance.")
            o.calibration.check(target)
        self.target, self.options = target, options
        self.drafter = None if o.mode == "off" else drafter
        self.ids = list(prefix_ids)
        self.statistics = Statistics()
        self._choice = Choice(o.temperature, o.rule)
        self._chance = np.random.default_rng(o.seed)
        self._dice = dice
        self._heat = heat or o.temperature or 1.0
        self._memory = memory or Memory()
        self._auto = o.tree_size == "auto"
        self._cost = None
        if self.drafter is not None and self._auto:
            self._cost = curve or cost_curve(target)
        self._curve = curve or self._cost
        self._stop = target.tokenizer.eos_ids if o.stop_ids is None else o.stop_ids
        self._own = sequence is None
        self._sequence = target.open() if sequence is None else sequence
        self._end = len(prefix_ids) + o.length
        self._pace = 1.0  # how long passes take now, as a share of the curve
        self._tree, self._drafting = TokenTree(), 0.0
        self._steps = self._run()

    def __iter__(self) -> Generation:
        return self

    def __next__(self) -> Token:
        return next(self._steps)

    def close(self) -> None:
        """Stop here; safe at any token, and twice."""
        self._steps.close()

    def _run(self) -> Generator[Token, None, None]:
        try:
            if self.drafter is not None and self.drafter.layers:
                self._sequence.reveal()
            logits = self._sequence.sync(self.ids)
            p = self._choice.probabilities(logits, self.ids)
            token = self._draw(p, len(self.ids))
            yield self._append(token, "plain", p)
            self._last = p
            while not self.done:
                began = time.perf_counter()
                after = self.target.forward([self.row()])[0]
                yield from self.advance(after, time.perf_counter() - began)
        finally:
            if self._own:
                self._sequence.close()

    def _append(self, token: int, how: How, p: np.ndarray, lts: float | None = None) -> Token:
        self.ids.append(token)
        return Token(token, how, math.log(max(float(p[token]), 1e-300)), lts)

    def _draw(self, p: np.ndarray, place: int) -> int:
        return int(p.argmax()) if self._dice is None else self._dice.draw(p, place)

    # --- one pass at a time, for a caller that joins the passes of several generations

    @property
    def done(self) -> bool:
        return len(self.ids) >= self._end or self.ids[-1] in self._stop

    def after(self, logits: Tensor) -> None:
        """Start after a token that was chosen from these logits (V,); the sequence holds the text before it."""
        self._last = self._choice.probabilities(logits, self.ids[:-1])

    def row(self) -> Row:
        """The row of the next pass: the text's last token, and the proposals below it."""
        self._tree, self._drafting = self._proposals(self._last)
        ids, parents = self._tree.under(self.ids[-1])
        return Row(self._sequence, ids, parents=parents)

    def advance(self, after: Tensor, seconds: float) -> list[Token]:
        """Take the logits (1 + n, V) of `row()`; the text's next tokens. `seconds`: its share of the pass's time."""
        path, tokens = self._accept(self._tree, after)
        # The text's last token, then the accepted path; the target's own token is fed in the next cycle.
        self._sequence.keep([0, *(place + 1 for place in path)])
        s, fed = self.statistics, len(self._tree) + 1
        s.cycles += 1
        s.tokens += len(tokens)
        s.fed += fed
        s.proposed += len(self._tree)
        s.seconds += seconds
        s.drafting += self._drafting
        self._account(seconds * 1000, self._drafting * 1000, fed, len(tokens))
        return tokens

    # --- proposing

    def _proposals(self, p_root: np.ndarray) -> tuple[TokenTree, float]:
        """The tree to be verified, and the seconds that drafting took."""
        o, drafter = self.options, self.drafter
        # The tree ends where the text may: the target's own token comes after it.
        room = min(self._end - len(self.ids) - 1, self.target.context_length - len(self.ids))
        if drafter is None or room < 1 or o.tree_size == 0:
            return TokenTree(), 0.0
        most = drafter.most if o.tree_size == "auto" else o.tree_size
        most = min(most, self.target.context_length - len(self.ids))
        depth = min(o.depth, room)
        cost, memory = self._cost, self._memory
        if cost is not None:
            left = SLACK * max(memory.tokens + self._end - len(self.ids), GRACE) - memory.lost
            while most and cost(1 + most) > (1 + left) * cost(1):
                most -= 1  # so that one pass loses no more than the slack
            level = memory.levels.ms / (cost(1) * self._pace)  # steps of plain decoding that drafting one level takes
            if not most or level > left:
                self._give_up()
                return TokenTree(), 0.0
            depth = min(depth, int(left / level)) if level else 1  # one level, to measure its time
            if drafter.draws or level > CHEAP:
                # Drafting costs something, or must not be chosen among afterwards: decide before it.
                depth = min(depth, memory.levels.best(cost, self._pace, drafter.width, most))
        if drafter.draws:
            depth = min(depth, max(most // drafter.width, 1))
        if depth < 1:
            memory.levels.fade()
            return TokenTree(), 0.0
        began = time.perf_counter()
        features = self._sequence.features if drafter.layers else None
        tree = drafter.draft(Moment(self.ids, features, self._dice, self._heat), depth, self._chance)
        drafting = time.perf_counter() - began
        if self.statistics.cycles:  # a text's first draft reads all of it: no measure of the next ones
            memory.levels.took(drafting * 1000, depth)
        if o.mode == "arc" and o.prune and len(tree):
            before = len(tree)
            kept = arc.kept(tree, arc.normalised_entropy(p_root), arc.Pruning(o.lam, o.epsilon))
            tree = tree.only(kept if o.prune_by == "entropy" else arc.ranked(tree, len(kept), o.prune_by))
            self.statistics.pruned += before - len(tree)
        if not self.target.takes_trees:
            tree = _first_chain(tree)
        if not (drafter.draws and o.mode == "lossless"):
            if cost is not None:
                tree = tree.only(best_size(memory.estimates.chances(tree), cost, most)[0])
            elif len(tree) > most:
                tree = tree.only(np.argsort(-tree.products(), kind="stable")[:most].tolist())
        return tree, drafting

    def _account(self, ms: float, drafting: float, fed: int, tokens: int) -> None:
        """Compare with plain decoding, at the machine's present pace."""
        if self._curve is not None:
            self.statistics.ms += self._curve(fed) + drafting
        if self._cost is None or self.drafter is None:
            return
        pace = (ms - drafting) / self._cost(fed)
        self._pace = pace if self.statistics.cycles == 1 else 0.8 * self._pace + 0.2 * pace
        self._memory.tokens += tokens
        # The curve, not the clock, gives the cost of this pass: a pass that others slowed down is no reason to stop.
        self._memory.lost += (self._cost(fed) + drafting / self._pace) / self._cost(1) - tokens

    def _give_up(self) -> None:
        s = self.statistics
        self.drafter = None
        if not s.cycles:
            s.notice = (
                "Speculation was switched off: by what passes cost here, and what was accepted before, it is slower "
                "than one by one."
            )
            return
        passes = "1 pass" if s.cycles == 1 else f"{s.cycles} passes"
        s.notice = (
            f"Speculation was switched off after {passes}: {s.accept_length:.2f} tokens a pass, in passes that take "
            "longer, are slower here than one by one."
        )

    # --- accepting

    def _accept(self, tree: TokenTree, after: Tensor) -> tuple[list[int], list[Token]]:
        """Walk down the tree: the accepted path, and the tokens of the text that come of this pass."""
        children = tree.children()
        at, path, tokens = -1, [], []
        while True:
            logits = after[at + 1]
            p = self._choice.probabilities(logits, self.ids)
            places = children.get(at, [])
            proposed = [tree.ids[place] for place in places]
            q = tree.drawn.get(at)
            if q is None:  # chosen without chance: lossless, because the target draws and looks its token up among them
                token = self._draw(p, len(self.ids))
                which = proposed.index(token) if token in proposed else None
            else:
                which, token = recursive_rejection(p, q, proposed, self._chance)
            how: How = "accepted" if which is not None else "corrected" if places else "bonus" if path else "plain"
            lts = None
            if which is None and places and self.options.mode == "arc":
                which, lts = self._tolerate(tree, places, p, len(path))
                if which is not None:
                    how, token = "tolerated", proposed[which]
            if places:
                self._learn(tree, places, which, len(path))
            tokens.append(self._append(token, how, p, lts))
            self._last = p
            if which is None:
                return path, tokens
            self.statistics.accepted += how == "accepted"
            self.statistics.tolerated += how == "tolerated"
            if self.done:  # the path's last token is the text's: not to be fed again, and not to be kept yet
                return path, tokens
            at = places[which]
            path.append(at)

    def _tolerate(
        self, tree: TokenTree, places: list[int], p: np.ndarray, depth: int
    ) -> tuple[int | None, float | None]:
        """Which of the proposals that lost the draw may stand, the safest first, and its LTS."""
        o = self.options
        ids = [tree.ids[place] for place in places]
        if o.tolerance == "lts":
            assert o.calibration is not None
            scores = [
                arc.local_tolerance_score(p, self.target, o.calibration, x, depth) if p[x] > 0 else -math.inf
                for x in ids
            ]
            best = int(np.argmax(scores))
            return (best, scores[best]) if scores[best] >= o.theta else (None, None)
        if o.tolerance == "typical":
            fits = [which for which, x in enumerate(ids) if typical(p, x)]
        elif o.tolerance == "fsd":
            fits = list(range(len(ids))) if fuzzy(p, self._belief(tree, places, len(p)), o.threshold) else []
            fits = [which for which in fits if p[ids[which]] > 0]
        else:
            fits = []
        return (max(fits, key=lambda which: p[ids[which]]), None) if fits else (None, None)

    def _belief(self, tree: TokenTree, places: list[int], vocabulary: int) -> np.ndarray:
        """The distribution that the drafter drew from, or its confidences, with the rest spread evenly."""
        parent = tree.parents[places[0]]
        if parent in tree.drawn:
            return tree.drawn[parent]
        said = np.array([tree.confidence[place] for place in places])
        said = said / max(said.sum(), 1.0)
        q = np.full(vocabulary, (1 - said.sum()) / vocabulary)
        q[[tree.ids[place] for place in places]] += said
        return q

    def _learn(self, tree: TokenTree, places: list[int], which: int | None, depth: int) -> None:
        memory = self._memory
        for place in places:
            memory.estimates.note(tree.confidence[place], depth, which is not None and place == places[which])
        memory.levels.note(depth, which is not None)


def _first_chain(tree: TokenTree) -> TokenTree:
    """The path of first children, for targets that take no branches."""
    places: list[int] = []
    at = -1
    for place, parent in enumerate(tree.parents):
        if parent == at:
            places.append(place)
            at = place
    return tree.only(places)  # of several that were drawn, the first is a draw of its own
