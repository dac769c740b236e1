"""Superposed Decoding on a static cache: of the logits, only the candidates leave the device.

The drafts and the bookkeeping are those of `core.superposed`; the data that each step moves differs. The device
receives each draft's latest token and weight and computes the mixed embedding (eqs. 3-4); it returns the m likeliest
tokens with their logits, and the normaliser. One synchronisation per step serves any number of people.

Two options need all logits and are refused here: a truncation `rule`, and candidates that a personal store proposes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

import numpy as np
import torch
from torch import Tensor

from core.drafting.candidates import MIN_LOGPROB, Candidates
from core.drafting.drafts import Drafts, Options
from core.drafting.driver import Drafting, grown
from core.errors import InputError
from core.models.base import Row, Sequence
from core.models.static import StaticModel, StaticSequence
from core.options import DEFAULT
from core.superposed import superposed


class _OnDevice(Candidates):
    """Scores from the device's results: (2m + 1,) logits, ids, normaliser; or from all logits (V,)."""

    def after(
        self, logits: Tensor, contexts: list[list[int]], also: Iterable[int] = ()
    ) -> tuple[np.ndarray, np.ndarray]:
        if len(logits) != 2 * self.m + 1:
            return super().after(logits, contexts, also)
        m, found = self.m, logits.numpy().astype(np.float64)
        q = found[:m] - found[2 * m]
        keep = q > MIN_LOGPROB
        tokens, q = found[m : 2 * m][keep].astype(np.int64), q[keep]
        if not self.options.distinct and len(q):
            q = q - np.logaddexp.reduce(q)
        return tokens, q


def _mixture(embeddings: Tensor, ids: list[int], gamma: np.ndarray) -> Tensor:
    """The mixture itself, not its embedding: (2, d) ids and weights."""
    return torch.from_numpy(np.stack([ids, gamma]))


def superpose_static(
    model: StaticModel,
    prefixes: list[list[int]],
    k: int = DEFAULT["k"],
    length: int = DEFAULT["length"],
    *,
    sequences: list[Sequence] | None = None,
    **options: Any,
) -> Iterator[list[Drafts]]:
    """`core.superposed.superpose_batch` on a static cache: the drafts of each prefix after every step.

    Takes one line per prefix, and during exact steps k more.

    Raises: InputError as there, and for options that need all logits; ContextFull when the lines do not suffice.
    """
    made = Options(k=k, length=length, **options)
    if made.rule is not None or made.reset_every is not None:
        raise InputError("A rule, or resets, given; on a static cache leave them out, or use superpose_batch.")
    score = _OnDevice(made)

    def start(sequence: Sequence, ids: list[int]) -> Callable[[list[Tensor]], Drafting]:
        return lambda logits: superposed(logits, sequence, ids, made, score=score, mix=_mixture)

    return grown(model, prefixes, start, sequences, lambda rows: _step(model, rows, score.m, made.tau))


def _step(model: StaticModel, rows: list[Row], m: int, tau: float) -> list[Tensor]:
    """Candidates (2m + 1,) after each row, a mixture or a draft's own token; all logits (V,) after a longer one."""
    longer = [row for row in rows if not _is_one(row)]
    full = iter(model.forward(longer) if longer else [])
    one = [row for row in rows if _is_one(row)]
    sequences = [row.sequence for row in one if isinstance(row.sequence, StaticSequence)]
    mixtures = [
        (row.inputs[0].long().tolist(), row.inputs[1].tolist())
        if isinstance(row.inputs, Tensor)
        else (row.inputs, [1.0])
        for row in one
    ]
    if not one:
        return list(full)
    found = model.step(sequences, mixtures, m, tau)
    after = iter(torch.cat([found.logits, found.ids.float(), found.totals[:, None]], 1))
    return [next(after) if _is_one(row) else next(full) for row in rows]


def _is_one(row: Row) -> bool:
    """Whether a row is one token, or a mixture as `_mixture` makes it, which is float64."""
    return row.inputs.dtype == torch.float64 if isinstance(row.inputs, Tensor) else len(row.inputs) == 1
