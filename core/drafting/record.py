"""How drafts were made: what is known of each token at the moment when it is chosen, for requests that ask for it.

A record belongs to one request. It is filled where candidates get their scores, and read by the tokens of the complete
drafts. So a draft keeps what was recorded of its tokens when it forks, moves among the others, or continues one that a
reset settled on. Without a record, drafting makes plain `Candidates`, and nothing here runs.

Shapes: V vocabulary, d contexts, m candidates. Logarithms are natural.
"""

from __future__ import annotations

from collections.abc import Iterable
from collections.abc import Sequence as Ids
from dataclasses import dataclass
from typing import Literal, NamedTuple

import numpy as np
import torch
from torch import Tensor

from core.drafting.drafts import Draft
from core.ngram.interpolation import Interpolation
from core.samplers.base import Processor

RAISED = 1 + 1e-9  # by which a store multiplies a probability at least, if it raises it; less is rounding


@dataclass(frozen=True)
class Made:
    """How one token of a draft was made.

    Attributes:
        by: "own": the draft's own tokens were before it, in the text's row or in one of its own.
            "superposed": it was read off the superposed row.
            "store": one of the two, and the stores gave more than half of its probability in the mixture, or it is the
            most probable token of the mixture and not of the model.
            "healing": a first token that completes a half-typed word: it contains typed letters, or goes on inside the
            word.
            "kept": from a row of an earlier request, whose record is gone.
            "accepted", "tolerated", "corrected", "bonus": `core.speculative.cycles.Token.how`; "corrected" is also the
            token that a check put in place of another (`core.modes.checked`).
        store: the stores of a token by "store": "personal" if `Draft.personal` marks it, or if no base store raises its
            probability; else "base".
        gamma: γ of the draft in the superposed row of the pass that the token was chosen after; None if there was no
            such row, or the draft was not in it.
        ln_model: ln p by the model alone, without rule and temperature, after what the pass read: the draft's own
            tokens, or mixtures.
        ln_stores: ln p by the stores alone; None without stores, and for a token to which they give nothing.
        ln_mixture: ln p by the distribution that drafts are made from. In a half-typed word it is not conditional on
            the typed letters.
        kept: the number of tokens that the rule kept; None without a rule.
    """

    by: str
    store: Literal["base", "personal"] | None = None
    gamma: float | None = None
    ln_model: float | None = None
    ln_stores: float | None = None
    ln_mixture: float | None = None
    kept: int | None = None


class _Scored(NamedTuple):
    """The candidates after one context: ids, ln p by model, stores and mixture, whether a store decided, and whether a
    base store raised the probability, (m,) each."""

    by: str
    ids: np.ndarray
    model: np.ndarray
    stores: np.ndarray
    mixture: np.ndarray
    decided: np.ndarray
    raised: np.ndarray
    kept: int | None


