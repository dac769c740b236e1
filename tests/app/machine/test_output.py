"""What commands print: no name controls the terminal, and JSON is JSON in every encoding."""

from __future__ import annotations

import io
import json
import re
import sys
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from app.cli import doctor
from app.cli import ngram as ngram_cli
from app.cli import personal as personal_cli
from app.cli.main import app
from app.machine.output import plain, say_json, visible
from core.models import listed
from core.models.located import default_model_path
from core.models.on_machine import ModelFile
from core.models.probe import ProbeResult
from tests.ngram_tools import WordTokenizer
from tests.paths import ROOT

# Colours, a title, a bell, brackets that open and close rich's styles, an emoji by name, the other direction
EVIL = "a\x1b[31m\x1b]0;x\x07[red]:cat:\u202eb["
SHOWN = r"a\x1b[31m\x1b]0;x\x07[red]:cat:\u202eb["
CONTROL = re.compile("[\x00-\x09\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")
TOKENIZER = WordTokenizer(64)


@pytest.fixture(autouse=True)
def data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(personal_cli, "load_tokenizer", lambda name: TOKENIZER)
    monkeypatch.setattr(ngram_cli, "load_tokenizer", lambda name: TOKENIZER)
    monkeypatch.setattr(ngram_cli, "_tokenizer", lambda name: (TOKENIZER, EVIL))
    monkeypatch.setattr(personal_cli, "stores_folder", lambda: tmp_path / "stores")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "400")
    return tmp_path


def said(*arguments: str, status: int = 0, shown: str = SHOWN) -> str:
    """The output of a command, which prints `EVIL`, and what would control the terminal as escapes."""
    result = CliRunner().invoke(app, arguments)
    assert isinstance(result.exception, SystemExit | None), result.exception
    assert result.exit_code == status, result.output
    assert not CONTROL.search(result.output), ascii(result.output)
    assert shown in re.sub(r"\s+", " ", result.output), result.output
    return result.output


@pytest.mark.usefixtures("small_process")
def test_no_name_of_a_store_or_a_file_controls_the_terminal(data: Path) -> None:
    text = data / f"{EVIL}.txt"
    text.write_text("1 2 3 4 1 2 3 4")
    (data / f"{EVIL}.jsonl").write_text("{broken")
    store = f"{EVIL}.ngram"
    said("ngram", "build", str(text), "-o", store, "--min-count", "1", "--orders", "2-3")
    said("ngram", "build", f"{EVIL}.jsonl", str(text), "-o", "other", "--max-bad", "100%")
    said("ngram", "stats", "--store", store)
    said("ngram", "merge", store, store, "-o", f"{EVIL}.sum")
    said("ngram", "add", EVIL, "--store", "me", status=1)
    said("ngram", "add", text.name, "--store", "me", shown="Added 1 files")
    said("ngram", "query", "1 2", "--store", "me", shown=SHOWN + ".txt (2)")
    said("ngram", "stats", "--store", "me")
    said("ngram", "export", "--store", "me", "-o", f"{EVIL}.zst")
    said("ngram", "import", f"{EVIL}.zst", "--store", "you")
    said("ngram", "compile", "--store", "me", "-o", f"{EVIL}.compiled")
    for command in (("forget", "--phrase", "x"), ("switch", "on"), ("export", "-o", "x"), ("compile", "-o", "x")):
        said("ngram", *command, "--store", EVIL, status=1)
    said("ngram", "delete", EVIL, status=1)
    said("ngram", "stats", "--store", "[/b].ngram", status=1, shown="[/b].ngram")


def test_no_words_of_a_text_control_the_terminal(monkeypatch: pytest.MonkeyPatch, data: Path) -> None:
    said("ngram", "add", "--store", "me", "--phrase", "1 2 3", shown="Added 0 files")
    monkeypatch.setattr(TOKENIZER, "decode", lambda ids: f"see [/b]{EVIL}")
    said("ngram", "query", "1 2", "--store", "me", shown=repr(f"see [/b]{EVIL}"))


def test_no_name_of_a_model_controls_the_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    name = f"{EVIL}.gguf"
    said("complete", "x", "--model", name, status=1)
    Path(name).write_bytes(EVIL.encode())
    said("complete", "x", "--model", name, status=1)
    monkeypatch.setattr(doctor.probe, "probe", lambda *_: ProbeResult(False, f"it is {EVIL}"))
    assert said("doctor", "--model", name, status=1).count(SHOWN) > 3
    monkeypatch.setattr("core.models.on_machine.on_machine", lambda: [ModelFile(default_model_path(), EVIL, "x", 1)])
    listed._of_file.cache_clear()
    said("models", "--no-speed")
    listed._of_file.cache_clear()
    said("models", "get", EVIL, status=1)
    for arguments in (("serve", "--backend", EVIL), (EVIL,)):
        said(*arguments, status=2, shown="\\x1b[31m")


def test_every_command_prints_by_way_of_one_file() -> None:
    """What it prints there is made visible."""
    files = [path for room in ("cli", "web", "machine") for path in (ROOT / "app" / room).rglob("*.py")]
    prints = re.compile(r"typer\.echo|secho|json\.dumps\(|(?<![\w.])print\(|from rich\.markup import")
    found = {path.name: prints.findall(path.read_text(encoding="utf-8")) for path in files}
    found = {name: used for name, used in found.items() if used}
    assert found.pop("output.py")
    assert all(name in ("stores.py", "uploads.py", "panel.py", "draft_editor.py") for name in found), (
        found
    )  # JSON of responses and pages


def test_what_is_visible_is_left_as_it_is() -> None:
    text = "na\u00efve \U0001f469\u200d\U0001f680 \u05d0\u05d1 [b] caf\u00e9"
    assert visible(text) == text and plain(text).plain == text and not plain("[b]x[/b]").spans


@pytest.mark.parametrize("encoding", ["ascii", "latin-1", "cp1252", "utf-8"])
@pytest.mark.parametrize("errors", ["backslashreplace", "strict"])
def test_json_is_json_in_every_encoding(monkeypatch: pytest.MonkeyPatch, encoding: str, errors: str) -> None:
    data: Any = {"text": "caf\u00e9 \U0001f642 \u202e", "nothing": float("nan"), "rows": [{"x": float("-inf")}, (1,)]}
    written = io.BytesIO()
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(written, encoding, errors))
    say_json(data)
    sys.stdout.flush()

    def refuse(constant: str) -> None:
        raise AssertionError(constant)

    found = json.loads(written.getvalue().decode(encoding), parse_constant=refuse)
    assert found == {"text": data["text"], "nothing": None, "rows": [{"x": None}, [1]]}
    if encoding == "utf-8":
        assert "\U0001f642".encode() in written.getvalue(), "people read it"
