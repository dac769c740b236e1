"""Tokenizers of the torch backend: a Hugging Face tokenizer with our interface, or one from a GGUF file.

`from_gguf` builds one from the file's metadata, for the pre-tokenizers listed below, with which it agrees with
llama.cpp. For any other it returns None, and the file is left to llama.cpp.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from functools import cache, cached_property
from typing import TYPE_CHECKING, Any

import tokenizers
from tokenizers import AddedToken, Regex, models, normalizers, pre_tokenizers

from core.models.cuts import Cuts, cuts_of
from core.models.tokenizer import (
    CONTROL,
    SURROGATE,
    UNKNOWN,
    UNUSED,
    USER_DEFINED,
    Tokenizer,
)

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerFast

_SPACE = "\u2581"  # as SentencePiece spells it
_LONGEST = 256  # characters of a token of SentencePiece
_BYTE_TOKEN = re.compile(r"<0x([0-9A-Fa-f]{2})>")

_LLAMA3 = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}"
    r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
_QWEN2 = _LLAMA3.replace(r"\p{N}{1,3}", r"\p{N}")
# A word is upper case, then lower case.
_UPPER, _LOWER = r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]", r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]"
_TEKKEN = (
    rf"[^\r\n\p{{L}}\p{{N}}]?{_UPPER}*{_LOWER}+|[^\r\n\p{{L}}\p{{N}}]?{_UPPER}+{_LOWER}*|\p{{N}}"
    r"| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
_ENDING = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
_GPT_4O = (
    rf"[^\r\n\p{{L}}\p{{N}}]?{_UPPER}*{_LOWER}+{_ENDING}|[^\r\n\p{{L}}\p{{N}}]?{_UPPER}+{_LOWER}*{_ENDING}"
    r"|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
# GGUF: `tokenizer.ggml.pre` -> whether each digit is separate, and the pattern to split by (None: GPT-2's).
_PRE_TOKENIZERS: dict[str, tuple[bool, str | None]] = {
    "smollm": (True, None),
    "starcoder": (True, None),
    "refact": (True, None),
    "gpt-2": (False, None),
    "olmo": (False, None),
    "llama-bpe": (False, _LLAMA3),
    "llama3": (False, _LLAMA3),
    "llama-v3": (False, _LLAMA3),
    "falcon3": (False, _LLAMA3),
    "smaug-bpe": (False, _LLAMA3),
    "dbrx": (False, _LLAMA3),
    "qwen2": (False, _QWEN2),
    "deepseek-r1-qwen": (False, _QWEN2),
    "tekken": (False, _TEKKEN),
    "gpt-4o": (False, _GPT_4O),
}
# Those whose words are looked up whole before merging, and begin a text by default.
_WHOLE = frozenset({"llama-bpe", "llama3", "llama-v3", "falcon3", "tekken"})


class HFTokenizer(Tokenizer):
    """A tokenizer of the `tokenizers` library behind our interface."""

    def __init__(
        self,
        backend: tokenizers.Tokenizer,
        pieces: list[bytes],
        special_ids: Iterable[int],
        names: dict[str, int],
        eos_ids: Iterable[int | None],
        bos_id: int | None,
        start_ids: list[int],
    ) -> None:
        """The arguments are those of `Tokenizer`."""
        super().__init__(pieces, special_ids, names, eos_ids, bos_id, start_ids)
        self._backend = backend

    def encode(self, text: str) -> list[int]:
        # Half a surrogate pair (a broken paste) has no UTF-8 form.
        ids = self._backend.encode(SURROGATE.sub("\ufffd", text), add_special_tokens=False).ids
        return [i for i in ids if i < len(self.pieces)]

    @cached_property
    def cuts(self) -> Cuts | None:
        """Where texts can be cut before encoding; None if that is not certain."""
        return cuts_of(self._backend, {pattern for _, pattern in _PRE_TOKENIZERS.values() if pattern})

    @property
    def portable(self) -> tuple[str, bool, int]:
        """What a process without this package needs to encode as this tokenizer does: the tokenizer of the `tokenizers`
        library as JSON, its `encode_special_tokens`, and the number of ids."""
        return self._backend.to_str(), self._backend.encode_special_tokens, len(self.pieces)


def is_built(model: str | None, pre: str | None) -> bool:
    """Whether `from_gguf` supports the tokenizer with these `tokenizer.ggml.*` keys."""
    return model == "llama" or (model == "gpt2" and pre in _PRE_TOKENIZERS)


def from_gguf(metadata: dict[str, Any], vocab_size: int) -> HFTokenizer | None:
    """The tokenizer that a GGUF file describes, byte-level BPE or SentencePiece, or None if it is not supported.

    `metadata` holds the file's `tokenizer.ggml.*` keys with `tokens`, `merges` and `scores` in full.
    """

    def stated(key: str, otherwise: Any = None) -> Any:
        return metadata.get(f"tokenizer.ggml.{key}", otherwise)

    pre, tokens, merges = stated("pre"), stated("tokens"), stated("merges")
    if not is_built(stated("model"), pre) or not tokens:
        return None
    types = stated("token_type") or [1] * len(tokens)
    if stated("model") == "llama":
        return _sentencepiece(stated, tokens, types, vocab_size)
    if not merges:
        return None
    vocab = {token: i for i, token in enumerate(tokens)}
    # Some vocabularies lack bytes that occur in hardly any text. llama.cpp outputs nothing for such a byte but lets no
    # merge cross it; stand-ins beyond the vocabulary, dropped after encoding, have the same effect.
    missing = [letter for letter in _bytes_by_letter() if letter not in vocab]
    vocab |= {letter: max(vocab_size, len(tokens)) + n for n, letter in enumerate(missing)}
    pairs = [tuple(merge.split(" ", 1)) for merge in merges]
    if any(len(pair) != 2 or not {*pair, "".join(pair)} <= vocab.keys() for pair in pairs):
        return None

    digits, pattern = _PRE_TOKENIZERS[pre]
    # Control tokens are in the vocabulary, but no merge leads to them, so typed text never becomes one.
    backend = tokenizers.Tokenizer(models.BPE(vocab=vocab, merges=pairs, ignore_merges=pre in _WHOLE))
    splits: list[Any] = [pre_tokenizers.Digits(individual_digits=True)] if digits else []
    if pattern is not None:
        splits.append(pre_tokenizers.Split(Regex(pattern), behavior="isolated"))
    splits.append(pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=pattern is None))
    backend.pre_tokenizer = pre_tokenizers.Sequence(splits)
    verbatim = {i for i, kind in enumerate(types) if kind == USER_DEFINED}
    backend.add_tokens([AddedToken(tokens[i], normalized=False) for i in sorted(verbatim)])

    special = {i for i, kind in enumerate(types) if kind in (UNKNOWN, CONTROL, UNUSED)}
    pieces = [token.encode() if i in verbatim else _byte_level_piece(token) for i, token in enumerate(tokens)]
    return _finished(backend, stated, tokens, pieces, special, vocab_size, begins=pre in _WHOLE)


def _finished(
    backend: tokenizers.Tokenizer,
    stated: Callable[..., Any],
    tokens: list[str],
    pieces: list[bytes],
    special: set[int],
    vocab_size: int,
    begins: bool,
) -> HFTokenizer:
    """`begins`: whether a text begins with a token if the file does not say so."""
    bos = stated("bos_token_id")
    names = {tokens[i]: i for i in special}
    pieces, special = _padded(pieces, special, vocab_size)
    return HFTokenizer(
        backend,
        pieces,
        special,
        names=names,
        eos_ids=[stated("eos_token_id"), stated("eot_token_id"), stated("eom_token_id")],
        bos_id=bos,
        start_ids=[bos] if bos is not None and stated("add_bos_token", begins) else [],
    )


def _sentencepiece(
    stated: Callable[..., Any], tokens: list[str], types: list[int], vocab_size: int
) -> HFTokenizer | None:
    """SentencePiece's BPE: of all neighbours whose union is a token, those whose token has the highest score are joined
    first. Characters that are left without a token are spelt in bytes. None for a vocabulary without bytes, or without
    scores."""
    scores, unknown = stated("scores"), stated("unknown_token_id", 0)
    verbatim = {i for i, kind in enumerate(types) if kind == USER_DEFINED}
    special = {i for i, kind in enumerate(types) if kind in (UNKNOWN, CONTROL, UNUSED)}
    vocab = {token: i for i, token in enumerate(tokens)}
    spelt = {f"<0x{byte:02X}>" for byte in range(256)}
    if not scores or not spelt <= vocab.keys() or type(unknown) is not int or not 0 <= unknown < len(tokens):
        return None
    # Control tokens are in the vocabulary, but no merge leads to them, so typed text never becomes one.
    usual = {token: i for token, i in vocab.items() if i not in special and i not in verbatim and token not in spelt}
    pairs = [
        (-scores[i], i, token[:at], token[at:])
        for token, i in usual.items()
        if len(token) <= _LONGEST  # a token of a hostile file may be as long as the file
        for at in range(1, len(token))
        if token[:at] in usual and token[at:] in usual
    ]
    merges = [(left, right) for _, _, left, right in sorted(pairs)]
    backend = tokenizers.Tokenizer(
        models.BPE(vocab=vocab, merges=merges, byte_fallback=True, fuse_unk=True, unk_token=tokens[unknown])
    )
    prefix = [normalizers.Prepend(_SPACE)] if stated("add_space_prefix", True) else []
    backend.normalizer = normalizers.Sequence([*prefix, normalizers.Replace(" ", _SPACE)])
    backend.add_tokens([AddedToken(tokens[i], normalized=False) for i in sorted(verbatim)])
    pieces = [token.encode() if i in verbatim else _sentencepiece_piece(token) for i, token in enumerate(tokens)]
    return _finished(backend, stated, tokens, pieces, special, vocab_size, begins=True)


def from_transformers(tokenizer: PreTrainedTokenizerFast, vocab_size: int, eos_ids: list[int]) -> HFTokenizer:
    """Wraps a fast tokenizer of transformers. `eos_ids` are those of the model's configuration."""
    backend = tokenizer.backend_tokenizer
    backend.no_truncation()
    backend.no_padding()
    backend.encode("\ue000")  # fails, here and not at a key, if the token for unknown characters is missing
    bare = backend.encode("a", add_special_tokens=False).ids
    dressed = backend.encode("a", add_special_tokens=True).ids
    start_ids = next((dressed[:i] for i in range(len(dressed)) if dressed[i : i + len(bare)] == bare), [])
    backend.encode_special_tokens = True  # from here on, a typed "<|im_end|>" is plain characters

    added = backend.get_added_tokens_decoder()
    special = set(tokenizer.all_special_ids) | {i for i, token in added.items() if token.special}
    byte_level = "ByteLevel(" in repr(backend.decoder) + repr(backend.pre_tokenizer)
    as_bytes = _byte_level_piece if byte_level else _sentencepiece_piece
    pieces = [b""] * (max(backend.get_vocab().values(), default=-1) + 1)
    held = set(range(len(pieces)))
    for token, i in backend.get_vocab().items():
        pieces[i] = added[i].content.encode() if i in added else as_bytes(token)
        held.discard(i)
    special |= held  # ids without a token
    ends = [tokenizer.eos_token_id, *eos_ids]
    pieces, special = _padded(pieces, special, vocab_size)
    wrapper = HFTokenizer(
        backend,
        pieces,
        special,
        names={token: i for token, i in backend.get_vocab().items() if i in special},
        eos_ids=[i for i in ends if isinstance(i, int)],
        bos_id=tokenizer.bos_token_id if isinstance(tokenizer.bos_token_id, int) else None,
        start_ids=start_ids,
    )
    # Some vocabularies do not call every added token special.
    wrapper.special_names = {token.content: i for i, token in added.items() if i < vocab_size}
    return wrapper


