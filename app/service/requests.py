"""The bodies of requests for drafts, as the page posts them."""

from __future__ import annotations

from pydantic import Field, field_validator

from app.options.settings import DraftSettings, Strict
from app.service.showing import Showing
from app.wire.bounds import MOST_TOKENS, Avoided, Biases, Count, Files, Id, Line, Names, Phrases, Text, Token
from core.options import DRAFTING

MOST_AFTER = 1024  # characters
MOST_REPLACED = 512  # characters of the words that are replaced
MOST_LIKELIEST = 20  # as many as llama-server's pages show
_SHIPPED = DraftSettings()
MOST_DRAFTS = int(DRAFTING["k"].high)


class KeptDraft(Strict):
    """A row that the page still shows and that agrees with the text: its number, its rest after the caret, and whether
    the writer chose its beginning (`core.ask.KeptRow`)."""

    id: int = Field(ge=0, lt=MOST_DRAFTS)
    text: Line
    chosen: bool = False


class DraftRequest(Strict):
    """A tab requests drafts after the text before its caret. `core.ask.Ask` says what the fields mean that it has, too.

    Attributes:
        tab: identifies the text; a newer request of the same tab replaces an older one.
        n: a number that grows with every request of the tab.
        removed: the mark of the events that the kept rows came with. None: the rows contain no text that was removed
            from a personal store since.
        tails: a program asks, not at every key.
        after: the beginning of the text after the caret.
        words: the words that the writer wants to replace, between the two: the drafts are what could stand there.
        corrects: the client can delete letters.
        all: show the drafts also if each of them makes the text after the caret much less likely.
        base_stores: files of the chosen base stores that this document uses, beside those that every document uses. One
            that is no longer among the chosen ones has no effect.
        by_text: the tab has no session; start from the cached text with the longest common prefix.
        detailed: send every step, and the tokens of each draft; for programs.
        explain: the complete drafts come with how each token was made; for whoever looks at that.
        show: the writer's speed; the complete drafts come with the rows that save this writer time.
    """

    tab: Id
    n: Count
    before: Text
    settings: DraftSettings = Field(default_factory=lambda: _SHIPPED)  # pydantic would copy a default each time
    kept: list[KeptDraft] = Field(default_factory=list, max_length=MOST_DRAFTS)
    removed: str | None = Field(default=None, max_length=64)
    grow: bool = False
    tails: bool = False
    background: Text = ""
    after: str = Field(default="", max_length=MOST_AFTER)
    words: str = Field(default="", max_length=MOST_REPLACED)
    unasked: bool = False
    merge_alike: bool = False
    corrects: bool = False
    all: bool = False
    heal: bool = True
    stores: Names | None = None
    base_stores: Files = Field(default_factory=list)
    never: Phrases = Field(default_factory=list)
    avoid: Avoided = Field(default_factory=list)
    no_slurs: bool = False
    token_bias: Biases = Field(default_factory=list)
    by_text: bool = False
    detailed: bool = False
    explain: bool = False
    show: Showing | None = None
    scores: bool = False
    ids: list[Token] = Field(default_factory=list, max_length=MOST_TOKENS)
    likeliest: int | None = Field(default=None, ge=0, le=MOST_LIKELIEST)
    after_rule: bool = False

    @property
    def read(self) -> str:
        """What the model reads: the background and the text."""
        return f"{self.background}\0{self.before}" if self.background else self.before

    @property
    def end_below(self) -> float:
        """Where drafts end; see `DraftOptions`."""
        from core.time_saved import END_BELOW

        chosen = self.settings.end_below
        return min(chosen, END_BELOW) if self.show is not None and self.show.only else chosen

    @property
    def holds_tails(self) -> bool:
        """Whether Polydraft chooses the exact steps, so that long drafts hold. The page sends all its settings, so its
        default counts as not chosen."""
        return self.tails or (self.grow and self.settings.exact_steps == _SHIPPED.exact_steps)

    @field_validator("kept")
    @classmethod
    def _each_row_once(cls, kept: list[KeptDraft]) -> list[KeptDraft]:
        if len({row.id for row in kept}) < len(kept):
            raise ValueError("the same row given twice; each id once expected")
        return kept
