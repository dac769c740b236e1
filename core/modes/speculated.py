"""Drafts of the greedy and the sampled mode with several tokens per pass: each draft has a separate row, in which a
drafter's proposals are verified. The drafter proposes for all drafts in one call, and one pass verifies all.

Lossless, the drafts are those that the mode makes without speculation: seed, draft and position fix a sampled draft's
token, the n-grams mixed in the greedy one. Proposals change how many tokens a pass yields, never which.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace

import numpy as np
import torch
from torch import Tensor

from core.drafting.beginnings import find_beginnings
from core.drafting.boundaries import Boundaries
from core.drafting.candidates import Candidates, crop_logits
from core.drafting.drafts import Draft, Drafts, Figures, Options, best_of, end_stopped
from core.drafting.driver import Drafting
from core.drafting.feeding import prepare_own_row
from core.drafting.record import Record
from core.drafting.recorded import candidates_of
from core.models.base import Sequence
from core.modes.sampled import first_draws, noise_of
from core.samplers.base import Processor
from core.speculative.budget import Memory
from core.speculative.cycles import Statistics, Text, Token, cycles
from core.speculative.drafters.base import Drafter
from core.speculative.options import SpeculationOptions
from core.speculative.target import TargetSampling


@dataclass
class Speculator:
    """A drafter and the estimates of its acceptance and cost; one object serves many requests.

    Attributes:
        drafter: proposes the tokens.
        curve: ms of a pass over n tokens.
        caution: why it may propose worse here than elsewhere, or None.
        memory: the estimates.
        notice: why speculation was switched off, once it was.
    """

    drafter: Drafter
    curve: Callable[[int], float]
    caution: str | None = None
    memory: Memory = field(default_factory=Memory)
    notice: str | None = None


@dataclass(frozen=True)
class Speculation:
    """How to speculate; the seed and the tokens that end a draft are the request's."""

    by: Speculator
    options: SpeculationOptions = field(default_factory=SpeculationOptions)


def speculated(
    logits: list[Tensor],
    sequence: Sequence,
    prefix_ids: list[int],
    options: Options,
    boundaries: Boundaries,
    how: Speculation,
    greedy: bool,
    record: Record | None = None,
) -> Drafting:
    """k sampled drafts of `length` tokens each, or one greedy one. The arguments are those of
    `core.superposed.superposed`, and:

    Args:
        how: the drafter and its options.
        greedy: whether the most probable token is taken each time; else tokens are sampled.
    """
    o, prefix, by = options, list(prefix_ids), how.by
    model, stop = sequence.model, o.stops(sequence.model)
    greedily = Greedily(candidates_of(o, prefix, record)) if greedy else None
    drawing = _Drawing(o, prefix, stop, greedily, record)
    if greedily is not None:
        likeliest = find_beginnings(logits, prefix, greedily.candidates, model.tokenizer.pieces, boundaries)[:1]
        drafts = [Draft.begun(ids, logprob, 0, len(ids) - 1) for ids, logprob, _ in likeliest]
    else:
        drafts = first_draws(logits, prefix, o, o.k, boundaries, record)
    for draft in drafts:
        draft.how = [("plain", None)] * len(draft.ids)
    alive = end_stopped(drafts, stop)
    together = max(len(alive), 1)  # drafts in a pass
    plain = by.curve(together) / together  # a draft's share of a pass of one token each, in ms

    def so_far(done: bool = False) -> Drafts:
        longest = max((draft.tokens for draft in drafts), default=1)
        figures = _figures(by, [text.statistics for text in texts.values()], plain)
        return Drafts.of(best_of(drafts, o.k), longest, done, figures)

    speculating = replace(how.options, stop_ids=o.stop_ids, seed=o.seed)
    as_set = TargetSampling(o.tau, o.rule)
    speculating.check(model, by.drafter, as_set)
    sure = greedy or as_set.greedy  # without noise, which drafters would otherwise predict
    temperature = None if sure else as_set.overall_temperature

    def begun(draft: Draft) -> Text:
        behind = prepare_own_row(draft, sequence, prefix).sequence  # everything before the draft's latest token
        ids = prefix + draft.ids
        of_draft = drawing.sampling(draft.slot)
        p = of_draft.probabilities(logits[draft.start], ids[:-1])
        noise = None if sure else noise_of(o, draft.slot)
        return Text(behind, ids, len(ids) + o.length - 1, p, noise=noise, sampling=of_draft)

    texts: dict[int, Text] = {}  # by the place of the draft
    try:
        if o.length > 1:
            texts = {n: begun(draft) for n, draft in enumerate(drafts) if draft in alive}
        if texts:
            running = cycles(list(texts.values()), speculating, by.drafter, by.curve, by.memory, temperature)
            rows, _ = next(running)
            while rows:
                began = time.perf_counter()
                logits = yield rows, so_far()
                rows, tokens = running.send((logits, time.perf_counter() - began))
                for n, new in zip(texts, tokens, strict=True):
                    drafts[n] = drawing.extended(drafts[n], new)
                if record is not None:
                    record.end_pass()
        yield [], so_far(done=True)
    finally:
        for draft in drafts:
            draft.close()


