"""`polydraft lsp`, driven by an editor: drafts as items, acceptance, cancellation, positions, places and settings."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any, cast

import pytest
import pytest_asyncio
from lsprotocol import types
from pygls.exceptions import JsonRpcException

from app.clients.lsp.server import ACCEPTED
from app.learning.personal import PersonalStores
from tests.editor import INVOKED, Drafting, Editor, drafting_server, editor
from tests.fake_drafts import ByteTokenizer
from tests.running_app import free_port

pytestmark = pytest.mark.asyncio(loop_scope="module")

WORDS = (" one", " two", " three")


@pytest.fixture(scope="module")
def drafting() -> Iterator[Drafting]:
    with drafting_server() as made:
        yield made


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def writing(drafting: Drafting) -> AsyncIterator[Editor]:
    async with editor({"port": drafting.port, "length": 2}) as made:
        yield made


@pytest.fixture(autouse=True)
def calm(drafting: Drafting) -> None:
    drafting.autocomplete.model.step_s = 0.0
    drafting.bodies.seen.clear()


async def until(true: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 20
    while not true():
        assert time.monotonic() < deadline
        await asyncio.sleep(0.02)


# ---------------------------------------------------------------- drafts


async def test_all_drafts_are_items_at_the_caret(drafting: Drafting, writing: Editor) -> None:
    assert writing.capabilities.inline_completion_provider is not None
    uri = writing.write("Dear Anna,\nI look for to it.")
    items = await writing.drafts(uri, 1, 10)
    assert [item.insert_text for item in items] == [word * 2 for word in WORDS]
    assert {str(item.range) for item in items} == {"1:10-1:10"}
    (body,) = drafting.bodies.seen
    assert (body["prompt"], body["suffix"]) == ("Dear Anna,\nI look for", " to it.")
    assert (body["n"], body["max_tokens"]) == (3, 2)


async def test_an_unknown_document_has_no_drafts_and_a_place_beyond_the_text_is_its_end(
    drafting: Drafting, writing: Editor
) -> None:
    assert await writing.drafts("file:///nowhere.md", 0, 0) == []
    assert not drafting.bodies.seen
    uri = writing.write("Dear Anna,\nI", name="short.md")
    await writing.drafts(uri, 0, 99)
    await writing.drafts(uri, 9, 9)
    assert [body["prompt"] for body in drafting.bodies.seen] == ["Dear Anna,", "Dear Anna,\nI"]


async def test_drafts_follow_the_entry_that_is_selected_in_the_editors_own_list(
    drafting: Drafting, writing: Editor
) -> None:
    uri = writing.write("I look for it", name="selected.md")
    word = types.Range(types.Position(0, 7), types.Position(0, 10))
    selected = types.SelectedCompletionInfo(word, "forward")
    context = types.InlineCompletionContext(types.InlineCompletionTriggerKind.Invoked, selected)
    items = await writing.drafts(uri, 0, 10, context=context)
    assert [item.insert_text for item in items] == ["forward" + word * 2 for word in WORDS]
    assert items[0].range == word
    (body,) = drafting.bodies.seen
    assert (body["prompt"], body["suffix"]) == ("I look forward", " it")


@pytest.mark.parametrize(
    ("show", "length", "requested", "found"),
    [
        (None, 1, "time", 1),
        (None, 2, "time", 3),
        ("always", 1, "all", 3),
        ("pause", 1, "all", 3),
        ("demand", 1, None, 0),
    ],
)
async def test_unasked_drafts_appear_as_the_user_has_set(
    drafting: Drafting, writing: Editor, show: str | None, length: int, requested: str | None, found: int
) -> None:
    uri = writing.write("Once", name="unasked.md")
    writing.configure({"polydraft": {"show": show, "port": drafting.port, "length": length}})
    unasked = types.InlineCompletionContext(types.InlineCompletionTriggerKind.Automatic)
    items = await writing.drafts(uri, 0, 4, context=unasked)  # of one word, one is long enough to save time
    assert len(items) == found
    assert [body["show"] for body in drafting.bodies.seen] == ([requested] if requested else [])
    assert len(await writing.drafts(uri, 0, 4)) == 3


async def test_a_cancelled_request_stops_within_a_pass(drafting: Drafting, writing: Editor) -> None:
    model = drafting.autocomplete.model
    uri = writing.write("Never mind", name="cancelled.md")
    writing.configure({"polydraft": {"port": drafting.port, "length": 32}})
    model.step_s = 0.05
    begun = len(model.passes)
    params = writing.params(uri, 0, 10)
    send = writing.client.protocol.send_request_async
    asked = asyncio.create_task(send(types.TEXT_DOCUMENT_INLINE_COMPLETION, params, "to be cancelled"))
    await until(lambda: len(model.passes) > begun)
    writing.client.protocol.notify("$/cancelRequest", types.CancelParams("to be cancelled"))
    with pytest.raises(JsonRpcException, match="cancel"):
        await asked
    passes = len(model.passes)
    await asyncio.sleep(0.3)
    assert len(model.passes) <= passes + 1
    latest = drafting.autocomplete.latest
    assert latest and latest.closed and latest.step < 32
    writing.configure({"length": 2})


async def test_a_newer_request_of_a_document_ends_the_older_one_without_drafts(
    drafting: Drafting, writing: Editor
) -> None:
    uri = writing.write("An older text", name="newer.md")
    drafting.autocomplete.model.step_s = 0.5
    older = asyncio.create_task(writing.drafts(uri, 0, 8))
    await until(lambda: bool(drafting.bodies.seen))
    newer = asyncio.create_task(writing.drafts(uri, 0, 13))
    await until(lambda: len(drafting.bodies.seen) == 2)  # the older one still waits for its first pass
    drafting.autocomplete.model.step_s = 0.0
    assert (await older, len(await newer)) == ([], 3)


# ---------------------------------------------------------------- acceptance


async def test_an_accepted_draft_teaches_the_stores_that_learn_once_the_writing_goes_on(
    drafting: Drafting, writing: Editor
) -> None:
    stores = PersonalStores(cast(Any, ByteTokenizer()))
    stores.create("mine")
    stores.create("other")
    with stores.at("mine") as store:
        store.switch_learning(True)
    uri = writing.write("We met at the old mill. It began with", name="accepted.md")
    first = (await writing.drafts(uri, 0, 37))[1]
    assert first.command and first.command.command == ACCEPTED
    assert ACCEPTED in writing.capabilities.execute_command_provider.commands
    text = "We met at the old mill. It began with two two"
    writing.write(text, name="accepted.md")
    await writing.accept(first)
    assert not any("finished" in body for body in drafting.bodies.seen)
    writing.write(f"{text}.", name="accepted.md")
    await until(lambda: any("finished" in body for body in drafting.bodies.seen))
    assert drafting.bodies.seen[-1] == {"text": "the old mill. It began with two two", "finished": False}
    await until(lambda: bool(stores.search("began with two two")))
    assert [row["store"] for row in stores.search("began with two two")] == ["mine"]


async def test_a_draft_that_is_undone_at_once_teaches_nothing(drafting: Drafting, writing: Editor) -> None:
    uri = writing.write("It ended with", name="undone.md")
    (first, *_) = await writing.drafts(uri, 0, 13)
    writing.write("It ended with one one", name="undone.md")
    await writing.accept(first)
    writing.write("It ended with", name="undone.md")
    await writing.drafts(uri, 0, 13)  # the change has been read
    assert not any("finished" in body for body in drafting.bodies.seen)


# ---------------------------------------------------------------- places


async def test_code_has_drafts_in_comments_alone_and_only_where_that_is_wanted(
    drafting: Drafting, writing: Editor
) -> None:
    uri = writing.write("x = 1  # the sum", "python", "code.py")

    async def counts() -> tuple[int, int]:
        return len(await writing.drafts(uri, 0, 5)), len(await writing.drafts(uri, 0, 16))

    assert await counts() == (0, 3)
    writing.configure({"comments": False})
    assert await counts() == (0, 0)
    writing.configure({"prose_languages": ["python"]})
    assert await counts() == (3, 3)
    writing.configure({"prose_languages": ["*"], "comments": False})
    assert await counts() == (3, 3)
    writing.configure({})
    assert await counts() == (0, 3)


async def test_open_files_that_a_setting_lists_are_the_background(drafting: Drafting, writing: Editor) -> None:
    writing.write("Anna asks for the tide.", name="mail.txt")
    writing.write("Names: Quillbrook.", name="names of places.md")
    uri = writing.write("Dear Anna,", name="answer.md")
    await writing.drafts(uri, 0, 10)
    assert drafting.bodies.seen[-1]["background"] == ""
    writing.configure({"background": ["names*.md", "mail.txt"]})
    await writing.drafts(uri, 0, 10)
    assert drafting.bodies.seen[-1]["background"] == "Names: Quillbrook.\n\nAnna asks for the tide."
    assert drafting.bodies.seen[-1]["prompt"] == "Dear Anna,"


async def test_drafts_that_appear_by_themselves_have_no_slurs(drafting: Drafting, writing: Editor) -> None:
    uri = writing.write("Dear Anna,", name="polite.md")
    unasked = types.InlineCompletionContext(types.InlineCompletionTriggerKind.Automatic)
    for settings, context, without in (
        ({}, unasked, True),
        ({}, INVOKED, False),
        ({"no_slurs": False}, unasked, False),
    ):
        writing.configure(settings)
        await writing.drafts(uri, 0, 10, context=context)
        assert drafting.bodies.seen[-1]["no_slurs"] is without


# ---------------------------------------------------------------- settings and errors


async def test_settings_change_while_the_editor_runs(drafting: Drafting, writing: Editor) -> None:
    uri = writing.write("Once", name="settings.md")
    never = ["delve", "form*"]
    writing.configure({"polydraft": {"k": 5, "length": None, "never": never, "options": {"end_below": 0, "forks": 2}}})
    assert len(await writing.drafts(uri, 0, 4)) == 5
    body = drafting.bodies.seen[-1]
    assert (body["n"], body["max_tokens"], body["end_below"], body["forks"], body["never"]) == (5, 2, 0, 2, never)
    writing.configure({})
    assert len(await writing.drafts(uri, 0, 4)) == 3


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        ({"k": "3"}, "k is a str; a whole number is expected."),
        ({"lenght": 5}, "lenght is no field that the server knows."),
        ({"prose_languages": "python"}, "prose_languages is a str; a list is expected."),
        ({"options": {"rule": "min-q"}}, "options: "),
        ({"options": {"exact_stepz": 1}}, "exact_stepz is no field"),
        (["k"], "['k'] given; an object with settings expected."),
    ],
)
async def test_wrong_settings_are_named_to_the_user_and_change_nothing(
    writing: Editor, given: Any, sentence: str
) -> None:
    told = len(writing.messages)
    writing.configure(given)
    await until(lambda: len(writing.messages) > told)
    assert writing.messages[-1].startswith("The settings of Polydraft are not changed: ")
    assert sentence in writing.messages[-1]
    uri = writing.write("Once", name="wrong.md")
    assert len(await writing.drafts(uri, 0, 4)) == 3


async def test_positions_count_in_the_negotiated_units_and_an_editor_that_expects_a_request_for_settings_gets_one(
    drafting: Drafting, writing: Editor
) -> None:
    line = "Grüße 🙂 an"
    async with editor({"port": drafting.port}, ["utf-7", "utf-8"], pulls=True) as another:
        for editing, encoding, name in ((writing, "utf-16", "utf-16-le"), (another, "utf-8", "utf-8")):
            assert editing.capabilities.position_encoding == encoding
            uri = editing.write(f"First\r\n{line} dich", name="units.md")
            column = len(line.encode(name)) // len("a".encode(name))
            assert len(await editing.drafts(uri, 1, column)) == 3
            body = drafting.bodies.seen.pop()
            assert (body["prompt"], body["suffix"]) == (f"First\r\n{line}", " dich")

        another.client.set_configuration({"k": 2}, section="polydraft")
        another.configure(None)
        uri = another.write("Once")
        counts: list[int] = []
        for _ in range(50):
            counts.append(len(await another.drafts(uri, 0, 4)))
            if counts[-1] == 2:
                break
        assert counts[-1] == 2


async def test_a_missing_server_is_reported_once_and_found_when_it_runs() -> None:
    port = free_port()
    async with editor({"port": port, "start": False}) as writing:
        uri = writing.write("Once")
        for _ in range(3):
            assert await writing.drafts(uri, 0, 4) == []
        (told,) = writing.messages
        assert f"No Polydraft of yours runs at port {port}. Start it with `polydraft serve`" in told
        with drafting_server() as drafting:
            writing.configure({"port": drafting.port})
            assert len(await writing.drafts(uri, 0, 4)) == 3
