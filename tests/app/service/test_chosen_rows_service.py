"""A row that the writer chose reaches the drafting, and the page sees it however improbable it is."""

from __future__ import annotations

from typing import Any

from app.options.settings import DraftSettings
from app.service.requests import DraftRequest
from app.service.service import DraftService
from core.autocomplete import Autocomplete
from core.models import load_model
from tests.app.service.test_service import all_of, run


def drafts_with(kept: list[dict[str, Any]]) -> dict[int, str]:
    service = DraftService(lambda _: Autocomplete(load_model("default")), "default", pace=0)
    service.start()
    try:
        settings = DraftSettings(k=3, length=5, min_confidence=0.05)
        fields: dict[str, Any] = {"before": "Thank you for your", "settings": settings, "kept": kept}
        *_, last, _ = run(all_of(service.stream(DraftRequest(tab="a", n=1, **fields))))
    finally:
        service.close()
    return {row["id"]: row["text"] for row in last["drafts"]}


def test_a_chosen_row_stays_and_grows() -> None:
    unlikely = {"id": 1, "text": " umbrella"}
    chosen = drafts_with([unlikely | {"chosen": True}])[1]
    assert chosen.startswith(" umbrella")
    assert len(chosen) > len(" umbrella")
    assert not any(text.startswith(" umbrella") for text in drafts_with([unlikely]).values())
