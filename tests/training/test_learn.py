"""Learning from a personal store: training resumes and continues, held-out text decides, and forgetting is real."""

from __future__ import annotations

import io
import json
import os
import random
import shutil
import stat
from base64 import b64encode
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
import zstandard
from hypothesis import given
from hypothesis import strategies as st
from typer.testing import CliRunner

from app.cli import learn as learn_cli
from app.cli import personal as personal_cli
from app.cli.main import app
from app.learning.personal import PersonalStores
from app.options import speculation, typist
from app.options.settings import DraftSettings
from app.options.typist import keys_saved
from app.service.requests import asked
from core.adapters import Adapters
from core.autocomplete import Autocomplete, load_autocomplete
from core.errors import BackendUnavailable, ContextFull, InputError
from core.models import hf
from core.models.adapter import WEIGHTS, Adapter, AdapterError, LowRank, Projection, Result, load, save
from core.models.torch_model import TorchModel
from core.ngram.counts import Counts
from core.ngram.errors import StoreError
from core.ngram.personal import PersonalStore, remove_files
from core.ngram.shelf import Shelf, interpolation
from core.speculative import NgramDrafter
from core.speculative.calibration import Calibration, CalibrationError, Constants, fingerprint
from ngram_builder import personal as travelling
from tests.completing import complete
from training import personal
from training.adapter import AdapterRecipe, State, Student, Trainer
from training.held_out import mean_and_error, mixed_gains
from training.personal import LEAST, Outcome, Stage, joined, learn, newest_within, split

pytestmark = pytest.mark.usefixtures("one_thread")

QUICK = AdapterRecipe(length=64, epochs=2, rate=1e-2)
LONGER = replace(QUICK, epochs=6)
STORED = replace(QUICK, length=256, batch=1)  # for a store's text: as many steps, each with one pass instead of four
Load = Callable[[], TorchModel]


def letters(count: int, seed: int = 0, alphabet: str = "abcd ") -> str:
    chance = random.Random(seed)
    return "".join(chance.choice(alphabet) for _ in range(count))


@pytest.fixture
def fresh(tiny_folder: Callable[[str], Path]) -> Load:
    """A tiny model with transformers' layers; training changes it."""
    return lambda: hf.load(tiny_folder("compiled llama"), "tiny", plain=True)


@pytest.fixture
def store(tmp_path: Path, fresh: Load) -> Iterator[PersonalStore]:
    with PersonalStore.open(tmp_path / "me.sqlite", fresh().tokenizer, create=True) as opened:
        opened.add("a.txt", [letters(5000)])
        yield opened


@pytest.fixture
def autocomplete(tmp_path: Path, fresh: Load) -> Iterator[Autocomplete]:
    """Over the tiny model, with the stores of `tmp_path`."""
    model = fresh()
    with closing(Shelf(model.tokenizer, tmp_path)) as shelf:
        yield Autocomplete(model, shelf=shelf)


def outcome_of(steps: Iterator[Stage | Outcome]) -> Outcome:
    *_, last = steps
    assert isinstance(last, Outcome)
    return last


# ---------------------------------------------------------------- training


def pieces_of(count: int, length: int = 32) -> np.ndarray:
    return np.random.default_rng(1).integers(97, 101, (count, length))


def test_pieces_that_are_trained_at_once_give_the_same_adapter(fresh: Load, monkeypatch: pytest.MonkeyPatch) -> None:
    """As on a GPU: all pieces of a step in one pass, or in groups."""
    made: list[dict[Projection, LowRank]] = []
    for at_once in (1, 3, QUICK.batch):
        monkeypatch.setattr(Student, "pieces_at_once", lambda *_, n=at_once: n)
        student = Student(fresh().layers.module, QUICK, torch.float32)
        list(Trainer(student, pieces_of(3 * QUICK.batch), QUICK).run())
        made.append(student.maps())
    for projection, low in made[0].items():
        for other in made[1:]:
            torch.testing.assert_close(other[projection].b, low.b, rtol=1e-2, atol=1e-4)


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="There is no CUDA device here.")
def test_a_gpu_trains_a_step_at_once_and_its_state_resumes(tiny_folder: Callable[[str], Path]) -> None:
    def student() -> Student:
        model = hf.load(tiny_folder("compiled llama"), "tiny", torch.float32, plain=True)
        return Student(model.layers.module, LONGER)

    pieces = pieces_of(2 * LONGER.batch)
    on_gpu = student()
    assert on_gpu.device.type == "cuda" and on_gpu.pieces_at_once(LONGER.length, LONGER.batch) == LONGER.batch
    trainer = Trainer(on_gpu, pieces, LONGER)
    losses = [at.loss for at in trainer.run()]
    assert losses[-1] < losses[0] - 0.2
    state = trainer.state(0)
    assert all(x.device.type == "cpu" for x in state.tensors.values())
    again = Trainer(student(), np.concatenate((pieces, pieces)), LONGER, state)
    assert next(iter(again.run())).loss < losses[0] - 0.2


