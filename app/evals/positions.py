"""Next-token distributions at places in a text, with the writer's tokens; one pass computes many of them."""

from __future__ import annotations

import torch
from torch import Tensor

from app.bench import text
from core.errors import InputError
from core.models import LanguageModel

PREFIX = 32  # tokens before the first place that is evaluated
RUN = 16  # consecutive places of one text


def positions(model: LanguageModel, files: list[list[str]], count: int) -> tuple[Tensor, Tensor]:
    """Returns logits (n, V) and the writer's tokens (n,) at up to `count` places, equally many from each file;
    deterministic.

    Raises: InputError if the text is too short.
    """
    logits, chosen, left = [], [], count
    for place in text.words(files, -(-count // RUN)):
        before = model.tokenizer.encode(place.before)[-PREFIX:]
        after = model.tokenizer.encode(place.document[place.at - 1 : place.at + 40 * RUN])[: min(RUN, left)]
        if len(before) < PREFIX or len(after) < min(RUN, left):
            continue
        sequence = model.open()
        try:
            sequence.feed(before[:-1])
            found = sequence.feed_every([before[-1], *after[:-1]])
        finally:
            sequence.close()
        logits.append(found)
        chosen += after
        left -= len(after)
    if not logits:
        raise InputError("The text is too short: no place in it has enough words around it.")
    return torch.cat(logits), torch.tensor(chosen)
