"""The options of an evaluation, and its text: the user's, or a short one that comes with the app."""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal, TypeVar

from core.errors import InputError
from core.options import Backend, Precision
from research.report import BenchOptions
from research.uses import Use

if TYPE_CHECKING:  # imports torch, which the command line does not need
    from core.autocomplete import Autocomplete
    from core.models import Tokenizer

T = TypeVar("T")
PREFIX = 32  # tokens of context before a draft
LENGTH = 10  # tokens of a draft
KS = (3, 8)  # numbers of drafts
MOST_DRAFTS = 16


_TEMPLATED = ("arc-answers", "top-w-beta")  # they make their questions themselves
_ADAPTER = ("adapter", "tune-adapter")
_LOADED = ("drafts", "typing", "beginnings", "background", "time", "keytype", "tails", "prose", "tune-base", "judge")
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
    "tails",
    "prose",
    "tune-base",
    "judge",
)
_PLOTTED = (
    "drafts",
    "samplers",
    "linearity",
    "perplexity",
    "repetition",
    "coverage",
    "answers",
    "top-w-beta",
    "top-w-grid",
    "top-n-sigma",
    "time",
)
_WITHOUT_STORE = (
    "samplers",
    "dice",
    "coverage",
    "linearity",
    "answers",
    "top-w",
    "top-w-beta",
    "top-w-grid",
    "top-n-sigma",
)


@dataclass(frozen=True)
class EvalOptions(BenchOptions):
    """The options of an evaluation, the flags of `polydraft eval`. None is each evaluation's own default. In a
    folder of text, files whose names agree up to the first "-" are one kind."""

    text: Annotated[
        Path | None,
        Use(
            "A file or folder of text to test on (tune-adapter: text by others), .txt or .jsonl.zst; for coverage and "
            'answers a .jsonl file of questions, {"question": …, "answer": …}.',
            but=_TEMPLATED,
        ),
    ] = None
    past: Annotated[  # None is the first half of `text`
        Path | None, Use("The writer's earlier text.", ("personal", "weights", "adapter", "tune", "tune-adapter"))
    ] = None
    counted: Annotated[
        bool, Use("The text is part of what the base store counted: its counts are left out.", ("weights",))
    ] = False
    share: Annotated[
        float, Use("Percent of the earlier text that is learned, the newest.", _ADAPTER, low=0.1, high=100)
    ] = 100.0
    learned: Annotated[
        Path | None,
        Use(
            "Keep the store and its adapter, or the results, in this folder; the next run resumes there.",
            (*_ADAPTER, "prose", "judge"),
            metavar="FOLDER",
        ),
    ] = None
    repetitions: Annotated[
        int | None,
        Use(
            "Places per kind of text (beginnings: per kind of beginning; typing, time: characters; prose, tune-base: "
            "also characters; weights: tokens; tune-adapter: per fold); each has its default.",
            flags=("--prefixes", "--count", "--repetitions"),
            low=2,
        ),
    ] = None
    slips: Annotated[
        float | None,
        Use("Slips of the typist in 100 letters, with rows that correct and without.", ("typing",), low=0.1),
    ] = None
    timed: Annotated[
        int | None,
        Use("Places per kind whose drafts are completed, timed and judged; by default 60.", ("drafts",), low=1),
    ] = None
    context: Annotated[int, Use("Tokens before a place that the model sees.", _AT_PLACES, low=1)] = PREFIX
    part: Annotated[
        Literal["all", "validation", "test"],
        Use(
            "Which documents: every second one to choose settings on, the others to test on.",
            ("drafts", "tune-paper", "tune-base", "time"),
        ),
    ] = "all"
    k: Annotated[
        str | None,
        Use(
            "Numbers of drafts, with commas; by default 3,8 (beginnings: 3; tails: 3,5,9; time: 1,3,5,9; keytype: "
            "1,3,9; prose: also keys, of 1,3).",
            ("drafts", "beginnings", "adapter", "tails", "time", "keytype", "prose"),
            metavar="N,N,…",
        ),
    ] = None
    length: Annotated[
        int | None,
        Use(
            "Tokens of a draft, by default 10; of an answer by default 4, or of a file's 16 and of a reply 256.",
            ("drafts", "tails", "answers", "judge"),
            low=1,
            high=1000,
        ),
    ] = None
    votes: Annotated[int | None, Use("Answers to each question; by default 8.", ("answers",), low=1, high=256)] = None
    exact: Annotated[
        bool, Use("Compute the probability of a right answer, instead of sampling answers.", ("answers",))
    ] = False
    rules: Annotated[
        str | None, Use("Only these rows of the table, with commas.", ("answers", "drafts"), metavar="NAME,NAME,…")
    ] = None
    temperatures: Annotated[
        str | None,
        Use(
            "Only these temperatures, with commas.", ("answers", "arc-risk", "samplers", "top-w-beta"), metavar="T,T,…"
        ),
    ] = None
    matched: Annotated[
        Literal["mass", "variety"] | None,
        Use("Compare rules that keep equally much probability as Top-nσ, or as many different tokens.", ("samplers",)),
    ] = None
    plot: Annotated[Path | None, Use("Draw to this SVG file.", _PLOTTED, metavar="FILE")] = None
    backend: Annotated[Backend, Use("Which backend to use.", but=("tune-adapter",))] = "auto"
    precision: Annotated[Precision, Use("Weights of torch on a CPU; see polydraft --help.", (*_LOADED, "lossless"))] = (
        "file"
    )
    minutes: Annotated[
        float | None, Use("Minutes of training; by default 10 (tune-adapter: 60).", _ADAPTER, low=0.1)
    ] = None
    model: Annotated[str, Use("A model's name, file or folder.")] = "default"
    base_store: Annotated[
        str | None, Use("An n-gram store's file, or none.", but=_WITHOUT_STORE, metavar="FILE|none")
    ] = None
    adapter: Annotated[
        Path | None,
        Use(
            "Draft with this adapter, a folder that `polydraft train prose` wrote.",
            _LOADED,
            metavar="FOLDER",
        ),
    ] = None
    only: Annotated[
        Path | None,
        Use(
            "A file of names, as research/training/set_aside.json; only the documents of these names, each a kind.",
            ("prose", "weights"),
            metavar="FILE",
        ),
    ] = None
    verify_with: Annotated[  # None is the model that drafts
        str | None,
        Use("A larger model with the same tokenizer that checks or judges drafts.", ("verified", "perplexity")),
    ] = None

    method: Annotated[
        str | None, Use("The first method; by default Superposed by its paper.", ("judge",), metavar="NAME")
    ] = None
    beside: Annotated[
        str | None, Use("The method that it is compared with; by default nucleus.", ("judge",), metavar="NAME")
    ] = None
    versus: Annotated[
        str | None, Use("Drafts of both methods that are shown; by default 3v1.", ("judge",), metavar="NvN")
    ] = None
    server: Annotated[
        str | None,
        Use(
            "Let a model at this OpenAI-compatible address judge, instead of you; it receives text and drafts.",
            ("judge",),
            metavar="URL",
        ),
    ] = None
    judge_model: Annotated[
        str | None, Use("The model's name at the server; by default its first.", ("judge",), metavar="NAME")
    ] = None

    def __post_init__(self) -> None:
        _ = self.ks
        if self.exact and (self.votes is not None or self.length is not None):
            raise InputError("--votes and --length change nothing with --exact, which samples no answer; omit them.")

    @property
    def ks(self) -> tuple[int, ...]:
        """The given numbers of drafts, ascending; () if none are given. Raises InputError for another text."""
        if self.k is None:
            return ()
        parts = [part.strip() for part in self.k.split(",")]
        if not all(part.isascii() and part.isdigit() and 1 <= int(part) <= MOST_DRAFTS for part in parts):
            raise InputError(f"k {self.k!r} given; numbers from 1 to {MOST_DRAFTS} with commas between them expected.")
        return tuple(sorted({int(part) for part in parts}))


