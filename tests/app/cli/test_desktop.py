"""`polydraft desktop`: the entry in the menu of a Linux desktop."""

from __future__ import annotations

import shlex
import sys
from configparser import ConfigParser
from pathlib import Path

import pytest
from typer.testing import CliRunner

from app.cli import desktop
from app.cli.main import app
from core.errors import InputError


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="a Linux desktop")
def test_the_menu_entry_starts_this_polydraft_and_goes_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    done = CliRunner().invoke(app, ["desktop", "install"])
    files = [Path(line) for line in done.stdout.splitlines()]
    assert len(files) == 4
    assert all(path.is_relative_to(tmp_path) and path.stat().st_size for path in files)
    entry = ConfigParser(interpolation=None)
    entry.optionxform = str  # pyright: ignore[reportAttributeAccessIssue]
    entry.read(files[0])
    assert entry["Desktop Entry"]["Name"] == "Polydraft"
    assert shlex.split(entry["Desktop Entry"]["Exec"]) == [str(Path(sys.executable).with_name("polydraft"))]
    assert {path.name for path in files[1:]} == {"polydraft.png", "polydraft.svg"}
    assert CliRunner().invoke(app, ["desktop", "uninstall"]).stdout == done.stdout
    assert not any(path.exists() for path in files)
    again = CliRunner().invoke(app, ["desktop", "uninstall"])
    assert (again.stdout, again.stderr) == ("", "Polydraft was not in the menu.\n")


def test_other_systems_have_no_such_menu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "platform", "darwin")
    with pytest.raises(InputError, match="for Linux desktops"):
        desktop.install()
