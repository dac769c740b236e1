"""Drafts checked in one tree pass; the evaluations and the commands around speculation."""

from __future__ import annotations

import json
import math
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from table_model import TableModel

from app import speculation
from app.calibrate import cut, measured
from app.evals import arc_risk, lossless
from app.evals.prompts import prompts
from core.errors import InputError
from core.speculative import Calibration, NgramDrafter
from core.speculative.calibration import Constants, fingerprint
from core.speculative.target import softmax
from core.speculative.verified import verify

MODEL = TableModel(spread=3)
TEXT = [0, 1, 2]
STRICT = Calibration(fingerprint(MODEL), "table", np.ones(4), Constants(1e9, 1e9, 1e-9))

drafts = st.lists(st.lists(st.integers(0, 5), min_size=1, max_size=6), min_size=1, max_size=4)


@settings(deadline=None)
@given(drafts)
def test_a_draft_stands_until_it_is_not_what_the_target_would_say(given_drafts: list[list[int]]) -> None:
    """With no tolerance at all, only the target's likeliest tokens stand after the first."""
    sequence = MODEL.open()
    fed = MODEL.tokens_fed
    found = verify(sequence, TEXT, given_drafts, calibration=STRICT)
    assert MODEL.tokens_fed - fed <= len(TEXT) + sum(len(d) - 1 for d in given_drafts)
    assert sequence.inputs == TEXT
    assert sorted(v.origin for v in found) == list(range(len(given_drafts)))
    assert [v.score for v in found] == sorted((v.score for v in found), reverse=True)
    for v in found:
        ids, draft = list(TEXT), given_drafts[v.origin]
        for at, token in enumerate(v.ids):
            p = softmax(MODEL.after(ids).numpy())
            assert v.logprobs[at] == pytest.approx(math.log(p[token]), abs=1e-6)
            if at:
                assert token == p.argmax()
            ids.append(token)
        assert v.ids[: v.stands] == draft[: v.stands]
        if not v.cut:
            assert v.ids == draft
        else:
            assert len(v.ids) == v.stands + 1
            assert v.ids[-1] != draft[v.stands]


def test_looking_cuts_nothing() -> None:
    found = verify(MODEL.open(), TEXT, [[3, 3, 3], [4, 4]], theta=None)
    assert sorted(v.ids for v in found) == [[3, 3, 3], [4, 4]]


def test_the_whole_of_a_draft_that_the_target_agrees_with_stands() -> None:
    ids = list(TEXT)
    for _ in range(5):
        ids.append(int(MODEL.after(ids).argmax()))
    (only,) = verify(MODEL.open(), TEXT, [ids[3:]], calibration=STRICT)
    assert not only.cut
    assert only.stands == 5
    with pytest.raises(InputError, match="empty"):
        verify(MODEL.open(), TEXT, [[]])


# --- evaluations


def test_the_same_text_is_found_to_be_the_same_and_another_to_be_another(monkeypatch: pytest.MonkeyPatch) -> None:
    assert lossless.compared(MODEL, NgramDrafter(), TEXT * 4).same
    real = lossless.generate

    def broken(model, drafter, ids, mode, **options):
        made = real(model, drafter, ids, mode, **options)
        if mode == "lossless":
            object.__setattr__(made._choice, "temperature", 50.0)
        return made

    monkeypatch.setattr(lossless, "generate", broken)
    found = lossless.compared(MODEL, NgramDrafter(), TEXT * 4)
    assert not found.same
    assert found.margin is not None


def test_bounds_are_audited_against_the_divergence_itself() -> None:
    loose = Calibration(fingerprint(MODEL), "table", np.ones(4), Constants(1e9, 1e9, 1e12))
    tight = Calibration(fingerprint(MODEL), "table", np.ones(4), Constants(1e-9, 1e-9, 1e-3))
    for calibration, covered in ((loose, True), (tight, False)):
        found = [a for seed in range(6) for a in arc_risk.audited(MODEL, calibration, NgramDrafter(), TEXT * 3, seed)]
        others = [a for a in found if not a.best]
        assert others
        assert all(0 <= a.js <= math.log(2) + 1e-9 for a in found)
        assert all((a.js <= a.bound) == covered for a in others if a.js > 1e-6)
        said = arc_risk.summary(found, calibration)
        assert said["accepted"] == len(found)
        assert said["low"] <= said["coverage"] <= said["high"]


def test_a_calibration_is_measured_on_passages_of_a_text(tmp_path: Path) -> None:
    file = tmp_path / "letters.txt"
    file.write_text("abcdef" * 400)
    passages = cut(MODEL.tokenizer, file, 5)
    assert len(passages) == 5
    assert all(32 <= len(p) <= 128 for p in passages)
    made = measured(MODEL, passages, 0.05, 1.0, 0, lambda _: None)
    assert made.check(MODEL).prompts == 5
    file.write_text("ab")
    with pytest.raises(InputError, match="longer text"):
        cut(MODEL.tokenizer, file, 5)


def test_prompts_are_read_by_kind(tmp_path: Path, llama_model) -> None:
    ours = prompts(None, llama_model.tokenizer, 2)
    assert set(ours) == {"chat", "code", "maths", "tasks"}
    assert all(len(of_kind) == 2 for of_kind in ours.values())
    (tmp_path / "one.jsonl").write_text(json.dumps({"turns": ["Hello there"]}) + "\n")
    assert list(prompts(tmp_path, llama_model.tokenizer)) == ["one"]
    (tmp_path / "one.jsonl").write_text('{"turns": ["Hello"]}\n{"turn": 1}\n')
    with pytest.raises(InputError, match="Line 2"):
        prompts(tmp_path, llama_model.tokenizer)
    with pytest.raises(InputError, match="cannot be read"):
        prompts(tmp_path / "none.jsonl", llama_model.tokenizer)


def test_the_default_model_on_torch_says_the_same_with_and_without(torch_model) -> None:
    """A trimmed set: the whole one is `polydraft eval lossless --text …`."""
    for of_kind in prompts(None, torch_model.tokenizer, 1).values():
        found = lossless.compared(torch_model, NgramDrafter(), of_kind[0], length=24)
        assert found.same, found


# --- the command line


def test_drafts_with_speculation_are_k_and_say_how_each_token_came(autocomplete) -> None:
    text = "one two three, one two three, one two three,"
    made = speculation.drafts(autocomplete, text, speculation.Asked("lossless", tree_size=4), 2, 8, None, 0)
    assert len(made["drafts"]) == 2
    for draft in made["drafts"]:
        assert "".join(t["text"] for t in draft["tokens"]) == draft["text"]
        assert {t["how"] for t in draft["tokens"]} <= {"plain", "accepted", "corrected", "bonus"}
    assert json.loads(json.dumps(made))["accept_length"] >= 1
    assert "tokens a pass" in speculation.shown(made, str)
