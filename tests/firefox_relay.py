"""A relay between Playwright and the system's Firefox, so that browser tests run in it: `pytest --firefox`.

Playwright drives a Firefox that it has not built itself by WebDriver BiDi. It sends one command that released versions
of Firefox do not support yet (it would set the colour scheme), and fails at their answer. Playwright starts this
program in place of Firefox: it starts Firefox, forwards every message, and answers that command itself.
"""

from __future__ import annotations

import asyncio
import json
import re
import shutil
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

import aiohttp
from aiohttp import web

if TYPE_CHECKING:
    from playwright.sync_api import Browser

NAMES = ("firefox-esr", "firefox")
UNKNOWN = "emulation.setMediaFeaturesOverride"
PORT_LINE = re.compile(r"WebDriver BiDi listening on (ws://\S+)")  # Playwright waits for this line too


@contextmanager
def firefox() -> Iterator[Browser]:
    """The system's Firefox, headless, driven by Playwright."""
    from playwright.sync_api import sync_playwright

    if not any(map(shutil.which, NAMES)):
        raise FileNotFoundError("There is no Firefox on PATH (Debian: apt-get install firefox-esr).")
    with TemporaryDirectory() as folder, sync_playwright() as playwright:
        relay = Path(folder, "firefox")
        relay.write_text(f'#!/bin/sh\nexec "{sys.executable}" "{__file__}" "$@"\n')
        relay.chmod(0o755)
        browser = playwright.firefox.launch(channel="moz-firefox", executable_path=str(relay))
        yield browser
        browser.close()


async def relay() -> None:
    program = next(filter(None, map(shutil.which, NAMES)))
    process = await asyncio.create_subprocess_exec(program, *sys.argv[1:], stderr=asyncio.subprocess.PIPE)
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, process.terminate)
    assert process.stderr
    found = None
    while not found:
        line = (await process.stderr.readline()).decode()
        if not line:
            raise SystemExit("Firefox ended before it could be driven.")
        found = PORT_LINE.search(line)
    firefox_address = found[1]

    async def connect(request: web.Request) -> web.WebSocketResponse:
        tests = web.WebSocketResponse(max_msg_size=0)
        await tests.prepare(request)
        async with (
            aiohttp.ClientSession() as http,
            http.ws_connect(firefox_address + request.path, max_msg_size=0) as to,
        ):

            async def commands() -> None:
                async for message in tests:
                    command = json.loads(message.data)
                    if command["method"] == UNKNOWN:
                        await tests.send_json({"type": "success", "id": command["id"], "result": {}})
                    else:
                        await to.send_str(message.data)

            async def answers() -> None:
                async for message in to:
                    await tests.send_str(message.data)

            await asyncio.wait(
                [asyncio.ensure_future(commands()), asyncio.ensure_future(answers())],
                return_when=asyncio.FIRST_COMPLETED,
            )
        return tests

    app = web.Application()
    app.router.add_get("/{path:.*}", connect)
    runner = web.AppRunner(app)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    print(f"WebDriver BiDi listening on ws://127.0.0.1:{runner.addresses[0][1]}", file=sys.stderr, flush=True)  # noqa: T201
    while await process.stderr.readline():
        pass
    await process.wait()


if __name__ == "__main__":
    asyncio.run(relay())
