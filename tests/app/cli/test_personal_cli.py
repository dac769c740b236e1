"""`polydraft ngram` for personal stores, end to end, with a tokenizer of plain numbers."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from app.cli import personal as personal_cli
from app.cli.main import app
from core.ngram import NgramStore
from tests.ngram_tools import WordTokenizer

runner = CliRunner()
TOKENIZER = WordTokenizer(64)


@pytest.fixture(autouse=True)
def data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(personal_cli, "load_tokenizer", lambda name: TOKENIZER)
    folder = tmp_path / "data"
    monkeypatch.setattr(personal_cli, "stores_folder", lambda: folder)
    return folder


def ngram(*arguments: str, status: int = 0) -> str:
    result = runner.invoke(app, ["ngram", *arguments])
    assert result.exit_code == status, result.output
    return result.stdout if status == 0 else result.stderr


def rows(*arguments: str) -> list[dict[str, Any]]:
    return json.loads(ngram(*arguments, "--json"))["rows"]


def test_add_query_and_stats(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("1 2 3 4")
    (tmp_path / "b.md").write_text("1 2 5")
    assert rows("add", str(tmp_path / "a.txt"), str(tmp_path / "b.md"), "--store", "me", "--phrase", "7 8")[0] == {
        "store": "me",
        "files": 2,
        "tokens": 9,
        "damaged": 0,
    }
    found = rows("query", "1 2", "--store", "me")
    assert [row["order"] for row in found] == [3, 2]
    following = {entry["text"]: (entry["count"], list(entry["from"])) for entry in found[0]["continuations"]}
    assert following == {"3": (8, [str(tmp_path / "a.txt")]), "5": (8, [str(tmp_path / "b.md")])}
    assert "a.txt" in ngram("query", "1 2", "--store", "me")
    listed = rows("stats", "--store", "me")[0]
    assert [document["tokens"] for document in listed["documents"]] == [4, 3, 2]
    assert listed["enabled"]
    assert not listed["learning"]
    assert "9 tokens" in ngram("stats", "--store", "me")


def test_forget_a_document_or_a_phrase(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "a.txt").write_text("1 2 3 4")
    monkeypatch.chdir(tmp_path)
    ngram("add", "a.txt", "--store", "me", "--phrase", "7 8 9")

    def forget(*what: str) -> tuple[int, int, int, int]:
        row = rows("forget", *what, "--store", "me")[0]
        return row["documents"], row["passages"], row["occurrences"], row["characters"]

    assert forget("--phrase", "8") == (0, 1, 1, 1)
    assert forget("--phrase", "a.txt") == forget("--document", "1 2") == (0, 0, 0, 0)
    assert forget("--document", "a.txt", "--dry-run") == (1, 1, 0, 7)
    assert "would be forgotten" in ngram("forget", "--phrase", "1 2", "--dry-run", "--store", "me")
    assert forget("--document", "a.txt") == (1, 1, 0, 7)  # as it was named, from the same folder
    assert forget("--document", "a.txt") == (0, 0, 0, 0)
    assert rows("query", "1 2", "--store", "me") == []


@pytest.mark.parametrize(
    "given", [["8"], ["old words"], [], ["--document", "8", "--phrase", "8"], ["8", "--phrase", "8"]]
)
def test_what_is_called_neither_document_nor_phrase_is_not_forgotten(given: list[str]) -> None:
    ngram("add", "--store", "me", "--phrase", "7 8 9")
    said = ngram("forget", *given, "--store", "me", status=1)
    assert "forget --document NAME" in said
    assert "forget --phrase TEXT" in said
    assert rows("stats", "--store", "me")[0]["tokens"] == 3


def test_delete_needs_confirmation_and_works_for_a_damaged_store(data: Path) -> None:
    ngram("add", "--store", "me", "--phrase", "7 8 9")
    assert runner.invoke(app, ["ngram", "delete", "me"], input="n\n").exit_code == 1
    assert rows("query", "7", "--store", "me")
    assert "3 tokens" in runner.invoke(app, ["ngram", "delete", "me"], input="y\n").output
    assert list(data.iterdir()) == []
    (data / "broken.sqlite").write_bytes(b"no database at all")
    assert "broken is deleted" in ngram("delete", "broken", "--yes")
    assert list(data.iterdir()) == []
    assert "no personal store called 'me'" in ngram("delete", "me", "--yes", status=1)


def test_a_command_that_adds_nothing_leaves_no_new_store(tmp_path: Path, data: Path) -> None:
    (tmp_path / "bad.jsonl.zst").write_bytes(b"no export at all")
    assert "Nothing was added" in ngram("import", str(tmp_path / "bad.jsonl.zst"), "--store", "me", status=1)
    ngram("add", str(tmp_path / "missing.txt"), "--store", "me", status=1)
    assert list(data.iterdir()) == []
    ngram("add", "--store", "me", "--phrase", "7 8 9")
    ngram("import", str(tmp_path / "bad.jsonl.zst"), "--store", "me", status=1)
    assert rows("stats", "--store", "me")[0]["tokens"] == 3


def test_a_store_travels(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("1 2 3 4 " * 200)
    ngram("add", str(tmp_path / "a.txt"), "--store", "me", "--phrase", "7 8 9")
    ngram("forget", "--phrase", "7 8", "--store", "me")
    out = tmp_path / "me.jsonl.zst"
    assert rows("export", "--store", "me", "-o", str(out))[0]["documents"] == 2
    for _ in range(2):  # a second time changes nothing
        ngram("import", str(out), "--store", "you")
        assert rows("query", "1 2", "--store", "you") == rows("query", "1 2", "--store", "me")
    assert rows("stats", "--store", "you")[0]["tokens"] == rows("stats", "--store", "me")[0]["tokens"]
    ngram("add", "--store", "third", "--phrase", "30 31")
    ngram("merge", "me", "third", "-o", "all")
    assert rows("stats", "--store", "all")[0]["tokens"] == 803
    assert rows("query", "30", "--store", "all")


def test_a_damaged_export_changes_nothing(tmp_path: Path) -> None:
    ngram("add", "--store", "me", "--phrase", "7 8 9")
    out = tmp_path / "me.jsonl.zst"
    ngram("export", "--store", "me", "-o", str(out))
    whole = out.read_bytes()
    for damaged in (whole[: len(whole) // 2], whole[:-20], b"junk", b"", whole[:20] + b"x" + whole[21:]):
        out.write_bytes(damaged)
        assert "Error" in ngram("import", str(out), "--store", "you", status=1)
        assert "no personal store called 'you'" in ngram("stats", "--store", "you", status=1)


def test_compile_writes_the_same_counts(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("1 2 3 1 2 3 1 2 4 " * 60)
    ngram("add", str(tmp_path / "a.txt"), "--store", "me")
    ngram("compile", "--store", "me", "-o", str(tmp_path / "me.ngram"))
    compiled = NgramStore.open(tmp_path / "me.ngram", TOKENIZER.fingerprint, verify=True)
    assert compiled.count([1, 2, 3]) == 120
    assert compiled.count([2, 4]) == 60
    assert compiled.total([1, 2]) == 180
    ngram("add", "--store", "empty", "--phrase", "1")
    ngram("forget", "--phrase", "1", "--store", "empty")
    assert "empty" in ngram("compile", "--store", "empty", "-o", str(tmp_path / "no.ngram"), status=1)


def test_switches() -> None:
    ngram("add", "--store", "me", "--phrase", "1 2")
    ngram("switch", "off", "--store", "me")
    ngram("switch", "on", "--store", "me", "--learning")
    listed = rows("stats", "--store", "me")[0]
    assert (listed["enabled"], listed["learning"]) == (False, True)
    assert "on or off" in ngram("switch", "maybe", "--store", "me", status=1)
