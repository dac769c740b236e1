"""Proposals without a model pass, from all that was written before: a suffix automaton finds the longest end of the
text that occurred earlier, of any length, and counts what followed it (SuffixDecoding, Oliaro et al. 2024, arXiv
2411.04975; SAM-Decoding, Hu et al. 2024, arXiv 2411.10666).

The tree grows from the most probable path. After an end of n tokens, the tokens that followed it r times each, on
average, share the probability n·r² / (n·r² + HALF) by their counts. The rest goes to the next shorter end that other
tokens followed, and then to the n-gram stores. So a longer match makes a deeper tree, and several continuations make a
wider one. The formula was fitted to English prose: the token that followed an end of 1, 2, 3, 4 tokens once, and no
other did, followed again in .19, .30, .46, .53 of the cases, and after two occurrences in .45, .68, .79, .79.

SuffixDecoding limits the depth to a multiple of the match, and takes one match. Here the probability of the path limits
the depth, and a shorter match and the stores may add tokens. SuffixDecoding also keeps the texts of other requests.
Here one automaton is that of the text alone, so nothing of another text, or of a draft that was not taken, is proposed;
a second one is that of the newest passages of the personal stores in use.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from heapq import heappop, heappush
from itertools import count
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from core.ngram.interpolation import Store
from core.speculative.drafters.base import Drafter, Moment
from core.speculative.drafters.stores import CONTEXTS, StoreFollowers
from core.speculative.suffixes import ROOT, SuffixAutomaton
from core.speculative.tree import TokenTree

if TYPE_CHECKING:
    from core.ngram.personal import PersonalStore

SHORTEST = 1  # tokens of an end that is long enough
ENDS = 2  # ends whose following tokens are proposed, the longest first
MANY = 32  # an end with more following tokens, and shorter ones, which have as many, are left to the stores
HALF = 4.0  # tokens of an end after which what followed it once follows again with probability 1/2
FOLLOWERS = 16  # a store's tokens that are considered after a context
PASSAGES = 20_000  # tokens of personal stores' newest passages, at least; at most 1.5 times as many
BREAK = -1  # between two passages; no token
STORE_SHARE = 0.7  # of the probability that the text's own ends leave
LEAST = 0.02  # a path with a lower probability is not proposed
# Weight of all other tokens with known noise, beside e^(ln q + G) of each considered one: e to Euler's constant, which
# is the mean of G.
OTHERS = math.exp(0.5772156649)
MOST_CERTAIN = 0.98  # the highest probability of the considered tokens together


class _End(NamedTuple):
    """The longest end of a path that occurs in a text: its state in the automaton, and its tokens."""

    state: int
    length: int


NOWHERE = _End(ROOT, 0)


class _Path(NamedTuple):
    """A path of proposals, by its last one: `node` is its place in the tree (-1 for the text), `level` the number of
    proposals, `probability` the product along it, `ends` its end in each automaton, `tail` the last tokens, for the
    stores."""

    node: int
    level: int
    probability: float
    ends: tuple[_End, _End]
    tail: tuple[int, ...]


class SuffixDrafter(Drafter):
    """Proposes continuations of all earlier occurrences of the text's end, in the text and in passages of personal
    stores, and those in n-gram stores."""

    name = "suffix automaton"

    def __init__(self, stores: Sequence[Store] = (), most: int = 16) -> None:
        """
        Args:
            stores: the first one that contains a context is used. Without stores: the text and the passages alone.
            most: the highest number of tokens in a tree.
        """
        self.most = most
        self._text, self._passages = SuffixAutomaton(), SuffixAutomaton()
        self._ends = [NOWHERE]  # of each beginning of the text in the passages
        self._stores = StoreFollowers(stores, FOLLOWERS)
        self._marks: list[object] = []

    def read(self, personal: Sequence[PersonalStore]) -> None:
        """Makes the newest passages of these stores, as of their last `refresh`, those that are proposed."""
        if (marks := [store.mark for store in personal]) == self._marks:
            return
        ids: list[int] = []
        for store in personal:
            for run in store.newest_ids(PASSAGES // len(personal)):
                ids += [*run, BREAK]
        self._passages.become(ids)
        self._marks, self._ends = marks, [NOWHERE]

    def draft(self, moment: Moment, depth: int) -> TokenTree:
        ids = moment.ids
        del self._ends[self._text.become(ids) + 1 :]
        for token in ids[len(self._ends) - 1 :]:
            self._ends.append(_End(*self._passages.walk(*self._ends[-1], token)))
        tree = TokenTree(likelihood=(likelihood := list[float]()))
        # A heap, the most probable one first: (-probability, order, path, token, confidence, likelihood).
        waiting: list[tuple[float, int, _Path, int, float, float]] = []
        order = count()  # equally probable ones stay in their order
        end = _End(self._text.repeated, self._text.length[self._text.repeated])
        path = _Path(-1, 0, 1.0, (end, self._ends[-1]), tuple(ids[-max(CONTEXTS) :]))
        while len(tree) < self.most:
            if path.level < depth:
                known = self._followers(path)
                expected = _with_noise(known, moment, len(ids) + path.level)
                for token, confidence in expected.items():
                    if (probability := path.probability * confidence) >= LEAST:
                        heappush(waiting, (-probability, next(order), path, token, confidence, known[token]))
            if not waiting:
                break
            probability, _, parent, token, confidence, q = heappop(waiting)
            tree.ids.append(token)
            tree.parents.append(parent.node)
            tree.confidence.append(confidence)
            likelihood.append(q)
            text, passages = parent.ends
            ends = _End(*self._text.walk(*text, token)), _End(*self._passages.walk(*passages, token))
            tail = (*parent.tail[1 - max(CONTEXTS) :], token)
            path = _Path(len(tree) - 1, parent.level + 1, -probability, ends, tail)
        return tree

    def _followers(self, path: _Path) -> dict[int, float]:
        """Returns the probability of the tokens that may follow a path, by what followed before."""
        left, probability = 1.0, dict[int, float]()
        places = [*zip((self._text, self._passages), path.ends, strict=True)]
        places.sort(key=lambda place: -place[1].length)  # the longer match first; if equal, that in the text
        for automaton, (state, length) in places:
            tried = 0
            while length >= SHORTEST and tried < ENDS and len(automaton.next[state]) <= MANY:
                counts = {
                    token: automaton.count[each]
                    for token, each in automaton.next[state].items()
                    if token not in probability and token != BREAK
                }
                if counts:
                    total = sum(counts.values())
                    evidence = length * (total / len(counts)) ** 2
                    share = left * evidence / (evidence + HALF)
                    probability |= {token: share * times / total for token, times in counts.items()}
                    left -= share
                    tried += 1
                state = automaton.link[state]
                length = automaton.length[state]
        if path.probability * (left := left * STORE_SHARE) >= LEAST:  # a look-up is slow
            for token, share in self._stores.after(path.tail):
                probability[token] = probability.get(token, 0.0) + left * share
        return probability


def _with_noise(probability: dict[int, float], moment: Moment, position: int) -> dict[int, float]:
    """Returns the tokens with their probability that the target samples them. With known noise G this is the share of
    e^(ln q + G) in that of all tokens, of which those that are not considered count with the mean of their noise."""
    if moment.noise is None or not probability:
        return probability
    noise = moment.noise.gumbel(position, np.array(list(probability))).tolist()
    weights = {t: q * math.exp(g) for (t, q), g in zip(probability.items(), noise, strict=True)}
    others = 1 - min(sum(probability.values()), MOST_CERTAIN)
    total = sum(weights.values()) + others * OTHERS
    return {t: weight / total for t, weight in weights.items()}
