"""Prompts to generate from: a folder of .jsonl files, one kind each, with the prompt as the first of "turns"; or the
prompts that come with the app."""

from __future__ import annotations

import json
from pathlib import Path

from core.errors import InputError
from core.models import Tokenizer

OURS = Path(__file__).with_name("prompts.jsonl")
MOST = 700  # tokens of a prompt; of a longer one the beginning is dropped


def prompts(path: Path | None, tokenizer: Tokenizer, count: int | None = None) -> dict[str, list[list[int]]]:
    """Token ids of the first `count` prompts of each file, by the file's name, each up to where an answer begins.

    Raises: InputError if there is no file with prompts, or a line is not a prompt.
    """
    files = [OURS] if path is None else sorted(path.glob("*.jsonl")) if path.is_dir() else [path]
    found: dict[str, list[list[int]]] = {}
    for file in files:
        number = 0
        try:
            lines = file.read_text(encoding="utf-8").splitlines()
            while number < len(lines):
                said = json.loads(lines[number])
                number += 1
                if not isinstance(said, dict) or not isinstance(said["turns"][0], str):
                    raise ValueError("no object with a list of texts")
                of_kind = found.setdefault(said.get("kind", file.stem) if path is None else file.stem, [])
                if count is None or len(of_kind) < count:
                    of_kind.append(_ids(said["turns"][0], tokenizer))
        except OSError as error:
            raise InputError(f"{file} cannot be read ({error.strerror}); give a folder of .jsonl prompts.") from error
        except (ValueError, KeyError, IndexError, TypeError) as error:
            raise InputError(f'Line {number} of {file} is not a prompt; {{"turns": ["…"]}} expected.') from error
    if not found:
        raise InputError(f"No prompts in {path}; give a folder of .jsonl files.")
    return found


def _ids(text: str, tokenizer: Tokenizer) -> list[int]:
    return tokenizer.start_ids + tokenizer.encode(text.rstrip() + "\n\n")[-MOST:]
