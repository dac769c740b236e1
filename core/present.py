"""Converts drafts to the rows of the page, and kept rows back to tokens. Pure functions without passes."""

from __future__ import annotations

from collections.abc import Mapping
from collections.abc import Sequence as Ids
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Literal

import numpy as np

from core.ask import Ask, KeptRow
from core.drafting.drafts import Draft, Drafts, Kept
from core.drafting.record import Made
from core.drafting.rows import copy_with_p_branch
from core.ends import last_end
from core.forms import begins_paragraph, suits
from core.models.base import Tokenizer, common
from core.text import (
    ShownText,
    following,
    say_the_same,
    says_something,
    up_to_punctuation,
    without_dangling,
    without_repeated,
)

SHORT = 4  # a kept row with fewer remaining tokens grows again
Tail = Literal["own", "superposed", "checked"]
Origin = tuple[int, int, str, float | None]  # start and end in the text, how speculation produced it, its LTS


@dataclass(frozen=True)
class TokenLogprob:
    """One token of a draft, by the model alone (`core.logprobs`).

    Attributes:
        text: its part of the row's text.
        logprob: its ln q; None for the first token of a scored text, before which nothing stands.
        likeliest: the names of the most probable tokens there, each with its ln q and its id.
        name: the token's text, also of a part of a character, for which `text` is empty or the whole character.
        id: the token's number.
    """

    text: str
    logprob: float | None
    likeliest: tuple[tuple[str, float, int], ...] = ()
    name: str = ""
    id: int = 0


@dataclass(frozen=True)
class TextDraft:
    """One row of the page.

    Attributes:
        id: the row's number; the draft keeps it while it grows.
        text: the characters that the page inserts at the caret when the writer picks the draft.
        probability: `Draft.p_branch`, up to the first token that differs from the other drafts, given the typed text.
        p_joint: the joint probability of all its tokens, exp(`Draft.logprob`).
        finished: whether the draft ended its line.
        personal: the ranges of `text` that a personal store decided, each with its start and the end after it.
        how: ranges of `text` likewise, with how speculation produced each token, and its LTS if it has one.
        path: for each token, its end in the draft's text, of which `text` is the beginning, and ln p of the draft up to
            it.
        ids: the draft's tokens after the prefix, including those of a half-typed word.
        model_logprobs: ln q of each visible token by the model alone; () if they were not requested.
        made: ranges of `text` likewise, with how each token of a complete draft was made; () if that was not requested.
        tail: how its tokens were computed: "own", each in a row of the draft alone; "superposed", the later ones in a
            row with other drafts; "checked", the same, and the model found them plausible or corrected them.
        gain: the increase of ln P of the text after the caret by the draft; None if it was not computed.
        replace: the number of typed characters before the caret that `text` replaces, because they contain a slip.
    """

    id: int
    text: str
    probability: float
    p_joint: float
    finished: bool
    personal: tuple[tuple[int, int], ...] = ()
    how: tuple[Origin, ...] = ()
    path: tuple[tuple[int, float], ...] = ()
    ids: tuple[int, ...] = ()
    model_logprobs: tuple[TokenLogprob, ...] = ()
    gain: float | None = None
    replace: int = 0
    made: tuple[tuple[int, int, Made], ...] = ()
    tail: Tail = "own"


