"""A folder that a personal store stays in step with: what is new, changed or gone there since it was read."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from difflib import get_close_matches
from fnmatch import fnmatchcase
from pathlib import Path
from typing import TYPE_CHECKING

from core.errors import InputError
from core.ngram.folders import ReadFile
from ngram_builder.personal import FULL, Added, Progress, add_each, origin_of
from ngram_builder.readers import File, FolderListing, ReaderProcess, Reading, Senders, spelled, walk

if TYPE_CHECKING:
    from core.ngram.personal import PersonalStore

_LINE = 70  # characters of a preview
_SAMPLE = 50  # files by which a folder with another path is known


@dataclass
class Changes:
    """How a folder differs from what a store read of it.

    Attributes:
        root: the folder's own path, which the store keeps.
        excluded: patterns of files that are left out.
        new, changed: files to read.
        vanished: origins of files that are gone, or left out now.
        unchanged: the number of files that the store read as they are.
        forgotten: the number of files that a person forgot, which are not read again.
        found: everything in the folder.
    """

    root: str
    excluded: tuple[str, ...]
    new: list[File] = field(default_factory=list)
    changed: list[File] = field(default_factory=list)
    vanished: list[str] = field(default_factory=list)
    unchanged: int = 0
    forgotten: int = 0
    found: FolderListing = field(default_factory=FolderListing)

    @property
    def to_read(self) -> list[File]:
        return [*self.new, *self.changed]

    def __bool__(self) -> bool:
        return bool(self.to_read or self.vanished)


def changes(
    store: PersonalStore | None, folder: Path, excluded: Sequence[str] = (), anew: bool = False, again: bool = False
) -> Changes:
    """Compares a folder with what the store read of it, by the size and the time of change of each file.

    Args:
        store: None for one that is still to be made.
        excluded: patterns of files to leave out, in addition to those of earlier times.
        anew: read all files again, because others are learned from now on.
        again: read those again that the store had no room for.
    Raises: InputError for a pattern that is none.
    """
    root = origin_of(str(folder))
    before = next((known for known in store.folders.all() if known.root == root), None) if store else None
    patterns = tuple(dict.fromkeys([*(before.excluded if before else ()), *excluded]))
    made = Changes(root, patterns, found=walk(folder, patterns))
    known = store.folders.files(root) if store else {}
    for file in made.found.files:
        read = known.pop(origin_of(file), None)
        if read is None:
            made.new.append(file)
        elif read.forgotten:
            made.forgotten += 1
        elif anew or (again and read.problem.startswith(FULL)) or (read.size, read.stamp) != (file.size, file.stamp):
            made.changed.append(file)
        else:
            made.unchanged += 1
    unlisted = tuple(f"{problem.path}/" for problem in made.found.problems)  # what is there is not known
    made.vanished = [origin for origin in known if not origin.startswith(unlisted)]
    return made


def moved_from(store: PersonalStore, made: Changes) -> str:
    """The path that a new folder had before, on this machine or on the one from which the store was imported: one that
    is not here, and under which the store has at least half of the folder's files. "" if there is none."""
    root = Path(made.root)
    sample = [Path(origin_of(file)).relative_to(root).as_posix() for file in made.new[:_SAMPLE]]
    if not sample or any(folder.root == made.root for folder in store.folders.all()):
        return ""
    origins, roots = {document["origin"] for document in store.documents()}, Counter[str]()
    for below in sample:
        roots.update(origin.removesuffix(f"/{below}") for origin in origins if origin.endswith(f"/{below}"))
    for before, number in roots.most_common():
        if 2 * number >= len(sample) and not Path(before).exists():
            return before
    return ""


def step(
    store: PersonalStore,
    made: Changes,
    progress: Progress = lambda *_: None,
    senders: Senders | None = None,
    forget: bool = False,
) -> Added:
    """Reads what is new or changed in a folder, and remembers it. A file that is read again in a worse form replaces
    nothing, and is read again next time only if it changes.

    Args:
        progress: called with the share done (0 to 1) and the current file.
        senders: whose mails and messages are added.
        forget: remove the text of the files that are gone; else it stays.
    """
    added = Added(senders=senders or Senders())
    store.folders.remember(made.root, made.excluded)
    for file, of_file in add_each(store, made.to_read, added, progress):
        problem = of_file.damage[0].reason if of_file.damage else ""
        store.folders.read(made.root, ReadFile(origin_of(file), file.size, file.stamp, problem))
    added.damage += made.found.problems
    if forget and made.vanished:
        store.forget_document(*made.vanished)
        store.folders.drop(made.vanished)
    return added


@dataclass(frozen=True)
class Preview:
    """What would be learned of a file: its characters, and the beginning of its first line."""

    file: str
    characters: int
    line: str


def previews(files: Iterable[File], added: Added) -> Iterator[Preview]:
    """What adding these files would learn; `added` gets their damage and senders. Nothing is written."""
    with ReaderProcess() as reader:
        for file in files:
            characters, line = 0, ""
            reading = Reading(added.damage.append, note=added.notes.append, senders=added.senders)
            for document in reader.read(file, reading):
                characters += len(document.text)
                line = line or " ".join(document.text[: 4 * _LINE].split())[:_LINE]
            yield Preview(spelled(file.address), characters, line)


def documents_named(store: PersonalStore, name: str) -> list[str]:
    """The origins that a person means: one document, by its origin, path or file name; all of a folder; or all that a
    pattern matches.

    Raises: InputError, with similar names, if there is none.
    """
    origins = list(dict.fromkeys(document["origin"] for document in store.documents()))
    path = origin_of(name)
    for wanted in (name, path):
        if wanted in origins:
            return [wanted]
    below = f"{path.rstrip('/')}/"
    if found := [origin for origin in origins if origin.startswith(below) or fnmatchcase(origin, path)]:
        return found
    ends = {origin: origin.rsplit("/", 1)[-1] for origin in origins}
    if found := [origin for origin, end in ends.items() if end == name or fnmatchcase(end, name)]:
        return found
    near = get_close_matches(name, ends.values(), n=3, cutoff=0.5)
    hint = f"Similar names: {', '.join(near)}." if near else f"`polydraft ngram stats --store {store.name}` lists them."
    raise InputError(f"{store.name} has no document {name!r}. {hint}")
