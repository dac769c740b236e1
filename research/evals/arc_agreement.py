"""`eval arc-agreement`: how far texts that go on from a rejected proposal agree with the text that goes on from the
token that was sampled (ARC-Decode, Figure 2).

At places of texts that the model samples, the drafter proposes a tree as in the paper. Each proposal of its first level
that was not sampled is forced, and the text continues from it for LENGTH tokens (in the paper 1,024). The row
*rejected* is the agreement of these continuations with that of the sampled token; the rows *tolerated* are those of
them that ARC would have accepted. Two measures take the place of the paper's, which need further models (BERTScore,
sentence embeddings, a model of contradiction):

- `rouge`: F1 of the longest common subsequence of tokens (ROUGE-L).
- `similarity`: the cosine of the means of the tokens' input embeddings, less the vocabulary's mean.

An agreement has no scale by itself, and the paper's has none: a model that samples writes something else each time,
after the same token too. So *again* is the agreement of two continuations of the sampled token, with different noise,
and *another text* that of continuations of different texts. `to_again` is the mean difference to *again* at the same
place, with half of its 95 % interval over places: 0 means that rejecting the token guarded nothing that these measures
see. `as_near` is the share of continuations that agree at least as much as the median of *again*, and `places` the
share of places with at least one such proposal.
"""

from __future__ import annotations

from dataclasses import dataclass
from statistics import median
from typing import Annotated

import numpy as np
import torch

from core.controls import THETA
from core.models import LanguageModel, load_model
from core.models.base import Row
from core.noise import SeededNoise
from core.speculative import Drafter, TargetSampling, generate
from core.speculative.arc import local_tolerance_score
from core.speculative.drafters import Moment
from core.speculative.options import DEPTH
from research.chat import chat_template
from research.drafters import Arc, arcs, base_stores, best_drafter
from research.options import MixedOptions, TextOptions, amount
from research.prompts import prompts
from research.report import Progress, Report, ReportRow, counted
from research.scores import half_interval, mean
from research.tolerance import published_score

PLACES = 4  # places of each text
APART = 8  # tokens from one place to the next
LENGTH = 32  # tokens of a continuation after the forced token
REJECTED = "rejected"
AGAIN = "again"
ANOTHER = "another text"
MEASURES = ("rouge", "similarity")


@dataclass(frozen=True)
class Continued:
    """The continuations of one place.

    Attributes:
        sampled, again: of the sampled token, with two kinds of noise.
        rejected: of each rejected proposal, with the second noise.
        tolerated: by the kind of ARC, which of them it tolerates.
    """

    sampled: list[int]
    again: list[int]
    rejected: list[list[int]]
    tolerated: dict[str, list[bool]]


@dataclass(frozen=True)
class ArcAgreementOptions(MixedOptions, TextOptions):
    repetitions: Annotated[int, amount("Prompts of each kind.")] = 12


def measure(options: ArcAgreementOptions, progress: Progress) -> Report:
    model = load_model(options.model, options.backend)
    drafter = best_drafter(model, base_stores(model, options.store), progress)
    kinds_of_arc = arcs(model, progress)
    questions = prompts(options.text, model.tokenizer, options.repetitions, chat_template(options.model))
    report = Report("eval arc-agreement")
    everything: list[Continued] = []
    for kind, of_kind in questions.items():
        places: list[Continued] = []
        for number, ids in enumerate(counted(of_kind, f"{kind}, prompt", progress)):
            places += continued(model, drafter, ids, kinds_of_arc, number)
        report.rows += table(model, kind, places)
        everything += places
    report.rows += table(model, "all", everything)
    drafter.close()
    model.close()
    return report


def continued(
    model: LanguageModel,
    drafter: Drafter,
    ids: list[int],
    kinds_of_arc: dict[str, Arc],
    seed: int,
    places: int = PLACES,
    length: int = LENGTH,
) -> list[Continued]:
    """Returns the continuations of each place of one text, sampled at T = 1, at which a proposal was rejected."""
    text = [t.id for t in generate(model, None, ids, "off", length=APART * places, seed=seed, stop_ids=frozenset())]
    sequence = model.open()
    if drafter.layers:
        sequence.reveal()
    by_place: list[Continued] = []
    for at in range(0, len(text), APART):
        before, sampled = ids + text[:at], text[at]
        p = TargetSampling().probabilities(sequence.sync(before), before)
        # A drafter proposes after a text whose last token is not fed yet.
        features = None if sequence.features is None else sequence.features[: len(before) - 1]
        tree = drafter.draft(Moment(before, features), DEPTH)
        first = [x for x, parent in zip(tree.ids, tree.parents, strict=True) if parent < 0]
        rejected = [x for x in first if x != sampled and p[x] > 0]
        if not rejected:
            continue
        noises = SeededNoise(seed), SeededNoise(seed).other(1)
        forced = [(sampled, noises[0]), *((x, noises[1]) for x in (sampled, *rejected))]
        texts = continuations(model, before, forced, length)
        tolerated = {name: [tolerates(model, arc, p, x) for x in rejected] for name, arc in kinds_of_arc.items()}
        by_place.append(Continued(texts[0], texts[1], texts[2:], tolerated))
    sequence.close()
    return by_place


