"""`polydraft service`: a server for programs that the system starts with the user's session: a user unit of systemd on
Linux, an agent of launchd on a Mac. Both run `polydraft serve`, restart it when it fails, and end it in order."""

from __future__ import annotations

import os
import plistlib
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from app.cli.desktop import own_command
from core.errors import InputError
from core.files import write_whole

NAME = "polydraft"
LABEL = "org.polydraft.serve"  # of the agent

# These restrictions need no rights of the system. The server opens the user's files, so the home folder stays open.
UNIT = """[Unit]
Description=Polydraft: drafts of your next words, for programs

[Service]
ExecStart={command}
Restart=on-failure
RestartSec=5
TimeoutStopSec=20
NoNewPrivileges=true
RestrictSUIDSGID=true
LockPersonality=true

[Install]
WantedBy=default.target
"""


@dataclass(frozen=True)
class Manager:
    """What starts services here: the file of ours that it reads, and its commands.

    Attributes:
        file: where the service's file belongs.
        contents: of the file.
        start, stop, status: its commands; `start` also starts a changed service anew.
    """

    file: Path
    contents: bytes
    start: list[list[str]]
    stop: list[list[str]]
    status: list[str]


def model_anywhere(name: str) -> str:
    """The name of a model as it is understood in any folder: a file or a folder by its whole path.

    Raises: ModelNotFound, ModelFileError, as the start would.
    """
    if name == "default":
        return name
    from core.models.load import find_model  # imports torch
    from core.models.located import locate

    find_model(name)
    source, _ = locate(name)
    return str(source.resolve()) if isinstance(source, Path) else source


def install(arguments: list[str]) -> Path:
    """Writes the service's file, with further arguments of `polydraft serve`, and starts the service. Returns the file.

    Raises: InputError if there is no manager of services here, or it refuses.
    """
    manager = _manager(arguments)
    try:
        manager.file.parent.mkdir(parents=True, exist_ok=True)
        write_whole(manager.file, manager.contents)
    except OSError as error:
        raise InputError(f"{error.filename or manager.file} cannot be written: {error.strerror or error}.") from error
    for command in manager.start:
        _run(command)
    return manager.file


def remove() -> Path | None:
    """Ends the service, and removes its file. Returns the file; None if there was none."""
    manager = _manager([])
    if not manager.file.exists():
        return None
    for command in manager.stop:
        _run(command)
    manager.file.unlink(missing_ok=True)
    if sys.platform.startswith("linux"):
        _run(["systemctl", "--user", "daemon-reload"])
    return manager.file


def status() -> tuple[bool, str]:
    """Whether the service runs, and a sentence."""
    manager = _manager([])
    if not manager.file.exists():
        return False, "The service is not installed: `polydraft service install`."
    done = subprocess.run(manager.status, capture_output=True, text=True, check=False)
    if done.returncode == 0:
        return True, f"The service runs. Its file is {manager.file}."
    where = (
        f"journalctl --user -u {NAME}" if sys.platform.startswith("linux") else f"launchctl print {_domain()}/{LABEL}"
    )
    return False, f"The service is installed, and does not run. `{where}` says why."


def unit(arguments: list[str]) -> str:
    """The text of the unit; systemd.service(5)."""
    return UNIT.format(command=" ".join(map(_quoted, [*own_command(), "serve", *arguments])))


def agent(arguments: list[str]) -> bytes:
    """The property list of the agent; launchd.plist(5)."""
    return plistlib.dumps(
        {
            "Label": LABEL,
            "ProgramArguments": [*own_command(), "serve", *arguments],
            "RunAtLoad": True,
            "KeepAlive": {"SuccessfulExit": False},
            "ThrottleInterval": 5,
            "ProcessType": "Interactive",
        }
    )


def _manager(arguments: list[str]) -> Manager:
    if sys.platform == "darwin":
        file = Path.home() / "Library" / "LaunchAgents" / f"{LABEL}.plist"
        out = ["launchctl", "bootout", f"{_domain()}/{LABEL}"]
        start = [["launchctl", "bootstrap", _domain(), str(file)]]
        loaded = subprocess.run(["launchctl", "print", f"{_domain()}/{LABEL}"], capture_output=True, check=False)
        known = loaded.returncode == 0
        return Manager(
            file,
            agent(arguments),
            [out, *start] if known else start,
            [out] if known else [],
            ["launchctl", "print", f"{_domain()}/{LABEL}"],
        )
    if not sys.platform.startswith("linux") or shutil.which("systemctl") is None:
        raise InputError(
            "`polydraft service` needs systemd or launchd, and this system has neither. Start `polydraft serve` by its "
            "own means."
        )
    folder = Path(os.environ.get("XDG_CONFIG_HOME") or Path.home() / ".config")
    control = ["systemctl", "--user"]
    return Manager(
        folder / "systemd" / "user" / f"{NAME}.service",
        unit(arguments).encode(),
        [[*control, "daemon-reload"], [*control, "enable", NAME], [*control, "restart", NAME]],
        [[*control, "disable", "--now", NAME]],
        [*control, "is-active", "--quiet", NAME],
    )


def _domain() -> str:
    return f"gui/{os.getuid()}"


def _run(command: list[str]) -> None:
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    except OSError as error:
        raise InputError(f"{command[0]} cannot be run: {error.strerror or error}.") from error
    if done.returncode:
        said = " ".join((done.stderr or done.stdout).split()) or f"exit status {done.returncode}"
        raise InputError(f"`{' '.join(command)}` failed: {said.rstrip('.')}.")


def _quoted(argument: str) -> str:
    """An argument as ExecStart takes it: in quotes, with its special characters escaped."""
    for special in ("\\", '"'):
        argument = argument.replace(special, "\\" + special)
    return '"' + argument.replace("$", "$$").replace("%", "%%") + '"'
