"""The IBus engine: which program receives the typed text and the token. IBus itself is replaced; nothing is drawn."""

from __future__ import annotations

import json
import platform
import runpy
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from unittest.mock import MagicMock

import pytest

from app.machine import running
from app.machine.private import data_folder
from app.machine.token import token
from app.service.service import DraftService
from app.web.security.access import Access
from app.web.site import create_service_app
from tests.editor import Bodies
from tests.fake_autocomplete import FakeAutocomplete
from tests.fake_drafts import Server
from tests.paths import ROOT
from tests.strangers import stranger

pytestmark = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="IBus exists on Linux")

ENGINE = ROOT / "editors" / "ibus"
TEXT = "My private words"


@pytest.fixture
def typed(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Callable[[int], list[str]]]:
    """Types `TEXT` in the engine, whose Polydraft is at a port; returns the drafts that IBus would show."""
    arrived: list[list[str]] = []
    repository = MagicMock()
    repository.IBus.Engine = object
    repository.GLib.idle_add = lambda _, __, drafts: arrived.append(drafts)
    monkeypatch.setitem(sys.modules, "gi", MagicMock())
    monkeypatch.setitem(sys.modules, "gi.repository", repository)
    monkeypatch.syspath_prepend(ENGINE)
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))

    def type(port: int) -> list[str]:
        monkeypatch.setenv("POLYDRAFT_PORT", str(port))
        module = runpy.run_path(str(ENGINE / "polydraft_ibus.py"))
        engine = SimpleNamespace(session="s", arrived=None)
        module["PolydraftEngine"].request(engine, 1, TEXT)
        return arrived.pop() if arrived else []

    yield type
    sys.modules.pop("own_server", None)


def test_the_engine_shows_the_drafts_of_its_users_server_without_slurs(
    typed: Callable[[int], list[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    service = DraftService(FakeAutocomplete().real, "scripted")
    service.start()
    bodies = Bodies(create_service_app(service, Access(token())))
    server = Server(bodies)
    try:
        with running.marked(server.port, {}):
            drafts = typed(server.port)
            monkeypatch.setenv("POLYDRAFT_NO_SLURS", "0")
            typed(server.port)
        assert [body["no_slurs"] for body in bodies.seen] == [True, False]
        assert [draft.split()[0] for draft in drafts] == ["one", "two", "three"]
        assert typed(server.port) == []  # nothing says any more that it is this user's
    finally:
        server.stop()
        service.close()


@pytest.mark.parametrize("killed", [False, True])
def test_a_stranger_at_the_port_receives_neither_text_nor_token(
    typed: Callable[[int], list[str]], killed: bool
) -> None:
    token()
    with stranger() as found:
        if killed:  # a server of this user was killed, and left its registration
            path = data_folder() / f"running-{platform.node()}-{found.port}"
            path.write_text(json.dumps({"process": 1, "started": 0}), "utf-8")
        assert typed(found.port) == []
        assert found.received == []


def test_a_proxy_receives_neither_text_nor_token(
    typed: Callable[[int], list[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    token()
    with stranger() as proxy, stranger() as here, running.marked(here.port, {}):
        monkeypatch.setenv("http_proxy", f"http://127.0.0.1:{proxy.port}")
        monkeypatch.delenv("no_proxy", raising=False)
        typed(here.port)
        assert len(here.received) == 1
        assert proxy.received == []
