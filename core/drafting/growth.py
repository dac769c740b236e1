"""One more token for drafts: the tokens that each may go on with, and the draft that one of them makes."""

from __future__ import annotations

from collections.abc import Iterable
from collections.abc import Sequence as Ids

import numpy as np
from torch import Tensor

from core.drafting.candidates import Candidates, ScoredTokens
from core.drafting.drafts import Draft

MAJORITY = 0.5  # of the mixture's weight: the distribution read out of it is then mostly this draft's


class Growth:
    """One step of some drafts of equal length.

    Attributes:
        choices: for each of them, the tokens that it may go on with.
    """

    def __init__(
        self,
        due: Iterable[Draft],
        exact: list[Draft],
        logits: list[Tensor],
        gamma: dict[Draft, float],
        prefix: list[int],
        score: Candidates,
        stop: frozenset[int],
        pieces: Ids[bytes],
    ) -> None:
        """
        Args:
            exact: those of the `due` drafts with logits of their own.
            logits: of the superposed row, if there was one, then of each exact draft.
            gamma: the weight of each draft in the mixture.
            stop: tokens that end a draft.
        """
        self._exact, self._gamma, self._prefix = exact, gamma, prefix
        self._score, self._stop, self._pieces = score, stop, pieces
        shared = [d for d in due if d not in exact]
        self.choices: dict[Draft, ScoredTokens] = {}
        if exact:
            own = logits[len(logits) - len(exact) :]
            self.choices |= zip(exact, score.apart(own, [prefix + d.ids for d in exact]), strict=True)
        if shared:
            self.choices |= zip(shared, score.shared(logits[0], [prefix + d.ids for d in shared]), strict=True)

    def child(self, draft: Draft, c: int) -> Draft:
        """The draft with its choice number c."""
        choices, o = self.choices[draft], self._score.options
        token, exact = int(choices.ids[c]), draft in self._exact
        grown = draft.child(
            token,
            draft.logprob + float(choices.scores[c]),
            # Only where each lineage takes its own best is there one token that would stand here otherwise.
            personal=o.distinct and int(np.argmax(choices.without)) != c,
            own=exact or self._gamma[draft] >= MAJORITY or self._score.known([*(self._prefix + draft.ids)[-2:], token]),
            exact=exact,
        )
        grown.ended = token in self._stop
        return grown

    def unlikely_word(self, draft: Draft, c: int) -> bool:
        """Whether choice number c begins a word that is likelier wrong than right."""
        choices = self.choices[draft]
        piece = self._pieces[choices.ids[c]]
        return np.exp(choices.scores[c]) < self._score.options.end_below and (
            not piece[:1].isalnum() and piece[:1] < b"\x80"
        )
