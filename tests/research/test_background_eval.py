"""`eval background`: turns of conversations, and that a background which holds the answer helps."""

from __future__ import annotations

from pathlib import Path

import pytest

from core.errors import InputError
from core.models import LanguageModel
from research.evals import background
from research.options import EvalOptions

TALK = "\n".join(f"This is turn number {n} of a long conversation." for n in range(6))


def test_turns_have_those_before_them() -> None:
    chosen = background.turns({"talk": [TALK, "Too short.\nYes.\nNo."]}, 9)
    ((before, turn),) = chosen
    assert len(before) >= max(background.TURNS)
    assert [*before, turn] == TALK.split("\n")[: len(before) + 1]
    with pytest.raises(InputError, match="more than 3 turns"):
        background.turns({"talk": ["Hello.\nHello."]}, 9)


def test_a_turn_is_as_probable_as_after_the_same_text(torch_model: LanguageModel) -> None:
    model, turn = torch_model, "The lighthouse keeper climbed the stairs."
    ids = model.tokenizer.encode(f"Hello.\n\n{turn}")
    count = len(model.tokenizer.encode(turn))
    sequence = model.open()
    expected = sequence.feed_every(ids[:-1]).log_softmax(-1)[-count:]
    sequence.close()
    found = background.ln_probabilities(model, "Hello.", turn)
    assert found == pytest.approx([float(row[i]) for row, i in zip(expected, ids[-count:], strict=True)], abs=1e-3)
    repeated = background.ln_probabilities(model, turn, turn)
    assert sum(repeated) > sum(background.ln_probabilities(model, "", turn)) + 5


def test_it_runs(own_folders: Path, tiny_file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(background, "SHORTEST", 8)
    (tmp_path / "talk.txt").write_text("\n".join(f"We talk {n}." for n in range(6)))
    options = EvalOptions(text=tmp_path / "talk.txt", model=str(tiny_file), repetitions=2)
    report = background.measure(options, lambda _: None)
    assert [row["turns in the background"] for row in report.rows] == [0, 1, 3]
    assert report.rows[0]["mean_ln_p_more"] == 0
