"""Downloads a GGUF file from the Hugging Face Hub, when the user asks for one: the only way by which a model comes over
the network. `HF_ENDPOINT` and `HF_TOKEN` are respected. A download that was interrupted continues where it stopped.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote

from httpx import HTTPError

from core.errors import InputError, ModelFileError, ModelNotFound, first_line
from core.files import sync_folder

NAME = re.compile(r"([\w.-]+/[\w.-]+)(?::([\w.-]+))?")
PREFERRED = ("Q4_K_M", "Q8_0", "Q5_K_M", "Q6_K", "Q4_0", "BF16", "F16")  # where the user names no type
SPARE = 200_000_000  # bytes that stay free on the disk
PART = re.compile(r"-\d{5}-of-\d{5}\.gguf$", re.I)
_READ = 1 << 20


@dataclass(frozen=True)
class Remote:
    """A file of a repository: its name and address there, bytes, and SHA-256 if the Hub states it."""

    repo: str
    file: str
    bytes: int
    sha256: str | None
    url: str = ""


def find(name: str) -> Remote:
    """The GGUF file that OWNER/REPO[:QUANT] means. Raises InputError, ModelNotFound."""
    match = NAME.fullmatch(name)
    if not match:
        raise InputError(
            f"{name!r} given; OWNER/REPO or OWNER/REPO:TYPE expected, as in ggml-org/Qwen3-0.6B-Base-GGUF:Q8_0."
        )
    repo, wanted = match[1], match[2]
    from huggingface_hub import HfApi
    from huggingface_hub.errors import HfHubHTTPError, OfflineModeIsEnabled, RepositoryNotFoundError

    api = HfApi()
    try:
        listed = api.model_info(repo, files_metadata=True).siblings or []
    except RepositoryNotFoundError as error:
        raise ModelNotFound(f"{api.endpoint} has no public model {repo}; check the name.") from error
    except (HfHubHTTPError, OfflineModeIsEnabled, HTTPError, OSError) as error:
        raise ModelNotFound(f"{api.endpoint} cannot be asked for {repo}: {first_line(error)}") from error
    files = [x for x in listed if x.rfilename.lower().endswith(".gguf") and "mmproj" not in x.rfilename.lower()]
    whole = [x for x in files if not PART.search(x.rfilename)]
    if not whole:
        reason = "only files in parts, which are not read here" if files else "no GGUF file"
        raise ModelNotFound(f"{repo} has {reason}; choose another repository, often one whose name ends in -GGUF.")
    types = {x.rfilename: type_of(x.rfilename) for x in whole}
    order = (wanted,) if wanted else PREFERRED
    chosen = next((x for kind in order for x in whole if types[x.rfilename] == kind.upper()), None)
    if chosen is None and not wanted and len(whole) == 1:
        chosen = whole[0]
    if chosen is None:
        offered = ", ".join(sorted(filter(None, set(types.values())))) or ", ".join(sorted(types)[:8])
        raise ModelNotFound(f"{repo} has no file of the type {wanted or PREFERRED[0]}; it has {offered}.")
    url = f"{api.endpoint}/{repo}/resolve/main/{quote(chosen.rfilename)}"
    return Remote(repo, chosen.rfilename, chosen.size or 0, chosen.lfs.sha256 if chosen.lfs else None, url)


def type_of(file: str) -> str:
    """The type in a file's name, in upper case: Q4_K_M of model.q4_k_m.gguf."""
    match = re.search(r"(?:^|[-._/])((?:I?Q\d\w*|BF16|F16|F32|MXFP4\w*))\.gguf$", file, re.I)
    return match[1].upper() if match else ""


def check_room(remote: Remote, folder: Path, come: int = 0) -> None:
    """Raises InputError if the disk has no room for what is missing of the file, of which `come` bytes are there."""
    free = shutil.disk_usage(_existing(folder)).free
    if remote.bytes - come + SPARE > free:
        raise InputError(
            f"{remote.file} has {remote.bytes / 1e9:.1f} GB, and the disk of {folder} has {free / 1e9:.1f} GB free, "
            f"of which {SPARE / 1e9:.1f} GB should stay free; free some, or choose a smaller type."
        )


def get(remote: Remote, folder: Path, verifying: Callable[[], None] = lambda: None) -> Path:
    """Downloads the file into the folder, with the Hub's progress bar on stderr, and compares its digest.

    Args:
        verifying: called before the digest is computed, which takes seconds.
    Returns: its path.
    Raises: InputError without room on the disk; ModelNotFound if the connection fails, which keeps what has come;
        ModelFileError for a file with another digest, which is removed.
    """
    from huggingface_hub.errors import HfHubHTTPError, OfflineModeIsEnabled
    from huggingface_hub.file_download import http_get
    from huggingface_hub.utils import build_hf_headers

    path = folder / Path(remote.file).name
    if not path.exists():
        # The library itself begins anew after an interruption, so the part that has come is kept here.
        part = path.with_name(f"{path.name}.{(remote.sha256 or '')[:16]}.part")
        come = part.stat().st_size if part.exists() else 0
        check_room(remote, folder, come)
        folder.mkdir(parents=True, exist_ok=True)
        try:
            with part.open("ab") as file:
                http_get(
                    remote.url,
                    file,
                    resume_size=come,
                    headers=build_hf_headers(),
                    expected_size=remote.bytes,
                    displayed_filename=path.name,
                )
                file.flush()
                os.fsync(file.fileno())
        except (HfHubHTTPError, OfflineModeIsEnabled, HTTPError, OSError) as error:
            raise ModelNotFound(
                f"{remote.file} of {remote.repo} did not come completely: {first_line(error)}; "
                "the same command continues."
            ) from error
        part.replace(path)
        sync_folder(folder)
    verifying()
    if remote.sha256 and (digest := _digest(path)) != remote.sha256:
        path.unlink()
        raise ModelFileError(
            f"{path} has the SHA-256 {digest}, and {remote.repo} states {remote.sha256}; it was removed, get it again."
        )
    return path


def _digest(path: Path) -> str:
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while some := file.read(_READ):
            digest.update(some)
    return digest.hexdigest()


def _existing(folder: Path) -> Path:
    return next(path for path in (folder, *folder.parents) if path.exists())
