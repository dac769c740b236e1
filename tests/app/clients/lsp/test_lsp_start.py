"""The language server starts a drafting server where none runs, shares it, and takes it along when it ends."""

from __future__ import annotations

import asyncio
import signal
import socket
import time
from pathlib import Path

import pytest

from app.machine import running
from tests.editor import editor
from tests.running_app import free_port

pytestmark = pytest.mark.asyncio


async def ended(port: int) -> bool:
    deadline = time.monotonic() + 30
    while running.at(port) is not None and time.monotonic() < deadline:
        await asyncio.sleep(0.05)
    return running.at(port) is None


async def test_the_drafting_server_is_started_shared_and_ends_with_the_editor_even_if_that_is_killed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The editor's folder has packages with the names of ours. It ignores Ctrl+C, which its child processes inherit."""
    signals = signal.signal(signal.SIGINT, signal.SIG_IGN)
    for name in ("polydraft", "app"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "__init__.py").write_text("raise SystemExit('This is not ours.')")
    monkeypatch.chdir(tmp_path)
    port = free_port()
    async with editor({"port": port}) as first:
        signal.signal(signal.SIGINT, signals)
        assert running.at(port) is None
        items = await first.drafts(first.write("I am looking forward to the mee"), 0, 31)
        assert str(items[0].insert_text).startswith("ting")
        assert len(items) == 3
        async with editor({"port": port, "start": False}) as second:
            assert len(await second.drafts(second.write("Thank you for"), 0, 13)) > 1
        assert running.at(port) is not None
        first.kill()
        assert await ended(port)


async def test_a_server_that_cannot_be_started_is_reported_once_with_its_output() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        async with editor({"port": port}) as writing:
            uri = writing.write("Once")
            for _ in range(3):
                assert await writing.drafts(uri, 0, 4) == []
            (told,) = writing.messages
            assert told.startswith("Polydraft could not be started: ")
            assert f"Port {port} is already in use by another program." in told
