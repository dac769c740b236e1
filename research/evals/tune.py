"""`eval tune`: the search for the defaults of personal stores, on the training text only.

Cross-validation: the text is divided into FOLDS parts. At random places of each part, the model's next-token logits are
mixed with a store of all other parts and compared with the writer's text. The test text is not read. One parameter is
varied at a time, in turns, until no change improves the result.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Annotated

import numpy as np
import torch

from core.autocomplete import load_autocomplete
from core.errors import InputError
from core.models import LanguageModel
from core.ngram import WHOLE, Linear, Mixed, NgramStore, Trust
from core.ngram.counts import Counts
from core.ngram.shelf import ALPHA, PERSONAL_WEIGHT
from research.evals.personal import learn_and_test
from research.options import MixedOptions, PastOptions, PlacesOptions, amount
from research.report import Progress, Report, ReportRow

FOLDS = 5
SHOWN, CANDIDATES = 3, 9  # k, and 3k
TAUS = (0.8, 0.9, 1.0, 1.1, 1.2)


@dataclass(frozen=True)
class Setting:
    """The varied parameters: `tau` divides the model's logits, `weight` is that of the personal stores, the others are
    those of `Trust`."""

    tau: float = 1.0
    weight: float = PERSONAL_WEIGHT
    trust: Trust = WHOLE

    def as_row(self) -> ReportRow:
        t = self.trust
        shares = " ".join(f"{share:g}" for share in t.shares)
        return {
            "tau": self.tau,
            "weight": self.weight,
            "exponent": t.exponent,
            "types_weight": t.types_weight,
            "offset": t.offset,
            "shares": shares,
            "floor": t.floor,
        }


@dataclass(frozen=True)
class TunedPlace:
    """A place: the ids before it, the next id, the model's logits (V,) float16, and the store for this fold, if any.

    The values that every setting needs are computed once: the most probable tokens, and for each τ the log of Σ
    e^(x/τ).
    """

    before: list[int]
    true: int
    logits: np.ndarray
    store: Counts | None
    top: list[int]
    totals: dict[float, float]

    @classmethod
    def at(cls, before: list[int], true: int, logits: torch.Tensor, store: Counts | None) -> TunedPlace:
        totals = {tau: float(torch.logsumexp(logits.double() / tau, 0)) for tau in TAUS}
        return cls(before, true, logits.half().numpy(), store, logits.topk(CANDIDATES).indices.tolist(), totals)

    def logq(self, ids: np.ndarray, tau: float) -> np.ndarray:
        """Returns the model's log-probabilities at τ."""
        return self.logits[ids].astype(np.float64) / tau - self.totals[tau]


def variations(s: Setting) -> list[Setting]:
    """Returns the settings that differ from this one in one parameter."""
    t = s.trust
    varied = [replace(s, tau=tau) for tau in TAUS]
    varied += [replace(s, weight=weight) for weight in (0.6, 0.75, 0.9, 1.0)]
    trusts = [replace(t, exponent=e) for e in (1.0, 1.5, 2.0, 2.5, 3.0, 4.0)]
    trusts += [replace(t, types_weight=w) for w in (0.25, 0.5, 1.0, 1.5, 2.0, 3.0)]
    trusts += [replace(t, offset=o) for o in (0.0, 0.1, 0.5, 1.0)]
    trusts += [replace(t, floor=f) for f in (0.3, 0.6, 1.0)]
    for n, share in enumerate(t.shares):
        for other in (0.1, 0.25, 0.4, 0.55, 0.7, 0.85, 1.0):
            if other != share:
                trusts.append(replace(t, shares=(*t.shares[:n], other, *t.shares[n + 1 :])))
    return [other for other in varied + [replace(s, trust=trust) for trust in trusts] if other != s]


@dataclass(frozen=True)
class TuneOptions(MixedOptions, PastOptions, PlacesOptions):
    repetitions: Annotated[int, amount("Places.")] = 1000


