"""Scores of candidates for the next token: the model's most probable tokens, with the n-grams mixed in.

Shapes: V vocabulary, d drafts, m candidates. Scores are natural logarithms.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from core.drafting.boundaries import apply_rule, mask_others
from core.drafting.drafts import Options
from core.drafting.record import Record

MIN_LOGPROB = -103.0  # log-probability below which float32 rounds a probability to 0
NOTHING = -800.0  # ln p of which exp is 0: of a token that the rule dropped, and the stores may still propose
GROUP = 64  # logits per group; `top_indices` compares the groups' maxima first


@dataclass(frozen=True)
class ScoredTokens:
    """The candidates for one draft's next token.

    Attributes:
        ids: (m,) token ids.
        scores: (m,) ln p with the n-grams mixed in.
        without: (m,) the same without personal stores.
    """

    ids: np.ndarray
    scores: np.ndarray
    without: np.ndarray

    @property
    def best(self) -> int | None:
        """The index of the best candidate; None if none is possible."""
        c = int(self.scores.argmax()) if len(self.scores) else -1
        return c if c >= 0 and np.isfinite(self.scores[c]) else None


class Candidates:
    """Computes candidates after a text and their scores, as the options define them.

    Attributes:
        record: of how the drafts are made, if the request asks for it (`core.drafting.recorded`).
    """

    record: Record | None = None

    def __init__(self, options: Options, text: list[int]) -> None:
        self.options = options
        self.m = options.m
        self.ngrams = options.interpolation(text)

    def select(
        self, logits: Tensor, contexts: list[list[int]], also: Iterable[int] = ()
    ) -> tuple[np.ndarray, np.ndarray]:
        """The m most probable tokens at τ, best first, then the proposals of the stores after any of the contexts, and
        `also`: ids (m,) and log-probabilities (m,). The rule crops the model's distribution alone: a token that it
        drops has the probability that the stores give it. A rule that depends on the text reads the first context,
        after which the barred tokens are those of all."""
        o, least = self.options, None
        barred = o.barred_after(contexts[0], len(logits))
        if o.rule is not None:
            least = self._least(logits.numpy())
            if barred is not None and barred is not o.barred:  # the rule chooses among the tokens that are left
                logits = logits.masked_fill(torch.from_numpy(barred), -torch.inf)
            logits = self.crop(logits, contexts[0])
        x = logits.numpy()
        best, total = top_indices(x, self.m), log_total(x, o.tau)
        if barred is not None and barred[best].any():
            best = top_indices(np.where(barred, -np.inf, x), self.m)
            best = best[~barred[best]]  # fewer are left
        # The paper normalises the probabilities over the candidates. With distinct beginnings they remain the model's,
        # so that the n-grams are mixed into true probabilities, and a beginning's score is its probability.
        q = x[best].astype(np.float64) / o.tau - total
        tokens, q = best[q > MIN_LOGPROB], q[q > MIN_LOGPROB]
        # Outside the candidates, every token has less than the last one's probability.
        least = float(np.exp(q.min(initial=0.0))) if least is None else least
        if len(more := self._propose(contexts, tokens, least, barred, also)):
            tokens = np.append(tokens, more)
            q = np.append(q, np.fmax(x[more].astype(np.float64) / o.tau - total, NOTHING))
        if not o.distinct and len(q):
            q = q - np.logaddexp.reduce(q)
        return tokens, q

    def select_among(
        self, logits: Tensor, context: list[int], allowed: np.ndarray, also: Iterable[int] = ()
    ) -> tuple[np.ndarray, np.ndarray, float]:
        """The m most probable of the allowed tokens, then those that the stores propose, and `also`: ids (m,), their
        log-probabilities (m,) among all tokens, and the total probability of the allowed tokens, with those that were
        removed. The rule chooses among the allowed tokens."""
        o, of_all = self.options, log_total(logits.numpy(), self.options.tau)
        if o.barred is not None:
            allowed = allowed[~o.barred[allowed]]
        whole = float(np.exp(log_total(logits.numpy()[allowed], o.tau) - of_all))
        barred = o.barred_after(context, len(logits))
        if barred is not o.barred and barred is not None:
            allowed = allowed[~barred[allowed]]
        if len(allowed) == 0:
            return allowed, np.zeros(0), whole
        some = logits.numpy()[allowed]
        mass = log_total(some, o.tau) - of_all
        if o.rule is not None:
            some = self.crop(logits, context, allowed).numpy()[allowed]
        best, total = top_indices(some, self.m), log_total(some, o.tau)
        best = best[np.isfinite(some[best])]
        q = some[best].astype(np.float64) / o.tau - total + mass
        last = float(np.exp(q.min(initial=0.0))) if len(best) < len(allowed) else 0.0
        if o.rule is not None:
            last = self._least(logits.numpy()[allowed], mass)
        if len(more := self._propose([context], allowed[best], last, barred, also)):
            added = np.flatnonzero(np.isin(allowed, more))
            best = np.append(best, added)
            q = np.append(q, np.fmax(some[added].astype(np.float64) / o.tau - total + mass, NOTHING))
        return allowed[best], q, whole

    def crop(self, logits: Tensor, context: list[int], allowed: np.ndarray | None = None) -> Tensor:
        """What the rule leaves of the logits (V,) after a context: of those of the allowed tokens, or of all."""
        rule, ids = self.options.rule, torch.tensor([context])
        assert rule is not None
        return (rule(ids, logits[None]) if allowed is None else apply_rule(rule, ids, logits[None], allowed))[0]

    def _least(self, x: np.ndarray, mass: float = 0.0) -> float:
        """The probability of the last candidate without a rule, which a store has to give to propose a token: what the
        rule leaves has all of the model's probability. 0 if there are no stores.

        Args:
            mass: ln of the probability of these tokens among all.
        """
        if self.ngrams is None:
            return 0.0
        return float(np.exp(x[top_indices(x, self.m)[-1]] / self.options.tau - log_total(x, self.options.tau) + mass))

    def mix(self, logq: np.ndarray, contexts: list[list[int]], candidates: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Scores (d, m) of the candidates: the model's, with each draft's n-grams mixed in (eqs. 5-7); and the scores
        without personal stores, which is the same array if there are none."""
        return (logq, logq) if self.ngrams is None else self.ngrams.scores_without(logq, contexts, candidates)

    def score(self, logits: Tensor, context: list[int], also: Iterable[int] = ()) -> ScoredTokens:
        """The candidates for one draft after `context`."""
        tokens, logq = self.select(logits, [context], also)
        scores, without = self.mix(logq[None], [context], tokens)
        return ScoredTokens(tokens, scores[0], without[0])

    def score_shared(self, logits: Tensor, contexts: list[list[int]]) -> list[ScoredTokens]:
        """The candidates for d drafts that share a distribution: the same tokens, with separate scores per draft. Where
        the rule depends on the text, as one against repetition, or a draft has stepped back, each draft has its own."""
        o = self.options
        reads_text = o.rule is not None and getattr(o.rule, "reads_text", True)
        if reads_text or (o.stepped_back and any(map(o.stepped_back.after, contexts))):
            return self.score_apart([logits] * len(contexts), contexts)
        tokens, logq = self.select(logits, contexts)
        scores, without = self.mix(np.repeat(logq[None], len(contexts), 0), contexts, tokens)
        return [ScoredTokens(tokens, *both) for both in zip(scores, without, strict=True)]

    def score_apart(self, logits: list[Tensor], contexts: list[list[int]]) -> list[ScoredTokens]:
        """The candidates for d drafts with a distribution each. Shorter rows are padded with scores of -inf."""
        pairs = [self.select(x, [c]) for x, c in zip(logits, contexts, strict=True)]
        m = max(len(ids) for ids, _ in pairs)
        table = np.zeros((len(pairs), m), dtype=np.int64)
        logq = np.full((len(pairs), m), -np.inf)
        for row, (ids, q) in enumerate(pairs):
            table[row, : len(ids)], logq[row, : len(q)] = ids, q
        scores, without = self.mix(logq, contexts, table)
        if (empty := np.isneginf(logq)).any():
            scores, without = (np.where(empty, -np.inf, s) for s in (scores, without))
        return [ScoredTokens(*row) for row in zip(table, scores, without, strict=True)]

    def knows(self, ids: list[int]) -> bool:
        """Whether the n-gram stores contain this sequence of tokens."""
        return self.ngrams is not None and self.ngrams.knows(ids)

    def _propose(
        self,
        contexts: list[list[int]],
        have: np.ndarray,
        last: float,
        barred: np.ndarray | None,
        also: Iterable[int] = (),
    ) -> np.ndarray:
        """`also`, and what the stores propose because they give it at least the probability of the last candidate; with
        0 there is no other token to propose."""
        known = set(have.tolist())
        proposed = set(also)
        if self.ngrams is not None and last > 0:
            proposed |= {i for ids in self.ngrams.proposals(contexts, [last] * len(contexts), known) for i in ids}
        more = np.array(sorted(proposed - known) if proposed else [], dtype=np.int64)
        return more if barred is None else more[~barred[more]]


