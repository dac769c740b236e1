"""`polydraft complete --explain`: how each token was made, in a table that colours only repeat, and as JSON."""

from __future__ import annotations

import json
import re

import pytest
from typer.testing import CliRunner

from app.cli.main import app
from core.autocomplete import Autocomplete
from core.models.costs import CostCurve

runner = CliRunner()


@pytest.fixture
def loaded(autocomplete: Autocomplete, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(autocomplete, "row_costs", CostCurve((1, 2), (5.0, 6.0)))
    monkeypatch.setattr("core.autocomplete.load_autocomplete", lambda *_, **__: autocomplete)
    monkeypatch.setattr("app.cli.complete.leave_cores_to", lambda _: None)


def complete(*flags: str) -> str:
    result = runner.invoke(app, ["complete", "I am writ", "--length", "6", *flags])
    assert result.exit_code == 0, result.stderr
    return result.stdout


@pytest.mark.usefixtures("loaded")
def test_the_table_says_by_marks_how_each_token_was_made() -> None:
    printed = complete("--explain", "--exact-steps", "0", "--forks", "0", "--end-below", "0")
    drafts, explained = printed.split("\n\n")
    sentence, *rows, legend = explained.splitlines()
    took = r"[23] drafts of (\d+ to )?\d+ tokens? in \d+ passes, \d+ ms; apart they would take \d+ ms here"
    assert re.fullmatch(took, sentence)
    for row, draft in zip(rows, drafts.splitlines(), strict=True):
        cells = re.findall(r"(\S+)([ᵒˢⁿʰ])", row)
        text = draft.partition("I am writ")[2]
        assert "".join(token for token, _ in cells) == text.replace(" ", "")
        assert cells[0][1] == "ʰ"
    assert "ˢ" in explained
    marks = set(re.findall(r"[ᵒˢⁿʰ]", "".join(rows)))
    assert set(re.findall(r"[ᵒˢⁿʰᵖᵃᵗᶜᵇ]", legend)) == marks, "the legend has the marks that occur"


@pytest.mark.usefixtures("loaded")
def test_json_has_the_same_data() -> None:
    found = json.loads(complete("--explain", "--json"))
    assert set(found["explained"]) == {"passes", "rows", "ms", "apart_ms"}
    for draft in found["drafts"]:
        assert "".join(draft["text"][token["from"] : token["to"]] for token in draft["made"]) == draft["text"]
        assert draft["made"][0]["by"] == "healing"
        assert all(token["ln_model"] <= 0 and token["ln_mixture"] <= 0 for token in draft["made"])