@dataclass(frozen=True)
class _Drawing:
    """How the tokens of the drafts are chosen and added.

    Attributes:
        prefix: the tokens before the drafts.
        stop: the tokens that end one.
        greedily: the rule of a greedy draft; None for sampled ones.
    """

    o: Options
    prefix: list[int]
    stop: frozenset[int]
    greedily: Greedily | None
    record: Record | None

    def sampling(self, slot: int) -> TargetSampling:
        """How the tokens of one draft are chosen."""
        rule: Processor = lambda ids, x: crop_logits(self.o, x, ids.tolist(), slots=[slot])  # noqa: E731
        if self.greedily is not None:
            rule = self.greedily.rule
        if self.record is not None:
            rule = self.record.seeing(rule, crops=self.o.rule is not None and self.greedily is None)
        return TargetSampling(rule=rule)

    def extended(self, draft: Draft, tokens: list[Token]) -> Draft:
        """The draft with these tokens, which gets its sequence."""
        for token in tokens:
            ids = self.prefix + draft.ids
            logprob = token.logprob + (0.0 if self.greedily is None else self.greedily.mass.get(len(ids), 0.0))
            if self.record is not None:
                self.record.choose(ids, token.id, logprob)
            child = draft.child(token.id, draft.logprob + logprob)
            child.sequence, child.how = draft.sequence, [*child.how, (token.how, token.lts)]
            child.ended = token.id in self.stop
            draft = child
        return draft


def _figures(by: Speculator, statistics: Iterable[Statistics], ms: float) -> Figures:
    """Returns the figures. `ms` is the time of one token without speculation."""
    s = list(statistics)
    tokens, cycles, spent = sum(text.tokens for text in s), sum(text.cycles for text in s), sum(text.ms for text in s)
    for text in s:
        # A draft without cycles found speculation switched off already, so the earlier notice stays.
        if text.notice and (text.cycles or by.notice is None):
            by.notice = text.notice
    return Figures(
        accept_length=tokens / cycles if cycles else 0.0,
        speedup=tokens * ms / spent if spent else 1.0,
        notice=by.notice if any(text.notice for text in s) else by.caution,
    )


class Greedily:
    """The rule of greedy drafts: the most probable candidates, with the n-grams mixed in.

    Attributes:
        mass: by position in the text, ln of the candidates' total probability, which the rule's normalisation removes.
    """

    def __init__(self, candidates: Candidates) -> None:
        self.candidates = candidates
        self.mass: dict[int, float] = {}

    def rule(self, ids: Tensor, logits: Tensor) -> Tensor:
        scored = self.candidates.score(logits[0], ids[0].tolist())
        self.mass[ids.shape[1]] = float(np.logaddexp.reduce(scored.scores))
        kept = torch.full_like(logits, -torch.inf)
        kept[0, torch.from_numpy(scored.ids)] = torch.from_numpy(scored.scores).to(logits.dtype)
        return kept
