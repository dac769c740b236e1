"""`polydraft ngram`: builds, queries and merges stores. Every command calls ngram_builder or core.ngram."""

from __future__ import annotations

import os
import re
import sys
import time
from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeElapsedColumn
from rich.table import Table

from app.cli import adding
from app.cli import personal as personal_cli
from app.cli.flags import chosen, command_for, was_given
from app.cli.personal import ModelName, load_tokenizer
from app.cli.shared import Json, Yes, begins_with, bytes_of, refuse_in_dry_run, refuse_to_replace, show
from app.machine.offline import allow_network
from app.machine.output import plain, say
from core.errors import InputError
from core.ngram import NgramStore
from core.ngram.container import MAGIC

if TYPE_CHECKING:
    from core.models import Tokenizer
    from ngram_builder import BuildReport, Damage
    from ngram_builder.survey import Survey

app = typer.Typer(help="N-gram stores: build, query, stats, merge; personal stores.", no_args_is_help=True)

Sources = Annotated[list[str], typer.Argument(help="Files, folders, glob patterns or URLs.")]
Out = Annotated[Path, typer.Option("--out", "-o", help="The store to write.")]
Orders = Annotated[str, typer.Option(help="Orders of n-grams, a range within 1-8.")]
MinCount = Annotated[
    str, typer.Option(help="Drop n-grams seen less often: one number, or one per order, as in 2,2,2,3,3.")
]
Exact = Annotated[bool, typer.Option("--exact", help="Store every count exactly.")]
Memory = Annotated[str, typer.Option(help="Memory that the whole process may take, such as 2G or 512M.")]
StorePath = Annotated[
    Path,
    typer.Option("--store", help="The store: a file, [bold]default[/] for the app's own, or a personal store by name."),
]

personal_cli.register(app)
app.command(name="add")(adding.add)

_SHOWN = 20  # damaged places that are listed individually
_EVERY = 30.0  # seconds between lines of progress


@dataclass(frozen=True)
class BuildOptions:
    """The options of `polydraft ngram build`."""

    tokenizer: ModelName = "default"
    orders: Orders = "2-6"
    min_count: MinCount = "2"
    fit: Annotated[
        str | None,
        typer.Option(
            help="The largest size of the store, such as 200MB: the least pruning that fits is chosen.", metavar="SIZE"
        ),
    ] = None
    memory: Memory = "2G"
    exact: Exact = False
    max_bad: Annotated[str, typer.Option(help="Write nothing when more of the input than this is damaged.")] = "1%"
    quality_signals: Annotated[
        list[str] | None,
        typer.Option(
            help="Selects documents of RedPajama-V2 by the signals beside them: language=en,de, "
            "bucket=head,middle, words=50-100000, perplexity=-500, or any signal by name. May be given several times."
        ),
    ] = None
    rules: Annotated[
        list[str] | None,
        typer.Option(
            help="Leave out documents that break these rules for prose: gopher (all), or some, as in words,stop-words."
        ),
    ] = None
    sample: Annotated[str, typer.Option(help="Read this share of the documents, the same ones every time.")] = "100%"
    dedup: Annotated[
        str | None, typer.Option(help="Count only the first of equal documents or paragraphs: documents, paragraphs.")
    ] = None
    workers: Annotated[int, typer.Option(help="Cores to use; 0 is all.", min=0)] = 0
    work: Annotated[
        Path | None, typer.Option(help="A folder for intermediate files; by default one beside the store.")
    ] = None
    keep: Annotated[
        bool, typer.Option("--keep", help="Keep the intermediate files, so that more sources can be added later.")
    ] = False
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Write nothing: estimate sizes and time from a hundredth of the input.")
    ] = False
    scheduler: Annotated[
        str | None, typer.Option(help="Count on the Dask cluster of the scheduler at this address, tcp://…:8786.")
    ] = None
    dask: Annotated[str | None, typer.Option(help="local: count on a Dask cluster of this machine's cores.")] = None
    yes: Yes = False
    as_json: Json = False

    def refuse_in_dry_run(self, ctx: typer.Context) -> None:
        """Raises InputError for what would have no effect in a dry run."""
        usual = {"--memory": was_given(ctx, "memory"), "--max-bad": was_given(ctx, "max_bad")}
        kept = {"--work": self.work, "--keep": self.keep, "--yes": self.yes}
        placed = {"--fit": self.fit, "--exact": self.exact, "--scheduler": self.scheduler, "--dask": self.dask}
        refuse_in_dry_run({**placed, **usual, **kept})