def test_a_stopped_training_resumes_and_trains_every_piece_as_often_as_the_recipe_says(
    fresh: Load, tmp_path: Path
) -> None:
    pieces = pieces_of(10)
    trainer = Trainer(Student(fresh().layers.module, QUICK, torch.float32), pieces, QUICK)
    first = trainer.run()
    for _ in range(4):
        next(first)
    first.close()
    (tmp_path / "state").write_bytes(trainer.state(320).to_bytes("me"))
    tensors, about = personal.files.read_tensors(tmp_path / "state")
    assert State.of(tensors, about, "another") is None
    state = State.of(tensors, about, "me")
    assert state is not None
    again = Trainer(Student(fresh().layers.module, QUICK, torch.float32), pieces, QUICK, state)
    restored = again.state(320)
    assert all(torch.equal(x, restored.tensors[name]) for name, x in state.tensors.items())
    assert (restored.times, restored.steps, restored.learnt) == (state.times, 4, 320)
    assert not again.complete
    list(again.run())
    assert again.complete
    assert set(again.state(320).times) == {QUICK.epochs}
    assert again.steps == 4 + -(-(10 * QUICK.epochs - 16) // QUICK.batch)


def test_new_text_is_trained_with_earlier_text_and_a_state_of_another_size_is_refused(fresh: Load) -> None:
    pieces, recipe = pieces_of(12), replace(QUICK, epochs=1)
    trainer = Trainer(Student(fresh().layers.module, recipe, torch.float32), pieces[:8], recipe)
    assert len(list(trainer.run())) == 2
    more = Trainer(Student(fresh().layers.module, recipe, torch.float32), pieces, recipe, trainer.state(0))
    assert len(list(more.run())) == 2  # four new pieces, and one earlier one with each
    times = more.state(0).times
    assert times[8:] == [1] * 4
    assert sum(times[:8]) == 8 + 4
    with pytest.raises(InputError, match="another recipe"):
        other = AdapterRecipe(rank=4)
        Trainer(Student(fresh().layers.module, other, torch.float32), pieces, other, trainer.state(0))
    with pytest.raises(InputError, match="8 pieces"):
        Trainer(Student(fresh().layers.module, recipe, torch.float32), pieces[:4], recipe, trainer.state(0))


def test_a_model_of_another_family_is_refused(tiny_folder: Callable[[str], Path]) -> None:
    model = hf.load(tiny_folder("gpt2"), "tiny", plain=True)
    with pytest.raises(InputError, match="this one is gpt2"):
        Student(model.layers.module, QUICK)


# ---------------------------------------------------------------- held-out text


@given(sizes=st.lists(st.integers(1, 300), min_size=1, max_size=20), learnt=st.floats(0, 0.9))
def test_the_newest_text_is_held_out_and_nothing_that_was_learned(sizes: list[int], learnt: float) -> None:
    ends = np.cumsum(sizes)
    documents = [np.arange(end - size, end, dtype=np.uint32) for size, end in zip(sizes, ends, strict=True)]
    total = int(ends[-1])
    known, held = split(documents, int(learnt * total))
    ids, kept = ([token for one in part for token in one] for part in (known, held))
    assert ids + kept == list(range(total))
    assert len(ids) >= int(learnt * total)
    if learnt < 0.7 and total > 20:
        assert 0.1 * total <= len(kept) <= 0.2 * total + 1
        assert all(len(one) == len(one.base) for one in held[1:])  # at most the oldest is a part of a document


def test_the_gain_is_that_of_the_mixture_with_n_grams() -> None:
    text = [1, 2, 3, 4] * 30
    window = torch.tensor([1, 2, 3, 4] * 20)
    before, after = torch.full((79,), -5.0), torch.full((79,), -1.0)
    assert mixed_gains(None, window, before, after) == [4.0] * 16
    rule = interpolation(None, [Counts.of(8, [(text, 1)])])
    assert rule is not None
    gains = mixed_gains(rule, window, before, after)
    assert len(gains) == 16
    assert all(0 < gain < 0.5 for gain in gains)  # the n-grams know it already


def test_the_standard_error_is_that_of_blocks() -> None:
    alike = [1.0] * 64 + [3.0] * 64 + [1.0] * 64 + [3.0] * 64
    mean, error = mean_and_error(alike)
    assert mean == 2.0
    assert error == pytest.approx(np.std([1, 3, 1, 3], ddof=1) / 2)


def test_documents_are_joined_by_an_empty_line() -> None:
    assert joined([[1], [2, 3], [4]], [0, 0]).tolist() == [0, 0, 1, 0, 0, 2, 3, 0, 0, 4]


@given(sizes=st.lists(st.integers(0, 9), min_size=1), most=st.integers(0, 40))
def test_of_a_large_store_the_newest_documents_are_counted(sizes: list[int], most: int) -> None:
    documents = [np.arange(size) for size in sizes]
    chosen = newest_within(documents, most)
    assert sum(map(len, chosen)) <= most or len(chosen) == 1
    assert all(a is b for a, b in zip(reversed(chosen), reversed(documents), strict=False))
    assert chosen is not documents
    if len(chosen) < len(documents):
        assert sum(map(len, chosen)) + len(documents[-len(chosen) - 1]) > most


# ---------------------------------------------------------------- a store


def test_learning_helps_on_text_that_was_not_seen_and_a_second_call_has_nothing_to_do(
    store: PersonalStore, fresh: Load
) -> None:
    steps = list(learn(store, fresh(), recipe=STORED))
    outcome = steps[-1]
    assert isinstance(outcome, Outcome)
    assert outcome.result.better
    assert outcome.new
    assert outcome.share == 1.0
    assert outcome.curve[-1][1] > outcome.curve[0][1] + 1
    shares = [at.share for at in steps if isinstance(at, Stage) and at.description == "Training"]
    assert shares == sorted(shares)
    assert shares[-1] == 1.0
    adapter = load(store.learned)
    assert adapter.result == outcome.result
    assert adapter.model == fresh().fingerprint
    again = outcome_of(learn(store, fresh(), recipe=STORED))
    assert not again.new
    assert "learned all of it before" in learn_cli.summary("me", again)
    assert again.result == outcome.result
    assert not outcome_of(learn(store, fresh(), recipe=replace(STORED, epochs=1))).new, "fewer rounds are done too"


def test_held_out_text_is_typed_with_and_without_the_adapter(
    tmp_path: Path, fresh: Load, tiny_folder: Callable[[str], Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    text = "the cat sat. "
    calls: list[object] = []
    folder = str(tiny_folder("compiled llama"))
    monkeypatch.setattr(typist, "PASSAGE", 60)

    def typed(adapter: Adapter, known: list[list[int]], held: list[list[int]]) -> tuple[int, float, float]:
        assert sum(map(len, known)) == 500 * len(text) * 0.9
        return keys_saved(folder, None, adapter, None, [], held, 0.0, lambda: len(calls), lambda: calls.append(None))

    with PersonalStore.open(tmp_path / "cat.sqlite", fresh().tokenizer, create=True) as store:
        store.add("a.txt", [text * 500])
        outcome = outcome_of(learn(store, fresh(), recipe=STORED, typed=typed))
        assert load(store.learned).result == outcome.result
    assert outcome.result.characters == 60
    assert outcome.result.keys > outcome.result.keys_alone + 20
    assert len(calls) > 40  # before every key
    assert "drafts save" in learn_cli.summary("cat", outcome)


def test_the_strength_is_the_largest_that_costs_general_text_a_hundredth_at_most() -> None:
    window = torch.zeros(101)
    for cost, expected in ((-0.1, 1.0), (0.0099, 1.0), (0.0124, 0.8), (0.045, 0.2), (0.2, 0.0)):  # of full strength

        def logprobs(window: torch.Tensor, strength: float, cost: float = cost) -> torch.Tensor:
            return torch.full((100,), -2.0 * (1 + cost * strength))

        student: Any = SimpleNamespace(logprobs=logprobs)
        strength, changes = personal.allowed_strength(student, [window, window], [-2.0, -2.0])
        assert strength == expected
        assert changes[strength] == pytest.approx(-2.0 * cost * strength, abs=1e-6)


def test_an_adapter_that_costs_general_text_more_is_used_with_less_strength(store: PersonalStore, fresh: Load) -> None:
    general = letters(1000, alphabet="efgh.", seed=3)  # by others, who write in another way
    weak = outcome_of(learn(store, fresh(), None, general, recipe=replace(STORED, seed=1))).result
    assert 0 < weak.strength < 1
    with torch.inference_mode():
        window = torch.tensor(fresh().tokenizer.encode(general[:256]))
        alone = Student(fresh().layers.module, QUICK).logprobs(window, 0.0)
    assert -0.015 * abs(float(alone.mean())) < weak.general
    assert load(store.learned).result == weak


def test_an_adapter_that_does_not_help_is_not_used(store: PersonalStore, fresh: Load) -> None:
    store.add("a.txt", ["abc" * 1500])
    store.add("b.txt", ["acb" * 200])  # the newest tenth contradicts the rest
    outcome = outcome_of(learn(store, fresh(), recipe=STORED))
    assert not outcome.result.better
    said = learn_cli.summary("me", outcome)
    assert "not enough yet to help" in said
    assert "do not use" in said
    model = fresh()
    assert not Adapters(model).use([(store.learned, None)])


def test_a_call_that_is_stopped_or_out_of_time_goes_on_and_new_text_continues(
    store: PersonalStore, fresh: Load
) -> None:
    steps = learn(store, fresh(), recipe=STORED)
    for at in steps:
        if isinstance(at, Stage) and at.description == "Training" and at.share > 0.3:
            break
    steps.close()
    with pytest.raises(AdapterError):
        load(store.learned)  # nothing is used before it was evaluated
    short = outcome_of(learn(store, fresh(), recipe=STORED, minutes=1e-6))
    assert short.share < 1
    assert "goes on from there" in learn_cli.summary("me", short)
    *stages, outcome = learn(store, fresh(), recipe=STORED)
    resumed = [at for at in stages if isinstance(at, Stage)]
    whole = -(-int(4500 / 256) * STORED.epochs // STORED.batch)
    assert len(resumed) < 0.8 * whole
    assert isinstance(outcome, Outcome)
    assert outcome.share == 1
    tokens = load(store.learned).result.tokens
    store.add("c.txt", [letters(2000, seed=5)])
    more = outcome_of(learn(store, fresh(), recipe=STORED))
    assert more.new
    assert more.result.tokens > tokens + 1500
    assert more.curve[0][0] == 0  # one curve from the start


def test_a_short_text_is_trained_several_times() -> None:
    assert [personal.recipe_for(pieces).epochs for pieces in (1, 17, 60, 100, 1000)] == [4, 4, 3, 2, 1]
    usual = AdapterRecipe().rate
    rates = [personal.recipe_for(pieces).rate / usual for pieces in (1, 17, 20, 32, 40, 60, 1000)]
    assert rates == pytest.approx([2, 2, 2, 1.25, 1, 1, 1]), (
        "a text too short for enough steps is learned at a higher rate"
    )


def test_too_little_text_or_memory_is_said(tmp_path: Path, store: PersonalStore, fresh: Load) -> None:
    with PersonalStore.open(tmp_path / "new.sqlite", fresh().tokenizer, create=True) as few:
        few.add("a.txt", [letters(LEAST - 1)])
        with pytest.raises(InputError, match=f"{LEAST - 1:,} tokens; learning needs"):
            next(learn(few, fresh()))
    with pytest.raises(InputError, match="--memory"):
        next(learn(store, fresh(), memory=0.01))


def test_a_damaged_state_begins_anew_and_files_that_a_killed_training_left_unfinished_are_removed(
    store: PersonalStore, fresh: Load
) -> None:
    store.learned.mkdir()
    (store.learned / personal.STATE).write_bytes(b"no state")
    left = store.learned / "x.tmp"
    left.write_bytes(b"weights")
    (store.path.parent / "link").hardlink_to(left)
    first, *_, last = learn(store, fresh(), recipe=STORED)
    assert isinstance(first, Stage)
    assert "begins anew" in first.description
    assert isinstance(last, Outcome)
    assert last.result.better
    assert not left.exists()
    assert (store.path.parent / "link").read_bytes() == bytes(7)


def test_training_may_be_paused_and_stopped_before_every_layer(store: PersonalStore, fresh: Load) -> None:
    layers = fresh().layers.module.config.num_hidden_layers
    calls = 0

    def check_cancelled() -> None:
        nonlocal calls
        calls += 1
        if stopping and calls > 40 * layers:
            raise KeyboardInterrupt

    stopping = False
    student = Student(fresh().layers.module, QUICK, torch.float32, check_cancelled)
    student.loss(torch.from_numpy(pieces_of(1))).backward()
    assert calls == 2 * layers - 1  # forward and backward
    calls, stopping = 0, True
    with pytest.raises(KeyboardInterrupt):
        list(learn(store, fresh(), recipe=STORED, check_cancelled=check_cancelled))
    state = State.of(*personal.files.read_tensors(store.learned / personal.STATE), _identity(fresh()))
    assert state is not None
    assert state.steps > 0
    with store.unless_removed(0):  # it holds no lock
        pass


def _identity(model: TorchModel) -> str:
    return json.dumps({"model": model.fingerprint, "recipe": STORED.identity()})


# ---------------------------------------------------------------- forgetting

SECRET = "zq7"


def test_what_is_forgotten_is_out_of_the_drafts_at_once(
    tmp_path: Path, store: PersonalStore, fresh: Load, autocomplete: Autocomplete
) -> None:
    """A planted secret: with the adapter the model completes it far more readily; after it is forgotten, exactly as the
    model alone does, and with the adapter that is trained again as with one that never saw it."""
    texts = {"a.txt": letters(5000), "z.txt": letters(700, seed=9)}
    store.add("secret.txt", ["".join(f"{SECRET} " for _ in range(300))])
    store.add("z.txt", [texts["z.txt"]])
    outcome_of(learn(store, fresh(), recipe=QUICK))
    save(replace(load(store.learned), result=Result(1, 1, 1.0, 0.0)), store.learned)
    tokenizer = autocomplete.model.tokenizer
    ids = tokenizer.encode(f"{SECRET} {SECRET} {SECRET}")

    def readiness() -> float:
        logits = autocomplete.model.open().feed(ids[:-1])
        return float(logits.log_softmax(-1)[ids[-1]])

    alone = readiness()
    assert autocomplete.adapt()
    assert readiness() > alone + 1
    assert store.forget_phrase(SECRET).adapter
    assert not store.learned.exists()
    store.refresh()
    assert store.relearning
    assert autocomplete.adapt()
    assert readiness() == pytest.approx(alone, abs=1e-5)
    assert outcome_of(learn(store, fresh(), recipe=STORED)).result.better
    store.refresh()
    assert not store.relearning
    assert autocomplete.adapt(), "it has learned again, from what is left"
    again = readiness()
    with PersonalStore.open(tmp_path / "never.sqlite", tokenizer, create=True) as never:
        for name, text in texts.items():
            never.add(name, [text])
        outcome_of(learn(never, fresh(), recipe=STORED))
        store.switch(False)
        autocomplete.adapt()
        # Each training chooses the faster precision, so the two may differ by bfloat16's rounding.
        assert again == pytest.approx(readiness(), abs=0.01), "as if the secret had never been there"


@pytest.mark.parametrize("how", ["a phrase", "a document", "a replaced document", "the store", "a damaged store"])
def test_whatever_removes_text_removes_the_adapter(store: PersonalStore, tmp_path: Path, how: str) -> None:
    """What the disk held of it is overwritten."""
    store.learned.mkdir()
    (store.learned / "weights").write_bytes(b"learned")
    (tmp_path / "link").hardlink_to(store.learned / "weights")
    if how == "a phrase":
        store.add("b.txt", ["an old phrase"])
        assert not store.forget_phrase("never written").adapter
        assert store.learned.exists()
        assert store.forget_phrase("old phrase").adapter
    elif how == "a document":
        assert store.forget_document("a.txt").adapter
    elif how == "a replaced document":
        store.add("a.txt", [letters(5000)])  # the same
        assert store.learned.exists()
        store.add("a.txt", ["other words"])
    elif how == "the store":
        store.delete()
    else:
        remove_files(store.path)
    assert not store.learned.exists()
    assert (tmp_path / "link").read_bytes() == bytes(7)


def test_text_that_is_forgotten_during_training_does_not_come_back(
    store: PersonalStore, fresh: Load, tmp_path: Path
) -> None:
    steps = learn(store, fresh(), recipe=STORED)
    for at in steps:
        if isinstance(at, Stage) and at.description == "Training":
            break
    store.add("b.txt", ["an old phrase"])
    store.forget_phrase("old phrase")
    with pytest.raises(StoreError, match="forgotten or replaced meanwhile"):
        list(steps)
    assert not store.learned.exists()


# ---------------------------------------------------------------- in use


def published(
    store: PersonalStore,
    model: TorchModel,
    gain: float = 1.0,
    seed: int = 0,
    strength: float = 1.0,
    general: float = 0.0,
    others: float = 0.0,
) -> None:
    from tests.core.models.test_adapter import adapter_for

    made = adapter_for(model.layers.projections, ["q_proj"], size=0.3, seed=seed)
    result = Result(1, 1, gain, 0.1, strength, general, others)
    save(replace(made, model=model.fingerprint, result=result), store.learned)


def recorded_strengths(model: Any) -> list[list[float]]:
    """The strengths of each set of adapters that the model is given from now on."""
    used: list[list[float]] = []
    adapt = model.adapt
    model.adapt = lambda adapters: (used.append([strength for _, strength in adapters]), adapt(adapters))[1]
    return used


def test_adapters_of_stores_that_are_on_are_used_at_once_and_several_share_the_strength(
    tmp_path: Path, store: PersonalStore, autocomplete: Autocomplete
) -> None:
    model: Any = autocomplete.model
    used = recorded_strengths(model)
    assert not autocomplete.adapt()
    for change, expected in (
        (lambda: published(store, model, strength=0.6), [0.6]),
        (lambda: store.set_strength(0.25), [0.25]),
        (lambda: store.set_strength(0.0), []),
        (lambda: store.set_strength(None), [0.6]),
        (lambda: store.switch_adapter(False), []),
        (lambda: store.switch_adapter(True), [0.6]),
    ):
        change()
        assert autocomplete.adapt()
        assert used[-1] == expected
        assert not autocomplete.adapt()  # nothing changed
    with pytest.raises(InputError, match="0 to 1 expected"):
        store.set_strength(1.5)
    with PersonalStore.open(tmp_path / "work.sqlite", model.tokenizer, create=True) as other:
        published(other, model, seed=1)
        assert autocomplete.adapt()
        assert used[-1] == [0.3, 0.5]
        assert autocomplete.adapt(["work"])
        assert used[-1] == [1.0]
        store.switch(False)
        assert not autocomplete.adapt()
        other.switch(False)
        assert autocomplete.adapt()
        assert used[-1] == []
        other.switch(True)
        published(other, model, gain=0.05)  # within the standard error
        assert not autocomplete.adapt()


def test_a_loaded_model_uses_the_adapters_of_stores_that_are_on(
    tmp_path: Path,
    store: PersonalStore,
    fresh: Load,
    tiny_folder: Callable[[str], Path],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("core.ngram.shelf.stores_folder", lambda: tmp_path)
    published(store, fresh())
    model = str(tiny_folder("compiled llama"))
    with_it, without = (load_autocomplete(model, "torch", None, personal) for personal in (True, False))
    ids = [97, 98, 99]
    assert not torch.allclose(with_it.model.open().feed(ids), without.model.open().feed(ids), atol=0.01)
    store.switch(False)
    assert with_it.adapt()
    assert torch.equal(with_it.model.open().feed(ids), without.model.open().feed(ids))


def test_complete_uses_the_adapters_of_the_stores_that_it_names(monkeypatch: pytest.MonkeyPatch) -> None:
    from fake_autocomplete import FakeAutocomplete

    fake = FakeAutocomplete()
    monkeypatch.setattr("core.autocomplete.load_autocomplete", lambda *_, **__: fake)
    assert CliRunner().invoke(app, ["complete", "Once", "--store", "work"]).exit_code == 0
    assert fake.adapted_to == ["work"]


def test_the_list_of_stores_says_what_an_adapter_brought(tmp_path: Path, store: PersonalStore, fresh: Load) -> None:
    stores = PersonalStores(fresh().tokenizer, tmp_path)

    def about() -> dict[str, Any]:
        return stores.list()[0]["adapter"]

    assert about() is None
    store.learned.mkdir()
    assert "has not finished" in about()["description"]
    published(store, fresh(), gain=0.25, strength=0.8, general=-0.02, others=-4.0)
    assert about() == {
        "description": "The model has learned 1 word: each word or part of a word of your newest text, which it has "
        "not read, became 28% more probable, and its loss on text by others grew by 0.5%.",
        "finished": True,
        "better": True,
        "on": True,
        "strength": 0.8,
        "usual": 0.8,
    }
    adapter = load(store.learned)
    save(replace(adapter, result=replace(adapter.result, characters=1250, keys_alone=44.4, keys=47.6)), store.learned)
    assert about()["description"].startswith(
        "The model has learned 1 word: in 1,250 characters of your newest text, which it has not read, drafts save "
        "48% of the keys instead of 44%, and its loss"
    )
    with stores.at("me") as opened:
        opened.set_strength(0.5)
    assert about()["description"].endswith("grew by 0.5% (measured at the strength 0.8).")
    with stores.at("me") as opened:
        opened.switch_adapter(False)
    assert (about()["on"], about()["strength"]) == (False, 0.5)
    published(store, fresh(), gain=0.05)
    assert "drafts do not use it" in about()["description"]
    (store.learned / WEIGHTS).write_bytes(b"damaged")
    assert "cannot be used: " in about()["description"]


@pytest.mark.parametrize("said", ["nan", "two", "-1"])
def test_a_store_with_a_wrong_strength_is_refused(store: PersonalStore, said: str) -> None:
    with store._writing():
        store._file.set("strength", said)
    with pytest.raises(StoreError, match="its strength is"):
        PersonalStore.open(store.path)


def test_an_adapter_that_is_not_usable_is_said_and_the_model_drafts_alone(
    tmp_path: Path, store: PersonalStore, fresh: Load, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = fresh()
    shelf = Shelf(model.tokenizer, tmp_path)
    autocomplete = Autocomplete(model, notice="Something else.", shelf=shelf)
    published(store, model)
    (store.learned / WEIGHTS).write_bytes(b"damaged")
    assert not autocomplete.adapt()
    assert autocomplete.notice is not None
    assert autocomplete.notice.startswith("Something else. The adapter of me is not used: ")
    shutil.rmtree(store.learned)
    autocomplete.adapt()
    assert autocomplete.notice == "Something else."

    def none(adapters: list[object]) -> None:
        if adapters:
            raise BackendUnavailable("This engine does not use adapters.")

    monkeypatch.setattr(model, "adapt", none)
    published(store, model)
    assert not autocomplete.adapt()
    assert "does not use adapters" in str(autocomplete.notice)
    shelf.close()


def test_an_adapter_that_breaks_the_numbers_is_said_and_the_model_drafts_alone(
    store: PersonalStore, autocomplete: Autocomplete, monkeypatch: pytest.MonkeyPatch
) -> None:
    from tests.core.models.test_adapter import adapter_for
    from tests.core.test_not_finite import broken

    model: Any = autocomplete.model
    before = model.open().feed([97, 98])
    adapter = broken(adapter_for(model.layers.projections, ["down_proj"]))
    save(replace(adapter, model=model.fingerprint), store.learned)
    assert not autocomplete.adapt()
    assert "contains 1e+19" in str(autocomplete.notice)
    monkeypatch.setattr("core.models.adapter.LARGEST", 1e30)  # as if its numbers were usual ones
    save(replace(adapter, model=model.fingerprint), store.learned)
    assert not autocomplete.adapt()
    notice = "The adapter of me is not used: The adapter makes the numbers of tiny not finite; train it anew with"
    assert str(autocomplete.notice).startswith(notice)
    assert torch.equal(model.open().feed([97, 98]), before)
    # Without room for the token it is tried again.
    published(store, model)
    with monkeypatch.context() as patched:
        patched.setattr(model, "open", full)
        assert not autocomplete.adapt()
        assert "no room" in str(autocomplete.notice)
    assert autocomplete.adapt()
    assert autocomplete.notice is None


def full() -> None:
    raise ContextFull("There is no room.")


# ---------------------------------------------------------------- speculation


def speculating(mode: str, drafter: str) -> DraftSettings:
    # A tree of a fixed size, because speculation switches itself off by the clock when the size is automatic.
    wanted = {"mode": mode, "drafter": drafter, "values": {"tree_size": 8}}
    return DraftSettings.model_validate(
        {"k": 2, "length": 4, "sampling": {"mode": "sampled", "seed": 3, "speculation": wanted}}
    )


def test_arc_is_refused_while_an_adapter_is_on_because_its_constants_hold_for_the_model_alone(
    tmp_path: Path, store: PersonalStore, autocomplete: Autocomplete, monkeypatch: pytest.MonkeyPatch
) -> None:
    model: Any = autocomplete.model
    calibration = Calibration(fingerprint(model), "tiny", np.ones(model.dim), Constants(0.01, 0.1, 0.05))
    calibration.save(tmp_path / "made.json")
    monkeypatch.setattr("core.speculative.calibration.user_file", lambda *_: tmp_path / "made.json")
    arc = speculating("arc", "ngram")
    speculation.chosen_by(autocomplete, arc)
    assert speculation.missing(autocomplete)["arc"] == ""
    published(store, model)
    autocomplete.adapt()
    with pytest.raises(CalibrationError, match="measured for the model alone"):
        speculation.chosen_by(autocomplete, arc)
    assert "measured for the model alone" in speculation.missing(autocomplete)["arc"]
    store.switch_adapter(False)
    autocomplete.adapt()
    speculation.chosen_by(autocomplete, arc)


def test_an_eagle3_head_says_that_it_was_trained_for_the_model_alone(
    store: PersonalStore, autocomplete: Autocomplete, monkeypatch: pytest.MonkeyPatch
) -> None:
    model: Any = autocomplete.model
    monkeypatch.setattr("core.models.costs.known", lambda *_: lambda n: 1.0 + n)
    monkeypatch.setattr(speculation, "missing_for", lambda *_: "")
    monkeypatch.setattr(speculation, "make_drafter", lambda *_: NgramDrafter([]))

    def notice(drafter: str) -> str | None:
        settings = speculating("lossless", drafter)
        drafts = complete(autocomplete.open(), "abc", asked(autocomplete, settings))
        drafts.finish()
        assert drafts.figures is not None
        return drafts.figures.notice

    assert notice("eagle3") != speculation.OTHER_MODEL
    published(store, model)
    autocomplete.adapt()
    assert notice("eagle3") == speculation.OTHER_MODEL
    assert notice("ngram") != speculation.OTHER_MODEL


# ---------------------------------------------------------------- export and import


def test_an_adapter_travels_with_its_store(tmp_path: Path, store: PersonalStore, fresh: Load) -> None:
    from tests.core.models.test_adapter import same

    model = fresh()
    out = tmp_path / "me.jsonl.zst"
    assert travelling.export(store, out) == travelling.Exported(1, adapter=False)
    published(store, model, strength=0.7)
    assert travelling.export(store, out).adapter
    with PersonalStore.open(tmp_path / "you.sqlite", model.tokenizer, create=True) as you:
        found = travelling.restore(you, out)
        assert found.tokens == 5000
        assert found.adapter is not None
        assert travelling.adopt(you, found.adapter, model) == ""
        assert same(load(you.learned), load(store.learned))
        if os.name == "posix":
            assert {stat.S_IMODE(path.stat().st_mode) for path in you.learned.iterdir()} == {0o600}
        assert travelling.adopt(you, found.adapter, model) == "you has one of its own"
        assert you.forget_document("a.txt").adapter  # what it learned is text of the store
        other = replace(found.adapter, model="another")
        assert "trained for another model" in travelling.adopt(you, other, model)
        (projection, low), *_ = found.adapter.maps.items()
        wide = replace(found.adapter, maps={projection: LowRank(torch.ones(2, 999), low.b)})
        assert "the model has" in travelling.adopt(you, wide, model)
        assert not you.learned.exists()
    (store.learned / WEIGHTS).write_bytes(b"damaged")
    done = travelling.export(store, out)
    assert (done.documents, done.adapter) == (1, False)
    assert "is damaged" in done.left_out


def _pickled() -> str:
    buffer = io.BytesIO()
    torch.save({"x": torch.ones(1)}, buffer)
    return b64encode(buffer.getvalue()).decode()


@pytest.mark.parametrize(
    "change",
    [
        lambda parts: parts.pop("adapter_config.json"),
        lambda parts: parts.update({WEIGHTS: 7}),
        lambda parts: parts.update({WEIGHTS: "no base64 at all!"}),
        lambda parts: parts.update({WEIGHTS: parts[WEIGHTS][:2000]}),
        lambda parts: parts.update({WEIGHTS: _pickled()}),
        lambda parts: parts.update({"adapter_config.json": b64encode(b"[" * 100_000).decode()}),
    ],
    ids=["half", "a number", "no base64", "cut", "a pickle", "deep"],
)
def test_an_import_with_a_hostile_adapter_adds_nothing(
    tmp_path: Path, store: PersonalStore, fresh: Load, change: Callable[[dict[str, Any]], object]
) -> None:
    published(store, fresh())
    out = tmp_path / "me.jsonl.zst"
    travelling.export(store, out)
    content = zstandard.ZstdDecompressor().stream_reader(out.read_bytes()).read()
    lines = [json.loads(line) for line in content.splitlines()]
    change(lines[-2]["adapter"])
    out.write_bytes(zstandard.compress("".join(json.dumps(line) + "\n" for line in lines).encode()))
    with PersonalStore.open(tmp_path / "you.sqlite", fresh().tokenizer, create=True) as you:
        with pytest.raises(InputError, match=r"is damaged: .* Nothing was added") as caught:
            travelling.restore(you, out)
        assert "\n" not in str(caught.value)
        assert you.summary()["tokens"] == 0


# ---------------------------------------------------------------- the command


def test_the_command_learns_and_forgetting_says_what_to_do(
    tmp_path: Path, tiny_folder: Callable[[str], Path], fresh: Load, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("core.ngram.shelf.stores_folder", lambda: tmp_path)
    monkeypatch.setattr(personal_cli, "stores_folder", lambda: tmp_path)
    monkeypatch.setattr(learn_cli, "go_last", lambda: None)
    monkeypatch.setattr("training.held_out.MOST_WINDOWS", 4)
    monkeypatch.setattr(typist, "PASSAGE", 20)
    monkeypatch.setattr(personal, "recipe_for", lambda pieces: STORED)
    model = str(tiny_folder("compiled llama"))
    with PersonalStore.open(tmp_path / "me.sqlite", fresh().tokenizer, create=True) as store:
        store.add("a.txt", [letters(5000)])
    runner = CliRunner()

    def run(*arguments: str, status: int = 0) -> str:
        result = runner.invoke(app, list(arguments))
        assert result.exit_code == status, result.output
        return result.stdout if status == 0 else result.stderr

    found = json.loads(run("learn", "me", "--model", model, "--minutes", "0.1", "--json"))
    (row,) = found["rows"]
    assert row["store"] == "me"
    result = load(tmp_path / "me.adapter").result
    assert (result.tokens, result.gain) == (row["tokens"], pytest.approx(row["gain"], abs=1e-4))
    assert "no personal store called 'you'" in run("learn", "you", "--model", model, status=1)
    said = run("ngram", "forget", "--document", "a.txt", "--store", "me", "--tokenizer", model)
    assert "`polydraft learn me` does so now" in said
    assert not (tmp_path / "me.adapter").exists()
    assert "learning needs at least" in run("learn", "me", "--model", model, status=1)
