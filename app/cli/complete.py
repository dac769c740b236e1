"""`polydraft complete`: drafts in the terminal."""

from __future__ import annotations

import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.text import Text

from app.cli import flags
from app.cli.explained import print_explained
from app.cli.shared import Backend, BaseStores, DraftModel, Json, Model, Precision
from app.machine.output import say, say_json, visible
from app.options.given import ALL_FLAGS, refuse_base_store, refuse_draft_model, refuse_stores, settings_of
from app.service.events import explained_of, made_of
from app.service.threads import leave_cores_to
from core.chains import joined, notes
from core.controls import (
    CATALOG,
    DEFAULT_DRAFTER,
    DEFAULT_METHOD,
    DEFAULT_MODE,
    DEFAULT_RULE,
    DRAFTERS,
    MODES,
    SPECULATIONS,
    entries_of,
)
from core.errors import InputError
from core.files import check_regular
from core.options import DRAFTING
from core.phrases import LONGEST, MOST, checked, phrases_of

if TYPE_CHECKING:
    from app.options.settings import DraftSettings
    from core.autocomplete import Autocomplete
    from core.completion import Completion
    from core.present import TextDraft

MOST_BYTES = 4 * MOST * LONGEST  # of a file of phrases
_MOST_READ = 64 << 20  # bytes of a text
_CONTEXT = 28  # characters of the text shown before each draft


@dataclass(frozen=True)
class CompleteOptions:
    """The options of `polydraft complete` beside the flags of drafting."""

    file: Annotated[
        Path | None,
        typer.Option(help="The text so far is that of this file, without its last line end.", metavar="FILE"),
    ] = None
    store: Annotated[
        list[str] | None, typer.Option(help="Use these personal stores, instead of those that are on.", metavar="NAME")
    ] = None
    mode: Annotated[
        str | None,
        typer.Option(
            help=f"The draft method: {', '.join(MODES)}.",
            metavar="NAME",
            show_default=f"{DEFAULT_MODE}; with --speculate {DEFAULT_METHOD}",
        ),
    ] = None
    rule: Annotated[
        list[str] | None,
        typer.Option(
            help=f"The sampling rule: {', '.join(CATALOG)}. Given several times, the rules are applied in this order.",
            metavar="NAME",
            show_default=DEFAULT_RULE,
        ),
    ] = None
    speculate: Annotated[
        str | None,
        typer.Option(
            help="Make sampled or greedy drafts several tokens per pass: "
            + " ".join(f"[bold]{name}[/]: {description}" for name, (description, _) in SPECULATIONS.items()),
            metavar="NAME",
        ),
    ] = None
    drafter: Annotated[
        str | None,
        typer.Option(
            help="With --speculate, the drafter that proposes tokens: "
            + " ".join(f"[bold]{name}[/]: {description}" for name, description in DRAFTERS.items()),
            metavar="NAME",
            show_default=DEFAULT_DRAFTER,
        ),
    ] = None
    draft_model: DraftModel = None
    head: Annotated[
        Path | None,
        typer.Option(
            help="With --drafter eagle3: the folder of the head; by default the one for the default model.",
            metavar="FOLDER",
        ),
    ] = None
    model: Model = "default"
    backend: Backend = "auto"
    precision: Precision = "auto"
    base_store: BaseStores = None
    background: Annotated[
        Path | None,
        typer.Option(
            help="A text that the model reads first and that the drafts do not continue: the mail that you answer, "
            "notes, names. Its end counts, about 2,000 characters.",
            metavar="FILE",
        ),
    ] = None
    never: Annotated[
        list[str] | None,
        typer.Option(
            help="A word or phrase that no draft contains; form* stands for the word with any ending. Give it once for "
            "each.",
            metavar="PHRASE",
        ),
    ] = None
    never_file: Annotated[
        Path | None,
        typer.Option(help="The same from a file, one a line; lines that begin with # do not count.", metavar="FILE"),
    ] = None
    explain: Annotated[
        bool, typer.Option("--explain", help="Show how each token of the drafts was made, and what the passes took.")
    ] = False
    as_json: Json = False

    def check(self, settings: DraftSettings) -> None:
        """Raises InputError for a flag that would change nothing with these settings."""
        if self.store:
            refuse_stores(settings)
        if self.head is not None and not (settings.speculates and self.drafter == "eagle3"):
            raise InputError("--head changes nothing without --speculate and --drafter eagle3; add them.")
        refuse_draft_model(settings, self.draft_model)
        if self.base_store:
            refuse_base_store(settings)

    def load(self, settings: DraftSettings, needs_prose: bool) -> Autocomplete:
        """Loads all of it, and prints the notices. Raises InputError if `needs_prose` and there is no such adapter."""
        from app.learning.base_stores import shelf_of
        from app.options import speculation
        from core.autocomplete import load_autocomplete

        autocomplete = load_autocomplete(
            self.model, self.backend, precision=self.precision, bases=shelf_of(self.base_store), prose=settings.prose
        )
        if needs_prose and not autocomplete.has_prose:
            raise InputError(
                f"--prose given, and there is no adapter to prose for {autocomplete.model.name}; leave it out."
            )
        if self.store:
            autocomplete.adapt(self.store)
        leave_cores_to(autocomplete.model)
        titles = [entry.title for entry in entries_of(settings.sampling.rule)]
        for notice in [autocomplete.notice, *notes(titles)]:
            if notice:
                say(notice, err=True)
        if self.draft_model is not None:
            speculation.add_draft_model(autocomplete, self.draft_model, self.backend, self.precision)
        if settings.speculates:
            speculation.prepare(autocomplete, settings, self.head)
        return autocomplete


