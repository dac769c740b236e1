"""Tokens of pieces, one after the other, are the tokens of the text, in every family that allows cuts."""

from __future__ import annotations

from functools import cache
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from tokenizers import AddedToken, Regex, Tokenizer, models, normalizers, pre_tokenizers

from core.models.cuts import Cuts, cuts_of
from core.models.hf_tokenizer import _PRE_TOKENIZERS, HFTokenizer, from_gguf
from ngram_builder.encoder import Encoder
from tests.tiny_vocabularies import LETTERS, PARTS, hard, of_bytes, sentencepiece

ADDED = ("<tag>", "[x", "a-b")  # tokens that are found before all others
WORDS = [
    "the",
    "The",
    "a",
    "word,",
    "word.\n",
    "(word);",
    "can't.",
    "I'LL",
    "1.",
    "2024",
    "x/y",
    "/",
    "e\u0301",
    "\u0301",
]
MARKS = [
    "  ",
    "\n",
    "\n\n",
    " \n",
    "\n ",
    "\t",
    "\r\n",
    "\u00a0",
    "\u3000",
    "\u200b",
    "\x1c",
    "<tag>",
    "[x]",
    "a-b",
    "\ud800",
]
text = st.lists(st.sampled_from([" "] * 20 + WORDS * 3 + MARKS + PARTS + list(LETTERS)), max_size=24).map("".join)


@cache
def tokenizer(name: str) -> HFTokenizer:
    fields = of_bytes(name) if name in _PRE_TOKENIZERS else sentencepiece(name == "prepending", verbatim=ADDED)
    metadata: dict[str, Any] = {}
    for key, field in fields.items():
        metadata[key] = field.value[1] if isinstance(field.value, tuple) else field.value
    made = from_gguf(metadata, len(metadata["tokenizer.ggml.tokens"]))
    assert made
    if name in _PRE_TOKENIZERS:
        made._backend.add_tokens([AddedToken(token, normalized=False) for token in ADDED])
        made.pieces += [token.encode() for token in ADDED]
    return made


@cache
def encoder(name: str) -> Encoder:
    cuts = tokenizer(name).cuts
    assert isinstance(cuts, Cuts)
    return Encoder(tokenizer(name).encode, cuts.pieces, cuts.prepends, cuts.words, cuts.verbatim)


def ids_of(name: str, text: str) -> list[int]:
    return [i - 1 for i in memoryview(encoder(name).text(text)).cast("I")]


FAMILIES = ["gpt-2", "smollm", "llama-bpe", "qwen2", "tekken", "gpt-4o", "prepending", "plain"]


@pytest.mark.parametrize("name", FAMILIES)
@settings(max_examples=300, deadline=None)
@given(text)
@example("")
@example(" ")
@example(" a  b \n c\n\n1 \n 1\n1 .\n/ x")
def test_tokens_of_pieces_are_those_of_the_text(name: str, text: str) -> None:
    assert ids_of(name, text) == tokenizer(name).encode(text)


@pytest.mark.parametrize("name", [*_PRE_TOKENIZERS, "prepending", "plain"])
def test_tokens_of_pieces_are_those_of_hard_texts(name: str) -> None:
    for text in hard(200):
        assert ids_of(name, text) == tokenizer(name).encode(text), text


@pytest.mark.parametrize("name", _PRE_TOKENIZERS)
@settings(max_examples=300, deadline=None)
@given(text)
@example("x\n/ y\n1\n 1")
def test_words_of_pieces_are_those_of_the_text(name: str, text: str) -> None:
    """Whatever the vocabulary can merge: every word is a token here."""
    divide = tokenizer(name)._backend.pre_tokenizer.pre_tokenize_str
    known = dict[str, int]()

    def encode(text: str) -> list[int]:
        return [known.setdefault(word, len(known)) for word, _ in divide(text)]

    cuts = tokenizer(name).cuts
    assert cuts
    assert cuts.words
    text = text.replace("\ud800", "")
    by_pieces = Encoder(encode, cuts.pieces, cuts.prepends, cuts.words, "").text(text)
    assert [i - 1 for i in memoryview(by_pieces).cast("I")] == encode(text)


def test_an_added_token_is_not_divided() -> None:
    cuts = cuts_of(with_token(content="a-b"), ())
    assert cuts
    encoded = list[str]()

    def encode(text: str) -> list[int]:
        encoded.append(text)
        return []

    Encoder(encode, cuts.pieces, cuts.prepends, cuts.words, cuts.verbatim).text("well-known, (xa-b).")
    assert encoded == ["well", "-known", ",", " (xa-b)."]


def test_usual_text_is_cut_at_spaces_and_line_ends() -> None:
    cuts = tokenizer("llama-bpe").cuts
    assert cuts
    assert Encoder(lambda _: [], cuts.pieces, False, "", "")._pieces("One  two.\nThree\n\nfour ") == [
        "One", "  two.\n", "Three\n\nfour "
    ]  # fmt: skip


def byte_level(**changed: Any) -> Tokenizer:
    backend = Tokenizer(models.BPE())
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    for name, value in changed.items():
        setattr(backend, name, value)
    return backend


def with_token(**options: Any) -> Tokenizer:
    backend = byte_level()
    backend.add_tokens([AddedToken(**options)])
    return backend


@pytest.mark.parametrize(
    "backend",
    [
        byte_level(pre_tokenizer=pre_tokenizers.ByteLevel(add_prefix_space=True)),
        byte_level(pre_tokenizer=pre_tokenizers.Whitespace()),
        byte_level(
            pre_tokenizer=pre_tokenizers.Sequence(
                [pre_tokenizers.Split(Regex(r"\w+ \w+"), "isolated"), pre_tokenizers.ByteLevel(False, use_regex=False)]
            )
        ),
        byte_level(normalizer=normalizers.NFKC()),
        byte_level(normalizer=normalizers.Strip()),
        byte_level(model=models.Unigram()),
        byte_level(model=models.BPE(dropout=0.5)),
        byte_level(model=models.BPE({"\u2581": 0, "a\u2581": 1, "a": 2}, []), pre_tokenizer=None),
        with_token(content="two words"),
        with_token(content="<x>", lstrip=True),
        with_token(content="<x>", single_word=True),
    ],
)
def test_an_unknown_family_is_not_cut(backend: Tokenizer) -> None:
    assert cuts_of(byte_level(), ()) is not None
    assert cuts_of(backend, ()) is None


def test_tokens_across_spaces_forbid_cuts() -> None:
    def spelt(vocab: dict[str, int]) -> Tokenizer:
        backend = Tokenizer(models.BPE(vocab, []))
        backend.normalizer = normalizers.Replace(" ", "\u2581")
        return backend

    assert cuts_of(spelt({"\u2581": 0, "a": 1, "\u2581a": 2, "\u2581\u2581": 3}), ()) is not None
    assert cuts_of(spelt({"\u2581": 0, "a": 1, "a\u2581": 2}), ()) is None
    assert cuts_of(spelt({"a": 1}), ()) is None
