"""`polydraft ngram` commands for personal stores, and the parts of its other commands that apply to a store given by
name. They call core.ngram.personal and ngram_builder.personal."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

from app.cli.shared import Json, Yes, begins_with, refuse_to_replace, show
from app.machine.output import plain, say, visible
from core import language
from core.errors import InputError, PolydraftError
from core.ngram.shelf import Shelf, stores_folder

if TYPE_CHECKING:
    from core.models import Tokenizer
    from core.ngram import NgramStore
    from core.ngram.personal import PersonalStore
    from core.ngram.removed import Extent
    from core.ngram.summaries import LearnedText

Store = Annotated[str, typer.Option("--store", help="The personal store, by name.", metavar="NAME")]
ModelName = Annotated[str, typer.Option("--tokenizer", help="The model whose tokenizer to use.", metavar="NAME")]

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
_READ = 300  # texts whose languages are found, some .1 ms each for English and 2 for others


def register(app: typer.Typer) -> None:
    """Adds the commands for personal stores to `polydraft ngram`."""
    for command in (export, compile_, switch, delete):
        app.command(name=command.__name__.rstrip("_"))(command)
    # Words without a flag: the command says which flag to use.
    app.command(name="forget", context_settings={"allow_extra_args": True})(forget)
    app.command(name="import")(import_)


def named(store: Path) -> bool:
    """Whether `--store` is the name of a personal store, and not a file."""
    return store.name == str(store) and not store.exists() and not store.suffix


def forget(
    ctx: typer.Context,
    store: Store,
    document: Annotated[
        str | None,
        typer.Option(help="Forget this document, as `stats` lists it, a folder, or a pattern.", metavar="NAME"),
    ] = None,
    phrase: Annotated[
        str | None, typer.Option(help="Forget every place of this phrase, in any case.", metavar="TEXT")
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", metavar="", help="Only say what would be removed.")] = False,
    yes: Annotated[bool, typer.Option("--yes", "-y", metavar="", help="Forget several documents unasked.")] = False,
    tokenizer: ModelName = "default",
    as_json: Json = False,
) -> None:
    """Remove a document, or every occurrence of a phrase: its text and its counts. This cannot be undone."""
    from ngram_builder.folders import documents_named

    if ctx.args or (document is None) == (phrase is None):
        raise InputError(
            "Say what to forget: `polydraft ngram forget --document NAME` for a document, or "
            "`polydraft ngram forget --phrase TEXT` for every place of a phrase."
        )
    done = None
    with closing(open_store(store, tokenizer if phrase is not None else None)) as opened:
        if document is not None:
            names = documents_named(opened, document)
            extent = opened.document_extent(*names)
            if not dry_run:
                if len(names) > 1 and not yes:
                    _confirm(names, extent)
                extent = done = opened.forget_document(*names)
        else:
            assert phrase is not None
            extent = opened.phrase_extent(phrase) if dry_run else (done := opened.forget_phrase(phrase))
    row: dict[str, Any] = {"store": store, "documents": extent.documents, "passages": extent.passages}
    row |= {"occurrences": extent.occurrences, "characters": extent.characters}
    number = f"{extent.occurrences} occurrences" if document is None else f"{extent.documents} documents"
    message = f"{store}: {number} ({extent.characters:,} characters in {extent.passages} passages)"
    message += " would be forgotten." if dry_run else " forgotten."
    if phrase is not None and not extent.occurrences:
        message = f"{store} does not contain the phrase {phrase!r}: nothing was forgotten."
    if done is not None:
        row |= {"complete": done.complete, "adapter": done.adapter}
        if done.adapter:
            message += f" {UNLEARNED.format(store)}"
        if not done.complete:
            message += f" {TRACES}"
    show(as_json, "ngram forget", [row], message)


def _confirm(names: list[str], extent: Extent) -> None:
    """Asks before several documents are forgotten. Raises InputError without a terminal, Exit for a no."""
    if not sys.stdin.isatty():
        raise InputError(f"{len(names)} documents have this name or are in this folder; add --yes to forget them all.")
    listed = ", ".join(names[:3]) + (", …" if len(names) > 3 else "")
    if not typer.confirm(visible(f"Forget {len(names)} documents ({extent.characters:,} characters): {listed}?")):
        raise typer.Exit(1)


def export(
    store: Store,
    out: Annotated[Path, typer.Option("--out", "-o", help="The file to write, .jsonl.zst.")],
    yes: Yes = False,
    as_json: Json = False,
) -> None:
    """Write a personal store to one file that any Polydraft can import, with what the model learned from it."""
    from ngram_builder import personal

    refuse_to_replace(out, yes)
    with closing(open_store(store, None)) as opened:
        done = personal.export(opened, out)
    row = {"store": store, "documents": done.documents, "adapter": done.adapter}
    message = f"{out}: {done.documents} documents of {store}{', and its adapter' if done.adapter else ''}."
    if done.left_out:
        message += f" Its adapter is left out: {done.left_out}"
    show(as_json, "ngram export", [row], message)


def import_(
    path: Annotated[Path, typer.Argument(help="A file written by `export`.", metavar="FILE")],
    store: Store,
    tokenizer: ModelName = "default",
    as_json: Json = False,
) -> None:
    """Add an exported store to a personal store, except documents that it already has, and its adapter if the store has
    none."""
    from ngram_builder import personal

    with filled(store, tokenizer) as opened:
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
    show(as_json, "ngram import", [row], message)


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
    with closing(open_store(store, tokenizer)) as opened:
        report = personal.compile_store(opened, out, min_count)
    kept = sum(report.ngrams.values())
    row = {"store": store, "out": str(out), "ngrams": kept, "bytes": report.size}
    show(as_json, "ngram compile", [row], f"{out}: {kept:,} n-grams in {report.size:,} bytes.")


def switch(
    state: Annotated[str, typer.Argument(help="on or off.", metavar="on|off")],
    store: Store,
    learning: Annotated[bool, typer.Option("--learning", metavar="", help="Switch learning from use instead.")] = False,
) -> None:
    """Switch a personal store on or off for drafts; with --learning, whether it learns from your writing (off at
    first)."""
    if state not in ("on", "off"):
        raise InputError(f"{state!r} given; on or off expected.")
    with closing(open_store(store, None)) as opened:
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
        opened = open_store(store, None)
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
    with closing(open_store(store, words)) as opened:
        opened.refresh()
        return continuations(opened, words, text, top, opened.where)


def continuations(
    store: NgramStore | PersonalStore,
    words: Tokenizer,
    text: str,
    top: int,
    where: Callable[[list[list[int]]], list[dict[str, int]]] | None = None,
) -> list[dict[str, Any]]:
    """Tokens that follow these words, and how often, for every length of context in a store; and from which documents,
    if `where` finds n-grams by origin."""
    ids, rows, ngrams = words.encode(text), [], []
    for n in reversed(store.orders):
        context = ids[len(ids) - (n - 1) :]
        if len(context) < n - 1 or not (total := store.total(context)):
            continue
        following = [
            {"text": words.decode([i]), "id": i, "count": count, "share": count / total}
            for i, count in store.continuations(context, top)
        ]
        ngrams += [[*context, entry["id"]] for entry in following]
        rows.append({"order": n, "context": words.decode(context), "total": total, "continuations": following})
    if where and ngrams:
        entries = (entry for row in rows for entry in row["continuations"])
        for entry, origins in zip(entries, where(ngrams), strict=True):
            entry["from"] = origins
    return rows


def stats(store: str) -> dict[str, Any]:
    """The contents of a personal store: size, last change, whether it is on, its documents, folders, kinds and
    languages."""
    with closing(open_store(store, None)) as opened:
        return {**opened.summary(), "words": opened.words(), "languages": language.shares(opened.sample(_READ))}


def print_stats(row: dict[str, Any]) -> None:
    state = f"{'on' if row['enabled'] else 'off'}, learning {'on' if row['learning'] else 'off'}"
    size = f"{row['words']:,} words, {row['tokens']:,} tokens, {row['bytes']:,} bytes"
    table = Table(title=plain(f"{row['store']} · {size}, {state}, last change {row['changed']}"), title_justify="left")
    for column in ("source", "documents", "added", "tokens"):
        table.add_column(column, justify="left" if column in ("source", "added") else "right")
    sources: dict[str, list[LearnedText]] = {}
    kinds = Counter[str]()
    for document in row["documents"]:
        sources.setdefault(document["origin"], []).append(document)
        kinds[Path(document["origin"]).suffix.lower() or "no ending"] += document["tokens"]
    for origin, documents in [*sources.items()][:_SHOWN]:
        added, tokens = max(each["added"] for each in documents), sum(each["tokens"] for each in documents)
        table.add_row(plain(origin), str(len(documents)), plain(added), f"{tokens:,}")
    if len(sources) > _SHOWN:
        table.add_row(f"… and {len(sources) - _SHOWN} more", "", "", "")
    Console().print(table)
    if kinds:
        say("Kinds: " + ", ".join(f"{kind} {tokens:,} tokens" for kind, tokens in kinds.most_common()))
    if row["languages"]:
        say("Languages: " + ", ".join(f"{code} {share:.0%}" for code, share in row["languages"].items()))
    for folder in row["folders"]:
        out = f", without {', '.join(folder['excluded'])}" if folder["excluded"] else ""
        say(f"In step with {folder['path']}{out}: {folder['files']} files, {folder['forgotten']} of them forgotten.")
        for origin, problem in [*folder["problems"].items()][:_SHOWN]:
            say(f"  {origin}: {problem}")
    if row["senders"]:
        say(f"Of mail and chats it learns what {' or '.join(row['senders'])} wrote.")


def listed() -> list[dict[str, Any]]:
    """Every personal store: its name and size; why one cannot be read."""
    rows = list[dict[str, Any]]()
    for path in sorted(stores_folder().glob("*.sqlite")):
        row: dict[str, Any] = {"store": path.stem}
        try:
            with closing(open_store(path.stem, None)) as opened:
                summary = opened.summary()
        except PolydraftError as error:
            row["problem"] = str(error)
        else:
            row |= {key: summary[key] for key in ("tokens", "bytes", "changed", "enabled", "learning")}
            row["sources"] = len({document["origin"] for document in summary["documents"]})
        rows.append(row)
    return rows


def print_list(rows: list[dict[str, Any]]) -> None:
    if not rows:
        say("There is no personal store. `polydraft ngram add FOLDER --store NAME` makes one.")
        return
    table = Table()
    for column in ("store", "tokens", "sources", "last change", "drafts", "learning"):
        table.add_column(column, justify="right" if column in ("tokens", "sources") else "left")
    for row in rows:
        if "problem" in row:
            table.add_row(plain(row["store"]), "", "", plain(row["problem"]), "", "")
            continue
        on = ["on" if row[key] else "off" for key in ("enabled", "learning")]
        table.add_row(plain(row["store"]), f"{row['tokens']:,}", str(row["sources"]), row["changed"], *on)
    Console().print(table)


def merge(stores: list[str], into: str) -> int:
    """Merges several personal stores into one; returns the number of tokens added."""
    words = load_tokenizer("default")
    opened = [open_store(name, words) for name in stores]
    try:
        with filled(into, words) as merged:
            return sum(merged.restore(store.texts()) for store in opened)
    finally:
        for store in opened:
            store.close()


@contextmanager
def filled(name: str, tokenizer: str | Tokenizer) -> Iterator[PersonalStore]:
    """Opens a store to add text to it. A new one is deleted after an error, unless something was added before."""
    new = not Shelf.path_in(stores_folder(), name).exists()
    with closing(open_store(name, tokenizer, create=True)) as opened:
        try:
            yield opened
        except BaseException:
            if new and not opened.documents():
                opened.delete()
            raise


def open_store(name: str, tokenizer: str | Tokenizer | None, create: bool = False) -> PersonalStore:
    path = (Shelf.path_in if create else Shelf.existing)(stores_folder(), name)
    words = load_tokenizer(tokenizer) if isinstance(tokenizer, str) else tokenizer
    from core.ngram.personal import PersonalStore

    return PersonalStore.open(path, words, create=create)


def load_tokenizer(name: str) -> Tokenizer:
    """Loads a model's tokenizer; workers of a cluster call this, too."""
    from core.models import words  # takes .3 s to import

    return words.load_tokenizer(name)
