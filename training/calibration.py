"""Measures the constants of LTS, once per model (Algorithm 1).

There are two methods. `fit_constants` is the paper's: quantiles over all pairs. But a bound that holds on 95 % of all
pairs need not hold on 95 % of those that it *accepts*, and on small models it does not: the minimum of two bounds is
smallest where it errs, and a margin near 0 carries no information about the next words. `fit_accepted` is ours:
constants per class of pairs, each with a bound that holds on its own class. A bound that does not hold on the pairs
that it accepts is dropped, and τ_δ has an upper limit in bits of divergence.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor

from core.errors import InputError
from core.models.base import LanguageModel, Row
from core.speculative.acceptance import draw, jensen_shannon
from core.speculative.arc import normalised_entropy, whitened_distance
from core.speculative.calibration import Bucket, Calibration, Constants, exact_only, fingerprint
from core.speculative.drafters.base import Drafter, Moment
from core.speculative.drafters.ngram import NgramDrafter
from core.speculative.options import DEPTH
from core.speculative.target import TargetSampling, softmax
from core.speculative.tree import TokenTree

Z = 1.959964  # of the normal distribution, two-sided 95 %
TINY = 1e-12  # lower limit of every constant
BUDGET = 0.5  # bits of JS that are tolerated: 0 for the same distribution, 1 for disjoint ones
CELLS = (100, 200, 400, 800, 1600)  # sizes of the classes of ‖W Δe‖²: the nearest 100 pairs, then the next 200, …
NEAREST = 3  # near candidates sampled per position
EVERY = 2  # tokens from one sampled position to the next
TOP_K = 64  # most probable tokens of either distribution that enter the divergence


@dataclass(frozen=True)
class Sample:
    """One pair (Algorithm 1, lines 3-10): the inputs of the bounds, and the divergence that they bound.

    Attributes:
        js: JS(q_{j+1}, r_{j+1}) in nats.
        emb, logit: ‖W Δe‖² and (Δℓ̃)².
        entropy: H of p̃ as a share of ln V.
        depth: its depth in the drafter's tree: the number of proposals that the text followed before it. Decoding
            selects the constants by the same number.
        drawn: whether t_d was sampled uniformly, as in Algorithm 1; else it is one of the candidates with the nearest
            embeddings.
    """

    js: float
    emb: float
    logit: float
    entropy: float
    depth: int
    drawn: bool = True


def whitening(embeddings: Tensor) -> np.ndarray:
    """Returns 1/σ̂ per dimension, (D,) (line 1); 0 for a dimension in which all tokens are equal."""
    deviation = embeddings.double().std(0).numpy()
    return np.where(deviation > 0, 1 / np.where(deviation > 0, deviation, 1), 0.0)


def divergence(after_d: Tensor, after_m: Tensor, temperature: float, top_k: int) -> float:
    """Returns JS(q_{j+1}, r_{j+1}) over the union of both top-K sets (lines 7-8), from logits (V,)."""
    k = min(top_k, len(after_d))
    union = torch.cat([after_d.topk(k).indices, after_m.topk(k).indices]).unique()
    t = temperature or 1.0
    return jensen_shannon(softmax((after_d[union] / t).numpy()), softmax((after_m[union] / t).numpy()))


def collect(
    model: LanguageModel,
    prompts: Iterable[Sequence[int]],
    *,
    drafter: Drafter | None = None,
    temperature: float = 1.0,
    per_prompt: int = 16,
    candidates: int = 10,
    published: bool = False,
    batch: int = 8,
    progress: Callable[[int], None] = lambda _: None,
) -> list[Sample]:
    """Samples (C, j) at `per_prompt` positions of the model's own continuation of each prompt (token ids).

    At each position there are four candidates t_d among the `candidates` most probable tokens except the first: one
    sampled uniformly, as in Algorithm 1, and the NEAREST to t_m, because the bound must hold for near tokens. One pass
    evaluates all continuations, as a tree of five, of `batch` prompts at once. Tokens that are never tolerated are left
    out.

    Args:
        published: samples as Algorithm 1 does: one candidate at each position, uniformly among the TOP_K most probable
            tokens except the first (the paper has one K, that of the divergence), and no token is left out.
        drafter: proposes the trees that give each position its depth; None looks up the text itself. It must not need
            the model's hidden states.
    Raises: InputError for a drafter that does.
    """
    drafter = drafter or NgramDrafter()
    if drafter.layers:
        raise InputError(
            f"The drafter {drafter.name} given, which reads the model's hidden states; a calibration takes depths from "
            "a drafter of tokens, such as NgramDrafter."
        )
    listed = [list(prompt) for prompt in prompts]
    # Prompts of similar length share a pass; the samples of each do not depend on its neighbours.
    order = sorted(range(len(listed)), key=lambda i: len(listed[i]))
    among = _Among(
        model.embeddings,
        whitening(model.embeddings),
        TOP_K if published else candidates,
        0 if published else NEAREST,
        frozenset() if published else exact_only(model.tokenizer),
    )
    samples: list[Sample] = []
    for at in range(0, len(order), batch):
        running = [_Text(model, listed[i], np.random.default_rng([0, i])) for i in order[at : at + batch]]
        try:
            samples += _continue(model, running, among, TargetSampling(temperature), drafter, per_prompt)
        finally:
            for text in running:
                text.sequence.close()
        progress(min(at + batch, len(order)))
    return samples


class _Text:
    """A prompt that the model continues, and its place in a drafter's tree."""

    def __init__(self, model: LanguageModel, ids: list[int], rng: np.random.Generator) -> None:
        self.sequence, self.ids, self.rng = model.open(), ids, rng
        self.fed = 0  # number of ids in the sequence
        self.depth = 0
        self._tree, self._at = TokenTree(), -1

    def place(self, drafter: Drafter, temperature: float) -> None:
        """Sets `depth` for the last token: the next one if the tree proposed it, else 0, at the root of a new tree."""
        followed = [n for n in self._tree.children().get(self._at, []) if self._tree.ids[n] == self.ids[-1]]
        if followed:
            self._at, self.depth = followed[0], self.depth + 1
        else:
            self._tree, self._at = drafter.draft(Moment(self.ids, temperature=temperature), DEPTH), -1
            self.depth = 0


