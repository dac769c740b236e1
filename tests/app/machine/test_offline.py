"""Which commands connect to another machine: two, each with the address that the user names."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.paths import ROOT

pytestmark = pytest.mark.timeout(240)

# Commands in one process, under an audit hook that notes whom they look for. `.invalid` is a name that nobody can have.
WATCHED = """
import json, sys
from typer.testing import CliRunner
from tests import outside
from app.cli.main import app
hosts = []
for command in json.loads(sys.argv[1]):
    outside.found.clear()
    CliRunner().invoke(app, command)
    hosts.append(sorted({*outside.found}))
print(json.dumps(hosts))
"""
QUIET = [
    ["models", "--no-speed"],
    ["ngram", "add", "--store", "me", "--phrase", "words"],
    ["pair", "--port", "1"],
    ["token"],
]
BUILD = ["ngram", "build", "http://books.invalid/a.txt", "--out", "a.ngram"]
GET = ["models", "get", "someone/some-model:Q4_K_M"]


def hosts(commands: list[list[str]], folder: Path) -> list[list[str]]:
    """For each command, the names of other machines that it looked for."""
    folders = {name: str(folder) for name in ("HOME", "HF_HOME")}
    # Without what a test before this one has set to keep its own process offline.
    env = {name: value for name, value in os.environ.items() if not name.endswith("_OFFLINE")}
    env |= folders | {"HF_ENDPOINT": "http://hub.invalid"}
    command = [sys.executable, "-c", WATCHED, json.dumps(commands)]
    done = subprocess.run(
        command, env=env | {"PYTHONPATH": str(ROOT)}, cwd=folder, capture_output=True, text=True, timeout=200
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


def test_two_commands_connect_and_only_to_what_they_name(own_folders: Path, tiny_file: Path) -> None:
    # The others switch the network off for the whole process. `add` has loaded the default tokenizer already.
    build = [*BUILD, "--tokenizer", str(tiny_file)]
    assert hosts([GET, *QUIET, build], own_folders) == [["hub.invalid"], *([] for _ in QUIET), ["books.invalid"]]
