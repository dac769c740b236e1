"""A signal ends a server in order, within two seconds of whatever it is doing; a second one at once."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from tests.paths import ROOT
from tests.waiting import until

USUAL = """
import signal
for number in (signal.SIGTERM, signal.SIGHUP):
    signal.signal(number, signal.SIG_DFL)  # whatever starts the tests may ignore them
signal.signal(signal.SIGINT, signal.default_int_handler)
"""
SLOW = """
import sys, time
from types import SimpleNamespace
from app.web import serving
from app.machine import ending

def load(*arguments, **options):
    print("loading", flush=True)
    {work}

sys.modules["core.autocomplete"] = SimpleNamespace(load_autocomplete=load)  # its imports take seconds
ending.end_on_signals()
serving.serve(port=0, open_browser=False, page=False, with_token=False)
"""
SLEEP = "time.sleep(60)"
COMPILE = """
    from pathlib import Path
    from core.models.native_library import CppSource, load
    load(CppSource(Path({source!r}), ("-shared", "-O3")))
"""


@pytest.fixture
def home(tmp_path: Path) -> dict[str, str]:
    folders = {f"XDG_{name}_HOME": str(tmp_path / name.lower()) for name in ("DATA", "CACHE", "CONFIG")}
    return os.environ | folders | {"PYTHONPATH": str(ROOT)}


def started(code: str, home: dict[str, str]) -> subprocess.Popen[str]:
    process = subprocess.Popen(
        [sys.executable, "-c", USUAL + code], env=home, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    while (line := process.stdout.readline()) and "loading" not in line:
        pass
    return process


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_a_server_that_loads_its_model_and_leaves_no_file(
    number: signal.Signals, home: dict[str, str]
) -> None:
    process = started(SLOW.format(work=SLEEP), home)
    data = Path(home["XDG_DATA_HOME"]) / "polydraft"
    until(lambda: list(data.glob("running-*")))
    process.send_signal(number)
    _, said = process.communicate(timeout=20)  # the load takes a minute
    assert process.returncode in ((0, 130) if number == signal.SIGINT else (128 + number,))
    assert "Traceback" not in said
    assert not list(data.glob("running-*"))


STUBBORN = """
import time
from app.machine import ending
ending.end_on_signals()
try:
    print("loading", flush=True)
    time.sleep(60)
finally:
    print("again", flush=True)
    time.sleep(60)
"""


def test_a_second_signal_ends_it_at_once(home: dict[str, str]) -> None:
    process = started(STUBBORN, home)
    process.send_signal(signal.SIGHUP)
    until(lambda: "again" in (process.stdout.readline() if process.stdout else ""))
    process.send_signal(signal.SIGTERM)
    process.communicate(timeout=20)
    assert process.returncode == 128 + signal.SIGTERM


def test_no_compiler_outlives_the_server(home: dict[str, str], tmp_path: Path) -> None:
    compiler = tmp_path / "compiler"  # a driver that starts another process, as a compiler does
    compiler.write_text("#!/bin/sh\nsleep 77 &\nsleep 77\n")
    compiler.chmod(0o700)
    source = tmp_path / "code.cpp"
    source.write_text("int one() { return 1; }")
    process = started(SLOW.format(work=COMPILE.format(source=str(source))), home | {"CXX": str(compiler)})

    def children() -> list[psutil.Process]:
        return [child for child in psutil.Process(process.pid).children(recursive=True) if "77" in child.cmdline()]

    until(lambda: len(children()) == 2)
    sleeping = children()
    process.send_signal(signal.SIGTERM)
    process.communicate(timeout=20)
    until(lambda: not any(child.is_running() and child.status() != psutil.STATUS_ZOMBIE for child in sleeping))


def test_ctrl_c_before_the_command_is_known_prints_no_traceback(home: dict[str, str]) -> None:
    code = "import os, signal, sys\nimport importlib.abc\n" + (
        "class Slow(importlib.abc.MetaPathFinder):\n"
        "    def find_spec(self, name, path, target=None):\n"
        "        if name == 'typer':\n"
        "            os.kill(os.getpid(), signal.SIGINT)\n"
        "sys.meta_path.insert(0, Slow())\n"
        "from polydraft.__main__ import main\nmain()\n"
    )
    done = subprocess.run([sys.executable, "-c", USUAL + code], env=home, capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stderr) == (130, "")