@dataclass(frozen=True)
class Presentation:
    """What `present` needs to make rows: the request, and its context.

    Attributes:
        tokenizer: of the model.
        ask: the request.
        typed: the bytes of the half-typed word, with which the drafts begin.
        earlier: the rows of the previous requests, each with the text before it; the latest first.
    """

    tokenizer: Tokenizer
    ask: Ask
    typed: bytes = b""
    earlier: Ids[tuple[str, TextDraft]] = ()

    @cached_property
    def most(self) -> int:
        """The highest number of rows."""
        return self.ask.mode.most(self.ask.k)

    @cached_property
    def kept(self) -> Mapping[int, str]:
        """The text of each kept row, by number."""
        return {row.id: row.text for row in self.ask.kept if self.ask.keeps_rows}

    @cached_property
    def chosen(self) -> frozenset[int]:
        """The numbers of the kept rows whose beginnings the writer chose."""
        return frozenset(row.id for row in self.ask.kept if row.chosen and self.ask.keeps_rows)

    @cached_property
    def shown(self) -> ShownText:
        """The text of drafts, which may have several lines where they have resets."""
        return ShownText(self.tokenizer, lines=bool(self.ask.reset_every))

    def drafted(self, row: int, text: str) -> tuple[TextDraft, int] | None:
        """Returns the earlier row with this number that contains this text at the caret, and the number of its
        characters that have been typed since."""
        for before, draft in self.earlier:
            typed = len(self.ask.before) - len(before)
            if (
                draft.id == row
                and typed >= 0
                and self.ask.before == before + draft.text[:typed]
                and draft.text.startswith(text, typed)
            ):
                return draft, typed
        return None

    def text(self, ids: list[int]) -> str:
        """Returns the characters that tokens add to the typed text, or put in place of its end (`replaced`)."""
        return self.text_and_ends(ids)[0]

    def ends(self, ids: list[int]) -> list[int]:
        """Returns the number of characters that the first n tokens add, for n from 0 to all of them."""
        return self.text_and_ends(ids)[1]

    def text_and_ends(self, ids: list[int]) -> tuple[str, list[int]]:
        """Returns both."""
        return self.shown(ids, self.typed[: self._agreed(ids)])

    def say_the_same(self, ids: list[int], other: list[int]) -> bool:
        """Whether two drafts would be one row; see `Ask.merge_alike`."""
        typed = self.typed.decode("utf-8", "ignore")
        return _same(typed + self.text(ids), typed + self.text(other), self)

    def replaced(self, ids: list[int]) -> int:
        """Returns the number of typed characters that a draft replaces."""
        return len(self.typed[self._agreed(ids) :].decode("utf-8", "replace"))

    def _agreed(self, ids: list[int]) -> int:
        """The number of typed bytes with which a draft begins: all of them, unless the draft corrects a slip, of which
        there is none before letters other than a to z."""
        if not self.ask.corrects or not ids:
            return len(self.typed)
        first = self.tokenizer.pieces[ids[0]]
        return common(first, self.typed) if not self.typed.startswith(first) else len(self.typed)


def present(drafts: Drafts, how: Presentation) -> list[TextDraft]:
    """Returns the rows of the page, in the order of their numbers. Unless sampled drafts may repeat each other, empty
    rows and rows like another one are left out; of two that are alike the one stays that the writer chose, or else the
    one that the page shows already. A draft whose number is not that of a row is not shown."""
    ask = how.ask
    if ask.in_slots:
        rows = [_row(draft, how, drafts) for draft in drafts.drafts if draft.slot < how.most]
        rows = sorted((_with_earlier(row, how) for row in rows), key=lambda row: row.id)
    else:  # finished drafts compete with the growing ones; several may share a lineage
        competing = sorted(copy_with_p_branch([*drafts.drafts, *drafts.finished]), key=lambda draft: -draft.logprob)
        rows = [replace(_row(draft, how, drafts), id=i) for i, draft in enumerate(competing)]
    if ask.after:
        rows = [_shortened(row, without_repeated(row.text, ask.after, not drafts.done), how) for row in rows]
    if ask.keeps_rows:
        others = {row.id: [other.text for other in rows if other is not row] for row in rows if row.id != drafts.best}
        rows = [_rounded(row, how, others.get(row.id, [])) for row in rows]
    if ask.repeats and ask.mode.drawn:
        return rows[: how.most]
    if ask.unasked:
        rows = _unasked(rows, how)
    typed = how.typed.decode("utf-8", "ignore")
    rows = [row for row in rows if row.id in how.kept or says_something(row.text, ask.before)]
    different: dict[int, str] = {}  # what each row makes of the typed word, by number
    first = sorted(rows, key=lambda row: (row.id not in how.chosen, row.id not in how.kept))
    for row in first if ask.in_slots else rows:
        text = typed[: len(typed) - row.replace] + row.text
        if row.text and not any(_same(text, other, how) for other in different.values()):
            different[row.id] = text
    return [row for row in rows if row.id in different][: how.most]


def _same(one: str, other: str, how: Presentation) -> bool:
    return one == other or (how.ask.merge_alike and say_the_same(one, other))


def _unasked(rows: list[TextDraft], how: Presentation) -> list[TextDraft]:
    """The rows that may appear unasked: where a paragraph begins, those in the document's form; where text follows on
    the line, each up to the next punctuation."""
    if begins_paragraph(how.ask.before):
        return [row for row in rows if not row.text[:1].isspace() and suits(row.text, how.ask.before)]
    if following(how.ask.after):
        return [_shortened(row, up_to_punctuation(row.text), how) for row in rows]
    return rows


