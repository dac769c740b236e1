"""Methods that make k drafts of a given length after one prefix. Each takes a sequence that contains the prefix with
its logits cached, and returns the drafts' ids. All use the same rule for n-grams. A caller that only compares the
drafts with a text may stop them early."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import torch
from torch import Tensor

from app.options.settings import DraftSettings
from core.controls import PAPER_METHOD
from core.models import Row, Sequence
from core.modes.start import draft
from core.ngram import Interpolation, NgramStore
from core.samplers import Rule

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
# the default model and store, by the paper's criterion and by ours (research/docs/evaluation.md).
PAPERS = {
    "superposed, the paper's": {"alpha": PAPER_METHOD["alpha"], "tau": PAPER_METHOD["tau"]},
    "superposed, the paper's, tuned for perplexity": {"alpha": 0.54, "tau": 0.1},
    "superposed, the paper's, tuned for match": {"alpha": 0.7, "tau": 1.0},
}

Wanted = Callable[[list[list[int]]], bool]


def always(drafts: list[list[int]]) -> bool:
    return True


class Method(Protocol):
    def __call__(
        self, sequence: Sequence, prefix: list[int], k: int, length: int, wanted: Wanted = always
    ) -> list[list[int]]:
        """Returns k drafts; shorter ones if `wanted`, which is called with the drafts after each token, returns False.
        Between two calls the drafts only grow: every draft begins with one of the previous call."""
        ...


@dataclass(frozen=True)
class NamedMethod:
    """A method and its name in the tables.

    Attributes:
        single: whether it has one draft for any k.
        drops: whether it may replace a draft by another one's continuation.
        sampled: whether its drafts are independent samples, which have no order.
    """

    name: str
    ngrams: bool
    draft: Method
    single: bool = False
    drops: bool = False
    sampled: bool = False


def methods(base: NgramStore | None, rule: Interpolation | None) -> list[NamedMethod]:
    """Returns all methods, each without n-grams and, if there is a store, with them.

    Args:
        base: for the paper's own rule. rule: for all others.
    """
    named = []
    for mixed in [None, rule] if rule is not None else [None]:
        ngrams = mixed is not None
        named += [
            NamedMethod("greedy", ngrams, superposed(mixed, single=True), single=True),
            NamedMethod(NUCLEUS_OF_TOP_K, ngrams, nucleus(mixed), sampled=True),
            NamedMethod("beam", ngrams, _in_mode("beam", {"ngrams": mixed, "forks": 0}), drops=True),
            NamedMethod("branching greedy", ngrams, superposed(mixed)),
        ]
        for name, values in PAPERS.items():
            named.append(NamedMethod(name, ngrams, by_the_paper(base if ngrams else None, **values), drops=True))
        ours = {f"superposed, r={r}": superposed(mixed, r) for r in range(4)}
        ours |= {f"forks={n}": superposed(mixed, SHIPPED.exact_steps, forks=n) for n in FORKS}
        ours[AS_SHIPPED] = superposed(
            mixed,
            SHIPPED.exact_steps,
            forks=SHIPPED.forks,
            end_below=SHIPPED.end_below,
            min_branch=SHIPPED.min_branch,
        )
        named += [NamedMethod(name, ngrams, method) for name, method in ours.items()]
    return named


def superposed(rule: Interpolation | None, /, r: int | None = None, single: bool = False, **options: Any) -> Method:
    """Returns our method with r exact steps, without forks unless `options` has some. Without r every draft is
    independent, which is branching greedy; with one draft it is greedy."""
    mode = "branching" if r is None else "superposed"
    return _in_mode(mode, {"ngrams": rule, "exact_steps": r or 0, "forks": 0, **options}, single)


def by_the_paper(ngrams: NgramStore | Interpolation | None, /, **changes: Any) -> Method:
    """Returns Superposed Decoding as in its paper, except for `changes`."""
    return _in_mode("superposed", {**PAPER_METHOD, "ngrams": ngrams, **changes})


def sampled(rule: Rule) -> Method:
    """Returns a method with k sequences, which samples the tokens that a rule keeps."""
    return _in_mode("sampled", {"rule": rule, "seed": 0})


def _in_mode(mode: str, options: dict[str, Any], single: bool = False) -> Method:
    """Returns a mode of the app, with one draft for any k or with k."""

    def drafted(sequence: Sequence, prefix: list[int], k: int, length: int, wanted: Wanted = always) -> list[list[int]]:
        chosen = {**options, "stop_ids": NEVER, "k": k, "length": length}
        if single:
            chosen |= {"k": 1, "candidates": 3 * k}  # as many as for the other methods
        with closing(draft(sequence.model, prefix, mode, sequence=sequence, **chosen)) as growing:
            last = next(growing)
            while not (last.settled and not wanted(last.ids)) and not last.done:
                last = next(growing)
        return last.ids

    return drafted


def nucleus(rule: Interpolation | None) -> Method:
    """Returns a method with k sequences in one batch, which samples each token from the most probable ones with total
    probability NUCLEUS, at most SHORTLIST of them."""
    rng = np.random.default_rng(0)

    def draw(logits: list[Tensor], mixed: Interpolation | None, prefix: list[int], drafts: list[list[int]]) -> None:
        for row, ids in zip(logits, drafts, strict=True):
            top, tokens = torch.topk(row, SHORTLIST)
            logq = (top - torch.logsumexp(row, 0)).double().numpy()
            if mixed is not None:
                logq = mixed.scores(logq[None], [[*prefix, *ids]], tokens.numpy())[0]
            p = np.exp(logq)
            order = np.argsort(-p)
            p = p[order]
            kept = p[: int(np.searchsorted(np.cumsum(p), NUCLEUS * max(p.sum(), 1.0))) + 1]
            ids.append(int(tokens[order[rng.choice(len(kept), p=kept / kept.sum())]]))

    def drafted(sequence: Sequence, prefix: list[int], k: int, length: int, wanted: Wanted = always) -> list[list[int]]:
        drafts: list[list[int]] = [[] for _ in range(k)]
        mixed = rule if rule is None else rule.after(prefix)
        draw([sequence.sync(prefix)] * k, mixed, prefix, drafts)
        forks = [sequence.fork() for _ in range(k)]
        while len(drafts[0]) < length and wanted(drafts):
            rows = [Row(fork, ids[-1:]) for fork, ids in zip(forks, drafts, strict=True)]
            draw(sequence.model.forward(rows), mixed, prefix, drafts)
        for fork in forks:
            fork.close()
        return drafts

    return drafted
