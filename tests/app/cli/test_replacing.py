"""Commands with --out replace what they wrote themselves, and nothing else without --yes."""

from __future__ import annotations

from pathlib import Path

import pytest
from typer.testing import CliRunner

from app.cli import ngram as ngram_cli
from app.cli import personal as personal_cli
from app.cli.main import app
from core.ngram import NgramStore
from tests.ngram_tools import WordTokenizer
from tests.paths import ROOT

NOVEL = "1 2 3 4 1 2 3 4"


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, small_process: None) -> Path:
    tokenizer = WordTokenizer(8)
    for module in (personal_cli, ngram_cli):
        monkeypatch.setattr(module, "load_tokenizer", lambda name: tokenizer)
    monkeypatch.setattr(ngram_cli, "_tokenizer", lambda name: (tokenizer, "words"))
    monkeypatch.setattr(personal_cli, "stores_folder", lambda: tmp_path / "stores")
    monkeypatch.chdir(tmp_path)
    Path("novel.txt").write_text(NOVEL)
    ngram("add", "novel.txt", "--store", "me")
    ngram("build", "novel.txt", "-o", "a.ngram")
    return tmp_path


def ngram(*arguments: str, status: int = 0) -> str:
    done = CliRunner().invoke(app, ["ngram", *arguments])
    assert done.exit_code == status and isinstance(done.exception, SystemExit | None), (done.output, done.exception)
    return done.stderr


WRITING = {
    "build": ("build", "novel.txt"),
    "merge": ("merge", "a.ngram", "a.ngram"),
    "export": ("export", "--store", "me"),
    "compile": ("compile", "--store", "me"),
}


@pytest.mark.parametrize("command", WRITING.values(), ids=WRITING)
def test_a_file_of_another_kind_is_replaced_only_with_yes(command: tuple[str, ...]) -> None:
    other = Path("thesis.md")
    other.write_text("years of work")
    said = ngram(*command, "-o", "thesis.md", status=1)
    assert "thesis.md is there already, and would be lost" in said and "--yes" in said
    assert other.read_text() == "years of work"
    ngram(*command, "-o", "thesis.md", "--yes")
    assert other.read_bytes() != b"years of work"


def test_a_store_is_made_anew_and_an_export_is_not_replaced() -> None:
    for command in ("build", "merge", "compile"):
        ngram(*WRITING[command], "-o", "a.ngram")
        assert NgramStore.open("a.ngram").total([1, 2]) > 0
    ngram(*WRITING["export"], "-o", "me.zst")
    assert "would be lost" in ngram(*WRITING["export"], "-o", "me.zst", status=1)


def test_a_source_is_never_replaced() -> None:
    Path("beside").symlink_to("novel.txt")
    for out in ("novel.txt", "beside"):
        said = ngram("build", ".", "-o", out, "--yes", status=1)
        assert f"{out} is one of the sources" in said
    assert Path("novel.txt").read_text() == NOVEL


def test_training_and_calibrating_leave_other_folders_and_files_alone() -> None:
    Path("model").mkdir()
    Path("model/config.json").write_text("{}")
    for command in (
        ("train", "eagle3", "novel.txt", "-o", "model"),
        ("train", "prose", "--text", "novel.txt", "-o", "model"),
        ("train", "average", "a", "b", "--held-out", "novel.txt", "-o", "model"),
        ("calibrate", "--out", "novel.txt"),
    ):
        done = CliRunner().invoke(app, command)
        assert (done.exit_code, "is there already, and would be lost" in done.stderr) == (1, True), done.output


def test_every_command_with_out_asks_before_it_replaces() -> None:
    for path in (ROOT / "app/cli").glob("*.py"):
        code = path.read_text(encoding="utf-8")
        commands = code.count('"--out"') + code.count("    out: Out") + code.count("out: Annotated[Path | None")
        assert code.count("refuse_to_replace(out") >= commands - code.count("Out = Annotated"), path.name
