"""`polydraft ngram` commands for personal stores, and the parts of its other commands that apply to a store given by
name. They call core.ngram.personal and ngram_builder.personal."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn
from rich.table import Table

from app.cli.shared import Yes, begins_with, refuse_to_replace
from app.machine.output import plain, say, say_json, visible
from core.errors import InputError
from core.ngram.shelf import Shelf, stores_folder

if TYPE_CHECKING:
    from core.models import Tokenizer
    from core.ngram import NgramStore
    from core.ngram.personal import PersonalStore
    from core.ngram.summaries import StoreSummary
    from ngram_builder.readers import Senders

Store = Annotated[str, typer.Option("--store", help="The personal store, by name.", metavar="NAME")]
ModelName = Annotated[str, typer.Option("--tokenizer", help="The model whose tokenizer to use.", metavar="NAME")]
Json = Annotated[bool, typer.Option("--json", metavar="", help="Print one JSON object.")]

# After text was removed.
UNLEARNED = (
    "The adapter had learned this text and is deleted. Polydraft trains it again from what is left when the page next "
    "lists the stores or starts; `polydraft learn {}` does so now."
)

# After text was removed, while its last traces could not be.
TRACES = (
    "Another program has the store open, or the disk is full; the last traces are removed when the store is next "
    "opened."
)

_SHOWN = 20  # damaged places, or documents, that are listed individually


def register(app: typer.Typer) -> None:
    """Adds the commands for personal stores to `polydraft ngram`."""
    for command in (add, export, compile_, switch, delete):
        app.command(name=command.__name__.rstrip("_"))(command)
    # Words without a flag: the command says which flag to use.
    app.command(name="forget", context_settings={"allow_extra_args": True})(forget)
    app.command(name="import")(import_)


def named(store: Path) -> bool:
    """Whether `--store` is the name of a personal store, and not a file."""
    return store.name == str(store) and not store.exists() and not store.suffix


def add(
    store: Store,
    paths: Annotated[list[str] | None, typer.Argument(help="Files, folders or glob patterns.", metavar="PATH")] = None,
    phrase: Annotated[
        list[str] | None, typer.Option("--phrase", help="A phrase to suggest from now on.", metavar="TEXT")
    ] = None,
    senders: Annotated[
        list[str] | None,
        typer.Option(
            "--from",
            help="Your name or address: of mail and chats, add only what you wrote. May be given several times.",
            metavar="NAME",
        ),
    ] = None,
    tokenizer: ModelName = "default",
    as_json: Json = False,
) -> None:
    """Add your own text to a personal store; the store is created if it does not exist.

    Drafts use it from the next keystroke on. A file that the store already has is replaced.
    """
    from core.ngram.personal import PHRASE
    from ngram_builder import personal

    if not paths and not phrase:
        raise InputError("Nothing to add; give files or a --phrase.")
    with _filled(store, tokenizer) as opened:
        adapted = opened.learned.exists()
        columns = TextColumn("{task.description}", markup=False), BarColumn(), TaskProgressColumn()
        with Progress(*columns, console=Console(stderr=True), disable=not sys.stderr.isatty()) as bar:
            task = bar.add_task("Reading", total=1.0)

            def progress(share: float, file: str) -> None:
                bar.update(task, completed=share, description=visible(Path(file).name) or "Done")

            added = personal.add(opened, paths, progress, senders or ()) if paths else personal.Added()
        for text in phrase or []:
            added.tokens += opened.learn(text, times=PHRASE)
        adapted = adapted and not opened.learned.exists()
    for place in added.damage[:_SHOWN]:
        say(f"Warning: {place}", err=True)
    for place in added.notes[:_SHOWN]:
        say(f"Note: {place}.", err=True)
    if len(added.notes) > _SHOWN:
        say(f"Note: {len(added.notes) - _SHOWN} further mails contain nothing to learn.", err=True)
    if said := about_senders(added.senders):
        say(f"Note: {said}", err=True)
    row = {"store": store, "files": added.files, "tokens": added.tokens, "damaged": len(added.damage)}
    message = f"Added {added.files} files ({added.tokens:,} tokens) to {store}; {len(added.damage)} damaged places."
    if adapted:
        message += f" A text was replaced. {UNLEARNED.format(store)}"
    _print(as_json, "ngram add", row, message)


def about_senders(senders: Senders) -> str:
    """One sentence about mails of several senders; "" if nothing is to be said."""
    if not senders.found:
        return ""
    (most, mails), *others = senders.found.most_common()
    if senders.wanted and senders.others == senders.found.total():
        wanted = " or ".join(sorted(senders.wanted))
        return f"None of the {senders.others} mails is from {wanted}; most are from {most}."
    if senders.wanted or not others:
        return ""
    share = f"{mails} of {senders.found.total()} from {most}"
    return f"The mails are from {len(senders.found)} senders, {share}: --from {most} learns only these."


def forget(
    ctx: typer.Context,
    store: Store,
    document: Annotated[
        str | None, typer.Option(help="Forget this document, as `stats` lists it.", metavar="NAME")
    ] = None,
    phrase: Annotated[
        str | None, typer.Option(help="Forget every place of this phrase, in any case.", metavar="TEXT")
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", metavar="", help="Only say what would be removed.")] = False,
    tokenizer: ModelName = "default",
    as_json: Json = False,
) -> None:
    """Remove a document, or every occurrence of a phrase: its text and its counts. This cannot be undone."""
    from ngram_builder.personal import origin_of

    if ctx.args or (document is None) == (phrase is None):
        raise InputError(
            "Say what to forget: `polydraft ngram forget --document NAME` for a document, or "
            "`polydraft ngram forget --phrase TEXT` for every place of a phrase."
        )
    done = None
    with closing(_opened(store, tokenizer)) as opened:
        if document is not None:
            origins = {document["origin"] for document in opened.documents()}
            name = origin_of(document) if document not in origins and origin_of(document) in origins else document
            extent = opened.document_extent(name) if dry_run else (done := opened.forget_document(name))
        else:
            assert phrase is not None
            extent = opened.phrase_extent(phrase) if dry_run else (done := opened.forget_phrase(phrase))
    row: dict[str, Any] = {"store": store, "documents": extent.documents, "passages": extent.passages}
    row |= {"occurrences": extent.occurrences, "characters": extent.characters}
    number = f"{extent.occurrences} occurrences" if document is None else f"{extent.documents} documents"
    message = f"{store}: {number} ({extent.characters:,} characters in {extent.passages} passages)"
    message += " would be forgotten." if dry_run else " forgotten."
    if done is not None:
        row |= {"complete": done.complete, "adapter": done.adapter}
        if done.adapter:
            message += f" {UNLEARNED.format(store)}"
        if not done.complete:
            message += f" {TRACES}"
    _print(as_json, "ngram forget", row, message)


def export(
    store: Store,
    out: Annotated[Path, typer.Option("--out", "-o", help="The file to write, .jsonl.zst.")],
    yes: Yes = False,
    as_json: Json = False,
) -> None:
    """Write a personal store to one file that any Polydraft can import, with what the model learned from it."""
    from ngram_builder import personal

    refuse_to_replace(out, yes)
    with closing(_opened(store, None)) as opened:
        done = personal.export(opened, out)
    row = {"store": store, "documents": done.documents, "adapter": done.adapter}
    message = f"{out}: {done.documents} documents of {store}{', and its adapter' if done.adapter else ''}."
    if done.left_out:
        message += f" Its adapter is left out: {done.left_out}"
    _print(as_json, "ngram export", row, message)


def import_(
    path: Annotated[Path, typer.Argument(help="A file written by `export`.", metavar="FILE")],
    store: Store,
    tokenizer: ModelName = "default",
    as_json: Json = False,
) -> None:
    """Add an exported store to a personal store, except documents that it already has, and its adapter if the store has
    none."""
    from ngram_builder import personal

    with _filled(store, tokenizer) as opened:
        done, left_out = personal.restore(opened, path), ""
        if done.adapter:
            from core.models import load_model

            left_out = personal.adopt(opened, done.adapter, load_model(tokenizer))
    row = {"store": store, "tokens": done.tokens, "adapter": done.adapter is not None and not left_out}
    message = f"Added {done.tokens:,} tokens from {path} to {store}."
    if row["adapter"]:
        message += " Drafts use its adapter too."
    elif left_out:
        message += f" The adapter in it is left out: {left_out}."
    _print(as_json, "ngram import", row, message)


def compile_(
    store: Store,
    out: Annotated[Path, typer.Option("--out", "-o", help="The trie store to write.")],
    min_count: Annotated[int, typer.Option(help="Drop n-grams seen less often.", min=1)] = 1,
    tokenizer: ModelName = "default",
    yes: Yes = False,
    as_json: Json = False,
) -> None:
    """Write a personal store's counts, without its texts, as a trie store."""
    from core.ngram.container import MAGIC
    from ngram_builder import personal

    refuse_to_replace(out, yes, begins_with(MAGIC))
    with closing(_opened(store, tokenizer)) as opened:
        report = personal.compile_store(opened, out, min_count)
    kept = sum(report.ngrams.values())
    row = {"store": store, "out": str(out), "ngrams": kept, "bytes": report.size}
    _print(as_json, "ngram compile", row, f"{out}: {kept:,} n-grams in {report.size:,} bytes.")


