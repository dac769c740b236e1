"""`polydraft ngram add`: files, phrases, and folders that a personal store stays in step with."""

from __future__ import annotations

import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeRemainingColumn

from app.cli import personal as personal_cli
from app.cli.personal import UNLEARNED, ModelName, Store
from app.cli.shared import Json, refuse_in_dry_run, show
from app.machine.output import say, say_json, visible
from core.errors import InputError
from core.ngram.errors import StoreError
from core.ngram.shelf import Shelf

if TYPE_CHECKING:
    from core.ngram.personal import PersonalStore
    from ngram_builder.folders import Changes
    from ngram_builder.personal import Added
    from ngram_builder.readers import Senders

EVERYONE = "*"
_SHOWN = 20  # damaged places, or files, that are listed individually
_EVERY = 2.0  # seconds between two looks at a folder that is watched


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
            help="Your name or address: of mail and chats, add only what you wrote. May be given several times. The "
            "store remembers it; '*' forgets it and adds the mail of everyone.",
            metavar="NAME",
        ),
    ] = None,
    exclude: Annotated[
        list[str] | None,
        typer.Option(help="Leave out files of folders, as in a .gitignore. Remembered.", metavar="PATTERN"),
    ] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", metavar="", help="Only list what would be learned, with a line of each file.")
    ] = False,
    watch: Annotated[
        bool, typer.Option("--watch", metavar="", help="Go on: learn what changes in the folders, until Ctrl+C.")
    ] = False,
    yes: Annotated[
        bool, typer.Option("--yes", "-y", metavar="", help="Forget the text of files that are gone unasked.")
    ] = False,
    tokenizer: ModelName = "default",
    as_json: Json = False,
) -> None:
    """Add your own text to a personal store; the store is created if it does not exist.

    Drafts use it from the next keystroke on. A file that the store already has is replaced. A folder is remembered: the
    same command later reads what is new or changed in it, and asks whether to forget what is gone.
    """
    folders = [Path(path) for path in paths or () if "://" not in path and Path(path).is_dir()]
    files = [path for path in paths or () if "://" in path or not Path(path).is_dir()]
    if not paths and not phrase:
        raise InputError("Nothing to add; give files or a --phrase.")
    for flag, given in (("--exclude", exclude), ("--watch", watch)):
        if given and not folders:
            raise InputError(f"{flag} applies to folders, and none was given.")
    if dry_run:
        refuse_in_dry_run({"--phrase": phrase, "--watch": watch, "--yes": yes})
        _list(store, folders, files, exclude or (), senders, as_json)
        return
    with personal_cli.filled(store, tokenizer) as opened:
        from ngram_builder import personal
        from ngram_builder.folders import step
        from ngram_builder.readers import Senders

        names = _names(opened.senders, senders)
        own, others = Senders.of(names), names != opened.senders
        adapted, added = opened.learned.exists(), personal.Added(senders=own)
        made = [_changes(opened, folder, exclude or (), anew=others) for folder in folders]
        if len(paths or ()) == len(made) == 1 and not made[0].found.files and not made[0].vanished:
            unread = made[0].found.about_unread()
            raise InputError(f"Nothing to read in {folders[0]}: no file of a supported kind. {unread}".strip())
        gone = [origin for found in made for origin in found.vanished]
        forgets = bool(gone) and _asked(gone, yes)
        with _bar() as progress:
            for found in made:
                added.include(step(opened, found, progress, own, forgets))
            if files:
                added.include(personal.add(opened, files, progress, own))
            _settle(opened, lambda: progress(1.0, "Counting"))
        if others:
            opened.remember_senders(names)  # now: an interrupted reading begins again
        from core.ngram.personal import PHRASE

        for text in phrase or []:
            added.tokens += opened.learn(text, times=PHRASE)
        _report(store, added, made, forgets, adapted and not opened.learned.exists(), as_json)
        if watch:
            _watch(opened, folders, own, yes)


def _changes(store: PersonalStore, folder: Path, excluded: Sequence[str], anew: bool) -> Changes:
    """What has changed in a folder, which is told if it was moved."""
    from ngram_builder.folders import changes, moved_from

    found = changes(store, folder, excluded, anew=anew, again=True)
    if before := moved_from(store, found):
        store.folders.move(before, found.root)
        say(f"Note: {before} is now {found.root}.", err=True)
        found = changes(store, folder, excluded, anew=anew)
    return found


def _settle(store: PersonalStore, alive: Callable[[], None] = lambda: None) -> None:
    """Counts what was added to a large store, so that the next look-up does not have to."""
    try:
        store.settle(alive)
    except StoreError as error:
        say(f"Warning: {error}", err=True)


def _names(remembered: Sequence[str], given: Sequence[str] | None) -> list[str]:
    """The names that a store remembers, and those that are given now."""
    if EVERYONE in (given or ()):
        return [name for name in given or () if name != EVERYONE]
    return list(dict.fromkeys([*remembered, *(given or ())]))


