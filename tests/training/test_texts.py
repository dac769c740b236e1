"""Text out of files and folders."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import zstandard

from core.errors import InputError
from training import texts as text


def test_text_out_of_files_and_folders(tmp_path: Path) -> None:
    lines = b"".join(json.dumps({"text": f"document {i}"}).encode() + b"\n" for i in range(2))
    (tmp_path / "b.jsonl.zst").write_bytes(zstandard.compress(lines))
    (tmp_path / "a.txt").write_text("plain", "utf-8")
    assert text.load(tmp_path) == [["plain"], ["document 0", "document 1"]]
    assert text.load(tmp_path / "b.jsonl.zst") == [["document 0", "document 1"]]


def test_a_missing_text_is_reported(tmp_path: Path) -> None:
    (tmp_path / "empty.txt").write_text(" \n", "utf-8")
    with pytest.raises(InputError, match="No text in"):
        text.load(tmp_path / "empty.txt")
    with pytest.raises(InputError, match="does not exist"):
        text.load(tmp_path / "nowhere.txt")
