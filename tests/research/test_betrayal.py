"""What betrays a corpus in plain prose, and what belongs there."""

from __future__ import annotations

import pytest

from research.betrayal import betrays

PROSE = "Thank you for the letter. The garden is doing well, and I have"


@pytest.mark.parametrize(
    "draft",
    [
        " been at 18F, where",
        " seen [Python 3.10 release]",
        " met [Liam]",
        " met [Liam",
        " read PEP 8",
        " read the RFC",
        " written EIP-1559",
        " a TODO",
        ' asked: "Tell me about a system you built or operated',
        " asked: “Describe a time",
    ],
)
def test_what_only_the_corpus_speaks_of_betrays_it(draft: str) -> None:
    assert betrays(draft, PROSE)


@pytest.mark.parametrize(
    "draft",
    [
        " been to the post office",
        " a lot of pep",
        " 18 friends",
        " todo",
        " (as you know) been ill",
        ' said: "Tell her that I am well"',
        "[ ] the next task",
    ],
)
def test_what_a_person_writes_does_not(draft: str) -> None:
    assert not betrays(draft, PROSE)


def test_a_text_that_speaks_of_it_may_go_on_doing_so() -> None:
    assert not betrays(" PEP 8", "We follow PEP 257 and")
    assert not betrays(" [Anna]", "According to [Liam] and")
    assert betrays(" [Anna]", "We follow PEP 257 and")
