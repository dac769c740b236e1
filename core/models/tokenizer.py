"""The interface of every backend's tokenizer, and the names that identify the ends of texts."""

from __future__ import annotations

import hashlib
import re
import unicodedata
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
_OPENING = "Here is the text."  # of a dozen that were tried, the one after which first words are most probable
_NEXT_WORD = "I"  # a word that merges with no white space before it but a single space
BYTES = "bytes:"  # before the bytes of a token that is not UTF-8, in its name
SURROGATE = re.compile("[\ud800-\udfff]")  # half of a pair, from a broken paste: it has no UTF-8 form
# Kinds of tokens in a GGUF file: `tokenizer.ggml.token_type`
UNKNOWN, CONTROL, USER_DEFINED, UNUSED = 2, 3, 4, 5


def joins_next_word(text: str) -> bool:
    """Whether the next word of a text follows without a space: at the beginning, after white space, and after opening
    brackets and quotation marks. Straight marks open where a word may follow without a space."""
    text = text.rstrip("\"'")
    return not text or text[-1].isspace() or unicodedata.category(text[-1]) in ("Ps", "Pi")


def written(piece: bytes) -> str:
    """A token's text. If it is not UTF-8, as a part of a character, its bytes as OpenAI's interface writes them,
    `bytes:\\xf0\\x9f`, so that no two tokens have one name."""
    try:
        return piece.decode()
    except UnicodeDecodeError:
        return BYTES + "".join(f"\\x{byte:02x}" for byte in piece)


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

    def __init__(
        self,
        pieces: list[bytes],
        special_ids: Iterable[int],
        names: dict[str, int],
        eos_ids: Iterable[int | None],
        bos_id: int | None,
        start_ids: list[int],
    ) -> None:
        """`names` maps the control tokens' names to their ids; `eos_ids` are those stated in the files."""
        self.special_names, self.start_ids = names, start_ids
        stated = [i for i in eos_ids if i is not None and 0 <= i < len(pieces)]
        self.eos_ids = frozenset(stated) | {i for name, i in names.items() if name in END_NAMES}
        self.special_ids = frozenset(special_ids) | self.eos_ids
        self.pieces = [b"" if i in self.special_ids else piece for i, piece in enumerate(pieces)]
        boundaries = [names[name] for name in BOUNDARY_NAMES if name in names]
        first = [] if bos_id is None else [bos_id]
        self.document_start = [*start_ids, *boundaries, *first, *stated, *sorted(self.eos_ids), 0][0]

    @abstractmethod
    def encode(self, text: str) -> list[int]:
        """Ids of `text`, without special tokens: text that looks like one is encoded as plain characters."""

    @cached_property
    def ends(self) -> frozenset[int]:
        """The ids that end a text or a line: line ends, with white space beside them in many vocabularies."""
        return self.eos_ids | {i for i, piece in enumerate(self.pieces) if b"\n" in piece and not piece.strip()}

    @cached_property
    def between(self) -> list[int]:
        """The ids between two documents in training."""
        return [*self.start_ids] or [self.document_start, *self.encode("\n\n")]

    @cached_property
    def beginning(self) -> list[int]:
        """The ids before the first word of a document. A model that was trained without a first token predicts nothing
        useful after a few tokens, whichever they are, so a paragraph of ordinary words stands there."""
        return [*self.start_ids] or [self.document_start, *self.encode_to_go_on(f"{_OPENING}\n\n")[0]]

    def encode_to_go_on(self, text: str) -> tuple[list[int], bytes]:
        """Ids of a text that goes on with a word, as they are when that word stands there.

        The end of a text has other tokens than the same text with a word after it: many vocabularies have one token for
        an empty line, after which a model expects no word, because before a word the line ends are separate tokens. So
        the text is encoded with a word at its end: after white space and opening marks the word itself, elsewhere with
        a space before it.

        Returns: the ids, and the bytes at the end of the text that they leave out because these are part of the next
            word's first token: in most vocabularies the space before it.
        """
        word = _NEXT_WORD if joins_next_word(text) else f" {_NEXT_WORD}"
        ids, last = self.encode(text + word), b""
        while ids and len(last) < len(word):
            last = self.pieces[ids.pop()] + last
        if not last.endswith(word.encode()):  # a vocabulary without this word's letter
            return self.encode(text), b""
        rest = last[: -len(word)]
        # Some tokenizers put a space of their own before a word.
        return ids, rest if text[-len(rest) :].encode("utf-8", "replace").endswith(rest) else b""

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
