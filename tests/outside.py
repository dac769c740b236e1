"""Notes every other machine that this process looks for, from the import of this module on."""

from __future__ import annotations

import sys
from typing import Any

LOCAL = ("127.0.0.1", "::1", "localhost", None, "", b"127.0.0.1", b"localhost")

found: list[str] = []


def _watch(event: str, arguments: Any) -> None:
    host: Any = None
    if event in ("socket.connect", "socket.sendto") and isinstance(arguments[1], tuple):
        host = arguments[1][0]
    elif event in ("socket.getaddrinfo", "socket.gethostbyname"):
        host = arguments[0]
    if host not in LOCAL:
        found.append(host.decode() if isinstance(host, bytes) else host)
        sys.stderr.write(f"OUTSIDE {event} {host}\n")


sys.addaudithook(_watch)
