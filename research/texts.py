"""Text for measurements: documents with their kinds and names, and places in them."""

from __future__ import annotations

import random
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from core.errors import InputError
from core.models import Tokenizer
from ngram_builder.readers import Damage, Reading, expand, read_file
from training.texts import SAMPLE, in_turn, load, read, sample

__all__ = [
    "SAMPLE",
    "NamedText",
    "WordPlace",
    "in_turn",
    "kind_of",
    "last_tokens",
    "load",
    "named",
    "prefixes",
    "read",
    "sample",
    "words",
]

_WORD = re.compile(r"(?<=\s)[A-Za-z]{5,}(?![\w'’-])")
_REACH = 600  # characters before a place; more than 32 tokens of any prose


def kind_of(path: str) -> str:
    """Returns the kind of text of a file: the beginning of its name, up to the first "-" or "."."""
    return Path(path).name.partition(".")[0].partition("-")[0]


@dataclass(frozen=True)
class NamedText:
    """A document, its kind (`kind_of`) and its name: what a line of JSON states as `meta.name`, else the file's path
    below the folder that was given."""

    kind: str
    name: str
    text: str


def named(sources: Sequence[Path]) -> list[NamedText]:
    """Returns the documents of files and folders. A folder's subfolders, if it has some with text, are its kinds.

    Raises: InputError if one does not exist or has no file of a supported kind, or there is no text.
    """
    damage: list[Damage] = []
    texts: list[NamedText] = []
    for source in sources:
        for file in expand([source]):
            path = Path(file.address)
            below = path.relative_to(source) if path != source else Path(path.name)
            kind = below.parts[0] if len(below.parts) > 1 else kind_of(path.name)
            documents = read_file(file, Reading(damage.append))
            texts += [NamedText(kind, each.name or below.as_posix(), each.text) for each in documents]
    texts = [each for each in texts if each.text.strip()]
    if not texts:
        where, why = ", ".join(map(str, sources)), f" ({damage[0]})" if damage else ""
        raise InputError(f"No text in {where}{why}; give a .txt or .jsonl.zst file that contains text.")
    return texts


@dataclass(frozen=True)
class WordPlace:
    """A place in a text: the text before it, the next word, and the position."""

    before: str
    word: str
    document: str
    at: int


def words(files: list[list[str]], count: int, seed: int = 0) -> list[WordPlace]:
    """Returns up to `count` words of at least 5 letters, equally many from each file; the same for the same seed."""
    rng = random.Random(seed)
    by_file = [[(text, m) for text in texts for m in _WORD.finditer(text, 200)] for texts in files]
    for of_file in by_file:
        rng.shuffle(of_file)
    turns = in_turn(by_file)[:count]
    return [WordPlace(text[max(m.start() - _REACH, 0) : m.start()], m[0], text, m.start()) for text, m in turns]


def last_tokens(tokenizer: Tokenizer, text: str, count: int = 32) -> str:
    """Returns the end of `text`, about `count` tokens long, from a whole character on."""
    return tokenizer.decode(tokenizer.encode(text)[-count:]).lstrip("\ufffd")


def prefixes(tokenizer: Tokenizer, files: list[list[str]], count: int, length: int = 32) -> list[list[int]]:
    """Returns `count` prefixes of exactly `length` tokens, each up to a word; places repeat if there are too few."""
    ids = [tokenizer.encode(place.before)[-length:] for place in words(files, count)]
    whole = [prefix for prefix in ids if len(prefix) == length]
    if not whole:
        raise InputError(f"The text is too short to measure on: no place in it has {length} tokens before it.")
    return [whole[i % len(whole)] for i in range(count)]