@app.command(cls=command_for(lambda: BuildOptions))
def build(ctx: typer.Context, sources: Sources, out: Out) -> None:
    """Count the n-grams of documents and write a store.

    Reads RedPajama shards (.jsonl, .json, .parquet), text (.txt, .md), mail (.eml, .emlx, .mbox), pages (.html) and
    letters (.docx, .odt, .rtf), most also packed (.gz, .zst): files, folders, patterns, or URLs such as https://,
    hf:// and s3://.
    To resume after an interruption, run the same command again.
    """
    wanted = chosen(ctx, BuildOptions)
    if wanted.dry_run:
        wanted.refuse_in_dry_run(ctx)
    else:
        refuse_to_replace(out, wanted.yes, begins_with(MAGIC))
    import ngram_builder  # its readers' imports take as long as all others of the command line

    orders = _range(wanted.orders)
    counts: dict[str, Any] = {
        "orders": orders,
        "min_count": _per_order(wanted.min_count, orders),
        "max_bad": _share(wanted.max_bad),
        "memory": bytes_of(wanted.memory),
        "signals": ngram_builder.Signals.parse(wanted.quality_signals) if wanted.quality_signals else None,
        "rules": wanted.rules or (),
        "dedup": wanted.dedup,
    }
    if wanted.dask not in (None, "local") or (wanted.dask and wanted.scheduler):
        raise InputError(f"--dask {wanted.dask} given; --dask local, or --scheduler ADDRESS, expected.")
    words, name = _tokenizer(wanted.tokenizer)
    if any("://" in source for source in sources):
        allow_network()  # after the tokenizer, whose name is none of these addresses
    counts["sample"] = _share(wanted.sample)
    if wanted.dry_run:
        _survey(sources, words, wanted, counts)
    else:
        _print_report(_built(sources, out, words, name, wanted, counts), out, wanted.as_json)


def _survey(sources: list[str], words: Tokenizer, wanted: BuildOptions, counts: dict[str, Any]) -> None:
    from ngram_builder import DocumentSelection
    from ngram_builder.survey import survey

    selection = DocumentSelection.of(*(counts[name] for name in ("signals", "rules", "sample", "dedup")))
    cores = wanted.workers or os.cpu_count() or 1
    found = survey(sources, words, counts["orders"], counts["min_count"], selection, cores)
    _print_survey(found, wanted.as_json)


def _built(
    sources: list[str], out: Path, words: Tokenizer, name: str, wanted: BuildOptions, counts: dict[str, Any]
) -> BuildReport:
    import ngram_builder
    from ngram_builder.cluster import cluster

    workers, address = wanted.workers or None, wanted.dask or wanted.scheduler
    there = cluster(address, partial(load_tokenizer, wanted.tokenizer), workers) if address else nullcontext()
    try:
        with there as machines, _bar() as bar:
            return ngram_builder.build(
                sources,
                out,
                words,
                name=name,
                fit=bytes_of(wanted.fit, "Size", 1000) if wanted.fit else None,  # as sizes of files are shown
                exact=wanted.exact,
                workers=workers,
                work=wanted.work,
                keep=wanted.keep,
                machines=machines,
                progress=_Shown(bar),
                notify=partial(say, err=True),
                **counts,
            )
    except ngram_builder.TooMuchDamage as error:
        _print_damage(error.damage)
        raise


@app.command()
def merge(
    stores: Annotated[list[Path], typer.Argument(help="Stores of one tokenizer.")],
    out: Out,
    min_count: Annotated[str, typer.Option(help="Prune the sum, as in build.")] = "1",
    memory: Memory = "2G",
    exact: Exact = False,
    yes: Yes = False,
    as_json: Json = False,
) -> None:
    """Add up several stores: files, or personal stores by name."""
    if personal_cli.named(out) and all(personal_cli.named(path) for path in stores):
        tokens = personal_cli.merge([path.name for path in stores], out.name)
        say(f"{out}: {tokens:,} tokens added.")
        return
    refuse_to_replace(out, yes, begins_with(MAGIC))
    import ngram_builder

    opened = [NgramStore.open(path, verify=True) for path in stores]
    orders = range(max(s.orders[0] for s in opened), min(s.orders[-1] for s in opened) + 1)
    at_least, taken = _per_order(min_count, orders), bytes_of(memory)
    with _bar() as bar:
        report = ngram_builder.merge(opened, out, min_count=at_least, memory=taken, exact=exact, progress=_Shown(bar))
    _print_report(report, out, as_json)


