"""Background: text that the model reads before the document, and that is no part of it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from core.autocomplete import Autocomplete
from core.completion import Completion
from core.session import Session, background_ids
from tests.completing import complete

MAIL = "Anna asks whether the quay wardens may log the tide before noon."


@pytest.fixture
def session(tiny_autocomplete: Autocomplete) -> Iterator[Session]:
    session = tiny_autocomplete.open()
    yield session
    session.close()


def completed(session: Session, before: str, background: str) -> Completion:
    return complete(session, before, k=3, length=4, background=background).finish()


def test_the_model_reads_the_background_as_a_paragraph_before_the_text(session: Session) -> None:
    tokenizer = session.equipped.model.tokenizer
    for background, has in ((MAIL, True), (f"{MAIL}\n\n\n", True), (" \n", False)):
        completed(session, "Dear Anna,", background)
        read = tokenizer.decode([i for i in session.sequence.inputs if isinstance(i, int)])
        assert read.startswith(f"{MAIL}\n\nDear") is has
        assert ("tide" in read) is has
    assert completed(session, "", MAIL).step > 0, "a background alone begins the text"


def test_the_background_is_read_once_and_changes_the_drafts_probabilities(session: Session) -> None:
    plain = completed(session, "Dear Anna, ", "")
    first = completed(session, "Dear Anna, ", MAIL)
    assert first.fed > len(MAIL) // 8
    assert completed(session, "Dear Anna, I", MAIL).fed <= 4
    assert [d.p_joint for d in first.drafts] != [d.p_joint for d in plain.drafts]


def test_the_nearest_half_of_the_window_is_read_and_the_text_has_the_rest(session: Session) -> None:
    window, encode = session.equipped.window, session.equipped.model.tokenizer.encode
    start = len(session.equipped.model.tokenizer.start_ids)
    long = " ".join(f"note {n}" for n in range(4 * window))
    completed(session, "Dear Anna, thank", long)
    inputs = session.sequence.inputs
    assert inputs[start : start + window // 2] == encode(f"{long}\n\nI")[-(window // 2) - 1 : -1]
    text = "The tide is high today. " * window
    lengths = set()
    for n in range(4):
        completed(session, text + "and so"[:n], long)
        assert session.sequence.inputs[start : start + window // 2] == inputs[start : start + window // 2]
        lengths.add(len(session.sequence.inputs))
    assert max(lengths) <= start + window + 8
    assert min(lengths) > window // 2 + window // 4


def test_the_empty_line_has_the_tokens_that_it_has_before_a_text(session: Session) -> None:
    tokenizer = session.equipped.model.tokenizer
    ids = background_ids(tokenizer, MAIL)
    assert tokenizer.decode(ids) == f"{MAIL}\n\n"
    for text in ("Dear Anna", "The tide", "“No"):
        assert tokenizer.encode(f"{MAIL}\n\n{text}")[: len(ids)] == ids
    assert background_ids(tokenizer, "") == []


def test_a_file_is_the_background_on_the_command_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from typer.testing import CliRunner

    from app.cli.main import app
    from tests.fake_autocomplete import FakeAutocomplete

    fake = FakeAutocomplete()
    monkeypatch.setattr("core.autocomplete.load_autocomplete", lambda *_, **__: fake)
    (tmp_path / "mail.txt").write_text(MAIL, encoding="utf-8")
    result = CliRunner().invoke(app, ["complete", "Dear", "--background", str(tmp_path / "mail.txt")])
    assert result.exit_code == 0, result.output
    assert fake.latest is not None
    assert (fake.latest.before, fake.latest.ask.background) == ("Dear", MAIL)
    (tmp_path / "empty.txt").write_text("\n")
    (tmp_path / "odd.txt").write_bytes(b"\xff\xfe\xff")
    for name, said in (("empty.txt", "contains no text"), ("odd.txt", "no text in UTF-8"), ("none.txt", "none.txt")):
        result = CliRunner().invoke(app, ["complete", "Dear", "--background", str(tmp_path / name)])
        assert result.exit_code == 1
        assert said in result.output


def test_an_answer_says_how_much_of_the_text_and_of_its_background_is_not_read(session: Session) -> None:
    tokenizer, window = session.equipped.model.tokenizer, session.equipped.window
    long = " ".join(f"note {n}" for n in range(4 * window))
    text = "The tide is high today; naïve sailors wait. " * window
    for before, background in ((text, ""), (text, long), ("Dear Anna", long), ("Dear Anna", MAIL)):
        done = completed(session, before, background)
        read = tokenizer.decode([i for i in session.sequence.inputs if isinstance(i, int)])
        expected = f"{background[done.background_skipped :]}\n\n" * bool(background) + before[done.skipped :]
        assert expected.startswith(read)
        assert len(expected) - len(read) <= len(" Anna")  # which a draft may finish
        assert (done.skipped > 0, done.background_skipped > 0) == (before is text, background is long)
