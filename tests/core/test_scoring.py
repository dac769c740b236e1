"""The probability of each token of a given text, compared with the model's own after each beginning of it."""

from __future__ import annotations

import pytest
import torch

from core.ask import Ask
from core.autocomplete import Autocomplete
from core.errors import InputError
from core.present import TextDraft
from core.scoring import PART
from core.session import Session
from tests.table_model import TableModel, words


def scored(session: Session, **fields: object) -> TextDraft:
    ask = Ask(scores=True, likeliest=2, **fields)  # pyright: ignore[reportArgumentType]
    (row,) = session.complete(ask).finish(session.equipped.model).drafts
    return row


@pytest.mark.parametrize("start", [[], [3]])
def test_each_token_has_the_models_probability_after_all_that_precede_it(start: list[int]) -> None:
    model = TableModel(seed=3)
    model.tokenizer.start_ids = start
    session = Autocomplete(model).open()
    text = "abcdef" * PART
    row = scored(session, before=text)
    ids = [*start, *model.tokenizer.encode(text)]
    assert row.text[:-1] == words(text)
    tokens = row.model_logprobs
    assert len(tokens) == len(text) + 1  # and the likeliest next one
    assert (tokens[0].logprob is None) == (start == [])
    for n in range(max(len(start), 1), len(ids) + 1):
        logp = torch.log_softmax(model.after(ids[:n]), 0)
        token, wanted = tokens[n - len(start)], ids[n] if n < len(ids) else int(logp.argmax())
        assert (token.id, token.logprob) == (wanted, pytest.approx(float(logp[wanted]), abs=1e-5))
        assert [each[2] for each in token.likeliest] == torch.topk(logp, 2).indices.tolist()
    assert scored(session, ids=ids[len(start) :]) == row


def test_what_cannot_be_scored_is_refused_with_a_sentence() -> None:
    model = TableModel(seed=3)
    session = Autocomplete(model).open()
    for fields, sentence in (
        ({"before": ""}, "An empty text given"),
        ({"ids": [0] * 4097}, "4,097 tokens given; at most 4,096"),
        ({"ids": [99]}, "The token 99 given; the model's tokens go up to 5"),
    ):
        with pytest.raises(InputError, match=sentence):
            scored(session, **fields)