def _padded(pieces: list[bytes], special: set[int], vocab_size: int) -> tuple[list[bytes], set[int]]:
    """Models round their vocabulary up: the rows without a token can be sampled, but are meaningless."""
    unused = range(len(pieces), vocab_size)
    pieces = (pieces + [b""] * len(unused))[:vocab_size]
    return pieces, {i for i in special if i < vocab_size} | set(unused)


@cache
def _bytes_by_letter() -> dict[str, int]:
    """GPT-2's alphabet: printable Latin-1 represents itself, the other bytes are letters from U+0100 on."""
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [byte for byte in range(256) if byte not in printable]
    return {chr(byte): byte for byte in printable} | {chr(0x100 + n): byte for n, byte in enumerate(others)}


@cache
def _translated() -> dict[int, int]:
    """For `str.translate`: the letters of that alphabet to Latin-1, and Latin-1's others to what it cannot encode."""
    return dict.fromkeys(range(256), 256) | {ord(letter): byte for letter, byte in _bytes_by_letter().items()}


def _byte_level_piece(token: str) -> bytes:
    try:
        return token.translate(_translated()).encode("latin-1")
    except UnicodeEncodeError:  # not in the alphabet, so spelt as itself
        return token.encode()


def _sentencepiece_piece(token: str) -> bytes:
    byte = _BYTE_TOKEN.fullmatch(token)
    return bytes([int(byte[1], 16)]) if byte else token.replace(_SPACE, " ").encode()
