"""Drafts of the greedy and the sampled mode made several tokens per pass: each has a row of its own, in which a
drafter's proposals are verified. All rows share one pass, so this streams and stops as every other mode does.

Lossless, the drafts are the very ones that the mode makes without it: a sampled draft's token is fixed by seed, draft
and place, the greedy one by the n-grams mixed in; proposals only decide how many of them one pass tells.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Literal

import numpy as np
import torch
from torch import Tensor

from core.controls import PRUNE_EPSILON, PRUNE_LAMBDA, THETA
from core.dice import Dice
from core.drafting.drafts import Drafts, Options
from core.models.base import Row, Sequence
from core.speculative.calibration import Calibration
from core.speculative.drafters.base import Drafter
from core.speculative.generate import Generation, Memory
from core.speculative.generate import Options as Speculating

Rule = Callable[[Tensor, Tensor], Tensor]


class Speculator:
    """A drafter and what is known of it; outlives drafts, so that the next ones start knowing.

    Attributes:
        drafter: what proposes.
        curve: ms of a pass over n tokens.
        notice: why speculation was switched off, once it was.
    """

    def __init__(self, drafter: Drafter, curve: Callable[[int], float]) -> None:
        self.drafter, self.curve = drafter, curve
        self.memory = Memory()
        self.notice: str | None = None


@dataclass(frozen=True)
class Speculation:
    """How to speculate; see `core.speculative.generate`. The temperature is the one in the rule, for who proposes."""

    by: Speculator
    mode: Literal["lossless", "arc"] = "lossless"
    tree_size: int | Literal["auto"] = "auto"
    theta: float = THETA
    lam: float = PRUNE_LAMBDA
    epsilon: float = PRUNE_EPSILON
    calibration: Calibration | None = None
    temperature: float = 1.0


@dataclass(frozen=True)
class Figures:
    """What speculation came to so far.

    Attributes:
        accept_length: τ, tokens of a draft per pass over it; 0 before the first pass.
        speedup: time that the same tokens take one by one, by the machine's cost curve, to the time taken.
        notice: a sentence, where it was switched off.
    """

    accept_length: float
    speedup: float
    notice: str | None


@dataclass
class _Part:
    """One draft: its first token, found without speculation, and what goes on from there."""

    first: list[int]  # with the typed part of a word before it
    logprob: float
    beginning: float
    lineage: int
    going: Generation | None  # None: it ended with its first token
    sequence: Sequence | None
    how: list[tuple[str, float | None]] = field(default_factory=list)

    @property
    def done(self) -> bool:
        return self.going is None or self.going.done


class Speculated:
    """Drafts that grow by several tokens per pass; the steps are those of `core.drafting.driver.Driven`.

    Args:
        first: the drafts with one token each.
        rows: for each draft, a sequence that holds everything before that token.
        logits: (V,) that it was chosen from.
        rule: crops logits, temperature in it, after ids (1, n).
        dice: of each draft; None takes the likeliest token.
        mass: ln of what the rule leaves at a place of the text, where it does not say so itself.
    """

    def __init__(
        self,
        prefix_ids: list[int],
        options: Options,
        how: Speculation,
        first: Drafts,
        rows: list[Sequence | None],
        logits: Tensor,
        rule: Rule,
        dice: list[Dice | None],
        mass: dict[int, float] | None = None,
    ) -> None:
        self._prefix, self._how, self._mass = list(prefix_ids), how, {} if mass is None else mass
        self._began = time.perf_counter()
        alive = max(sum(not ended for ended in first.ended), 1)
        stop = options.stop_ids

        def cost(n: int) -> float:
            """One draft's share of a pass in which every draft has n tokens."""
            return how.by.curve(alive * n) / alive

        self._cost = cost
        made = Speculating(
            mode=how.mode,
            rule=rule,
            stop_ids=stop,
            tree_size=how.tree_size,
            theta=how.theta,
            lam=how.lam,
            epsilon=how.epsilon,
            calibration=how.calibration,
            seed=options.seed,
        )
        self._parts: list[_Part] = []
        for i, ids in enumerate(first.ids):
            going, row = None, rows[i]
            left = options.length - 1
            if row is not None and not first.ended[i] and left > 0:
                going = Generation(
                    row.model,
                    how.by.drafter,
                    self._prefix + ids,
                    replace(made, length=left),
                    row,
                    curve=cost,
                    memory=how.by.memory,
                    dice=dice[i],
                    heat=how.temperature if dice[i] else None,
                )
                going.after(logits)
            part = _Part(list(ids), first.logprobs[i], first.beginnings[i], first.lineages[i], going, row)
            part.how = [("plain", None)] * len(ids)
            self._parts.append(part)
        self.done = all(part.done for part in self._parts)
        if self.done:
            self.close()

    def rows(self) -> list[Row]:
        if self.done:
            return []
        self._began = time.perf_counter()
        return [part.going.row() for part in self._alive() if part.going is not None]

    def advance(self, logits: list[Tensor]) -> Drafts:
        alive = self._alive()
        each = (time.perf_counter() - self._began) / max(len(alive), 1)
        for part, after in zip(alive, logits, strict=True):
            assert part.going is not None
            for token in part.going.advance(after, each):
                place = len(self._prefix) + len(part.how)
                part.how.append((token.how, token.lts))
                part.logprob += token.logprob + self._mass.get(place, 0.0)
        self.done = all(part.done for part in self._parts)
        drafts = self.snapshot()
        if self.done:
            self.close()
        return drafts

    def close(self) -> None:
        self.done = True
        for part in self._parts:
            if part.sequence is not None:
                part.sequence.close()
                part.sequence = None

    def _alive(self) -> list[_Part]:
        return [part for part in self._parts if not part.done]

    def snapshot(self) -> Drafts:
        before = len(self._prefix)
        parts = sorted(self._parts, key=lambda part: -part.logprob)
        ids = [part.first if part.going is None else part.going.ids[before:] for part in parts]
        return Drafts(
            ids=ids,
            logprobs=[part.logprob for part in parts],
            beginnings=[part.beginning for part in parts],
            lineages=[part.lineage for part in parts],
            own=[len(one) for one in ids],
            personal=[[False] * len(one) for one in ids],
            ended=[part.done for part in parts],
            finished=[],
            step=max(map(len, ids), default=1) - min((len(part.first) for part in parts), default=1) + 1,
            done=self.done,
            how=[list(part.how) for part in parts],
            figures=self._figures(),
        )

    def _figures(self) -> Figures:
        s = [part.going.statistics for part in self._parts if part.going is not None]
        tokens, cycles = sum(one.tokens for one in s), sum(one.cycles for one in s)
        by = self._how.by
        for one in s:
            # What gives up at once, because others have, has no figures of its own to tell.
            if one.notice and (one.cycles or by.notice is None):
                by.notice = one.notice
        off = any(one.notice for one in s)
        spent = sum(one.ms for one in s)
        return Figures(
            accept_length=tokens / cycles if cycles else 0.0,
            speedup=tokens * self._cost(1) / spent if spent else 1.0,
            notice=by.notice if off else None,
        )


class Greedily:
    """The rule of greedy drafts: what the n-grams make of the likeliest candidates, and the best of it."""

    def __init__(self, scored: Callable[[Tensor, list[int]], tuple[np.ndarray, np.ndarray]]) -> None:
        self._scored = scored
        self.mass: dict[int, float] = {}  # by place in the text: ln of what the candidates have together

    def rule(self, ids: Tensor, logits: Tensor) -> Tensor:
        tokens, scores = self._scored(logits[0], ids[0].tolist())
        self.mass[ids.shape[1]] = float(np.logaddexp.reduce(scores))
        cropped = torch.full_like(logits, -torch.inf)
        cropped[0, torch.from_numpy(tokens)] = torch.from_numpy(scores).to(logits.dtype)
        return cropped
