"""Adapts a model to one person's writing: trains an adapter on a personal store's text, and evaluates it.

The newest tenth of the text is held out. The adapter is evaluated there with the store's n-grams mixed in, as in
drafts; `Result.better` is true if it beats the model by more than the standard error. The state of the training is
stored beside the store, so a later call resumes, or continues with the text added since.
"""

from __future__ import annotations

import json
import math
import time
from bisect import bisect_left
from collections.abc import Callable, Generator, Iterable, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from statistics import fmean

import numpy as np
import torch
from torch import Tensor

from core.errors import InputError
from core.models import adapter as files
from core.models.adapter import Adapter, AdapterError, Result
from core.models.torch_model import TorchModel
from core.ngram import learned
from core.ngram.counts import Counts
from core.ngram.counts_file import LARGE
from core.ngram.interpolation import Interpolation, Store
from core.ngram.learned import LEAST
from core.ngram.personal import PersonalStore
from core.ngram.shelf import interpolation
from training.adapter import AdapterRecipe, State, Student, Trainer, saving
from training.held_out import LEAST_HELD_OUT, held_out_windows, mean_and_error, mean_of, mixed_gains

STATE = "training.safetensors"  # in the folder `PersonalStore.learned`
HELD_OUT = 0.1  # share of the text
CURVE_WINDOWS = 6  # of them for the curve during training
LEAST_STEPS, MOST_EPOCHS = 40, 4  # of the optimiser; research/docs/evaluation.md has the figures
MOST_RATE = 2.0  # times the usual learning rate, for texts too short for that many steps
STRENGTHS = (0.0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.65, 0.8, 1.0)
MOST_COST = 0.01  # of the mean ln p of general text

Documents = Sequence[np.ndarray]  # the ids of each, uint32: as Python's numbers they take nine times the memory


@dataclass(frozen=True)
class Stage:
    """The current stage: its description, the share done, the seconds left if known, the mean ln p on held-out text if
    it was evaluated, and all its values so far, as in `Outcome`."""

    description: str
    share: float = 0.0
    left: float | None = None
    held_out: float | None = None
    curve: Sequence[tuple[int, float]] = ()


@dataclass(frozen=True)
class Outcome:
    """The end of a call.

    Attributes:
        result: of the adapter that is now beside the store.
        share: of the training that is done; below 1 if the time ended it.
        new: whether this call trained anything.
        curve: (tokens trained, mean ln p of the model and adapter alone on held-out text).
        seconds: of training, all calls together.
    """

    result: Result
    share: float
    new: bool
    curve: list[tuple[int, float]]
    seconds: float


