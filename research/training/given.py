"""Adapters that a training begins with, or averages."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from core.errors import InputError
from core.models.adapter import Adapter, LowRank, Projection
from training.adapter import Student


def set_matrices(student: Student, adapter: Adapter) -> None:
    """Sets a student's matrices to those of an adapter. Raises InputError if it has others."""
    some = next(iter(student.projections.values()))
    rank, scale = len(some.a), some.scale
    if adapter.maps.keys() != student.projections.keys() or (adapter.rank, adapter.scale) != (rank, scale):
        raise InputError(
            f"An adapter of rank {adapter.rank} and alpha {adapter.alpha:g} in {len(adapter.maps)} projections "
            f"to begin with given; rank {rank} and alpha {rank * scale:g} in {len(student.projections)} expected."
        )
    for projection, each in student.projections.items():
        each.a.data.copy_(adapter.maps[projection].a)
        each.b.data.copy_(adapter.maps[projection].b)


def mean_adapter(parts: Sequence[tuple[Adapter, float]]) -> Adapter:
    """Returns the weighted mean of adapters' matrices A and B, with the result of the first (model soups, arXiv
    2203.05482). The adapters should have begun with the same first matrices, as those of one seed do: then their
    matrices are near enough for a mean of A and B to be about one of B · A.

    Raises: InputError if there is none, they are of different models or shapes, or a weight is not positive.
    """
    if not parts or not all(weight > 0 for _, weight in parts):
        raise InputError(f"Weights {[weight for _, weight in parts]} of adapters given; positive ones expected.")
    first, total = parts[0][0], sum(weight for _, weight in parts)
    for other, _ in parts:
        if (other.model, other.rank, other.alpha, other.maps.keys()) != (
            first.model,
            first.rank,
            first.alpha,
            first.maps.keys(),
        ):
            raise InputError(
                f"Adapters of rank {first.rank} and {other.rank}, alpha {first.alpha:g} and {other.alpha:g}, in "
                f"{len(first.maps)} and {len(other.maps)} projections given; the same of one model expected."
            )
    maps: dict[Projection, LowRank] = {}
    for projection in first.maps:
        lows = [(adapter.maps[projection], weight / total) for adapter, weight in parts]
        a = torch.stack([share * low.a for low, share in lows]).sum(0)
        b = torch.stack([share * low.b for low, share in lows]).sum(0)
        maps[projection] = LowRank(a, b)
    return Adapter(maps, first.alpha, first.model, first.result)
