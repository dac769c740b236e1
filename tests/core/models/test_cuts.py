"""Tokens of pieces, one after the other, are the tokens of the text, in every family that allows cuts."""

from __future__ import annotations

import json
from dataclasses import asdict
from functools import cache
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from tokenizers import AddedToken, Regex, Tokenizer, models, normalizers, pre_tokenizers

from core.models.cuts import Cuts, cuts_of
from core.models.hf_tokenizer import _PRE_TOKENIZERS, _WHOLE, HFTokenizer, from_gguf
from ngram_builder.encoder import Encoder
from tests.tiny_vocabularies import LETTERS, PARTS, of_bytes, sentencepiece

ADDED = ("<tag>", "[x", "a-b")  # tokens that are found before all others
WHITE = ("\n", "\n\n", "  ", "\u2581\u2581", "\t", " x")  # more of them, as Gemma has
ACROSS = ["e \u2581", "e\u2581 t", "e\u2581 \u2581", ". \u2581a"]  # merges across spaces
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
    "\u2581",
    "\U0001f469\u200d\U0001f467",
    "\u6f22\u5b57",
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


def metaspace(scheme: Any, split: bool = False) -> dict[str, Any]:
    return {"normalizer": None, "pre_tokenizer": pre_tokenizers.Metaspace(prepend_scheme=scheme, split=split)}


GEMMA = {"pre_tokenizer": pre_tokenizers.Split(" ", "merged_with_previous")}
CHANGED: dict[str, tuple[str, dict[str, Any]]] = {  # tokenizers of files that are no GGUF files
    "gemma": ("plain", GEMMA),
    "always": ("plain", metaspace("always")),
    "first": ("plain", metaspace("first")),
    "never": ("plain", metaspace("never")),
    "split": ("plain", metaspace("first", split=True)),
}


@cache
def tokenizer_of(name: str) -> HFTokenizer:
    """Also with merges across spaces, if `name` ends with a "+"."""
    base, changed = CHANGED.get(name.rstrip("+"), (name.rstrip("+"), {}))
    if name == base:
        return tokenizer(name)
    stated = json.loads(tokenizer(base)._backend.to_str())
    if name.endswith("+"):
        model = stated["model"]
        for merge in ACROSS:
            model["vocab"].setdefault(merge.replace(" ", ""), len(model["vocab"]) + len(ADDED))
        model["merges"] = [*(merge.split(" ") for merge in ACROSS), *model["merges"]]
    backend = Tokenizer.from_str(json.dumps(stated))
    for key, value in changed.items():
        setattr(backend, key, value)
    if base != "prepending":
        backend.add_tokens([AddedToken(token, normalized=False) for token in WHITE])
    pieces = [b""] * backend.get_vocab_size(with_added_tokens=True)
    return HFTokenizer(backend, pieces, [], names={}, eos_ids=[], bos_id=None, start_ids=[])


@cache
def encoder(name: str) -> Encoder:
    cuts = tokenizer_of(name).cuts
    assert isinstance(cuts, Cuts)
    return Encoder(tokenizer_of(name).encode, cuts.pieces, cuts.prepends, cuts.words, cuts.verbatim)


def ids_of(name: str, text: str) -> list[int]:
    return [i - 1 for i in memoryview(encoder(name).text(text)).cast("I")]


SENTENCEPIECE = ["prepending", "prepending+", "plain", "gemma", "gemma+", "always", "first+", "never+", "split+"]
# A name for each way to split words and to look them up.
BYTE_LEVEL = [*{(split, name in _WHOLE): name for name, split in _PRE_TOKENIZERS.items()}.values()]


@pytest.mark.parametrize("name", [*BYTE_LEVEL, *SENTENCEPIECE])
@settings(max_examples=100, deadline=None)
@given(text)
@example("")
@example(" ")
@example(" a  b \n c\n\n1 \n 1\n1 .\n/ x")
def test_tokens_of_pieces_are_those_of_the_text(name: str, text: str) -> None:
    assert ids_of(name, text) == tokenizer_of(name).encode(text)


@pytest.mark.parametrize("name", BYTE_LEVEL)
@settings(max_examples=100, deadline=None)
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
        byte_level(model=models.BPE({"\u2581": 0}, []), pre_tokenizer=None),
        byte_level(model=models.BPE({"\u2581": 0}, []), pre_tokenizer=pre_tokenizers.Metaspace("_")),
        with_token(content="two words"),
        with_token(content="<x>", lstrip=True),
        with_token(content="<x>", single_word=True),
    ],
)
def test_an_unknown_family_is_not_cut(backend: Tokenizer) -> None:
    assert cuts_of(byte_level(), ()) is not None
    assert cuts_of(backend, ()) is None


def spelt(vocab: list[str], **model: Any) -> Tokenizer:
    backend = Tokenizer(models.BPE({token: i for i, token in enumerate(vocab)}, [], **model))
    backend.normalizer = normalizers.Replace(" ", "\u2581")
    return backend


def test_texts_are_not_cut_where_they_spell_a_token_across_a_space() -> None:
    cuts = cuts_of(spelt(["\u2581", "a", ">", "\u2581a", "\u2581\u2581", ">\u2581</"]), ())
    assert cuts
    assert Encoder(lambda _: [], **asdict(cuts))._pieces("a> </a > </ > a") == ["a> </a", " > </", " >", " a"]


@pytest.mark.parametrize(
    "backend",
    [
        spelt(["a"]),
        spelt(["\u2581"], ignore_merges=True),
        spelt(["\u2581", *(f"{letter}\u2581" for letter in "abcdefghijklmnopq")]),
        spelt(["\u2581", "?", "?\u2581a"], unk_token="?"),
        spelt(["\u2581", "<0x0A>\u2581"]),
        spelt(["\u2581", "\ufffd\u2581"]),
    ],
)
def test_other_merges_across_spaces_forbid_cuts(backend: Tokenizer) -> None:
    assert cuts_of(backend, ()) is None


def test_an_added_token_across_a_space_forbids_cuts() -> None:
    for content, normalized, cut in (("\n\n", False, True), ("  ", True, False), ("a b", False, False)):
        backend = spelt(["\u2581"])
        backend.add_tokens([AddedToken(content, normalized=normalized)])
        assert (cuts_of(backend, ()) is not None) == cut
