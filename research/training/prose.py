"""Trains an adapter on general prose, for a model that was tuned to something else, for example to chat.

    WORK/run.json             what is trained; a call with something else is refused
    WORK/pieces.npz           the pieces of text and the held-out windows, as ids
    WORK/state.safetensors    matrices, moments of the optimiser, and how often each piece was trained
    WORK/curve.jsonl          ln p on held-out text by kind, during the training

A training that was stopped resumes from there and gives the same adapter as one that was not.

Pieces have T ids. Pieces of all kinds of text are equally many, unless weights say otherwise. A part of them begins
where a document begins, as a text in the editor does; the others begin anywhere in a document, because the editor keeps
the end of a long text. Some words are half-typed, as the model reads them between two keys: the tokens of the typed
letters, then the token of the rest. The typed tokens are read only; nobody wants them predicted.

Two kinds may be the model's own text: answers to instructions, without the instructions, and messages, whose beginnings
are ours. They keep it able to write what the other text lacks. A narrow kind, such as dialogue of people who book
tables, should be learned only where the text has shown that it is of this kind: the first tokens of its pieces may be
read only, so that the model does not learn to begin other texts with it.
"""

from __future__ import annotations

import hashlib
import json
import re
import time
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import closing
from dataclasses import asdict, dataclass, field
from itertools import chain
from pathlib import Path
from statistics import fmean
from typing import Any

import filelock
import numpy as np
import torch
from torch import Tensor

from core.errors import InputError
from core.files import parsed_json, replacing, write_whole
from core.models import Tokenizer
from core.models import adapter as files
from core.models.adapter import PROJECTIONS, Adapter, Result
from core.models.base import common
from core.models.llama import why_not
from core.models.torch_model import TorchModel
from core.ngram.interpolation import Store
from core.ngram.shelf import interpolation
from research.texts import NamedText
from research.training.given import mean_adapter, set_matrices
from research.training.instructions import beginnings_of_messages, instructions
from research.training.teacher import CompiledTeacher, ModuleTeacher
from training.adapter import AdapterRecipe, State, Student, Trainer, saving
from training.held_out import held_out_windows, mean_and_error, mean_of, mixed, spaced

RUN, PIECES, STATE, CURVE = "run.json", "pieces.npz", "state.safetensors", "curve.jsonl"
PROVENANCE = "provenance.json"
LETTERS = 8  # characters of text that are tokenised per token of a piece; more than enough
USUAL = 4  # characters per token, between the beginnings of two pieces of a document
HELD_OUT = 50  # of so many documents of each kind one is held out, if no text is given for that
CURVE_WINDOWS = 8  # held-out windows of each kind during the training
BEFORE = 64  # tokens before a half-typed word, on which its own may depend
ANSWERS, ANSWER = "answers", 256  # the kind of own answers to instructions, and their tokens with the instructions
MESSAGES, MESSAGE = "messages", 128  # the kind of own messages, and their tokens
BATCH = 64  # own texts that are written at once
_WORD = re.compile(rb" ?[A-Za-z]{3,}")


@dataclass(frozen=True)
class ProseRecipe:
    """What is trained, and how.

    Attributes:
        tokens: of all pieces.
        beginnings: the share of pieces that begin where a document begins.
        half_typed: the share of tokens of words that are half-typed.
        adapter: of the training. Its `epochs` is 1, because pieces differ in every round through the text.
        weights: how many pieces of a kind are trained for each one of a kind that is not named.
        answers: the number of the model's own answers, a kind of text named `ANSWERS`.
        messages: the number of the model's own messages, a kind of text named `MESSAGES`.
        read_only: the number of tokens at the beginning of the pieces of a kind that are not predicted; by default 0.
    """

    tokens: int = 250_000
    beginnings: float = 0.25
    half_typed: float = 0.05
    adapter: AdapterRecipe = field(
        default_factory=lambda: AdapterRecipe(rank=16, places=tuple(PROJECTIONS), length=512)
    )
    weights: dict[str, int] = field(default_factory=dict[str, int])
    answers: int = 0
    messages: int = 0
    read_only: dict[str, int] = field(default_factory=dict[str, int])

    def __post_init__(self) -> None:
        for name in ("beginnings", "half_typed"):
            if not 0 <= getattr(self, name) <= 1:
                raise InputError(f"{name} {getattr(self, name)} given; 0 to 1 expected.")
        for kind, weight in self.weights.items():
            if weight < 1:
                raise InputError(f"Weight {weight} of {kind} given; at least 1 expected.")
        for kind, count in self.read_only.items():
            if not 0 <= count < self.adapter.length - 1:
                raise InputError(
                    f"{count} read-only tokens of {kind} given; 0 to {self.adapter.length - 2} of a piece of "
                    f"{self.adapter.length} expected."
                )
        if self.tokens < self.adapter.length * self.adapter.batch:
            raise InputError(
                f"{self.tokens:,} tokens given; at least one step of {self.adapter.batch} pieces of "
                f"{self.adapter.length} tokens expected."
            )


