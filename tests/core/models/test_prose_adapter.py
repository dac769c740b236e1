"""The adapter to general prose lies under those of personal stores, and can be left out; its model alone uses it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor

from core.adapters import Adapters
from core.autocomplete import Autocomplete, load_autocomplete
from core.models import LanguageModel, load_model, prose
from core.models.adapter import WEIGHTS, Adapter, load, save
from core.models.load import load_module
from core.speculative import calibration
from core.speculative.drafters.eagle3 import DEFAULT_HEAD, head_of
from core.speculative.eagle3 import Eagle3Head
from tests.core.models.test_adapter import adapter_for, rounded
from training.adapter import merge

IDS = [5, 6, 7, 8]

pytestmark = pytest.mark.usefixtures("one_thread")


@pytest.fixture
def name(tiny_folder: Callable[[str], Path]) -> str:
    return str(tiny_folder("compiled llama"))


@pytest.fixture
def model(name: str) -> Iterator[LanguageModel]:
    with closing(load_model(name, "torch")) as loaded:
        yield loaded


def some_adapter(model: LanguageModel, on: str, seed: int) -> Adapter:
    """Changes the model, or the model with the adapter of that identity."""
    made = adapter_for(model.layers.projections, ["q_proj", "down_proj"], size=0.1, seed=seed)  # pyright: ignore[reportAttributeAccessIssue]
    return rounded(replace(made, model=on))


@pytest.fixture
def ours(model: LanguageModel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Adapter:
    """The adapter in the app's folder."""
    made = some_adapter(model, model.fingerprint, seed=1)
    save(made, tmp_path / "prose")
    monkeypatch.setattr(prose, "PROSE", tmp_path / "prose")
    return made


def logits(model: LanguageModel) -> Tensor:
    with closing(model.open()) as sequence:
        return sequence.feed_every(IDS)


def loaded(name: str, prose: bool = True) -> Autocomplete:
    return load_autocomplete(name, "torch", None, personal=False, prose=prose)


def test_drafts_use_it_and_without_prose_the_model_is_as_it_came(
    name: str, model: LanguageModel, ours: Adapter
) -> None:
    before = logits(model)
    model.adapt([(ours, 1.0)])
    with closing(loaded(name)) as autocomplete:
        assert autocomplete.has_prose
        assert autocomplete.prose is not None
        assert autocomplete.prose.identity == ours.identity
        assert torch.equal(logits(autocomplete.model), logits(model))
        assert not torch.allclose(before, logits(model), atol=0.01)
        autocomplete.wants_prose = False
        assert autocomplete.adapt(), "the caller must drop its sequences"
        assert autocomplete.prose is None
        assert not autocomplete.adapt()
        assert torch.equal(logits(autocomplete.model), before)
        autocomplete.wants_prose = True
        assert autocomplete.adapt()
        assert torch.equal(logits(autocomplete.model), logits(model))
    with closing(loaded(name, prose=False)) as untouched:
        assert not untouched.has_prose
        assert torch.equal(logits(untouched.model), before)