def _continue(
    model: LanguageModel,
    running: list[_Text],
    among: _Among,
    choice: TargetSampling,
    drafter: Drafter,
    positions: int,
) -> list[Sample]:
    """Continues the texts, and samples pairs at so many positions of each."""
    samples: list[Sample] = []
    for step in range(positions * EVERY):
        if not running:
            break
        logits = model.forward([Row(text.sequence, text.ids[text.fed :]) for text in running])
        drawn: list[tuple[_Text, np.ndarray, list[int]]] = []
        unfinished = []
        for text, after in zip(running, logits, strict=True):
            p = choice.probabilities(after, text.ids)
            text.fed = len(text.ids)
            text.place(drafter, choice.temperature or 1.0)
            if step % EVERY == 0:
                pairs = among.pairs(p, text.rng)
                drawn += [(text, p, pairs)] if len(pairs) > 1 else []
            token = draw(p, text.rng)
            if token not in model.tokenizer.eos_ids:
                text.ids.append(token)
                unfinished.append(text)
        rows = [Row(text.sequence, pairs, parents=[-1] * len(pairs)) for text, _, pairs in drawn]
        for (text, p, pairs), after in zip(drawn, model.forward(rows) if rows else [], strict=True):
            text.sequence.keep([])
            t_m = pairs[0]
            for number, t_d in enumerate(pairs[1:]):
                samples.append(
                    Sample(
                        divergence(after[1 + number], after[0], choice.temperature, TOP_K),
                        among.distance(t_m, t_d),
                        math.log(p[t_m] / max(p[t_d], 1e-9)) ** 2,
                        normalised_entropy(p),
                        text.depth,
                        number == 0,
                    )
                )
        running = unfinished
    return samples


@dataclass(frozen=True)
class _Among:
    """Which tokens are candidates.

    Attributes:
        embeddings: (V, D). w: (D,) the whitening.
        most: among so many of the most probable tokens after the first.
        nearest: the number of candidates with the nearest embeddings, beside the one that is sampled.
        never: tokens that are in no pair.
    """

    embeddings: Tensor
    w: np.ndarray
    most: int
    nearest: int
    never: frozenset[int]

    def distance(self, t_m: int, t_d: int) -> float:
        return whitened_distance(self.embeddings, self.w, t_m, t_d)

    def pairs(self, p: np.ndarray, rng: np.random.Generator) -> list[int]:
        """Returns t_m, then a probable token sampled uniformly, then the probable ones nearest to t_m; [] if t_m is
        never replaced."""
        best = [int(i) for i in np.argsort(-p, kind="stable")[: self.most + 1] if p[i] > 0]
        t_m, others = best[0], [t_d for t_d in best[1:] if t_d not in self.never]
        if t_m in self.never or not others:
            return []
        drawn = int(rng.choice(others))
        if self.nearest:
            others.sort(key=lambda t_d: self.distance(t_m, t_d))
        return list(dict.fromkeys([t_m, drawn, *others[: self.nearest]]))


