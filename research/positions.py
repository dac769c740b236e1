"""Next-token distributions at places in a text, with the writer's tokens; one pass computes many of them."""

from __future__ import annotations

from contextlib import closing

import torch
from torch import Tensor

from core.errors import InputError
from core.models import LanguageModel, Sequence, Tokenizer
from research import texts as text

PREFIX = 32  # tokens before the first place that is evaluated
RUN = 16  # consecutive places of one text


def runs(tokenizer: Tokenizer, files: list[list[str]], count: int) -> list[tuple[list[int], list[int]]]:
    """Returns PREFIX tokens and the writer's next RUN tokens of up to `count` texts, equally many from each file;
    deterministic.

    Raises: InputError if the text is too short.
    """
    pairs = []
    for place in text.words(files, count):
        before = tokenizer.encode(place.before.rstrip(" "))[-PREFIX:]
        written = tokenizer.encode(" " + place.document[place.at : place.at + 40 * RUN])[:RUN]
        if len(before) == PREFIX and len(written) == RUN:
            pairs.append((before, written))
    if not pairs:
        raise InputError("The text is too short: no place in it has enough words around it.")
    return pairs


def along(sequence: Sequence, before: list[int], written: list[int]) -> Tensor:
    """Returns the logits (n, V) after `before` and after each token of `written` except the last."""
    sequence.rewind(0)
    sequence.feed(before[:-1])
    return sequence.feed_every([before[-1], *written[:-1]])


def positions(model: LanguageModel, files: list[list[str]], count: int) -> tuple[Tensor, Tensor]:
    """Returns the logits (n, V) and the writer's tokens (n,) at up to `count` places of `runs`."""
    pairs = runs(model.tokenizer, files, -(-count // RUN))
    with closing(model.open()) as sequence:
        logits = torch.cat([along(sequence, before, written) for before, written in pairs])
    chosen = [token for _, written in pairs for token in written]
    return logits[:count], torch.tensor(chosen[:count])
