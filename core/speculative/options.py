"""The options of speculative decoding, with the pruning before verification and the tolerance during it."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Literal, get_args

import numpy as np

from core.controls import PRUNE_EPSILON, PRUNE_LAMBDA, THETA
from core.errors import InputError
from core.models.base import LanguageModel
from core.options import check_types
from core.samplers.base import Processor
from core.speculative import arc
from core.speculative.calibration import Calibration
from core.speculative.drafters.base import Drafter
from core.speculative.target import TargetSampling
from core.speculative.tree import TokenTree

SpeculationMode = Literal["off", "lossless", "arc"]
Draws = Literal["coupled", "independent", "rejection"]
# (tree, p (V,) of the text's last token) -> the indices of the proposals that are kept, parents too
Prune = Callable[[TokenTree, np.ndarray], list[int]]
# (tree, the indices of one parent's proposals, p (V,) of the target there, the token that it draws, their depth)
# -> which of them is accepted, and its LTS; None and None for none
Tolerate = Callable[[TokenTree, list[int], np.ndarray, int, int], tuple[int | None, float | None]]

DEPTH = 8  # the highest number of drafted levels


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
    tolerance: Literal["lts", "none"] | Tolerate = "lts"
    calibration: Calibration | None = None
    theta: float = THETA
    prune: bool | Prune = True
    lam: float = PRUNE_LAMBDA
    epsilon: float = PRUNE_EPSILON
    distributions: bool = False

    def __post_init__(self) -> None:
        check_types(self)
        if self.mode not in ("off", "lossless", "arc"):
            raise InputError(f"mode {self.mode!r} given; 'off', 'lossless' or 'arc' expected.")
        if not callable(self.tolerance) and self.tolerance not in ("lts", "none"):
            raise InputError(f"tolerance {self.tolerance!r} given; 'lts', 'none' or a function expected.")
        if self.draws not in get_args(Draws):
            raise InputError(f"draws {self.draws!r} given; one of {', '.join(get_args(Draws))} expected.")
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
        """Raises InputError for LTS without a calibration, and for sampled proposals with a drafter that samples none;
        CalibrationError for a calibration of another model or another way of sampling.

        Args:
            sampling: how tokens are sampled, if `rule` is a function that does not show it; None: as in these options.
        """
        if self.mode == "arc" and self.tolerance == "lts":
            self._calibration.check(target, sampling or self.sampling)
        if self.draws == "rejection" and not drafter.samples:
            raise InputError(
                f"draws 'rejection' given with the drafter {drafter.name}, which selects its proposals and does not "
                "sample them; use a draft model, or draws 'coupled'."
            )

    @property
    def needs_distributions(self) -> bool:
        """Whether the rejection sampler, the pruning or the tolerance uses the drafter's own distributions."""
        return self.draws == "rejection" or (self.mode == "arc" and self.distributions)

    @property
    def _calibration(self) -> Calibration:
        if self.calibration is None:
            raise InputError("ARC's tolerance needs a calibration of the target; give one, or another tolerance.")
        return self.calibration

    def pruned(self, tree: TokenTree, p: np.ndarray) -> TokenTree:
        """Returns the proposals that pruning keeps; p (V,) is the distribution of the text's last token."""
        if self.mode != "arc" or not self.prune or not len(tree):
            return tree
        if callable(self.prune):
            return tree.only(self.prune(tree, p))
        return tree.only(arc.kept(tree, arc.normalised_entropy(p), arc.Pruning(self.lam, self.epsilon)))

    def tolerated(
        self, tree: TokenTree, indices: list[int], p: np.ndarray, target: LanguageModel, depth: int, drawn: int
    ) -> tuple[int | None, float | None]:
        """Returns the index of the tolerated proposal among those at `indices`, the safest of all, and its LTS; None
        and None without one, and where the target draws a proposal.

        Args:
            p: (V,) the target's distribution there.
            drawn: the token that the target draws.
        """
        if self.mode != "arc" or not indices or self.tolerance == "none":
            return None, None
        if callable(self.tolerance):
            return self.tolerance(tree, indices, p, drawn, depth)
        ids = [tree.ids[node] for node in indices]
        if drawn in ids:
            return None, None
        scores = [
            arc.local_tolerance_score(p, target, self._calibration, x, depth) if p[x] > 0 else -math.inf for x in ids
        ]
        best = int(np.argmax(scores))
        return (best, scores[best]) if scores[best] >= self.theta else (None, None)