def fit_constants(samples: Sequence[Sample], delta: float = 0.05, corrected: bool = False) -> Constants:
    """Computes c'_s, ακ and τ_δ (Algorithm 1, lines 11-14).

    Args:
        corrected: whether to take the lowest quantiles whose coverage has a Wilson interval above 1 - δ.
    Raises: InputError for too few samples.
    """
    if len(samples) < 20:
        raise InputError(f"{len(samples)} samples given; at least 20 expected, to compute quantiles.")
    js, emb, logit = (np.array([getattr(s, name) for s in samples]) for name in ("js", "emb", "logit"))
    level = corrected_level(len(samples), delta) if corrected else 1 - delta
    c_s = _quantile(js / np.maximum(emb, 1e-12), level)
    alpha_kappa = _quantile(js / np.maximum(logit, 1e-6), level)
    u = np.minimum(c_s * emb, alpha_kappa * logit)
    # U is the smaller of two bounds that each hold at level 1 - δ, so it holds less often than either. α raises both
    # until U holds at this level (the paper does not fix α ≥ 1).
    alpha = max(1.0, _quantile(js / np.maximum(u, 1e-12), level)) if corrected else 1.0
    return Constants(c_s * alpha, alpha_kappa * alpha, _quantile(u, 1 - delta) * alpha)


def fit_accepted(
    samples: Sequence[Sample], delta: float = 0.05, budget: float = BUDGET
) -> tuple[Constants, list[Bucket]]:
    """Computes constants that hold on the pairs that they accept: overall, and for classes of near pairs, the nearest
    first.

    In each class c'_s is the lowest quantile whose coverage *within the class* has a Wilson interval above 1 - δ. The
    class depends only on values that are known at verification, so the bound holds there as well. The margin's bound is
    used only if it holds on the pairs that only it accepts.

    Args:
        budget: upper limit of τ_δ in bits of divergence.
    Raises: InputError for too few samples or a budget out of range.
    """
    if not 0 < budget <= 1:
        raise InputError(f"budget {budget} given; above 0 and at most 1 bit expected.")
    tau = budget * math.log(2)
    overall = fit_constants([s for s in samples if s.drawn], delta, corrected=True)
    ordered = sorted(samples, key=lambda s: s.emb)
    buckets: list[Bucket] = []
    start = 0
    for size in CELLS:
        cell = ordered[start : start + size]
        if len(cell) < size or start + size >= len(ordered):
            break
        start += size
        edge = ordered[start].emb
        c_s = _quantile(np.array([s.js / max(s.emb, 1e-12) for s in cell]), corrected_level(size, delta))
        buckets.append(Bucket(2.0, 1_000, Constants(max(c_s, TINY), math.inf, tau), edge))
    alpha_kappa = overall.alpha_kappa if _logit_side_holds(samples, overall, delta, tau) else math.inf
    return Constants(overall.c_s, alpha_kappa, min(overall.tau, tau)), buckets


def _logit_side_holds(samples: Sequence[Sample], constants: Constants, delta: float, tau: float) -> bool:
    """Whether ακ·(Δℓ̃)² bounds a share 1 - δ of the pairs that only it would accept."""
    decided = [(s.js, u) for s in samples if (u := constants.alpha_kappa * s.logit) <= tau < constants.c_s * s.emb]
    return wilson(sum(js <= u for js, u in decided), len(decided))[0] >= 1 - delta


