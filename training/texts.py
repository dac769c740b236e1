"""The text of files: the user's, or the app's own small sample. Documents stay as they are, with their empty lines and
marks."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TypeVar

from core.errors import InputError
from ngram_builder.readers import Damage, File, documents, expand

SAMPLE = Path(__file__).with_name("sample")  # a folder: letters, a story, notes in Markdown, as people write them
T = TypeVar("T")


def read(sources: Sequence[str | Path]) -> list[tuple[File, list[str]]]:
    """Returns the documents of each file of files, folders or patterns: .txt, .md, .jsonl; each also as .gz or .zst.

    Raises: InputError if there is no file, no readable one, or no text.
    """
    damage: list[Damage] = []
    every = [(file, [text for text in documents(file, damage.append) if text.strip()]) for file in expand(sources)]
    files = [(file, texts) for file, texts in every if texts]
    if not files:
        where, why = ", ".join(map(str, sources)), f" ({damage[0]})" if damage else ""
        raise InputError(f"No text in {where}{why}; give a .txt or .jsonl.zst file that contains text.")
    return files


def load(path: Path | None = None) -> list[list[str]]:
    """Returns the documents of each file of a file or folder; None is the app's own. Raises InputError as `read`."""
    return [texts for _, texts in read([path or SAMPLE])]


def sample() -> str:
    """Returns the app's own text, its documents one after the other with empty lines between them."""
    return "\n\n".join(text.strip() for file in load() for text in file)


def in_turn(lists: Sequence[Sequence[T]]) -> list[T]:
    """Returns the first of each list, then the second of each, and so on; a list that is over is passed over."""
    longest = max(map(len, lists), default=0)
    return [each[number] for number in range(longest) for each in lists if number < len(each)]
