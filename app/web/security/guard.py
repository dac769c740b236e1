"""Runs before every route: refuses requests from other sites or without the token, and sets security headers.

Three kinds of attackers can reach a port of this machine:

    other pages in the user's browser      detected by the Host, Origin and Sec-Fetch headers
    other users of the machine             they do not know the token (app/web/security/access.py)
    a page that embeds ours in a frame     prevented by the headers of each response
"""

from __future__ import annotations

import re
import socket
from collections.abc import Mapping
from functools import cache
from ipaddress import ip_address
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import parse_qsl, urlencode

from starlette.responses import HTMLResponse, JSONResponse, RedirectResponse, Response

from app.web.security import csp
from app.web.security.access import is_own
from app.web.security.allowed import Allowed, cors, preflight
from app.web.security.pairing import OPEN, PAIR, extension_of
from app.wire.refusals import of_programs, refusal
from app.wire.refused import Refused

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Message, Receive, Scope, Send

    from app.web.security.access import Access

HOST = "127.0.0.1"
NONE_ALLOWED = Allowed()
NAMES = (HOST, "localhost", "[::1]")  # of this machine
MISSING = Path(__file__).parents[2] / "static" / "missing-token.html"
OPENING = ("token", "ticket")  # parameters that the address of the page may have
HEALTH = ("/health", "/v1/health")  # without the token they say that the server runs, and nothing else
PARAMETERS = 100  # more than any address of the page has

HEADERS = {
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
}

_OURS = {name.lower().encode(): value.encode() for name, value in HEADERS.items()}
_POLICY = (b"content-security-policy", csp.ANSWER.encode())

Headers = Mapping[bytes, list[str]]


class Guard:
    """Refuses requests that are not meant for this server, or come without the token.

    Args:
        access: verifies the token; None requires none.
        page: whether this server has the page, which uses one address only.
        elsewhere: accept requests from other machines, addressed to an IP address or this machine's name.
        allowed: origins that may use the interfaces for other programs, and further names of this machine.
    """

    def __init__(
        self,
        app: ASGIApp,
        access: Access | None,
        page: bool = True,
        elsewhere: bool = False,
        allowed: Allowed = NONE_ALLOWED,
    ) -> None:
        self.app, self.access, self.page, self.elsewhere = app, access, page, elsewhere
        self.allowed = allowed

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] not in ("http", "websocket"):
            await self.app(scope, receive, send)
            return

        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                given = [header for header in message["headers"] if header[0] not in _OURS]
                policy = [] if any(name == _POLICY[0] for name, _ in given) else [_POLICY]
                shared = cors(origin) if origin else []
                message = {**message, "headers": [*given, *_OURS.items(), *policy, *shared]}
            await send(message)

        headers: dict[bytes, list[str]] = {}
        for name, value in scope["headers"]:
            headers.setdefault(name, []).append(value.decode("latin-1"))
        origin = self.allowed.origin_of(headers) if of_programs(scope["path"]) else None
        answer = self._answer(scope, headers, origin)
        if answer is None:
            # uvicorn leaves out the body of the response to a HEAD, so routes answer it as they answer a GET.
            asked = {**scope, "method": "GET"} if scope.get("method") == "HEAD" else scope
            await self.app(asked, receive, send_with_headers)
        elif scope["type"] == "websocket":
            await send({"type": "websocket.close", "code": 1008})
        else:
            # The unread body must not be parsed as the next request, and a stranger must not hold a connection.
            answer.headers["Connection"] = "close"
            await answer(scope, receive, send_with_headers)

    def _answer(self, scope: Scope, headers: Headers, origin: str | None) -> Response | None:
        """The response in place of the route's; None if the request is allowed. `origin` is an allowed one."""
        port = scope["server"][1]
        paired = None if origin or self.access is None else self._extension(scope, headers, self.access)
        if reason := _foreign(scope, headers, self.elsewhere, self.allowed, origin or paired):
            fix = f"Open http://{HOST}:{port} itself, on the machine where Polydraft runs."
            return refusal(scope["path"], Refused(403, reason, fix))
        if paired:
            return None
        if origin and scope["type"] == "http":
            if scope["method"] == "OPTIONS" and b"access-control-request-method" in headers:
                return Response(status_code=204, headers=preflight(headers))
            headers = {name: values for name, values in headers.items() if name != b"cookie"}
        page = self.page and scope["type"] == "http" and scope["method"] == "GET" and scope["path"] == "/"
        if page and headers[b"host"][0].lower() not in (HOST, f"{HOST}:{port}"):
            # The browser stores the user's texts per address, so one address is used.
            return RedirectResponse(f"http://{HOST}:{port}/{_query(scope)}", 307, {"Cache-Control": "no-store"})
        query = _parameters(scope) if page else []
        given = {name: value for name, value in query if name in OPENING}
        if self.access is None:
            return _clean(query) if given else None
        if given and _opens(self.access, given, scope):
            answer = _clean(query)
            answer.headers["Set-Cookie"] = self.access.cookie(port)
            return answer
        if self.access.shown_by(headers, port):
            return _clean(query) if given else None
        if scope["type"] == "http" and scope["method"] in ("GET", "HEAD") and scope["path"] in HEALTH:
            return JSONResponse({"status": "ok"}, headers={"Cache-Control": "no-store"})
        return _missing(scope["path"], "text/html" in "".join(headers.get(b"accept", [])), bool(given))

    def _extension(self, scope: Scope, headers: Headers, access: Access) -> str | None:
        """The origin of an extension of a browser that may send this request: one that is paired, or one that the
        server's user is pairing on this machine; see `pairing`."""
        extension = extension_of(headers)
        if extension is None or scope["type"] != "http" or scope["method"] != "POST":
            return None
        if scope["path"] == PAIR:
            host, number = scope.get("client") or ("", 0)
            here = host.startswith("127.") and is_own((host, number), tuple(scope["server"]))
            return extension if here else None
        return extension if scope["path"] in OPEN and access.is_key(headers, extension) else None


