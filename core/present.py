"""Drafts as the page shows them: from tokens to text, and back for the rows that stay. Pure functions, no passes."""

from __future__ import annotations

from collections.abc import Mapping
from collections.abc import Sequence as Ids
from dataclasses import dataclass, field, replace

import numpy as np

from core.drafting.drafts import Draft, Drafts, Kept
from core.models.base import Tokenizer
from core.options import DEFAULT
from core.text import shown, whole_words, without_dangling, without_repeated

SHORT = 4  # tokens left of a kept row, below which it grows again
Came = tuple[int, int, str, float | None]  # from where to where, how, and the LTS


@dataclass(frozen=True)
class Chance:
    """One token of a draft: its text, ln p by the model alone, and the likeliest tokens at its place with theirs."""

    text: str
    logprob: float
    likeliest: tuple[tuple[str, float], ...] = ()


@dataclass(frozen=True)
class TextDraft:
    """One draft as the person sees it.

    Attributes:
        id: stays with the draft while it grows.
        text: exactly the characters that picking it inserts at the caret.
        probability: how likely the writer is to take this branch: of the token with which the draft parts from the
            others, given the typed text.
        whole: of all its tokens.
        finished: it ended its line.
        personal: from where to where in `text` a personal store decided on the words; it ends before the second.
        how: likewise, how speculation produced each token, and its LTS where it has one.
        path: for each token, where it ends in `text`, and ln p of the draft up to it.
        ids: the draft's tokens after the prefix, those of a half-typed word included.
        chances: what the model alone says of each token that shows, where that was wanted.
        gain: how much the draft raises ln P of the text after the caret, where that was computed.
    """

    id: int
    text: str
    probability: float
    whole: float
    finished: bool
    personal: tuple[tuple[int, int], ...] = ()
    how: tuple[Came, ...] = ()
    path: tuple[tuple[int, float], ...] = ()
    ids: tuple[int, ...] = ()
    chances: tuple[Chance, ...] = ()
    gain: float | None = None


@dataclass(frozen=True)
class KeptRow:
    """A row that the reader still sees: its number, and exactly the text of it that is left at the caret."""

    id: int
    text: str


@dataclass(frozen=True)
class Page:
    """The page's side of some drafts.

    Attributes:
        tokenizer: of the model.
        typed: bytes of the half-typed word that the drafts begin with.
        most: rows at most.
        distinct: rows keep their places. False: the paper's rule, in which drafts are ordered by score.
        whole_words: tokens of a draft at most, for drafts that end at words once they are done; None shows all that
            are the draft's own.
        rounded: drafts do not end in words like "and the" once they are done.
        kept: text of each row that stays.
        before: the text before the caret.
        earlier: the rows of the completions before, each with the text that it was drafted after; the latest first.
        after: the text after the caret; a row ends where it begins to repeat that.
        all: every draft has a row, also one without text, or with the text of another.
    """

    tokenizer: Tokenizer
    typed: bytes
    most: int
    distinct: bool = DEFAULT["distinct"]
    whole_words: int | None = None
    rounded: bool = False
    kept: Mapping[int, str] = field(default_factory=dict)
    before: str = ""
    earlier: Ids[tuple[str, TextDraft]] = ()
    after: str = ""
    all: bool = False

    def drafted(self, row: int, text: str) -> tuple[TextDraft, int] | None:
        """The earlier row of this number that holds this text here, and how many of its characters were typed since."""
        for before, one in self.earlier:
            gone = len(self.before) - len(before)
            if (
                one.id == row
                and gone >= 0
                and self.before == before + one.text[:gone]
                and one.text.startswith(text, gone)
            ):
                return one, gone
        return None

    def text(self, ids: list[int]) -> str:
        """The characters that tokens add to the typed text."""
        return shown(self.tokenizer, ids, self.typed)


def present(drafts: Drafts, page: Page) -> list[TextDraft]:
    """The rows of the page, in the order of their numbers; no two of them with the same text, none empty, unless the
    page wants all."""
    rows = [_row(draft, page, drafts.done) for draft in drafts.drafts]
    if page.distinct:
        rows = sorted((_with_earlier(row, page) for row in rows), key=lambda row: row.id)
    else:  # finished drafts stand beside the living; several may share a lineage
        rows += [
            TextDraft(0, page.text(ids), float(np.exp(p / len(ids))), float(np.exp(p)), True, ids=tuple(ids))
            for ids, p in drafts.finished
        ]
        rows.sort(key=lambda row: -row.whole)
        rows = [replace(row, id=i) for i, row in enumerate(rows)]
    if page.after:
        rows = [_shortened(row, without_repeated(row.text, page.after, not drafts.done), page) for row in rows]
    if drafts.done and page.rounded:
        rows = [_rounded(row, page, [other.text for other in rows if other is not row]) for row in rows]
    if page.all:
        return rows[: page.most]
    by_text: dict[str, TextDraft] = {}
    for row in rows:
        if row.text:
            by_text.setdefault(row.text, row)
    return list(by_text.values())[: page.most]


