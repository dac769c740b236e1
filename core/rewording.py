"""What could stand in place of a word, or of a few words, in the middle of a text.

    P(w | before, after) ∝ P(w | before) · P(after | before, w)

    1. The logits after the text before give the first tokens of the candidates, with the base stores' bigrams.
    2. A pass over the likeliest of them says where words end, and gives the first token of the text after, by which
       most candidates are left out. Further passes complete words of several tokens, and phrases, and add words that
       stand in the text already.
    3. The last passes compute the probability of each candidate that is left, with the text after it.

A token with which several candidates begin is read once, where the model reads trees.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Generator, Iterator, Mapping
from collections.abc import Sequence as Ids
from dataclasses import dataclass, field

import numpy as np
import regex
from torch import Tensor

from core.ask import Ask
from core.completion import Completion
from core.drafting.candidates import log_total, top_indices
from core.kept import KeptText
from core.models.base import Row, Sequence, common
from core.present import TextDraft
from core.words import BEGINS, UNSPACED_LETTER, WORD, WORDS, count_words

OFFERED = 9  # one for each digit
FIRST, WIDTH = 160, 32  # beginnings in the first pass, and in each later one
KNOWN, LOOKED = 64, 3000  # further ones in the first pass, which a base store chooses from so many
SCORED = 40  # candidates that are read with the text after them
AFTER = 8  # tokens of that text
RARE = 20  # occurrences of a token with which a store knows half of what it could
TOKENS = 5  # of a word
NEARBY, NEAR = 24, 3000  # words of the text itself, in so many characters before
INPUTS = 64  # of a pass over a tree: the logits after each take 200 kB with the default model
FORKS = 8  # rows of a pass where the model reads no trees

_IN_WORD = regex.compile(r"[\w'’-]\Z")

Path = tuple[int, ...]
Passes = Generator[tuple[list[Row], Completion], list[Tensor], None]


@dataclass(frozen=True)
class Alternative:
    """A word, or a few.

    Attributes:
        text: of it, without the space before it.
        logprob: ln P of it by the text before alone, that it ends there included.
        chance: by the text before and after. Those of all alternatives add up to less than 1, because other words
            could stand there, too.
    """

    text: str
    logprob: float
    chance: float


@dataclass(frozen=True)
class _Whole:
    """A whole word or phrase as the search has found it.

    Attributes:
        count: its number of words.
        before: ln P of it by the text before, that it ends there included.
        with_next: the same with the first token of the text after.
    """

    count: int
    before: float
    with_next: float


@dataclass
class _Beginning:
    """The first tokens of a word or a phrase.

    Attributes:
        logprob: ln P of them after the text before.
        ends: ln P that a word ends here.
        next: ln P of the first token of the text after, or, without one, `ends`.
        more: the tokens that may follow, each with its ln P.
    """

    ids: Path
    logprob: float
    ends: float = -math.inf
    next: float = -math.inf
    more: list[tuple[int, float]] = field(default_factory=list)


def reworded(text: KeptText, ask: Ask, background: Ids[int] = ()) -> Passes:
    """Yields the passes. The last state has as drafts the words that stand there, with the number 0, and others, the
    likeliest first, from 1 on: none with a phrase that is never suggested.

    Raises: InputError as `count_words`.
    """
    before, words, never = ask.before, ask.words, ask.phrases
    found = yield from alternatives(text, before, ask.after, count_words(words), words, background)
    others = [each for each in found if each.text != words and not (never and never.within(each.text, before))]
    numbered = [*((0, each) for each in found if each.text == words), *enumerate(others[:OFFERED], 1)]
    drafts = [TextDraft(n, each.text, each.chance, math.exp(each.logprob), False) for n, each in numbered]
    yield [], Completion(drafts, settled=True, done=True)


def alternatives(
    text: KeptText, before: str, after: str, count: int = 1, present: str = "", background: Ids[int] = ()
) -> Generator[tuple[list[Row], Completion], list[Tensor], list[Alternative]]:
    """Yields the passes; returns the alternatives, the likeliest first.

    Args:
        count: of the words that are replaced; the alternatives have as many, or one fewer.
        present: what stands there, if it shall be among the alternatives in any case.
    """
    finding = _Finding(text, before, after, count, background)
    try:
        yield from finding.grow()
        return (yield from finding.score(present))
    finally:
        text.sequence.settle()


class _Finding:
    """The search for what could stand at one place."""

    def __init__(self, text: KeptText, before: str, after: str, count: int, background: Ids[int]) -> None:
        equipped = text.equipped
        self.sequence, self.tokenizer, self.pieces = text.sequence, equipped.model.tokenizer, equipped.word_pieces
        heal = _IN_WORD.search(before) is None  # only the space before a word; there is no half-typed one
        healing = equipped.healer.plan(before, window=equipped.window, heal=heal, background=background)
        self.prefix, self.rest = healing.prefix_ids, healing.rests[0]
        self.starts = self._starts(equipped.healer.beginnings(self.rest) if self.rest not in (b"", b" ") else None)
        ids = self.tokenizer.encode(after)[:AFTER] if after.strip() else []
        self.after = self.tokenizer.decode(ids).rstrip("\ufffd")
        self.counts = range(max(count - 1, 1), count + 1)
        near = Counter(word for word in WORD.findall(before[-NEAR:] + after) if not UNSPACED_LETTER.search(word))
        self.nearby = [word for word, _ in near.most_common()]
        self.whole: dict[str, _Whole] = {}
        self.stores = equipped.base_stores
        self.nothing = Completion([])  # the state until the end

    def _starts(self, others: np.ndarray | None) -> np.ndarray:
        """The tokens with which a word begins here."""
        if others is None:
            return self.pieces.spaced if self.rest else self.pieces.begins
        n = len(self.rest)
        pieces = ((i, self.tokenizer.pieces[i][n:].decode("utf-8", "replace")) for i in others.tolist())
        return np.array([i for i, piece in pieces if BEGINS.match(piece)], dtype=np.int64)

    # ---------------------------------------------------------------- whole words

    def grow(self) -> Passes:
        """Yields the passes that find whole words, in `self.whole`."""
        known = self.sequence.resume(self.prefix)
        if known is None:
            (known,) = yield [Row(self.sequence, self.prefix[self.sequence.length :])], self.nothing
        self.first = known
        begun = [_Beginning((i,), p) for i, p in self._first_tokens()]
        for _ in range(TOKENS * self.counts[-1]):
            if not begun:
                break
            at = {beginning.ids: beginning for beginning in begun}
            yield from self._read(list(at), lambda path, logits, at=at: self._look(at.get(path), logits))
            for beginning in begun:
                self._take(beginning)
            least = self._least()
            longer = [
                _Beginning((*beginning.ids, token), beginning.logprob + p)
                for beginning in begun
                for token, p in beginning.more
                if beginning.logprob + p > least
            ]
            begun = sorted(longer, key=lambda each: -each.logprob)[:WIDTH]
        if self.counts[-1] == 1:
            yield from self._rate([word for word in self.nearby if word not in self.whole][:NEARBY])

    def _first_tokens(self) -> list[tuple[int, float]]:
        """The tokens with which the candidates begin, each with its ln P: the likeliest ones, and of less likely ones
        those after which the base stores often have the first token of the text after. That costs no pass."""
        ranked = _likeliest(self.first, self.starts, LOOKED)
        likely, others = ranked[:FIRST], ranked[FIRST:]
        word, whole = self._encoded("it")
        if not others or len(word) == len(whole):
            return likely
        joins, follows = np.zeros(len(others)), whole[len(word)]
        for store, _ in self.stores:
            if 2 in store.orders:
                known = store.evidence([[token] for token, _ in others], [follows], [2])
                joins += known.counts[:, 0, 0] / (known.totals[:, 0] + RARE)
        scores = np.array([p for _, p in others]) + np.log(np.maximum(joins, 1e-9))
        best = np.argsort(-scores, kind="stable")[:KNOWN]
        return likely + [others[n] for n in best if joins[n]]

    def _rate(self, words: list[str]) -> Passes:
        """Yields the pass that adds words of the text itself to `self.whole`: names and terms, of which the model alone
        does not think."""
        paths = {word: tuple(self._encoded(word)[0]) for word in words}
        x = self.first.numpy()
        total = log_total(x, 1.0)
        logprobs = {word: float(x[path[0]]) - total for word, path in paths.items() if path}

        def use(path: Path, logits: Tensor) -> None:
            x, n = logits.numpy(), len(path)
            total = log_total(x, 1.0)
            for word in logprobs:
                if paths[word][:n] != path:
                    continue
                if n < len(paths[word]):
                    logprobs[word] += float(x[paths[word][n]]) - total
                    continue
                ends, whole = self._ending(x, total), self._encoded(word)[1]
                follows = float(x[whole[n]]) - total if self.after else ends
                self.whole[word] = _Whole(1, logprobs[word] + ends, logprobs[word] + follows)

        yield from self._read([paths[word] for word in logprobs], use)

    def _look(self, beginning: _Beginning | None, logits: Tensor) -> None:
        """Reads off the logits (V,) after a beginning how it may go on."""
        if beginning is None:  # it was read with a longer one
            return
        x, text = logits.numpy(), self._text(beginning.ids)
        total = log_total(x, 1.0)
        beginning.more = _likeliest(logits, self.pieces.goes_on, WIDTH, total)
        if text is None or not WORDS.fullmatch(text):
            return
        if len(WORD.findall(text)) < self.counts[-1]:
            beginning.more += _likeliest(logits, self.pieces.spaced, WIDTH, total)
        word, whole = self._encoded(text)
        beginning.next = beginning.ends = self._ending(x, total)
        if self.after and word == list(beginning.ids):
            beginning.next = float(x[whole[len(word)]]) - total

    def _take(self, beginning: _Beginning) -> None:
        """Notes the words of a beginning, if they are whole."""
        text = self._text(beginning.ids)
        if text is None or beginning.next == -math.inf or (count := len(WORD.findall(text))) not in self.counts:
            return
        found = _Whole(count, beginning.logprob + beginning.ends, beginning.logprob + beginning.next)
        known = self.whole.get(text)  # divided into other tokens
        if known is None or found.with_next > known.with_next:
            self.whole[text] = found

    def _least(self) -> float:
        """What a beginning must have to become one of the candidates."""
        scores = sorted((w.with_next for w in self.whole.values() if w.count == self.counts[-1]), reverse=True)
        return scores[SCORED - 1] if len(scores) >= SCORED else -math.inf

    def _ending(self, x: np.ndarray, total: float) -> float:
        """ln P that a word ends, from the logits (V,) after it."""
        return math.log(max(1 - float(np.exp(x[self.pieces.goes_on] - total).sum()), 1e-30))

    # ---------------------------------------------------------------- the text after

    def score(self, present: str) -> Generator[tuple[list[Row], Completion], list[Tensor], list[Alternative]]:
        """Yields the passes over the candidates with the text after them. Returns these, ranked."""
        each = SCORED // len(self.counts)
        texts = [present] if present else []
        for count in self.counts:
            some = sorted(
                (-w.with_next, text) for text, w in self.whole.items() if w.count == count and text != present
            )
            texts += [text for _, text in some[:each]]
        encoded = {text: self._encoded(text) for text in texts}
        totals = dict.fromkeys(texts, 0.0)  # ln P with the text after
        alone = dict.fromkeys(texts, 0.0)
        following: dict[Path, list[tuple[str, int]]] = {}  # by a path, the words that go on with a token
        ending: dict[Path, list[str]] = {}
        for text, (word, whole) in encoded.items():
            for n, token in enumerate(whole):
                following.setdefault(tuple(whole[:n]), []).append((text, token))
            ending.setdefault(tuple(word), []).append(text)

        def use(path: Path, logits: Tensor) -> None:
            x = logits.numpy()
            total = log_total(x, 1.0)
            for text, token in following.get(path, ()):
                p = float(x[token]) - total
                totals[text] += p
                if len(path) < len(encoded[text][0]):
                    alone[text] += p
            for text in ending.get(path, ()):
                ends = self._ending(x, total)
                alone[text] += ends
                if not self.after:
                    totals[text] += ends

        use((), self.first)
        # The last token of the text after needs no logits after it.
        paths = [tuple(whole[:-1] if self.after else whole) for _, whole in encoded.values()]
        yield from self._read(paths, use)
        peak = max(totals.values(), default=0.0)
        mass = math.fsum(math.exp(p - peak) for p in totals.values()) + self._left_out(totals, peak)
        found = [Alternative(text, alone[text], math.exp(p - peak) / mass) for text, p in totals.items()]
        return sorted(found, key=lambda each: -each.chance)

    def _left_out(self, totals: Mapping[str, float], peak: float) -> float:
        """An estimate of the probability of the words that are not scored, times exp(-peak). For those that were found,
        that of the first token of the text after is known; all others agree with it as often as those. With the rest of
        the text after they agree as those that are scored."""
        scored = [text for text in totals if text in self.whole]
        x = self.first.numpy()
        begins = math.fsum(np.exp(x[self.starts] - log_total(x, 1.0)).tolist())
        found = math.fsum(math.exp(w.before) for w in self.whole.values())
        with_next = math.fsum(math.exp(w.with_next) for w in self.whole.values())
        of_scored = math.fsum(math.exp(self.whole[text].with_next) for text in scored)
        if not found or not of_scored:
            return 0.0
        ratio = math.fsum(math.exp(totals[text] - peak) for text in scored) / of_scored
        return ratio * (with_next - of_scored + with_next * max(begins - found, 0) / found)

    def _encoded(self, text: str) -> tuple[list[int], list[int]]:
        """The tokens of words as they are before the text after, and the same with those of that text."""
        begun = self.rest.decode("utf-8", "replace") + text
        whole = self.tokenizer.encode(begun + self.after)
        return whole[: common(whole, self.tokenizer.encode(begun))], whole

    def _text(self, ids: Path) -> str | None:
        """The text of tokens without the space before them; None if its last character is not whole."""
        try:
            return b"".join(self.tokenizer.pieces[i] for i in ids)[len(self.rest) :].decode()
        except UnicodeDecodeError:
            return None

    # ---------------------------------------------------------------- passes

    def _read(self, paths: list[Path], use: Callable[[Path, Tensor], None]) -> Passes:
        """Yields passes over paths of tokens after the prefix, and calls `use` with each beginning of one and the
        logits (V,) after it. The sequence is not changed."""
        if not self.sequence.model.takes_trees:
            yield from self._read_apart(paths, use)
            return
        seen: set[Path] = set()
        for nodes in _trees(paths):
            index = {node: n for n, node in enumerate(nodes)}
            parents = [index.get(node[:-1], -1) for node in nodes]
            (logits,) = yield [Row(self.sequence, [node[-1] for node in nodes], parents=parents)], self.nothing
            for node, after in zip(nodes, logits, strict=True):
                if node not in seen:
                    use(node, after)
            seen.update(nodes)

    def _read_apart(self, paths: list[Path], use: Callable[[Path, Tensor], None]) -> Passes:
        """The same with a sequence for each path."""
        seen: set[Path] = set()
        for start in range(0, len(paths), FORKS):
            some, forks = paths[start : start + FORKS], list[Sequence]()
            try:
                forks.extend(self.sequence.fork() for _ in some)
                rows = [Row(fork, list(path), every=True) for fork, path in zip(forks, some, strict=True)]
                logits = yield rows, self.nothing
            finally:
                for fork in forks:
                    fork.close()
            for path, every in zip(some, logits, strict=True):
                for n, after in enumerate(every, 1):
                    if path[:n] not in seen:
                        seen.add(path[:n])
                        use(path[:n], after)


def _trees(paths: Ids[Path]) -> Iterator[list[Path]]:
    """The beginnings of all paths, each after its own, in parts of about `INPUTS`; a path is in one part."""
    nodes: dict[Path, None] = {}
    for path in sorted(paths):
        own = [path[:n] for n in range(1, len(path) + 1)]
        if nodes and len(nodes) + len(own) > INPUTS:
            yield list(nodes)
            nodes = {}
        nodes.update(dict.fromkeys(own))
    if nodes:
        yield list(nodes)


def _likeliest(logits: Tensor, ids: np.ndarray, most: int, total: float | None = None) -> list[tuple[int, float]]:
    """The likeliest of some tokens, each with its ln P."""
    x = logits.numpy()
    total = log_total(x, 1.0) if total is None else total
    best = ids[top_indices(x[ids], most)]
    return [(int(i), float(x[i]) - total) for i in best]
