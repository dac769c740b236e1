"""Which file of a repository a name means: asks the Hub for the list of its files."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote

import httpx

from core.errors import ModelNotFound, NoConnection
from core.hub.connection import PORTAL, check, connected, endpoint, host
from core.hub.names import Wanted, wanted

PREFERRED = ("Q4_K_M", "Q8_0", "Q5_K_M", "Q6_K", "Q4_0", "BF16", "F16")  # where the user names no type
PART = re.compile(r"-\d{5}-of-\d{5}\.gguf$", re.I)
PROJECTOR = "mmproj"  # in the name of a file: it reads images for another one
MOST_LIST = 32 << 20  # bytes
MOST_SECONDS = 60.0  # for the whole list
_TYPE = re.compile(r"(?:^|[-._/])((?:UD-)?(?:[IT]?Q\d\w*|BF16|F16|F32|MXFP4\w*))\.gguf$", re.I)
_SHA256 = re.compile(r"[0-9a-f]{64}")


@dataclass(frozen=True)
class Remote:
    """A file of a repository.

    Attributes:
        file: its path there.
        bytes: its size, more than 0.
        sha256: None if the Hub states none.
        url: where it is.
    """

    repo: str
    file: str
    bytes: int
    sha256: str | None
    url: str


def find(given: str) -> Remote:
    """The GGUF file that a name means; see `names.wanted`.

    Raises: InputError for what is no name; ModelNotFound if there is no such repository or file; NoConnection.
    """
    asked = wanted(given)
    with connected() as client:
        listed = _list(client, asked)
    file = _chosen(asked, [each for each in listed if each.file.lower().endswith(".gguf")])
    if file.bytes < 1:
        raise NoConnection(f"{host()} does not state the size of {file.file}; get the file with another program.")
    return file


def type_of(file: str) -> str:
    """The type in a file's name, in upper case: Q4_K_M of model.q4_k_m.gguf."""
    match = _TYPE.search(file)
    return match[1].upper() if match else ""


def _list(client: httpx.Client, asked: Wanted) -> list[Remote]:
    """The files of the repository. What has no name that a file can have is left out."""
    address = f"{endpoint()}/api/models/{asked.repo}"
    if asked.revision != "main":
        address += f"/revision/{quote(asked.revision, safe='')}"
    began, data = time.monotonic(), bytearray()
    with client.stream("GET", address, params={"blobs": "true"}) as response:
        check(response, asked.repo)
        for some in response.iter_bytes():
            data += some
            if len(data) > MOST_LIST or time.monotonic() - began > MOST_SECONDS:
                raise NoConnection(f"{host()} sends a list of files without an end for {asked.repo}; try again later.")
    try:
        siblings = json.loads(data)["siblings"]
        files = [_remote(asked, each) for each in siblings if each["rfilename"].isprintable()]
    except (ValueError, LookupError, TypeError, AttributeError, RecursionError) as error:
        page = "a web page" if bytes(data[:64]).lstrip().startswith(b"<") else "something else"
        raise NoConnection(
            f"{host()} answered with {page} and not with the files of {asked.repo}; {PORTAL}."
        ) from error
    return files


def _remote(asked: Wanted, sibling: dict[str, Any]) -> Remote:
    """Of an entry of the Hub's list."""
    file, size, stored = sibling["rfilename"], sibling.get("size"), sibling.get("lfs") or {}
    sha256 = stored.get("sha256")
    url = f"{endpoint()}/{asked.repo}/resolve/{quote(asked.revision, safe='')}/{quote(file)}"
    known = isinstance(sha256, str) and _SHA256.fullmatch(sha256)
    return Remote(asked.repo, file, size if isinstance(size, int) else 0, sha256 if known else None, url)


def _chosen(asked: Wanted, files: Sequence[Remote]) -> Remote:
    """The file of the type or the name that was asked for. Raises ModelNotFound with those that there are."""
    repo = asked.repo
    models = [each for each in files if PROJECTOR not in each.file.lower()]
    whole = [each for each in models if not PART.search(each.file)]
    if not whole:
        reason = "only files in parts, which are not read here" if models else "no GGUF file"
        raise ModelNotFound(f"{repo} has {reason}; choose another repository, often one whose name ends in -GGUF.")
    if asked.file:
        found = next((each for each in whole if each.file.lower() == asked.file.lower()), None)
    elif asked.type:
        found = _of_type(asked.type, whole)
    else:
        found = next(filter(None, (_of_type(each, whole) for each in PREFERRED)), whole[0] if len(whole) == 1 else None)
    if found is not None:
        return found
    types = sorted(filter(None, {type_of(each.file) for each in whole}))
    if not types:
        names = ", ".join(sorted(each.file for each in whole)[:8])
        raise ModelNotFound(f"{repo} has files without a type: {names}; add the one you want as {repo}:FILE.")
    lacking = f"file {asked.file!r} in one part" if asked.file else f"file of the type {asked.type or PREFERRED[0]}"
    proposed = next((each for each in PREFERRED if each in types), types[0])
    raise ModelNotFound(
        f"{repo} has no {lacking}; it has {', '.join(types)}. Type, for instance, `polydraft models get "
        f"{repo}:{proposed}`."
    )


def _of_type(kind: str, files: Sequence[Remote]) -> Remote | None:
    """The file of a type; else the one whose type ends so, as UD-Q4_K_XL ends in Q4_K_XL."""
    exact = (each for each in files if type_of(each.file) == kind)
    return next(exact, None) or next((each for each in files if type_of(each.file).endswith(f"-{kind}")), None)
