"""Drafts that betray the corpus of the base store or the adapter: in plain prose they bring in what only it speaks of.

`MARKS` lists what was seen in drafts of letters and stories: the names of agencies and of numbered proposals in
documentation, notes to oneself, references in square brackets, and questions of job interviews. A person who writes
about these means them, so a draft counts only where the text before the caret has nothing of the same kind.
"""

from __future__ import annotations

import regex

MARKS = {
    "agency": regex.compile(r"\b(?:18F|GSA|TTS)\b"),
    "proposal": regex.compile(r"\b(?:PEP|RFC|EIP|ERC|BIP)s?\b"),
    "note to oneself": regex.compile(r"\b(?:TODO|FIXME|XXX)\b"),
    "reference": regex.compile(r"\[(?![ xX]\])"),  # "[Liam]", also one that the draft does not close; no box of a task
    "interview": regex.compile(
        r"[\"“](?:Tell me about|Describe|Walk me through|Give (?:me )?an example|"
        r"How (?:would|do) you|What would you|Can you (?:tell|describe|explain|walk))\b"
    ),
}


def betrays(draft: str, before: str) -> bool:
    """Whether a draft has one of `MARKS` of which the text before the caret has none.

    Args:
        draft: the text of the row, as it is shown.
        before: the text before the caret, as far as the model reads it.
    """
    return any(mark.search(draft) and not mark.search(before) for mark in MARKS.values())
