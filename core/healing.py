"""Token healing: drafts continue a half-typed word.

"I am writ" ends in the token ` writ`, and a model that has read ` writing` as one token rarely continues with `ing`.
So the drafts start before the half-typed word, and their first token must agree with the typed letters. If no single
token covers the rest of a long or rare word, or if the word is complete, drafts also start at later token boundaries
inside the word or after it. The most probable beginnings over all boundaries become the drafts.

A space before the caret is healed too, because most tokens of most vocabularies begin with the space before a word.
"""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right
from collections.abc import Sequence as Ids
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
import torch
from torch import Tensor

from core.drafting.boundaries import Boundaries
from core.drafting.candidates import log_total
from core.fim import fim_tokens
from core.models.base import Sequence, Tokenizer, common
from core.ngram.interpolation import Interpolation

# The word at the caret with the one space before it, or only that space. Scripts without spaces give long "words", of
# which only the last characters are healed.
_TAIL = re.compile(r" ?[^\W_]+(?:['’_\-][^\W_]*)*\Z| \Z")
MOST_TOKENS = 8  # of a half-typed word that are healed
SURE = 1.0  # nats by which longer tokens together must exceed the typed one
INSIDE = 0.01  # least share of a draft that begins inside the word because of a store


@dataclass(frozen=True)
class Healing:
    """The token boundaries where drafts may start.

    Attributes:
        prefix_ids: the tokens of the text before the half-typed word, or of a prompt that contains it; begins with the
            model's start tokens.
        before_ids: the tokens of that text alone.
        word_ids: the usual tokens of the half-typed word; [] if no word is healed.
        rests: the bytes of the word that remain after its first i tokens; the last one is b"".
    """

    prefix_ids: list[int]
    before_ids: list[int]
    word_ids: list[int]
    rests: list[bytes]


@dataclass(frozen=True)
class WordLogits:
    """Cached logits before a half-typed word and after each of its tokens; drafts with other settings reuse them.

    Attributes:
        prefix_ids, word_ids: the text before the word, and the word; see `Healing`.
        logits: 1 + the number of the word's tokens, each (V,).
    """

    prefix_ids: list[int] = field(default_factory=list)
    word_ids: list[int] = field(default_factory=list)
    logits: list[Tensor] = field(default_factory=list)

    def match(self, healing: Healing, sequence: Sequence) -> bool:
        """Whether the logits belong to this word, and the sequence still contains the text and the word."""
        same = (self.prefix_ids, self.word_ids) == (healing.prefix_ids, healing.word_ids)
        return bool(self.logits) and same and sequence.inputs == self.prefix_ids + self.word_ids


class Healer:
    """Finds the tokens that agree with the typed letters. One object for each tokenizer."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self.tokenizer, self.fim = tokenizer, fim_tokens(tokenizer)
        pieces = tokenizer.pieces
        usable = [i for i, piece in enumerate(pieces) if piece and i not in tokenizer.special_ids]
        self.line_ends = frozenset(i for i in usable if b"\n" in pieces[i]) | tokenizer.eos_ids
        # Sorted by bytes, tokens with a common beginning are adjacent: a flat trie. A token that ends the line cannot
        # begin a draft, because the draft would be empty.
        self._ids = np.array(sorted(set(usable) - self.line_ends, key=pieces.__getitem__), dtype=np.int64)
        self._sorted = [pieces[i] for i in self._ids]

    @cached_property
    def _beginning(self) -> list[int]:
        """The ids before an empty text. A model that was trained without a first token predicts nothing useful after
        one token, whichever it is; after the end of a text and an empty line it begins a document."""
        return [self.tokenizer.document_start, *self.tokenizer.encode("\n\n")]

    def beginnings(self, rest: bytes) -> np.ndarray:
        """Returns the ids (n,) of the tokens that begin with `rest` and are longer, in the order of their bytes."""
        low = bisect_right(self._sorted, rest)
        high = bisect_left(self._sorted, rest + b"\xff" * 8, lo=low)
        return self._ids[low:high]

    def plan(self, text: str, *, window: int, heal: bool = True, after: str = "", background: Ids[int] = ()) -> Healing:
        """Splits the text before the caret into the tokens of the prefix and those of the half-typed word.

        Args:
            window: the highest number of tokens in the prefix. The beginning of a longer text is removed in steps of
                half the window, so that the cached prefix stays the same for many keystrokes.
            heal: False leaves the last token as it is.
            after: the text after the caret, for a model that was trained to fill in the middle.
            background: tokens that the model reads before the text: at most half of the window, of which it takes its
                part.
        """
        t = self.tokenizer
        ids = t.encode(text)
        match = _TAIL.search(text[-64:]) if heal else None
        cut = len(ids)
        if match:
            before = t.encode(text[: len(text) - len(match.group())])
            shared = common(before, ids)
            # Only whole tokens before the word are kept. A token that crosses the beginning of the word is healed too.
            cut = max(shared, len(ids) - MOST_TOKENS)
            if shared < len(before):
                cut = max(min(cut, len(ids) - 1), 0)
        word = ids[cut:]
        rests = [b"".join(t.pieces[i] for i in word[n:]) for n in range(len(word) + 1)]
        ids, room = ids[:cut], window - len(background)
        if len(ids) > room:
            half = room // 2
            ids = ids[-(-(len(ids) - room) // half) * half :]
        ids = [*background, *ids]
        plain = (t.start_ids or []) + ids or self._beginning
        prompt = plain
        if after.strip() and self.fim is not None:
            prompt = (t.start_ids or []) + self.fim.around(ids, t.encode(after))
        return Healing(prompt, plain, word, rests)

    def boundaries(self, healing: Healing) -> Boundaries:
        """Returns the token boundaries where drafts may begin: before the word and after each of its tokens."""
        return Boundaries(healing.word_ids, [self.beginnings(rest) for rest in healing.rests])

    def certain(self, healing: Healing, logits: Tensor, ngrams: Interpolation | None) -> bool:
        """Whether the logits (V,) before the word suffice, because drafts would start at no later boundary."""
        if not healing.word_ids:
            return True
        # In nats, without the normaliser of the logits: all tokens that are longer than the typed word, and its first.
        longer = float(torch.logsumexp(logits[torch.from_numpy(self.beginnings(healing.rests[0]))], 0))
        first = float(logits[healing.word_ids[0]])
        if longer <= first + SURE:
            return False
        return ngrams is None or not self._proposed_inside(healing, logits, longer, ngrams)

    def _proposed_inside(self, healing: Healing, logits: Tensor, longer: float, ngrams: Interpolation) -> bool:
        """Whether a store gives a continuation of the word at a boundary inside it enough for a draft. Then the logits
        there are needed, even if the model alone is sure of another word."""
        total = log_total(logits.numpy(), 1.0)
        first, word = healing.word_ids[0], healing.word_ids
        (p,) = np.exp(ngrams.scores(np.array([[float(logits[first]) - total]]), [healing.prefix_ids], [first])[0])
        share = p / (p + np.exp(longer - total))  # of the drafts that would begin with the word's own first token
        contexts = [healing.prefix_ids + word[:n] for n in range(1, len(word) + 1)]
        proposals = ngrams.proposals(contexts, [INSIDE / max(share, INSIDE)] * len(contexts))
        return any(
            (self.beginnings(rest) == i).any()
            for rest, ids in zip(healing.rests[1:], proposals, strict=True)
            for i in ids
        )
