"""The draft service: joint passes, the newest request of a tab, failures that stay where they belong."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterator
from contextlib import contextmanager
from itertools import pairwise
from typing import Any

import pytest

from app.clients.requests import draft_request
from app.options.settings import DraftSettings
from app.service import engine
from app.service.engine import INPUTS
from app.service.requests import DraftRequest, KeptDraft
from app.service.service import DraftService
from core.errors import ContextFull, InputError, ModelNotFound
from tests.fake_autocomplete import FakeAutocomplete


@contextmanager
def running(fake: FakeAutocomplete, pace: float = 0) -> Iterator[DraftService]:
    service = DraftService(fake.real, "scripted", pace)
    service.start()
    try:
        yield service
    finally:
        if fake.model.gate:
            fake.model.gate.release(1000)
        service.close()
        assert not fake.sessions
        assert fake.model.closed


def ask(tab: str, n: int, before: str = "Once", **settings: Any) -> DraftRequest:
    return DraftRequest(tab=tab, n=n, before=before, settings=DraftSettings(**settings))


async def all_of(events: AsyncGenerator[dict[str, Any]]) -> list[dict[str, Any]]:
    return [event async for event in events]


async def until(true: Callable[[], bool]) -> None:
    for _ in range(2000):
        if true():
            return
        await asyncio.sleep(0.002)
    raise TimeoutError


def run(what: Awaitable[Any]) -> Any:
    async def limited() -> Any:
        return await asyncio.wait_for(what, 20)

    return asyncio.run(limited())


def test_events_of_one_request() -> None:
    with running(FakeAutocomplete()) as service:
        *drafts, stats = run(all_of(service.stream(ask("a", 1, k=2, length=3))))
    assert [line["step"] for line in drafts] == [1, 2, 3]
    assert [line["done"] for line in drafts] == [False, False, True]
    assert [d["text"] for d in drafts[1]["drafts"]] == [" one one", " two two"]
    row = {"id": 0, "text": " one", "probability": 0.4, "whole": 0.4, "finished": False, "personal": [], "tail": "own"}
    assert drafts[0]["drafts"][0] == row
    assert {line["n"] for line in (*drafts, stats)} == {1}
    assert stats["type"] == "stats"
    assert (stats["model"], stats["backend"], stats["reused"], stats["fed"]) == ("Scripted", "none", 4, 1)
    assert 0 <= stats["first_ms"] < 5000
    assert stats["per_token_ms"] >= 0


def test_a_page_is_told_few_steps_and_a_program_every_step_and_token() -> None:
    """A page: the first drafts at once, the chosen rows at once, the last when they are done, and between them no more
    than the pace allows."""
    with running(FakeAutocomplete(), pace=1000) as service:
        *page, _ = run(all_of(service.stream(ask("a", 1, length=9))))
        request = DraftRequest(tab="b", n=1, before="Once", detailed=True, settings=DraftSettings(length=5))
        *program, _ = run(all_of(service.stream(request)))
    assert [line["step"] for line in page] == [1, 2, 9]
    assert [line["settled"] for line in page] == [False, True, True]
    assert [line["step"] for line in program] == [1, 2, 3, 4, 5]
    assert all(draft["tokens"] for line in program for draft in line["drafts"])


def test_what_a_request_wants_reaches_the_drafting() -> None:
    fake, kept = FakeAutocomplete(), [KeptDraft(id=1, text=" rest")]
    wants = {"grow": True, "heal": False, "stores": ["mine"], "base_stores": ["default"]}
    with running(fake) as service:
        run(all_of(service.stream(DraftRequest(tab="a", n=1, before="Once", kept=kept, **wants))))
        asked = vars(fake.sessions[-1].completions[-1].ask)
    assert [(row.id, row.text) for row in asked["kept"]] == [(1, " rest")]
    assert asked | wants == asked


def steps_told(service: DraftService, **fields: Any) -> list[int]:
    request = DraftRequest(tab="a", n=1, before="Once", settings=DraftSettings(length=4), **fields)
    return [event["step"] for event in run(all_of(service.stream(request)))[:-1]]


def rows_in_the_end(service: DraftService) -> int:
    """Of drafts that make the text after the caret much less probable."""
    request = DraftRequest(tab="a", n=1, before="Once", after=" time", settings=DraftSettings(length=4))
    *_, last, _ = run(all_of(service.stream(request)))
    return len(last["drafts"])


def test_the_page_shows_no_draft_before_it_is_compared_with_the_text_after_the_caret() -> None:
    fake = FakeAutocomplete()
    with running(fake) as service:
        assert steps_told(service, after=" time") == [4]
        assert steps_told(service, after=" time", all=True) == [1, 2, 3, 4], "the writer wants them all"
        assert steps_told(service, after=" time", detailed=True) == [1, 2, 3, 4], "a program shows the last ones"
        assert steps_told(service) == [1, 2, 3, 4]
        assert fake.latest
        assert fake.latest.ask.after == ""


def test_the_page_waits_for_the_comparison_only_a_moment(monkeypatch: pytest.MonkeyPatch) -> None:
    fake = FakeAutocomplete()
    with running(fake) as service:
        monkeypatch.setattr(engine, "HELD", 0)
        assert steps_told(service, after=" time") == [1, 2, 3, 4]
        fake.withdraws = True
        assert rows_in_the_end(service) == 3, "the page has shown them"
        monkeypatch.setattr(engine, "HELD", 60)
        assert rows_in_the_end(service) == 0


def chosen(**request: Any) -> tuple[int, bool]:
    """The exact steps of a request, and whether they may be replaced by as many as are cheap."""
    fake = FakeAutocomplete()
    with running(fake) as service:
        run(all_of(service.stream(DraftRequest(tab="a", n=1, before="Once", **request))))
        asked = fake.sessions[-1].completions[-1].ask
    return asked.exact_steps, asked.tails


def test_drafts_that_grow_hold_their_tails_unless_exact_steps_were_chosen() -> None:
    assert chosen() == (2, False), "at every key"
    assert chosen(settings=DraftSettings(exact_steps=2), grow=True) == (2, True), "the page sends every setting"
    assert chosen(settings=DraftSettings(exact_steps=5), grow=True) == (5, False)
    assert draft_request("Once", DraftSettings(length=4)).tails
    assert not draft_request("Once", DraftSettings(exact_steps=2)).tails


@pytest.mark.asyncio
async def test_after_text_was_removed_from_a_store_running_drafts_begin_again_without_kept_rows() -> None:
    fake = FakeAutocomplete()
    fake.model.gate = threading.Semaphore(0)
    with running(fake) as service:
        kept = [KeptDraft(id=1, text=" rest")]
        request = DraftRequest(tab="a", n=1, before="Once", kept=kept, removed="a", settings=DraftSettings(length=3))
        stream = service.stream(request)
        fake.model.gate.release()
        first = await anext(stream)
        assert first["removed"] == "a"
        assert fake.latest
        assert fake.latest.ask.kept
        fake.removed = "b"
        fake.model.gate.release(100)
        later = [event for event in await all_of(stream) if event["type"] == "drafts"]
        again = [event for event in later if event["removed"] == "b"]
        assert [event["step"] for event in again] == [1, 2, 3]
        assert fake.latest.ask.kept == []
        assert fake.opened == 2, "the session that had read and shown the old drafts is closed"


def test_rows_from_before_a_removal_are_not_kept() -> None:
    fake = FakeAutocomplete()
    with running(fake) as service:
        for n, (mark, expected) in enumerate([("a", 1), (None, 1), ("an older mark", 0)], 1):
            kept = [KeptDraft(id=1, text=" rest")]
            event = run(all_of(service.stream(DraftRequest(tab="a", n=n, before="Once", kept=kept, removed=mark))))[0]
            assert event["removed"] == "a"
            assert fake.latest
            assert len(fake.latest.ask.kept) == expected


@pytest.mark.asyncio
async def test_the_panel_shows_no_position_from_before_a_removal() -> None:
    fake = FakeAutocomplete()
    with running(fake) as service:
        await all_of(service.stream(ask("a", 1)))
        assert (await service.query("a", lambda at: at.n)) == 1
        fake.removed = "b"
        with pytest.raises(InputError, match="no drafts yet"):
            await service.query("a", lambda at: at.n)


@pytest.mark.asyncio
async def test_queries_are_answered_between_two_passes_and_running_requests_end_when_the_service_closes() -> None:
    fake = FakeAutocomplete()
    fake.model.step_s = 0.02
    with running(fake) as service:
        with pytest.raises(InputError, match="no drafts yet"):
            await service.query("a", lambda at: at.n)
        stream = service.stream(ask("a", 7, length=32))
        await anext(stream)
        n, passes = await service.query("a", lambda at: (at.n, len(fake.model.passes)))
        assert n == 7
        assert passes < 32, "it waited for all drafts"
        service.close()
        assert (await all_of(stream))[-1]["message"] == "Polydraft is closing."
        with pytest.raises(InputError, match="closing"):
            await service.query("a", lambda at: at.n)


def test_drafts_from_the_cache_need_no_pass() -> None:
    fake = FakeAutocomplete(known="Once")
    with running(fake) as service:
        lines = run(all_of(service.stream(ask("a", 1, length=1))))
    assert [line["type"] for line in lines] == ["drafts", "stats"]
    assert not fake.model.passes


def test_improbable_drafts_stay_hidden() -> None:
    with running(FakeAutocomplete()) as service:
        lines = run(all_of(service.stream(ask("a", 1, length=2, min_confidence=0.19))))
        assert [d["id"] for d in lines[0]["drafts"]] == [0, 1]
        lines = run(all_of(service.stream(ask("a", 2, length=2, min_confidence=0.9))))
    assert [(line["type"], line.get("drafts")) for line in lines] == [("drafts", []), ("stats", None)]


@pytest.mark.asyncio
async def test_a_newer_request_stops_the_older_within_a_step() -> None:
    fake = FakeAutocomplete()
    fake.model.gate = threading.Semaphore(0)
    with running(fake) as service:
        old = asyncio.create_task(all_of(service.stream(ask("a", 1, "old", length=30))))
        other = asyncio.create_task(all_of(service.stream(ask("b", 1, length=4))))
        assert fake.model.gate
        fake.model.gate.release(2)
        await until(lambda: len(fake.model.passes) == 2)
        new = asyncio.create_task(all_of(service.stream(ask("a", 2, "new", length=3))))
        await asyncio.sleep(0.02)
        fake.model.gate.release(100)
        lines = await old
        assert len(lines) <= 3
        assert all(line["type"] == "drafts" and not line["done"] for line in lines)
        assert (await new)[-1]["type"] == "stats"
        assert len(await other) == 5
        assert fake.opened == 2  # the tab keeps its session
        completions = fake.sessions[0].completions
        assert [c.before for c in completions if c.before in ("old", "new")] == ["old", "new"]


def test_an_older_request_that_arrives_late_ends_at_once() -> None:
    fake = FakeAutocomplete()
    with running(fake) as service:
        assert run(all_of(service.stream(ask("a", 5, length=1))))
        assert run(all_of(service.stream(ask("a", 4, length=1)))) == []
        assert run(all_of(service.stream(ask("b", 4, length=1))))


def by_text(tab: str, before: str, **settings: Any) -> DraftRequest:
    return DraftRequest(tab=tab, n=0, before=before, by_text=True, settings=DraftSettings(**settings))


def test_a_text_without_a_tab_goes_on_in_the_session_that_agrees_furthest() -> None:
    fake = FakeAutocomplete()
    letter, story = "Dear Anna, thank you for", "It was a dark night, and"
    with running(fake) as service:
        for n, text in enumerate((letter, story, letter + " your", story + " the", letter)):
            assert run(all_of(service.stream(by_text(f"client {n}", text, length=1))))
        assert fake.opened == 2
        texts = [[completion.before for completion in session.completions] for session in fake.sessions]
        assert sorted(texts) == [[letter, letter + " your", letter], [story, story + " the"]]


@pytest.mark.asyncio
async def test_a_text_whose_session_is_busy_gets_a_fork_of_it() -> None:
    fake = FakeAutocomplete()
    fake.model.step_s = 0.01
    with running(fake) as service:
        first = service.stream(by_text("client 1", "Once upon a time", length=20))
        await anext(first)
        assert await all_of(service.stream(by_text("client 2", "Once upon a time there", length=1)))
        assert len(await all_of(first)) == 20
        assert (fake.opened, fake.forked) == (2, 1)


def test_a_short_text_takes_no_long_one_out_of_the_cache() -> None:
    fake = FakeAutocomplete()
    with running(fake) as service:
        long = "a word " * 100
        for n, text in enumerate((long, long[:70], long + "more")):
            run(all_of(service.stream(by_text(f"client {n}", text, length=1))))
        assert (fake.opened, fake.forked) == (2, 1)
        assert [c.before for c in fake.sessions[0].completions] == [long, long + "more"]


@pytest.mark.asyncio
async def test_leaving_stops_the_request_and_closes_the_session() -> None:
    fake = FakeAutocomplete()
    fake.model.step_s = 0.005
    with running(fake) as service:
        events = service.stream(ask("a", 1, length=32))
        await anext(events)
        service.leave("a")
        assert len(await all_of(events)) < 10
        await until(lambda: not fake.sessions)
        service.leave("nobody")
        assert await all_of(service.stream(ask("a", 2, length=1)))


def test_the_tab_at_rest_for_longest_makes_room() -> None:
    fake = FakeAutocomplete(room=2)
    with running(fake) as service:
        for n, tab in enumerate("abac"):
            assert run(all_of(service.stream(ask(tab, n, f"text of {tab}", length=1))))
        assert [s.completions[0].before for s in fake.sessions] == ["text of a", "text of c"]


def test_a_full_cache_makes_room_or_lets_a_request_wait() -> None:
    fake = FakeAutocomplete(room=1)
    with running(fake) as service:
        assert len(run(all_of(service.stream(ask("a", 1, length=1))))) == 2
        assert len(run(all_of(service.stream(ask("b", 1, length=1))))) == 2
        fake.model.broken["long"] = ContextFull("No room for this text; shorten it.")
        (line,) = run(all_of(service.stream(ask("c", 1, "long"))))
        assert line["message"] == "No room for this text; shorten it."

        fake.model.step_s = 0.01

        async def two() -> None:
            first = service.stream(ask("d", 1, length=30))
            await anext(first)
            second = asyncio.create_task(all_of(service.stream(ask("e", 1, length=2))))  # d is at work: e waits
            assert len(await all_of(first)) == 30
            assert len(await second) == 3

        run(two())


def test_the_log_of_a_model_that_cannot_be_loaded_has_no_control_characters(caplog: pytest.LogCaptureFixture) -> None:
    name = "one.gguf\x1b[2J\r\nAll is well."

    def load(name: str) -> Any:
        raise OSError(f"{name} is gone")

    service = DraftService(load, name, pace=0)
    service.start()
    run(all_of(service.stream(ask("a", 1))))
    service.close()
    (record,) = [record for record in caplog.records if "could not be loaded" in record.getMessage()]
    assert repr(name) in caplog.text
    assert not [c for c in record.getMessage() if not c.isprintable() and c != "\n"]
    assert "All is well." not in caplog.text.splitlines()


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (ModelNotFound("No model is called x; give a file."), "No model is called x; give a file."),
        (OSError("disk gone"), "The model could not be loaded: disk gone"),
    ],
)
@pytest.mark.asyncio
async def test_a_model_that_cannot_be_loaded_is_told_to_everybody(error: Exception, words: str) -> None:
    go = threading.Event()

    def load(_: str) -> Any:
        go.wait(10)
        raise error

    service = DraftService(load, "x", pace=0)
    service.start()

    early = asyncio.create_task(all_of(service.stream(ask("a", 1))))
    await asyncio.sleep(0.02)
    go.set()
    (line,) = await early
    assert (line["type"], line["message"]) == ("error", words)
    (line,) = await all_of(service.stream(ask("a", 2)))
    assert (line["type"], line["n"], line["message"]) == ("error", 2, words)
    status = service.status()
    assert not status["ready"]
    assert words in status["notice"]
    service.close()


SECRET = "nobody else may know"


def caused(error: Exception, cause: Exception) -> Exception:
    error.__cause__ = cause
    return error


MISTAKES = [KeyError(SECRET), IndexError("b"), AssertionError(), RuntimeError(SECRET), StopIteration()]
MISTAKES += [
    UnicodeEncodeError("utf-8", SECRET, 0, 1, "surrogates not allowed"),
    caused(ValueError(), KeyError(SECRET)),
]


@pytest.mark.parametrize("error", MISTAKES)
def test_a_mistake_of_ours_ends_its_request_and_not_the_engine(
    error: Exception, caplog: pytest.LogCaptureFixture
) -> None:
    fake = FakeAutocomplete()
    fake.model.broken[SECRET] = error
    with running(fake) as service:
        (line,) = run(all_of(service.stream(ask("a", 1, SECRET))))
        assert line["type"] == "error"
        assert line["message"].startswith("An error ended these drafts: ")
        assert type(error).__name__ in caplog.text and "in forward" in caplog.text  # the log has the traceback,
        assert SECRET not in caplog.text  # and no text
        assert run(all_of(service.stream(ask("a", 2, length=1))))[-1]["type"] == "stats"
        assert service.status()["ready"]


def test_the_longest_wait_comes_first_and_a_pass_is_bounded() -> None:
    fake = FakeAutocomplete()
    fake.model.step_s = 0.002
    with running(fake) as service:

        async def typist(tab: str) -> int:
            """A key every 50 ms, each of which overtakes the request before: how many were answered."""
            tasks = []
            for n in range(1, 9):
                tasks.append(asyncio.create_task(all_of(service.stream(ask(tab, n, "Once" + "x" * n, length=9)))))
                await asyncio.sleep(0.05)
            return sum(bool(lines) for lines in await asyncio.gather(*tasks))

        async def crowd() -> list[int]:
            return list(await asyncio.gather(*(typist(f"t{i}") for i in range(64))))

        answered = run(crowd())
    assert max(fake.model.passes) <= INPUTS["cpu"]
    assert min(answered) >= 2  # the last one, and some before


async def load_another(service: DraftService, name: str) -> dict[str, Any]:
    return await asyncio.wait_for(service.change(name), 10)


@pytest.mark.asyncio
async def test_another_model_takes_the_place_of_one_that_drafts_and_no_request_is_lost() -> None:
    old, new = FakeAutocomplete(), FakeAutocomplete()
    old.model.step_s = 0.005
    new.model.name = "Newer"
    loaded, failing = threading.Event(), [True]

    def by_name(name: str) -> Any:
        if name == "old":
            return old.real()
        if failing.pop():
            raise OSError("disk gone")
        loaded.wait(10)
        return new.real()

    service = DraftService(by_name, "old", pace=0)
    service.start()

    assert (await all_of(service.stream(ask("a", 1, length=1))))[-1]["model"] == "Scripted"
    with pytest.raises(InputError, match="disk gone"):
        await load_another(service, "broken")
    assert service.status()["ready"]  # the old one goes on
    assert service.model_name == "old"
    failing.append(False)
    changing = asyncio.create_task(load_another(service, "newer"))
    await asyncio.sleep(0.01)
    with pytest.raises(InputError, match="is being loaded"):
        await load_another(service, "third")
    assert (await all_of(service.stream(ask("a", 2, length=1))))[-1]["model"] == "Scripted"
    going = asyncio.create_task(all_of(service.stream(ask("b", 1, length=32))))
    await asyncio.sleep(0.02)
    loaded.set()
    assert (await changing)["model"] == "Newer"
    assert service.model_name == "newer"
    assert (await going)[-1]["model"] == "Newer"
    assert old.model.closed
    assert not old.sessions
    service.close()
    assert new.model.closed


@pytest.mark.parametrize("cause", ["another model", "another adapter"])
@pytest.mark.asyncio
async def test_a_request_that_begins_again_has_a_position_for_the_panel_with_its_first_drafts(cause: str) -> None:
    fake, other = FakeAutocomplete(), FakeAutocomplete()
    fake.model.gate = other.model.gate = gate = threading.Semaphore(0)
    loaded = iter([fake.real(), other.real()])
    service = DraftService(lambda name: next(loaded), "one", 0)
    service.start()

    async def step_by_step(wanted: Awaitable[Any]) -> Any:
        """The result of what waits for the engine, which runs pass by pass meanwhile."""
        task = asyncio.ensure_future(wanted)
        while not task.done():
            gate.release()
            await asyncio.sleep(0.01)
        return task.result()

    stream = service.stream(ask("a", 1, length=32))
    try:
        assert (await step_by_step(anext(stream)))["step"] == 1
        if cause == "another model":
            await step_by_step(service.change("two"))
        else:
            fake.adapted = True
        while (await step_by_step(anext(stream)))["step"] > 1:
            pass  # made before
        now = other if cause == "another model" else fake
        assert await step_by_step(service.query("a", lambda at: at.autocomplete)) is now.real()
    finally:
        gate.release(1000)
        await stream.aclose()
        service.close()


@pytest.mark.asyncio
async def test_requests_with_and_without_prose_share_no_pass_and_both_get_their_drafts() -> None:
    fake = FakeAutocomplete()
    fake.has_prose, fake.wants_prose = True, True
    fake.adapt()
    made: list[tuple[bool, int]] = []  # with prose or not, and the rows, of each pass
    forward = fake.model.forward

    def noted(rows: list[Any]) -> Any:
        made.append((fake.with_prose, len(rows)))
        return forward(rows)

    fake.model.forward = noted  # pyright: ignore[reportAttributeAccessIssue]
    fake.model.gate = threading.Semaphore(0)
    with running(fake) as service:
        requests = [ask(tab, 1, prose=tab in "ac") for tab in "abcd"]
        answers = [asyncio.create_task(all_of(service.stream(request))) for request in requests]
        await until(lambda: len(service._inbox.jobs) == 0)
        await asyncio.sleep(0.05)
        fake.model.gate.release(1000)
        for events in await asyncio.gather(*answers):
            assert events[-1]["type"] == "stats"
        assert fake.opened == 4, "no running request was stopped by the change"
        switches = [one for one, other in pairwise(made) if one[0] != other[0]]
        assert {on for on, _ in made} == {True, False}
        assert 1 <= len(switches) <= 3