class Record:
    """What one request has recorded.

    Args:
        prefix: the number of tokens before the drafts, with which every context begins.
    """

    def __init__(self, prefix: int) -> None:
        self._prefix = prefix
        self._scored: dict[tuple[int, ...], list[_Scored]] = {}  # by the draft's tokens before
        self._gamma: dict[tuple[int, ...], float] = {}
        self._seen: dict[tuple[int, ...], tuple[Tensor, int | None]] = {}  # logits of the latest pass, and tokens kept

    def weigh(self, contexts: Iterable[list[int]], gamma: Iterable[float]) -> None:
        """Records the weights of drafts in the superposed row of a pass."""
        self._gamma |= {self._key(context): weight for context, weight in zip(contexts, gamma, strict=True)}

    def score(
        self,
        contexts: Ids[list[int]],
        logits: Ids[Tensor],
        ids: np.ndarray,
        logq: np.ndarray,
        scores: np.ndarray,
        without: np.ndarray | None = None,
        ngrams: Interpolation | None = None,
        kept: Ids[int | None] = (),
        by: str = "own",
    ) -> None:
        """Records the candidates after each of d contexts.

        Args:
            logits: (V,) of the model, for each context.
            ids: (m,) or (d, m).
            logq, scores, without: (d, m) as in `Candidates.mix`: ln p that the stores were mixed into, and with them;
                without the personal ones, None if that was not computed.
            kept: tokens that the rule kept, for each context; () without a rule.
        """
        table = np.broadcast_to(ids, scores.shape)
        nothing = np.full(scores.shape, -np.inf)
        alone = None if ngrams is None else ngrams.alone(contexts, ids)
        stores, weight = (nothing, np.zeros((len(scores), 1))) if alone is None else alone
        if without is None:
            without = scores if ngrams is None else ngrams.scores_without(logq, contexts, ids)[1]
        decided = weight * np.exp(stores) > (1 - weight) * np.exp(logq)
        raised = np.exp(without) > np.exp(logq) * RAISED
        for i, (context, x) in enumerate(zip(contexts, logits, strict=True)):
            best = int(scores[i].argmax()) if table.shape[1] else 0
            if ngrams is not None and table.shape[1] and int(logq[i].argmax()) != best:
                decided[i, best] = True
            model = x.numpy()[table[i]].astype(np.float64) - float(torch.logsumexp(x.float(), 0))
            scored = table[i], model, stores[i], scores[i], decided[i], raised[i]
            self._scored.setdefault(self._key(context), []).append(_Scored(by, *scored, kept[i] if kept else None))

    def see(self, context: list[int], logits: Tensor, cropped: Tensor | None) -> None:
        """Notes the logits (V,) from which the next token after a context may be chosen, and what the rule left of
        them; None without a rule."""
        kept = None if cropped is None else int(torch.isfinite(cropped).sum())
        self._seen[self._key(context)] = logits, kept

    def seeing(self, rule: Processor, crops: bool) -> Processor:
        """The rule, which then notes the logits of each context that it is called for.

        Args:
            crops: whether it drops tokens.
        """

        def applied(ids: Tensor, logits: Tensor) -> Tensor:
            left = rule(ids, logits)
            for context, x, each in zip(ids.tolist(), logits, left, strict=True):
                self.see(context, x, each if crops else None)
            return left

        return applied

    def choose(
        self,
        context: list[int],
        token: int,
        ln_mixture: float,
        ngrams: Interpolation | None = None,
        by: str = "own",
    ) -> None:
        """Records a token that was chosen after a context whose logits were noted, unless it was scored with others."""
        key = self._key(context)
        if by == "own" and self._find(key, token) is not None:
            return
        logits, kept = self._seen[key]
        ids, mixture = np.array([token]), np.array([[ln_mixture]])
        logq = mixture
        if ngrams is not None:
            logq = np.array([[float(logits[token]) - float(torch.logsumexp(logits.float(), 0))]])
        self.score([context], [logits], ids, logq, mixture, ngrams=ngrams, kept=[kept], by=by)

    def end_pass(self) -> None:
        """Forgets the logits of the pass."""
        self._seen.clear()

    def made(self, draft: Draft, n: int) -> Made:
        """How a draft's token number n was made."""
        key, token = tuple(draft.ids[:n]), draft.ids[n]
        found = self._find(key, token)
        if found is None:
            return Made("own" if n < draft.exact else "superposed")
        scored, c = found
        by, store, gamma = scored.by, None, self._gamma.get(key)
        if by == "corrected":  # by the draft's own tokens, in the check
            gamma = None
        elif scored.decided[c]:
            personal = (n < len(draft.personal) and draft.personal[n]) or not scored.raised[c]
            by, store = "store", "personal" if personal else "base"
        values = (_finite(values[c]) for values in (scored.model, scored.stores, scored.mixture))
        return Made(by, store, gamma, *values, kept=scored.kept)

    def _find(self, key: tuple[int, ...], token: int) -> tuple[_Scored, int] | None:
        for scored in reversed(self._scored.get(key, [])):
            if len(at := np.flatnonzero(scored.ids == token)):
                return scored, int(at[0])
        return None

    def _key(self, context: list[int]) -> tuple[int, ...]:
        return tuple(context[self._prefix :])


def _finite(value: float) -> float | None:
    return float(value) if np.isfinite(value) else None
