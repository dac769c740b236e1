"""The plugin of LLM, installed as users install it, in the real `llm`, against a server with scripted drafts."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from app.bench.child import free_port
from core.autocomplete import Autocomplete
from tests.fake_autocomplete import FakeAutocomplete
from tests.table_model import TableModel
from tests.test_openai_api import Site

PLUGIN = Path(__file__).parents[1] / "editors" / "llm"


@pytest.fixture(scope="module")
def site() -> Iterator[Site]:
    made = Site(FakeAutocomplete())
    yield made
    made.close()


@pytest.fixture(scope="module")
def plugin(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder that the plugin is installed in."""
    source, target = tmp_path_factory.mktemp("source") / "llm", tmp_path_factory.mktemp("plugin")
    shutil.copytree(PLUGIN, source)
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "--quiet", "--no-input", "install"]
    command = [*pip, "--no-deps", "--no-build-isolation", "--target", str(target), str(source)]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return target


# The program's commands, one after the other, in one process: its imports take seconds.
COMMANDS = """
import json, os, sys
from click.testing import CliRunner
from llm.cli import cli

for line in sys.stdin:
    order = json.loads(line)
    found = CliRunner().invoke(cli, order["arguments"], env=order["env"], prog_name="llm")
    print(json.dumps({"stdout": found.stdout, "stderr": found.stderr}), flush=True)
"""


@pytest.fixture(scope="module")
def commands(plugin: Path) -> Iterator[subprocess.Popen[str]]:
    env = os.environ | variables(plugin)
    with subprocess.Popen(
        [sys.executable, "-c", COMMANDS], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=env
    ) as process:
        yield process
        process.communicate()


def variables(plugin: Path) -> dict[str, str]:
    return {"PYTHONPATH": str(plugin), "LLM_LOAD_PLUGINS": "llm-polydraft", "NO_PROXY": "*"}


@dataclass
class Printed:
    stdout: str
    stderr: str


class Llm:
    def __init__(self, commands: subprocess.Popen[str], site: Site, folder: Path) -> None:
        self.url = site.base.removesuffix("/v1")
        self.env = {"LLM_USER_PATH": str(folder), "POLYDRAFT_TOKEN": site.access.token}
        self._commands = commands

    def run(self, *arguments: str, **env: str) -> Printed:
        assert self._commands.stdin and self._commands.stdout
        print(json.dumps({"arguments": arguments, "env": self.env | env}), file=self._commands.stdin, flush=True)
        return Printed(**json.loads(self._commands.stdout.readline()))

    def drafts(self, text: str, **options: Any) -> Printed:
        env = {name: options.pop(name) for name in list(options) if name.isupper()}
        return self.run(*self.asks(text, **options), **env)

    def asks(self, text: str, **options: Any) -> list[str]:
        """The arguments of the program that request drafts."""
        given = [part for name, value in {"url": self.url, **options}.items() for part in ("-o", name, str(value))]
        return ["-m", "polydraft", text, *given]


@pytest.fixture
def llm(commands: subprocess.Popen[str], site: Site, tmp_path: Path) -> Llm:
    return Llm(commands, site, tmp_path)


def test_the_drafts_are_lines_and_all_of_them_are_stored(llm: Llm, site: Site, plugin: Path) -> None:
    command = [sys.executable, "-m", "llm", *llm.asks("Once", k=3, length=2)]
    env = os.environ | variables(plugin) | llm.env
    made = subprocess.run(command, capture_output=True, text=True, env=env, stdin=subprocess.DEVNULL)
    assert made.stdout.splitlines() == [" one one", " two two", " three three"], made.stderr
    assert site.autocomplete.latest is not None
    assert (site.autocomplete.latest.before, site.autocomplete.latest.k) == ("Once", 3)
    (stored,) = json.loads(llm.run("logs", "--json").stdout)
    assert [choice["text"] for choice in stored["response_json"]["choices"]] == [" one one", " two two", " three three"]
    assert (stored["prompt"], stored["input_tokens"]) == ("Once", 5)


def test_options_reach_the_server(llm: Llm) -> None:
    assert llm.drafts("Once", k=1, length=1).stdout == " one\n"
    made = Site(Autocomplete(TableModel(seed=3)))
    try:
        here = {"url": made.base.removesuffix("/v1"), "POLYDRAFT_TOKEN": made.access.token}
        drawn = [llm.drafts("abc", mode="sampled", temperature=2, seed=seed, **here).stdout for seed in (1, 1, 2)]
    finally:
        made.close()
    assert len(drawn[0].splitlines()) == 3
    assert drawn[0] == drawn[1] != drawn[2]


def test_errors_say_what_to_do(llm: Llm) -> None:
    assert "polydraft serve" in llm.drafts("Once", url=f"http://127.0.0.1:{free_port()}").stderr
    assert "warp" in llm.drafts("Once", mode="warp").stderr
    refused = llm.run("-m", "polydraft", "Once", "-o", "url", llm.url, POLYDRAFT_TOKEN="wrong")
    assert "polydraft token" in refused.stderr
    assert "system prompt" in llm.run("-m", "polydraft", "Once", "-s", "Be kind").stderr
