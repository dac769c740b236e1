"""What the model gives to the tokens of held-out text: windows at random places, each read in one pass."""

from __future__ import annotations

import random
from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass

import numpy as np

from core.errors import InputError
from core.models import LanguageModel
from core.ngram.interpolation import Interpolation
from research.report import Progress, counted
from research.scores import half_interval

CONTEXT, PREDICTED = 64, 192  # tokens of a window: read, then predicted


@dataclass(frozen=True)
class Window:
    """Consecutive tokens of a document.

    Attributes:
        kind: of text.
        ids: its tokens.
        logq: ln p by the model of each of the last tokens (m,), after all before it.
        entropy: of the model's distributions there (m,), nats.
    """

    kind: str
    ids: list[int]
    logq: np.ndarray
    entropy: np.ndarray

    @property
    def start(self) -> int:
        """The place of the first token that is predicted."""
        return len(self.ids) - len(self.logq)


def windows(model: LanguageModel, by_kind: dict[str, list[str]], count: int, progress: Progress) -> list[Window]:
    """Reads windows with `count` predicted tokens and more of each kind of text. Raises InputError for a kind without a
    document of CONTEXT + PREDICTED tokens."""
    length, chosen = CONTEXT + PREDICTED, list[tuple[str, list[int]]]()
    for kind, texts in by_kind.items():
        rng, number = random.Random(kind), -(-count // PREDICTED)
        some = rng.sample(texts, len(texts))[: 4 * number]
        documents = [ids for ids in map(model.tokenizer.encode, some) if len(ids) >= length]
        if not documents:
            raise InputError(f"The {kind} text is too short: no document has {length} tokens.")
        for i in range(number):
            ids = documents[i % len(documents)]
            at = rng.randrange(len(ids) - length + 1)
            chosen.append((kind, ids[at : at + length]))
    found = list[Window]()
    for kind, ids in counted(chosen, "window", progress):
        with closing(model.open()) as sequence:
            logp = sequence.feed_every(ids[:-1])[CONTEXT - 1 :].float().log_softmax(-1)
        entropy = -(logp.exp() * logp).nansum(-1)
        logq = logp[range(PREDICTED), ids[CONTEXT:]]
        found.append(Window(kind, ids, logq.double().numpy(), entropy.double().numpy()))
    return found


def mixed(rule: Interpolation, window: Window, logq: np.ndarray | None = None) -> np.ndarray:
    """ln p of a window's predicted tokens (m,): the model, or `logq` (m,) in its place, mixed with stores."""
    logq = window.logq if logq is None else logq
    places = enumerate(logq, start=window.start)
    ids = window.ids
    return np.array([rule.scores(np.array([[x]]), [ids[:at]], np.array([[ids[at]]]))[0, 0] for at, x in places])


def gain(more: Sequence[np.ndarray], less: Sequence[np.ndarray]) -> tuple[float, float]:
    """The mean difference of two lists with the ln p of each window's tokens, and half of its 95 % interval, from the
    means of windows, whose tokens depend on each other."""
    means = [float(np.mean(a - b)) for a, b in zip(more, less, strict=True)]
    return float(np.mean(means)), half_interval(means)