def learn(
    store: PersonalStore,
    model: TorchModel,
    base: Store | None = None,
    general: str = "",
    minutes: float = 10.0,
    memory: float = 3.0,
    recipe: AdapterRecipe | None = None,
    clock: Callable[[], float] = time.monotonic,
    check_cancelled: Callable[[], None] = lambda: None,
    typed: Callable[[Adapter, Documents, Documents], tuple[int, float, float]] | None = None,
) -> Generator[Stage | Outcome]:
    """Trains, evaluates and publishes an adapter. Yields a `Stage` after every step, and an `Outcome` at the end. The
    caller may stop it at any of them: the state is written, and another call resumes.

    Args:
        model: with transformers' layers, see `load_module`; this function changes them.
        base: the n-gram store of general text that drafts use.
        general: a text by others; the strength is the largest that costs at most a hundredth of ln p there.
        minutes: of training and evaluation.
        memory: the largest size of this process in GB.
        check_cancelled: called before every layer of the model, forward and backward. It may wait, and if it raises,
            the state is written first. `clock` should not count the time that it waits.
        typed: types held-out text with drafts, given the adapter, the documents that it learned (the newest, as many
            as are counted) and those held out; returns the `characters`, `keys_alone` and `keys` of the result. None:
            this step is omitted.
    Raises: InputError when there is too little text or memory; StoreError when text of the store was removed meanwhile;
        AdapterError when the adapter cannot be written.
    """
    began = clock()
    removals, documents = store.token_ids()
    total = sum(map(len, documents))
    if total < LEAST:
        raise InputError(
            f"The store {store.name} has {total:,} tokens; learning needs at least {LEAST:,}. Add text with `polydraft "
            "ngram add`."
        )
    fingerprint = model.fingerprint
    with store.unless_removed(removals):  # so no other training is writing
        learned.remove_unfinished(store.learned)
    identity = json.dumps({"model": fingerprint, "recipe": (recipe or AdapterRecipe()).identity()})
    state = _state(store, identity)
    if isinstance(state, str):
        yield Stage(state)
        state = State()
    known, held = split(documents, state.learnt)
    learnt = sum(map(len, known))
    if sum(map(len, held)) < LEAST_HELD_OUT:
        raise InputError("Too little text is new to hold some out; add text with `polydraft ngram add`.")
    pieces = _pieces(joined(known, model.tokenizer.between), (recipe or AdapterRecipe()).length)
    counted = newest_within(known, LARGE)
    recipe = recipe or recipe_for(len(pieces))
    student = Student(model.layers.module.to("cpu", torch.float32), recipe, check_cancelled=check_cancelled)
    student.check_memory(recipe.length, memory, "polydraft learn")
    trainer = Trainer(student, pieces, recipe, state)
    if trainer.complete and (kept := _published(store, fingerprint)):
        yield Outcome(kept.result, 1.0, False, trainer.curve, trainer.spent)
        return

    yield Stage("Evaluating the model alone on held-out text")
    started = clock()
    evaluation = _Evaluation(
        student,
        held_out_windows(joined(held, model.tokenizer.between)),
        held_out_windows(model.tokenizer.encode(general))[::2] if general else [],
    )
    evaluating = clock() - started

    def write() -> None:
        with store.unless_removed(removals):
            files.write(store.learned / STATE, trainer.state(learnt).to_bytes(identity))

    seconds = max(60 * minutes - (clock() - began) - 1.5 * evaluating, 0.0)
    started = clock()
    with closing(saving(trainer.run(seconds, evaluation.curve, clock), write, clock)) as steps:
        for at in steps:
            passed = clock() - started
            share = max(at.step / at.steps, min(passed / seconds, 1.0) if seconds else 1.0)
            yield Stage("Training", share, passed / share - passed + evaluating, at.held_out, tuple(trainer.curve))

    yield Stage("Evaluating the adapter on held-out text", 1.0, evaluating, None, tuple(trainer.curve))
    rule = interpolation(base, [Counts.of(model.vocab_size, [(ids, 1) for ids in counted])])
    result = evaluation.result(rule, trainer.tokens)
    adapter = Adapter(student.maps(), recipe.alpha, fingerprint, result)
    if typed and result.better:
        yield Stage("Typing held-out text with and without it", 1.0, None, None, tuple(trainer.curve))
        characters, keys_alone, keys = typed(adapter, counted, held)
        result = replace(result, characters=characters, keys_alone=keys_alone, keys=keys)
        adapter = replace(adapter, result=result)
    with store.unless_removed(removals, learned=True):
        files.save(adapter, store.learned)
    yield Outcome(result, trainer.share, True, trainer.curve, trainer.spent)


