"""What docs/contributing.md says about adding an option or a sampling rule, done on a copy: the files that
it names are edited, and the page, the command line, requests and the table in the documentation have the addition."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.paths import ROOT

OPTION = """\
    warmth: int = _number(
        0, (0, 10, 1), "Warmth", "How warm drafts are.", modes=("superposed",), no_effect=(NoEffect("distinct", False),)
    )
"""
ENTRY = """\
    CatalogEntry(
        "near",
        "near",
        (Control("within", "d", "within", 1.0, 0.0, 9.0, 0.1, "Higher: more tokens are kept."),),
        "Keeps logits within d of the largest.",
        "Words close to the best",
        made_by="near:Near",
    ),
"""
RULE = '''
"""Keeps logits within d of the largest."""

from torch import Tensor

from core.samplers.base import Rule, keep_where


class Near(Rule):
    title = "near"

    def __init__(self, within: float) -> None:
        self.within = within

    def crop(self, x: Tensor, best: Tensor, input_ids: Tensor | None) -> Tensor:
        return keep_where(x, x >= x.amax(-1, keepdim=True) - self.within)
'''
# What each edge of the product has, as one object on the output.
LOOK = """
import json, sys
from types import SimpleNamespace
from unittest.mock import MagicMock

sys.modules |= {"gradio": MagicMock(), "gradio.themes": MagicMock()}  # takes seconds, and the markup needs none of it
import torch
from typer.testing import CliRunner

from app.cli.flags import sentence_of
from app.cli.main import app
from app.clients.options import ClientOptions
from app.service.given import settings_of
from app.service.requests import DraftRequest
from app.web.page import editor_markup
from app.web.routes.sampling import catalogue
from core.drafting.drafts import Options
from core.errors import OptionError
from core.samplers.catalog import sampler
from tests import options_table

def refused(**given):
    try:
        settings_of(given)
    except OptionError as error:
        return sentence_of(error)

request = DraftRequest(tab="a", n=0, before="", settings={"warmth": 4, "sampling": {"rule": "near"}})
kept = sampler("near", {"within": 2.0})(None, torch.tensor([[5.0, 4.0, 2.0]]))
print(json.dumps({
    "help": CliRunner().invoke(app, ["complete", "--help"], env={"COLUMNS": "240"}).stdout,
    "page": editor_markup(),
    "request": [request.settings.warmth, request.settings.sampling.values],
    "program": ClientOptions(warmth=5, within=3.0).settings(3, 10, {}).model_dump(),
    "algorithm": Options(warmth=6).warmth,
    "refused": [refused(warmth=11), refused(warmth=2, distinct=False)],
    "table": options_table.rows(),
    "written": options_table.parts()[1].splitlines(),
    "panel": [rule["name"] for rule in catalogue()["rules"]],
    "kept": kept.isfinite().tolist()[0],
}))
"""


def insert(path: Path, before: str, text: str) -> None:
    content = path.read_text(encoding="utf-8")
    assert content.count(before) == 1
    path.write_text(content.replace(before, text + before), encoding="utf-8")


@pytest.fixture(scope="module")
def seen(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    copy = tmp_path_factory.mktemp("product")
    for folder in ("app", "core"):
        shutil.copytree(ROOT / folder, copy / folder)
    for file in ("docs/using.md", "tests/paths.py", "tests/options_table.py"):
        (copy / file).parent.mkdir(exist_ok=True)
        shutil.copy2(ROOT / file, copy / file)
    insert(copy / "core/options.py", "    refill: bool", OPTION)
    insert(copy / "core/controls.py", '    CatalogEntry(\n        "top-w"', ENTRY)
    (copy / "core/samplers/near.py").write_text(RULE.lstrip())
    environment = {**os.environ, "PYTHONPATH": str(copy)}
    done = subprocess.run(
        [sys.executable, "-c", LOOK], cwd=copy, env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_an_option_is_one_edit(seen: dict[str, Any]) -> None:
    assert "--warmth" in seen["help"]
    assert "How warm drafts are." in seen["help"]
    assert 'id="pd-warmth" name="warmth" title="How warm drafts are."' in seen["page"]
    assert (seen["request"][0], seen["program"]["warmth"], seen["algorithm"]) == (4, 5, 6)
    assert seen["refused"] == [
        "--warmth 11 given; a whole number from 0 to 10 expected.",
        "--warmth changes nothing with --no-distinct; leave one of them out.",
    ]
    assert set(seen["table"]) - set(seen["written"]) == {"| Warmth | `--warmth` | 0 | 0-10 | How warm drafts are. |"}


def test_a_sampling_rule_is_a_class_and_an_entry(seen: dict[str, Any]) -> None:
    assert "--within" in seen["help"]
    assert "near" in seen["panel"]
    assert seen["request"][1] == {"within": 1.0}
    assert (seen["program"]["sampling"]["rule"], seen["program"]["sampling"]["values"]) == ("near", {"within": 3.0})
    assert seen["kept"] == [True, True, False]
