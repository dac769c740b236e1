"""Token healing: drafts continue a half-typed word.

"I am writ" ends in the token ` writ`, and a model that has read ` writing` as one token rarely continues with `ing`.
So the drafts start before the half-typed word, and their first token must agree with the typed letters. If no single
token covers the rest of a long or rare word, or if the word is complete, drafts also start at later token boundaries
inside the word or after it. The most probable beginnings over all boundaries become the drafts.

A space before the caret is healed too, because most tokens of most vocabularies begin with the space before a word.
In general, the tokens before the caret are those that the text has when the next word stands there
(`Tokenizer.encode_to_go_on`).
"""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right
from collections.abc import Iterator
from collections.abc import Sequence as Ids
from dataclasses import dataclass, field, replace

import numpy as np
import torch
from torch import Tensor

from core.drafting.boundaries import Boundaries
from core.drafting.candidates import log_total
from core.fim import fim_tokens
from core.forms import odd_beginnings
from core.models.base import Sequence, Tokenizer
from core.ngram.interpolation import Interpolation
from core.ngram.windows import ORDER
from core.slips import correctable, meant

# The word at the caret with the one space before it. Scripts without spaces give long "words", of which only the last
# characters are healed.
_HALF_TYPED = re.compile(r" ?[^\W_]+(?:['’_\-][^\W_]*)*\Z")
_FINISHED = re.compile(r" ?[^\W_]+ \Z")  # a word and the space after it
MOST_TOKENS = 8  # of a half-typed word that are healed
SURE = 1.0  # nats by which longer tokens together must exceed the typed one
MEANT = 6.0  # how much more probable slips are than the typed word where drafts correct it
MOST_TYPED = 0.005  # probability of a typed word above which no slip is
MOST_SLIPS = 3  # words that may be meant
MOST_OWN = ORDER - 1  # tokens of context with which a token of a word is looked for in personal stores
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
        begins: the number of `before_ids` that are not the document's.
        odd: characters with which no draft begins (`core.forms.odd_beginnings`).
        skipped: the number of characters at the beginning of the text that are not read.
    """

    prefix_ids: list[int]
    before_ids: list[int]
    word_ids: list[int]
    rests: list[bytes]
    begins: int
    odd: str = ""
    skipped: int = 0


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

    def beginnings(self, rest: bytes, odd: str = "") -> np.ndarray:
        """Returns the ids (n,) of the tokens that begin with `rest` and are longer, in the order of their bytes;
        without those that have an `odd` character after it."""
        low, high = bisect_right(self._sorted, rest), self._end(rest)
        if not odd:
            return self._ids[low:high]
        kept = np.ones(high - low, bool)
        for mark in odd:
            begins = rest + mark.encode()
            kept[bisect_left(self._sorted, begins) - low : self._end(begins) - low] = False
        return self._ids[low:high][kept]

    def _end(self, beginning: bytes) -> int:
        """The index after the last token that begins with these bytes."""
        return bisect_left(self._sorted, beginning + b"\xff" * 8)

    def plan(
        self,
        text: str,
        *,
        window: int,
        heal: bool = True,
        after: str = "",
        background: Ids[int] = (),
        finished: bool = False,
    ) -> Healing:
        """Splits the text before the caret into the tokens of the prefix and those of the half-typed word.

        Args:
            window: the highest number of tokens in the prefix. The beginning of a longer text is removed in steps of
                half the window, so that the cached prefix stays the same for many keystrokes.
            heal: False leaves the last token as it is.
            after: the text after the caret, for a model that was trained to fill in the middle.
            background: tokens that the model reads before the text: at most half of the window, of which it takes its
                part.
            finished: the word before the space at the caret may contain a slip, and drafts begin before it.
        """
        t = self.tokenizer
        ids, word = self._divided(text, heal, finished)
        room = window - len(background)
        whole = not background and len(t.beginning) + len(ids) <= room
        skipped = 0
        if len(ids) > room:
            half = room // 2
            cut = -(-(len(ids) - room) // half) * half
            skipped, ids = len(t.decode(ids[:cut])), ids[cut:]
        own, ids = len(ids), [*background, *ids]
        plain = [*(t.beginning if whole else t.start_ids), *ids] or [t.document_start]
        prompt = plain
        if after.strip() and self.fim is not None:
            prompt = [*t.start_ids, *self.fim.around(ids, t.encode(after))]
        return Healing(prompt, plain, word, self._rests(word), len(plain) - own, odd_beginnings(text), skipped)

    def _divided(self, text: str, heal: bool, finished: bool) -> tuple[list[int], list[int]]:
        """Returns the tokens of the text before the half-typed word, and those of the word: whole tokens, so a token
        that crosses the beginning of the word is healed too."""
        t = self.tokenizer
        typed = _HALF_TYPED.search(text[-64:])
        if typed:  # the word stands there already
            ids, healed = t.encode(text), len(typed.group().encode())
        else:
            ids, rest = t.encode_to_go_on(text)
            ids, healed = ids + t.encode(rest.decode("utf-8", "replace")), len(rest)
        if finished and (word := _FINISHED.search(text[-64:])):
            healed = len(word.group().encode())
        cut = len(ids)
        while heal and healed > 0 and cut > 0 and len(ids) - cut < MOST_TOKENS:
            cut -= 1
            healed -= len(t.pieces[ids[cut]])
        return ids[:cut], ids[cut:]

    def finished_word(self, healing: Healing, text: str) -> Healing | None:
        """What `plan` with `finished` returns, from the tokens that the plan without it has. None if no slip is looked
        for in the word before the space at the caret, or if the prefix does not end with its tokens.

        Args:
            healing: as planned without `finished`.
            text: before the caret.
        """
        prefix, match = healing.prefix_ids, _FINISHED.search(text[-64:])
        if match is None or not healing.word_ids or not correctable(text) or prefix != healing.before_ids:
            return None
        letters = match.group().encode()
        most = min(MOST_TOKENS - len(healing.word_ids), len(prefix) - max(healing.begins, 1))
        for n in range(1, most + 1) if len(healing.rests[0]) < len(letters) else ():
            word = prefix[-n:] + healing.word_ids
            rests = self._rests(word)
            if rests[0].endswith(letters):
                return replace(healing, prefix_ids=prefix[:-n], before_ids=prefix[:-n], word_ids=word, rests=rests)
        return None

    def _rests(self, word: Ids[int]) -> list[bytes]:
        """The bytes of a word that remain after its first i tokens; the last one is b""."""
        return [b"".join(self.tokenizer.pieces[i] for i in word[n:]) for n in range(len(word) + 1)]

    def boundaries(self, healing: Healing) -> Boundaries:
        """Returns the token boundaries where drafts may begin: before the word and after each of its tokens."""
        return Boundaries(healing.word_ids, [self.beginnings(rest, healing.odd) for rest in healing.rests])

    def with_slips(self, healing: Healing, logits: list[Tensor], ngrams: Interpolation | None, text: str) -> Boundaries:
        """`boundaries`, and the words that may be meant if one letter of the half-typed word is a slip.

        They are included only where they are together MEANT times as probable as the typed word, by the model and the
        noisy channel, and where no personal store contains a word that begins with the typed letters.

        Args:
            logits: (V,) before the word, then after each of its tokens, as far as they are known.
            text: before the caret.
        """
        healed, word = self.boundaries(healing), correctable(text)
        if not word or not healing.rests[0].endswith(word.encode()) or not healed.starts:
            return healed
        typed = path = 0.0  # P(typed), summed over the boundaries at which drafts may go on; ln P of the tokens so far
        for after, starts, token in zip(logits, healed.starts, [*healing.word_ids, None], strict=False):
            total = log_total(after.numpy(), 1.0)
            typed += np.exp(path + log_total(after.numpy()[starts], 1.0) - total) if len(starts) else 0.0
            path += 0.0 if token is None else float(after[token]) - total
        if len(logits) == 1:  # nothing is known of the boundaries inside the word: all of them may go on
            typed += np.exp(path)
        if typed > MOST_TYPED:
            return healed
        slips = sorted(self._slips(healing.rests[0], word, logits[0].numpy()), key=lambda slip: -slip[0])[:MOST_SLIPS]
        if sum(mass for mass, _, _ in slips) < MEANT * typed:
            return healed
        # A word has other tokens at the beginning of a line than after a space.
        letters = word.rstrip().encode()
        if ngrams is not None and (self._own(b" " + letters, ngrams) or self._own(letters, ngrams)):
            return healed
        return replace(healed, slips=[(ids, channel) for _, ids, channel in slips])

    def _slips(self, typed: bytes, word: str, logits: np.ndarray) -> Iterator[tuple[float, np.ndarray, float]]:
        """For each word that may be meant: P(word)·P(typed | word), the tokens with which it begins, and ln P(typed |
        word). A finished word is one token."""
        p = np.exp(logits[self._ids].astype(np.float64) - log_total(logits, 1.0))
        sums = np.concatenate([[0.0], np.cumsum(p)])  # the tokens that begin with the same bytes are adjacent
        for other, channel in meant(word.rstrip()).items():
            beginning = typed[: len(typed) - len(word)] + other.encode()
            low = bisect_left(self._sorted, beginning)
            end = bisect_right if word.endswith(" ") else bisect_left
            high = end(self._sorted, beginning + (b"" if word.endswith(" ") else b"\xff" * 8), lo=low)
            if mass := float(sums[high] - sums[low]) * channel:
                yield mass, self._ids[low:high], float(np.log(channel))

    def _own(self, letters: bytes, ngrams: Interpolation, path: Ids[int] = ()) -> bool:
        """Whether a personal store contains text that begins with these letters, after the tokens of `path`. The tokens
        of a whole word are often others than those of its first letters, so every division into tokens is tried, as
        far as the store has it."""
        path = path[-MOST_OWN:]
        if ngrams.knows_own(path, [*self.tokens(letters), *self.beginnings(letters).tolist()]):
            return True
        return any(
            ngrams.knows_own(path, [token]) and self._own(letters[n:], ngrams, [*path, token])
            for n in range(1, len(letters))
            for token in self.tokens(letters[:n])
        )

    def tokens(self, text: bytes) -> list[int]:
        """Returns the ids of the tokens that are exactly this text."""
        return self._ids[bisect_left(self._sorted, text) : bisect_right(self._sorted, text)].tolist()

    def certain(self, healing: Healing, logits: Tensor, ngrams: Interpolation | None) -> bool:
        """Whether the logits (V,) before the word suffice, because drafts would start at no later boundary."""
        if not healing.word_ids:
            return True
        # In nats, without the normaliser of the logits: all tokens that are longer than the typed word, and its first.
        longer = float(torch.logsumexp(logits[torch.from_numpy(self.beginnings(healing.rests[0], healing.odd))], 0))
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
