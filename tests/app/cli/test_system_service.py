"""`polydraft service`: the files for systemd and launchd, and the commands that start and end the service."""

from __future__ import annotations

import os
import shlex
import sys
from configparser import ConfigParser
from pathlib import Path

import pytest
from typer.testing import CliRunner

from app.cli import service
from app.cli.main import app

pytestmark = pytest.mark.skipif(os.name != "posix", reason="Windows has neither systemd nor launchd")

MANAGER = """#!/bin/sh
echo "$(basename "$0") $*" >> "$CALLS"
case "$*" in
  *is-active*|print*) [ -e "$CALLS.runs" ] ;;
  *restart*|bootstrap*)
    if [ -e "$CALLS.refuses" ]; then echo "Failed to connect to bus." >&2; exit 1; fi
    touch "$CALLS.runs" ;;
  *disable*|bootout*) rm -f "$CALLS.runs" ;;
esac
"""


class Machine:
    """A machine whose manager of services is a script that notes its calls."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.calls_file = folder, folder / "calls"
        for name in ("systemctl", "launchctl"):
            (folder / name).write_text(MANAGER)
            (folder / name).chmod(0o755)

    def run(self, *arguments: str) -> tuple[int, str]:
        self.calls_file.write_text("")
        found = CliRunner().invoke(app, ["service", *arguments])
        return found.exit_code, found.output

    @property
    def calls(self) -> list[str]:
        return self.calls_file.read_text().splitlines()


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Machine:
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    monkeypatch.setenv("CALLS", str(tmp_path / "calls"))
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    return Machine(tmp_path)


def test_systemd_starts_the_server_with_the_session(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "platform", "linux")
    file = machine.folder / "config/systemd/user/polydraft.service"
    assert machine.run("status")[0] == 3
    code, said = machine.run("install", "--port", "8000")
    assert (code, str(file) in said, "http://127.0.0.1:8000" in said) == (0, True, True)
    assert [call.split(" --user ")[1] for call in machine.calls] == [
        "daemon-reload", "enable polydraft", "restart polydraft",
    ]  # fmt: skip
    assert command_of(file) == ["serve", "--port", "8000", "--model", "default"]
    assert "WantedBy=default.target" in file.read_text()
    assert machine.run("status") == (0, f"The service runs. Its file is {file}.\n")
    code, said = machine.run("remove")
    assert (code, said, file.exists()) == (0, f"{file}\n", False)
    assert [call.split(" --user ")[1] for call in machine.calls] == ["disable --now polydraft", "daemon-reload"]
    assert machine.run("remove") == (0, "There was no service.\n")


def command_of(file: Path) -> list[str]:
    """The command that a unit runs, after the program's name."""
    unit = ConfigParser(interpolation=None)
    unit.read(file)
    words = shlex.split(unit["Service"]["ExecStart"])
    return words[words.index("serve") :]


def test_the_file_keeps_the_origins_and_names_that_may_connect(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "platform", "linux")
    file = machine.folder / "config/systemd/user/polydraft.service"
    origins = ["app://obsidian.md", "http://localhost:3000"]
    options = [word for origin in origins for word in ("--allow-origin", origin)] + ["--allow-host", "drafts"]
    assert machine.run("install", *options)[0] == 0
    assert command_of(file) == ["serve", "--port", "7893", "--model", "default", *options]
    code, said = machine.run("install", "--allow-origin", "*")
    assert (code, said.startswith("Error: --allow-origin * given")) == (1, True)
    assert (machine.calls, command_of(file)[-6:]) == ([], options[-6:]), "nothing was changed"
    assert machine.run("install")[0] == 0
    assert command_of(file) == ["serve", "--port", "7893", "--model", "default"], "an installation replaces the options"


def test_the_file_names_a_model_as_any_folder_understands_it(
    machine: Machine, monkeypatch: pytest.MonkeyPatch, default_gguf: Path
) -> None:
    monkeypatch.setattr(sys, "platform", "linux")
    file = machine.folder / "config/systemd/user/polydraft.service"
    (machine.folder / "my.gguf").symlink_to(default_gguf)
    monkeypatch.chdir(machine.folder)
    assert machine.run("install", "--model", "my.gguf")[0] == 0
    (named,) = command_of(file)[4:]
    assert Path(named).is_absolute()
    assert Path(named).samefile(default_gguf)
    code, said = machine.run("install", "--model", "other.gguf")
    assert (code, machine.calls, command_of(file)[4:]) == (1, [], [named]), said


@pytest.mark.parametrize("what", ["status", "remove"])
def test_an_option_that_would_change_nothing_is_refused(machine: Machine, what: str) -> None:
    code, said = machine.run(what, "--port", "8000", "--allow-origin", "app://obsidian.md")
    assert (code, "--port, --allow-origin given" in said, machine.calls) == (2, True, [])


def test_launchd_starts_an_agent(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "platform", "darwin")
    file = machine.folder / "Library/LaunchAgents/org.polydraft.serve.plist"
    assert machine.run("install")[0] == 0
    domain = f"gui/{os.getuid()}"
    assert machine.calls[-1] == f"launchctl bootstrap {domain} {file}"
    machine.run("install")
    assert machine.calls[-2:] == [
        f"launchctl bootout {domain}/{service.LABEL}", f"launchctl bootstrap {domain} {file}",
    ], "a second installation starts it anew"  # fmt: skip
    assert machine.run("status")[0] == 0
    assert machine.run("remove")[0] == 0
    assert (machine.calls[-1], file.exists()) == (f"launchctl bootout {domain}/{service.LABEL}", False)


def test_what_the_manager_refuses_is_said(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "platform", "linux")
    (machine.folder / "calls.refuses").touch()
    code, said = machine.run("install")
    assert (code, said) == (1, "Error: `systemctl --user restart polydraft` failed: Failed to connect to bus.\n")


def test_without_such_a_manager_it_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "platform", "linux")
    monkeypatch.setenv("PATH", "/nowhere")
    found = CliRunner().invoke(app, ["service", "install"])
    assert (found.exit_code, "needs systemd or launchd" in found.output) == (1, True)
