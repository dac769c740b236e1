"""`eval background`: what a background is worth, such as the mail that one answers.

The text is conversations, a turn in each line, as in `corpus/heldout/dialogue`. A turn is written as a document of its
own, with none, the last one and the last three turns before it as its background. `mean_ln_p` is that of the turn's
tokens, `keys_saved_percent` that of the typist of `eval typing` with three drafts. The differences to none are by turn.
"""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import Annotated

import torch

from app.options.settings import DraftSettings
from app.options.typist import Passage, Way, typed
from core.errors import InputError
from core.models import LanguageModel
from core.session import background_ids
from research.options import AutocompleteOptions, TextOptions, amount, loaded
from research.places import texts
from research.report import Progress, Report, ReportRow, counted
from research.scores import half_interval, mean

TURNS = (0, 1, 3)  # of the background
SHORTEST, LONGEST = 30, 200  # characters of a turn that is written
K = 3


@dataclass(frozen=True)
class BackgroundOptions(AutocompleteOptions, TextOptions):
    repetitions: Annotated[int, amount("Turns.")] = 60


def measure(options: BackgroundOptions, progress: Progress) -> Report:
    chosen = turns(texts(options.text), options.repetitions)
    autocomplete = loaded(options)
    way = Way("", DraftSettings(k=K, ngrams=autocomplete.ngrams is not None))
    scores: dict[int, list[tuple[float, float]]] = {n: [] for n in TURNS}
    for before, turn in counted(chosen, "turn", progress):
        for n in TURNS:
            background = "\n".join(before[len(before) - n :])
            ln_p = mean(ln_probabilities(autocomplete.model, background, turn))
            saved = typed(autocomplete, Passage("", "", turn, background), way).saved
            scores[n].append((ln_p, saved))
    autocomplete.model.close()
    report = Report("eval background")
    report.rows += [row(n, scores[n], scores[0]) for n in TURNS]
    return report


def turns(by_kind: dict[str, list[str]], count: int) -> list[tuple[list[str], str]]:
    """Returns up to `count` turns, one of each conversation, each with those before it. Raises InputError if no
    conversation has enough of them."""
    rng, chosen = random.Random(0), list[tuple[list[str], str]]()
    for document in (document for documents in by_kind.values() for document in documents):
        lines = [line.strip() for line in document.splitlines() if line.strip()]
        fit = [n for n in range(max(TURNS), len(lines)) if SHORTEST <= len(lines[n]) <= LONGEST]
        if fit:
            n = rng.choice(fit)
            chosen.append((lines[:n], lines[n]))
    if not chosen:
        raise InputError(
            f"No conversation has more than {max(TURNS)} turns, one in each line, of {SHORTEST} to {LONGEST} "
            "characters; give --text with some."
        )
    return rng.sample(chosen, min(count, len(chosen)))


def ln_probabilities(model: LanguageModel, background: str, turn: str) -> list[float]:
    """Returns ln p of each token of the turn after the background and an empty line, as drafts read it."""
    ids = model.tokenizer.encode(turn)
    read = model.tokenizer.start_ids + background_ids(model.tokenizer, background)
    if not read:  # nothing precedes the first token
        read, ids = ids[:1], ids[1:]
    sequence = model.open()
    logits = sequence.feed_every([*read, *ids[:-1]])[len(read) - 1 :]
    sequence.close()
    return logits.log_softmax(-1).gather(1, torch.tensor(ids)[:, None])[:, 0].tolist()


def row(turns_before: int, scores: list[tuple[float, float]], without: list[tuple[float, float]]) -> ReportRow:
    """Returns one line of the table."""
    line: ReportRow = {"turns in the background": turns_before, "turns": len(scores)}
    for place, name in enumerate(("mean_ln_p", "keys_saved_percent")):
        more = [score[place] - other[place] for score, other in zip(scores, without, strict=True)]
        line |= {name: mean([score[place] for score in scores]), f"{name}_more": mean(more)}
        line[f"{name}_more_ci"] = half_interval(more)
    return line
