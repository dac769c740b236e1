"""The options of measurements: a table says which measurements use each; help texts and refusals follow from it."""

from __future__ import annotations

import inspect
import re
from typing import Any

import pytest
from typer.testing import CliRunner

from app.cli.main import app
from core.ngram.base import BASE_STORE
from research.bench import BENCHES, lookups
from research.bench.child import running_app
from research.cli import module_of
from research.report import BenchOptions
from research.uses import uses_of

USES = uses_of(BenchOptions)
FIELDS = {"store": "base_store"}  # properties made from a field
CALLED = {"running_app(options": running_app, "lookups.": lookups}  # what a measurement passes its options to


def run(*arguments: str) -> Any:
    return CliRunner().invoke(app, ["bench", *arguments])


def used(name: str) -> set[str]:
    """The options that the source of a measurement reads."""
    source = inspect.getsource(module_of("bench", name))  # type: ignore[arg-type]
    source += "".join(inspect.getsource(called) for call, called in CALLED.items() if call in source)
    return {FIELDS.get(field, field) for field in re.findall(r"\boptions\.(\w+)", source)} & {*USES}


def test_a_base_store_is_the_apps_own_or_none() -> None:
    assert BenchOptions(base_store="none").store is None
    assert BenchOptions().store == BASE_STORE


@pytest.mark.parametrize("name", BENCHES)
def test_the_table_says_what_each_measurement_reads(name: str) -> None:
    assert {option for option, use in USES.items() if use.by(name)} == used(name)


def test_the_table_names_known_measurements_and_every_field() -> None:
    for use in USES.values():
        assert {*use.only, *use.but} <= set(BENCHES)
    assert set(USES) == set(BenchOptions.__dataclass_fields__), "each is a flag"


GIVEN = {
    "text": ["x.txt"], "backend": ["auto"], "model": ["default"], "base_store": ["none"], "repetitions": ["1"],
    "prompts": ["1"], "head": ["x"], "precision": ["file"], "plots": ["x.svg"], "minutes": ["1"], "typists": ["1"],
    "vllm": ["python"], "shapes": ["tiny"], "tiny": [], "pruning": [], "sweep": [],
    "tree_size": ["8"], "methods": ["n-gram"], "temperatures": ["1"],
}  # fmt: skip


@pytest.mark.parametrize("option", USES)
def test_an_option_that_a_measurement_does_not_use_is_refused(option: str) -> None:
    """Also with the value that it has by default: it was given."""
    flag, use = "--" + option.replace("_", "-"), USES[option]
    for name in BENCHES:
        if not use.by(name):
            refused = run(name, flag, *GIVEN[option])
            assert refused.exit_code == 1
            assert f"{flag} changes nothing in {name}; leave it out." in refused.stderr
            assert use.but or f"It is for {', '.join(use.only)}." in refused.stderr


def test_options_of_the_sweep_are_refused_without_it_and_beside_it() -> None:
    assert "--plots changes nothing without --sweep" in run("speculative", "--plots", "x.svg").stderr
    assert "--temperatures changes nothing without --sweep" in run("speculative", "--temperatures", "1").stderr
    assert "--pruning changes nothing with --sweep" in run("speculative", "--sweep", "--pruning").stderr
    assert "--methods changes nothing with --sweep" in run("speculative", "--sweep", "--methods", "n-gram").stderr


def test_the_help_names_the_measurements() -> None:
    shown = CliRunner().invoke(app, ["bench", "--help"], terminal_width=400, env={"COLUMNS": "400"}).stdout
    for use in USES.values():
        assert use.help in shown