def _foreign(scope: Scope, headers: Headers, elsewhere: bool, allowed: Allowed, origin: str | None) -> str | None:
    """The reason why a request is not from a page of this server or a program of this machine; None if it is.

    Other pages in the same browser can reach 127.0.0.1 too, directly or through a host name that resolves to it.
    Only these headers identify them.
    """
    own, port = scope["server"]  # the address that this connection reached, as 127.0.0.2 after `serve --host 127.0.0.2`
    names = {f"{name}:{port}" for name in (*NAMES, own)}
    if port == 80:  # the default port, which browsers omit
        names |= {*NAMES, own}
    hosts = [host.lower() for host in headers.get(b"host", [])]
    if elsewhere and len(hosts) == 1 and _of_this_machine(hosts[0]):
        names.add(hosts[0])
    if len(hosts) != 1 or not (hosts[0] in names or allowed.knows_host(hosts[0])):
        return f"This server answers on 127.0.0.1 only, not as {', '.join(hosts)[:80] or 'nameless'}."
    if origin:
        return None
    origins = [origin.lower() for origin in headers.get(b"origin", [])]
    ours = {f"http://{name}" for name in names}
    if allowed.pages and allowed.knows_host(hosts[0]):
        ours |= {f"http://{hosts[0]}", f"https://{hosts[0]}"}  # the second behind a proxy
    if any(origin not in ours for origin in origins):
        return f"Pages of {', '.join(origins)[:80]} may not talk to Polydraft."
    if any(site not in ("same-origin", "none") for site in headers.get(b"sec-fetch-site", [])):
        opened = scope["path"] == "/" and headers.get(b"sec-fetch-mode") == ["navigate"]
        if not opened or headers.get(b"sec-fetch-dest", ["document"]) != ["document"]:
            return "Pages of other sites may not talk to Polydraft."
    return None


def _of_this_machine(host: str) -> bool:
    """Whether a Host header is an IP address or this machine's name, neither of which a foreign page can redirect."""
    name = host.rpartition(":")[0] if re.search(r":\d+\Z", host) else host
    try:
        ip_address(name.strip("[]"))
    except ValueError:
        own = socket.gethostname().lower()
        return name in (own, f"{own}.local")
    return True


def _parameters(scope: Scope) -> list[tuple[str, str]]:
    """The parameters of the page's address; none if there are more than a page has, which would take long to read."""
    try:
        return parse_qsl(scope["query_string"].decode("latin-1"), keep_blank_values=True, max_num_fields=PARAMETERS)
    except ValueError:
        return []


def _query(scope: Scope) -> str:
    return f"?{text}" if (text := scope["query_string"].decode("latin-1")) else ""


def _clean(query: list[tuple[str, str]]) -> Response:
    """Redirects to the page's address without the token or ticket, so it stays out of the browser's history."""
    rest = urlencode([(name, value) for name, value in query if name not in OPENING])
    return RedirectResponse("/" + (f"?{rest}" if rest else ""), 303, {"Cache-Control": "no-store"})


def _missing(path: str, as_page: bool, given: bool) -> Response:
    """The response without a token: a page in a browser, two sentences elsewhere."""
    message = "The token in this address is not the one of this server." if given else "Polydraft requires its token."
    headers = {"WWW-Authenticate": "Bearer", "Cache-Control": "no-store"}
    if not as_page:
        fix = "Run `polydraft` to open the page, or send the output of `polydraft token` as `Authorization: Bearer`."
        return refusal(path, Refused(401, message, fix, code="invalid_api_key"), headers)
    html = _page().replace("<!-- title -->", message)
    return HTMLResponse(html, 401, {**headers, "Content-Security-Policy": csp.of_a_plain_page(html)})


@cache
def _page() -> str:
    return MISSING.read_text(encoding="utf-8")


def _opens(access: Access, given: Mapping[str, str], scope: Scope) -> bool:
    client, server = scope.get("client"), tuple(scope["server"])
    return access.is_token(given.get("token", "")) or access.is_ticket(
        given.get("ticket", ""), tuple(client) if client else None, server
    )
