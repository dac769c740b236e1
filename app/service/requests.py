"""The bodies of requests for drafts, as the page posts them, and what the model is asked for each (`core.ask.Ask`)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields
from functools import cache
from typing import TYPE_CHECKING, Any

from pydantic import Field, field_validator

from app.options.settings import DraftSettings, Strict, drafting
from app.service.showing import Showing
from app.wire.bounds import MOST_TOKENS, Avoided, Biases, Count, Files, Id, Line, Names, Phrases, Text, Token
from core.errors import InputError, PolydraftError
from core.ngram.errors import StoreError
from core.options import DRAFTING

if TYPE_CHECKING:
    from core.ask import Ask
    from core.autocomplete import Autocomplete

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

    @field_validator("kept")
    @classmethod
    def _each_row_once(cls, kept: list[KeptDraft]) -> list[KeptDraft]:
        if len({row.id for row in kept}) < len(kept):
            raise ValueError("the same row given twice; each id once expected")
        return kept

    def ask(self, autocomplete: Autocomplete, kept: Sequence[KeptDraft]) -> Ask:
        """What the request asks, with these of its kept rows. A field that an `Ask` has, too, is passed on as it is.
        Raises as `asked`."""
        from core.ask import KeptRow  # torch comes with it
        from core.time_saved import END_BELOW

        settings = self.settings
        own = {name: getattr(self, name) for name in _shared()}
        own |= {"kept": [KeptRow(row.id, row.text, row.chosen) for row in kept], "repeats": self.detailed}
        # The page sends all its settings, so its default counts as not chosen.
        own["tails"] = self.tails or (self.grow and settings.exact_steps == _SHIPPED.exact_steps)
        if self.show is not None and self.show.only and not settings.reset_every:
            own["end_below"] = min(settings.end_below, END_BELOW)
        return asked(autocomplete, settings, **own)


@cache
def _shared() -> list[str]:
    from core.ask import Ask

    return [field.name for field in fields(Ask) if field.name in DraftRequest.model_fields]


class SettingRefused(InputError):
    """A setting cannot be used with the others, or with this model. The page takes it back, and says why beside it.

    Attributes:
        setting: its name in `sampling` of a request.
    """

    def __init__(self, setting: str, reason: str) -> None:
        self.setting = setting
        super().__init__(reason)


def asked(autocomplete: Autocomplete, settings: DraftSettings, **more: Any) -> Ask:
    """What is asked with these settings, their rule and their method, and these fields of an `Ask`. Raises InputError,
    SettingRefused for a speculation that these settings or this model cannot have."""
    if settings.plain:
        return drafting(settings, **more)
    from core.modes.start import Mode

    chosen = settings.sampling
    rule = autocomplete.sampler(
        chosen.rule, chosen.values, settings.temperature, settings.select_at, chosen.breakers, chosen.more
    )
    speculation = None
    if settings.speculates:
        from app.options.speculation import chosen_by

        try:
            speculation = chosen_by(autocomplete, settings, more.get("stores"))
        except StoreError:  # a request names the store, no setting
            raise
        except PolydraftError as error:
            raise SettingRefused("speculation", str(error)) from error
    mode = Mode(chosen.mode, **chosen.mode_values, speculation=speculation)
    return drafting(settings, mode=mode, rule=rule, **more)
