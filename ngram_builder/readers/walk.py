"""The files of a folder that a person keeps there to read and write: what programs put beside them is left out."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from pathspec import GitIgnoreSpec

from core.errors import InputError
from ngram_builder.readers.base import Damage, spelled
from ngram_builder.readers.files import File, files_below, is_of_a_kind

IGNORING = ".gitignore"
LONGEST = 1 << 20  # bytes of a list of patterns


@dataclass
class FolderListing:
    """What a folder contains.

    Attributes:
        files: those to read, sorted by path.
        unread: how many files have a kind that is not read, by their ending.
        problems: folders that cannot be listed.
    """

    files: list[File] = field(default_factory=list)
    unread: Counter[str] = field(default_factory=Counter)
    problems: list[Damage] = field(default_factory=list)

    def about_unread(self) -> str:
        """One sentence about the files that are not read; "" if there are none."""
        if not self.unread:
            return ""
        number = self.unread.total()
        kinds = ", ".join(ending or "no ending" for ending, _ in self.unread.most_common())
        return f"{number} file{'s' * (number > 1)} of kinds that are not read: {kinds}."


def walk(root: Path, excluded: Sequence[str] = ()) -> FolderListing:
    """Lists a folder: no hidden files and folders, no trash, no locks of programs, nothing that a `.gitignore` in it
    leaves out.

    Args:
        excluded: patterns as in a `.gitignore` of what to leave out.
    Raises: InputError for a pattern that is none.
    """
    try:
        own = GitIgnoreSpec.from_lines(excluded)
    except ValueError as error:
        raise InputError(f"--exclude: {error}; give a pattern such as 'drafts/' or '*.bak'.") from error
    found = FolderListing()

    def failed(error: OSError) -> None:
        found.problems.append(Damage(spelled(str(error.filename)), 0, f"cannot be read: {error.strerror or error}"))

    specs: dict[Path, list[tuple[Path, GitIgnoreSpec]]] = {}

    def lists_of(folder: Path) -> list[tuple[Path, GitIgnoreSpec]]:
        """The lists of patterns that apply to what is in a folder, the nearest one last."""
        if folder not in specs:
            above, ignoring = [(root, own)] if folder == root else lists_of(folder.parent), _ignoring(folder)
            specs[folder] = [*above, (folder, ignoring)] if ignoring else above
        return specs[folder]

    for path in files_below(root, lambda folder: not _is_ignored(folder, lists_of(folder.parent), "/"), failed):
        if _is_ignored(path, lists_of(path.parent)):
            continue
        if is_of_a_kind(path):
            found.files.append(File.at(path))
        else:
            found.unread[path.suffix.lower()] += 1
    found.files.sort(key=lambda file: file.address)
    return found


def _ignoring(folder: Path) -> GitIgnoreSpec | None:
    """The patterns of the folder's own list; None without one that can be read."""
    path = folder / IGNORING
    try:
        if path.is_file() and path.stat().st_size <= LONGEST:
            return GitIgnoreSpec.from_lines(path.read_text(encoding="utf-8", errors="replace").splitlines())
    except (OSError, ValueError):
        pass
    return None


def _is_ignored(path: Path, specs: Sequence[tuple[Path, GitIgnoreSpec]], ending: str = "") -> bool:
    """Whether the nearest list that mentions a path leaves it out."""
    for base, spec in reversed(specs):
        decided = spec.check_file(path.relative_to(base).as_posix() + ending).include
        if decided is not None:
            return decided
    return False
