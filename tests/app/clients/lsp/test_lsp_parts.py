"""Parts of the language server: positions, comments, the phrase of an accepted draft, and how a server is found."""

from __future__ import annotations

import io
import json
import re
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st
from lsprotocol import types
from pygls.workspace import PositionCodec

from app.clients.lsp.picked import Picked
from app.clients.lsp.places import BEFORE, in_comment
from app.clients.lsp.server import BoundedInput
from app.clients.lsp.settings import SECTION, EditorSettings
from app.clients.lsp.text import EditedDocument
from tests.paths import ROOT


@pytest.mark.parametrize(
    ("line", "character", "before"),
    [
        (0, 99, "a\x0cb\u2028c"),  # no line ends in this protocol
        (1, 0, "a\x0cb\u2028c\r"),
        (2, 1, "a\x0cb\u2028c\r🙂\nd"),
        (9, 0, "a\x0cb\u2028c\r🙂\nde"),
    ],
)
def test_lines_end_where_the_protocol_says(line: int, character: int, before: str) -> None:
    document = opened("a\x0cb\u2028c\r🙂\nde")
    assert document.source[: document.offset(types.Position(line, character))] == before


def opened(text: str) -> EditedDocument:
    return EditedDocument("file:///a.txt", text, 1, "plaintext", PositionCodec("utf-16"))


def place(text: str, at: int) -> types.Position:
    """The position of the protocol after a number of characters, which must not divide a line end."""
    lines = re.split(r"\r\n|\n|\r", text[:at])
    return types.Position(len(lines) - 1, len(lines[-1].encode("utf-16-le")) // 2)


@given(st.data())
def test_a_document_follows_its_changes(data: st.DataObject) -> None:
    texts = st.text("ab🙂\x0c\u2028\r\n", max_size=6)
    text = data.draw(texts)
    document = opened(text)
    for _ in range(4):
        places = [at for at in range(len(text) + 1) if text[at - 1 : at + 1] != "\r\n"]
        start, end = sorted((data.draw(st.sampled_from(places)), data.draw(st.sampled_from(places))))
        new, changed = data.draw(texts), types.Range(place(text, start), place(text, end))
        text = text[:start] + new + text[end:]
        document.apply_change(types.TextDocumentContentChangePartial(changed, new))
        assert document.source == text
        for at in (at for at in range(len(text) + 1) if text[at - 1 : at + 1] != "\r\n"):
            assert document.offset(place(text, at)) == at


def test_the_extension_for_vs_code_offers_every_setting() -> None:
    """`make test-clients` runs the extension itself."""
    package = json.loads((ROOT / "editors/vscode/package.json").read_text())
    offered = package["contributes"]["configuration"]["properties"]
    ours = {f"{SECTION}.{name}" for name in EditorSettings.model_fields}
    assert ours == {name for name in offered if name.startswith(f"{SECTION}.")}


def test_the_phrase_of_a_draft_has_the_last_words_of_its_line_alone() -> None:
    assert Picked.of("u", "No.\nAs we ", "said").phrase == "As we said"
    assert Picked.of("u", "a b c d e f g h wri", "ting").phrase == "d e f g h writing"


@pytest.mark.parametrize(
    ("language", "path", "text", "wanted"),
    [
        ("python", "a.py", "x = 1  # the sum|", True),
        ("python", "a.py", "# done|\nx = 1", True),
        ("python", "a.py", "# done\n|x = 1", False),
        ("python", "a.py", 'def f():\n    """Returns|"""\n', True),
        ("python", "a.py", 'def f():\n    """Returns"""|\n', False),
        ("python", "a.py", 'x = "# not a |comment"', False),
        ("c", "a.c", "/* one | two */ int x;", True),
        ("c", "a.c", "#include |<stdio.h>", False),
        ("rust", "a.rs", "// why|\r\nlet x;", True),
        ("typescriptreact", "a.tsx", "const x = 1; // why |", True),  # known by its name alone
        ("shellscript", "a.sh", "ls # list|", True),
        ("a language of its own", "a.unknown", "# |", False),
    ],
)
def test_comments_are_found_where_a_letter_would_belong_to_one(
    language: str, path: str, text: str, wanted: bool
) -> None:
    caret = text.index("|")
    assert in_comment(text.replace("|", "", 1), caret, language, path) is wanted


def test_a_message_that_no_editor_sends_ends_the_input_with_a_sentence(capsys: pytest.CaptureFixture[str]) -> None:
    given = BoundedInput(io.BytesIO(b"Content-Length: " + b"9" * 9999))
    assert given.readline() == given.read(2**70) == b""
    header, message = capsys.readouterr().err.splitlines()
    assert "A header line of 4096 bytes or more given" in header
    assert "A message of 1180591620717411303424 bytes given" in message


def test_comments_of_long_files_are_found_in_time() -> None:
    text = "value = compute(1, 2)  # as before\n" * 30_000
    assert len(text) > 10 * BEFORE
    began = time.perf_counter()
    assert in_comment(text, len(text) - 4, "python", "a.py")
    assert not in_comment(text, len(text) - 30, "python", "a.py")
    assert time.perf_counter() - began < 5
