"""POST /polydraft/completions of Jupyter's server: `/v1/completions` of the Polydraft that this user runs.

The browser sends requests to Jupyter's server, so it needs neither Polydraft's token nor access to another server. The
token is sent only to a server of the same user. If the browser closes its connection, the one to Polydraft is closed,
too, and Polydraft stops the request before its next pass.
"""

from __future__ import annotations

import asyncio
import platform
from contextlib import suppress
from pathlib import Path
from typing import Any

import httpx
import platformdirs
from jupyter_server.base.handlers import APIHandler
from jupyter_server.utils import url_path_join
from tornado.web import authenticated

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None


class Missing(Exception):
    """No Polydraft of this user runs at the port."""


def token_for(port: int) -> str:
    """Returns the token of this user's Polydraft at the port. Raises Missing if there is none.

    A running Polydraft has a lock on a file in the user's data folder, which other users cannot access.
    """
    folder = Path(platformdirs.user_data_path("polydraft", appauthor=False))
    try:
        with (folder / f"running-{platform.node()}-{port}").open() as file:
            if fcntl is not None and not _is_locked(file):
                raise FileNotFoundError
        return (folder / "token").read_text(encoding="utf-8").strip()
    except FileNotFoundError:
        raise Missing(f"No Polydraft of yours runs at port {port}. Start it with `polydraft serve`.") from None


def _is_locked(file: Any) -> bool:
    try:
        fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    return False


class CompletionsHandler(APIHandler):
    """Forwards the body of a request, and streams the response back."""

    def initialize(self, port: int) -> None:
        self._port = port
        self._work: asyncio.Task[None] | None = None

    @authenticated
    async def post(self) -> None:
        self._work = asyncio.create_task(self._forward())
        with suppress(asyncio.CancelledError):
            await self._work

    def on_connection_close(self) -> None:
        if self._work is not None:
            self._work.cancel()

    async def _forward(self) -> None:
        url = f"http://127.0.0.1:{self._port}/v1/completions"
        try:
            headers = {"Authorization": f"Bearer {token_for(self._port)}"}
            async with (
                httpx.AsyncClient(timeout=None, trust_env=False) as client,
                client.stream("POST", url, content=self.request.body, headers=headers) as answer,
            ):
                self.set_status(answer.status_code)
                self.set_header("Content-Type", answer.headers["Content-Type"])
                self.set_header("Cache-Control", "no-store")
                async for part in answer.aiter_bytes():
                    self.write(part)
                    await self.flush()
        except (Missing, httpx.HTTPError) as error:
            self._refuse(str(error) or f"Polydraft at port {self._port} does not respond.")

    def _refuse(self, message: str) -> None:
        self.set_status(503)
        self.finish({"error": {"message": message, "code": None}})


def add_route(app: Any, port: int) -> None:
    path = url_path_join(app.settings["base_url"], "polydraft", "completions")
    app.add_handlers(".*$", [(path, CompletionsHandler, {"port": port})])
