"""The page with a folder for documents, which each test finds empty; documents are kept in the browser at first."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from playwright.sync_api import BrowserContext

from app.documents.folder import DocumentFolder
from tests.app.static.documents.writer import Writer
from tests.fake_drafts import FakeDrafts, Server


@pytest.fixture(scope="module")
def extras(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    return {"documents": tmp_path_factory.mktemp("data") / "documents"}


@pytest.fixture
def folder(extras: dict[str, Any]) -> DocumentFolder:
    folder = DocumentFolder(extras["documents"])
    for entry in folder.entries():
        folder.remove(entry.id)
    for problem in folder.listing().problems:
        folder.set_aside(problem.note)
    folder.keep(False)
    return folder


@pytest.fixture
def tab(
    context: BrowserContext, folder: DocumentFolder, server: Server, fake: FakeDrafts
) -> Iterator[Callable[..., Writer]]:
    """Opens a tab with the page, or with this part of it."""
    opened: list[Writer] = []

    def open_(part: str = "") -> Writer:
        opened.append(Writer(context.new_page(), fake))
        return opened[-1].open(server.url + part)

    yield open_
    assert [error for each in opened for error in each.errors] == []


@pytest.fixture
def editor(tab: Callable[..., Writer]) -> Writer:
    return tab()