def test_with_it_the_head_in_its_folder_drafts_and_another_without(
    model: LanguageModel, ours: Adapter, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert head_of(prose.prose_of(model)) == DEFAULT_HEAD  # there is none
    head = tmp_path / "prose" / "eagle3"
    head.mkdir()
    assert head_of(prose.prose_of(model)) == head
    assert head_of(None) == DEFAULT_HEAD
    save(ours, tmp_path / "own")
    monkeypatch.setattr(prose, "own_folder", lambda: tmp_path / "own")
    assert head_of(prose.prose_of(model)) == DEFAULT_HEAD  # the app's head is for the app's adapter


def test_the_apps_adapter_comes_with_a_head_for_the_default_model() -> None:
    head = Eagle3Head.load(head_of(load(prose.PROSE)))
    assert head.check(49152, 576) and head.config.layers == Eagle3Head.load(DEFAULT_HEAD).config.layers


def test_another_model_has_none(ours: Adapter, tiny_folder: Callable[[str], Path]) -> None:
    with closing(loaded(str(tiny_folder("gpt2")))) as autocomplete:
        assert not autocomplete.has_prose
        assert autocomplete.notice is None
        assert autocomplete.model.adapters == ()


def test_the_users_own_takes_the_place_of_the_apps(
    name: str, model: LanguageModel, ours: Adapter, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    own = some_adapter(model, model.fingerprint, seed=5)
    save(own, prose.own_folder())
    read = prose.prose_of(model)
    assert read is not None
    assert read.identity == own.identity
    save(replace(own, model="another"), prose.own_folder())
    assert (read := prose.prose_of(model)) is not None
    assert read.identity == ours.identity, "the user's is for another model"


def test_constants_of_arc_are_for_the_model_with_it_or_as_it_came(
    model: LanguageModel, ours: Adapter, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def made(name: str, c_s: float) -> Path:
        constants = calibration.Constants(c_s, 0.1, 0.05)
        calibration.Calibration(calibration.fingerprint(model), name, np.ones(model.dim), constants).save(
            tmp_path / name
        )
        return tmp_path / name

    plain = made("plain.json", 0.01)
    model.adapt([(ours, 1.0)])
    with_prose = made("prose.json", 0.02)
    monkeypatch.setattr(calibration, "SHIPPED", (plain, with_prose))
    monkeypatch.setattr(calibration, "user_file", lambda *_: tmp_path / "none.json")
    assert calibration.for_model(model).overall.c_s == 0.02
    model.adapt([])
    assert calibration.for_model(model).overall.c_s == 0.01
    with pytest.raises(calibration.CalibrationError):
        calibration.Calibration.load(with_prose).check(model)


def test_a_damaged_or_unusable_one_is_said_and_the_model_drafts_as_it_came(
    name: str, model: LanguageModel, ours: Adapter
) -> None:
    before = logits(model)
    damaged = prose.PROSE / WEIGHTS
    whole = damaged.read_bytes()
    damaged.write_bytes(whole[:-9])
    with closing(loaded(name)) as autocomplete:
        assert "adapter of prose is not used" in (autocomplete.notice or "")
        assert torch.equal(logits(autocomplete.model), before)
    save(replace(ours, maps={(7, "q_proj"): ours.maps[0, "q_proj"]}), prose.PROSE)
    with closing(loaded(name)) as autocomplete:
        assert "adapter of prose is not used" in (autocomplete.notice or "")
        assert not autocomplete.has_prose
        assert torch.equal(logits(autocomplete.model), before)


def test_the_adapter_of_a_store_goes_on_top_of_the_one_that_it_was_trained_with(
    tmp_path: Path, model: LanguageModel, ours: Adapter
) -> None:
    on_top = some_adapter(model, ours.identity, seed=2)
    without = some_adapter(model, model.fingerprint, seed=3)
    save(on_top, tmp_path / "top")
    save(without, tmp_path / "without")
    used = Adapters(model, ours)
    assert used.use([(tmp_path / "top", 0.5), (tmp_path / "without", 0.5)], prose=True)
    assert [(adapter.identity, strength) for adapter, strength in model.adapters] == [
        (ours.identity, 1.0),
        (on_top.identity, 0.5),
    ]
    assert "trained with Prose off" in used.problems["without"]
    assert used.use([(tmp_path / "top", 0.5), (tmp_path / "without", 0.5)])
    assert [(adapter.identity, strength) for adapter, strength in model.adapters] == [(without.identity, 0.5)]
    assert "trained with Prose on" in used.problems["top"]
    assert not used.with_prose


def test_merged_into_the_weights_for_training_it_computes_the_same(
    name: str, model: LanguageModel, ours: Adapter
) -> None:
    model.adapt([(ours, 1.0)])
    with closing(load_module(name)) as module:
        merge(module, ours)
        torch.testing.assert_close(logits(module), logits(model), atol=1e-4, rtol=1e-4)
        assert module.fingerprint == ours.identity, "what is trained now is for the model with it"
