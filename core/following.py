"""Drafts that know the text after the caret.

A draft is cut where it begins to repeat what follows. Then one pass over a few short rows computes how likely the
model finds each draft together with the beginning of the following text, and the following text without any draft:

    J(d) = ln P(draft d, what follows | text before)        J(0) = ln P(what follows | text before)

Drafts are ranked by J(d). None is shown unless one of them is more likely than silence: J(d) > J(0).
"""

from __future__ import annotations

import re
import time
from collections.abc import Generator
from dataclasses import dataclass, field, replace

import torch
from torch import Tensor

from core.drafting.drafts import Drafts
from core.drafting.scored import scored
from core.models.base import Row, Sequence
from core.present import Page, TextDraft, present

LOOKED_AT = 32  # characters of what follows that the pass reads
SHARE = 1.0  # the pass may take as long as the drafts took
FORGETS = 0.9  # a skipped pass counts as faster next time, so that one slow pass is not the last

_WORDS = re.compile(r".*\S(?=\s)", re.S)


def beginning(after: str) -> str:
    """The part of the following text that is looked at: whole words."""
    words = _WORDS.match(after[: LOOKED_AT + 1]) if len(after) > LOOKED_AT else None
    return words[0] if words else after[:LOOKED_AT]


@dataclass
class Pace:
    """How long the pass takes for each of its inputs, as last measured; one for each model."""

    seconds: float | None = None


@dataclass
class Following:
    """What follows the caret, and what the pass found.

    Attributes:
        gains: J(d) - J(0) of each draft, by its tokens; {} where no pass was made.
        silent: no draft is more likely than none.
    """

    text: str
    page: Page
    pace: Pace
    gains: dict[tuple[int, ...], float] = field(default_factory=dict)
    silent: bool = False

    def __call__(
        self, drafts: Drafts, sequence: Sequence, logits: Tensor, took: float
    ) -> Generator[tuple[list[Row], Drafts], list[Tensor], None]:
        """Yields the pass, unless it would take more than `SHARE` of the seconds that the drafts took.

        Args:
            sequence: holds the prefix, which ends before a half-typed word.
            logits: (V,) after the prefix.
        """
        rows = [row for row in present(drafts, self.page) if row.text]
        typed = self.page.typed.decode("utf-8", "ignore")
        encode, follows = self.page.tokenizer.encode, beginning(self.text)
        # Each line is encoded as a whole, for tokens may join across the caret.
        lines = [encode(typed + text + follows) for text in ("", *(row.text for row in rows))]
        if not rows or not all(lines):
            return
        inputs = sum(map(len, lines))
        if self.pace.seconds is not None and self.pace.seconds * inputs > SHARE * took:
            self.pace.seconds *= FORGETS
            return
        began = time.perf_counter()
        found = yield from scored(lines, sequence, replace(drafts, done=False))
        self.pace.seconds = (time.perf_counter() - began) / inputs
        joint = [_joint(line, logits, after) for line, after in zip(lines, found, strict=True)]
        self.gains = {row.ids: j - joint[0] for row, j in zip(rows, joint[1:], strict=True)}
        self.silent = max(self.gains.values()) <= 0

    def best(self, rows: list[TextDraft], otherwise: int | None) -> int | None:
        """The number of the row with the highest gain, where the gains are known."""
        known = [row for row in rows if row.ids in self.gains]
        return max(known, key=lambda row: self.gains[row.ids]).id if known else otherwise


def _joint(line: list[int], first: Tensor, after: Tensor) -> float:
    """ln P of a line: from the logits (V,) before it and (n, V) after each of its tokens."""
    x = torch.cat([first[None], after[:-1]]).float()
    return float(torch.log_softmax(x, 1)[torch.arange(len(line)), torch.tensor(line)].sum())
