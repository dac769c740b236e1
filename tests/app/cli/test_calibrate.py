"""`polydraft calibrate`: the passages of a text."""

from __future__ import annotations

from pathlib import Path

import pytest
from table_model import TableModel

from app.cli.calibrate import cut
from core.errors import InputError
from training.calibration import calibrate, collect

MODEL = TableModel(spread=3)


def test_a_calibration_is_measured_on_passages_of_a_text(tmp_path: Path) -> None:
    file = tmp_path / "letters.txt"
    file.write_text("abcdef" * 400)
    passages = cut(MODEL.tokenizer, file, 5)
    assert len(passages) == 5
    assert all(32 <= len(p) <= 128 for p in passages)
    made = calibrate(MODEL, collect(MODEL, passages), prompts=len(passages))
    assert made.check(MODEL).prompts == 5
    file.write_text("ab")
    with pytest.raises(InputError, match="longer text"):
        cut(MODEL.tokenizer, file, 5)
