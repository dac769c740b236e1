"""The options of an evaluation, which evaluations use each of them, and its text: the user's, or a short one that
comes with the app."""

from __future__ import annotations

import random
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from app.bench import report
from app.uses import Use
from core.errors import InputError
from ngram_builder.readers import Damage, documents, expand

if TYPE_CHECKING:  # imports torch, which the command line does not need
    from core.models import Tokenizer

PREFIX = 32  # tokens of context before a draft
LENGTH = 10  # tokens of a draft
KS = (3, 8)  # numbers of drafts
MOST_DRAFTS = 16


@dataclass(frozen=True)
class EvalOptions(report.BenchOptions):
    """The options of a measurement, and those of evaluations. In a folder of text, files whose names agree up to the
    first "-" are one kind. `repetitions` is the number of places per kind of text; for `typing`, of characters.

    Attributes:
        past: training text of the same writer; None is the first half of `text`.
        share: percent of the training text that is learned, the newest.
        learned: a folder that keeps the store and its adapter (for `tune-adapter`, the results); None is a temporary
            one.
        timed: places per kind whose drafts are completed, and timed, for `drafts`; None is its own default.
        context: tokens before a place that the model sees.
        part: of the documents of each kind: "all", or every second one ("validation", "test"). Settings are chosen on
            one half and tested on the other.
        verify_with: a larger model that checks or judges drafts; None is the model that makes them.
        ks, length: numbers of drafts to measure, and tokens of a draft.
    """

    past: Path | None = None
    share: float = 100.0
    learned: Path | None = None
    timed: int | None = None
    context: int = PREFIX
    part: str = "all"
    verify_with: str | None = None
    ks: tuple[int, ...] = KS
    length: int = LENGTH


_TEMPLATED = ("coverage", "answers", "arc-answers")  # they make their questions themselves
_AT_PLACES = (
    "drafts",
    "personal",
    "adapter",
    "verified",
    "tune",
    "tune-paper",
    "perplexity",
    "repetition",
    "linearity",
)

# By the name of the parameter. The help texts and the refusals are made from here.
USES = {
    "text": Use(
        "A file or folder of text to test on (tune-adapter: text by others); .txt or .jsonl.zst.", but=_TEMPLATED
    ),
    "past": Use("The writer's earlier text.", ("personal", "adapter", "tune", "tune-adapter")),
    "share": Use("Percent of the earlier text that is learned, the newest.", ("adapter", "tune-adapter")),
    "learned": Use(
        "Keep the store and its adapter, or the results, in this folder; the next run resumes there.",
        ("adapter", "tune-adapter"),
    ),
    "repetitions": Use(
        "Places per kind of text (typing: characters; tune-adapter: per fold); by default each evaluation's own.",
        flag="--prefixes",
    ),
    "timed": Use("Places per kind whose drafts are completed, timed and judged; by default 60.", ("drafts",)),
    "context": Use("Tokens before a place that the model sees.", _AT_PLACES),
    "part": Use(
        "Which documents: every second one to choose settings on, the others to test on.", ("drafts", "tune-paper")
    ),
    "k": Use("Numbers of drafts, with commas.", ("drafts", "adapter")),
    "length": Use("Tokens of a draft.", ("drafts",)),
    "plot": Use(
        "Draw to this SVG file.",
        (
            "drafts",
            "samplers",
            "linearity",
            "perplexity",
            "repetition",
            "coverage",
            "answers",
            "top-w-grid",
            "top-n-sigma",
        ),
    ),
    "backend": Use("Which backend to use.", but=("tune-adapter",)),
    "minutes": Use("Minutes of training; by default 10 (tune-adapter: 60).", ("adapter", "tune-adapter")),
    "model": Use("A model's name, file or folder."),
    "base_store": Use(
        "An n-gram store's file, or none.",
        but=("samplers", "coverage", "linearity", "answers", "top-w", "top-w-grid", "top-n-sigma"),
    ),
    "verify_with": Use(
        "A larger model with the same tokenizer that checks or judges drafts.", ("verified", "perplexity")
    ),
}


def numbers_of_drafts(text: str) -> tuple[int, ...]:
    """The numbers in a list with commas, ascending. Raises InputError for another text."""
    parts = [part.strip() for part in text.split(",")]
    if not all(part.isascii() and part.isdigit() and 1 <= int(part) <= MOST_DRAFTS for part in parts):
        raise InputError(f"k {text!r} given; numbers from 1 to {MOST_DRAFTS} with commas between them expected.")
    return tuple(sorted({int(part) for part in parts}))


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
        chance = random.Random(f"{kind} {seed}")
        # At most as many documents as places are tokenised.
        chosen = chance.sample(documents_of_kind, min(count, len(documents_of_kind)))
        ids = [tokenizer.encode(text) for text in chosen]
        ids = [document for document in ids if len(document) >= context + length]
        if not ids:
            raise InputError(f"The {kind} text is too short: no document has {context + length} tokens.")
        found = []
        for number in range(count):
            document = ids[number % len(ids)]
            at = chance.randrange(context, len(document) - length + 1)
            found.append(Place(kind, document[at - context : at], document[at : at + length]))
        turns.append(found)
    return [place for turn in zip(*turns, strict=True) for place in turn]
