"""The suffix automaton, against counting in the text itself."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from core.speculative.suffixes import MOST, ROOT, SuffixAutomaton

TEXTS = st.lists(st.integers(0, 3), max_size=40)


def occurrences(text: list[int], run: list[int]) -> int:
    return sum(text[at : at + len(run)] == run for at in range(len(text) - len(run) + 1))


def state_of(automaton: SuffixAutomaton, run: list[int]) -> int | None:
    state = ROOT
    for token in run:
        if token not in automaton.next[state]:
            return None
        state = automaton.next[state][token]
    return state


def check(automaton: SuffixAutomaton, text: list[int], runs: list[list[int]]) -> None:
    """Compares counts and following tokens of some runs, and the longest repeated end, with the text."""
    for run in runs:
        state, times = state_of(automaton, run), occurrences(text, run)
        assert (state is None) == (times == 0)
        if state is not None:
            assert automaton.count[state] == min(times, MOST)
            assert set(automaton.next[state]) == {t for t in range(4) if occurrences(text, [*run, t])}
    longest = next((n for n in range(len(text) - 1, 0, -1) if occurrences(text, text[-n:]) > 1), 0)
    assert automaton.length[automaton.repeated] == longest
    assert not longest or automaton.repeated == state_of(automaton, text[-longest:])


def runs_of(text: list[int]) -> list[list[int]]:
    return [text[a:b] for a in range(len(text)) for b in range(a + 1, min(a + 7, len(text)) + 1)]


@settings(max_examples=80, deadline=None)
@given(TEXTS, st.lists(st.lists(st.integers(0, 3), min_size=1, max_size=5), max_size=10))
def test_counts_and_following_tokens_are_those_of_the_text(text: list[int], others: list[list[int]]) -> None:
    check(SuffixAutomaton(text), text, runs_of(text) + others)


@settings(max_examples=80, deadline=None)
@given(st.lists(TEXTS, min_size=1, max_size=5), TEXTS)
def test_a_removed_text_leaves_nothing(others: list[list[int]], text: list[int]) -> None:
    """After any other texts, an automaton equals a new one, whatever it shares with them."""
    automaton = SuffixAutomaton()
    for other in others:
        automaton.become(text[: len(other) // 2] + other)
    automaton.become(text)
    fresh = SuffixAutomaton(text)
    assert vars(automaton) == vars(fresh)
    assert [list(after) for after in automaton.next] == [list(after) for after in fresh.next]  # in the same order


@settings(max_examples=100, deadline=None)
@given(TEXTS, TEXTS)
def test_another_text_is_followed_by_its_longest_end_that_occurs(text: list[int], other: list[int]) -> None:
    automaton, state, length = SuffixAutomaton(text), ROOT, 0
    for n, token in enumerate(other, 1):
        state, length = automaton.walk(state, length, token)
        longest = next(m for m in range(n, -1, -1) if m == 0 or occurrences(text, other[n - m : n]))
        assert length == longest
        assert state == state_of(automaton, other[n - length : n])
