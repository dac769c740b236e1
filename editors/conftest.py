"""What the tests of several extensions share: a server with scripted drafts, and Chromium."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser

from app.web.browser import chromium
from tests.editor import Drafting, drafting_server


@pytest.fixture(scope="module", autouse=True)
def own_data(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """A data folder, and so a token, for the tests of one file."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_DATA_HOME", str(tmp_path_factory.mktemp("data")))
        yield


@pytest.fixture(scope="module")
def drafting(own_data: None) -> Iterator[Drafting]:
    with drafting_server() as made:
        yield made


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with chromium(shell=True) as started:
        yield started
