"""The plugin of LLM, installed as users install it, in the real `llm`, against a server with scripted drafts."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
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


class Llm:
    def __init__(self, plugin: Path, site: Site, folder: Path) -> None:
        self.url = site.base.removesuffix("/v1")
        self._env = os.environ | {
            "PYTHONPATH": str(plugin),
            "LLM_USER_PATH": str(folder),
            "LLM_LOAD_PLUGINS": "llm-polydraft",
            "POLYDRAFT_TOKEN": site.access.token,
            "NO_PROXY": "*",
        }

    def run(self, *arguments: str, **env: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "llm", *arguments]
        return subprocess.run(command, capture_output=True, text=True, env=self._env | env, stdin=subprocess.DEVNULL)

    def drafts(self, text: str, **options: Any) -> subprocess.CompletedProcess[str]:
        env = {name: options.pop(name) for name in list(options) if name.isupper()}
        given = [part for name, value in {"url": self.url, **options}.items() for part in ("-o", name, str(value))]
        return self.run("-m", "polydraft", text, *given, **env)


@pytest.fixture
def llm(plugin: Path, site: Site, tmp_path: Path) -> Llm:
    return Llm(plugin, site, tmp_path)


def test_the_drafts_are_lines_and_all_of_them_are_stored(llm: Llm, site: Site) -> None:
    made = llm.drafts("Once", k=3, length=2)
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
