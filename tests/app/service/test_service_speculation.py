"""Speculation as the page requests it, through the service, on a tiny model of torch: the same drafts, measurements
between the drafts, and a head that is fed the whole text."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from app.options.settings import DraftSettings
from app.service import engine
from app.service.requests import DraftRequest
from app.service.service import DraftService
from core.autocomplete import Autocomplete
from core.models import costs, hf
from core.models.base import LanguageModel
from core.speculative.drafters import Moment, eagle3
from tests.core.speculative.test_eagle3_drafter import head_for

pytestmark = pytest.mark.usefixtures("one_thread")


@pytest.fixture(scope="module")
def folder(tiny_folder: Callable[[str], Path]) -> Path:
    return tiny_folder("llama")


@pytest.fixture
def model(folder: Path) -> LanguageModel:
    return hf.load(folder, "tiny")


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(costs.platformdirs, "user_cache_path", lambda _: tmp_path)
    return tmp_path


@pytest.fixture
def service(model: LanguageModel) -> Iterator[DraftService]:
    made = DraftService(lambda _: Autocomplete(model), pace=0)
    made.start()
    yield made
    made.close()


def asked(way: dict[str, Any] | None, **values: Any) -> DraftSettings:
    sampling = {"mode": "sampled", "seed": 3} | ({"speculation": way | {"values": values}} if way else {})
    return DraftSettings.model_validate({"k": 3, "length": 9, "sampling": sampling})


def told(
    service: DraftService, n: int, settings: DraftSettings, before: str = "It was a dark "
) -> list[dict[str, Any]]:
    async def all_of() -> list[dict[str, Any]]:
        return [event async for event in service.stream(DraftRequest(tab="a", n=n, before=before, settings=settings))]

    return asyncio.run(asyncio.wait_for(all_of(), 20))


def drafts(events: list[dict[str, Any]]) -> list[tuple[int, str]]:
    *_, last, stats = events
    assert (last["type"], last["done"], stats["type"]) == ("drafts", True, "stats")
    return [(draft["id"], draft["text"]) for draft in last["drafts"]]


def settled(service: DraftService, n: int, settings: DraftSettings) -> list[dict[str, Any]]:
    """The answer once costs are known; the same question until then."""
    for more in range(500):
        events = told(service, n + more, settings)
        if events[-2]["speculation"]["notice"] != engine.MEASURING:
            return events
    raise TimeoutError


def test_costs_are_measured_between_the_drafts_and_kept(service: DraftService, cache: Path) -> None:
    plain = told(service, 1, asked(None))
    assert all("speculation" not in event for event in plain)
    lossless = asked({"mode": "lossless", "drafter": "ngram"}, tree_size=6)
    first = told(service, 2, lossless)
    assert first[0]["speculation"] == {"accept_length": 0.0, "speedup": 1.0, "notice": engine.MEASURING}
    assert drafts(first) == drafts(plain)
    events = settled(service, 3, lossless)
    assert (cache / "costs.json").is_file()
    assert events[-2]["speculation"]["accept_length"] >= 1
    assert drafts(events) == drafts(plain)
    assert {came[2] for draft in events[-2]["drafts"] for came in draft["how"]} <= {
        "plain",
        "accepted",
        "corrected",
        "bonus",
    }


def test_a_head_drafts_after_a_text_that_was_fed_before_it_was_chosen(
    service: DraftService, model: LanguageModel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    head_for(model).save(tmp_path / "head")
    monkeypatch.setattr(eagle3, "DEFAULT_HEAD", tmp_path / "head")
    costs.keep(model, "tokens", costs.CostCurve((1, 48), (1.0, 1.01)))
    before = "It was a dark and "
    plain = told(service, 1, asked(None), before)
    followed: list[int] = []
    draft_all = eagle3.Eagle3Drafter.draft_all

    def noted(self: Any, moments: list[Moment], depths: Any) -> Any:
        for moment in moments:
            assert moment.features is not None
            assert len(moment.features) == len(moment.ids) - 1
        followed.append(len(moments))
        return draft_all(self, moments, depths)

    monkeypatch.setattr(eagle3.Eagle3Drafter, "draft_all", noted)
    events = told(service, 2, asked({"mode": "lossless", "drafter": "eagle3"}, tree_size=8), before)
    assert drafts(events) == drafts(plain)
    assert followed
    typed = told(service, 3, asked({"mode": "lossless", "drafter": "eagle3"}, tree_size=8), before + "s")
    assert drafts(typed) == drafts(told(service, 4, asked(None), before + "s"))
    assert typed[-1]["reused"] > 0  # once watched, a text is not read twice


def test_a_drafter_that_a_model_cannot_have_is_refused_by_name(service: DraftService, model: LanguageModel) -> None:
    costs.keep(model, "tokens", costs.CostCurve((1, 48), (1.0, 1.01)))
    (error,) = told(service, 1, asked({"mode": "lossless", "drafter": "eagle3"}))
    assert error["type"] == "error"
    assert "300 and 32" in error["message"]  # the head that ships is for another model
    assert error["setting"] == "speculation"
    assert told(service, 2, asked(None))[-1]["type"] == "stats"