def calibrate(
    model: LanguageModel,
    samples: Sequence[Sample],
    *,
    delta: float = 0.05,
    budget: float | None = None,
    buckets: int = 0,
    prompts: int = 0,
    temperature: float = 1.0,
    positions: int | None = None,
) -> Calibration:
    """Computes the constants, and returns them with the model's fingerprint.

    Args:
        budget: the tolerated bits of divergence, for constants that hold on the pairs that they accept; None for the
            paper's constants.
        buckets: with the paper's constants, the number of entropy classes, each divided into early and late depths,
            with separate constants and the finite-sample correction; 0 for one set of constants.
        prompts, temperature: of the samples.
        positions: with the paper's constants, the number of positions of a text that share δ (corollary ii).
    Raises: InputError for too few samples, or for `positions` with a budget.
    """
    if budget is not None and positions is not None:
        raise InputError("positions given with a budget; a text's share of δ is a part of the paper's constants alone.")
    calibration = Calibration(
        fingerprint(model),
        model.name,
        whitening(model.embeddings),
        Constants(1.0, 1.0, 1.0),  # replaced below
        [],
        delta,
        temperature,
        TOP_K,
        len(samples),
        prompts,
        budget,
        positions,
    )
    if budget is not None:
        overall, classes = fit_accepted(samples, delta, budget)
    else:
        drawn, each = [s for s in samples if s.drawn], calibration.each_delta
        if len(drawn) * each < 1:
            raise InputError(
                f"{len(drawn)} samples given for a risk of {each:.2g} at each position; at least {1 / each:.0f} "
                "expected. Give more prompts, or fewer positions."
            )
        overall, classes = fit_constants(drawn, each), _fit_classes(drawn, each, buckets)
    return replace(calibration, overall=overall, buckets=classes)


@dataclass(frozen=True)
class Coverage:
    """What constants say of pairs.

    Attributes:
        held: the share of all pairs with JS ≤ U.
        accepted: the share with LTS ≥ θ.
        held_accepted, tolerable: of these, the share with JS ≤ U, and that with JS ≤ τ_δ.
        mean_js: of these, in nats.
    """

    held: float
    accepted: float
    held_accepted: float
    tolerable: float
    mean_js: float


def coverage(samples: Sequence[Sample], calibration: Calibration, theta: float) -> Coverage:
    """Applies constants to pairs. Shares of no pairs are nan."""
    bounded = [(s.js, calibration.constants(s.entropy, s.depth, s.emb), s) for s in samples]
    pairs = [(js, constants.bound(s.emb, s.logit), constants.tau) for js, constants, s in bounded]
    accepted = [(js, u, tau) for js, u, tau in pairs if 1 - u / tau >= theta]

    def share(hits: Sequence[bool]) -> float:
        return sum(hits) / len(hits) if hits else math.nan

    return Coverage(
        share([js <= u for js, u, _ in pairs]),
        len(accepted) / max(len(pairs), 1),
        share([js <= u for js, u, _ in accepted]),
        share([js <= tau for js, _, tau in accepted]),
        sum(js for js, _, _ in accepted) / len(accepted) if accepted else math.nan,
    )


def _fit_classes(samples: Sequence[Sample], delta: float, classes: int) -> list[Bucket]:
    """Computes constants for classes of entropy, each divided into early and late depths."""
    buckets: list[Bucket] = []
    if classes:
        edges = np.quantile([s.entropy for s in samples], np.linspace(0, 1, classes + 1)[1:])
        edges[-1] = 2.0  # beyond every normalised entropy
        low = -1.0
        for high in edges.tolist():
            for first, last in ((0, 3), (3, 1_000)):
                inside = [s for s in samples if low <= s.entropy < high and first <= s.depth < last]
                if len(inside) >= 60:
                    buckets.append(Bucket(high, last, fit_constants(inside, delta, corrected=True)))
            low = high
    return buckets


def wilson(hits: int, n: int) -> tuple[float, float]:
    """Returns the 95 % interval of a share (Wilson 1927)."""
    if n == 0:
        return 0.0, 1.0
    p, z2 = hits / n, Z * Z
    middle = (p + z2 / (2 * n)) / (1 + z2 / n)
    half = Z * math.sqrt(p * (1 - p) / n + z2 / (4 * n * n)) / (1 + z2 / n)
    return max(0.0, middle - half), min(1.0, middle + half)


def corrected_level(n: int, delta: float) -> float:
    """Returns the lowest level whose Wilson interval over n samples starts at 1 - δ or above; 1 if n is too small."""
    for hits in range(math.ceil(n * (1 - delta)), n + 1):
        if wilson(hits, n)[0] >= 1 - delta:
            return hits / n
    return 1.0


def _quantile(values: np.ndarray, level: float) -> float:
    """Returns the smallest value that is not exceeded by at least a share `level` of the values."""
    ordered = np.sort(values)
    return float(ordered[min(max(math.ceil(level * len(ordered) - 1e-9), 1), len(ordered)) - 1])