@app.command()
def query(
    text: Annotated[str, typer.Argument(help="The text so far; its last words are the context.")],
    store: StorePath,
    tokenizer: ModelName = "default",
    top: Annotated[int, typer.Option(help="How many continuations to show.", min=1)] = 10,
    as_json: Json = False,
) -> None:
    """Show the tokens that followed these words, and how often, for every length of context in the store."""
    store = _own(store)
    if personal_cli.named(store):
        rows = personal_cli.query(store.name, text, tokenizer, top)
    else:
        words = load_tokenizer(tokenizer)
        opened = NgramStore.open(store, fingerprint=words.fingerprint)
        rows = personal_cli.continuations(opened, words, text, top)
    show(as_json, "ngram query", rows, lambda: _print_continuations(rows))


def _print_continuations(rows: list[dict[str, Any]]) -> None:
    if not rows:
        say("The store has no continuation of these words.")
    for row in rows:
        table = Table(title=plain(f"{row['context']!r} · seen before {row['total']} known continuations"))
        table.add_column("next")
        table.add_column("times", justify="right")
        table.add_column("share", justify="right")
        table.add_column("from")
        for entry in row["continuations"]:
            origins = ", ".join(f"{Path(o).name} ({times})" for o, times in entry.get("from", {}).items())
            table.add_row(plain(repr(entry["text"])), str(entry["count"]), f"{entry['share']:.1%}", plain(origins))
        Console().print(table)


@app.command()
def stats(
    store: Annotated[
        Path | None,
        typer.Option("--store", help="The store: a file, or a personal store by name. Without it all personal ones."),
    ] = None,
    verify: Annotated[bool, typer.Option("--verify", help="Compare the whole file with its checksums.")] = False,
    as_json: Json = False,
) -> None:
    """Show the contents of a store: n-grams per order, sizes, sources; of a personal store, by name, its sources; or
    list the personal stores."""
    if store is None:
        rows = personal_cli.listed()
        show(as_json, "ngram stats", rows, lambda: personal_cli.print_list(rows))
    elif personal_cli.named(store := _own(store)):
        row = personal_cli.stats(store.name)
        show(as_json, "ngram stats", [row], lambda: personal_cli.print_stats(row))
    else:
        row = _statistics(NgramStore.open(store, verify=verify), store, verify)
        show(as_json, "ngram stats", [row], lambda: _print_statistics(row))


def _statistics(opened: NgramStore, store: Path, verify: bool) -> dict[str, Any]:
    manifest, size = opened.manifest, opened.path.stat().st_size
    return {
        "store": str(store),
        "verified": verify,
        "bytes": size,
        "ngrams": len(opened),
        "bytes_per_ngram": size / len(opened),
        "parts": opened.sizes,
        "tokenizer": manifest["tokenizer"],
        "per_order": manifest["ngrams"],
        "contexts": manifest["contexts"],
        "min_count": manifest["min_count"],
        "max_relative_error": manifest["records"]["max_relative_error"],
        "documents": manifest["documents"],
        "tokens": manifest["tokens"],
        "sources": manifest["sources"],
    }


def _print_statistics(row: dict[str, Any]) -> None:
    table = Table(title=plain(f"{row['store']} · {row['bytes']:,} bytes, {row['bytes_per_ngram']:.2f} per n-gram"))
    for column in ("order", "n-grams", "contexts", "at least"):
        table.add_column(column, justify="right")
    for n, ngrams in row["per_order"].items():
        table.add_row(n, f"{ngrams:,}", f"{row['contexts'].get(n, 0):,}", str(row["min_count"].get(n, "")))
    Console().print(table)
    say(f"Tokenizer of {row['tokenizer']['name']}, {row['tokenizer']['fingerprint'][:12]}…")
    names = ", ".join(source["name"] for source in row["sources"])
    say(f"From {row['documents']:,} documents, {row['tokens']:,} tokens: {names}")
    say(f"Largest error of a count: {row['max_relative_error']:.1%}")
    if row["verified"]:
        say("Checksums agree.")


def _own(store: Path) -> Path:
    """The file of the app's own store for "default", unless a personal store has this name."""
    from core.ngram.base import BASE_STORE, OWN
    from core.ngram.shelf import Shelf, stores_folder

    own = str(store) == OWN and not store.exists() and not Shelf.path_in(stores_folder(), OWN).exists()
    return BASE_STORE if own else store


def _bar() -> Progress:
    return Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        TaskProgressColumn(),
        TextColumn("{task.fields[tokens]}"),
        TimeElapsedColumn(),
        TextColumn("{task.fields[left]}"),
        console=Console(stderr=True),
        disable=not sys.stderr.isatty(),
    )


