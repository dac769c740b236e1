"""The command line: what it prints, and what it refuses and how."""

from __future__ import annotations

import json
import os
import re
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from typer.testing import CliRunner

from app.cli.main import app
from app.clients.options import in_fields
from core.errors import InputError, ModelFileError, OptionError
from core.models import load_model
from core.options import DRAFTING
from polydraft import __main__
from tests import fake_autocomplete
from tests.fake_autocomplete import FakeAutocomplete
from tests.options_table import TABLES, Table

runner = CliRunner()


@pytest.fixture
def fake(monkeypatch: pytest.MonkeyPatch) -> FakeAutocomplete:
    made: Any = FakeAutocomplete()

    def load(model: str, backend: str, *, prose: bool, **_: object) -> FakeAutocomplete:
        made.prose = prose
        return made

    monkeypatch.setattr("core.autocomplete.load_autocomplete", load)
    monkeypatch.setattr(fake_autocomplete, "WORDS", ("you\x1b[31m", "all", "be"))
    monkeypatch.setattr(fake_autocomplete.FakeCompletion, "exact_steps", 7, raising=False)
    return made


def asked(fake: FakeAutocomplete) -> dict[str, Any]:
    assert fake.latest
    return vars(fake.latest.ask)


def said(result: Any) -> str:
    """What the user reads of an error, without the frame around it."""
    return re.sub(r"[│╭╮╰╯─\s]+", " ", result.stderr)


# --- help --------------------------------------------------------------------------------------------------


def test_without_a_command_the_app_is_served(monkeypatch: pytest.MonkeyPatch) -> None:
    served: list[tuple[Any, ...]] = []
    server = SimpleNamespace(serve=lambda *arguments, **named: served.append((*arguments, *named.values())))
    monkeypatch.setitem(sys.modules, "app.web.serving", server)
    assert runner.invoke(app, []).exit_code == 0
    flags = "--model m.gguf --backend torch --port 8000 --no-browser --precision bfloat16 --no-token --base-store none"
    flags += " --draft-model small.gguf --allow-origin app://obsidian.md --cache-memory 800M"
    assert runner.invoke(app, flags.split()).exit_code == 0
    usual, given = served
    assert usual == ("default", "auto", None, True, "auto", True, None, None, (), (), None)
    assert given[:7] == ("m.gguf", "torch", 8000, False, "bfloat16", False, ["none"])
    assert given[7:] == ("small.gguf", ["app://obsidian.md"], (), 800 << 20)


@pytest.mark.parametrize("table", TABLES, ids=lambda table: table.page.name)
def test_the_documentation_lists_every_setting_and_every_rule_as_it_is_defined(table: Table) -> None:
    assert table.parts()[1].splitlines() == table.rows(), "python -m tests.options_table writes them"


# --- complete ----------------------------------------------------------------------------------------------


def test_settings_reach_the_drafting(fake: FakeAutocomplete) -> None:
    flags = ["--k", "5", "--length", "4", "--tau", "0.5", "--exact-steps", "2", "--distinct"]
    flags += ["--alpha", "0.5", "--personal-weight", "0.25", "--store", "me", "--verify", "12"]
    flags += ["--forks", "2", "--end-below", "0.2", "--min-branch", "0.05"]
    assert runner.invoke(app, ["complete", "Thank", *flags]).exit_code == 0
    expected = {"before": "Thank", "k": 5, "length": 4, "tau": 0.5, "exact_steps": 2, "forks": 2, "end_below": 0.2}
    expected |= {"min_branch": 0.05, "verify": 12, "distinct": True, "mixing": "linear", "alpha": 0.5}
    expected |= {"personal_weight": 0.25, "stores": ["me"]}
    assert asked(fake) | expected == asked(fake)


def test_json_is_one_object_with_everything(fake: FakeAutocomplete) -> None:
    result = runner.invoke(app, ["complete", "Thank", "--json", "--length", "1"])
    found = json.loads(result.stdout)
    assert list(found) == ["text", "drafts", "model", "backend", "ms", "exact_steps"]
    draft = {"text": " all", "probability": 0.2, "whole": 0.2, "finished": True, "personal": [], "tail": "own"}
    assert found["drafts"][1] == draft
    assert (found["text"], found["model"], found["backend"]) == ("Thank", "Scripted", "none")
    assert found["exact_steps"] == 7
    assert found["ms"] >= 0


