"""Token healing: type half a word and the drafts finish it.

"I am writ" ends in the token ` writ`, and a model that has seen ` writing` as one token rarely goes on with `ing`.
So the drafts start before the unfinished word, and their first token is one that agrees with what is typed.
Where a word is so long or so rare that no single token covers the rest of it, the drafts start at a later token
boundary inside it. Which boundary: the one through which the model sends most probability.

A space before the caret is healed too, for most tokens of most vocabularies begin with the space before a word.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from core.models.base import Tokenizer

# The word at the caret with the one space before it; or just that space. Scripts without spaces give long
# "words": only their last characters are gone back over.
_TAIL = re.compile(r" ?[^\W_]+(?:['’_\-][^\W_]*)*\Z| \Z")
MOST_TOKENS = 8  # of an unfinished word, that are gone back over


@dataclass(frozen=True)
class Healing:
    """Where drafts may start.

    Attributes:
        prefix_ids: what stands before the unfinished word; starts with the model's own start tokens.
        word_ids: the usual tokens of the unfinished word; [] when nothing is to be healed.
        rests: bytes of the word that remain after its first i tokens; the last one is b"".
    """

    prefix_ids: list[int]
    word_ids: list[int]
    rests: list[bytes]


class Healer:
    """Finds the tokens that agree with what is typed; built once per tokenizer."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self.tokenizer = tokenizer
        pieces = tokenizer.pieces
        usable = [i for i, piece in enumerate(pieces) if piece and i not in tokenizer.special_ids]
        # Sorted by bytes, the tokens with a common beginning are neighbours: a trie, flat.
        self._ids = np.array(sorted(usable, key=pieces.__getitem__), dtype=np.int64)
        self._sorted = [pieces[i] for i in self._ids]
        newline = [i for i in usable if b"\n" in pieces[i]]
        self.line_ends = frozenset(newline) | tokenizer.eos_ids
        ends = np.zeros(len(pieces), dtype=bool)
        ends[list(self.line_ends)] = True
        self._visible = self._ids[~ends[self._ids]]

    def beginnings(self, rest: bytes) -> np.ndarray:
        """Ids (n,) of the tokens that begin with `rest`; none that ends a line, for a draft must show something."""
        if not rest:
            return self._visible
        low = bisect_left(self._sorted, rest)
        high = bisect_left(self._sorted, rest + b"\xff" * 8, lo=low)
        return np.array([i for i in self._ids[low:high] if i not in self.line_ends], dtype=np.int64)

    def plan(self, text: str, *, window: int, heal: bool = True) -> Healing:
        """Tokens of the text before the caret, and what of it is to be healed.

        Args:
            window: most tokens of prefix. A longer text is cut at a multiple of half of it, so that the cut, and
                with it the cache, stays where it is while one types.
            heal: False leaves the last token as it is.
        """
        t = self.tokenizer
        ids = t.encode(text)
        match = _TAIL.search(text[-64:]) if heal else None
        cut = len(ids)
        if match:
            before = t.encode(text[: len(text) - len(match.group())])
            shared = _common(before, ids)
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
        return Healing((t.start_ids or []) + ids or [t.document_start], word, rests)

    def first_choice(self, healing: Healing, after_prefix: Tensor) -> int | None:
        """Decide from the logits (V,) before the word alone: 0 where drafts surely start there, else None."""
        if not healing.word_ids:
            return 0
        logq = after_prefix - torch.logsumexp(after_prefix, 0)
        longer, exact = self._mass(logq, healing.rests[0], healing.word_ids[0])
        return 0 if longer > exact and longer > 0 else None

    def choose(self, healing: Healing, logits: list[Tensor]) -> int:
        """The boundary to start at: how many of the word's usual tokens to keep.

        Args:
            logits: (V,) before the word and after each of its tokens.
        """
        path, best, choice = 0.0, -np.inf, len(healing.word_ids)
        for n, (rest, after) in enumerate(zip(healing.rests, logits, strict=True)):
            logq = after - torch.logsumexp(after, 0)
            if n == len(healing.word_ids):
                score = path
            else:
                longer, _ = self._mass(logq, rest, healing.word_ids[n])
                score = path + float(np.log(longer)) if longer > 0 else -np.inf
                path += float(logq[healing.word_ids[n]])
            if score > best:
                best, choice = score, n
        return choice

    def _mass(self, logq: Tensor, rest: bytes, usual: int) -> tuple[float, float]:
        """Probability of the tokens that go on past `rest`, and of the word's usual next token."""
        ids = self.beginnings(rest)
        longer = [i for i in ids if len(self.tokenizer.pieces[i]) > len(rest)]
        mass = float(torch.exp(logq[torch.tensor(longer)]).sum()) if longer else 0.0
        return mass, float(torch.exp(logq[usual]))


def _common(a: list[int], b: list[int]) -> int:
    n = 0
    for x, y in zip(a, b, strict=False):
        if x != y:
            break
        n += 1
    return n
