"""Finds the drafting server at its port, or starts it there, and sends it requests over HTTP.

Requests go only to a server of this user, because they include the token. A cancelled request closes its connection,
and the drafting server stops it before the next pass.
"""

from __future__ import annotations

import asyncio
from http import HTTPStatus
from typing import Literal

import httpx

from app.clients.lsp.child import OwnServer
from app.clients.lsp.settings import EditorSettings
from app.machine import running
from app.machine.token import token
from core.errors import InputError

START_S = 60  # seconds that a server may take to appear at its port
CHECK_S = 0.05  # seconds between two checks
SUPERSEDED = "superseded"  # the error code of a request that a newer one replaced


class Connection:
    """The drafting server of this user, for one editor."""

    def __init__(self) -> None:
        self._http = httpx.AsyncClient(timeout=None, trust_env=False)  # requests to this machine use no proxy
        self._child: OwnServer | None = None
        self._starting: asyncio.Task[None] | None = None
        self._failure: tuple[int, InputError] | None = None  # port, and the reason why no server could be started there

    async def drafts(
        self,
        settings: EditorSettings,
        session: str,
        before: str,
        after: str,
        show: Literal["all", "time"] = "all",
        background: str = "",
        unasked: bool = False,
    ) -> list[str]:
        """Returns the drafts between two texts, the best first; [] if a newer request of the session replaced this one.
        With `show` "time", only those that save a writer time. `unasked`: they appear by themselves.

        Raises: InputError if there is no server, or it refuses the request.
        """
        body: dict[str, object] = {
            "show": show,
            "never": settings.never,
            "no_slurs": unasked and settings.no_slurs,
            **settings.options,
            "prompt": before,
            "suffix": after,
            "n": settings.k,
            "max_tokens": settings.length,
            "user": session,
            "background": background,
        }
        answer = await self._post(settings, "/v1/completions", body)
        content = answer.json()
        if answer.is_success:
            return list(dict.fromkeys(choice["text"] for choice in content["choices"] if choice["text"]))
        if content["error"]["code"] == SUPERSEDED:
            return []
        raise InputError(content["error"]["message"])

    async def learn(self, settings: EditorSettings, phrase: str) -> None:
        """Adds an accepted draft to the stores that learn. Raises InputError as `drafts` does."""
        answer = await self._post(settings, "/api/stores/learn", {"text": phrase, "finished": False})
        if not answer.is_success:
            body = answer.json()
            raise InputError(f"{body['message']} {body['fix']}".strip())

    def retry(self) -> None:
        """Clears the failure to start a server, so that the next request tries again."""
        self._failure = None

    async def _post(self, settings: EditorSettings, path: str, body: dict[str, object]) -> httpx.Response:
        await self._reach(settings)
        headers = {"Authorization": f"Bearer {token()}"}
        try:
            answer = await self._http.post(f"http://127.0.0.1:{settings.port}{path}", json=body, headers=headers)
        except httpx.HTTPError as error:
            raise InputError(f"Polydraft at port {settings.port} does not respond: {error}.") from error
        if not answer.headers.get("Content-Type", "").startswith("application/json"):
            status = f"{answer.status_code} {HTTPStatus(answer.status_code).phrase}"
            raise InputError(f"Polydraft at port {settings.port} responds with {status}.")
        return answer

    async def _reach(self, settings: EditorSettings) -> None:
        """Waits until a server of this user runs at the port; starts one if the settings allow it."""
        if running.at(settings.port) is not None:
            return
        if not settings.start:
            raise InputError(
                f"No Polydraft of yours runs at port {settings.port}. Start it with `polydraft serve`, or set start to "
                "true in the editor."
            )
        if self._failure is not None and self._failure[0] == settings.port:
            raise self._failure[1]
        if self._starting is None or self._starting.done():
            self._starting = asyncio.create_task(self._start(settings.port))
        await asyncio.shield(self._starting)  # the next request still needs the server if this one is cancelled

    async def _start(self, port: int) -> None:
        if self._child is not None:
            self._child.stop()  # the child runs at another port, or has ended
        child = self._child = OwnServer(port)
        for _ in range(int(START_S / CHECK_S)):
            if running.at(port) is not None:  # the child, or a server that another editor started at the same time
                return
            if child.ended:
                self._failure = port, InputError(f"Polydraft could not be started: {child.output()}")
                raise self._failure[1]
            await asyncio.sleep(CHECK_S)
        child.stop()
        self._failure = port, InputError(f"Polydraft did not start at port {port} within {START_S} s.")
        raise self._failure[1]