@pytest.mark.parametrize(("flags", "chosen"), [([], True), (["--exact-steps", "2"], False)])
def test_exact_steps_are_chosen_by_the_cost_of_rows_unless_given(
    fake: FakeAutocomplete, monkeypatch: pytest.MonkeyPatch, flags: list[str], chosen: bool
) -> None:
    timed: list[int] = []
    monkeypatch.setattr(fake, "time_rows", lambda: iter(timed.append(1) or ()))
    assert runner.invoke(app, ["complete", "Thank", *flags]).exit_code == 0
    assert (asked(fake)["tails"], bool(timed)) == (chosen, chosen)


def test_drafts_below_the_minimum_confidence_are_not_shown(fake: FakeAutocomplete) -> None:
    shown = runner.invoke(app, ["complete", "T", "--json", "--length", "1", "--min-confidence", "0.3"]).stdout
    assert [draft["text"] for draft in json.loads(shown)["drafts"]] == [" you\x1b[31m"]
    none = runner.invoke(app, ["complete", "T", "--min-confidence", "0.9"])
    assert (none.exit_code, none.stdout) == (0, "")
    assert "lower --min-confidence" in none.stderr


def test_plain_output_shows_each_draft_in_its_place(fake: FakeAutocomplete) -> None:
    shown = runner.invoke(app, ["complete", "Dear both,\nthank", "--length", "1", "--k", "2"]).stdout
    assert shown.splitlines() == ["1   40.0%  thank you\\x1b[31m", "2   20.0%  thank all"]


def test_notices_go_to_stderr(fake: FakeAutocomplete) -> None:
    fake.notice = "llama.cpp is not available."
    result = runner.invoke(app, ["complete", "T", "--json"])
    assert result.stderr == "llama.cpp is not available.\n"
    json.loads(result.stdout)


def test_a_text_is_read_from_standard_input_or_a_file_without_its_last_line_end(
    fake: FakeAutocomplete, tmp_path: Path
) -> None:
    path = tmp_path / "letter.txt"
    path.write_bytes("\ufeffDear Anna,\r\nthanks é\r\n".encode())
    for flags, given in (
        ([], "Dear Anna,\nthanks é\n"),
        (["-"], "Dear Anna,\nthanks é"),
        (["--file", str(path)], None),
    ):
        result = runner.invoke(app, ["complete", "--json", *flags], input=given)
        assert json.loads(result.stdout)["text"] == "Dear Anna,\nthanks é", result.output


def test_no_text_two_texts_and_what_is_no_text_are_refused(
    fake: FakeAutocomplete, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "letter.txt"
    path.write_bytes(b"\xff\xfe")
    for flags, given, sentence in (
        (["Thank", "--file", str(path)], "", "TEXT and --file given; leave one of them out."),
        (["--file", str(path)], "", "is no text in UTF-8 (invalid start byte); give --file a text file."),
        (["--file", str(tmp_path)], "", str(tmp_path)),
        ([], b"\xff", "Standard input is no text in UTF-8"),
        (["Thank", "--never", "*"], "", "'*' given; * stands for any ending of a word"),
        (["Thank", "--never", " "], "", "An empty phrase given; a word or a phrase expected."),
    ):
        result = runner.invoke(app, ["complete", *flags], input=given)
        assert (result.exit_code, sentence in " ".join(result.stderr.split())) == (1, True), result.output
    monkeypatch.setattr("app.cli.complete._MOST_READ", 1 << 20)
    result = runner.invoke(app, ["complete"], input="a" * (1 << 20) + "b")
    assert "Standard input has more than 1 MB" in result.stderr


def test_what_is_never_suggested_comes_from_flags_and_a_file(fake: FakeAutocomplete, tmp_path: Path) -> None:
    path = tmp_path / "never.txt"
    path.write_text("# mine\nassist*\n\nkind\n")
    assert runner.invoke(app, ["complete", "T", "--never", "help", "--never-file", str(path)]).exit_code == 0
    assert asked(fake)["never"] == ("help", "assist*", "kind")


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        (b"# nothing\n", "contains no phrase, so --never-file changes nothing; leave it out."),
        (b"\xff\xfe\x00", "is no text in UTF-8"),
        (b"a" * 10_000_000, "is larger than 7 MB; give --never-file a list of at most 10,000 phrases."),
        (b"\n".join(b"%d" % n for n in range(10_001)), "10,001 phrases given; at most 10,000 expected."),
    ],
)
def test_a_file_without_phrases_gets_a_sentence(
    fake: FakeAutocomplete, tmp_path: Path, content: bytes, sentence: str
) -> None:
    (path := tmp_path / "never.txt").write_bytes(content)
    done = runner.invoke(app, ["complete", "T", "--never-file", str(path)])
    assert (done.exit_code, sentence in " ".join(done.output.split())) == (1, True), done.output


