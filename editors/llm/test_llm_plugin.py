"""The plugin of LLM, installed as users install it, in the real `llm`, against a server with scripted drafts."""

from __future__ import annotations

import json
import os
import platform
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from app.machine import running
from app.machine.private import data_folder
from app.machine.token import token_file
from core.autocomplete import Autocomplete
from core.files import write_whole
from tests.app.site import Site
from tests.fake_autocomplete import FakeAutocomplete
from tests.running_app import free_port
from tests.strangers import stranger
from tests.table_model import TableModel

PLUGIN = Path(__file__).parent


@contextmanager
def served(autocomplete: Any) -> Iterator[Site]:
    """A server of this user, registered as a started one is."""
    site = Site(autocomplete)
    write_whole(token_file(), f"{site.access.token}\n".encode())
    try:
        with running.marked(site.server.port, {}):
            yield site
    finally:
        site.close()


@pytest.fixture(scope="module")
def site() -> Iterator[Site]:
    with served(FakeAutocomplete()) as made:
        yield made


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
    env = os.environ | {"PYTHONPATH": str(plugin), "LLM_LOAD_PLUGINS": "llm-polydraft"}
    with subprocess.Popen(
        [sys.executable, "-c", COMMANDS], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=env
    ) as process:
        yield process
        process.communicate()


@dataclass
class Printed:
    stdout: str
    stderr: str


class Llm:
    def __init__(self, commands: subprocess.Popen[str], site: Site, folder: Path) -> None:
        self.port = site.server.port
        self.env = {"LLM_USER_PATH": str(folder)}
        self._commands = commands

    def run(self, *arguments: str, **env: str) -> Printed:
        assert self._commands.stdin and self._commands.stdout
        print(json.dumps({"arguments": arguments, "env": self.env | env}), file=self._commands.stdin, flush=True)
        return Printed(**json.loads(self._commands.stdout.readline()))

    def drafts(self, text: str, **options: Any) -> Printed:
        env = {name: options.pop(name) for name in list(options) if name.lower().endswith("_proxy")}
        given = [part for name, value in {"port": self.port, **options}.items() for part in ("-o", name, str(value))]
        return self.run("-m", "polydraft", text, *given, **env)


@pytest.fixture
def llm(commands: subprocess.Popen[str], site: Site, tmp_path: Path) -> Llm:
    return Llm(commands, site, tmp_path)


def test_the_drafts_are_lines_and_all_of_them_are_stored(llm: Llm, site: Site) -> None:
    made = llm.drafts("Once", k=3, length=2)
    assert made.stdout.splitlines() == [" one one", " two two", " three three"], made.stderr
    assert site.autocomplete.latest is not None
    assert (site.autocomplete.latest.before, site.autocomplete.latest.k) == ("Once", 3)
    (stored,) = json.loads(llm.run("logs", "--json").stdout)
    assert [choice["text"] for choice in stored["response_json"]["choices"]] == [" one one", " two two", " three three"]
    assert (stored["prompt"], stored["input_tokens"]) == ("Once", 5)


def test_options_reach_the_server(llm: Llm, site: Site) -> None:
    assert llm.drafts("Once", k=1, length=1).stdout == " one\n"
    with served(Autocomplete(TableModel(seed=3))) as made:
        here = {"port": made.server.port}
        drawn = [llm.drafts("abc", mode="sampled", temperature=2, seed=seed, **here).stdout for seed in (1, 1, 2)]
    write_whole(token_file(), site.access.token.encode())
    assert len(drawn[0].splitlines()) == 3
    assert drawn[0] == drawn[1] != drawn[2]


def test_errors_say_what_to_do(llm: Llm, site: Site) -> None:
    assert "polydraft serve" in llm.drafts("Once", port=free_port()).stderr
    assert "warp" in llm.drafts("Once", mode="warp").stderr
    write_whole(token_file(), b"replaced")
    assert "Restart" in llm.drafts("Once").stderr
    write_whole(token_file(), site.access.token.encode())
    assert "system prompt" in llm.run("-m", "polydraft", "Once", "-s", "Be kind").stderr


def test_a_stranger_at_the_port_or_a_proxy_receives_neither_text_nor_token(llm: Llm) -> None:
    with stranger() as found:
        assert "No Polydraft of yours" in llm.drafts("My private words", port=found.port).stderr
        path = data_folder() / f"running-{platform.node()}-{found.port}"
        path.write_text("{}")  # of a server that was killed
        assert "No Polydraft of yours" in llm.drafts("My private words", port=found.port).stderr
        proxies = dict.fromkeys(("http_proxy", "HTTP_PROXY", "ALL_PROXY"), f"http://127.0.0.1:{found.port}")
        assert llm.drafts("Once", k=1, length=1, **proxies).stdout == " one\n"
        assert found.received == []
