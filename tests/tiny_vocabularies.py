"""Vocabularies trained here, as a GGUF file states them, and texts that are hard to divide into words."""

from __future__ import annotations

import json
import random
from functools import cache
from typing import Any

from tiny_gguf import ARRAY, BOOL, FLOAT, I32, TEXT, U32, Field
from tokenizers import Regex, Tokenizer, models, normalizers, pre_tokenizers, trainers

from core.models.hf_tokenizer import _PRE_TOKENIZERS
from tests.paths import ROOT

VERBATIM = ("\n\n", "  ")  # tokens that are found before all others
LETTERS = (
    "aàáāăąbcçdeèéfgğhiıİjklłmnñoøœpqrsßtuüvwxyz ABCDEÉFGHIJKLMNOPQRSTUVWXYZ 0123456789 .,;:!?'\"-_/\\()[]{}<>@#$%^&*+="
    "~`| \n\r\t\u00a0\u2003\u200b\u3000 ÀΑαΩωБбЖжЯяאבשقمن漢字かなカナ한국어ไทยहिन्दी ²½Ⅷ٣ a\u0301e\u0308 "
    "👩\u200d👧🇩🇪🤦🏽 \x00\x1b\x7f\ufeff"
)
PARTS = ["I'm", "we'LL", "don't", "O'Neil", "  ", "\n\n", " \n ", "\t\t", "12345", "3.14", "CamelCase", "HTTPServer"]
PARTS += ["naïve", "</s>", "e\u0301", "http://a.b/c", "//\n", "…", "ﬁ", "<0x41>", "▁", "▁▁a", "   x", "'s", "'S", "ǅ"]
PARTS += ["\r\n"]


def hard(count: int = 1000, seed: int = 1) -> list[str]:
    rng = random.Random(seed)
    found = []
    for _ in range(count):
        pieces = [rng.choice(PARTS) if rng.random() < 0.4 else rng.choice(LETTERS) for _ in range(rng.randrange(1, 25))]
        found.append(rng.choice(("", " ")).join(pieces))
    return found


@cache
def corpus() -> list[str]:
    return [path.read_text() for path in sorted(ROOT.joinpath("docs").glob("*.md"))[:3]] + hard(300, 2)


@cache
def of_bytes(pre: str) -> dict[str, Field]:
    """A byte-level vocabulary of 600 tokens whose words are split as `pre` says."""
    digits, pattern = _PRE_TOKENIZERS[pre]
    trained = Tokenizer(models.BPE())
    splits: list[Any] = [pre_tokenizers.Digits(individual_digits=True)] if digits else []
    splits += [] if pattern is None else [pre_tokenizers.Split(Regex(pattern), behavior="isolated")]
    splits.append(pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=pattern is None))
    trained.pre_tokenizer = pre_tokenizers.Sequence(splits)
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    trained.train_from_iterator(
        corpus(), trainers.BpeTrainer(vocab_size=600, initial_alphabet=alphabet, show_progress=False)
    )
    vocab = trained.get_vocab()
    tokens = [*sorted(vocab, key=vocab.__getitem__), "<|endoftext|>"]
    merges = [" ".join(pair) for pair in json.loads(trained.to_str())["model"]["merges"]]
    return {
        "tokenizer.ggml.model": Field(TEXT, "gpt2"),
        "tokenizer.ggml.pre": Field(TEXT, pre),
        "tokenizer.ggml.tokens": Field(ARRAY, (TEXT, tokens)),
        "tokenizer.ggml.token_type": Field(ARRAY, (I32, [1] * (len(tokens) - 1) + [3])),
        "tokenizer.ggml.merges": Field(ARRAY, (TEXT, merges)),
        "tokenizer.ggml.bos_token_id": Field(U32, len(tokens) - 1),
        "tokenizer.ggml.eos_token_id": Field(U32, len(tokens) - 1),
    }


@cache
def sentencepiece(prefix: bool, verbatim: tuple[str, ...] = VERBATIM) -> dict[str, Field]:
    """SentencePiece's BPE, with and without a space before a text, as Llama 2 and Gemma have it."""
    trained = Tokenizer(models.BPE())
    trained.normalizer = normalizers.Replace(" ", "\u2581")
    trained.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="never")
    trained.train_from_iterator(corpus(), trainers.BpeTrainer(vocab_size=700, show_progress=False))
    vocab = trained.get_vocab()
    first = ["<unk>", "<s>", "</s>", *(f"<0x{byte:02X}>" for byte in range(256))]
    left_out = {*first, *verbatim, "<", "\x00"}  # the last two are spelt in bytes
    # llama.cpp merges a typed "</s>" to the control token, and "<0x41>" to a byte; here no such merge is possible.
    parts = ("\x00", "<", "/s", "0x", "41")
    usual = [
        token
        for token in sorted(vocab, key=vocab.__getitem__)
        if token not in left_out and not any(part in token for part in parts)
    ]
    merged = [token for token in usual if len(token) > 1]
    tokens = [*first, *usual, *verbatim]
    scores = dict(zip(merged, range(len(merged)), strict=True))
    kinds = [2, 3, 3, *[6] * 256, *[1] * len(usual), *[4] * len(verbatim)]
    return {
        "tokenizer.ggml.model": Field(TEXT, "llama"),
        "tokenizer.ggml.pre": Field(TEXT, "default"),
        "tokenizer.ggml.tokens": Field(ARRAY, (TEXT, tokens)),
        "tokenizer.ggml.token_type": Field(ARRAY, (I32, kinds)),
        "tokenizer.ggml.scores": Field(ARRAY, (FLOAT, [-float(scores.get(token, 1000)) for token in tokens])),
        "tokenizer.ggml.unknown_token_id": Field(U32, 0),
        "tokenizer.ggml.bos_token_id": Field(U32, 1),
        "tokenizer.ggml.eos_token_id": Field(U32, 2),
        "tokenizer.ggml.add_space_prefix": Field(BOOL, prefix),
    }
