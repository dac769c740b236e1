"""Requests to the Polydraft of this user, and to no other program that answers at its port.

Every user of a machine can listen at a free port, and would receive the token and the text. A running Polydraft holds a
lock on a file in its user's data folder, which other users cannot access. Without dependencies: the system's Python
runs the engine.
"""

import fcntl
import json
import os
import platform
import urllib.request
from pathlib import Path

DRAFTS = 3
PATIENCE = 2.0  # seconds
_DIRECT = urllib.request.build_opener(urllib.request.ProxyHandler({}))  # a proxy would receive the token, too


class Missing(Exception):
    """No Polydraft of this user runs at the port."""


def drafts(port: int, before: str, session: str, no_slurs: bool) -> list[str]:
    """Returns the drafts after a text, the best first. A newer request of the session stops this one in the server.

    With `no_slurs` they contain none of the slurs of the list that comes with Polydraft.

    Raises: Missing; OSError if the server does not answer in time; ValueError or KeyError if it has none, as when a
        newer request superseded this one.
    """
    head = {"Content-Type": "application/json", "Authorization": f"Bearer {token_for(port)}"}
    body = {
        "model": "polydraft",
        "prompt": before,
        "n": DRAFTS,
        "max_tokens": 10,
        "user": session,
        "no_slurs": no_slurs,
    }
    asked = urllib.request.Request(f"http://127.0.0.1:{port}/v1/completions", json.dumps(body).encode(), head)
    with _DIRECT.open(asked, timeout=PATIENCE) as answer:
        return [choice["text"] for choice in json.load(answer)["choices"]]


def token_for(port: int) -> str:
    """Returns the token of this user's Polydraft at the port. Raises Missing if there is none."""
    folder = Path(os.environ.get("XDG_DATA_HOME") or Path.home() / ".local" / "share") / "polydraft"
    try:
        with (folder / f"running-{platform.node()}-{port}").open() as file:
            if not _is_locked(file):
                raise FileNotFoundError
        return (folder / "token").read_text(encoding="utf-8").strip()
    except FileNotFoundError:
        raise Missing(f"No Polydraft of yours runs at port {port}. Start it with `polydraft serve`.") from None


def _is_locked(file: object) -> bool:
    try:
        fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)  # type: ignore[arg-type]
    except BlockingIOError:
        return True
    except OSError:  # a file system without locks, where no Polydraft can be told from another program
        return False
    return False
