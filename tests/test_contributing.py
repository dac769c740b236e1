"""What docs/contributing.md says about adding an option, a sampling rule or a flag of requests, done on a copy: the
files that it names are edited, the command that it names is run, and the page, the command line, requests and the
documentation have the addition. The tests that it names beside them are at the end of `LOOK`."""

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

# The edits of each addition: a file, the text of it that stands after the new lines ("" for a new file), and these.
Edit = tuple[str, str, str]

OPTION: list[Edit] = [
    (
        "core/options.py",
        "    refill: bool",
        """\
    further: int = _number(
        0, (0, 10, 1), "More candidates.", modes=("superposed",), no_effect=(NoEffect("distinct", False),)
    )
""",
    ),
    (
        "core/drafting/drafts.py",
        "        return self.candidates or max(",
        """\
        if self.further:
            return WITH_FORKS + self.further
""",
    ),
]
RULE: list[Edit] = [
    (
        "core/samplers/near.py",
        "",
        '''\
"""Keeps logits within d of the largest."""

from torch import Tensor

from core.samplers.base import Rule, keep_where


class Near(Rule):
    title = "near"

    def __init__(self, within: float) -> None:
        self.within = within

    def crop(self, x: Tensor, best: Tensor, input_ids: Tensor | None) -> Tensor:
        return keep_where(x, x >= x.amax(-1, keepdim=True) - self.within)
''',
    ),
    (
        "core/controls.py",
        '    CatalogEntry(\n        "top-w"',
        """\
    CatalogEntry(
        "near",
        "near",
        (_number("within", 1.0, (0.0, 9.0, 0.1), "Higher: more tokens are kept."),),
        "Keeps logits within d of the largest.",
        made_by="near:Near",
    ),
""",
    ),
]

FLAG: list[Edit] = [
    ("core/ask.py", "    repeats: bool = False\n", "    shouts: bool = False\n"),
    ("app/service/requests.py", "    by_text: bool = False\n", "    shouts: bool = False\n"),
    (
        "core/present.py",
        "    if ask.unasked:\n",
        """\
    if ask.shouts:
        rows = [replace(row, text=row.text.upper()) for row in rows]
""",
    ),
]

# Runs the command of the documentation; then what each edge of the product has, and what it does, as one object.
LOOK = """
import json, runpy, sys
from contextlib import redirect_stdout
from types import SimpleNamespace

import torch
from typer.testing import CliRunner

from app.cli.flags import sentence_of
from app.cli.main import app
from app.clients.options import ClientOptions
from app.options.given import settings_of
from app.service.requests import DraftRequest
from app.web.page import build_page
from core.drafting.drafts import Draft, Drafts, Options
from core.errors import OptionError
from core.present import Presentation, present
from core.samplers.catalog import sampler

def refused(**given):
    try:
        settings_of(given)
    except OptionError as error:
        return sentence_of(error)

with redirect_stdout(sys.stderr):
    runpy.run_module("tests.options_table", run_name="__main__")

page, known = build_page()
components = {part.elem_id: part for part in page.blocks.values()}
request = DraftRequest(tab="a", n=0, before="", settings={"further": 4, "sampling": {"rule": "near"}})
shouting = DraftRequest(tab="a", n=0, before="", shouts=True).ask(None, [])
draft = Draft([0], [-1.0], 0, own=1, rests=True, personal=[False])
(row,) = present(Drafts([draft], 1), Presentation(SimpleNamespace(pieces=[b" sea"]), shouting))
print(json.dumps({
    "help": CliRunner().invoke(app, ["complete", "--help"], env={"COLUMNS": "240"}).stdout,
    "sliders": {
        flag: [part.label, part.info, part.minimum, part.maximum, part.value]
        for flag in ("further", "within")
        for part in [components[f"pd-{flag}"]]
    },
    "rules": components["pd-rules"].choices,
    "known": json.loads(known),
    "request": [request.settings.further, request.settings.sampling.values],
    "program": ClientOptions(further=5, within=3.0).settings(3, 10, {}).model_dump(),
    "refused": [refused(further=11), refused(further=2, distinct=False)],
    "further": Options(further=4).m - Options().m,
    "near": sampler("near", {"within": 2.0})(None, torch.tensor([[5.0, 4.0, 2.0]])).isfinite().tolist(),
    "shouted": row.text,
}))
"""


def edit(copy: Path, edits: list[Edit]) -> None:
    for file, before, text in edits:
        path = copy / file
        path.parent.mkdir(parents=True, exist_ok=True)
        content = path.read_text(encoding="utf-8") if before else ""
        assert content.count(before) == 1
        path.write_text(content.replace(before, text + before), encoding="utf-8")


@pytest.fixture(scope="module")
def copy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    copy = tmp_path_factory.mktemp("product")
    for folder in ("app", "core"):
        shutil.copytree(ROOT / folder, copy / folder)
    for file in ("docs/using.md", "docs/samplers.md", "tests/paths.py", "tests/options_table.py"):
        (copy / file).parent.mkdir(exist_ok=True)
        shutil.copy2(ROOT / file, copy / file)
    return copy


@pytest.fixture(scope="module")
def seen(copy: Path) -> dict[str, Any]:
    for edits in (OPTION, RULE, FLAG):
        edit(copy, edits)
    environment = {**os.environ, "PYTHONPATH": str(copy)}
    done = subprocess.run([sys.executable, "-c", LOOK], cwd=copy, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def new_lines(copy: Path, page: str) -> list[str]:
    """The lines that a page of the copy's documentation has beside those of ours."""
    ours = (ROOT / page).read_text(encoding="utf-8").splitlines()
    return [line for line in (copy / page).read_text(encoding="utf-8").splitlines() if line not in ours]


def test_a_flag_of_requests_is_two_fields_and_its_use(seen: dict[str, Any]) -> None:
    assert seen["shouted"] == " SEA"


def test_an_option_is_a_field_and_its_use(seen: dict[str, Any], copy: Path) -> None:
    assert seen["further"] == 4
    assert "--further" in seen["help"]
    assert "More candidates." in seen["help"]
    assert seen["sliders"]["further"] == ["Further", "More candidates.", 0, 10, 0]
    assert "further" in seen["known"]["fields"]
    assert seen["known"]["controls"]["further"]["no_effect"][0]["other"] == "distinct"
    assert (seen["request"][0], seen["program"]["further"]) == (4, 5)
    assert seen["refused"] == [
        "--further 11 given; a whole number from 0 to 10 expected.",
        "--further changes nothing with --no-distinct; leave one of them out.",
    ]
    assert new_lines(copy, "docs/using.md") == ["| Further | `--further` | 0 | 0-10 | More candidates. |"]


def test_a_sampling_rule_is_a_class_and_an_entry(seen: dict[str, Any], copy: Path) -> None:
    assert seen["near"] == [[True, True, False]]
    assert "--within" in seen["help"]
    assert ["Near: Keeps logits within d of the largest.", "near"] in seen["rules"]
    assert seen["sliders"]["within"] == ["Within", "Higher: more tokens are kept.", 0, 9, 1]
    assert "within" in seen["known"]["fields"]
    assert "near" in [rule["name"] for rule in seen["known"]["rules"]]
    assert seen["request"][1] == {"within": 1.0}
    assert (seen["program"]["sampling"]["rule"], seen["program"]["sampling"]["values"]) == ("near", {"within": 3.0})
    assert new_lines(copy, "docs/samplers.md") == [
        "| near | `near` | Within: `--within` 1.0 | Keeps logits within d of the largest. |"
    ]
