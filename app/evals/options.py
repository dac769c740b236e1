"""The options of an evaluation, and its text: the user's, or a short one that comes with the app."""

from __future__ import annotations

import random
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from app.bench import report
from core.errors import InputError
from ngram_builder.readers import Damage, documents, expand

if TYPE_CHECKING:  # imports torch, which the command line does not need
    from core.models import Tokenizer

PREFIX = 32  # tokens of context before a draft
LENGTH = 10  # tokens of a draft


@dataclass(frozen=True)
class EvalOptions(report.BenchOptions):
    """The options of a measurement, and those of evaluations. In a folder of text, files whose names agree up to the
    first "-" are one kind. `repetitions` is the number of places per kind of text; for `typing`, of characters.

    Attributes:
        past: training text of the same writer; None is the first half of `text`.
        timed: places per kind whose drafts are completed, and timed, for `drafts`; None is its own default.
        context: tokens before a place that the model sees.
        part: of the documents of each kind: "all", or every second one ("validation", "test"). Settings are chosen on
            one half and tested on the other.
        verify_with: a larger model that checks drafts, for `verified`; None is the model that makes them.
    """

    past: Path | None = None
    timed: int | None = None
    context: int = PREFIX
    part: str = "all"
    verify_with: str | None = None


@dataclass(frozen=True)
class Place:
    """A place in a text: the ids before it, and the writer's text after it."""

    kind: str
    before: list[int]
    after: list[int]


PARTS = {"all": slice(None), "validation": slice(1, None, 2), "test": slice(0, None, 2)}


def texts(path: Path | None, part: str = "all") -> dict[str, list[str]]:
    """Returns the documents under `path` by kind, or the part of them that `EvalOptions.part` names. Raises InputError
    if there is no text."""
    from app.bench.text import SAMPLE

    damage: list[Damage] = []
    found: dict[str, list[str]] = {}
    for file in expand([path or SAMPLE]):
        kind = Path(str(file)).name.partition(".")[0].partition("-")[0]
        found.setdefault(kind, []).extend(text for text in documents(file, damage.append) if text.strip())
    found = {kind: read for kind, read in found.items() if read}
    if not found:
        raise InputError(f"No text to test on in {path}; give a .txt or .jsonl.zst file that contains text.")
    if part not in PARTS:
        raise InputError(f"part {part!r} given; one of {', '.join(PARTS)} expected.")
    if part != "all" and (single := [kind for kind, read in found.items() if len(read) < 2]):
        raise InputError(f"The {single[0]} text has one document, which has no {part} half; give two or more.")
    return {kind: read[PARTS[part]] for kind, read in found.items()}


def places(
    tokenizer: Tokenizer, by_kind: dict[str, list[str]], count: int, context: int = PREFIX, seed: int = 0
) -> list[Place]:
    """`count` random places per kind, alternating between the kinds, so that the first few cover all kinds.

    Only places with `context` tokens before them and LENGTH after. Raises InputError if a kind has none.
    """
    turns: list[list[Place]] = []
    for kind, documents_of_kind in by_kind.items():
        chance = random.Random(f"{kind} {seed}")
        # At most as many documents as places are tokenised.
        chosen = chance.sample(documents_of_kind, min(count, len(documents_of_kind)))
        ids = [tokenizer.encode(text) for text in chosen]
        ids = [document for document in ids if len(document) >= context + LENGTH]
        if not ids:
            raise InputError(f"The {kind} text is too short: no document has {context + LENGTH} tokens.")
        found = []
        for number in range(count):
            document = ids[number % len(ids)]
            at = chance.randrange(context, len(document) - LENGTH + 1)
            found.append(Place(kind, document[at - context : at], document[at : at + LENGTH]))
        turns.append(found)
    return [place for turn in zip(*turns, strict=True) for place in turn]
