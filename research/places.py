"""The text of an evaluation, the user's or a short one that comes with the app, and random places in it."""

from __future__ import annotations

import random
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from core.errors import InputError

if TYPE_CHECKING:  # imports torch
    from core.models import Tokenizer

PREFIX = 32  # tokens of context before a draft
LENGTH = 10  # tokens of a draft


@dataclass(frozen=True)
class Place:
    """A place in a text: the ids before it, and the writer's text after it."""

    kind: str
    before: list[int]
    after: list[int]


PARTS = {"all": slice(None), "validation": slice(1, None, 2), "test": slice(0, None, 2)}


def texts(path: Path | None, part: str = "all") -> dict[str, list[str]]:
    """Returns the documents under `path` by kind, or the part of them that `Part` names. Raises InputError
    if there is no text."""
    from research.texts import SAMPLE, kind_of, read

    by_kind: dict[str, list[str]] = {}
    for file, of_file in read([path or SAMPLE]):
        by_kind.setdefault(kind_of(str(file)) if path else SAMPLE.name, []).extend(of_file)
    if part not in PARTS:
        raise InputError(f"part {part!r} given; one of {', '.join(PARTS)} expected.")
    if part != "all" and (single := [kind for kind, read in by_kind.items() if len(read) < 2]):
        raise InputError(f"The {single[0]} text has one document, which has no {part} half; give two or more.")
    return {kind: read[PARTS[part]] for kind, read in by_kind.items()}


def places(
    tokenizer: Tokenizer,
    by_kind: dict[str, list[str]],
    count: int,
    context: int = PREFIX,
    seed: int = 0,
    length: int = LENGTH,
) -> list[Place]:
    """`count` random places per kind, alternating between the kinds, so that the first few cover all kinds.

    Only places with `context` tokens before them and `length` after. Raises InputError if a kind has none.
    """
    turns: list[list[Place]] = []
    for kind, documents_of_kind in by_kind.items():
        rng = random.Random(f"{kind} {seed}")
        # At most as many documents as places are tokenised.
        chosen = rng.sample(documents_of_kind, min(count, len(documents_of_kind)))
        ids = [tokenizer.encode(text) for text in chosen]
        ids = [document for document in ids if len(document) >= context + length]
        if not ids:
            raise InputError(f"The {kind} text is too short: no document has {context + length} tokens.")
        of_kind = []
        for number in range(count):
            document = ids[number % len(ids)]
            at = rng.randrange(context, len(document) - length + 1)
            of_kind.append(Place(kind, document[at - context : at], document[at : at + length]))
        turns.append(of_kind)
    return [place for turn in zip(*turns, strict=True) for place in turn]
