"""`eval dice`: how often the target's sampled token is among n proposals of a drafter: its most probable tokens,
samples that the rejection sampler verifies, and tokens chosen with the target's own noise.

At places of each prompt's continuation, at T = 1. All methods use the same q, an EAGLE-3 head's at the first level of
its tree, and the same p of the target. `_ci` is half of the 95 % confidence interval over prompts, because the places
of one prompt are alike.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from statistics import fmean
from typing import Annotated

import numpy as np

from core.errors import InputError
from core.models import LanguageModel, load_model
from core.noise import SeededNoise
from core.speculative import Drafter, TargetSampling
from core.speculative.acceptance import rejection
from core.speculative.drafters import Moment
from core.speculative.drafters.eagle3_tree import SHARPER
from research.chat import chat_template
from research.drafters import eagle3
from research.options import BackendOptions, TextOptions, amount
from research.prompts import prompts
from research.report import Progress, Report, ReportRow, counted
from research.scores import half_interval

PLACES = 5  # of each prompt
EVERY = 3  # tokens from one place to the next
DRAWS = 20  # at each place
COUNTS = (1, 2, 3, 4, 6, 8)
LIKELIEST = "most probable by q"
REJECTION = "sampled from q without replacement, rejection sampler"
COUPLED = "largest ln q + G"
SHARPENED = f"largest ln q / {SHARPER:g} + G"


@dataclass(frozen=True)
class DiceOptions(BackendOptions, TextOptions):
    repetitions: Annotated[int, amount("Prompts of each kind.")] = 10


def measure(options: DiceOptions, progress: Progress) -> Report:
    model = load_model(options.model, "torch" if options.backend == "auto" else options.backend)
    drafter = eagle3(model, progress)
    if drafter is None:
        raise InputError("eval dice needs a model with an EAGLE-3 head; use the default model with --backend torch.")
    questions = prompts(options.text, model.tokenizer, options.repetitions, chat_template(options.model))
    by_prompt: list[list[dict[str, list[float]]]] = []
    for kind, of_kind in questions.items():
        by_prompt += [
            [shares(p, q, n) for n, p, q in places(model, drafter, ids)]
            for ids in counted(of_kind, f"{kind}, prompt", progress)
        ]
    report = Report("eval dice", table(by_prompt))
    model.close()
    return report


def table(by_prompt: list[list[dict[str, list[float]]]]) -> list[ReportRow]:
    """Returns a row for each method, from the shares at the places of each prompt; every prompt counts the same."""
    rows: list[ReportRow] = []
    by_prompt = [of_prompt for of_prompt in by_prompt if of_prompt]
    for method in by_prompt[0][0] if by_prompt else ():
        row: ReportRow = {"method": method, "prompts": len(by_prompt), "places": sum(map(len, by_prompt))}
        for at, count in enumerate(COUNTS):
            means = [fmean(place[method][at] for place in of_prompt) for of_prompt in by_prompt]
            row |= {str(count): fmean(means), f"{count}_ci": half_interval(means)}
        rows.append(row)
    return rows


def places(model: LanguageModel, drafter: Drafter, prompt: list[int]) -> Iterator[tuple[int, np.ndarray, np.ndarray]]:
    """Yields places of one continuation: the number of tokens before it, p (V,) and the drafter's q (V,)."""
    choice, noise, ids = TargetSampling(), SeededNoise(0), list(prompt)
    with closing(model.open()) as sequence:
        if drafter.layers:
            sequence.reveal()
        p = choice.probabilities(sequence.sync(ids), ids)
        for step in range(PLACES * EVERY):
            ids.append(noise.draw(p, len(ids)))
            tree = None
            if step % EVERY == 0:
                features = sequence.features if drafter.layers else None
                tree = drafter.draft(Moment(ids, features, distributions=True), 1)
            p = choice.probabilities(sequence.feed(ids[-1:]), ids)
            if tree is not None and -1 in tree.own:
                yield len(ids), p, tree.own[-1].over(len(p))


def shares(p: np.ndarray, q: np.ndarray, place: int) -> dict[str, list[float]]:
    """Returns for each method, and each number of proposals, the share of the draws in which one is accepted."""
    tokens, most = np.flatnonzero(q > 0), max(COUNTS)
    logq = np.log(q[tokens])
    accepted: dict[str, list[int]] = {LIKELIEST: [], REJECTION: [], COUPLED: [], SHARPENED: []}  # the number of each
    likeliest = tokens[np.argsort(-logq, kind="stable")[:most]].tolist()
    for draw in range(DRAWS):
        noise = SeededNoise(draw)
        token, gumbel = noise.draw(p, place), noise.gumbel(place, tokens)
        own = noise.other(SeededNoise.PROPOSALS).gumbel(place, tokens)
        sampled = tokens[np.argsort(-(logq + own))[:most]].tolist()
        which, _ = rejection(p, q, sampled, noise.uniform(place, len(sampled)).tolist())
        accepted[REJECTION].append(most if which is None else which)
        for method, proposed in (
            (LIKELIEST, likeliest),
            (COUPLED, tokens[np.argsort(-(logq + gumbel))[:most]].tolist()),
            (SHARPENED, tokens[np.argsort(-(logq / SHARPER + gumbel))[:most]].tolist()),
        ):
            accepted[method].append(proposed.index(token) if token in proposed else most)
    return {method: [fmean(n < count for n in each) for count in COUNTS] for method, each in accepted.items()}
