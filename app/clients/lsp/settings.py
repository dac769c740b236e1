"""The settings of the language server, as an editor sends them, validated."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from app.clients.options import ClientOptions
from app.machine.running import PORT
from app.wire.bounds import Phrases
from app.wire.refused import Refused, in_words
from core.errors import InputError
from core.options import DRAFTING, LONGEST

SECTION = "polydraft"
PROSE = [
    "plaintext", "text", "markdown", "mdx", "rmd", "rmarkdown", "quarto", "latex", "tex", "plaintex", "context",
    "typst", "restructuredtext", "rst", "org", "norg", "asciidoc", "asciidoctor", "mediawiki", "vimwiki", "textile",
    "fountain", "mail", "git-commit", "gitcommit",
]  # fmt: skip  # language identifiers of VS Code, and file types of Vim and Emacs
ALL = "*"


class EditorSettings(BaseModel):
    """The settings that an editor may send.

    Attributes:
        show: when drafts appear by themselves: those that save time, all, all after a pause, or none. Drafts that the
            user requests are all shown.
        k, length: the number of drafts, and the highest number of their tokens.
        prose_languages: the languages that have drafts everywhere, by the editor's identifiers; "*" stands for all.
        comments: whether all other languages have drafts within comments.
        background: patterns of the names of open files that the model reads before the text, the nearest last:
            "notes.md", "mail/*.txt".
        never: words and phrases that no draft contains, "form*" with any ending.
        no_slurs: whether drafts that appear by themselves contain no slurs, by the list that comes with Polydraft.
        port: of the drafting server.
        start: whether to start a drafting server if none runs at the port.
        options: further fields of `/v1/completions`, as docs/clients.md lists them.
    """

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)

    show: Literal["time", "always", "pause", "demand"] = "time"
    k: int = Field(int(DRAFTING["k"].default), ge=DRAFTING["k"].low, le=DRAFTING["k"].high)
    length: int = Field(int(DRAFTING["length"].default), ge=DRAFTING["length"].low, le=LONGEST)
    prose_languages: list[str] = PROSE
    comments: bool = True
    background: list[str] = []
    never: Phrases = Field(default=[])
    no_slurs: bool = True
    port: int = Field(PORT, ge=1, le=65535)
    start: bool = True
    options: dict[str, object] = {}

    @model_validator(mode="after")
    def _drafting(self) -> EditorSettings:
        try:
            ClientOptions.model_validate(self.options, strict=True).settings(self.k, self.length, {})
        except Refused as error:
            raise ValueError(error.message) from None
        return self


def parsed_settings(*given: Any) -> EditorSettings:
    """Returns the settings with the editor's values; a later value replaces an earlier one. Null is ignored, because
    editors send it for settings that the user has not set.

    Raises: InputError, which names each invalid setting.
    """
    for values in given:
        if not isinstance(values, dict):
            raise InputError(f"{values!r} given; an object with settings expected.")
    try:
        merged = {name: value for values in given for name, value in values.items() if value is not None}
        return EditorSettings.model_validate(merged)
    except ValidationError as error:
        details = error.errors(include_url=False)
        raise InputError(" ".join(in_words(dict(detail), "options") for detail in details)) from None


def section(given: Any) -> Any:
    """Returns Polydraft's part of an editor's settings. Some editors send it alone, others under the name
    "polydraft"."""
    return (given[SECTION] if isinstance(given, dict) and SECTION in given else given) or {}