def kept_rows(rows: Ids[KeptRow], page: Page, word: int, length: int) -> list[Kept]:
    """Rows as tokens after the prefix; without those that cannot be continued as they stand.

    Args:
        word: tokens of the half-typed word.
        length: a row with fewer tokens left after the caret grows again.
    """
    try:
        typed = page.typed.decode("utf-8")
    except UnicodeDecodeError:
        return []
    found = []
    for row in rows:
        ids = page.tokenizer.encode(typed + row.text)
        if row.id < page.most and page.text(ids) == row.text:
            found.append(Kept(row.id, ids, len(ids) - word < length, _earlier_totals(row, ids, page)))
    return found


def _earlier_totals(row: KeptRow, ids: list[int], page: Page) -> list[float]:
    """ln p up to each of a kept row's tokens, as the completion before found them; [] where it had no such row."""
    found = page.drafted(row.id, row.text)
    if found is None or not found[0].path:
        return []
    earlier, gone = found
    ends = [gone + len(page.text(ids[: n + 1])) for n in range(len(ids))]
    return [next((p for at, p in earlier.path if at >= end), earlier.path[-1][1]) for end in ends]


def _row(draft: Draft, page: Page, done: bool) -> TextDraft:
    # Only the draft's own tokens are worth a reader's eye; the rest drifts into other drafts.
    ids = draft.ids[: draft.own] if page.distinct else draft.ids
    if page.whole_words is not None and done:
        n = whole_words(lambda n: page.text(draft.ids[:n]), len(draft.ids), min(len(ids), page.whole_words))
        ids = draft.ids[:n]
    ends = [0, *(len(page.text(draft.ids[: i + 1])) for i in range(len(draft.ids)))]
    return TextDraft(
        draft.row,
        page.text(ids),
        draft.branch,
        float(np.exp(draft.logprob)),
        draft.ended,
        _spans(ids, draft.personal, page),
        tuple((a, b, *came) for a, b, came in zip(ends, ends[1:], draft.how, strict=False) if a < b),
        tuple(zip(ends[1 + draft.start :], draft.totals, strict=False)),
        tuple(draft.ids),
    )


def _spans(ids: list[int], personal: list[bool], page: Page) -> tuple[tuple[int, int], ...]:
    """From where to where in the draft's text a personal store decided on the tokens; neighbours are joined."""
    spans: list[tuple[int, int]] = []
    for i in [i for i in range(len(ids)) if personal[i]]:
        start, end = len(page.text(ids[:i])), len(page.text(ids[: i + 1]))
        if start == end:
            continue  # nothing of it shows: typed already, or half a character
        if spans and spans[-1][1] == start:
            start = spans.pop()[0]
        spans.append((start, end))
    return tuple(spans)


def _rounded(row: TextDraft, page: Page, others: Ids[str]) -> TextDraft:
    """The row without words like "and the" at its end; a kept row is not cut into, and no row becomes the beginning of
    another one."""
    text = row.text if row.finished else without_dangling(row.text)
    return row if any(other.startswith(text) for other in others) else _shortened(row, text, page)


def _shortened(row: TextDraft, text: str, page: Page) -> TextDraft:
    """The row with the beginning of its text; a kept row is not cut into."""
    if text == row.text or len(text) < len(page.kept.get(row.id, "")):
        return row
    spans = tuple((a, min(b, len(text))) for a, b in row.personal if a < len(text))
    return replace(row, text=text, personal=spans)


def _with_earlier(row: TextDraft, page: Page) -> TextDraft:
    """A kept row with the personal spans that its words had when they were drafted."""
    kept = page.kept.get(row.id)
    found = None if kept is None else page.drafted(row.id, kept)
    if kept is None or found is None or not row.text.startswith(kept):
        return row
    earlier, gone = found
    end = gone + len(kept)
    spans = tuple((max(a, gone) - gone, min(b, end) - gone) for a, b in earlier.personal if b > gone and a < end)
    since = tuple((a, b) for a, b in row.personal if a >= len(kept))
    return replace(row, personal=spans + since)
