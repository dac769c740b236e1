"""Where a person begins to write, and what betrays a corpus there."""

from __future__ import annotations

import pytest

from research.beginnings import (
    DOCUMENT,
    FIRST_WORD,
    KINDS,
    WORDS,
    drawn,
)
from research.betrayal import betrays

NOTE = """# The boat

The boat has been in the shed since the last autumn. It needs new paint before the water is warm. We begin on Sunday.

> Nobody has ever quoted this line of text here.

What we have to buy for the work:

- two tins of the blue paint, one brush
1. [ ] three new ropes for the old mast

```
print this is code and it has many words
```

Afterwards we will put the boat into the lake again.
The first trip of the summer is always the best.
"""


LETTER = "Dear Anna,\n\nthank you very much for your letter of May."


def at(kind: str, text: str = NOTE) -> list[tuple[str, str]]:
    """Returns the ends of the texts before the places of one kind in a text, and the writer's words there."""
    places = [place for place in drawn({"text": [text]}, 1000) if place.kind == kind]
    return [(place.before, place.rest) for place in places if place.rest in text]


def test_the_writer_goes_on_with_six_words() -> None:
    places = drawn({"text": [NOTE]}, 1000)
    assert {len(place.rest.split()) for place in places} == {WORDS}
    assert {place.kind for place in places} == {*KINDS}
    for place in places:
        if place.rest in NOTE and place.kind not in (DOCUMENT, FIRST_WORD):
            assert NOTE.startswith(place.before + place.rest)


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