@dataclass(frozen=True)
class ProseStage:
    """The current stage: what is done, the share done, the seconds left if known, and the mean ln p on held-out text by
    kind if it was evaluated."""

    description: str
    share: float = 0.0
    left: float | None = None
    held_out: dict[str, float] | None = None


@dataclass(frozen=True)
class ProseOutcome:
    """The end of a call.

    Attributes:
        share: of the training that is done; below 1, no adapter was written.
        rows: by kind of held-out text and for all, ln p without and with the adapter, and both with the base store if
            there is one.
        result: of the adapter.
        seconds: of training, all calls together.
    """

    share: float
    rows: list[dict[str, Any]]
    result: Result | None
    seconds: float


# ---------------------------------------------------------------- text


def names_in(path: Path) -> list[str]:
    """Returns the names in a file such as set_aside.json. Raises InputError."""
    try:
        content = parsed_json(path.read_bytes())
    except OSError as error:
        raise InputError(f"{path} cannot be read: {error.strerror or error}.") from error
    except ValueError as error:
        raise InputError(f"{path} is not JSON ({error}); an object with a list of `names` expected.") from error
    names = content.get("names") if isinstance(content, dict) else None
    if not isinstance(names, list) or not names or not all(isinstance(each, str) and each for each in names):
        raise InputError(f"{path} has no list of names; an object with a list of `names` expected.")
    return names


def without(texts: Sequence[NamedText], names: Sequence[str]) -> tuple[list[NamedText], dict[str, int]]:
    """Returns the texts that none of the names names, and the number of documents of each name; see `by_name`."""
    named = by_name(texts, names)
    left_out = {id(each) for of_name in named.values() for each in of_name}
    kept = [each for each in texts if id(each) not in left_out]
    return kept, {name: len(of_name) for name, of_name in named.items()}


def by_name(texts: Sequence[NamedText], names: Sequence[str]) -> dict[str, list[NamedText]]:
    """Returns the texts that each name names. A name is that of a document, or its beginning up to a "/", "_", "." or
    "#": of an author, a book or a file."""
    return {
        name: [each for each in texts if each.name.startswith(name) and each.name[len(name) :][:1] in "/_.#"]
        for name in names
    }


