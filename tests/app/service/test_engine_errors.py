"""Errors at random places and times: each ends its own request with a sentence, and every other draft is as without."""

from __future__ import annotations

import asyncio
import json
import random
import subprocess
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
import torch

from app.options.settings import DraftSettings
from app.service import engine
from app.service.engine import Engine
from app.service.jobs import Job
from app.service.requests import DraftRequest
from app.service.service import DraftService
from core.autocomplete import Autocomplete
from core.drafting.driver import Driven
from core.errors import ContextFull
from core.healing import Healer
from core.models import hf
from core.models.base import Row, Sequence
from core.models.memory import CACHE_POSITIONS, CACHE_SHARE, room_in_cache, usual_limit
from core.models.torch_model import TorchModel
from tests.tiny_gguf import tiny

pytestmark = pytest.mark.usefixtures("one_thread")

TABS = ("a", "b", "c", "d", "e")
TEXTS = ("It was", "It was a d", "It was a dark", "Night ", "Nigh")
RAISED: list[Callable[[], Exception]] = [
    lambda: KeyError("k"),
    lambda: IndexError("i"),
    lambda: AssertionError(),
    lambda: RuntimeError("CUDA error"),
    lambda: torch.OutOfMemoryError("torch"),
    lambda: MemoryError(),
    lambda: ContextFull("Injected: no room."),
    lambda: StopIteration(),
    lambda: TypeError("t"),
]


@pytest.fixture(scope="module")
def model(tiny_folder: Callable[[str], Path]) -> TorchModel:
    return hf.load(tiny_folder("compiled llama"), "tiny")


def answers(service: DraftService, n: int) -> dict[str, list[dict[str, Any]]]:
    """The events of one request of every tab, all at once."""

    async def of(tab: str, i: int) -> list[dict[str, Any]]:
        await asyncio.sleep(0.003 * i)
        settings = DraftSettings(k=3, length=5)
        request = DraftRequest(tab=tab, n=n, before=TEXTS[(n + i) % len(TEXTS)], settings=settings)
        return [event async for event in service.stream(request)]

    async def of_all() -> dict[str, list[dict[str, Any]]]:
        found = await asyncio.gather(*(of(tab, i) for i, tab in enumerate(TABS)))
        return dict(zip(TABS, found, strict=True))

    return asyncio.run(asyncio.wait_for(of_all(), 30))


def texts(events: list[dict[str, Any]]) -> list[str]:
    *_, last, stats = events
    assert (last["type"], stats["type"]) == ("drafts", "stats")
    return [draft["text"] for draft in last["drafts"]]


def test_errors_anywhere_leave_other_tabs_drafts_unchanged(model: TorchModel, monkeypatch: pytest.MonkeyPatch) -> None:
    service = DraftService(lambda _: Autocomplete(model), pace=0)
    monkeypatch.setattr(TorchModel, "close", lambda self: None)  # the fixture's
    service.start()
    calm = [answers(service, n) for n in range(len(TEXTS))]
    chance, armed = random.Random(5), [0.0]

    def flaky(owner: object, name: str) -> None:
        real = getattr(owner, name)

        def call(*args: Any, **kwargs: Any) -> Any:
            when = chance.random()
            if when < armed[0] / 2:
                raise chance.choice(RAISED)()
            result = real(*args, **kwargs)
            if when < armed[0]:
                raise chance.choice(RAISED)()  # when its work is done
            return result

        monkeypatch.setattr(owner, name, call)

    places = [(TorchModel, "_forward"), (TorchModel, "_place"), (Driven, "rows"), (Driven, "advance")]
    places += [(Driven, "close"), (Healer, "plan"), (Sequence, "fork"), (Sequence, "_note"), (engine, "stats_event")]
    for owner, name in places:
        flaky(owner, name)
    errors = 0
    for n in range(len(TEXTS), 7 * len(TEXTS)):
        armed[0] = 0.05 if n % 3 else 0.0  # every third time without: the cache is as good as new
        for tab, events in answers(service, n).items():
            if events[-1]["type"] == "error" or events[-2]["type"] == "error":
                assert n % 3, "an error where none was injected"
                assert events[-1]["message"]
                errors += 1
            else:
                assert texts(events) == texts(calm[n % len(TEXTS)][tab])
    assert errors > 20
    armed[0] = 0.0
    assert service.status()["ready"]
    service.close()
    assert not service._thread.is_alive()


