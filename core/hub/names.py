"""Reads what people paste to name a model of the Hub: OWNER/REPO:TYPE, addresses of its pages, and names in the form of
Ollama's and llama.cpp's.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from urllib.parse import parse_qs, unquote, urlsplit

from core.errors import InputError
from core.hub.connection import endpoint

EXAMPLE = "ggml-org/Qwen3-0.6B-Base-GGUF:Q8_0"
HOSTS = ("huggingface.co", "www.huggingface.co", "hf.co")
KINDS = {"datasets": "a data set", "spaces": "a space", "collections": "a collection", "papers": "a paper"}
PAGES = ("blob", "resolve", "raw", "tree")  # of a repository, each followed by a revision
_NAME = re.compile(r"\w[\w.-]*", re.ASCII)
_TYPE = re.compile(r"[\w.-]+", re.ASCII)
_SHOWN = 200  # characters of what was given in an error


@dataclass(frozen=True)
class Wanted:
    """What a name asks for.

    Attributes:
        repo: OWNER/REPO.
        type: of the file's weights, in upper case, such as Q4_K_M; "" for any.
        file: its path in the repository; "" for any.
        revision: a branch, a tag or a commit.
    """

    repo: str
    type: str = ""
    file: str = ""
    revision: str = "main"


def wanted(given: str) -> Wanted:
    """What a pasted name or address asks for. Raises InputError with the form that is expected."""
    address = given.strip().strip("<>\"'`")
    scheme, found, rest = address.partition("://")
    path, file = _split(rest if found else address)
    parts = [unquote(part) for part in path.split("/") if part]
    hosts = {*HOSTS, (urlsplit(endpoint()).netloc or HOSTS[0]).lower()}
    if parts and parts[0].lower() in hosts:
        del parts[0]
    elif found and scheme.lower() != "hf":
        raise InputError(
            f"{given[:_SHOWN]!r} given, an address of another site; one of {HOSTS[0]} expected, or a "
            f"name such as {EXAMPLE}."
        )
    if len(parts) > 1 and parts[0] in KINDS:
        raise InputError(f"{given[:_SHOWN]!r} names {KINDS[parts[0]]}; a model is expected, such as {EXAMPLE}.")
    if len(parts) < 2:
        raise _unknown(given)
    owner, (repo, _, kind), more = parts[0], parts[1].partition(":"), parts[2:]
    revision = "main"
    if more[:1] and more[0] in PAGES:
        revision, file = more[1] if more[1:] else revision, file or "/".join(more[2:] if more[0] != "tree" else ())
    elif more and more[-1].lower().endswith(".gguf"):
        file = "/".join(more)
    if kind.lower().endswith(".gguf"):
        kind, file = "", kind
    if not (_NAME.fullmatch(owner) and _NAME.fullmatch(repo) and (not kind or _TYPE.fullmatch(kind))):
        raise _unknown(given)
    if file and not file.lower().endswith(".gguf"):
        raise InputError(
            f"{given[:_SHOWN]!r} names {file[:_SHOWN]!r}, which is no GGUF file; type `polydraft models get "
            f"{owner}/{repo}` for a GGUF file of the same repository."
        )
    kind = "" if kind.lower() == "latest" else kind.upper()  # Ollama's word for no type
    return Wanted(f"{owner}/{repo}", kind, file, revision)


def _split(address: str) -> tuple[str, str]:
    """The path of an address, and the file that its query shows: a click on a type in a model's page adds it."""
    path, _, _ = address.partition("#")
    path, _, query = path.partition("?")
    return path, parse_qs(query).get("show_file_info", [""])[0]


def _unknown(given: str) -> InputError:
    return InputError(
        f"{given[:_SHOWN]!r} given; OWNER/REPO or OWNER/REPO:TYPE expected, as in {EXAMPLE}, or the address of a model "
        f"on {HOSTS[0]}."
    )
