"""Whose mails and messages are read."""

from __future__ import annotations

import re
import unicodedata
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from core.errors import InputError

DIRECTIONS = "\u200e\u200f\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069"
_NO_DIRECTIONS = str.maketrans(dict.fromkeys(DIRECTIONS, ""))


@dataclass
class Senders:
    """The people whose mails and messages are read.

    Attributes:
        wanted: their names and addresses, by `_key`. If there are none, mails of all are read, and of chats those
            messages of which the chat itself says that the writer sent them.
        found: how many mails each address sent, of all that were looked at.
        others: how many mails were left out because of `wanted`.
    """

    wanted: frozenset[str] = frozenset()
    found: Counter[str] = field(default_factory=Counter)
    others: int = 0

    @classmethod
    def of(cls, wanted: Iterable[str]) -> Senders:
        """Raises InputError when one is empty: it would be the name of every sender without a name."""
        keys = frozenset(map(_key, wanted))
        if "" in keys:
            raise InputError("A sender is empty; give a name or an address.")
        return cls(keys)

    def has(self, name: str) -> bool:
        """Whether this name or address is one of those that are wanted."""
        return _key(name) in self.wanted

    def takes(self, senders: Sequence[tuple[str, str]]) -> bool:
        """Whether to read a mail of these senders: (name, address)."""
        self.found.update(address.casefold() for _, address in senders[:1])
        takes = not self.wanted or any(self.has(part) for sender in senders for part in sender)
        self.others += not takes
        return takes


def undirected(text: str) -> str:
    """A text without marks of direction, which programs put around names and messages."""
    return text.translate(_NO_DIRECTIONS)


def _key(name: str) -> str:
    """What names are compared by: without case, spaces at the ends, and the marks of a telephone number."""
    name = " ".join(unicodedata.normalize("NFC", undirected(name)).strip(" ~").casefold().split())
    digits = re.sub(r"[\s()+./-]", "", name)
    return digits if digits.isdigit() else name