def numbers(name: str, text: str | None, low: float, high: float) -> tuple[float, ...]:
    """Returns the numbers of an option, ascending; () if none are given. Raises InputError for another text."""
    if text is None:
        return ()
    try:
        values = sorted({float(part) for part in text.split(",")})
    except ValueError:
        values = []
    if not values or not all(low <= number <= high for number in values):
        raise InputError(f"{name} {text!r} given; numbers from {low:g} to {high:g} with commas between them expected.")
    return tuple(values)


def chosen(option: str, text: str | None, known: Mapping[str, T]) -> dict[str, T]:
    """Returns those of `known` that an option names; all if it is not given. Raises InputError for an unknown name."""
    if text is None:
        return dict(known)
    entries, rest = dict[str, T](), text.strip()
    longest_first = sorted(known, key=len, reverse=True)  # names may contain commas, and begin with others
    while rest:
        name = next((name for name in longest_first if f"{rest},".startswith(f"{name},")), None)
        if name is None:
            raise InputError(f"{option}: {rest.split(',')[0].strip()!r} given; {', '.join(known)} are known.")
        entries[name] = known[name]
        rest = rest[len(name) + 1 :].strip()
    return entries


def loaded(options: EvalOptions, adapted: bool = True) -> Autocomplete:
    """Loads the model with the base store and, if `adapted`, the adapter of the options. Raises AdapterError."""
    from core.autocomplete import load_autocomplete
    from core.models.adapter import load

    autocomplete = load_autocomplete(
        options.model, options.backend, options.store, personal=False, precision=options.precision
    )
    if adapted and options.adapter is not None:
        autocomplete.model.adapt([(load(options.adapter), 1.0)])
    return autocomplete


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
    from training.texts import SAMPLE, kind_of, read

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
        chance = random.Random(f"{kind} {seed}")
        # At most as many documents as places are tokenised.
        chosen = chance.sample(documents_of_kind, min(count, len(documents_of_kind)))
        ids = [tokenizer.encode(text) for text in chosen]
        ids = [document for document in ids if len(document) >= context + length]
        if not ids:
            raise InputError(f"The {kind} text is too short: no document has {context + length} tokens.")
        of_kind = []
        for number in range(count):
            document = ids[number % len(ids)]
            at = chance.randrange(context, len(document) - length + 1)
            of_kind.append(Place(kind, document[at - context : at], document[at : at + length]))
        turns.append(of_kind)
    return [place for turn in zip(*turns, strict=True) for place in turn]
