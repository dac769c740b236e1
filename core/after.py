"""Compares drafts with the text after the caret.

A draft ends where it begins to repeat the following text (`core.text.without_repeated`). When the drafts are complete,
one pass over a few short rows computes how much each draft d raises the probability of the following text f:

    gain(d) = ln P(f | text before, d) - ln P(f | text before)

The draft with the highest gain is the best one. If every draft makes f much less probable, no draft is shown. f is the
rest of the caret's line: at the end of a line the writer may write a lot before the next line, so every draft is shown.
Models that were trained to fill in the middle are fed the following text before they draft (`core.fim`), and need no
such pass. A draft that appears unasked is shown only if its gain is at least `JOINS`.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from dataclasses import dataclass, field, replace

import torch
from torch import Tensor

from core.drafting.drafts import Drafts
from core.drafting.scored import score_paths
from core.models.base import Row, Sequence, common
from core.present import Presentation, TextDraft
from core.text import spaced

MOST_LOST = 3.0  # nats that the best draft may lose: the writer may continue for longer than a draft
JOINS = 0.0  # nats: of a draft that appears unasked the writer has thought nothing yet
SHARE = 1.0  # the pass may take as long as the drafts' passes,
LEAST = 50.0  # and at least these ms


@dataclass
class TextAfter:
    """The text after the caret, and the results of the pass.

    Attributes:
        costs: the ms of a pass over n inputs on this machine; None if it was not measured.
        gains: by the tokens of a draft; {} without a pass.
        silent: whether every draft makes the following text much less probable.
    """

    text: str  # `following` of the text after the caret
    presentation: Presentation
    costs: Callable[[int], float] | None = None
    gains: dict[tuple[int, ...], float] = field(default_factory=dict)
    silent: bool = False

    def __call__(
        self, drafts: Drafts, shown: list[TextDraft], sequence: Sequence, logits: Tensor
    ) -> Generator[tuple[list[Row], Drafts], list[Tensor], None]:
        """Yields the pass, unless it costs more than `LEAST` and more than `SHARE` of the drafts. No clock decides: the
        same text has the same drafts, whatever else runs and is cached.

        Args:
            shown: the rows of the drafts.
            sequence: contains the prefix, which ends before a half-typed word.
            logits: (V,) after the prefix.
        """
        rows = [row for row in shown if row.text]
        if not rows:
            return
        typed = self.presentation.typed.decode("utf-8", "ignore")
        encode, follows = self.presentation.tokenizer.encode, self.text
        texts = ["", *(row.text for row in rows)]
        # A draft and the following text are encoded as one text, because a token may contain the end of one and the
        # beginning of the other.
        paths = [encode(typed + spaced(text, follows) + follows) for text in texts]
        if not self._affordable(sum(map(len, paths)), drafts):
            return
        scores = yield from score_paths(paths, sequence, replace(drafts, done=False))
        reached = [
            float(token_logprobs(path, logits, after)[common(path, encode(typed + text)) :].sum())
            for text, path, after in zip(texts, paths, scores, strict=True)
        ]
        self.gains = {row.ids: end - reached[0] for row, end in zip(rows, reached[1:], strict=True)}
        self.silent = max(self.gains.values()) < -MOST_LOST

    def _affordable(self, inputs: int, drafts: Drafts) -> bool:
        if self.costs is None:
            return True
        rows = max(round(sum(draft.tokens for draft in drafts.drafts) / drafts.step), 1)
        return self.costs(inputs) <= max(LEAST, SHARE * drafts.step * self.costs(rows))

    def joins(self, row: TextDraft) -> bool:
        """Whether the row leads to the following text: that text is at least as probable with it as without it. False
        if no pass has compared them."""
        return row.gain is not None and row.gain >= JOINS

    def ranked(self, rows: list[TextDraft]) -> list[TextDraft]:
        """The rows with their gains."""
        return [replace(row, gain=self.gains.get(row.ids)) for row in rows]


def token_logprobs(line: list[int], first: Tensor, after: Tensor) -> Tensor:
    """ln P (n,) of each token of a line, from the logits (V,) before it and (n, V) after each of its tokens."""
    x = torch.cat([first[None], after[:-1]]).float()
    return torch.log_softmax(x, 1)[torch.arange(len(line)), torch.tensor(line)]