def test_lone_surrogates_are_replaced_and_reported(fake: FakeAutocomplete) -> None:
    result = runner.invoke(app, ["complete", "a\udcffb", "--json"])
    assert result.exit_code == 0
    assert asked(fake)["before"] == "a\ufffdb"
    assert "were replaced" in result.stderr


# --- errors ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "flags",
    [f"--{option.flag} {option.high + 1:g}" for option in DRAFTING.values() if option.kind in ("int", "float")]
    + ["--k 0", "--k many", "--tau nan", "--backend cuda"],
)
def test_a_value_out_of_range_is_refused_by_name(fake: FakeAutocomplete, flags: str) -> None:
    result = runner.invoke(app, ["complete", "T", *flags.split()])
    assert result.exit_code == 2
    assert flags.split()[0] in result.stderr
    assert fake.latest is None
    if "cuda" in flags:
        assert "'auto', 'torch', 'llama.cpp'" in said(result)


def test_prose_is_refused_where_no_adapter_is_for_the_model(fake: Any) -> None:
    result = runner.invoke(app, ["complete", "Once", "--prose"])
    assert result.exit_code == 1
    assert "no adapter to prose for Scripted" in said(result)
    assert runner.invoke(app, ["complete", "Once", "--no-prose"]).exit_code == 0
    assert not fake.prose
    assert runner.invoke(app, ["complete", "Once"]).exit_code == 0
    assert fake.prose
    fake.has_prose = True
    assert runner.invoke(app, ["complete", "Once", "--prose"]).exit_code == 0


def test_options_before_the_command_are_refused_not_ignored(fake: FakeAutocomplete) -> None:
    result = runner.invoke(app, ["--model", "x", "complete", "T"])
    assert result.exit_code == 2
    assert "--model" in result.stderr


@pytest.mark.parametrize(
    ("raised", "code", "message"),
    [
        (ModelFileError("It is\nno model."), 1, "Error: It is no model.\n"),
        (InputError("Too long."), 1, "Error: Too long.\n"),
        (KeyboardInterrupt(), 130, ""),
    ],
)
def test_errors_are_one_sentence_and_an_interrupt_is_quiet(
    monkeypatch: pytest.MonkeyPatch, raised: BaseException, code: int, message: str
) -> None:
    def fail(model: str, backend: str, **_: str) -> None:
        raise raised

    monkeypatch.setattr("core.autocomplete.load_autocomplete", fail)
    result = runner.invoke(app, ["complete", "T"])
    assert (result.exit_code, result.stdout, result.stderr) == (code, "", message)


@pytest.mark.parametrize(
    ("given", "count"),
    [({}, "10000"), ({"GOMP_SPINCOUNT": "7"}, "7"), ({"OMP_WAIT_POLICY": "active"}, None)],
    ids=["by default", "the user's count", "the user's policy"],
)
def test_waiting_threads_soon_sleep_unless_the_user_says_otherwise(
    monkeypatch: pytest.MonkeyPatch, given: dict[str, str], count: str | None
) -> None:
    for name in ("GOMP_SPINCOUNT", "OMP_WAIT_POLICY"):
        monkeypatch.setenv(name, given.get(name, ""))  # so that the test's end restores what stood there
        if name not in given:
            monkeypatch.delenv(name)
    monkeypatch.setattr("app.cli.main.main", lambda: None)
    __main__.main()
    assert os.environ.get("GOMP_SPINCOUNT") == count


def test_llama_cpp_refuses_another_precision(tiny_file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    flags = ["--model", str(tiny_file), "--backend", "llama.cpp", "--precision", "bfloat16"]
    result = runner.invoke(app, ["complete", "T", *flags])
    assert result.exit_code == 1
    said = "{}precision bfloat16 given for llama.cpp, which keeps the file's format; add {}backend torch."
    assert said.format("--", "--") in result.stderr
    with pytest.raises(OptionError) as refused:
        load_model(str(tiny_file), "llama.cpp", "bfloat16")
    assert in_fields(refused.value, {}) == (said.format("", ""), "precision")
    asked = {}
    monkeypatch.setattr("core.autocomplete.load_model", lambda *given: asked.update(given=given) or 1 / 0)
    with pytest.raises(ZeroDivisionError):
        runner.invoke(app, ["complete", "T", "--backend", "torch", "--precision", "bfloat16"], catch_exceptions=False)
    assert asked["given"] == ("default", "torch", "bfloat16")


# The program with each of these lines of arguments, in one process: most of its time is that of its imports.
