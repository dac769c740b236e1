"""One step of drafts: the candidates for each draft's next token, and the draft with one of them added."""

from __future__ import annotations

from collections.abc import Iterable
from collections.abc import Sequence as Ids

import numpy as np
from torch import Tensor

from core.drafting.candidates import Candidates, ScoredTokens
from core.drafting.drafts import Draft

MAJORITY = 0.5  # weight in the mixture from which its distribution depends mostly on this draft


class Growth:
    """One step of drafts of equal length.

    Attributes:
        choices: the candidates of each draft.
    """

    def __init__(
        self,
        due: Iterable[Draft],
        exact: list[Draft],
        logits: list[Tensor],
        gamma: dict[Draft, float],
        prefix: list[int],
        candidates: Candidates,
        stop: frozenset[int],
        pieces: Ids[bytes],
    ) -> None:
        """
        Args:
            exact: the `due` drafts that have separate logits.
            logits: of the superposed row, if there was one, then of each exact draft.
            gamma: γ, the weights of the drafts in the mixture.
            stop: tokens that end a draft.
        """
        self._exact, self._gamma, self._prefix = exact, gamma, prefix
        self._candidates, self._stop, self._pieces = candidates, stop, pieces
        shared = [d for d in due if d not in exact]
        self.choices: dict[Draft, ScoredTokens] = {}
        if exact:
            own = logits[len(logits) - len(exact) :]
            self.choices |= zip(exact, candidates.score_apart(own, [prefix + d.ids for d in exact]), strict=True)
        if shared:
            contexts = [prefix + d.ids for d in shared]
            self.choices |= zip(shared, candidates.score_shared(logits[0], contexts), strict=True)
            if candidates.record is not None and candidates.options.k > 1:
                weighed = [d for d in self.choices if d in gamma]
                candidates.record.weigh([prefix + d.ids for d in weighed], [gamma[d] for d in weighed])

    def child(self, draft: Draft, c: int) -> Draft:
        """The draft with its candidate number c added."""
        choices, o = self.choices[draft], self._candidates.options
        token, exact = int(choices.ids[c]), draft in self._exact
        last_three = [*(self._prefix + draft.ids)[-2:], token]
        grown = draft.child(
            token,
            draft.logprob + float(choices.scores[c]),
            # Without `distinct`, a lineage does not take its own best token, so the personal stores' effect is unknown.
            personal=o.distinct and int(np.argmax(choices.without)) != c,
            own=exact or self._gamma[draft] >= MAJORITY or self._candidates.knows(last_three),
            exact=exact,
        )
        grown.ended = token in self._stop
        return grown

    def begins_unlikely_word(self, draft: Draft, c: int) -> bool:
        """Whether candidate number c begins a word and is less probable than `end_below`, so that the draft rests. A
        chosen one does not."""
        if draft.chosen:
            return False
        choices = self.choices[draft]
        unlikely = np.exp(choices.scores[c]) < self._candidates.options.end_below
        return bool(unlikely) and begins_word(self._pieces[choices.ids[c]])


def begins_word(piece: bytes) -> bool:
    """Whether a token begins a word, or is no part of one."""
    return not piece[:1].isalnum() and piece[:1] < b"\x80"