def switch(
    state: Annotated[str, typer.Argument(help="on or off.", metavar="on|off")],
    store: Store,
    learning: Annotated[bool, typer.Option("--learning", metavar="", help="Switch learning from use instead.")] = False,
) -> None:
    """Switch a personal store on or off for drafts; with --learning, whether it learns from your writing (off at
    first)."""
    if state not in ("on", "off"):
        raise InputError(f"{state!r} given; on or off expected.")
    with closing(_opened(store, None)) as opened:
        if learning:
            opened.switch_learning(state == "on")
        else:
            opened.switch(state == "on")
    say(f"{store}: {'learning ' if learning else ''}{state}.")


def delete(
    store: Annotated[str, typer.Argument(help="The personal store, by name.", metavar="NAME")],
    yes: Annotated[bool, typer.Option("--yes", "-y", metavar="", help="Delete without confirmation.")] = False,
) -> None:
    """Delete a whole personal store and overwrite its texts; also a damaged one."""
    from core.ngram.errors import StoreError
    from core.ngram.personal import remove_files

    path = Shelf.path_in(stores_folder(), store)
    try:
        opened = _opened(store, None)
    except StoreError as error:
        if not path.is_file():
            raise
        opened, message = None, f"{store} cannot be read ({error}); its files will be deleted."
    else:
        message = f"{store} contains {opened.summary()['tokens']:,} tokens."
    if not yes and not typer.confirm(visible(f"{message} Delete it?")):
        raise typer.Exit(1)
    if opened:
        opened.delete()
    else:
        remove_files(path)
    say(f"{store} is deleted.")


