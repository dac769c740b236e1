"""Superposed Decoding on a static cache: of the logits, only the candidates leave the device.

The drafts are those of `core.superposed`, and so is the bookkeeping; what differs is what goes back and forth at each
step. To the device go each draft's latest token and its weight, from which the mixed embedding is made there
(eqs. 3-4); from it come the m likeliest tokens with their logits, and the normaliser. One synchronisation per step,
however many people type.

Two options need all logits and are refused here: a truncation `rule`, and candidates that a personal store proposes.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from torch import Tensor

from core.errors import InputError
from core.models.base import Row, Sequence
from core.models.static import StaticModel, StaticSequence
from core.superposed import LEAST, Drafts, Options, Superposition, _normalised, grown


class _OnDevice(Superposition):
    """A `Superposition` whose logits, after the first step, are candidates: (2m + 1,) logits, ids, normaliser."""

    def _superpose(self, alive: list[Any]) -> Tensor:
        """The mixture itself, not its embedding: (2, d) ids and weights."""
        gamma = _normalised(np.array([draft.logprob for draft in alive]))  # eq. 4
        return torch.from_numpy(np.stack([[draft.ids[-1] for draft in alive], gamma]))

    def _candidates(self, logits: Tensor, contexts: list[list[int]]) -> tuple[np.ndarray, np.ndarray]:
        if len(logits) != 2 * self._m + 1:
            return super()._candidates(logits, contexts)
        m, found = self._m, logits.numpy().astype(np.float64)
        q = found[:m] - found[2 * m]
        keep = q > LEAST
        tokens, q = found[m : 2 * m][keep].astype(np.int64), q[keep]
        if not self.options.distinct and len(q):
            q = q - np.logaddexp.reduce(q)
        return tokens, q


def superpose_static(
    model: StaticModel,
    prefixes: list[list[int]],
    k: int = 3,
    length: int = 10,
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
    m = made.candidates or 3 * k
    return grown(model, prefixes, made, sequences, _OnDevice, lambda rows: _step(model, rows, m, made.tau))


def _step(model: StaticModel, rows: list[Row], m: int, tau: float) -> list[Tensor]:
    """Candidates (2m + 1,) after each row, a mixture or a draft's own token."""
    sequences = [row.sequence for row in rows if isinstance(row.sequence, StaticSequence)]
    mixtures = [
        (row.inputs[0].long().tolist(), row.inputs[1].tolist())
        if isinstance(row.inputs, Tensor)
        else (row.inputs, [1.0])
        for row in rows
    ]
    found = model.step(sequences, mixtures, m, tau)
    return list(torch.cat([found.logits, found.ids.float(), found.totals[:, None]], 1))
