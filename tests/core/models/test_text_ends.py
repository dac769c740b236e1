"""The tokens of a text that goes on are those that it has when the next word stands there, in every vocabulary."""

from __future__ import annotations

import pytest
from test_gguf_tokenizers import VOCABULARIES
from tiny_gguf import tiny

from core.models import gguf_file
from core.models.hf_tokenizer import from_gguf
from core.models.tokenizer import Tokenizer, joins_next_word

ENDS = (
    "",
    "Dear all,\n",
    "Dear all,\n\n",
    "Dear all,\r\n\r\n",
    "Dear all.\n\n\n",
    "Dear all, ",
    "Dear all,  ",
    "Dear all,\n\n    ",
    "Dear all,\n\t",
    "We need\n\n- ",
    "We need\n\n  * ",
    "1. ",
    "> ",
    "## ",
    "Dear all",
    "Dear all.",
    'He said: "No."',
)
OPENED = ("He said: “", 'He said: "', "He said: '", "He said (", "He said ([", '"')
WORDS = ("I", "The", "apple", "we")


@pytest.fixture(params=VOCABULARIES, scope="module")
def tokenizer(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Tokenizer:
    path = tmp_path_factory.mktemp("vocabulary") / "tiny.gguf"
    path.write_bytes(tiny(tokenizer=VOCABULARIES[request.param]()).written())
    file = gguf_file.read(path)
    found = from_gguf(file.fields, len(file.fields["tokenizer.ggml.tokens"]))
    assert found is not None
    return found


def test_the_tokens_before_the_next_word_are_those_of_the_whole_text(tokenizer: Tokenizer) -> None:
    for text in ENDS:
        ids, rest = tokenizer.encode_to_go_on(text)
        assert text.encode().endswith(rest)
        # Some vocabularies put a space of their own before a text and after an empty line.
        assert tokenizer.decode(ids).replace(" ", "") == text[: len(text) - len(rest)].replace(" ", "")
        for word in WORDS:
            whole = tokenizer.encode(text + ("" if joins_next_word(text) else " ") + word)
            assert whole[: len(ids)] == ids, (text, word)


def test_an_opening_mark_is_read_or_part_of_the_next_token(tokenizer: Tokenizer) -> None:
    for text in OPENED:
        ids, rest = tokenizer.encode_to_go_on(text)
        assert tokenizer.decode(ids).lstrip(" ").encode() + rest == text.encode()
        assert tokenizer.encode(f"{text}I")[: len(ids)] == ids


def test_a_document_begins_with_the_models_own_first_token_or_after_a_paragraph(tokenizer: Tokenizer) -> None:
    first, *paragraph = tokenizer.beginning
    assert first in tokenizer.special_ids or tokenizer.pieces[first]
    assert tokenizer.start_ids == [first] if not paragraph else tokenizer.decode(paragraph).endswith(".\n\n")
    for word in WORDS:
        assert tokenizer.encode(f"{tokenizer.decode(paragraph)}{word}")[: len(paragraph)] == paragraph


@pytest.mark.parametrize(
    ("text", "joins"),
    [
        *((text, True) for text in ("", "a ", "a\n", "a (", "a “", 'a "', "'", '"')),
        *((text, False) for text in ("a", "a.", 'a."', "a”", "a)", "don'")),
    ],
)
def test_the_next_word_joins_white_space_and_opening_marks(text: str, joins: bool) -> None:
    assert joins_next_word(text) is joins
