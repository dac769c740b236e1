"""Speculative decoding: a drafter proposes a tree of tokens, the target verifies it in one pass, and the text continues
with one of its paths.

mode="off" is plain decoding, one token per pass. "lossless" has exactly its distribution. "arc" also accepts proposals
by a tolerant rule (ARC's LTS by default), and prunes before it verifies.
"""

from __future__ import annotations

import time
from collections.abc import Generator, Iterator
from typing import Any

from core.errors import InputError
from core.models.base import LanguageModel, Sequence
from core.models.costs import CostCurve, cost_curve
from core.noise import SeededNoise
from core.speculative.budget import Memory
from core.speculative.cycles import Statistics, Text, Token, cycles, drawn, logarithm
from core.speculative.drafters.base import Drafter
from core.speculative.options import SpeculationMode, SpeculationOptions


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
        tolerance: of mode "arc": "lts" (needs a `calibration` for this temperature, and no rule), "none", or another
            rule, as `Tolerate` in `core.speculative.options` is called.
        theta: the lowest accepted LTS. prune, lam, epsilon: pruning before verification (eqs. 1-4); `prune` may be
            another rule, as `Prune` is called. distributions: whether a rule given for either reads the drafter's own
            distributions.
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

    def tokens() -> Generator[Token, None, None]:
        """Runs `cycles` to the end, with a new sequence if none is given."""
        opened = target.open() if sequence is None else sequence
        noise = None if o.sampling.greedy else SeededNoise(o.seed)
        try:
            if drafter is not None and drafter.layers and o.mode != "off":
                opened.reveal()
            began = time.perf_counter()
            logits = opened.sync(ids)
            statistics.prefill = time.perf_counter() - began
            p = o.sampling.probabilities(logits, ids)
            first = drawn(p, noise, len(ids))
            ids.append(first)
            yield Token(first, "plain", logarithm(p, first))
            text = Text(opened, ids, len(ids) + o.length - 1, p, statistics, noise)
            running = cycles([text], o, drafter, curve, estimates)
            rows, _ = next(running)
            while rows:
                began = time.perf_counter()
                after = target.forward(rows)
                rows, (new,) = running.send((after, time.perf_counter() - began))
                yield from new
        finally:
            if sequence is None:
                opened.close()

    return Generation(ids, statistics, tokens())


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
