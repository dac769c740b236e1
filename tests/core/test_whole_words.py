"""No row ends inside a word, a number, a contraction or an opening mark: in no method, and not while it grows."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from core.ask import Ask
from core.autocomplete import Autocomplete
from core.modes.start import Mode
from core.present import Presentation, TextDraft
from tests.completing import Completing, complete
from training.texts import SAMPLE

METHODS = ("superposed", "branching", "greedy", "beam", "sampled", "sampled+superposed")
# Written apart from core/ends.py: what is shown, then what the draft goes on with.
INSIDE = re.compile(
    r"[^\W_]\0[^\W_]|[^\W_]\0['’-][^\W_]|[^\W_]['’-]\0[^\W_]|\d[.,:]?\0[.,:]?\d|(?<![^\W])[(\[{]\0|[“‘]\0|(?:^|\s)[\"']\0"
)


def is_inside(how: Presentation, row: TextDraft) -> bool:
    """Whether a row ends inside a word, as far as the tokens of its draft tell."""
    known = how.text(list(row.ids))
    assert known.startswith(row.text)
    return INSIDE.search(f"{row.text}\0{known[len(row.text) :]}") is not None


def places(count: int) -> Iterator[str]:
    texts = [path.read_text(encoding="utf-8") for path in sorted(Path(SAMPLE).glob("*.md"))]
    for n in range(count):
        text = texts[n % len(texts)]
        yield text[: (n * 997) % len(text)][-600:]


def steps(completion: Completing) -> Iterator[None]:
    """Computes the drafts, one pass for each step, from their first state on."""
    yield
    while not completion.done:
        completion.advance(completion.model.forward(completion.rows()))
        yield


@pytest.mark.parametrize("method", METHODS)
def test_no_row_ends_inside_a_word_at_any_step(autocomplete: Autocomplete, method: str) -> None:
    rows = 0
    for before in places(2 if method == "superposed" else 1):
        session = autocomplete.open()
        options = Ask(k=3, length=6, mode=Mode(method), seed=1, corrects=method == "superposed")
        completion = complete(session, before, options)
        typed = autocomplete.healer.plan(before, window=autocomplete.window).rests[0]
        how = Presentation(autocomplete.model.tokenizer, options, typed)
        for _ in steps(completion):
            for row in completion.drafts:
                rows += 1
                assert row.replace or not is_inside(how, row), (before[-30:], row.text)
                assert not row.text[-1].isspace()
        session.close()
    assert rows > 5
