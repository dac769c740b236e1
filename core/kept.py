"""What is kept of one text between its requests."""

from __future__ import annotations

from collections.abc import Sequence

from core.drafting.reuse import KnownLogits
from core.equipped import EquippedModel
from core.healing import WordLogits
from core.models import Sequence as Cached
from core.ngram.earned import Earned
from core.present import TextDraft

REMEMBERED = 64  # rows; those that the page keeps take their probabilities from them


class KeptText:
    """A text with a sequence in the model's cache that contains its tokens, and the logits, rows and weights that its
    next request can use.

    Attributes:
        suspect: the latest text whose last word, half-typed or just finished, may contain a slip.
        shown: the rows of the latest requests, with the text before each; the latest first.
        background_skipped: the number of characters at the beginning of its background that are not read.
    """

    def __init__(self, equipped: EquippedModel, sequence: Cached | None = None) -> None:
        self.equipped = equipped
        self.sequence = equipped.model.open() if sequence is None else sequence
        self.word_logits = WordLogits()
        self.known = KnownLogits()
        self.earned = Earned()
        self.suspect = ""
        self.background_skipped = 0
        self.shown: list[tuple[str, TextDraft]] = []

    def remember(self, before: str, rows: list[TextDraft], earlier: Sequence[tuple[str, TextDraft]]) -> None:
        """Stores the rows of a request, before those of earlier ones. A row that corrects a slip is not kept."""
        self.shown = [*((before, row) for row in rows if not row.replace), *earlier][:REMEMBERED]
