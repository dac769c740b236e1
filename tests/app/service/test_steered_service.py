"""What a request excludes reaches the drafting."""

from __future__ import annotations

import pytest
from pydantic import ValidationError
from table_model import TableModel, words

from app.service.requests import DraftRequest
from core.autocomplete import Autocomplete
from core.phrases import shipped_slurs


def test_a_request_says_what_its_drafts_leave_out() -> None:
    autocomplete = Autocomplete(TableModel())
    fields = {
        "never": [words("b")],
        "avoid": [words("c")],
        "token_bias": [(3, -100.0)],
        "removed": "a",
        "no_slurs": True,
    }
    request = DraftRequest(tab="a", n=1, before=words("abc"), **fields)  # pyright: ignore[reportArgumentType]
    ask = request.ask(autocomplete, [])
    assert (ask.never, ask.avoid, ask.token_bias) == ([words("b")], [words("c")], [(3, -100.0)])
    assert ask.phrases.within(shipped_slurs()[0])
    rows = autocomplete.open().complete(ask).finish(autocomplete.model).drafts
    assert rows
    assert not any(words("b") in row.text or words("d") in row.text or row.text[0] == words("c") for row in rows)


def test_a_phrase_that_is_none_is_refused_in_one_sentence() -> None:
    for never, sentence in (
        ([""], "An empty phrase given"),
        (["*"], "it must end one"),
        (["a"] * 10_001, "at most 10000"),
    ):
        with pytest.raises(ValidationError, match=sentence) as found:
            DraftRequest(tab="a", n=1, before="", never=never)
        assert found.value.error_count() == 1
