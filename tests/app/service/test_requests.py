"""What a request asks reaches the drafting, and what it is answered; on a model that is a table."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from pydantic import ValidationError

from app.options.settings import DraftSettings
from app.service.requests import DraftRequest
from app.service.service import DraftService
from core.autocomplete import Autocomplete
from core.phrases import shipped_slurs
from tests.app.service.test_service import all_of, run
from tests.table_model import TableModel, words


@pytest.fixture
def service() -> Iterator[DraftService]:
    made = DraftService(lambda _: Autocomplete(TableModel(vocabulary=12)), "table", pace=0)
    made.start()
    yield made
    made.close()


def asked(n: int = 1, before: str = "abca", settings: dict[str, Any] | None = None, **fields: Any) -> DraftRequest:
    chosen = DraftSettings(**{"k": 3, "length": 5, "end_below": 0} | (settings or {}))
    return DraftRequest(tab="a", n=n, before=words(before), settings=chosen, **fields)


def told(service: DraftService, request: DraftRequest) -> list[dict[str, Any]]:
    return run(all_of(service.stream(request)))


# ---------------------------------------------------------------- how drafts were made


@pytest.mark.parametrize("settings", [{}, {"sampling": {"mode": "sampled"}}, {"sampling": {"mode": "beam"}}])
def test_the_last_event_explains_the_drafts(service: DraftService, settings: dict[str, Any]) -> None:
    *_, last, _ = told(service, asked(settings=settings, explain=True))
    assert last["done"]
    assert set(last["explained"]) == {"passes", "rows", "ms", "apart_ms"}
    assert 0 < last["explained"]["passes"] <= last["explained"]["rows"]
    assert last["drafts"]
    for row in last["drafts"]:
        assert "".join(row["text"][token["from"] : token["to"]] for token in row["made"]) == row["text"]
        for token in row["made"]:
            fields = {"from", "to", "by", "gamma", "ln_model", "ln_stores", "ln_mixture", "kept"}
            assert set(token) - {"store"} == fields
            assert token["ln_model"] == round(token["ln_model"], 4) < 0
    for event in told(service, asked(2, settings=settings)):
        assert "explained" not in event
        assert not any("made" in row for row in event.get("drafts", ()))


# ---------------------------------------------------------------- rows that were chosen, words that are replaced


def test_a_row_that_the_writer_chose_is_shown_however_improbable_it_is(service: DraftService) -> None:
    *_, first, _ = told(service, asked())
    shown = "".join(row["text"] for row in first["drafts"])
    unlikely = next(letter for letter in words("abcdefghijkl") if letter not in shown)
    kept, settings = {"id": 1, "text": unlikely}, {"min_confidence": 0.2}
    *_, chosen, _ = told(service, asked(2, settings=settings, kept=[kept | {"chosen": True}]))
    assert [row["text"] for row in chosen["drafts"] if row["id"] == 1 and row["probability"] < 0.2] == [unlikely]
    *_, plain, _ = told(service, asked(3, settings=settings, kept=[kept]))
    assert not any(row["text"].startswith(unlikely) for row in plain["drafts"])


def test_words_are_answered_in_the_form_of_drafts_and_too_many_with_a_sentence(service: DraftService) -> None:
    async def replaced() -> None:
        *_, drafts, _ = await all_of(service.stream(asked(1)))
        answer, stats = await all_of(service.stream(asked(2, "ab", words=words("c"), after=words("ad"))))
        assert (answer["type"], answer["n"], answer["done"], stats["type"]) == ("drafts", 2, True, "stats")
        assert [row["id"] for row in answer["drafts"]] == list(range(10))
        assert answer["drafts"][0]["text"] == words("c")
        assert len({row["text"] for row in answer["drafts"]}) == 10
        assert await service.query("a", lambda position: position.n) == 1  # the charts show the tab's drafts
        *_, again, _ = await all_of(service.stream(asked(3)))
        assert again["drafts"] == drafts["drafts"]
        (error,) = await all_of(service.stream(asked(4, "ab", words="one two three four five six seven eight nine")))
        assert (error["type"], error["message"]) == ("error", "9 words given; at most 8 can be replaced at once.")

    run(replaced())


# ---------------------------------------------------------------- what drafts leave out


def test_a_request_says_what_its_drafts_leave_out() -> None:
    autocomplete = Autocomplete(TableModel())
    request = asked(
        before="abc", never=[words("b")], avoid=[words("c")], token_bias=[(3, -100.0)], removed="a", no_slurs=True
    )
    ask = request.ask(autocomplete, [])
    assert (ask.never, ask.avoid, ask.token_bias) == ([words("b")], [words("c")], [(3, -100.0)])
    assert ask.phrases.within(shipped_slurs()[0])
    rows = autocomplete.open().complete(ask).finish(autocomplete.model).drafts
    assert rows
    assert not any(words("b") in row.text or words("d") in row.text or row.text[0] == words("c") for row in rows)


@pytest.mark.parametrize(
    ("never", "sentence"),
    [([""], "An empty phrase given"), (["*"], "it must end one"), (["a"] * 10_001, "at most 10000")],
)
def test_a_phrase_that_is_none_is_refused_in_one_sentence(never: list[str], sentence: str) -> None:
    with pytest.raises(ValidationError, match=sentence) as found:
        asked(never=never)
    assert found.value.error_count() == 1
