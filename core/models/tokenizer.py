"""The interface of every backend's tokenizer, and the names that identify the ends of texts."""

from __future__ import annotations

import hashlib
import re
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from functools import cached_property
from types import MappingProxyType

# Control tokens that end a text or a turn, in any vocabulary. llama.cpp classifies more tokens so (file separators of
# code models); a draft may not contain those either, because they are control tokens.
END_NAMES = frozenset(
    {"<|endoftext|>", "<|im_end|>", "<|eot_id|>", "<|eom_id|>", "<|end_of_text|>", "<|end|>", "<|return|>"}
    | {"<end_of_turn>", "<end_of_utterance>", "<|endofturn|>", "</s>", "<eos>", "<EOT>", "[EOS]", "[EOT]"}
    | {"<｜end▁of▁sentence｜>"}
)
# Names of tokens that separate documents in training, so that one of them can represent the start of a text.
BOUNDARY_NAMES = ("<|endoftext|>", "<|end_of_text|>", "<|begin_of_text|>")
SURROGATE = re.compile("[\ud800-\udfff]")  # half of a pair, from a broken paste: it has no UTF-8 form
# Kinds of tokens in a GGUF file: `tokenizer.ggml.token_type`
UNKNOWN, CONTROL, USER_DEFINED, UNUSED = 2, 3, 4, 5


class Tokenizer(ABC):
    """Text to token ids and back, and the bytes of each id.

    Attributes:
        pieces: the bytes of each id, b"" for control tokens.
        eos_ids: ids that end a text; they are in `special_ids` too.
        special_ids: control tokens, which no draft may contain.
        start_ids: the ids before the first token of a text: [bos] or [].
        document_start: the id to feed when the text is empty.
        special_names: ids of the added and control tokens by name.
    """

    pieces: list[bytes]
    eos_ids: frozenset[int]
    special_ids: frozenset[int]
    start_ids: list[int]
    document_start: int
    special_names: Mapping[str, int] = MappingProxyType({})

    @abstractmethod
    def encode(self, text: str) -> list[int]:
        """Ids of `text`, without special tokens: text that looks like one is encoded as plain characters."""

    def decode(self, ids: Iterable[int]) -> str:
        """Text of `ids`; bytes that are not valid UTF-8 become U+FFFD. Use `pieces` if that matters."""
        return b"".join(self.pieces[i] for i in ids).decode("utf-8", errors="replace")

    @cached_property
    def fingerprint(self) -> str:
        """Hexadecimal SHA-256 over all pieces: tokenizers with the same fingerprint have the same ids."""
        digest = hashlib.sha256()
        for piece in self.pieces:
            digest.update(len(piece).to_bytes(4, "little") + piece)
        return digest.hexdigest()
