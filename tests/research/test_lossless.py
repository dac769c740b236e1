"""`eval lossless`: texts that are compared."""

from __future__ import annotations

import pytest
from table_model import TableModel

from core.speculative import NgramDrafter
from core.speculative.drafters.eagle3 import DEFAULT_HEAD, Eagle3Drafter
from core.speculative.eagle3 import Eagle3Head
from research.evals import lossless
from research.prompts import prompts

MODEL = TableModel(spread=3)
TEXT = [0, 1, 2]


def test_the_same_text_is_found_to_be_the_same_and_another_to_be_another(monkeypatch: pytest.MonkeyPatch) -> None:
    for temperature in (0, 1):
        assert all(
            one.same for one in lossless.compared(MODEL, [NgramDrafter(), NgramDrafter()], TEXT * 4, temperature)
        )
    real = lossless.generate

    def broken(model, drafter, ids, mode, **options):
        other = {"seed": 9, "temperature": 50.0} if mode == "lossless" else {}
        return real(model, drafter, ids, mode, **(options | other))

    monkeypatch.setattr(lossless, "generate", broken)
    for temperature in (0, 1):
        (found,) = lossless.compared(MODEL, [NgramDrafter()], TEXT * 4, temperature)
        assert not found.same
        assert found.margin is not None


def test_the_default_model_on_torch_says_the_same_with_and_without(torch_model) -> None:
    """A trimmed set: the whole one is `polydraft eval lossless --text …`."""
    drafters = [NgramDrafter(), Eagle3Drafter(Eagle3Head.load(DEFAULT_HEAD), torch_model)]
    try:
        for kind, temperature in (("chat", 0), ("code", 1)):
            ids = prompts(None, torch_model.tokenizer, 1)[kind][0]
            texts = lossless.compared(torch_model, drafters, ids, temperature, length=16)
            assert all(text.same for text in texts), texts
    finally:
        torch_model.watch(())