class _Shown:
    """Shows a build's progress over all its phases: as a bar, or without a terminal as a line now and then."""

    def __init__(self, bar: Progress) -> None:
        self._bar = bar
        self._task = bar.add_task("", total=1.0, tokens="", left="")
        self._began: tuple[float, float, int] | None = None  # time, share of the build, tokens
        self._said = time.monotonic()

    def __call__(self, phase: str, share: float, report: BuildReport) -> None:
        from ngram_builder import pipeline

        now, done = time.monotonic(), pipeline.done(phase, share)
        self._began = self._began or (now, done, report.tokens)
        began, before, counted = self._began
        rate = (report.tokens - counted) / max(now - began, 1e-3)
        tokens = f"{report.tokens / 1e6:.1f} M tokens, {rate / 1e3:,.0f} k/s" if phase == pipeline.READING else ""
        left = _duration((now - began) * (1 - done) / (done - before)) + " left" if done > before else ""
        self._bar.update(self._task, description=phase, completed=done, tokens=tokens, left=left)
        if self._bar.disable and now - self._said >= _EVERY:
            self._said = now
            about = f"about {left}" if left else ""
            say(", ".join(filter(None, [f"{phase}: {done:.0%} of the build", tokens, about])), err=True)


def _duration(seconds: float) -> str:
    minutes = round(seconds / 60)
    return f"{seconds:.0f} s" if seconds < 100 else f"{minutes} min" if minutes < 100 else f"{seconds / 3600:.1f} h"


def _print_survey(found: Survey, as_json: bool) -> None:
    from ngram_builder.work import human

    sentences = (
        f"About {found.documents:,} documents and {found.tokens / 1e6:,.1f} M tokens in {found.files:,} files of "
        f"{human(found.bytes)}, of which {found.read:.1%} were read. The store would have about "
        f"{found.ngrams / 1e6:,.1f} M n-grams in {human(found.store)}. The build takes about "
        f"{_duration(found.seconds)} on this machine, and {human(found.disk)} of disk meanwhile. Nothing was written."
    )
    show(as_json, "ngram build --dry-run", [asdict(found)], sentences)


def _print_report(report: BuildReport, out: Path, as_json: bool) -> None:
    _print_damage(report.damage)
    row = {
        "store": str(out),
        "bytes": report.size,
        "documents": report.documents,
        "tokens": report.tokens,
        "ngrams": report.ngrams,
        "left_out": report.left_out,
        "left_out_by": report.left_out_by,
        "damaged": len(report.damage),
        "damage": [asdict(place) for place in report.damage],
        "seconds": round(report.seconds, 3),
    }
    kept = sum(report.ngrams.values())
    sentences = (
        f"{out}: {kept:,} n-grams in {report.size:,} bytes, from {report.documents:,} documents and "
        f"{report.tokens:,} tokens, in {report.seconds:.0f} s; {len(report.damage)} damaged places."
    )
    if report.left_out_by:
        reasons = ", ".join(f"{reason} {number:,}" for reason, number in sorted(report.left_out_by.items()))
        sentences += f" Left out: {reasons}."
    show(as_json, "ngram build", [row], sentences)


def _print_damage(damage: Sequence[Damage]) -> None:
    for place in damage[:_SHOWN]:
        say(f"Warning: {place}", err=True)
    if len(damage) > _SHOWN:
        say(f"Warning: {len(damage) - _SHOWN} more damaged places; --json lists all.", err=True)


def _tokenizer(name: str) -> tuple[Tokenizer, str]:
    from core.models import located

    return load_tokenizer(name), located.locate(name)[1]


def _range(text: str) -> range:
    if not (match := re.fullmatch(r"(\d)(?:-(\d))?", text.strip())):
        raise InputError(f"Orders {text!r} given; a range such as 2-6 expected.")
    low, high = int(match[1]), int(match[2] or match[1])
    if not 1 <= low <= high <= 8:
        raise InputError(f"Orders {text!r} given; a range within 1-8 expected.")
    return range(low, high + 1)


def _per_order(text: str, orders: range) -> dict[int, int]:
    if not re.fullmatch(r"\d+(,\d+)*", text.strip()):
        raise InputError(f"Minimum count {text!r} given; a number, or one per order, expected.")
    numbers = [int(part) for part in text.split(",")]
    if len(numbers) == 1:
        numbers *= len(orders)
    if len(numbers) != len(orders):
        raise InputError(f"{len(numbers)} minimum counts given for {len(orders)} orders.")
    return dict(zip(orders, numbers, strict=True))


def _share(text: str) -> float:
    if not (match := re.fullmatch(r"(\d+(?:\.\d*)?)(%?)", text.strip())):
        raise InputError(f"Share {text!r} given; something like 1% or 0.01 expected.")
    share = float(match[1]) / (100 if match[2] else 1)
    if share > 1:
        raise InputError(f"Share {text!r} given; at most 100% expected.")
    return share