def test_the_cache_takes_its_share_of_free_memory_or_of_the_machine_or_what_its_owner_chose(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    gigabyte, small, much, position = 1 << 30, 1 << 20, 1 << 50, 46_080  # of the default model
    share = int(CACHE_SHARE * gigabyte)
    for fits, (taken, more, free, size) in (
        (True, (0, share, gigabyte, small)),
        (False, (0, share + 1, gigabyte, small)),
        # The memory of the cache is no longer free, so the limit does not change.
        (True, (share // 2, share // 2, gigabyte - share // 2, small)),
        (False, (share // 2, share // 2 + 4, gigabyte - share // 2, small)),
        # A large memory is not filled with texts at rest.
        (True, (0, CACHE_POSITIONS * position, much, position)),
        (False, (position, CACHE_POSITIONS * position, much, position)),
    ):
        assert room_in_cache(taken, more, free, size) is fits
    monkeypatch.setattr("core.models.memory.total_bytes", lambda: 8 * gigabyte)
    assert usual_limit(position) == 8 * gigabyte // 12
    assert usual_limit(4 * gigabyte // 1024) == 16 * gigabyte, "a large model has room for some windows"
    assert room_in_cache(0, 100, gigabyte, position, most=100)
    assert not room_in_cache(0, 101, gigabyte, position, most=100)


# In a process of its own, which has few other objects to look at.
LEAVES = """
import asyncio, gc, json, random, sys, time

from app.service.requests import DraftRequest
from app.service.service import DraftService
from app.options.settings import DraftSettings
from core.autocomplete import Autocomplete
from core.completion import Completion
from core.models import load_model
from core.session import Session

needle = "".join(random.Random(7).choices("abcdefgh", k=20))  # in no string of this code

def live(*types):
    gc.collect()
    return [type(found).__name__ for found in gc.get_objects() if type(found) in types]

def strings():  # that contain more than the needle
    held = (found for owner in gc.get_objects() for found in gc.get_referents(owner))
    return [found for found in held if type(found) is str and needle in found and found != needle]

async def write(service):
    for n in range(3):
        before = f"My secret {needle} is {'long ' * n}"
        request = DraftRequest(tab="a", n=n, before=before, settings=DraftSettings(k=3, length=5))
        assert [event async for event in service.stream(request)][-1]["type"] == "stats"

model = load_model(sys.argv[1])
service = DraftService(lambda _: Autocomplete(model), pace=0)
service.start()
asyncio.run(write(service))
assert live(Session) == ["Session"]
assert strings()
service.leave("a")
deadline = time.monotonic() + 10
while live(Session, Completion, DraftRequest) and time.monotonic() < deadline:
    time.sleep(0.05)
print(json.dumps([live(Session, Completion, DraftRequest), strings()]))
service.close()
"""


def test_a_tab_that_left_leaves_nothing_of_its_text(tiny_file: Path) -> None:
    """The page leaves when it is closed, when incognito is switched, and with a document that has private text."""
    done = subprocess.run([sys.executable, "-c", LEAVES, str(tiny_file)], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == [[], []]


def test_100_live_tabs_are_all_answered_and_the_cache_stays_within_its_limit_while_their_texts_grow(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tabs, positions = 100, 10_000  # room for all of the short texts, and for twenty of the long ones
    path = tmp_path / "tiny.gguf"
    path.write_bytes(tiny(context=1024).written())
    monkeypatch.setattr("core.models.memory.CACHE_POSITIONS", positions)
    with closing(hf.load(path, "tiny")) as model:
        crowded = Engine(Autocomplete(model), 0)

        async def last_event(tab: int, n: int, words: int) -> str:
            text = f"{tab} " + "words " * words
            job = Job(DraftRequest(tab=f"tab {tab}", n=n, before=text, settings=DraftSettings(k=1, length=1)))
            crowded.begin(job.request.tab, job)
            while crowded.busy:
                crowded.step()
            assert model.cache_bytes <= positions * model.layers.position_bytes
            kinds = [event["type"] async for event in events_of(job)]
            return kinds[-1]

        async def all_of_them() -> set[str]:
            short = {await last_event(tab, 1, 2) for tab in range(tabs)}
            return short | {await last_event(tab, 2, 140) for tab in range(0, tabs, 4)}

        assert asyncio.run(all_of_them()) == {"stats"}
        crowded.close()


async def events_of(job: Job) -> AsyncIterator[dict[str, Any]]:
    while (event := await job.next_event()) is not None:
        yield event


def test_a_chosen_limit_holds_also_if_it_is_none_at_all(
    autocomplete: Autocomplete, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = autocomplete.model
    assert model.cache_grows and model.has_room(1)
    monkeypatch.setattr(model, "most_cache", 0)
    assert not model.has_room(1)


def test_a_pass_that_fails_anywhere_leaves_every_sequence_as_it_was(
    model: TorchModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    one, two = model.open(), model.open()
    expected = [s.feed([1, 2, 3]) for s in (one, two)]
    noted = Sequence._note

    def fails_on_the_second(self: Sequence, *args: Any) -> None:
        noted(self, *args)
        if self is two:
            raise RuntimeError("after it was noted")

    monkeypatch.setattr(Sequence, "_note", fails_on_the_second)
    with pytest.raises(RuntimeError, match="after it was noted"):
        model.forward([Row(one, [4]), Row(two, [5])])
    monkeypatch.setattr(Sequence, "_note", noted)
    assert one.inputs == two.inputs == [1, 2, 3]
    known = [s.resume([1, 2, 3]) for s in (one, two)]
    assert all(torch.equal(a, b) for a, b in zip(known, expected, strict=True) if a is not None)
    fresh = model.open()
    assert torch.allclose(fresh.feed([1, 2, 3, 6]), two.feed([6]), atol=1e-5)
