"""A request with `explain` is told how each token of its complete drafts was made, and what they took."""

from __future__ import annotations

from typing import Any

import pytest

from app.options.settings import DraftSettings
from app.service.requests import DraftRequest
from app.service.service import DraftService
from core.autocomplete import Autocomplete
from tests.app.service.test_service import all_of, run
from tests.table_model import TableModel, words


def events(explain: bool, **settings: Any) -> list[dict[str, Any]]:
    service = DraftService(lambda _: Autocomplete(TableModel(vocabulary=12)), "table", pace=0)
    service.start()
    try:
        request = DraftRequest(
            tab="a",
            n=1,
            before=words("abca"),
            settings=DraftSettings(k=3, length=5, end_below=0, **settings),
            explain=explain,
        )
        return run(all_of(service.stream(request)))[:-1]
    finally:
        service.close()


@pytest.mark.parametrize("settings", [{}, {"sampling": {"mode": "sampled"}}, {"sampling": {"mode": "beam"}}])
def test_the_last_event_explains_the_drafts(settings: dict[str, Any]) -> None:
    *_, last = events(explain=True, **settings)
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


def test_without_the_flag_no_event_has_more_fields() -> None:
    for event in events(explain=False):
        assert "explained" not in event
        assert not any("made" in row for row in event["drafts"])
