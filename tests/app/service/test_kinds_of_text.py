"""Drafts with the adapter to prose and without it, for several who type at once, on a tiny model: each text is read
once for each kind, and no cache of one kind serves the other."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from app.options.settings import DraftSettings
from app.service.requests import DraftRequest
from app.service.service import DraftService
from core.autocomplete import Autocomplete
from core.models import LanguageModel, load_model
from tests.core.models.test_prose_adapter import some_adapter

pytestmark = pytest.mark.usefixtures("one_thread")

TEXT = "It was a dark and stormy night, and the rain fell in torrents on the roofs of the town. "
WORDS = ("They ", "ran ", "to ", "the ", "inn ")
BEFORE = TEXT + "".join(WORDS[:2])  # where this model's drafts have letters


@pytest.fixture
def model(tiny_folder: Callable[[str], Path]) -> LanguageModel:
    return load_model(str(tiny_folder("compiled llama")), "torch")


@pytest.fixture
def service(model: LanguageModel) -> Iterator[DraftService]:
    adapter = some_adapter(model, model.fingerprint, seed=1)

    def load(_: str) -> Autocomplete:
        autocomplete = Autocomplete(model, prose=adapter)
        autocomplete.adapt()
        return autocomplete

    made = DraftService(load, pace=0)
    made.start()
    yield made
    made.close()


class Typists:
    """Requests of several tabs."""

    def __init__(self, service: DraftService) -> None:
        self.service, self.n = service, 0

    def key(self, tab: str, before: str, prose: bool, **more: Any) -> tuple[list[str], dict[str, Any]]:
        """The drafts, and the statistics."""
        self.n += 1
        settings = DraftSettings(k=3, length=4, prose=prose)
        request = DraftRequest(tab=tab, n=self.n, before=before, settings=settings, **more)

        async def all_of() -> list[dict[str, Any]]:
            return [event async for event in self.service.stream(request)]

        *_, last, stats = asyncio.run(asyncio.wait_for(all_of(), 20))
        return [draft["text"] for draft in last["drafts"]], stats

    def computed(self) -> int:
        return self.service.work()["computed"]


def test_one_without_prose_makes_nobody_read_a_text_anew(service: DraftService) -> None:
    typists = Typists(service)
    texts = [TEXT + "".join(WORDS[:n]) for n in range(len(WORDS) + 1)]
    alone = {kind: [typists.key(f"alone {kind}", text, kind) for text in texts] for kind in (True, False)}
    for at, text in enumerate(texts):  # a word of one, a word of the other
        for kind in (True, False):
            drafts, stats = typists.key(f"beside {kind}", text, kind)
            assert drafts == alone[kind][at][0]
            assert stats["fed"] == alone[kind][at][1]["fed"]
    assert max(stats["fed"] for _, stats in alone[False][1:]) < len(TEXT) // 4
    assert alone[True][2][0] != alone[False][2][0]


def test_a_tab_that_switches_prose_comes_back_to_what_it_had_read(service: DraftService) -> None:
    typists = Typists(service)
    with_prose, _ = typists.key("a", BEFORE, True)
    without, stats = typists.key("a", BEFORE, False)
    assert stats["reused"] == 0
    assert with_prose != without
    before = typists.computed()
    for prose, drafts in ((True, with_prose), (False, without)):
        again, stats = typists.key("a", BEFORE, prose)
        assert again == drafts
        assert stats["fed"] <= 1
    assert typists.computed() - before < len(BEFORE)
    service.leave("a")
    typists.key("b", "Once ", True)  # by now the engine knows it
    drafts, stats = typists.key("a", BEFORE, True)
    assert (drafts, stats["reused"]) == (with_prose, 0), "a tab that leaves leaves nothing of either kind"


def test_a_program_inherits_no_text_of_the_other_kind(service: DraftService) -> None:
    typists = Typists(service)
    typists.key("a", TEXT, True, by_text=True)
    _, stats = typists.key("b", TEXT, False, by_text=True)
    assert stats["reused"] == 0
    _, stats = typists.key("c", TEXT, True, by_text=True)
    assert stats["reused"] > 0