# ---------------------------------------------------------------- `ngram query`, `stats` and `merge` for a store by
# name


def query(store: str, text: str, tokenizer: str, top: int) -> list[dict[str, Any]]:
    """Tokens that follow these words, how often and from which document, for every length of context in the store."""
    words = load_tokenizer(tokenizer)
    with closing(_opened(store, words)) as opened:
        opened.refresh()
        return continuations(opened, words, text, top, lambda ids: {"from": opened.where(ids)})


def continuations(
    store: NgramStore | PersonalStore,
    words: Tokenizer,
    text: str,
    top: int,
    more: Callable[[list[int]], dict[str, Any]] = lambda ids: {},
) -> list[dict[str, Any]]:
    """Tokens that follow these words, and how often, for every length of context in a store; and `more` on each."""
    ids, rows = words.encode(text), []
    for n in reversed(store.orders):
        context = ids[len(ids) - (n - 1) :]
        if len(context) < n - 1 or not (total := store.total(context)):
            continue
        following = [
            {"text": words.decode([i]), "id": i, "count": count, "share": count / total, **more([*context, i])}
            for i, count in store.continuations(context, top)
        ]
        rows.append({"order": n, "context": words.decode(context), "total": total, "continuations": following})
    return rows


def stats(store: str) -> StoreSummary:
    """The contents of a personal store: size, last change, whether it is on, its documents."""
    with closing(_opened(store, None)) as opened:
        return opened.summary()


def print_stats(row: StoreSummary) -> None:
    state = f"{'on' if row['enabled'] else 'off'}, learning {'on' if row['learning'] else 'off'}"
    table = Table(
        title=plain(f"{row['store']} · {row['tokens']:,} tokens, {row['bytes']:,} bytes, {state}"), title_justify="left"
    )
    table.add_column("document")
    table.add_column("added")
    table.add_column("tokens", justify="right")
    for origin in row["documents"][:_SHOWN]:
        table.add_row(plain(origin["origin"]), plain(origin["added"]), f"{origin['tokens']:,}")
    if len(row["documents"]) > _SHOWN:
        table.add_row(f"… and {len(row['documents']) - _SHOWN} more", "", "")
    Console().print(table)


def merge(stores: list[str], into: str) -> int:
    """Merges several personal stores into one; returns the number of tokens added."""
    words = load_tokenizer("default")
    opened = [_opened(name, words) for name in stores]
    try:
        with _filled(into, words) as merged:
            return sum(merged.restore(store.texts()) for store in opened)
    finally:
        for store in opened:
            store.close()


@contextmanager
def _filled(name: str, tokenizer: str | Tokenizer) -> Iterator[PersonalStore]:
    """Opens a store to add text to it. A new one is deleted after an error, unless something was added before."""
    new = not Shelf.path_in(stores_folder(), name).exists()
    with closing(_opened(name, tokenizer, create=True)) as opened:
        try:
            yield opened
        except BaseException:
            if new and not opened.documents():
                opened.delete()
            raise


def _opened(name: str, tokenizer: str | Tokenizer | None, create: bool = False) -> PersonalStore:
    path = (Shelf.path_in if create else Shelf.existing)(stores_folder(), name)
    words = load_tokenizer(tokenizer) if isinstance(tokenizer, str) else tokenizer
    from core.ngram.personal import PersonalStore

    return PersonalStore.open(path, words, create=create)


def load_tokenizer(name: str) -> Tokenizer:
    """Loads a model's tokenizer; workers of a cluster call this, too."""
    from core.models import words  # takes .3 s to import

    return words.load_tokenizer(name)


def _print(as_json: bool, name: str, row: dict[str, Any], message: str) -> None:
    if as_json:
        say_json({"name": name, "rows": [row]})
    else:
        say(message)
