"""`model.generate(custom_generate=superposed_drafts)` of transformers, on tiny models with random weights."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import (
    AutoModelForCausalLM,
    LogitsProcessor,
    LogitsProcessorList,
    PreTrainedModel,
    T5Config,
    T5ForConditionalGeneration,
    dynamic_module_utils,
)

from core.custom_generate import FOLDER, superposed_drafts
from core.errors import InputError
from core.models import load_model
from core.superposed import superpose
from tests.tiny_models import save_model, tiny

PROMPT = torch.tensor([[72, 101, 108, 108, 111]])


@pytest.fixture(scope="module", params=["gpt2", "gemma3", "bloom"])
def folder(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_model(tmp_path_factory.mktemp(request.param), tiny(request.param))


@pytest.fixture(scope="module")
def model(folder: Path) -> PreTrainedModel:
    return AutoModelForCausalLM.from_pretrained(folder)


def drafts(model: PreTrainedModel, prompt: torch.Tensor = PROMPT, **options: Any) -> torch.Tensor:
    given = {"num_return_sequences": 3, "num_beams": 3, "max_new_tokens": 6, "pad_token_id": 0} | options
    return model.generate(prompt, custom_generate=superposed_drafts, **given)


class Bytes(LogitsProcessor):
    """No id but those of the 256 bytes: the tiny models' vocabulary has rows without a token."""

    def __call__(self, input_ids: torch.Tensor, scores: torch.Tensor) -> torch.Tensor:
        return scores.index_fill(1, torch.arange(256, scores.shape[1]), -torch.inf)


@pytest.mark.parametrize("options", [{}, {"exact_steps": 2}, {"forks": 3}, {"distinct": False}])
def test_they_are_the_drafts_of_superposed_decoding(
    folder: Path, model: PreTrainedModel, options: dict[str, Any]
) -> None:
    own = load_model(str(folder), "torch")
    settings = {"exact_steps": 0, "forks": 0, "distinct": True, "end_below": 0.0, "min_branch": 0.0} | options
    *_, wanted = superpose(own, PROMPT[0].tolist(), 3, 6, rule=Bytes(), **settings)
    found = drafts(model, return_dict_in_generate=True, logits_processor=LogitsProcessorList([Bytes()]), **options)
    assert (found.sequences[:, :5] == PROMPT).all()
    ids = [[i for i in row if i] for row in found.sequences[:, 5:].tolist()]
    assert sorted(ids) == sorted(wanted.ids)
    scores = found.sequences_scores
    assert scores.tolist() == sorted(scores.tolist(), reverse=True)
    assert max(wanted.logprobs) == pytest.approx(scores[0].item(), abs=1e-3)


def test_the_folder_needs_no_more_than_the_number_of_drafts(
    model: PreTrainedModel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dynamic_module_utils, "HF_MODULES_CACHE", str(tmp_path))
    found = model.generate(
        PROMPT,
        custom_generate=FOLDER,
        trust_remote_code=True,
        num_return_sequences=3,
        max_new_tokens=6,
        pad_token_id=0,
        exact_steps=1,
    )
    assert torch.equal(found, drafts(model, exact_steps=1))


def test_each_prompt_of_a_batch_has_its_own_drafts(model: PreTrainedModel) -> None:
    other = torch.tensor([[0, 0, 66, 121, 101]])
    found = drafts(model, torch.cat([PROMPT, other]), attention_mask=torch.cat([PROMPT, other]).sign())
    assert torch.equal(found[:3], drafts(model))
    assert torch.equal(found[3:, 5:], drafts(model, other[:, 2:])[:, 3:])


def test_logits_processors_and_ends_of_text_count(model: PreTrainedModel) -> None:
    plain = drafts(model)
    banned = [[int(i)] for i in plain[:, 5]]
    assert not set(drafts(model, bad_words_ids=banned)[:, 5:].flatten().tolist()) & {i for (i,) in banned}
    ended = drafts(model, eos_token_id=int(plain[1, 5]))
    (row,) = [row for row in ended.tolist() if row[5] == plain[1, 5]]
    assert row[6:] == [0] * (len(row) - 6)


def test_the_model_trains_on_afterwards(folder: Path) -> None:
    model = AutoModelForCausalLM.from_pretrained(folder).train()
    frozen = next(model.parameters()).requires_grad_(False)
    drafts(model)
    assert model.training
    assert [p for p in model.parameters() if not p.requires_grad] == [frozen]


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"do_sample": True}, "do_sample"),
        ({"num_beams": 4}, "num_beams"),
        ({"stopping_criteria": [lambda ids, scores: False]}, "function"),
    ],
)
def test_what_it_cannot_do_is_refused(model: PreTrainedModel, options: dict[str, Any], words: str) -> None:
    with pytest.raises(InputError, match=words):
        drafts(model, **options)


def test_an_encoder_decoder_model_is_refused() -> None:
    config = T5Config(d_model=8, d_kv=4, d_ff=8, num_layers=1, num_heads=2, vocab_size=300, decoder_start_token_id=0)
    with pytest.raises(InputError, match="decoder-only"):
        drafts(T5ForConditionalGeneration(config))
