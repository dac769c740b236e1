"""Programs that start together on a machine without any file of ours, and a cache that somebody deletes."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import urllib.request
from pathlib import Path

from core.models.load import why_not_compiled
from core.models.located import default_model_path
from core.models.native_library import path_of
from core.ngram.personal import PersonalStore
from tests.paths import ROOT
from tests.running_app import free_port

POLYDRAFT = [sys.executable, "-m", "polydraft"]


def drafts(port: int, prompt: str) -> list[str]:
    body = json.dumps({"prompt": prompt, "max_tokens": 4, "n": 2}).encode()
    request = urllib.request.Request(
        f"http://127.0.0.1:{port}/v1/completions", body, {"Content-Type": "application/json"}
    )
    with urllib.request.urlopen(request, timeout=120) as answer:
        return [choice["text"] for choice in json.load(answer)["choices"]]


def test_a_server_and_two_additions_start_together_and_the_server_outlives_its_cache(tmp_path: Path) -> None:
    home = os.environ | {f"XDG_{name}_HOME": str(tmp_path / name.lower()) for name in ("DATA", "CACHE", "CONFIG")}
    home |= {"PYTHONPATH": str(ROOT)}
    if not why_not_compiled(default_model_path()):  # compiled once for all tests
        from core.models.native import SOURCE

        shutil.copytree(path_of(SOURCE).parent, tmp_path / "cache/polydraft/native")
    port = free_port()
    server = subprocess.Popen(
        [*POLYDRAFT, "serve", "--port", str(port), "--no-token"],
        env=home, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
    )  # fmt: skip
    adding = []
    for name in ("one", "two"):
        (tmp_path / f"{name}.txt").write_text(f"The {name} lighthouse keepers wrote their log every evening.\n" * 3)
        command = [*POLYDRAFT, "ngram", "add", "--store", "mine", str(tmp_path / f"{name}.txt")]
        adding.append(subprocess.Popen(command, env=home, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True))
    try:
        said = [each.communicate(timeout=120)[0] for each in adding]
        assert [each.returncode for each in adding] == [0, 0], said
        with PersonalStore.open(tmp_path / "data/polydraft/stores/mine.sqlite") as store:
            assert len([*store.texts()]) == 2
        assert server.stdout is not None
        assert "serves drafts at" in server.stdout.readline()
        first = drafts(port, "I am looking forward to")
        shutil.rmtree(tmp_path / "cache")
        assert drafts(port, "I am looking forward to") == first
        assert all(drafts(port, "Thank you for your"))
    finally:
        server.send_signal(signal.SIGINT)
        server.communicate(timeout=30)
    assert server.returncode == 0
