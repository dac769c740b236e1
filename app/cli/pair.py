"""`polydraft pair`: a code of the running server, with which an extension of a browser is paired."""

from __future__ import annotations

import httpx

from app.machine import running
from app.machine.token import token
from app.web.security.pairing import CODE
from core.errors import InputError


def code_of(port: int) -> str:
    """A new code. Raises InputError if no server of this user runs at the port, or it gives no code."""
    if running.at(port) is None:
        raise InputError(f"No Polydraft of yours runs at port {port}. Start `polydraft` or `polydraft serve`.")
    headers = {"Authorization": f"Bearer {token()}"}
    try:
        with httpx.Client(trust_env=False, timeout=20) as http:  # requests to this machine use no proxy
            answer = http.post(f"http://127.0.0.1:{port}{CODE}", json={}, headers=headers)
        content = answer.json()
    except (httpx.HTTPError, ValueError) as error:
        raise InputError(f"Polydraft at port {port} does not respond: {error}.") from error
    if not answer.is_success:
        raise InputError(f"{content['message']} {content['fix']}".strip())
    return content["code"]
