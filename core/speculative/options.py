"""The options of speculative decoding, with the pruning before verification and the tolerance during it."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal, get_args

import numpy as np

from core.controls import PRUNE_EPSILON, PRUNE_LAMBDA, THETA
from core.errors import InputError
from core.models.base import LanguageModel
from core.options import check_types
from core.samplers.base import Processor
from core.speculative import arc
from core.speculative.acceptance import TINY, fuzzy, typical
from core.speculative.calibration import Calibration
from core.speculative.drafters.base import Drafter
from core.speculative.target import TargetSampling
from core.speculative.tree import TokenTree

SpeculationMode = Literal["off", "lossless", "arc"]
Tolerance = Literal["lts", "published", "typical", "fsd", "none"]
Draws = Literal["coupled", "independent", "rejection"]

DEPTH = 8  # the highest number of drafted levels
# The options of `generate` that make mode "arc" the paper's own, with constants of `calibration.published`.
PUBLISHED: dict[str, Any] = {"draws": "independent", "tolerance": "published", "lam": 0.0}


@dataclass(frozen=True)
class SpeculationOptions:
    """How to speculate. `core.speculative.generate` takes the fields by name, and explains each."""

    mode: SpeculationMode = "lossless"
    length: int = 64
    temperature: float = 1.0
    rule: Processor | None = None
    seed: int = 0
    draws: Draws = "coupled"
    tree_size: int | Literal["auto"] = "auto"
    depth: int = DEPTH
    stop_ids: frozenset[int] | None = None
    tolerance: Tolerance = "lts"
    calibration: Calibration | None = None
    theta: float = THETA
    prune: bool = True
    prune_by: str = "entropy"
    prune_alpha: float = 1.0
    prune_noise: bool = True
    lam: float = PRUNE_LAMBDA
    epsilon: float = PRUNE_EPSILON
    threshold: float = 0.3

    def __post_init__(self) -> None:
        check_types(self)
        if self.mode not in ("off", "lossless", "arc"):
            raise InputError(f"mode {self.mode!r} given; 'off', 'lossless' or 'arc' expected.")
        if self.prune_by not in ("entropy", *arc.RULES):
            raise InputError(f"prune_by {self.prune_by!r} given; 'entropy' or one of {', '.join(arc.RULES)} expected.")
        for name, value, known in (
            ("tolerance", self.tolerance, get_args(Tolerance)),
            ("draws", self.draws, get_args(Draws)),
        ):
            if value not in known:
                raise InputError(f"{name} {value!r} given; one of {', '.join(known)} expected.")
        if self.draws == "rejection" and (self.mode == "arc" or self.tree_size == "auto"):
            raise InputError(
                f"draws 'rejection' given with mode {self.mode!r} and tree_size {self.tree_size!r}; it needs "
                "'lossless' and a fixed size, because sampled proposals must not be selected by what was sampled."
            )
        if self.length < 1 or self.depth < 1:
            raise InputError(f"length {self.length} and depth {self.depth} given; at least 1 of each expected.")
        if self.tree_size != "auto" and (not isinstance(self.tree_size, int) or self.tree_size < 0):
            raise InputError(f"tree_size {self.tree_size!r} given; 'auto' or a number of tokens expected.")
        if self.theta > 1:
            raise InputError(f"theta {self.theta} given; at most 1 expected, which is the highest score.")
        arc.Pruning(self.lam, self.epsilon)
        TargetSampling(self.temperature, self.rule)

    @cached_property
    def sampling(self) -> TargetSampling:
        """How the target's own token is chosen."""
        return TargetSampling(self.temperature, self.rule)

    def check(self, target: LanguageModel, drafter: Drafter, sampling: TargetSampling | None = None) -> None:
        """Raises InputError for LTS without a calibration, and for FSD with a drafter that has no distribution;
        CalibrationError for a calibration of another model or another way of sampling.

        Args:
            sampling: how tokens are sampled, if `rule` is a function that does not show it; None: as in these options.
        """
        if self.mode == "arc" and self.tolerance in ("lts", "published"):
            self._calibration.check(target, sampling or self.sampling)
        if self.draws == "rejection" and not drafter.samples:
            raise InputError(
                f"draws 'rejection' given with the drafter {drafter.name}, which selects its proposals and does not "
                "sample them; use a draft model, or draws 'coupled'."
            )
        if self.mode == "arc" and self.tolerance == "fsd" and not drafter.has_distribution:
            raise InputError(
                f"tolerance 'fsd' given with the drafter {drafter.name}, which has no distribution over the tokens to "
                "compare with the target's; use an EAGLE-3 head or a draft model, or another tolerance."
            )

    @property
    def needs_distributions(self) -> bool:
        """Whether the rejection sampler, pruning or FSD uses the drafter's own distributions."""
        in_arc = (self.prune and not self.prune_noise) or self.tolerance == "fsd"
        return self.draws == "rejection" or (self.mode == "arc" and in_arc)

    @property
    def _calibration(self) -> Calibration:
        if self.calibration is None:
            raise InputError("ARC's tolerance needs a calibration of the target; give one, or another tolerance.")
        return self.calibration

    def pruned(self, tree: TokenTree, p: np.ndarray) -> TokenTree:
        """Returns the proposals that pruning keeps; p (V,) is the distribution of the text's last token."""
        if self.mode != "arc" or not self.prune or not len(tree):
            return tree
        pruning = arc.Pruning(self.lam, self.epsilon, noise=self.prune_noise)
        kept = arc.kept(tree, arc.normalised_entropy(p), pruning)
        if self.prune_by != "entropy":
            kept = arc.ranked(tree, len(kept), self.prune_by, self.prune_alpha, self.prune_noise)
        return tree.only(kept)

    def tolerated(
        self, tree: TokenTree, indices: list[int], p: np.ndarray, target: LanguageModel, depth: int, drawn: int
    ) -> tuple[int | None, float | None]:
        """Returns the index of the tolerated proposal among those at `indices`, and its LTS; None and None without one.

        Ours is the safest of all, and none where the target draws a proposal. ARC as published takes the first one in
        the drafter's order whose LTS is at least θ, unless the one that the target draws precedes it.

        Args:
            p: (V,) the target's distribution there.
            drawn: the token that the target draws.
        """
        ids = [tree.ids[node] for node in indices]
        published = self.tolerance == "published"
        if self.mode != "arc" or not indices or (drawn in ids and not published):
            return None, None

        def lts(x: int) -> float:
            if p[x] <= 0:
                return -math.inf
            return arc.local_tolerance_score(p, target, self._calibration, x, depth, every=published)

        if published:
            for which, x in enumerate(ids[: ids.index(drawn) if drawn in ids else None]):
                if (score := lts(x)) >= self.theta:
                    return which, score
            return None, None
        if self.tolerance == "lts":
            scores = [lts(x) for x in ids]
            best = int(np.argmax(scores))
            return (best, scores[best]) if scores[best] >= self.theta else (None, None)
        fits: list[int] = []
        if self.tolerance == "typical":
            fits = [which for which, x in enumerate(ids) if typical(p, x)]
        elif self.tolerance == "fsd" and fuzzy(p, _own(tree, indices, p), self.threshold):
            fits = [which for which, x in enumerate(ids) if p[x] > 0]
        return (max(fits, key=lambda which: p[ids[which]]), None) if fits else (None, None)


def _own(tree: TokenTree, indices: list[int], p: np.ndarray) -> np.ndarray:
    """Returns the drafter's own distribution (V,) at one position, over the tokens that the target's rule keeps in
    p."""
    q = tree.own[tree.parents[indices[0]]].over(len(p))
    q = np.where(p > 0, q, 0.0)
    total = q.sum()
    return q / total if total > TINY else q
