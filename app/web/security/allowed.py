"""The origins and host names that `--allow-origin` and `--allow-host` add.

An origin opens the interfaces for other programs, and nothing else of the server, to the pages of one site or to one
extension of a browser: CORS, https://fetch.spec.whatwg.org/#http-cors-protocol. Its requests need the token as a
bearer; the cookie of Polydraft's own page does not count for them. A host name is one by which programs reach this
machine, such as that of a container.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from core.errors import InputError

_ORIGIN = re.compile(r"[a-z][a-z0-9+.-]*://(?:[\w.~-]+|\[[0-9a-f:.]+\])(?::\d{1,5})?", re.ASCII | re.IGNORECASE)
_HOST = re.compile(r"(?:[\w.-]+|\[[0-9a-f:.]+\])(?::\d{1,5})?", re.ASCII | re.IGNORECASE)
_HEADER = re.compile(r"[\w-]{1,64}", re.ASCII)
_MOST_HEADERS = 40  # that a preflight may ask for; the official client sends ten of its own

EXPOSED = "X-Polydraft-Model"
MAX_AGE = 600  # seconds for which a browser may keep the answer to a preflight


@dataclass(frozen=True)
class Allowed:
    """Origins and host names in lower case.

    Attributes:
        pages: whether browsers open the server's own page under these host names, too.
    """

    origins: frozenset[str] = frozenset()
    hosts: frozenset[str] = frozenset()
    pages: bool = False

    def knows_host(self, host: str) -> bool:
        """Whether a Host header is one of the names; a name without a port is meant with every port."""
        return host in self.hosts or re.sub(r":\d+\Z", "", host) in self.hosts

    def origin_of(self, headers: Mapping[bytes, list[str]]) -> str | None:
        """The Origin header of a request if it is one of the origins; else None."""
        given = headers.get(b"origin", [])
        return given[0] if len(given) == 1 and given[0].lower() in self.origins else None


def allowed(origins: Sequence[str] = (), hosts: Sequence[str] = ()) -> Allowed:
    """The origins and names as the user gives them. Raises InputError for one that is not exact."""
    for option, given, form, example in (
        ("--allow-origin", origins, _ORIGIN, "app://obsidian.md, chrome-extension://ID or http://localhost:3000"),
        ("--allow-host", hosts, _HOST, "polydraft or host.docker.internal:7893"),
    ):
        for value in given:
            if not form.fullmatch(value):
                raise InputError(
                    f"{option} {value} given; one exact value such as {example} expected, without * or path."
                )
    return Allowed(frozenset(map(str.lower, origins)), frozenset(map(str.lower, hosts)))


def cors(origin: str) -> list[tuple[bytes, bytes]]:
    """The headers of each response to an allowed origin."""
    return [
        (b"access-control-allow-origin", origin.encode("latin-1")),
        (b"access-control-expose-headers", EXPOSED.encode()),
        (b"vary", b"Origin"),
    ]


def preflight(headers: Mapping[bytes, list[str]]) -> dict[str, str]:
    """The further headers of the response to a preflight, which allow the headers that it names."""
    named = [name.strip() for name in ",".join(headers.get(b"access-control-request-headers", [])).split(",")]
    fit = [name for name in named[:_MOST_HEADERS] if _HEADER.fullmatch(name) and name.lower() != "cookie"]
    headers_allowed = {"Access-Control-Allow-Methods": "GET, POST", "Access-Control-Max-Age": str(MAX_AGE)}
    if fit:
        headers_allowed["Access-Control-Allow-Headers"] = ", ".join(fit)
    if headers.get(b"access-control-request-private-network") == ["true"]:  # Chromium: a public site, a private address
        headers_allowed["Access-Control-Allow-Private-Network"] = "true"
    return headers_allowed
