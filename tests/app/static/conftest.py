"""The page without Gradio and the panel, over scripted drafts, in a browser."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from playwright.sync_api import BrowserContext

from tests.app.static.editor.editor_page import BEFORE, Editor
from tests.fake_drafts import HOME, MARKET, RIVER, FakeDrafts, Server, create_app


@pytest.fixture(scope="module")
def extras() -> dict[str, Any]:
    """What `create_app` puts beside the scripted drafts: files that need more than these have their own."""
    return {}


@pytest.fixture(scope="module")
def shared(extras: dict[str, Any]) -> Iterator[tuple[Server, FakeDrafts]]:
    fake = FakeDrafts()
    server = Server(create_app(fake, **extras))
    yield server, fake
    server.stop()


@pytest.fixture
def server(shared: tuple[Server, FakeDrafts]) -> Server:
    return shared[0]


@pytest.fixture
def fake(shared: tuple[Server, FakeDrafts]) -> FakeDrafts:
    """The scripted drafts as new."""
    fake = shared[1]
    fake.__dict__.update(FakeDrafts().__dict__)
    return fake


@pytest.fixture
def editor(context: BrowserContext, server: Server, fake: FakeDrafts) -> Iterator[Editor]:
    editor = Editor(context.new_page(), fake).open(server.url)
    yield editor
    assert editor.errors == []


@pytest.fixture
def drafting(editor: Editor) -> Editor:
    """An editor with text and all of its drafts on the page."""
    editor.enter(BEFORE)
    editor.wait_for_drafts(MARKET, RIVER, HOME)
    return editor
