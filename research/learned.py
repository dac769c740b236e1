"""The file of results in the folder of `--learned`, from which a stopped evaluation resumes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from core.errors import InputError
from ngram_builder.work import read_json, write_json


def read_results(path: Path, identity: str, made_of: str) -> Any:
    """Returns what `write_results` stored; None if there is no file.

    Args:
        made_of: what the identity stands for, in the words of the error.
    Raises: InputError for results of another identity.
    """
    kept = read_json(path)
    if kept is None:
        return None
    if kept["identity"] != identity:
        raise InputError(
            f"{path} has results of another {made_of}; give another folder with --learned, or delete the file."
        )
    return kept["results"]


def write_results(path: Path, identity: str, results: Any) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    write_json(path, {"identity": identity, "results": results})