def crop_logits(
    o: Options,
    logits: Tensor,
    contexts: list[list[int]],
    allowed: np.ndarray | None = None,
    slots: Iterable[int] | None = None,
) -> Tensor:
    """Logits (B, V) after the options' rule and τ, for contexts of equal length.

    With `allowed`, the rule chooses among these tokens alone. Barred tokens are removed before.

    Args:
        slots: of the drafts, where each is drawn apart from the others.
    """
    numbered = zip(contexts, [0] * len(contexts) if slots is None else slots, strict=True)
    barred = [o.barred_after(context, logits.shape[1], slot) for context, slot in numbered]
    if any(each is not barred[0] for each in barred):
        none = np.zeros(logits.shape[1], bool)
        masks = [none if each is None else each for each in barred]
        logits = logits.masked_fill(torch.from_numpy(np.stack(masks)), -torch.inf)
    elif barred[0] is not None:
        logits = logits.masked_fill(torch.from_numpy(barred[0]), -torch.inf)
    if o.rule is not None and allowed is not None:
        logits = apply_rule(o.rule, torch.tensor(contexts), logits, allowed)
    elif o.rule is not None:
        logits = o.rule(torch.tensor(contexts), logits)
    elif allowed is not None:
        logits = mask_others(logits, allowed)
    return logits if o.tau == 1 else logits / o.tau


# These functions use NumPy, in one thread: a second thread of torch would wait for a core on which a thread of
# llama.cpp still spins.


def log_total(logits: np.ndarray, tau: float) -> float:
    """Logarithm of the normaliser at τ."""
    x = logits / tau if tau != 1 else logits
    peak = x.max(initial=-np.inf)
    if not np.isfinite(peak):
        return float(peak)
    shifted = x - peak
    np.exp(shifted, out=shifted)
    return float(peak + np.log(shifted.sum()))


def top_indices(x: np.ndarray, m: int) -> np.ndarray:
    """The indices of the m largest elements, largest first; equal elements in the order of their index.

    The m-th largest of the maxima of disjoint groups is a lower bound, which few elements reach.
    """
    m = min(m, len(x))
    groups = len(x) // GROUP
    if groups > m:
        maxima = x[: groups * GROUP].reshape(GROUP, groups).max(0)
        bound = np.partition(maxima, groups - m)[groups - m]
        ids = np.flatnonzero(x >= bound)
    else:
        ids = np.arange(len(x))
    return ids[np.argsort(-x[ids], kind="stable")[:m]]