class _Evaluation:
    """Held-out windows of the writer's text and of general text, and the ln p that the model alone gives to them."""

    def __init__(self, student: Student, windows: list[Tensor], of_others: list[Tensor]) -> None:
        self._student, self._windows, self._of_others = student, windows, of_others
        self._alone = [student.logprobs(window, 0.0) for window in windows]
        self._others_alone = [mean_of(student.logprobs(window, 0.0)) for window in of_others]

    def curve(self) -> float:
        """The mean ln p of some windows, with the adapter as it is now."""
        some = self._windows[:: -(-len(self._windows) // CURVE_WINDOWS)]
        return fmean(mean_of(self._student.logprobs(window)) for window in some)

    def result(self, rule: Interpolation | None, tokens: int) -> Result:
        """The result of an adapter that learned so many tokens, by the gains with the n-grams mixed in."""
        strength, costs = allowed_strength(self._student, self._of_others, self._others_alone)
        gains = [
            gain
            for window, before in zip(self._windows, self._alone, strict=True)
            for gain in mixed_gains(rule, window, before, self._student.logprobs(window, strength))
        ]
        others = fmean(self._others_alone) if self._others_alone else 0.0
        return Result(tokens, len(gains), *mean_and_error(gains), strength, costs[strength], others)


def allowed_strength(
    student: Student, windows: Sequence[Tensor], alone: Sequence[float]
) -> tuple[float, dict[float, float]]:
    """Returns the largest strength at which general text loses at most MOST_COST of ln p, and the change of the mean
    ln p by strength, for the strengths that were evaluated.

    Args:
        windows: of general text; none allows full strength.
        alone: the mean ln p of the model alone in each window.
    """
    changes = {0.0: 0.0}

    def too_costly(strength: float) -> bool:
        changes[strength] = fmean(mean_of(student.logprobs(window, strength)) for window in windows) - fmean(alone)
        return changes[strength] < MOST_COST * fmean(alone)

    full = STRENGTHS[-1]
    if not windows:
        return full, {full: 0.0}
    if not too_costly(full):
        return full, changes
    # The cost rises with the strength, so bisection finds the limit.
    return STRENGTHS[bisect_left(STRENGTHS, True, hi=len(STRENGTHS) - 1, key=too_costly) - 1], changes


def recipe_for(pieces: int) -> AdapterRecipe:
    """Returns the hyperparameters for a number of pieces: a short text is trained several times, and with a higher
    learning rate if that is still few steps."""
    usual = AdapterRecipe()
    epochs = math.ceil(LEAST_STEPS * usual.batch / max(pieces, 1))
    epochs = min(max(epochs, usual.epochs), MOST_EPOCHS)
    missing = LEAST_STEPS * usual.batch / max(epochs * pieces, 1)  # times as many steps would be enough
    return replace(usual, epochs=epochs, rate=usual.rate * min(max(missing, 1.0), MOST_RATE))


def split(documents: Documents, learnt: int = 0) -> tuple[Documents, Documents]:
    """Returns the text to learn, and the text to hold out: the newest documents with a tenth of all tokens. A document
    that is much longer than that is divided. The first `learnt` tokens, which were learned before, are never held
    out."""
    total = sum(map(len, documents))
    wanted, most = HELD_OUT * total, total - learnt
    held: list[np.ndarray] = []  # newest first
    known = list(documents)
    size = 0
    while known and size < wanted:
        newest = known.pop()
        part = len(newest) if size + len(newest) <= 2 * wanted else math.ceil(wanted) - size
        part = min(part, most - size)
        held.append(newest[len(newest) - part :])
        size += part
        if part < len(newest):
            known.append(newest[: len(newest) - part])
            break
    return known, [ids for ids in reversed(held) if len(ids)]


def newest_within(documents: Documents, most: int) -> Documents:
    """Returns the last documents, with at most so many tokens together, or the last one alone."""
    start = len(documents) - 1
    while start > 0 and (most := most - len(documents[start])) >= len(documents[start - 1]):
        start -= 1
    return documents[start:]


def joined(documents: Iterable[np.ndarray | Sequence[int]], beginning: Sequence[int]) -> np.ndarray:
    """Concatenates the documents, with these ids before each. Returns uint32."""
    parts = [np.asarray(part, dtype=np.uint32) for ids in documents for part in (beginning, ids)]
    return np.concatenate(parts) if parts else np.zeros(0, dtype=np.uint32)


def _pieces(ids: np.ndarray, length: int) -> np.ndarray:
    """The ids as pieces (N, length); the incomplete last one waits for more text."""
    count = len(ids) // length
    return ids[: count * length].reshape(count, length)


def _state(store: PersonalStore, identity: str) -> State | str:
    """Returns the state of earlier training; a new one if there is none for this model and recipe; a sentence for the
    user if it is damaged."""
    path = store.learned / STATE
    if not path.exists():
        return State()
    try:
        return State.of(*files.read_tensors(path), identity) or State()
    except (AdapterError, InputError) as error:
        return f"Training begins anew: {error}"


def _published(store: PersonalStore, fingerprint: str) -> Adapter | None:
    """Returns the adapter beside the store if it is complete and of this model, else None."""
    try:
        adapter = files.load(store.learned)
    except AdapterError:
        return None
    return adapter if adapter.model == fingerprint else None
