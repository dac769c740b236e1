"""Drafts in the form of the document's letters.

Drafts are made of text as stores hold it (`core.ngram.plain`): composed letters (é is one character), plain spaces and
nothing without width, so that a personal phrase is found whatever form the document has. A document whose letters are
decomposed (é is e and a mark, as in texts from macOS) gets its drafts so, too.
"""

from __future__ import annotations

import unicodedata
from dataclasses import replace

from core.ask import Ask
from core.completion import Completion
from core.ngram.plain import plain
from core.present import TextDraft

READ = 4096  # characters of the document that decide
_WORD = 64  # characters before the caret in which a half-typed word is corrected


class Composer:
    """Puts requests on the text as stores hold it, and remembers the part that the next key leaves as it is."""

    def __init__(self) -> None:
        # The lines before the caret's, and the text after the caret: each as given, and as stores hold it.
        self._lines = self._after = "", ""

    def composed(self, ask: Ask) -> Ask:
        """The request on its text as stores hold it. A word with characters that go is not corrected: its length is
        another."""
        caret = ask.before.rfind("\n") + 1
        self._lines = _made(ask.before[:caret], self._lines)
        self._after = _made(ask.after, self._after)
        before = self._lines[1] + plain(ask.before[caret:])
        kept, words = tuple(replace(row, text=plain(row.text)) for row in ask.kept), plain(ask.words)
        if (before, self._after[1], words, kept) == (ask.before, ask.after, ask.words, ask.kept):
            return ask  # as nearly always; a new request would check all options again
        return replace(
            ask,
            before=before,
            after=self._after[1],
            words=words,
            kept=kept,
            corrects=ask.corrects and ask.before[-_WORD:].split()[-1:] == before[-_WORD:].split()[-1:],
        )


def _made(text: str, known: tuple[str, str]) -> tuple[str, str]:
    return known if text == known[0] else (text, plain(text))


def is_decomposed(before: str) -> bool:
    """Whether a document has decomposed letters and no composed ones, by its last characters."""
    end = before[-READ:]
    return unicodedata.is_normalized("NFD", end) and not unicodedata.is_normalized("NFC", end)


def decomposed(completion: Completion) -> Completion:
    """The drafts with decomposed letters."""
    return replace(
        completion,
        drafts=[_decomposed(draft) for draft in completion.drafts],
        withdrawn=[_decomposed(draft) for draft in completion.withdrawn],
    )


def _decomposed(draft: TextDraft) -> TextDraft:
    if draft.text.isascii():
        return draft
    ends = [0]  # in the new text, by those in the old
    for character in draft.text:
        ends.append(ends[-1] + len(unicodedata.normalize("NFD", character)))

    def end(at: int) -> int:
        return ends[at] if at < len(ends) else ends[-1] + at - len(ends) + 1

    return replace(
        draft,
        text=unicodedata.normalize("NFD", draft.text),
        personal=tuple((end(a), end(b)) for a, b in draft.personal),
        how=tuple((end(a), end(b), by, lts) for a, b, by, lts in draft.how),
        path=tuple((end(at), total) for at, total in draft.path),
        model_logprobs=tuple(
            replace(token, text=unicodedata.normalize("NFD", token.text)) for token in draft.model_logprobs
        ),
    )
