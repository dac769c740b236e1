"""The drafts for one state of a text, as they are after one pass."""

from __future__ import annotations

from collections.abc import Sequence as Ids
from dataclasses import dataclass

from torch import Tensor

from core.drafting.boundaries import Boundaries, mask_others
from core.drafting.drafts import Figures
from core.present import TextDraft
from core.time_saved import RowPath


@dataclass(frozen=True)
class Explained:
    """What the drafts of a request took.

    Attributes:
        passes, rows: the number of forward passes, and of the rows in them.
        ms: from before the first pass until after the last.
        apart_ms: what the same drafts would take one after the other with a row each: the same reading of the text,
            which gives every draft its first token, and then a pass of one row for each further token that is shown,
            by the measured cost. None if it was not measured on this machine.
    """

    passes: int
    rows: int
    ms: float
    apart_ms: float | None


@dataclass(frozen=True, eq=False)
class Completion:
    """The drafts for one state of a text, as they are after one pass.

    Attributes:
        drafts: in the order of their rows (with the paper's rule: the most probable first); [] before the first pass,
            unless its logits were cached.
        withdrawn: rows that are not among `drafts` in the end, because each makes the text after the caret much less
            probable. A caller who has shown rows already, or was asked for all, shows them none the less.
        step: 0 before the first drafts, then the number of passes that made them.
        settled: whether rows only grow from now on; before, a row may be replaced.
        compared: whether the drafts have been compared with the text after the caret, if there is any. Before, all of
            them may be withdrawn.
        checked: whether the model has checked the drafts; see `Ask.verify` and `Ask.tails`.
        done: whether no pass follows.
        foreign: whether there are no drafts because nobody has requested them, and the text is in another language than
            the model's.
        best: the number of the draft with the longest expected match; None before the first drafts.
        reused, fed: the number of the text's tokens that were in the cache, and of those that were fed so far.
        skipped, background_skipped: the number of characters at the beginning of the text and of its background that
            the model does not read.
        figures: statistics of speculation; None without speculation.
        exact_steps: those of superposed drafts, given or chosen.
        inside: whether the drafts continue a half-typed word.
        logits: (V,) at each boundary where drafts may begin; () before they are known.
        boundaries: those of the half-typed word.
        explained: what the complete drafts took, if the request asks for it.
    """

    drafts: list[TextDraft]
    withdrawn: Ids[TextDraft] = ()
    step: int = 0
    settled: bool = False
    compared: bool = True
    checked: bool = False
    done: bool = False
    foreign: bool = False
    best: int | None = None
    reused: int = 0
    fed: int = 0
    skipped: int = 0
    background_skipped: int = 0
    figures: Figures | None = None
    exact_steps: int = 0
    inside: bool = False
    logits: Ids[Tensor] = ()
    boundaries: Boundaries | None = None
    explained: Explained | None = None

    @property
    def next_logits(self) -> Tensor | None:
        """The logits (V,) of the drafts' first token; None before the first drafts. In a half-typed word, the logits at
        the most probable token boundary, with -inf for all tokens that do not continue the word.
        `core.samplers.view` shows other rules at this position without a pass."""
        if self.boundaries is None:
            return None
        boundary = self.boundaries.likeliest(list(self.logits))
        allowed = self.boundaries.allowed(boundary)
        return self.logits[boundary] if allowed is None else mask_others(self.logits[boundary], allowed)

    @property
    def whole_logits(self) -> Tensor | None:
        """The same with the tokens that do not continue the word."""
        return None if self.boundaries is None else self.logits[self.boundaries.likeliest(list(self.logits))]

    @property
    def paths(self) -> list[RowPath]:
        """The drafts with the probability of each place where they may end; see `core.time_saved`."""
        return [RowPath.of(draft) for draft in self.drafts]
