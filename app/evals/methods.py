"""Methods that make k drafts of a given length after one prefix. Each takes a sequence that contains the prefix with
its logits cached, and returns the drafts' ids. All use the same rule for n-grams. A caller that only compares the
drafts with a text may stop them early."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass
from typing import Protocol, TypedDict, Unpack, cast

import numpy as np
import torch
from torch import Tensor

from app.settings import DraftSettings
from core.controls import PAPER_METHOD
from core.drafting.drafts import SuperposeOptions
from core.models import Row, Sequence
from core.ngram import Interpolation, NgramStore
from core.superposed import superpose

NEVER = frozenset[int]()  # no token ends a draft, so all have the same length
NUCLEUS = 0.9  # p of nucleus sampling, as in the paper
SHIPPED = DraftSettings()
FORKS = sorted({1, 2, 3, 4, 6, SHIPPED.forks} - {0})
AS_SHIPPED = "as shipped"  # with the app's forks and exact steps, and drafts that end where the app's do
# Sampling considers this many tokens in the nucleus of the whole distribution. More would slow the peer down, by
# sorting the whole vocabulary and rescoring it with n-grams.
SHORTLIST = 40
NUCLEUS_OF_TOP_K = f"nucleus of top-{SHORTLIST}"

# α and τ of Superposed Decoding by its paper: appendix B's, for Llama-2-7B, and those that `eval tune-paper` found for
# the default model and store, by the paper's criterion and by ours (docs/evaluation.md).
PAPERS = {
    "superposed, the paper's": {"alpha": PAPER_METHOD["alpha"], "tau": PAPER_METHOD["tau"]},
    "superposed, the paper's, tuned for perplexity": {"alpha": 0.54, "tau": 0.1},
    "superposed, the paper's, tuned for match": {"alpha": 0.7, "tau": 1.0},
}

Going = Callable[[list[list[int]]], bool]


def to_the_end(drafts: list[list[int]]) -> bool:
    return True


class Method(Protocol):
    def __call__(
        self, sequence: Sequence, prefix: list[int], k: int, length: int, going: Going = to_the_end
    ) -> list[list[int]]:
        """Returns k drafts; shorter ones if `going`, which is called with the drafts after each token, returns False.
        Between two calls the drafts only grow: every draft begins with one of the previous call."""
        ...


@dataclass(frozen=True)
class NamedMethod:
    """A method and its name in the tables.

    Attributes:
        single: whether it has one draft for any k.
        drops: whether it may replace a draft by another one's continuation.
    """

    name: str
    ngrams: bool
    draft: Method
    single: bool = False
    drops: bool = False


def methods(base: NgramStore | None, rule: Interpolation | None, exact_steps: range = range(4)) -> list[NamedMethod]:
    """Returns all methods, each without n-grams and, if there is a store, with them.

    Args:
        base: for the paper's own rule. rule: for all others.
    """
    found = []
    for mixed in [None, rule] if rule is not None else [None]:
        found += [
            NamedMethod("greedy", mixed is not None, superposed(mixed, one=True), single=True),
            NamedMethod(NUCLEUS_OF_TOP_K, mixed is not None, nucleus(mixed)),
            NamedMethod("beam", mixed is not None, _beam(mixed), drops=True),
            NamedMethod("branching greedy", mixed is not None, superposed(mixed, r=None)),
        ]
        found += [
            NamedMethod(
                name, mixed is not None, by_the_paper(base if mixed is not None else None, **values), drops=True
            )
            for name, values in PAPERS.items()
        ]
        found += [NamedMethod(f"superposed, r={r}", mixed is not None, superposed(mixed, r)) for r in exact_steps]
        found += [
            NamedMethod(f"forks={n}", mixed is not None, superposed(mixed, SHIPPED.exact_steps, forks=n)) for n in FORKS
        ]
        shipped = superposed(
            mixed,
            SHIPPED.exact_steps,
            forks=SHIPPED.forks,
            end_below=SHIPPED.end_below,
            min_branch=SHIPPED.min_branch,
        )
        found.append(NamedMethod(AS_SHIPPED, mixed is not None, shipped))
    return found


class OfOurs(TypedDict, total=False):
    """Further fields of `core.drafting.drafts.Options` for our method."""

    end_below: float
    min_branch: float
    reset_every: int | None


class OfThePaper(TypedDict, total=False):
    """Fields of `core.drafting.drafts.Options` that differ from the paper's values."""

    alpha: float | None
    tau: float
    reset_every: int | None


def superposed(
    rule: Interpolation | None, r: int | None = None, one: bool = False, forks: int = 0, **changes: Unpack[OfOurs]
) -> Method:
    """Returns our method. With r = length - 1 every draft is independent, which is branching greedy; with one draft it
    is greedy."""

    def draft(sequence: Sequence, prefix: list[int], k: int, length: int, going: Going = to_the_end) -> list[list[int]]:
        steps = length - 1 if r is None else r
        options: SuperposeOptions = {"stop_ids": NEVER, "ngrams": rule, "exact_steps": steps, "forks": forks, **changes}
        if one:
            options["candidates"] = 3 * k  # as many as for the other methods
        return _superposed(sequence, prefix, 1 if one else k, length, going, options)

    return draft