def kept_rows(rows: Ids[KeptRow], how: Presentation, word: int, length: int) -> list[Kept]:
    """Encodes rows as tokens after the prefix. Rows that the tokenizer does not reproduce exactly are left out.

    Args:
        word: the number of tokens of the half-typed word.
        length: a row with fewer tokens after the caret grows again.
    """
    try:
        typed = how.typed.decode("utf-8")
    except UnicodeDecodeError:
        return []
    kept = []
    for row in rows:
        ids = how.tokenizer.encode(typed + row.text)
        if row.id < how.most and how.text(ids) == row.text:
            grows = row.chosen or len(ids) - word < length
            kept.append(Kept(row.id, ids, grows, _earlier_totals(row, ids, how), row.chosen))
    return kept


def _earlier_totals(row: KeptRow, ids: list[int], how: Presentation) -> list[float]:
    """Returns ln p up to each token of a kept row, as the earlier completion computed it; [] without such a row."""
    drafted = how.drafted(row.id, row.text)
    if drafted is None or not drafted[0].path:
        return []
    earlier, typed = drafted
    ends = how.ends(ids)[1:]
    return [next((p for at, p in earlier.path if at >= typed + end), earlier.path[-1][1]) for end in ends]


def _row(draft: Draft, how: Presentation, drafts: Drafts) -> TextDraft:
    # Only the draft's own tokens are shown: later tokens drift towards the other drafts.
    most = min(draft.start + how.ask.length, len(draft.ids))
    most = min(draft.own, most) if how.ask.in_slots else most
    (whole, ends), kept = how.text_and_ends(draft.ids), len(how.kept.get(draft.slot, ""))
    end = max(last_end(whole, ends[most], draft.ended or draft.rests), min(kept, len(whole)))
    origins = zip(ends, ends[1:], draft.how, strict=False)
    return TextDraft(
        draft.slot,
        whole[:end],
        draft.p_branch,
        float(np.exp(draft.logprob)),
        draft.ended,
        tuple((a, min(b, end)) for a, b in _spans(ends[: most + 1], draft.personal) if a < end),
        tuple((a, b, *origin) for a, b, origin in origins if a < b <= end),
        tuple(zip(ends[1 + draft.start :], draft.totals, strict=False)),
        tuple(draft.ids),
        replace=how.replaced(draft.ids[:most]),
        tail="own" if draft.exact >= len(draft.ids) else "checked" if drafts.checked else "superposed",
    )


def _spans(ends: list[int], personal: list[bool]) -> tuple[tuple[int, int], ...]:
    """Returns the ranges of the draft's text whose tokens a personal store decided; adjacent ranges are joined."""
    spans: list[tuple[int, int]] = []
    for start, end, ours in zip(ends, ends[1:], personal, strict=False) if any(personal) else ():
        if not ours or start == end:
            continue  # a token that adds no visible text is typed already, or half a character
        if spans and spans[-1][1] == start:
            start = spans.pop()[0]
        spans.append((start, end))
    return tuple(spans)


def _rounded(row: TextDraft, how: Presentation, others: Ids[str]) -> TextDraft:
    """Returns the row without words like "and the" at its end, unless it would become the beginning of one of the
    others. Kept text stays."""
    text, longer = row.text, ""
    while not row.finished and text != longer:
        longer, text = text, without_dangling(text)
        text = text[: last_end(row.text, len(text), closed=True)] or longer
    return row if any(other.startswith(text) for other in others) else _shortened(row, text, how)


def _shortened(row: TextDraft, text: str, how: Presentation) -> TextDraft:
    """Returns the row shortened to `text`, the beginning of its own, or to the last place before where it may end; kept
    text stays. A shortened row has not ended its line."""
    end = last_end(row.text, len(text), closed=True)
    if end == len(row.text) or end < len(how.kept.get(row.id, "")):
        return row
    spans = tuple((a, min(b, end)) for a, b in row.personal if a < end)
    return replace(row, text=row.text[:end], personal=spans, finished=False)


def _with_earlier(row: TextDraft, how: Presentation) -> TextDraft:
    """Returns a kept row with the personal ranges that its words had when they were drafted."""
    kept = how.kept.get(row.id)
    drafted = None if kept is None else how.drafted(row.id, kept)
    if kept is None or drafted is None or not row.text.startswith(kept):
        return row
    earlier, typed = drafted
    end = typed + len(kept)
    spans = tuple((max(a, typed) - typed, min(b, end) - typed) for a, b in earlier.personal if b > typed and a < end)
    added = tuple((a, b) for a, b in row.personal if a >= len(kept))
    return replace(row, personal=spans + added)
