"""No row ends inside a word, a number, a contraction or an opening mark: in no method, and not while it grows."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from core.autocomplete import Autocomplete, CompleteOptions, Completion
from core.modes.start import Mode
from training.texts import SAMPLE

METHODS = ("superposed", "branching", "greedy", "beam", "sampled", "sampled+superposed")
# Written apart from core/ends.py: what is shown, then what the draft goes on with.
INSIDE = re.compile(
    r"[^\W_]\0[^\W_]|[^\W_]\0['’-][^\W_]|[^\W_]['’-]\0[^\W_]|\d[.,:]?\0[.,:]?\d|(?<![^\W])[(\[{]\0|[“‘]\0|(?:^|\s)[\"']\0"
)


def is_inside(completion: Completion, shown: str, ids: tuple[int, ...]) -> bool:
    """Whether a row ends inside a word, as far as the tokens of its draft tell."""
    presentation = completion._presentation
    known = presentation.text(list(ids))
    assert known.startswith(shown)
    return INSIDE.search(f"{shown}\0{known[len(shown) :]}") is not None


def places(count: int) -> Iterator[str]:
    texts = [path.read_text(encoding="utf-8") for path in sorted(Path(SAMPLE).glob("*.md"))]
    for n in range(count):
        text = texts[n % len(texts)]
        yield text[: (n * 997) % len(text)][-600:]


def steps(completion: Completion) -> Iterator[None]:
    """Computes a completion, one pass for each step, from its first state on."""
    yield
    while not completion.done:
        completion.advance(completion._session.autocomplete.model.forward(completion.rows()))
        yield


@pytest.mark.parametrize("method", METHODS)
def test_no_row_ends_inside_a_word_at_any_step(autocomplete: Autocomplete, method: str) -> None:
    rows = 0
    for before in places(12):
        session = autocomplete.open()
        options = CompleteOptions(k=3, length=6, mode=Mode(method), seed=1, corrects=method == "superposed")
        completion = session.complete(before, options=options)
        for _ in steps(completion):
            for row in completion.drafts:
                rows += 1
                assert not is_inside(completion, row.text, row.ids), (before[-30:], row.text)
                assert not row.text[-1].isspace()
        session.close()
    assert rows > 30
