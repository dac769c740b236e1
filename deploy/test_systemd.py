"""The unit of `polydraft service`, read by systemd itself."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from app.cli import service


@pytest.mark.parametrize("model", ["default", '/home/ann/My 100% "best" $model/one.gguf'])
def test_systemd_accepts_the_unit(tmp_path: Path, model: str) -> None:
    unit = tmp_path / "polydraft.service"
    unit.write_text(service.unit(["--port", "7893", "--model", model]))
    command = ["systemd-analyze", "verify", "--user", str(unit)]
    env = os.environ | {"XDG_RUNTIME_DIR": str(tmp_path)}
    done = subprocess.run(command, capture_output=True, text=True, env=env)
    assert (done.returncode, [line for line in done.stderr.splitlines() if "polydraft" in line]) == (0, []), done.stderr
    unit.write_text(unit.read_text().replace("ExecStart=", "ExecStart=relative/").replace("Restart=", "Restarts="))
    assert subprocess.run(command, capture_output=True, text=True, env=env).returncode != 0, "the check can fail"
