"""A suffix automaton of a text: how often any run of its tokens occurs, and which tokens follow it.

The automaton is the smallest that accepts the suffixes of the text (Blumer et al. 1985), built token by token. A state
stands for all runs of tokens that end at the same places. Its `link` leads to the state of the longest shorter run that
ends at further places, too. So the link of the whole text's state is the longest end of the text that occurred before:
no search is needed.

A token costs O(1) amortised, whatever the text. Counts stay so because they end at MOST: of the runs that end at one
place, a shorter one of another state occurs more often, so fewer than MOST of them are still counted. `cut` removes the
last tokens again by reversing what `append` did.

A text of n ≥ 2 tokens has at most 2n - 1 states and 3n - 3 transitions, so memory is bounded by that of the text, which
fits the model's context: English prose takes some 440 bytes a token.
"""

from __future__ import annotations

from collections.abc import Iterable

MOST = 64  # the highest count; more occurrences count as many
NONE = -1
ROOT = 0  # the state of the empty run


class SuffixAutomaton:
    """The runs of tokens in a text, which grows and shrinks at its end.

    Attributes:
        ids: the tokens.
        next: by state, the state after each token that follows its runs, in the order of their first occurrence there.
        length: by state, the tokens of its longest run.
        link: by state, that of the longest shorter run with more occurrences; NONE for ROOT.
        count: by state, the occurrences of its runs, at most MOST; 0 for ROOT.
    """

    def __init__(self, ids: Iterable[int] = ()) -> None:
        self.ids: list[int] = []
        self.next: list[dict[int, int]] = [{}]
        self.length, self.link, self.count = [0], [NONE], [0]
        # What `cut` needs: the state of each beginning of the text; by token, the number of states whose count it
        # raised, and the state that it divided, or NONE.
        self._beginnings, self._counted, self._divided = [ROOT], list[int](), list[int]()
        for token in ids:
            self.append(token)

    @property
    def repeated(self) -> int:
        """The state of the longest end of the text that occurred earlier, too; ROOT without one."""
        return max(self.link[self._beginnings[-1]], ROOT)

    def walk(self, state: int, length: int, token: int) -> tuple[int, int]:
        """Follows another text by one token.

        Args:
            state, length: the longest end of that text that occurs in this one: its state and its tokens.
        Returns: the same after the token.
        """
        while token not in self.next[state]:
            if state == ROOT:
                return ROOT, 0
            state = self.link[state]
            length = self.length[state]
        return self.next[state][token], length + 1

    def become(self, ids: list[int]) -> int:
        """Makes this the automaton of another text, from the end of their common beginning on. Returns the number of
        tokens that they have in common."""
        known = min(len(self.ids), len(ids))
        if self.ids[:known] != ids[:known]:
            known = next(n for n in range(known) if self.ids[n] != ids[n])
        self.cut(known)
        for token in ids[known:]:
            self.append(token)
        return known

    def append(self, token: int) -> None:
        """Appends a token to the text."""
        following, link, count = self.next, self.link, self.count
        state, divided = self._beginnings[-1], NONE
        new = self._add({}, self.length[state] + 1, ROOT, 1)
        while state != NONE and token not in following[state]:
            following[state][token] = new
            state = link[state]
        if state != NONE:
            after = following[state][token]
            if self.length[state] + 1 < self.length[after]:
                # The runs of `after` up to this length now also end here, so they become a state of their own.
                divided = after
                after = self._add(dict(following[after]), self.length[state] + 1, link[after], count[after])
                link[divided] = after
                while state != NONE and following[state].get(token) == divided:
                    following[state][token] = after
                    state = link[state]
            link[new] = after
        counted, state = 0, link[new]
        while state != ROOT and count[state] < MOST:  # if a run has that count, the shorter ones have it, too
            count[state] += 1
            counted, state = counted + 1, link[state]
        self.ids.append(token)
        self._beginnings.append(new)
        self._counted.append(counted)
        self._divided.append(divided)

    def cut(self, length: int) -> None:
        """Removes the tokens after the first `length`."""
        while len(self.ids) > length:
            self._remove_last()

    def _remove_last(self) -> None:
        following, link = self.next, self.link
        token, new, divided = self.ids.pop(), self._beginnings.pop(), self._divided.pop()
        state = link[new]
        for _ in range(self._counted.pop()):
            self.count[state] -= 1
            state = link[state]
        state = self._beginnings[-1]
        while state != NONE and following[state].get(token) == new:
            del following[state][token]
            state = link[state]
        if divided != NONE:
            copy = link[new]
            while state != NONE and following[state].get(token) == copy:
                following[state][token] = divided
                state = link[state]
            link[divided] = link[copy]
        for values in (following, self.length, link, self.count):
            del values[new:]

    def _add(self, following: dict[int, int], length: int, link: int, count: int) -> int:
        """Adds a state, and returns its number."""
        self.next.append(following)
        self.length.append(length)
        self.link.append(link)
        self.count.append(count)
        return len(self.next) - 1