def _asked(gone: Sequence[str], yes: bool) -> bool:
    """Whether to forget the text of files that are gone: one question for all of them."""
    files = "1 file is" if len(gone) == 1 else f"{len(gone)} files are"
    named = ", ".join(Path(origin).name for origin in gone[:3]) + (", …" if len(gone) > 3 else "")
    if yes:
        return True
    if sys.stdin.isatty():
        return typer.confirm(visible(f"{files} gone or left out: {named}. Forget the text of what is gone?"))
    say(f"Note: {files} gone or left out ({named}), and the store keeps the text; --yes forgets it.", err=True)
    return False


@contextmanager
def _bar() -> Iterator[Callable[[float, str], None]]:
    columns = TextColumn("{task.description}", markup=False), BarColumn(), TaskProgressColumn(), TimeRemainingColumn()
    with Progress(*columns, console=Console(stderr=True), disable=not sys.stderr.isatty()) as bar:
        task = bar.add_task("Reading", total=1.0)

        def progress(share: float, file: str) -> None:
            bar.update(task, completed=share, description=visible(Path(file).name) or "Done")

        yield progress


def _report(store: str, added: Added, made: Sequence[Changes], forgets: bool, adapted: bool, as_json: bool) -> None:
    _print_places(added)
    unread = Counter[str]()
    for found in made:
        unread += found.found.unread
    if unread:
        from ngram_builder.readers import FolderListing

        say(f"Note: {FolderListing(unread=unread).about_unread()}", err=True)
    if said := about_senders(added.senders):
        say(f"Note: {said}", err=True)
    row: dict[str, object] = {"store": store, "files": added.files, "tokens": added.tokens}
    row["damaged"] = len(added.damage)
    message = f"Added {added.files} files ({added.tokens:,} tokens) to {store}; "
    if made:
        gone = sum(len(found.vanished) for found in made) if forgets else 0
        row |= {"unchanged": sum(found.unchanged for found in made), "gone": gone, "unread": dict(unread)}
        message += f"{row['unchanged']} unchanged, {gone} gone; "
        if left_out := sum(found.forgotten for found in made):
            message += f"{left_out} that you had forgotten left out; "
    message += f"{len(added.damage)} damaged places."
    if adapted:
        message += f" A text was replaced. {UNLEARNED.format(store)}"
    show(as_json, "ngram add", [row], message)


def _print_places(added: Added) -> None:
    for place in added.damage[:_SHOWN]:
        say(f"Warning: {place}", err=True)
    for place in added.notes[:_SHOWN]:
        say(f"Note: {place}.", err=True)
    if len(added.notes) > _SHOWN:
        say(f"Note: {len(added.notes) - _SHOWN} further mails contain nothing to learn.", err=True)


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


def _list(
    store: str,
    folders: Sequence[Path],
    files: Sequence[str],
    excluded: Sequence[str],
    senders: Sequence[str] | None,
    as_json: bool,
) -> None:
    """What `add` would learn and forget. Nothing is written, and no store is made."""
    from ngram_builder.folders import changes, previews
    from ngram_builder.personal import Added
    from ngram_builder.readers import Senders, expand

    exists = Shelf.path_in(personal_cli.stores_folder(), store).exists()
    with closing(personal_cli.open_store(store, None)) if exists else nullcontext() as known:
        remembered = known.senders if known else []
        names = _names(remembered, senders)
        made = [changes(known, folder, excluded, anew=names != remembered) for folder in folders]
    added = Added(senders=Senders.of(names))
    to_read = [file for found in made for file in found.to_read] + (expand(files) if files else [])
    rows = list(previews(to_read, added))
    gone = [origin for found in made for origin in found.vanished]
    _print_places(added)
    if as_json:
        listed = [{"file": row.file, "characters": row.characters, "line": row.line} for row in rows]
        say_json({"name": "ngram add --dry-run", "rows": listed, "gone": gone})
        return
    for row in rows:
        say(f"{row.file}: {row.characters:,} characters" + (f" · {row.line}" if row.line else ""))
    for origin in gone:
        say(f"{origin}: gone")
    for found in made:
        if said := found.found.about_unread():
            say(said)
    characters = sum(row.characters for row in rows)
    say(f"{len(rows)} files with {characters:,} characters would be learned. Nothing was written.")


def _watch(store: PersonalStore, folders: Sequence[Path], own: Senders, yes: bool) -> None:
    """Learns what changes in folders, until Ctrl+C."""
    from ngram_builder.folders import changes, step

    said = set[str]()
    say("Watching. Ctrl+C ends it.")
    try:
        while True:
            time.sleep(_EVERY)
            for folder in folders:
                if not folder.is_dir():
                    continue  # a disk that is not there now
                found = changes(store, folder)
                gone = [] if yes else [origin for origin in found.vanished if origin not in said]
                said.update(gone)
                if gone:
                    say(f"Gone: {', '.join(gone)}. The store keeps the text; `--yes` forgets it.")
                if found.to_read or (yes and found.vanished):
                    added = step(store, found, senders=own, forget=yes)
                    _settle(store)
                    _print_places(added)
                    names = ", ".join(file.name for file in found.to_read) or ", ".join(found.vanished)
                    say(f"{names}: {added.tokens:,} tokens.")
    except KeyboardInterrupt:
        say("No longer watching.")
