"""Accepted drafts. Stores learn a draft when the user types on after it; a draft that the user undoes immediately is
not learned."""

from __future__ import annotations

import re
from dataclasses import dataclass

CONTEXT = 6  # words before a draft that are learned with it, as on the page

_LAST_WORDS = re.compile(rf"(?:\S+\s+){{0,{CONTEXT - 1}}}\S*\s*\Z")


@dataclass(frozen=True)
class Picked:
    """A draft and its position in a document. The editor returns it when the user accepts the draft."""

    uri: str
    at: int  # number of characters before it
    text: str
    phrase: str  # the draft with the words before it

    @classmethod
    def of(cls, uri: str, before: str, text: str) -> Picked:
        line = before[before.rfind("\n") + 1 :]
        words = _LAST_WORDS.search(line)
        return cls(uri, len(before), text, ((words[0] if words else "") + text).strip())

    def is_in(self, text: str) -> bool:
        return text.startswith(self.text, self.at)
