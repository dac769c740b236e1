"""Distances between tokens: the ground metric of Top-W, from the model's input embeddings.

No array of the vocabulary's size is copied: the whitening is two vectors (D,), and rows are whitened on
demand. Shapes: V vocabulary, D width, n rows.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import cached_property
from typing import Literal

import torch
from torch import Tensor

from core.errors import InputError

Metric = Literal["l2", "whitened", "cosine", "uniform"]
METRICS: tuple[Metric, ...] = ("l2", "whitened", "cosine", "uniform")
_CHUNK = 512  # rows at once for the statistics: they fit into a core's cache, and float32 is precise enough for so few


class Geometry:
    """Vectors of tokens after diagonal whitening, and distances between them.

    "whitened" is the paper's appendix A (eq. 17): rows of unit length, centred, each dimension divided by its standard
    deviation; d = |u - v|, about √(2·D) between two tokens. "l2" is the paper's text (eq. 1): the same vectors
    normalised again, so d is from 0 to 2. "cosine" is the authors' code: as l2 without the first normalisation, and
    d = 1 - cos(u, v) = |u - v|²/2. "uniform" needs no embeddings: d = 1 between any two.
    """

    def __init__(self, embeddings: Tensor | Callable[[], Tensor] | None, metric: Metric = "l2") -> None:
        """
        Args:
            embeddings: (V, D) float; shared, not copied; or what returns them when they are first needed. None only for
                "uniform".
        Raises: InputError.
        """
        if metric not in METRICS:
            raise InputError(f"metric {metric!r} given; one of {', '.join(METRICS)} expected.")
        if metric != "uniform" and (embeddings is None or (isinstance(embeddings, Tensor) and embeddings.ndim != 2)):
            given = f"shape {tuple(embeddings.shape)}" if isinstance(embeddings, Tensor) else "none"
            raise InputError(f"Embeddings: {given} given; the model's (V, D) expected for the metric {metric!r}.")
        self.metric: Metric = metric
        self._given = torch.empty(0, 0) if metric == "uniform" or embeddings is None else embeddings
        self._whitening: tuple[Tensor, Tensor] | None = None

    @cached_property
    def embeddings(self) -> Tensor:
        return (self._given if isinstance(self._given, Tensor) else self._given()).detach()

    @property
    def farthest(self) -> float:
        """A bound on the distance between two tokens."""
        return {"l2": 2.0, "cosine": 2.0, "uniform": 1.0, "whitened": math.inf}[self.metric]

    def vectors(self, ids: Tensor) -> Tensor:
        """Whitened vectors (…, D) float32 of token ids (…), of unit length except for the metric "whitened"."""
        if self._whitening is None or self._whitening[0].device != self.embeddings.device:
            self._whitening = self._statistics()
        mean, scale = self._whitening
        whitened = (self._rows(ids) - mean) / scale
        return whitened if self.metric == "whitened" else _unit(whitened)

    def distances(self, u: Tensor, v: Tensor) -> Tensor:
        """d (…, n, m) between `vectors` (…, n, D) and (…, m, D)."""
        products = u @ v.transpose(-1, -2)
        if self.metric != "whitened":
            return self._of_cosine(products)
        squares = u.square().sum(-1)[..., :, None] + v.square().sum(-1)[..., None, :]
        return (squares - 2 * products).clamp(min=0).sqrt()

    def nearest(self, u: Tensor, v: Tensor) -> Tensor:
        """d (n,) from each of `vectors` (n, D) to the nearest of (m, D)."""
        if self.metric == "whitened":
            return self.distances(u, v).amin(1)
        return self._of_cosine((u @ v.T).amax(1))  # one root for each row instead of m

    def _of_cosine(self, cosine: Tensor) -> Tensor:
        cosine = cosine.clamp(-1, 1)
        return 1 - cosine if self.metric == "cosine" else (2 - 2 * cosine).sqrt()

    def _rows(self, ids: Tensor | slice) -> Tensor:
        rows = self.embeddings[ids].float()
        return rows if self.metric == "cosine" else _unit(rows)

    def _statistics(self) -> tuple[Tensor, Tensor]:
        """Mean and standard deviation (D,) over the vocabulary; variances of at least 1e-6 (ε, in l2's units)."""
        n, width = self.embeddings.shape
        total, squares = torch.zeros(2, width, dtype=torch.float64, device=self.embeddings.device)
        for start in range(0, n, _CHUNK):
            rows = self._rows(slice(start, start + _CHUNK))
            total += rows.sum(0).double()
            squares += rows.square().sum(0).double()
        mean = total / n
        variance = squares / n - mean.square()
        # The paper adds a small ε to variances that are near 1/D here; the code floors them.
        variance = variance.clamp(min=1e-6) if self.metric == "cosine" else variance + 1e-12
        return mean.float(), variance.sqrt().float()


def _unit(rows: Tensor) -> Tensor:
    return rows / rows.norm(dim=-1, keepdim=True).clamp(min=1e-12)
