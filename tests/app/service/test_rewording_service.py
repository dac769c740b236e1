"""A request with words is answered with what could stand in their place, and the tab's drafts stay what they are."""

from __future__ import annotations

from typing import Any

from app.options.settings import DraftSettings
from app.service.requests import DraftRequest
from app.service.service import DraftService
from core.autocomplete import Autocomplete
from tests.app.service.test_service import all_of, run
from tests.table_model import TableModel, words


def request(n: int, before: str, **fields: Any) -> DraftRequest:
    return DraftRequest(tab="a", n=n, before=words(before), settings=DraftSettings(k=3, length=2), **fields)


def test_words_are_answered_in_the_form_of_drafts_and_too_many_with_a_sentence() -> None:
    service = DraftService(lambda _: Autocomplete(TableModel(vocabulary=12)), "table", pace=0)
    service.start()

    async def asked() -> None:
        *_, drafts, _ = await all_of(service.stream(request(1, "abca")))
        there = request(2, "ab", words=words("c"), after=words("ad"))
        answer, stats = await all_of(service.stream(there))
        assert (answer["type"], answer["n"], answer["done"], stats["type"]) == ("drafts", 2, True, "stats")
        assert [row["id"] for row in answer["drafts"]] == list(range(10))
        assert answer["drafts"][0]["text"] == words("c")
        assert len({row["text"] for row in answer["drafts"]}) == 10
        assert await service.query("a", lambda position: position.n) == 1  # the charts show the tab's drafts
        *_, again, _ = await all_of(service.stream(request(3, "abca")))
        assert again["drafts"] == drafts["drafts"]
        (error,) = await all_of(service.stream(request(4, "ab", words="one two three four five six seven eight nine")))
        assert error["type"] == "error"
        assert error["message"] == "9 words given; at most 8 can be replaced at once."

    try:
        run(asked())
    finally:
        service.close()
