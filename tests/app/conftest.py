"""Servers with the token, each for the tests of one module."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest


@pytest.fixture(scope="module")
def scripted_site(request: pytest.FixtureRequest) -> Iterator[Any]:
    """A server with scripted drafts: in tests/app/web the one with the page, elsewhere the one for programs."""
    from tests.app.site import Site  # its imports take seconds, which tests without a server save

    with closing(Site(page=request.path.is_relative_to(Path(__file__).with_name("web")))) as made:
        yield made


@pytest.fixture
def site(scripted_site: Any) -> Any:
    """That server, whose drafts come at once, a word a step."""
    scripted_site.fake.model.step_s = 0.0
    return scripted_site


@pytest.fixture(scope="module")
def table() -> Iterator[Any]:
    """The server for programs, with drafts of a real autocomplete over a model of six letters."""
    from core.autocomplete import Autocomplete
    from tests.app.site import Site
    from tests.table_model import TableModel

    with closing(Site(Autocomplete(TableModel(seed=3)))) as made:
        yield made