def measure(options: TuneOptions, progress: Progress) -> Report:
    autocomplete = load_autocomplete(options.model, options.backend, options.store, personal=False)
    learnt, _ = learn_and_test(options)
    chosen = places(autocomplete.model, learnt, options.repetitions, options.context, progress)
    autocomplete.model.close()
    base = autocomplete.ngrams
    report = Report("eval tune")
    shipped = Setting()
    report.rows.append({"setting": "no personal store", **score(chosen, base, replace(shipped, weight=0.0))})
    best, tried = searched(shipped, variations, lambda setting: score(chosen, base, setting), report, progress)
    report.rows.append({"setting": "best", **best.as_row(), **tried[best]})
    report.target(
        "mean ln p, best found less shipped", tried[best]["mean_ln_p"] - tried[shipped]["mean_ln_p"], "<= 0.01"
    )
    return report


def searched(
    shipped: Setting,
    variations: Callable[[Setting], list[Setting]],
    score: Callable[[Setting], dict[str, float]],
    report: Report,
    progress: Progress,
) -> tuple[Setting, dict[Setting, dict[str, float]]]:
    """Varies one parameter at a time, from the shipped setting, until no change improves the mean ln p. Returns the
    best setting and the figures of all that were tried, of which it adds the rows."""
    tried = {shipped: score(shipped)}
    report.rows.append({"setting": "shipped", **shipped.as_row(), **tried[shipped]})
    best, better = shipped, True
    while better:
        better = False
        for other in variations(best):
            if other not in tried:
                progress(f"setting {len(tried) + 1}, best so far {tried[best]['mean_ln_p']:.4f}")
                tried[other] = score(other)
                report.rows.append({"setting": "tried", **other.as_row(), **tried[other]})
            if tried[other]["mean_ln_p"] > tried[best]["mean_ln_p"] + 1e-4:
                best, better = other, True
    return best, tried


def places(
    model: LanguageModel, learnt: Sequence[str], count: int, context: int, progress: Progress
) -> list[TunedPlace]:
    """Returns `count` places in the text, each with a store of the other folds. Raises InputError for a short text."""
    ids = [token for text in learnt for token in model.tokenizer.encode(text)]
    cuts = [len(ids) * fold // FOLDS for fold in range(FOLDS + 1)]
    if cuts[1] < 2 * context + 2:
        raise InputError(f"{len(ids)} tokens of training text are too few for tuning; give a longer text with --past.")
    rng, tuned = random.Random(0), []
    sequence = model.open()
    for fold, (low, high) in enumerate(pairwise(cuts)):
        others = Counts.of(len(model.tokenizer.pieces), [(ids[:low], 1), (ids[high:], 1)])
        for number in range(count // FOLDS):
            progress(f"place {fold * (count // FOLDS) + number + 1} of {count}")
            at = rng.randrange(low + context, high)
            logits = sequence.sync(ids[at - context : at])
            tuned.append(TunedPlace.at(ids[at - context : at], ids[at], logits, others))
    sequence.close()
    return tuned


def score(chosen: Sequence[TunedPlace], base: NgramStore | None, setting: Setting) -> dict[str, float]:
    """Returns the figures of `figures_of` for the base store as shipped and the personal one as in the setting."""
    mixed = [Mixed(base, ALPHA)] if base is not None else []

    def rule(place: TunedPlace) -> Linear:
        assert place.store is not None
        return Linear([*mixed, Mixed(place.store, setting.weight, setting.trust, personal=True)])

    return figures_of(chosen, rule, setting.tau)


def figures_of(chosen: Sequence[TunedPlace], rule_of: Callable[[TunedPlace], Linear], tau: float) -> dict[str, float]:
    """Returns the mean ln p of the writer's next token, and the shares of places at which it ranks first, and among the
    first three."""
    logs, first, among = 0.0, 0, 0
    for place in chosen:
        rule = rule_of(place)
        least = float(np.exp(place.logq(np.array(place.top[-1:]), tau)[0]))
        usual = list(dict.fromkeys([*place.top, *rule.proposals([place.before], [least])[0]]))
        ids = np.array(usual if place.true in usual else [*usual, place.true])
        scores = rule.scores(place.logq(ids, tau)[None], [place.before], ids)[0]
        where = usual.index(place.true) if place.true in usual else len(ids) - 1
        logs += float(scores[where])
        if place.true in usual:
            rank = int((scores[: len(usual)] > scores[where]).sum())
            first, among = first + (rank == 0), among + (rank < SHOWN)
    return {
        "places": len(chosen),
        "mean_ln_p": logs / len(chosen),
        "first": first / len(chosen),
        "first_3": among / len(chosen),
    }