def tolerates(model: LanguageModel, arc: Arc, p: np.ndarray, x: int) -> bool:
    """Whether ARC would accept a proposal of the first level; p (V,) is the target's distribution there."""
    score = published_score if arc.published else local_tolerance_score
    return score(p, model, arc.calibration, x, 0) >= THETA


def continuations(
    model: LanguageModel, before: list[int], forced: list[tuple[int, SeededNoise]], length: int
) -> list[list[int]]:
    """Returns the tokens after `before` and each forced token, sampled at T = 1 with its noise, without that token."""
    trunk = model.open()
    trunk.sync(before)
    forks = [trunk.fork() for _ in forced]
    texts = [[token] for token, _ in forced]
    for step in range(length):
        logits = model.forward([Row(fork, ids[-1:]) for fork, ids in zip(forks, texts, strict=True)])
        for after, ids, (_, noise) in zip(logits, texts, forced, strict=True):
            ids.append(noise.draw(TargetSampling().probabilities(after, []), len(before) + 1 + step))
    for sequence in (*forks, trunk):
        sequence.close()
    return [ids[1:] for ids in texts]


def table(model: LanguageModel, kind: str, places: list[Continued]) -> list[ReportRow]:
    """Returns the lines of one kind of prompt."""
    if not places:
        return []
    embeddings = model.embeddings
    centre = embeddings.mean(0)
    vectors: dict[tuple[int, ...], torch.Tensor] = {}

    def agreement(text: list[int], other: list[int]) -> np.ndarray:
        """Returns ROUGE-L and similarity."""
        for ids in (text, other):
            if tuple(ids) not in vectors:
                vectors[tuple(ids)] = embeddings[ids].mean(0) - centre
        a, b = vectors[tuple(text)], vectors[tuple(other)]
        return np.array([rouge(text, other), float(torch.cosine_similarity(a, b, 0))])

    again = [[agreement(place.sampled, place.again)] for place in places]
    half = len(places) // 2  # the places of a text are beside each other
    others = [[agreement(a.sampled, b.sampled)] for a, b in zip(places, places[half:] + places[:half], strict=True)]
    rejected = [[agreement(place.sampled, other) for other in place.rejected] for place in places]
    by_method = {AGAIN: again, REJECTED: rejected}
    for name in places[0].tolerated:
        of_rule = [
            [each for each, fits in zip(of_place, place.tolerated[name], strict=True) if fits]
            for of_place, place in zip(rejected, places, strict=True)
        ]
        by_method[f"{REJECTED}, tolerated by {name}"] = of_rule
    by_method[ANOTHER] = others
    return [row(kind, name, of_places, again) for name, of_places in by_method.items()]


def row(kind: str, method: str, values: list[list[np.ndarray]], again: list[list[np.ndarray]]) -> ReportRow:
    """Returns one line of the table. `values` are the agreements (2,) by place, which may have none."""
    line: ReportRow = {"prompts": kind, "continuations": method, "count": sum(len(of_place) for of_place in values)}
    for number, name in enumerate(MEASURES):
        of_places = [[float(v[number]) for v in of_place] for of_place in values]
        controls = [float(of_place[0][number]) for of_place in again]
        typical = median(controls)
        apart = [mean(v) - c for v, c in zip(of_places, controls, strict=True) if v]
        some = [v for v in of_places if v]
        line |= {
            name: mean([mean(v) for v in some]),
            f"{name}_to_again": mean(apart),
            f"{name}_to_again_ci": half_interval(apart),
            f"{name}_as_near": mean([x >= typical for v in some for x in v]),
            f"{name}_places": mean([max(v) >= typical for v in some]),
        }
    return line


def rouge(text: list[int], other: list[int]) -> float:
    """Returns ROUGE-L (Lin 2004): F1 of the longest common subsequence."""
    if not text or not other:
        return 0.0
    longest = [0] * (len(other) + 1)
    for a in text:
        diagonal = 0
        for n, b in enumerate(other, 1):
            diagonal, longest[n] = longest[n], diagonal + 1 if a == b else max(longest[n], longest[n - 1])
    return 2 * longest[-1] / (len(text) + len(other))
