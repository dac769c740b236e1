"""Drafts without certain phrases, in every mode: a draft that completes one steps back to the token in which the phrase
begins, and goes on with the next best token there.

The modes know nothing of phrases. All of them choose tokens through `Options.barred_after`, and are generators that
give the same drafts for the same logits. So a step back removes the token after what precedes it, and starts the mode
again. Logits that the passes before have computed are known, so the drafts are soon where they were, without a pass.

A draft steps back no further than it is its own: not before the caret, not into a row that the page shows already, and
not into what it shares with another draft that contains no phrase. Drafts that are drawn share nothing, even where they
begin alike, so each of them has this distribution, p being the one that the mode draws from:

    x_t is drawn from p(· | x_1 … x_t-1) without the tokens that are removed there. If x_1 … x_t completes a phrase that
    begins in x_s, x_s is removed after x_1 … x_s-1, x_s … x_t are forgotten, with what was removed after x_s, and x_s
    is drawn again, from p(· | x_1 … x_s-1) without the tokens that are removed there, with new noise.

Of several phrases the first that is complete counts; of those that are complete at the same time, the one that begins
last. A phrase is complete once it is known that its last word does not go on. A draft that has stepped back `MOST`
times ends before its next phrase.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Mapping
from collections.abc import Sequence as Ids
from dataclasses import dataclass, replace
from typing import NamedTuple

from core.drafting.drafts import Draft, Drafts, Kept
from core.drafting.driver import Drafting
from core.drafting.removed_tokens import RemovedTokens
from core.drafting.reuse import KnownLogits, reuse_logits
from core.models.base import common
from core.phrases import Found, Phrases, opening

MOST = 16  # steps back of one draft
REMEMBERED = 64 << 20  # bytes of logits: 340 positions of the default model


@dataclass(frozen=True)
class Never:
    """The phrases that no draft contains, and the openings with which none begins (`core.phrases.opening`).

    Attributes:
        openings: a draft that has one steps back to its first own token.
        first: tokens that are such an opening on their own, each with those before it: they need no step back.
        before: the bytes of the text before the drafts' first tokens, or of its end.
        typed: the bytes of the half-typed word, with which the drafts begin.
    """

    phrases: Phrases
    before: bytes = b""
    typed: bytes = b""
    openings: frozenset[str] = frozenset()
    first: Ids[tuple[tuple[int, ...], int]] = ()

    def __bool__(self) -> bool:
        return bool(self.phrases or self.openings)


def without_phrases(
    begin: Callable[[], Drafting], never: Never, removed: RemovedTokens, pieces: Ids[bytes], kept: Ids[Kept] = ()
) -> Drafting:
    """Runs the generators that `begin` starts, until the drafts of one contain none of the phrases.

    Args:
        removed: what the generators' options contain.
        pieces: the bytes of each token.
        kept: rows that the page shows already.
    """
    reader, known = _Reader(never, pieces), KnownLogits(REMEMBERED)
    for ids, token in never.first:
        removed.remove(ids, token)
    shown: Drafts | None = None
    while True:
        before = {} if shown is None else {draft.slot: draft for draft in shown.drafts}
        drafting = reuse_logits(begin(), known, mixed=True, after=removed.prefix)
        try:
            rows, drafts = next(drafting)
            while not _step_back(drafts, found := reader.phrases(drafts), removed, kept):
                shown = _shown(drafts, found, reader, before)
                if not rows:
                    yield [], shown
                    return
                logits = yield rows, shown
                rows, drafts = drafting.send(logits)
        finally:
            drafting.close()


def _step_back(drafts: Drafts, phrases: Mapping[Draft, int], removed: RemovedTokens, kept: Ids[Kept]) -> bool:
    """Removes the tokens in which phrases of these drafts begin. Returns whether there was one."""
    clean = [draft.ids for draft in (*drafts.drafts, *drafts.finished) if draft not in phrases] if phrases else []
    shown = [row.ids for row in kept]
    stepped = False
    for draft, begins in phrases.items():
        if removed.times(draft.slot) >= MOST:
            continue
        others = shown if removed.apart else [*shown, *clean]
        own = max((common(draft.ids, other) for other in others), default=0)
        removed.step_back(draft.slot, draft.ids, min(max(begins, draft.start, own), len(draft.ids) - 1))
        stepped = True
    return stepped


def _shown(drafts: Drafts, phrases: Mapping[Draft, int], reader: _Reader, before: Mapping[int, Draft]) -> Drafts:
    """The drafts without the phrases that are left, and as far as they will not step back. A draft that is being made
    again is as it was shown `before`, by slot."""
    listed: list[Draft] = []
    for draft in drafts.drafts:
        if (begins := phrases.get(draft)) is not None:
            if begins > draft.start:
                listed.append(_cut(draft, begins))
            continue
        if not (drafts.done or _is_whole(draft)):
            if (sure := reader.sure(draft)) < draft.own:
                draft = draft.with_own(sure)
            earlier = before.get(draft.slot)
            if earlier is not None and earlier.ids[: len(draft.ids)] == draft.ids and earlier.own > draft.own:
                draft = replace(earlier, sequence=None)
        listed.append(draft)
    return replace(drafts, drafts=listed, finished=[draft for draft in drafts.finished if draft not in phrases])


def _cut(draft: Draft, end: int) -> Draft:
    """The draft before its token number `end`, which is one of its own."""
    return replace(
        draft,
        ids=draft.ids[:end],
        totals=draft.totals[: end - draft.start],
        own=min(draft.own, end),
        exact=min(draft.exact, end),
        personal=draft.personal[:end],
        how=draft.how[:end],
        ended=True,
        sequence=None,
    )


def _is_whole(draft: Draft) -> bool:
    """Whether no token follows those of the draft, so that its last word is whole."""
    return draft.ended or draft.rests


class _Read(NamedTuple):
    """The tokens of a draft as text.

    Attributes:
        text: the end of the text before the draft, and the draft.
        ends: the place in the text after n tokens, for n from 0 to all of them.
        typed: the place before which all is typed already.
        rest: the bytes of a character that is not whole yet.
        found: the phrases in it, as it grows.
    """

    text: str
    ends: tuple[int, ...]
    typed: int
    rest: bytes
    found: Found


class _Reader:
    """Looks for phrases in drafts. A draft that has grown by a token costs the time of that token."""

    def __init__(self, never: Never, pieces: Ids[bytes]) -> None:
        self._phrases, self._openings = never.phrases, never.openings
        self._typed, self._pieces = never.typed, pieces
        text, rest = _decoded(never.before)
        tail = self._phrases.tail(text)
        begun = self._phrases.find(tail, after=len(tail), closed=False)
        self._known: dict[tuple[int, ...], _Read] = {(): _Read(tail, (len(tail),), len(tail), rest, begun)}
        self._latest: dict[Draft, _Read] = {}

    def phrases(self, drafts: Drafts) -> dict[Draft, int]:
        """Reads drafts. Returns those with a phrase that is complete, with the number of the token in which it
        begins."""
        listed = [*drafts.drafts, *drafts.finished] if drafts.finished else drafts.drafts
        latest, begins = dict[Draft, _Read](), dict[Draft, int]()
        for draft in listed:
            read = latest[draft] = self._read(draft.ids)
            whole = drafts.done or _is_whole(draft)
            if whole or self._openings or read.found.span is not None:
                at = self._phrase(draft, read, whole)
                if at is not None:
                    begins[draft] = at
        self._latest = latest
        return begins

    def sure(self, draft: Draft) -> int:
        """The number of tokens of a draft that was read last before the one in which a phrase begins that a longer
        draft may complete."""
        read = self._latest[draft]
        return _token_at(read, read.found.open) if read.found.begun else len(draft.ids)

    def _phrase(self, draft: Draft, read: _Read, whole: bool) -> int | None:
        if self._openings and opening(read.text[read.typed :], whole) in self._openings:
            return draft.start
        found = read.found
        if found.span is None and whole:
            found = self._phrases.find(read.text, read.typed, earlier=found)
        return None if found.span is None else _token_at(read, found.span.start)

    def _read(self, ids: list[int]) -> _Read:
        path, known = tuple(ids), len(ids)
        while (read := self._known.get(path[:known])) is None:
            known -= 1
        for n in range(known, len(ids)):
            read = self._known[path[: n + 1]] = self._longer(read, self._pieces[ids[n]])
        return read

    def _longer(self, read: _Read, piece: bytes) -> _Read:
        added, rest = _decoded(read.rest + piece)
        text, typed = read.text + added, read.typed
        if len(read.ends) == 1:  # a draft that corrects a slip begins with only a part of what is typed
            agreed = self._typed if self._typed.startswith(piece) else self._typed[: common(piece, self._typed)]
            typed = read.ends[0] + len(_decoded(read.rest + agreed)[0])
        found = read.found
        if found.span is None:
            found = self._phrases.find(text, typed, closed=False, earlier=found)
        return _Read(text, (*read.ends, len(text)), typed, rest, found)


def _token_at(read: _Read, place: int) -> int:
    """The number of the token that contains a place in the text; of the first for a place before all of them."""
    return bisect_right(read.ends, place, lo=1) - 1


def _decoded(data: bytes) -> tuple[str, bytes]:
    """The characters of some bytes, and the bytes of the last one if it is not whole yet."""
    try:
        return data.decode("utf-8"), b""
    except UnicodeDecodeError as error:
        if error.reason == "unexpected end of data":
            return data[: error.start].decode("utf-8"), data[error.start :]
        return data.decode("utf-8", "replace"), b""
