"""The model's own probabilities of finished drafts: exact, token by token."""

from __future__ import annotations

import math
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
import torch

from core.autocomplete import Autocomplete
from core.completion import Completion
from core.models import load_model
from core.models.tokenizer import written
from tests.completing import complete
from tests.table_model import FIRST, TableModel


def completed(autocomplete: Autocomplete, text: str, **options: Any) -> Completion:
    session = autocomplete.open()
    completion = complete(session, text, **options)
    completion.finish()
    assert None not in session.sequence.inputs, "the cache keeps the text alone"
    session.close()
    return completion


@pytest.fixture(scope="module")
def model() -> TableModel:
    return TableModel(seed=3)


@pytest.fixture(scope="module")
def autocomplete(model: TableModel) -> Autocomplete:
    return Autocomplete(model)


@pytest.mark.parametrize("distinct", [True, False])
def test_the_chances_are_those_of_the_model_alone(
    model: TableModel, autocomplete: Autocomplete, distinct: bool
) -> None:
    drafts = completed(autocomplete, "abca", heal=False, k=3, length=6, likeliest=2, distinct=distinct).drafts
    assert drafts
    for draft in drafts:
        assert "".join(chance.text for chance in draft.model_logprobs) == draft.text
        text = "abca"
        for chance in draft.model_logprobs:
            logp = torch.log_softmax(model.after(model.tokenizer.encode(text)), 0)
            assert math.isclose(chance.logprob, float(logp[ord(chance.text) - FIRST]), abs_tol=1e-5)
            top, ids = torch.topk(logp, 2)
            assert [c for c, *_ in chance.likeliest] == [chr(FIRST + i) for i in ids.tolist()]
            assert [p for _, p, _ in chance.likeliest] == pytest.approx(top.tolist(), abs=1e-5)
            text += chance.text


def test_a_look_changes_no_draft(autocomplete: Autocomplete) -> None:
    options = {"heal": False, "k": 3, "length": 6}
    plain, looked = (completed(autocomplete, "abca", **options, **more) for more in ({}, {"likeliest": 0}))
    assert [d.text for d in looked.drafts] == [d.text for d in plain.drafts]
    assert all(not d.model_logprobs for d in plain.drafts)
    assert all(chance.likeliest == () for d in looked.drafts for chance in d.model_logprobs)


def test_of_a_half_typed_word_only_what_continues_it_counts(autocomplete: Autocomplete) -> None:
    """Letters are tokens of this vocabulary, so the draft begins behind the word; probabilities are given that."""
    for draft in completed(autocomplete, "abca", k=3, length=4, likeliest=5).drafts:
        assert "".join(chance.text for chance in draft.model_logprobs) == draft.text
        assert all(sum(math.exp(p) for _, p, _ in chance.likeliest) <= 1 + 1e-6 for chance in draft.model_logprobs)


def test_tokens_that_are_parts_of_characters_have_the_names_of_their_bytes(tiny_file: Path) -> None:
    """Letters are bytes of this vocabulary, and its weights are random: most tokens are parts of characters."""
    with closing(load_model(str(tiny_file), "torch")) as model:
        drafts = completed(Autocomplete(model), "caf\u00e9 \U0001f642", heal=False, k=3, length=6, likeliest=200).drafts
    chances = [chance for draft in drafts for chance in draft.model_logprobs]
    assert chances
    pieces = model.tokenizer.pieces
    for chance in chances:
        names = [name for name, *_ in chance.likeliest]
        assert len({*names}) == len(names) == 200
        assert not any("\ufffd" in name for name in names)
        assert any(name.startswith("bytes:") for name in names)
        assert {name: p for name, p, _ in chance.likeliest}.get(chance.name, chance.logprob) == pytest.approx(
            chance.logprob
        )
    assert written(b"\xf0\x9f") == r"bytes:\xf0\x9f" and len({*map(written, pieces)}) == len({*pieces})
