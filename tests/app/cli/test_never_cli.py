"""`complete --never` and `--never-file`: what is never suggested, and sentences for what is no phrase."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from app.cli.main import app
from core.phrases import Phrases

TEXT = "Thank you very much for your"


def drafts(*flags: str) -> list[str]:
    done = CliRunner().invoke(app, ["complete", TEXT, "--json", *flags])
    assert done.exit_code == 0, done.output
    return [draft["text"] for draft in json.loads(done.stdout)["drafts"]]


def test_no_draft_contains_the_phrases_of_the_flags_and_of_the_file(tmp_path: Path) -> None:
    (tmp_path / "never.txt").write_text("# mine\nassist*\n\nkind\n")
    plain = drafts("--k", "3")
    refused = ["help", "assist*", "kind"]
    assert any(Phrases.of(refused).within(text) for text in plain)
    steered = drafts("--k", "3", "--never", "help", "--never-file", str(tmp_path / "never.txt"))
    assert steered
    assert not any(Phrases.of(refused).within(text) for text in steered)


@pytest.mark.parametrize(
    ("flags", "content", "sentence"),
    [
        (["--never", "*"], None, "'*' given; * stands for any ending of a word"),
        (["--never", " "], None, "An empty phrase given; a word or a phrase expected."),
        ([], b"# nothing\n", "contains no phrase, so --never-file changes nothing; leave it out."),
        ([], b"\xff\xfe\x00", "is no text in UTF-8"),
        ([], b"a" * 10_000_000, "is larger than 7 MB; give --never-file a list of at most 10,000 phrases."),
        ([], b"\n".join(b"%d" % n for n in range(10_001)), "10,001 phrases given; at most 10,000 expected."),
    ],
)
def test_what_is_no_phrase_gets_a_sentence(
    tmp_path: Path, flags: list[str], content: bytes | None, sentence: str
) -> None:
    if content is not None:
        (path := tmp_path / "never.txt").write_bytes(content)
        flags = ["--never-file", str(path)]
    done = CliRunner().invoke(app, ["complete", TEXT, *flags])
    assert done.exit_code == 1
    assert sentence in " ".join(done.output.split())