def divided(texts: Sequence[NamedText]) -> tuple[list[NamedText], list[NamedText]]:
    """Returns the texts to learn and those to hold out: of each kind some at random, by their names, so that the choice
    does not depend on other texts. Raises InputError for a kind with a single document."""
    held: list[NamedText] = []
    for kind, of_kind in by_kind(texts).items():
        if len(of_kind) < 2:
            raise InputError(f"The {kind} text has one document, of which none can be held out; give --held-out.")
        ordered = sorted(of_kind, key=lambda each: hashlib.sha256((each.name + each.text[:99]).encode()).digest())
        held += ordered[: -(-len(ordered) // HELD_OUT)]
    chosen = set(map(id, held))
    return [each for each in texts if id(each) not in chosen], held


def by_kind(texts: Sequence[NamedText]) -> dict[str, list[NamedText]]:
    groups: dict[str, list[NamedText]] = {}
    for each in texts:
        groups.setdefault(each.kind, []).append(each)
    return dict(sorted(groups.items()))


def pieces_of(
    texts: Sequence[NamedText], tokenizer: Tokenizer, recipe: ProseRecipe
) -> tuple[np.ndarray, np.ndarray, dict[str, int]]:
    """Returns the pieces (N, T) of ids, which of them are predicted (N, T), and the number of pieces of each kind.

    The kinds take turns, one with a weight several times in a round. Within a kind, a document has as many pieces as
    its length allows, and no place comes again before every other place of the kind has come. Short documents share a
    piece. Where a document begins, the ids have what stands between documents (`Tokenizer.between`).
    """
    length, seed = recipe.adapter.length, recipe.adapter.seed
    kinds = by_kind(texts)
    for what, numbers in (("Weights", recipe.weights), ("Read-only tokens", recipe.read_only)):
        if unknown := sorted(numbers.keys() - kinds.keys()):
            raise InputError(f"{what} of {', '.join(unknown)} given; the kinds of text are {', '.join(kinds)}.")
    sources = {
        kind: _Source([each.text for each in of_kind], length, recipe.beginnings, np.random.default_rng((seed, number)))
        for number, (kind, of_kind) in enumerate(kinds.items())
    }
    rng = np.random.default_rng((seed, len(kinds)))
    typing = _HalfTyped(tokenizer, recipe.half_typed, rng)
    blank = tokenizer.encode("\n\n")
    count = recipe.tokens // length
    ids, counted = np.zeros((count, length), np.int32), np.zeros((count, length), bool)
    counts = dict.fromkeys(kinds, 0)
    for row, kind in zip(range(count), _in_turns(list(kinds), recipe.weights), strict=False):
        piece: list[int] = []
        for text, begins in sources[kind].windows():
            before = tokenizer.between if begins else blank if piece else tokenizer.start_ids
            # A blank piece of text has no ids.
            piece += [*before, *tokenizer.encode(text)[: length - len(piece)]]
            if len(piece) >= length:
                break
        read, predicted = typing.of(piece)
        ids[row], counted[row] = read[:length], predicted[:length]
        counted[row, : recipe.read_only.get(kind, 0)] = False
        counts[kind] += 1
    return ids, counted, counts


def _in_turns(kinds: list[str], weights: dict[str, int]) -> Iterator[str]:
    turns = range(max(weights.values(), default=1))
    while True:
        yield from (kind for turn in turns for kind in kinds if turn < weights.get(kind, 1))


def answers_of(model: TorchModel, count: int, seed: int, length: int = ANSWER) -> Iterator[NamedText]:
    """Yields the model's answers to `count` instructions for prose, each without the instruction.

    Args:
        length: tokens of an instruction and its answer.
    Raises: InputError as `_continued`.
    """
    prompts = instructions(count, seed, ("ask",))
    for number, (prompt, ids) in enumerate(_continued(model, prompts, length)):
        yield NamedText(ANSWERS, f"{ANSWERS}/{number}", model.tokenizer.decode(ids[len(prompt) :]).lstrip())


def messages_of(model: TorchModel, count: int, seed: int, length: int = MESSAGE) -> Iterator[NamedText]:
    """Yields `count` beginnings of messages with what the model writes after them.

    Args:
        length: tokens of a message.
    Raises: InputError as `_continued`.
    """
    first = len(model.tokenizer.start_ids)
    for number, (_, ids) in enumerate(_continued(model, beginnings_of_messages(count, seed), length)):
        yield NamedText(MESSAGES, f"{MESSAGES}/{number}", model.tokenizer.decode(ids[first:]))


def _continued(model: TorchModel, prompts: Sequence[str], length: int) -> Iterator[tuple[list[int], list[int]]]:
    """Yields the ids of each prompt, and those of the text of `length` tokens that begins with it, sampled at T = 1;
    the shortest prompts first.

    Raises: InputError on a CPU if compiled code does not know the model's family.
    """
    if not prompts:
        return
    module, tokenizer = model.layers.module, model.tokenizer
    on_cpu = model.layers.device.type == "cpu"
    if on_cpu and (reason := why_not(module)):
        raise InputError(f"The model's own text needs a model that compiled code knows: {reason}")
    teacher = CompiledTeacher(module, remembered=0) if on_cpu else ModuleTeacher(module)
    by_length: dict[int, list[list[int]]] = {}
    for prompt in prompts:
        ids = [*tokenizer.start_ids, *tokenizer.encode(prompt)][: length - 1]
        by_length.setdefault(len(ids), []).append(ids)
    seed = 0
    for _, equal in sorted(by_length.items()):
        for at in range(0, len(equal), BATCH):
            some = equal[at : at + BATCH]
            yield from zip(some, teacher.continued(np.array(some, np.int32), length, seed).tolist(), strict=True)
            seed += 1


class _Source:
    """The text of one kind. `windows` yields parts of documents, each long enough for a piece or up to its document's
    end."""

    def __init__(self, texts: list[str], length: int, beginnings: float, rng: np.random.Generator) -> None:
        self._texts, self._length, self._share, self._rng = texts, length, beginnings, rng
        self._first, self._any = self._beginnings(), self._places()

    def windows(self) -> Iterator[tuple[str, bool]]:
        """Yields the windows of one piece, and whether each begins its document: all from beginnings, or all from any
        places."""
        places = self._first if self._rng.random() < self._share else self._any
        for document, start in places:
            yield self._texts[document][start : start + LETTERS * self._length], start == 0

    def _beginnings(self) -> Iterator[tuple[int, int]]:
        while True:
            yield from ((int(document), 0) for document in self._rng.permutation(len(self._texts)))

    def _places(self) -> Iterator[tuple[int, int]]:
        step = USUAL * self._length
        while True:
            phases = self._rng.integers(step, size=len(self._texts))
            # A document that is shorter than a piece begins at its beginning.
            starts = [
                (document, start)
                for document, (text, phase) in enumerate(zip(self._texts, phases.tolist(), strict=True))
                for start in ([0] if len(text) <= step else range(phase, len(text), step))
            ]
            for i in self._rng.permutation(len(starts)):
                document, start = starts[i]
                # The editor keeps whole tokens, which begin with the space before a word.
                space = self._texts[document].find(" ", start) if start else -1
                yield document, start if space < 0 else space


class _HalfTyped:
    """Divides tokens inside a word into the tokens of its first letters, as typed, and the token of the rest."""

    def __init__(self, tokenizer: Tokenizer, share: float, rng: np.random.Generator) -> None:
        self._tokenizer, self._share, self._rng = tokenizer, share, rng
        usable = (i for i in range(len(tokenizer.pieces)) if i not in tokenizer.special_ids)
        self._by_piece = {tokenizer.pieces[i]: i for i in usable}

    def of(self, ids: list[int]) -> tuple[list[int], list[bool]]:
        """Returns the ids with some half-typed words, and which of them are predicted."""
        pieces = self._tokenizer.pieces
        tokens: list[int] = []
        predicted: list[bool] = []
        for at, token in enumerate(ids):
            typed, rest = [], token
            if self._share and _WORD.fullmatch(pieces[token]) and self._rng.random() < self._share:
                typed, rest = self._divided(ids[max(at - BEFORE, 0) : at], token)
            tokens += [*typed, rest]
            predicted += [*[False] * len(typed), True]
        return tokens, predicted

    def _divided(self, before: list[int], token: int) -> tuple[list[int], int]:
        """Returns the tokens of the typed letters after the tokens `before`, and the token of the rest of the word;
        [] and the token itself if no token has the rest."""
        piece = self._tokenizer.pieces[token]
        letters = len(piece.lstrip())
        typed = len(piece) - letters + int(self._rng.integers(1, letters))
        rest = self._by_piece.get(piece[typed:])
        if rest is None:
            return [], token
        text = self._tokenizer.decode(before)
        plain = self._tokenizer.encode(text)
        ids = self._tokenizer.encode(text + piece[:typed].decode())
        # The typed letters may change the tokens before them; then the word stays whole.
        return (ids[len(plain) :], rest) if common(plain, ids) == len(plain) else ([], token)


# ---------------------------------------------------------------- training


def train(
    model: TorchModel,
    texts: Callable[[], tuple[Sequence[NamedText], Sequence[NamedText]]],
    about: dict[str, Any],
    recipe: ProseRecipe,
    out: Path,
    work: Path,
    base: Store | None = None,
    begin_with: Adapter | None = None,
    minutes: float | None = None,
    memory: float = 3.0,
    clock: Callable[[], float] = time.monotonic,
) -> Generator[ProseStage | ProseOutcome]:
    """Trains and writes an adapter with its provenance. Yields a `ProseStage` after every step, and a `ProseOutcome` at
    the end. The caller may stop it at any of them: the state is written, and the same call resumes.

    Args:
        model: with transformers' layers, see `load_module`; this function changes them.
        texts: returns the text to learn and the text to hold out; called by the first call only.
        about: what identifies the text, for the provenance.
        base: the n-gram store that drafts use, for the figures at the end.
        begin_with: an adapter to train further, of the same rank, alpha and projections.
        minutes: of this call, after which the training waits for the next call; None is no limit.
        memory: the largest size of this process in GB.
    Raises: InputError if there is too little text or memory, or `work` is of another training; AdapterError.
    """
    work.mkdir(parents=True, exist_ok=True)
    lock = filelock.FileLock(work / "lock")
    try:
        lock.acquire(timeout=0)
    except filelock.Timeout as error:
        raise InputError(f"Another process trains in {work}; wait for it, or give another --work.") from error
    try:
        yield from _train(model, texts, about, recipe, out, work, base, begin_with, minutes, memory, clock)
    finally:
        lock.release()


def _train(
    model: TorchModel,
    texts: Callable[[], tuple[Sequence[NamedText], Sequence[NamedText]]],
    about: dict[str, Any],
    recipe: ProseRecipe,
    out: Path,
    work: Path,
    base: Store | None,
    begin_with: Adapter | None,
    minutes: float | None,
    memory: float,
    clock: Callable[[], float],
) -> Generator[ProseStage | ProseOutcome]:
    began = clock()
    if begin_with is not None:
        begin_with.check({model.fingerprint}, model.layers.projections)
        about = {**about, "begin_with": begin_with.identity}
    wanted = json.loads(json.dumps({"model": model.fingerprint, "recipe": asdict(recipe), "text": about}))
    run = _known_run(work / RUN, wanted)
    if run is None:
        yield ProseStage("Reading the text")
        learnt, held = texts()
        learnt, seed = list(learnt), recipe.adapter.seed
        for own in chain(answers_of(model, recipe.answers, seed), messages_of(model, recipe.messages, seed)):
            learnt.append(own)
            yield ProseStage("Writing the model's own text", 0.0)
        windows = _windows(held, model.tokenizer)
        ids, counted, counts = pieces_of(learnt, model.tokenizer, recipe)
        with replacing(work / PIECES) as file:
            np.savez_compressed(file, **{"ids": ids, "counted": counted, **_packed(windows)})
        student = Student(model.layers.module, recipe.adapter)
        summary = {"kinds": _counts(learnt, counts), "held_out": _counts(held, {}), "dtype": str(student.dtype)}
        run = {**wanted, **summary, "pieces": _digest(ids, counted)}
        write_whole(work / RUN, json.dumps(run, indent=1).encode(), private=False)
    else:
        dtype = getattr(torch, run["dtype"].removeprefix("torch."))
        student = Student(model.layers.module, recipe.adapter, dtype)
    if begin_with is not None:
        set_matrices(student, begin_with)
    student.check_memory(recipe.adapter.length, memory, "polydraft train prose")
    with np.load(work / PIECES) as stored:
        ids, counted = stored["ids"], stored["counted"]
        windows = _unpacked(stored)
    if _digest(ids, counted) != run["pieces"]:
        raise InputError(f"{work / PIECES} is damaged; remove {work} to begin again.")
    identity = json.dumps({"pieces": run["pieces"], "model": model.fingerprint})
    trainer = Trainer(student, ids, recipe.adapter, _state(work / STATE, identity), counted)
    curve = _Curve(work / CURVE, trainer)

    def evaluate() -> float:
        means = {
            kind: fmean(mean_of(student.logprobs(window)) for window in spaced(of_kind, CURVE_WINDOWS))
            for kind, of_kind in windows.items()
        }
        curve.add(trainer.trained, means)
        return fmean(means.values())

    def write() -> None:
        files.write(work / STATE, trainer.state(0).to_bytes(identity))

    share, spent = trainer.share, trainer.spent
    if not trainer.complete:
        with closing(saving(trainer.run(held_out=evaluate, clock=clock), write, clock)) as steps:
            for at in steps:
                held_out = curve.rows[-1][1] if at.held_out is not None else None
                passed = (trainer.spent - spent) / max(trainer.share - share, 1e-9)
                yield ProseStage("Training", trainer.share, passed * (1 - trainer.share), held_out)
                if minutes is not None and clock() - began >= 60 * minutes and not trainer.complete:
                    break
    if not trainer.complete:
        yield ProseOutcome(trainer.share, [], None, trainer.spent)
        return
    yield ProseStage("Evaluating on held-out text", 1.0)
    rows, result = _evaluate(student, windows, base, trainer.tokens)
    adapter = Adapter(student.maps(), recipe.adapter.alpha, model.fingerprint, result)
    curve_rows = [[tokens, {k: round(x, 4) for k, x in means.items()}] for tokens, means in curve.rows]
    provenance = {**run, "model_name": model.name, "seconds": round(trainer.spent), "rows": rows, "curve": curve_rows}
    _save(adapter, provenance, out)
    yield ProseOutcome(1.0, rows, result, trainer.spent)


def average(
    model: TorchModel,
    parts: Sequence[tuple[Adapter, float]],
    held: tuple[Sequence[Path], Sequence[NamedText]],
    out: Path,
    base: Store | None = None,
) -> list[dict[str, Any]]:
    """Writes the weighted mean of adapters with its provenance, which has theirs, and returns its figures as
    `ProseOutcome.rows`. Its number of tokens is that of the part that learned most: parts often learn the same text.

    Args:
        model: with transformers' layers, see `load_module`; this function changes them.
        parts: adapters with their weights, see `mean_adapter`.
        held: the files of the held-out text, and the text.
    Raises: InputError, AdapterError.
    """
    mean = mean_adapter(parts)
    mean.check({model.fingerprint}, model.layers.projections)
    places = tuple(name for name in PROJECTIONS if any(name == of for _, of in mean.maps))
    student = Student(model.layers.module, AdapterRecipe(mean.rank, mean.alpha, places))
    set_matrices(student, mean)
    tokens = max(adapter.result.tokens for adapter, _ in parts)
    rows, result = _evaluate(student, _windows(held[1], model.tokenizer), base, tokens)
    provenance = {
        "model": model.fingerprint,
        "model_name": model.name,
        "average": [{"weight": weight, **_provenance_of(adapter)} for adapter, weight in parts],
        "held_out": list(map(str, held[0])),
        "rows": rows,
    }
    _save(Adapter(mean.maps, mean.alpha, model.fingerprint, result), provenance, out)
    return rows


def _save(adapter: Adapter, provenance: dict[str, Any], out: Path) -> None:
    files.save(adapter, out)
    write_whole(out / PROVENANCE, json.dumps(provenance, indent=1, ensure_ascii=False).encode(), private=False)


def _provenance_of(adapter: Adapter) -> dict[str, Any]:
    """Returns the provenance beside an adapter, if it has one; its figures are those of that training."""
    path = None if adapter.folder is None else adapter.folder / PROVENANCE
    if path is None or not path.is_file():
        return {"identity": adapter.identity}
    try:
        known = parsed_json(path.read_bytes())
    except (OSError, ValueError) as error:
        raise InputError(f"{path} cannot be read ({error}); remove it, or copy it again.") from error
    return {"identity": adapter.identity, "provenance": known}


def _known_run(path: Path, wanted: dict[str, Any]) -> dict[str, Any] | None:
    """Returns what was trained in this folder; None for nothing. Raises InputError if it is something else."""
    if not path.exists():
        return None
    try:
        run = parsed_json(path.read_bytes())
    except (OSError, ValueError) as error:
        raise InputError(f"{path} cannot be read ({error}); remove the folder to begin again.") from error
    for name, value in wanted.items():
        if not isinstance(run, dict) or run.get(name) != value:
            given, before = json.dumps(value), json.dumps(run.get(name) if isinstance(run, dict) else None)
            raise InputError(
                f"{path.parent} has a training with another {name} ({before}; {given} given). Give the "
                "same, or another folder with --work."
            )
    return run


def _state(path: Path, identity: str) -> State | None:
    """Returns the state of earlier calls, None if there is none. Raises InputError, AdapterError if it is damaged."""
    if not path.exists():
        return None
    state = State.of(*files.read_tensors(path), identity)
    if state is None:
        raise InputError(f"{path} is of another training; remove the folder to begin again.")
    return state


class _Curve:
    """The file of ln p on held-out text by kind, one line for each evaluation: (tokens trained, by kind)."""

    def __init__(self, path: Path, trainer: Trainer) -> None:
        self._path = path
        lines = path.read_text(encoding="utf-8").splitlines() if path.exists() else []
        known = {tokens for tokens, _ in trainer.curve}  # a killed training has evaluations after its last state
        self.rows = [(tokens, means) for tokens, means in map(json.loads, lines) if tokens in known]

    def add(self, tokens: int, means: dict[str, float]) -> None:
        self.rows.append((tokens, means))
        write_whole(self._path, "".join(json.dumps(row) + "\n" for row in self.rows).encode(), private=False)


def _evaluate(
    student: Student, windows: dict[str, list[Tensor]], base: Store | None, tokens: int
) -> tuple[list[dict[str, Any]], Result]:
    """Returns the figures by kind and for all, and the adapter's result, whose gain is with the base store if there is
    one."""
    rule = interpolation(base)
    columns: dict[str, np.ndarray] = {}
    for kind, of_kind in windows.items():
        parts = []
        for window in of_kind:
            pair = student.logprobs(window, 0.0), student.logprobs(window)
            parts.append(np.concatenate((mixed(None, window, *pair), mixed(rule, window, *pair))))
        columns[kind] = np.concatenate(parts, 1)  # (4, n)
    if len(columns) > 1:
        columns["all"] = np.concatenate(list(columns.values()), 1)
    rows: list[dict[str, Any]] = []
    for kind, of_kind in columns.items():
        row: dict[str, Any] = {"kind": kind, "tokens": of_kind.shape[1]}
        for name, (low, high) in (("", of_kind[:2]), ("with_base_store_", of_kind[2:])):
            if name and base is None:
                continue
            gain, error = mean_and_error((high - low).tolist())
            row |= {
                f"{name}ln_p": low.mean(),
                f"{name}adapted": high.mean(),
                f"{name}gain": gain,
                f"{name}error": error,
            }
        rows.append({name: round(float(x), 4) if isinstance(x, float) else x for name, x in row.items()})
    last = columns["all"] if "all" in columns else next(iter(columns.values()))
    gain, error = mean_and_error((last[3] - last[2]).tolist())
    return rows, Result(tokens, last.shape[1], gain, error)


def _windows(held: Sequence[NamedText], tokenizer: Tokenizer) -> dict[str, list[Tensor]]:
    """Returns the held-out windows by kind. Raises InputError for too little text."""
    windows: dict[str, list[Tensor]] = {}
    for kind, of_kind in by_kind(held).items():
        stream: list[int] = []
        for each in of_kind:
            stream += [*tokenizer.between, *tokenizer.encode(each.text)]
        windows[kind] = held_out_windows(stream)
    return windows


def _packed(windows: dict[str, list[Tensor]]) -> dict[str, Any]:
    """Returns windows as arrays by "kind/number"; a last window may be shorter than the others."""
    return {f"held/{i}/{kind}": each.numpy() for kind, of in windows.items() for i, each in enumerate(of)}


def _unpacked(stored: Any) -> dict[str, list[Tensor]]:
    windows: dict[str, list[Tensor]] = {}
    for name in stored.files:
        if name.startswith("held/"):
            windows.setdefault(name.split("/", 2)[2], []).append(torch.from_numpy(stored[name]))
    return windows


def _counts(texts: Sequence[NamedText], pieces: dict[str, int]) -> dict[str, dict[str, int]]:
    """Returns, by kind, the numbers of documents, characters and pieces."""
    return {
        kind: {"documents": len(of), "characters": sum(len(each.text) for each in of)}
        | ({"pieces": pieces[kind]} if kind in pieces else {})
        for kind, of in by_kind(texts).items()
    }


def _digest(*arrays: np.ndarray) -> str:
    digest = hashlib.sha256()
    for each in arrays:
        digest.update(np.ascontiguousarray(each).tobytes())
    return digest.hexdigest()
