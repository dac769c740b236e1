"""`polydraft desktop`: an entry in the menu of a Linux desktop that starts Polydraft, with its icon.

The files follow freedesktop.org's specifications for desktop entries and icon themes, in the user's own data folder.
"""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path

from core.errors import InputError

NAME = "polydraft"
STATIC = Path(__file__).parents[1] / "static"
ICONS = {"192x192": "icon-192.png", "512x512": "icon-512.png", "scalable": "icon.svg"}

ENTRY = """[Desktop Entry]
Type=Application
Version=1.5
Name=Polydraft
Comment=Several drafts of your next words while you type
Exec={command}
Icon=polydraft
Terminal=true
Categories=Office;TextTools;
Keywords=writing;autocomplete;text;
"""


def install() -> list[Path]:
    """Writes the entry and its icons, replacing older ones. Returns: the files. Raises: InputError."""
    folder = _folder()
    entry = _files(folder)[0]
    try:
        entry.parent.mkdir(parents=True, exist_ok=True)
        entry.write_text(ENTRY.format(command=_quoted(own_command())), encoding="utf-8")
        for size, name in ICONS.items():
            path = _icon(folder, size, name)
            path.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(STATIC / name, path)
    except OSError as error:
        raise InputError(f"{error.filename or folder} cannot be written: {error.strerror or error}.") from error
    return _files(folder)


def uninstall() -> list[Path]:
    """Removes the files that `install` wrote. Returns: those that existed. Raises: InputError."""
    installed = [path for path in _files(_folder()) if path.exists()]
    for path in installed:
        try:
            path.unlink()
        except OSError as error:
            raise InputError(f"{path} cannot be removed: {error.strerror or error}.") from error
    return installed


def _folder() -> Path:
    if not sys.platform.startswith("linux"):
        raise InputError("`polydraft desktop` is for Linux desktops; here, start `polydraft` from a terminal.")
    return Path(os.environ.get("XDG_DATA_HOME") or Path.home() / ".local" / "share")


def _files(folder: Path) -> list[Path]:
    return [folder / "applications" / f"{NAME}.desktop", *(_icon(folder, *icon) for icon in ICONS.items())]


def _icon(folder: Path, size: str, name: str) -> Path:
    return folder / "icons" / "hicolor" / size / "apps" / (NAME + Path(name).suffix)


def own_command() -> list[str]:
    """The command that starts this Polydraft: the script beside its Python, or the module."""
    script = Path(sys.executable).with_name("polydraft")
    return [str(script)] if script.exists() else [sys.executable, "-m", "polydraft"]


def _quoted(command: list[str]) -> str:
    """The value of Exec: each argument in quotes, with special characters escaped."""
    arguments = []
    for argument in command:
        for special in ("\\", '"', "`", "$"):
            argument = argument.replace(special, "\\" + special)
        arguments.append('"' + argument.replace("\\", "\\\\").replace("%", "%%") + '"')
    return " ".join(arguments)
