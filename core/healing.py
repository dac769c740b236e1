"""Token healing: type half a word and the drafts finish it.

"I am writ" ends in the token ` writ`, and a model that has seen ` writing` as one token rarely goes on with `ing`.
So the drafts start before the unfinished word, and their first token is one that agrees with the typed letters.
A word may be so long or so rare that no single token covers the rest of it, or it may be complete: then drafts start
at later token boundaries inside it, or after it, as well. The likeliest beginnings of all boundaries are the drafts.

A space before the caret is healed too, for most tokens of most vocabularies begin with the space before a word.
"""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right
from dataclasses import dataclass, field

import numpy as np
import torch
from torch import Tensor

from core.drafting.candidates import PROPOSALS
from core.drafting.places import Places
from core.fim import fim_tokens
from core.models.base import Sequence, Tokenizer
from core.ngram.interpolation import Interpolation

# The word at the caret with the one space before it; or just that space. Scripts without spaces give long
# "words": only their last characters are gone back over.
_TAIL = re.compile(r" ?[^\W_]+(?:['’_\-][^\W_]*)*\Z| \Z")
MOST_TOKENS = 8  # of an unfinished word, that are gone back over
SURE = 1.0  # nats by which longer tokens must outweigh the typed one


@dataclass(frozen=True)
class Healing:
    """Where drafts may start.

    Attributes:
        prefix_ids: the text before the unfinished word, or a prompt that contains it; starts with the model's own start
            tokens.
        before_ids: that text alone.
        word_ids: the usual tokens of the unfinished word; [] when nothing is to be healed.
        rests: bytes of the word that remain after its first i tokens; the last one is b"".
    """

    prefix_ids: list[int]
    before_ids: list[int]
    word_ids: list[int]
    rests: list[bytes]


@dataclass(frozen=True)
class Weighed:
    """Logits before a half-typed word and after each of its tokens, so that drafts for other settings need no pass.

    Attributes:
        prefix_ids, word_ids: the text before the word, and the word; see `Healing`.
        logits: 1 + tokens of the word, each (V,).
    """

    prefix_ids: list[int] = field(default_factory=list)
    word_ids: list[int] = field(default_factory=list)
    logits: list[Tensor] = field(default_factory=list)

    def hold(self, healing: Healing, sequence: Sequence) -> bool:
        """Whether they are those of this word, and the sequence still holds the text and the word."""
        same = (self.prefix_ids, self.word_ids) == (healing.prefix_ids, healing.word_ids)
        return bool(self.logits) and same and sequence.inputs == self.prefix_ids + self.word_ids


class Healer:
    """Finds the tokens that agree with the typed letters; built once per tokenizer."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self.tokenizer, self.fim = tokenizer, fim_tokens(tokenizer)
        pieces = tokenizer.pieces
        usable = [i for i, piece in enumerate(pieces) if piece and i not in tokenizer.special_ids]
        self.line_ends = frozenset(i for i in usable if b"\n" in pieces[i]) | tokenizer.eos_ids
        # Sorted by bytes, the tokens with a common beginning are neighbours: a trie, flat. A token that ends the line
        # begins no draft, for a draft must show something.
        self._ids = np.array(sorted(set(usable) - self.line_ends, key=pieces.__getitem__), dtype=np.int64)
        self._sorted = [pieces[i] for i in self._ids]

    def beginnings(self, rest: bytes) -> np.ndarray:
        """Ids (n,) of the tokens that begin with `rest` and go on past it, in the order of their bytes."""
        low = bisect_right(self._sorted, rest)
        high = bisect_left(self._sorted, rest + b"\xff" * 8, lo=low)
        return self._ids[low:high]

    def plan(self, text: str, *, window: int, heal: bool = True, after: str = "") -> Healing:
        """Tokens of the text before the caret, and its end that is to be healed.

        Args:
            window: most tokens of prefix. A longer text is cut at a multiple of half of it, so that the cut, and
                with it the cache, stays where it is while one types.
            heal: False leaves the last token as it is.
            after: the text after the caret, for a model that can fill in the middle.
        """
        t = self.tokenizer
        ids = t.encode(text)
        match = _TAIL.search(text[-64:]) if heal else None
        cut = len(ids)
        if match:
            before = t.encode(text[: len(text) - len(match.group())])
            shared = common(before, ids)
            # Only whole tokens before the word are kept; where the tokenizer joins across it, go back further.
            cut = max(shared, len(ids) - MOST_TOKENS)
            if shared < len(before):
                cut = max(min(cut, len(ids) - 1), 0)
        word = ids[cut:]
        rests = [b"".join(t.pieces[i] for i in word[n:]) for n in range(len(word) + 1)]
        ids = ids[:cut]
        if len(ids) > window:
            half = window // 2
            ids = ids[-(-(len(ids) - window) // half) * half :]
        plain = (t.start_ids or []) + ids or [t.document_start]
        prompt = plain
        if after.strip() and self.fim is not None:
            prompt = (t.start_ids or []) + self.fim.around(ids, t.encode(after))
        return Healing(prompt, plain, word, rests)

    def places(self, healing: Healing) -> Places:
        """Where drafts may begin: before the word and after each of its tokens."""
        return Places(healing.word_ids, [self.beginnings(rest) for rest in healing.rests])

    def certain(self, healing: Healing, logits: Tensor, ngrams: Interpolation | None) -> bool:
        """Whether the logits (V,) before the word are enough: drafts surely start there, and nowhere later."""
        if not healing.word_ids:
            return True
        longer = torch.logsumexp(logits[torch.from_numpy(self.beginnings(healing.rests[0]))], 0)
        sure = bool(longer > logits[healing.word_ids[0]] + SURE)
        return sure and (ngrams is None or not self._proposed_inside(healing, ngrams))

    def _proposed_inside(self, healing: Healing, ngrams: Interpolation) -> bool:
        """Whether a personal store has a continuation of the word at a boundary inside it. The model alone may be
        sure of another word; then one more pass is well spent."""
        inside = range(1, len(healing.word_ids) + 1)
        contexts = [healing.prefix_ids + healing.word_ids[:n] for n in inside]
        return any(
            (self.beginnings(healing.rests[n]) == i).any()
            for n, ids in zip(inside, ngrams.proposals(contexts, PROPOSALS), strict=True)
            for i in ids
        )


def common(a: list[int], b: list[int]) -> int:
    """How many tokens two texts begin with alike."""
    n = 0
    for x, y in zip(a, b, strict=False):
        if x != y:
            break
        n += 1
    return n