def complete(
    ctx: typer.Context,
    text: Annotated[
        str | None,
        typer.Argument(
            help="The text so far, in quotation marks. Left out, or -: what standard input has.",
            metavar="TEXT",
            show_default=False,
        ),
    ] = None,
) -> None:
    """Print drafts that continue a text.

    Example: [bold]polydraft complete "Thank you for your" --k 5[/]

    [bold]pandoc letter.docx -t plain | polydraft complete --k 5[/]

    [bold]polydraft complete "Once upon a" --mode sampled --rule top-w --beta 4 --temperature 1.5[/]

    [bold]polydraft complete "Once upon a" --mode sampled --rule top-n-sigma --rule top-p --n-sigma 1.3[/]

    A flag that would have no effect is refused.
    """
    given, wanted = flags.given(ctx, ALL_FLAGS), flags.chosen(ctx, CompleteOptions)
    rule = joined(wanted.rule or [DEFAULT_RULE])
    settings = settings_of(given, rule, wanted.mode, wanted.speculate, wanted.drafter)
    wanted.check(settings)
    text = _text(text, wanted.file)
    about = "" if wanted.background is None else _background(wanted.background)
    refused = _never(wanted.never or [], wanted.never_file)
    autocomplete = wanted.load(settings, needs_prose=bool(given.get("prose")))
    more = {"stores": wanted.store or None, "background": about, "explain": wanted.explain, "never": refused}
    completion, ms = _complete(autocomplete, settings, text, **more)
    drafts = [draft for draft in completion.drafts if draft.probability >= settings.min_confidence]
    figures = completion.figures if settings.speculates else None
    if wanted.as_json:
        made = {"model": autocomplete.model.name, "backend": autocomplete.model.backend, "ms": round(ms, 1)}
        shown = [_as_json(draft, bool(figures), wanted.explain) for draft in drafts]
        say_json({"text": text, "drafts": shown} | made | _statistics(completion, settings, wanted.explain))
        return
    _print_drafts(text, drafts)
    if wanted.explain and drafts:
        print_explained(drafts, completion)
    if figures:
        say(f"   {figures.accept_length:.2g} tokens a pass, {ms:.0f} ms")
        if figures.notice:
            say(figures.notice, err=True)
    if not drafts:
        if settings.min_confidence:
            say(f"No draft is more probable than {settings.min_confidence:g}: lower --min-confidence.", err=True)
        else:
            say("There is no draft." + (" Without what --never excludes nothing is left." if refused else ""), err=True)


def _complete(autocomplete: Autocomplete, settings: DraftSettings, text: str, **more: Any) -> tuple[Completion, float]:
    """Makes the drafts; `more` are fields of `Ask`. Returns them, and the ms that they took."""
    from app.service.requests import asked

    ask = asked(autocomplete, settings, before=text, tails=not settings.chooses_exact_steps, **more)
    if ask.tails or ask.explain:
        for _ in autocomplete.time_rows():
            pass
    began = time.perf_counter()
    completion = autocomplete.open().complete(ask).finish(autocomplete.model)
    return completion, (time.perf_counter() - began) * 1000


