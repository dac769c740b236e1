"""The options that evaluations and measurements share.

Each evaluation or measurement declares a dataclass of its own options, made of those below. `research/cli.py` turns its
fields into flags.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeVar

import typer

from core.errors import InputError
from core.options import Backend, Precision
from research.places import PREFIX

if TYPE_CHECKING:  # imports torch, which the command line does not need
    from core.autocomplete import Autocomplete

T = TypeVar("T")
MOST_DRAFTS = 16


def amount(what: str, least: int = 2) -> Any:
    """Returns the flag of an evaluation's size, whose three names are synonyms."""
    return typer.Option("--prefixes", "--count", "--repetitions", min=least, help=what)


Rounds = Annotated[int, typer.Option(min=1, help="Rounds.")]
Passages = Annotated[int, typer.Option(min=1, help="Passages that are typed.")]
Head = Annotated[Path | None, typer.Option(help="The folder of an EAGLE-3 head.", metavar="FOLDER")]
Length = Annotated[int, typer.Option(min=1, max=1000, help="Tokens of a draft.")]
Part = Annotated[
    Literal["all", "validation", "test"],
    typer.Option(help="Which documents: every second one to choose settings on, the others to test on."),
]
Share = Annotated[
    float, typer.Option(min=0.1, max=100, help="Percent of the earlier text that is learned, the newest.")
]
Training = Annotated[float, typer.Option(min=0.1, help="Minutes of training.")]
DraftCounts = Annotated[str, typer.Option(help="Numbers of drafts, with commas.", metavar="N,N,…")]
Learned = Annotated[
    Path | None,
    typer.Option(help="Keep the results in this folder; the next run resumes there.", metavar="FOLDER"),
]
Rules = Annotated[str | None, typer.Option(help="Only these rows of the table, with commas.", metavar="NAME,NAME,…")]
Temperatures = Annotated[str | None, typer.Option(help="Only these temperatures, with commas.", metavar="T,T,…")]
Checker = Annotated[
    str | None, typer.Option(help="A larger model that checks drafts (with the same tokenizer) or judges them.")
]


@dataclass(frozen=True)
class TextOptions:
    """In a folder of text, files whose names agree up to the first "-" are one kind."""

    text: Annotated[Path | None, typer.Option(help="A file or folder of text, .txt or .jsonl.zst.")] = None


@dataclass(frozen=True)
class PlacesOptions(TextOptions):
    context: Annotated[int, typer.Option(min=1, help="Tokens before a place that the model sees.")] = PREFIX


@dataclass(frozen=True)
class NamedTextOptions(TextOptions):
    only: Annotated[
        Path | None,
        typer.Option(
            help="A file of names, as research/training/set_aside.json; only the documents of these names, each a "
            "kind.",
            metavar="FILE",
        ),
    ] = None


@dataclass(frozen=True)
class PastOptions(TextOptions):
    past: Annotated[
        Path | None, typer.Option(help="The writer's earlier text; by default the first half of the text.")
    ] = None


@dataclass(frozen=True)
class SourceOptions(TextOptions):
    source: Annotated[
        Path | None, typer.Option(help="The text to build stores of, a file or folder; --text is held out.")
    ] = None

    @property
    def built_from(self) -> Path:
        if self.source is None:
            raise InputError("Stores are built of other text than what is held out; give it with --source.")
        return self.source


@dataclass(frozen=True)
class QuestionOptions:
    text: Annotated[
        Path | None,
        typer.Option(help='A .jsonl file of questions, {"question": …, "answer": …}, instead of our own.'),
    ] = None


@dataclass(frozen=True)
class ModelOptions:
    model: Annotated[str, typer.Option(help="A model's name, file or folder.")] = "default"


@dataclass(frozen=True)
class BackendOptions(ModelOptions):
    backend: Annotated[Backend, typer.Option(help="Which backend to use.")] = "auto"


@dataclass(frozen=True)
class StoreOptions:
    base_store: Annotated[str | None, typer.Option(help="An n-gram store's file, or none.", metavar="FILE|none")] = None

    @property
    def store(self) -> Path | None:
        """Returns the path of the base store; None for none. Raises StoreError for a file that is not a store."""
        from core.ngram.base import chosen

        return chosen(self.base_store)


@dataclass(frozen=True)
class MixedOptions(BackendOptions, StoreOptions):
    """A model and a base store."""


@dataclass(frozen=True)
class PrecisionOptions:
    precision: Annotated[Precision, typer.Option(help="Weights of torch on a CPU; see polydraft --help.")] = "file"


@dataclass(frozen=True)
class AutocompleteOptions(MixedOptions, PrecisionOptions):
    adapter: Annotated[
        Path | None,
        typer.Option(help="Draft with this adapter, a folder that `polydraft train prose` wrote.", metavar="FOLDER"),
    ] = None


@dataclass(frozen=True)
class JudgeServerOptions:
    server: Annotated[
        str | None,
        typer.Option(
            help="The OpenAI-compatible address of a language model that judges; it receives the texts.", metavar="URL"
        ),
    ] = None
    judge_model: Annotated[
        str | None, typer.Option(help="The model's name at the server; by default its first.", metavar="NAME")
    ] = None


@dataclass(frozen=True)
class DraftCountOptions:
    k: DraftCounts = "3,8"

    def __post_init__(self) -> None:
        _ = self.ks

    @property
    def ks(self) -> tuple[int, ...]:
        return numbers_of_drafts(self.k)


@dataclass(frozen=True)
class PlotOptions:
    plot: Annotated[Path | None, typer.Option(help="Draw to this SVG file.", metavar="FILE")] = None


@dataclass(frozen=True)
class ShapeOptions:
    tiny: Annotated[
        bool, typer.Option("--tiny", help="Measure a tiny shape, on any device, to test the measurement.")
    ] = False
    shapes: Annotated[str | None, typer.Option(help="Measure only these shapes of models.", metavar="NAME,NAME,…")] = (
        None
    )


def numbers_of_drafts(k: str) -> tuple[int, ...]:
    """Returns the numbers, ascending. Raises InputError for another text."""
    parts = [part.strip() for part in k.split(",")]
    if not all(part.isascii() and part.isdigit() and 1 <= int(part) <= MOST_DRAFTS for part in parts):
        raise InputError(f"k {k!r} given; numbers from 1 to {MOST_DRAFTS} with commas between them expected.")
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


def loaded(options: AutocompleteOptions, adapted: bool = True) -> Autocomplete:
    """Loads the model with the base store and, if `adapted`, the adapter of the options. Raises AdapterError."""
    from core.autocomplete import load_autocomplete
    from core.models.adapter import load

    autocomplete = load_autocomplete(
        options.model, options.backend, options.store, personal=False, precision=options.precision
    )
    if adapted and options.adapter is not None:
        autocomplete.model.adapt([(load(options.adapter), 1.0)])
    return autocomplete
