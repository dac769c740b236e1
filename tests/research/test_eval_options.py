"""The options of evaluations: one table says which evaluations use each, makes the help texts, and refuses the rest."""

from __future__ import annotations

import inspect
import re
from importlib import import_module
from typing import Any

import pytest
from typer.testing import CliRunner

from app.cli.main import app
from core.errors import InputError
from research.evals import EVALS
from research.evals.personal import learn_and_test
from research.evals.prose import texts_of
from research.options import EvalOptions, chosen, loaded
from research.uses import uses_of

USES = uses_of(EvalOptions)
FIELDS = {"store": "base_store", "ks": "k"}  # properties made from a field


def run(*arguments: str) -> Any:
    return CliRunner().invoke(app, ["eval", *arguments])


def used(name: str) -> set[str]:
    """The options that the source of an evaluation reads."""
    module = import_module(f"research.evals.{name.replace('-', '_')}")
    source = inspect.getsource(module)
    if "learn_and_test(options)" in source:
        source += inspect.getsource(learn_and_test)
    if "texts_of(options)" in source:
        source += inspect.getsource(texts_of)
    if "loaded(options" in source:
        source += inspect.getsource(loaded)
    found = {FIELDS.get(field, field) for field in re.findall(r"(?<!app\.)\boptions\.(\w+)", source)}
    return found | ({"plot"} if hasattr(module, "plots") else set())


@pytest.mark.parametrize("name", EVALS)
def test_the_table_says_what_each_evaluation_reads(name: str) -> None:
    assert {option for option, use in USES.items() if use.by(name)} == used(name)


def test_the_table_names_known_evaluations() -> None:
    for use in USES.values():
        assert {*use.only, *use.but} <= set(EVALS)


GIVEN = {
    "text": "x.txt", "past": "x.txt", "repetitions": "2", "timed": "1", "context": "32", "part": "all", "k": "3,8",
    "length": "10", "plot": "x.svg", "backend": "auto", "minutes": "1", "model": "default", "base_store": "none",
    "verify_with": "default", "share": "100", "learned": "x", "adapter": "x", "slips": "3", "only": "x.json",
    "counted": "", "votes": "8", "rules": "top-p", "temperatures": "1",
    "matched": "mass", "exact": "", "precision": "file",
    "method": "beam", "beside": "greedy", "versus": "3v1", "server": "http://127.0.0.1:1", "judge_model": "x",
}  # fmt: skip


@pytest.mark.parametrize("option", [name for name, use in USES.items() if use.only or use.but])
def test_an_option_that_an_evaluation_does_not_use_is_refused(option: str) -> None:
    """Also with the value that it has by default: it was given."""
    flag = "--" + option.replace("_", "-")
    for name in EVALS:
        if not USES[option].by(name):
            refused = run(name, flag, *filter(None, [GIVEN[option]]))
            assert refused.exit_code == 1
            assert f"{flag} changes nothing in {name}; leave it out." in refused.stderr
            assert USES[option].but or f"It is for {', '.join(USES[option].only)}." in refused.stderr


def test_the_help_names_the_evaluations() -> None:
    shown = CliRunner().invoke(app, ["eval", "--help"], terminal_width=400, env={"COLUMNS": "400"}).stdout
    for use in USES.values():
        assert use.help in shown
    assert USES["minutes"].help.endswith("For adapter, tune-adapter.")
    assert "Not for samplers," in USES["base_store"].help


def test_numbers_of_drafts_are_a_list() -> None:
    assert EvalOptions(k="8, 3,3").ks == (3, 8)
    for wrong in ("", "3;8", "0", "99", "-1", "3,,8"):
        with pytest.raises(InputError, match="numbers from 1 to 16 with commas between them expected"):
            EvalOptions(k=wrong)
    assert "k '3;8' given" in run("drafts", "--k", "3;8").stderr


def test_chosen_names_may_contain_commas() -> None:
    known = {"superposed": 1, "superposed, r=2": 2, "as shipped": 3}
    assert chosen("rules", "superposed, r=2,superposed, as shipped", known) == {
        "superposed, r=2": 2,
        "superposed": 1,
        "as shipped": 3,
    }
    assert chosen("rules", None, known) == known
    with pytest.raises(InputError, match="rules: 'superposed r=3' given; superposed, superposed, r=2"):
        chosen("rules", "as shipped,superposed r=3, x", known)