def _statistics(completion: Completion, settings: DraftSettings, explain: bool) -> dict[str, object]:
    """The exact steps, the figures of speculation and what the passes took for --json, as far as there are any."""
    fields: dict[str, object] = {}
    if explain and completion.explained is not None:
        fields["explained"] = explained_of(completion.explained)
    if settings.sampling.mode in DRAFTING["exact_steps"].modes:
        fields["exact_steps"] = completion.exact_steps
    if settings.speculates and (figures := completion.figures):
        fields |= {
            "speculation": settings.sampling.speculation.mode,
            "accept_length": round(figures.accept_length, 2),
            "notice": figures.notice,
        }
    return fields


def _as_json(draft: TextDraft, tokens: bool, explain: bool) -> dict[str, object]:
    """A draft as --json prints it, token by token too if `tokens` or `explain`."""
    written: dict[str, object] = {
        "text": draft.text,
        "probability": draft.probability,
        "whole": draft.p_joint,
        "finished": draft.finished,
        "personal": draft.personal,
        "tail": draft.tail,
    }
    if explain:
        written["made"] = made_of(draft)
    return written | ({"tokens": _tokens(draft)} if tokens else {})


def _text(given: str | None, file: Path | None) -> str:
    """The text to continue. Raises InputError if there is none, or more than one."""
    if file is not None:
        if given is not None:
            raise InputError("TEXT and --file given; leave one of them out.")
        return _without_line_end(_text_of(file, "--file"))
    if given not in (None, "-"):
        return without_surrogates(given)
    if sys.stdin.isatty():
        raise InputError("No text given; give it in quotation marks, with --file, or on standard input.")
    return _without_line_end(_decoded(sys.stdin.buffer.read(_MOST_READ + 1), "Standard input", "a text"))


def _without_line_end(text: str) -> str:
    """Programs end a text with a line end, after which drafts would begin the next line."""
    return text.removesuffix("\n").removesuffix("\r")


def _text_of(path: Path, flag: str) -> str:
    """The text of a file of plain text. Raises InputError for a file that is none."""
    check_regular(path)
    with path.open("rb") as file:
        return _decoded(file.read(_MOST_READ + 1), str(path), f"{flag} a text file")


def _decoded(data: bytes, name: str, wanted: str) -> str:
    if len(data) > _MOST_READ:
        raise InputError(f"{name} has more than {_MOST_READ >> 20} MB; give {wanted} that is shorter.")
    try:
        return data.decode("utf-8-sig").replace("\r\n", "\n")
    except UnicodeDecodeError as error:
        raise InputError(f"{name} is no text in UTF-8 ({error.reason}); give {wanted}.") from error


def _background(path: Path) -> str:
    """The text of a file of plain text. Raises InputError for a file that is none."""
    text = _text_of(path, "--background")
    if not text.strip():
        raise InputError(f"{path} contains no text, so --background changes nothing; leave it out.")
    return text


def _never(given: list[str], path: Path | None) -> tuple[str, ...]:
    """The phrases that no draft contains. Raises InputError for one that is none, and for a file without any."""
    if path is None:
        return checked(given)
    if path.is_file() and path.stat().st_size > MOST_BYTES:
        raise InputError(
            f"{path} is larger than {MOST_BYTES >> 20} MB; give --never-file a list of at most {MOST:,} phrases."
        )
    listed = phrases_of(_text_of(path, "--never-file"))
    if not listed:
        raise InputError(f"{path} contains no phrase, so --never-file changes nothing; leave it out.")
    return checked([*given, *listed])


def without_surrogates(text: str) -> str:
    """Replaces lone surrogates, which represent bytes that the terminal's encoding cannot decode; no tokenizer accepts
    them."""
    clean = text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    if clean != text:
        say("Some bytes of TEXT are not valid text; they were replaced by \ufffd.", err=True)
    return clean


def _print_drafts(text: str, drafts: list[TextDraft]) -> None:
    """Formats number, probability and draft, after the end of the text so that spaces are visible."""
    last_line = text.rpartition("\n")[2]
    before = ("…" if len(last_line) > _CONTEXT else "") + last_line[-_CONTEXT:]
    console = Console(highlight=False, soft_wrap=True)
    for number, draft in enumerate(drafts, start=1):
        row = Text(f"{number}  {draft.probability:6.1%}  ")
        row.append(visible(before), style="dim").append(visible(draft.text), style="bold")
        console.print(row)


def _tokens(draft: TextDraft) -> list[dict[str, object]]:
    """Formats the draft token by token, with its origin in speculation and its local tolerance score if it has one."""
    return [
        {"text": draft.text[a:b], "how": how, "lts": None if lts is None else round(lts, 3)}
        for a, b, how, lts in draft.how
    ]
