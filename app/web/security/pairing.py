"""Pairs an extension of a browser with this server, by a code that the user reads on the page and types there.

    POST /pair/code   with the token: the response is a new code
    POST /pair        from an extension of a browser, without a token: {"code"}; the response is the extension's key

The key is derived from the server's token and the extension's origin, so the server keeps no list. It opens drafts to
requests with that `Origin`, which no page and no other extension can send, and ends with the token. A code is valid
once, for two minutes, with few tries, for programs of the server's own user on this machine (`Guard` checks that).
"""

from __future__ import annotations

import re
import secrets
import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated

from fastapi import FastAPI, Request
from pydantic import Field

from app.options.settings import Strict
from app.wire.refusals import post, taking
from app.wire.refused import Refused

if TYPE_CHECKING:
    from app.web.security.access import Access

PAIR, CODE = "/pair", "/pair/code"
OPEN = ("/v1/completions",)  # what a key opens
LETTERS = "ABCDEFGHJKMNPQRSTUVWXYZ23456789"  # no letters that look like digits
LENGTH = 6  # letters of a code: 31 ** 6 codes, so that TRIES guesses find it once in 177 million times
SECONDS = 120
TRIES = 5

_EXTENSION = re.compile(r"(?:chrome|moz|safari-web)-extension://[\w-]{1,64}", re.ASCII)


def extension_of(headers: Mapping[bytes, list[str]]) -> str | None:
    """The Origin header of a request if it is that of an extension of a browser; else None."""
    given = headers.get(b"origin", [])
    return given[0] if len(given) == 1 and _EXTENSION.fullmatch(given[0]) else None


class Pairing:
    """The code that is valid at the moment, if there is one."""

    def __init__(self) -> None:
        self._code, self._until, self._tries = "", 0.0, 0

    def new_code(self) -> str:
        """A new code, "ABC-234"; an earlier one is no longer valid."""
        self._code = "".join(secrets.choice(LETTERS) for _ in range(LENGTH))
        self._until, self._tries = time.monotonic() + SECONDS, TRIES
        return f"{self._code[:3]}-{self._code[3:]}"

    def use(self, given: str) -> bool:
        """Whether this is the valid code, which it then no longer is. Spaces, hyphens and the case are ignored."""
        if not self._code or time.monotonic() > self._until or not self._tries:
            return False
        self._tries -= 1
        plain = re.sub(r"[\s-]", "", given).upper()
        if not secrets.compare_digest(plain.encode(), self._code.encode()):
            return False
        self._code = ""
        return True


class Nothing(Strict):
    pass


class PairRequest(Strict):
    code: Annotated[str, Field(max_length=32)]


def add_routes(app: FastAPI, access: Access | None) -> None:
    """Adds these routes. `access` is that of the server's `Guard`."""
    pairing = Pairing()

    def required() -> Access:
        if access is None:
            fix = "Start it without --no-token, or use --allow-origin with the extension's address."
            raise Refused(409, "This server has no token, so no extension can be paired with it.", fix)
        return access

    @post(app, CODE, Nothing)
    def code(_: Nothing) -> dict[str, object]:
        required()
        return {"code": pairing.new_code(), "seconds": SECONDS}

    @app.post(PAIR)
    @taking(PairRequest)
    async def pair(request: Request, body: PairRequest) -> dict[str, str]:
        origin = extension_of({b"origin": request.headers.getlist("origin")})
        if origin is None:
            raise Refused(403, "Only an extension of a browser can be paired.", "Type the code into the extension.")
        if not pairing.use(body.code):
            fix = "Polydraft's page has a new one under This page, Pair browser. A code is valid for two minutes, once."
            raise Refused(403, "This code is not the valid one.", fix)
        return {"key": required().key_of(origin)}
