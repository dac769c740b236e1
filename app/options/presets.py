"""The user's own presets of samplers, in a SQLite file of the user's data folder; export and import as JSON.

Each call opens and closes the file, so calls may come from any thread.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from functools import partial
from pathlib import Path
from typing import Any, TypedDict

import platformdirs
from sqlite_utils import Database

from core.controls import PRESETS, Preset
from core.errors import InputError
from core.files import check_database, parsed_json

KIND = "polydraft presets"  # the kind field of an exported file
VERSION = 1
MOST = 200  # presets of one user
MOST_LETTERS = 80  # of a name
MOST_CONTENT = 1 << 16  # characters of a preset in the file


def presets_file() -> Path:
    return platformdirs.user_data_path("polydraft", appauthor=False) / "presets.sqlite"


class UnreadablePreset(TypedDict):
    """A preset that cannot be read, by the name under which it can be deleted, and why."""

    name: str
    problem: str


class OwnPresets:
    """The presets in `file`, which is created when the first one is saved.

    Raises: InputError, from every method, for an unusable file.
    """

    def __init__(self, file: Path | None = None) -> None:
        self.file = file or presets_file()

    def all(self) -> list[Preset]:
        """All presets that this version can read, by name."""
        return self.listed()[0]

    def listed(self) -> tuple[list[Preset], list[UnreadablePreset]]:
        """All presets by name, and those that this version cannot read, which stay in the file."""
        if not self.file.exists():
            return [], []
        presets: list[Preset] = []
        unreadable: list[UnreadablePreset] = []
        for name, content in self._rows():
            try:
                preset = Preset.from_json(content)
                _check_name(preset.name)
                if preset.name != name:
                    raise InputError(f"It is called {preset.name!r} in the file's list.")
                presets.append(preset)
            except InputError as error:
                unreadable.append(
                    UnreadablePreset(name=name, problem=f"{name} is a preset that cannot be read: {error}")
                )
        return presets, unreadable

    def save(self, preset: Preset) -> None:
        """Saves a preset; replaces one of the same name. Raises InputError for an invalid name."""
        self.add([preset])

    def add(self, presets: list[Preset]) -> None:
        """Saves all presets, or none. Raises InputError as `save` does."""
        for preset in presets:
            _check_name(preset.name)
        with self._opened() as database:
            known = {row["name"] for row in database.query("select name from presets")}
            if len(known | {preset.name for preset in presets}) > MOST:
                raise InputError(f"More than {MOST} presets; delete some first.")
            rows = [{"name": preset.name, "content": preset.as_json()} for preset in presets]
            database.table("presets").insert_all(rows, pk="name", replace=True)

    def delete(self, name: str) -> None:
        """Deletes a preset. Raises InputError if there is none of that name."""
        with self._opened() as database:
            known = [row["name"] for row in database.query("select name from presets") if _text(row["name"]) == name]
            if not known:
                raise InputError(f"There is no preset {name!r}.")
            database.execute("delete from presets where name is ?", known[:1])

    def _rows(self) -> list[tuple[str, str]]:
        """The name and the content of each preset, of those that a writer may have: as texts that can be shown."""
        with self._opened() as database:
            rows = database.execute("select name, content from presets order by name collate nocase limit ?", [MOST])
            return [(_text(name), _text(content)) for name, content in rows]

    def exported(self) -> str:
        """Exports all presets as JSON, for `imported`."""
        content = {"kind": KIND, "version": VERSION, "presets": [preset.as_dict() for preset in self.all()]}
        return json.dumps(content, ensure_ascii=False, indent=2) + "\n"

    def imported(self, text: str) -> list[str]:
        """Imports an exported file, all or nothing; returns the names.

        Raises: InputError that names the preset and its unknown or out-of-range value.
        """
        presets = read(text)
        self.add(presets)
        return [preset.name for preset in presets]

    @contextmanager
    def _opened(self) -> Iterator[Database]:
        try:
            self.file.parent.mkdir(parents=True, exist_ok=True)
            check_database(self.file)
            with closing(sqlite3.connect(self.file, timeout=10)) as connection:
                database = Database(connection)
                connection.text_factory = partial(str, encoding="utf-8", errors="replace")
                connection.execute("begin immediate")  # locks it against other programs until the end
                database.table("presets").create({"name": str, "content": str}, pk="name", if_not_exists=True)
                with connection:
                    yield database
        except (sqlite3.Error, OSError, AssertionError, KeyError) as error:
            raise InputError(f"The presets in {self.file} cannot be used: {error}.") from error


def is_ours(text: str) -> bool:
    """Whether a file is to be read as an export of Polydraft: it says so, or has a rule as no other program's has."""
    try:
        content: Any = parsed_json(text)
    except ValueError:
        return False
    return isinstance(content, dict) and bool({"kind", "rule"} & content.keys())


def read(text: str) -> list[Preset]:
    """The presets of an exported file, or a single one. Raises InputError that names the preset and the error."""
    try:
        content: Any = parsed_json(text)
    except ValueError as error:
        raise InputError(f"The file is not JSON ({error}); choose a file exported by Polydraft.") from error
    if isinstance(content, dict) and "kind" not in content:
        content = {"kind": KIND, "version": VERSION, "presets": [content]}
    if not isinstance(content, dict) or content["kind"] != KIND or not isinstance(content.get("presets"), list):
        raise InputError(
            f"The file contains no presets; a file with the kind {KIND!r} and a list of presets is expected."
        )
    if content.get("version") != VERSION:
        raise InputError(f"The file's version {content.get('version')!r} is unknown; {VERSION} is expected.")
    if unknown := set(content) - {"kind", "version", "presets"}:
        raise InputError(f"The file has an unknown field {min(unknown)!r}; kind, version and presets are expected.")
    if not content["presets"]:
        raise InputError("The file contains no presets.")
    presets = []
    for number, entry in enumerate(content["presets"], 1):
        name = entry.get("name") if isinstance(entry, dict) else None
        try:
            presets.append(Preset.from_dict(entry))
            _check_name(presets[-1].name)
        except InputError as error:
            raise InputError(f"Preset {number}{f' ({name})' if name else ''}: {error} Nothing was imported.") from None
    if len({preset.name for preset in presets}) < len(presets):
        raise InputError("The file contains two presets with the same name. Nothing was imported.")
    return presets


def _text(value: object) -> str:
    """A cell of the table as a text that can be shown; a cell of a damaged file may have any type."""
    return (value if isinstance(value, str) else repr(value))[:MOST_CONTENT]


def _check_name(name: str) -> None:
    if not name.strip() or name != name.strip() or len(name) > MOST_LETTERS or not name.isprintable():
        raise InputError(f"{name!r} given as the name of a preset; 1 to {MOST_LETTERS} letters expected.")
    if name in {preset.name for preset in PRESETS}:
        raise InputError(f"{name!r} is the name of a preset that comes with Polydraft; choose another.")
