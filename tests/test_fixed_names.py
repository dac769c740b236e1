"""The public names that other people's scripts use: each can be imported and takes the arguments it always took."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from typer.main import get_command

from core import samplers
from core.drafting.drafts import Options
from core.models import LanguageModel, load_model
from core.models.base import Sequence
from core.ngram import NgramStore
from core.samplers import Eta, MinP, Mirostat, Temperature, TopH, TopK, TopNSigma, TopP, TopW, Typical
from core.speculative import generate
from core.superposed import superpose
from tests.ngram_tools import store_of
from tests.paths import ROOT
from tests.table_model import TableModel

RULES: list[Callable[..., Any]] = [TopNSigma, MinP, TopP, TopK, TopH, Typical, Eta, Mirostat, Temperature]


@pytest.mark.parametrize(
    ("function", "arguments"),
    [
        (load_model, {"name": "default", "backend": "auto"}),
        (NgramStore.open, {"path": None}),
        (NgramStore.probabilities, {"self": None, "context_ids": None, "candidate_ids": None}),
        (generate, {"target": None, "drafter": None, "prefix_ids": None, "mode": "lossless"}),
        (LanguageModel.open, {"self": None}),
        (Sequence.feed, {"self": None, "ids": None}),
        (Sequence.feed_embedding, {"self": None, "vector": None}),
        (Sequence.rewind, {"self": None, "length": None}),
        (Sequence.fork, {"self": None}),
        (Sequence.close, {"self": None}),
        (
            TopW,
            {"embeddings": None, "lam": 2.2, "beta": 2.8, "top_m": 1200, "warm_start": None, "alternations": None}
            | {"geom_scale": None, "selection_temperature": 1.0, "metric": "l2"},
        ),
    ],
    ids=lambda value: getattr(value, "__qualname__", ""),
)
def test_a_function_takes_its_arguments_by_these_names(function: Callable[..., Any], arguments: dict[str, Any]) -> None:
    parameters = inspect.signature(function).parameters
    inspect.signature(function).bind(**arguments)
    for name, value in arguments.items():
        assert parameters[name].default in (value, inspect.Parameter.empty) or value is None


def test_the_defaults_of_superpose_stay() -> None:
    parameters = inspect.signature(superpose).parameters
    assert list(parameters)[:4] == ["model", "prefix_ids", "k", "length"]
    assert {name: parameters[name].default for name in ("k", "length")} == {"k": 3, "length": 10}
    drafting = Options()
    fixed = {"ngrams": None, "candidates": None, "rule": None, "distinct": True, "exact_steps": 1, "mixing": "linear"}
    assert {name: getattr(drafting, name) for name in fixed} == fixed
    assert {"alpha", "tau", "penalty"} <= drafting.__dataclass_fields__.keys()
    assert Options(k=4, forks=0).m == 12, "no candidates given: three for each draft"


def test_superpose_takes_its_options_by_name_and_yields_drafts_best_first() -> None:
    paper = {"distinct": False, "exact_steps": 0, "mixing": "geometric", "alpha": 0.54, "tau": 0.6, "penalty": 1.0}
    for options in ({}, {"rule": TopK(3), "candidates": None, "ngrams": None, "mixing": "linear"}, paper):
        steps = list(superpose(TableModel(), [1, 2], k=2, length=4, **options))
        for drafts in steps:
            assert all(isinstance(ids, list) for ids in drafts.ids)
            assert len(drafts.ids) == len(drafts.logprobs)
            assert drafts.logprobs == sorted(drafts.logprobs, reverse=True)
        assert max(map(len, steps[-1].ids)) == 4


def test_generate_yields_accepted_tokens_in_every_mode() -> None:
    for mode in ("off", "lossless", "arc"):
        generation = generate(TableModel(), None, [1, 2], mode=mode, length=5)
        assert all(0 <= token.id < 6 for token in generation)
        assert generation.statistics.tokens == 4, "without the one that the pass over the prompt gave"


@pytest.mark.parametrize("rule", [*RULES, TopW], ids=lambda rule: rule.__name__)
def test_a_rule_works_as_a_logits_processor_of_transformers(rule: Callable[..., Any]) -> None:
    made = rule(torch.randn(6, 4)) if rule is TopW else rule()
    assert getattr(samplers, rule.__name__) is rule
    logits = torch.tensor([[4.0, 3.0, 1.0, 0.0, -2.0, -9.0]])
    kept = made(torch.tensor([[1, 2]]), logits.clone())
    assert kept.shape == (1, 6)
    assert torch.isfinite(kept).any()
    assert bool(torch.isneginf(kept).any()) == (rule not in (Temperature, TopK)), "top-k keeps 50 by default"


def test_a_model_has_its_attributes(torch_model: LanguageModel) -> None:
    assert torch_model.embeddings.shape == (torch_model.vocab_size, torch_model.dim)
    assert torch_model.embeddings.dtype == torch.float32
    ids = torch_model.tokenizer.encode("The lighthouse keeper")
    assert torch_model.tokenizer.decode(ids) == "The lighthouse keeper"
    sequence = torch_model.open()
    logits = sequence.feed(ids)
    assert logits.shape == (torch_model.vocab_size,)
    assert sequence.length == len(ids)
    sequence.rewind(1)
    forked = sequence.fork()
    vector = torch_model.embeddings[ids[1]]
    assert forked.feed_embedding(vector).argmax() == sequence.feed([ids[1]]).argmax()
    for each in (sequence, forked):
        each.close()


def test_a_store_opens_and_answers(tmp_path: Path) -> None:
    store = store_of(tmp_path / "one.ngram", {(1, 2): 3, (1,): 3, (2,): 3}, vocab_size=6, orders=range(2, 3))
    found = store.probabilities([1], [2, 3])
    assert isinstance(found, np.ndarray)
    assert found[0] > found[1]
    assert (ROOT / "assets/base.ngram").is_file()


def test_the_commands_have_their_names() -> None:
    from app.cli.main import app

    commands: Any = get_command(app)
    assert {"complete", "ngram", "bench", "eval", "doctor"} <= commands.commands.keys()
    ngram = commands.commands["ngram"].commands
    assert {"build", "add", "forget", "query", "stats", "merge"} <= ngram.keys()
    flags = {flag for parameter in commands.commands["complete"].params for flag in parameter.opts}
    assert {"--k", "--json"} <= flags
    for name, measurement in (("bench", "lsp"), ("eval", "drafts")):
        command = commands.commands[name].commands[measurement]
        assert "--json" in {flag for parameter in command.params for flag in parameter.opts}
