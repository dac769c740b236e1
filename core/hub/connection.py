"""Connections to the Hub. Whatever goes wrong with one ends in a sentence. `HF_ENDPOINT` and `HF_TOKEN` count."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from urllib.parse import urlsplit

import httpx
from huggingface_hub import constants, get_token

from core.errors import InputError, ModelNotFound, NoConnection, first_line

CONNECT, ANSWER = 10.0, 20.0  # seconds to wait for a connection, and for the next bytes of an answer
PORTAL = "does this network ask for a login? Open any page in the browser, then try again"


def endpoint() -> str:
    """The address of the Hub, or of the server that `HF_ENDPOINT` names."""
    return constants.ENDPOINT


def host() -> str:
    """The name of the machine that is connected to."""
    return urlsplit(endpoint()).netloc or endpoint()


@contextmanager
def connected() -> Iterator[httpx.Client]:
    """Yields a client that sends the user's token, if there is one, to the Hub alone.

    Raises: InputError where the environment forbids a connection, or describes an impossible one; NoConnection for
        whatever goes wrong inside the block.
    """
    if constants.HF_HUB_OFFLINE:
        raise InputError("HF_HUB_OFFLINE is set, which forbids connections to the Hub; unset it to download a model.")
    # Files are sent as they are, so that their sizes are those that the Hub states.
    headers = {"User-Agent": "polydraft", "Accept-Encoding": "identity"}
    if token := get_token():
        if not (token.isascii() and token.isprintable()):
            raise InputError("HF_TOKEN has characters that no token has; copy it again from the Hub's settings.")
        headers["Authorization"] = f"Bearer {token}"
    try:
        client = httpx.Client(
            headers=headers, timeout=httpx.Timeout(ANSWER, connect=CONNECT), follow_redirects=True, max_redirects=10
        )
    except (ImportError, ValueError, OSError) as error:
        raise InputError(
            f"The proxy or the certificates that this environment names cannot be used: {first_line(error)}; see "
            "HTTPS_PROXY, ALL_PROXY and SSL_CERT_FILE."
        ) from error
    with client:
        try:
            yield client
        except httpx.TooManyRedirects as error:
            raise NoConnection(f"{host()} sends every request to another address, in a circle; {PORTAL}.") from error
        except httpx.ConnectTimeout as error:
            raise NoConnection(f"{_of(error)} did not answer within {CONNECT:g} s; is there a connection?") from error
        except httpx.TimeoutException as error:
            raise NoConnection(f"{_of(error)} sent nothing for {ANSWER:g} s; try again later.") from error
        except httpx.ConnectError as error:
            raise NoConnection(
                f"{_of(error)} cannot be reached: {first_line(error)}; check the connection and HF_ENDPOINT."
            ) from error
        except (httpx.HTTPError, httpx.InvalidURL) as error:
            raise NoConnection(f"The connection to {_of(error)} failed: {first_line(error)}; try again.") from error


def check(response: httpx.Response, repo: str) -> None:
    """Raises ModelNotFound or NoConnection for an answer that does not have what was asked for.

    Args:
        repo: OWNER/REPO that it is about.
    """
    status, reason = response.status_code, response.headers.get("X-Error-Code", "")
    if response.is_success:
        return
    if reason == "GatedRepo" or status == 403:
        raise ModelNotFound(
            f"{host()} gives {repo} only to accounts that asked for it: ask on {endpoint()}/{repo}, and set HF_TOKEN."
        )
    if reason in ("RevisionNotFound", "EntryNotFound"):
        raise ModelNotFound(f"{repo} has no such file or version; see {endpoint()}/{repo}.")
    if status in (401, 404):
        raise ModelNotFound(
            f"{endpoint()} has no public model {repo}; check the name, or set HF_TOKEN for a private one."
        )
    if status == 429:
        raise NoConnection(f"{response.url.host} takes no more requests from here for now; try again in some minutes.")
    raise NoConnection(f"{response.url.host} answered with status {status}; try again later.")


def _of(error: Exception) -> str:
    """The machine that an error is about: a file may come from another one than the Hub."""
    try:
        return (error.request.url.host if isinstance(error, httpx.RequestError) else "") or host()
    except RuntimeError:  # it has no request
        return host()