def by_the_paper(ngrams: NgramStore | Interpolation | None, **changes: Unpack[OfThePaper]) -> Method:
    """Returns Superposed Decoding as in its paper, except for `changes`."""
    options: SuperposeOptions = {**cast(SuperposeOptions, PAPER_METHOD), "stop_ids": NEVER, "ngrams": ngrams, **changes}

    def draft(sequence: Sequence, prefix: list[int], k: int, length: int, going: Going = to_the_end) -> list[list[int]]:
        return _superposed(sequence, prefix, k, length, going, options)

    return draft


def _superposed(
    sequence: Sequence, prefix: list[int], k: int, length: int, going: Going, options: SuperposeOptions
) -> list[list[int]]:
    growing = superpose(sequence.model, prefix, k, length, sequence=sequence, **options)
    with closing(growing):
        last = next(growing)
        while not (last.settled and not going(last.ids)) and not last.done:
            last = next(growing)
    return last.ids


def nucleus(rule: Interpolation | None) -> Method:
    """Returns a method with k sequences in one batch, which samples each token from the most probable ones with total
    probability NUCLEUS, at most SHORTLIST of them."""
    chance = np.random.default_rng(0)

    def drawn(logits: list[Tensor], prefix: list[int], drafts: list[list[int]]) -> None:
        for row, draft in zip(logits, drafts, strict=True):
            ids, logq = _likeliest(row, SHORTLIST)
            p = np.exp(_mixed(rule, logq, [*prefix, *draft], ids))
            order = np.argsort(-p)
            p, ids = p[order], ids[order]
            kept = p[: int(np.searchsorted(np.cumsum(p), NUCLEUS * max(p.sum(), 1.0))) + 1]
            draft.append(int(ids[chance.choice(len(kept), p=kept / kept.sum())]))

    def draft(sequence: Sequence, prefix: list[int], k: int, length: int, going: Going = to_the_end) -> list[list[int]]:
        drafts: list[list[int]] = [[] for _ in range(k)]
        drawn([sequence.sync(prefix)] * k, prefix, drafts)
        forks = [sequence.fork() for _ in range(k)]
        while len(drafts[0]) < length and going(drafts):
            rows = [Row(fork, ids[-1:]) for fork, ids in zip(forks, drafts, strict=True)]
            drawn(sequence.model.forward(rows), prefix, drafts)
        for fork in forks:
            fork.close()
        return drafts

    return draft


def _beam(rule: Interpolation | None) -> Method:
    """Returns beam search with k beams, with one row for each in every pass."""

    def draft(sequence: Sequence, prefix: list[int], k: int, length: int, going: Going = to_the_end) -> list[list[int]]:
        beams: list[tuple[list[int], float]] = [([], 0.0)]
        held = [sequence.fork()]
        logits = [sequence.sync(prefix)]
        while True:
            grown: list[tuple[float, int, int]] = []  # score, parent, token
            for parent, ((ids, score), row) in enumerate(zip(beams, logits, strict=True)):
                tokens, logq = _likeliest(row, 3 * k)
                mixed = _mixed(rule, logq, [*prefix, *ids], tokens)
                grown += [(score + float(s), parent, int(t)) for s, t in zip(mixed, tokens, strict=True)]
            best = sorted(grown, reverse=True)[:k]
            # A parent's sequence goes to its first child; further children fork it.
            taken: set[int] = set()
            after: list[Sequence] = []
            for _, parent, _ in best:
                after.append(held[parent].fork() if parent in taken else held[parent])
                taken.add(parent)
            for parent, unused in enumerate(held):
                if parent not in taken:
                    unused.close()
            beams = [([*beams[parent][0], token], score) for score, parent, token in best]
            held = after
            if len(beams[0][0]) == length or not going([ids for ids, _ in beams]):
                break
            logits = sequence.model.forward([Row(s, ids[-1:]) for s, (ids, _) in zip(held, beams, strict=True)])
        for s in held:
            s.close()
        return [ids for ids, _ in beams]

    return draft


def _likeliest(logits: Tensor, m: int) -> tuple[np.ndarray, np.ndarray]:
    """Returns the m most probable tokens: ids (m,), and the natural logarithms of their probabilities (m,)."""
    top, ids = torch.topk(logits, m)
    return ids.numpy(), (top - torch.logsumexp(logits, 0)).double().numpy()


def _mixed(rule: Interpolation | None, logq: np.ndarray, context: list[int], ids: np.ndarray) -> np.ndarray:
    return logq if rule is None else rule.scores(logq[None], [context], ids)[0]
