"""Caches logits that earlier requests of the session have computed, and omits rows that would compute them again.

While a word is typed, the drafts of consecutive keys branch at mostly the same tokens. The logits after the same tokens
are the same.
"""

from __future__ import annotations

from collections import OrderedDict

from torch import Tensor

from core.drafting.driver import Drafting
from core.models.base import Row

BYTES = 4 << 20  # of cached logits per session: 21 positions of the default model


class KnownLogits:
    """The latest logits of a session, by all tokens before them."""

    def __init__(self, most: int = BYTES) -> None:
        self._most, self._bytes = most, 0
        self._logits: OrderedDict[tuple[int, ...], Tensor] = OrderedDict()

    def after(self, ids: tuple[int, ...]) -> Tensor | None:
        """The logits (V,) after these tokens; None if they are not cached."""
        logits = self._logits.get(ids)
        if logits is not None:
            self._logits.move_to_end(ids)
        return logits

    def keep(self, ids: tuple[int, ...], logits: Tensor) -> None:
        """Caches a copy, and drops the least recently used ones if there is too little room."""
        if (old := self._logits.pop(ids, None)) is not None:
            self._bytes -= old.nbytes
        self._logits[ids] = logits.clone()  # a pass returns views of one block
        self._bytes += logits.nbytes
        while self._bytes > self._most:
            _, oldest = self._logits.popitem(last=False)
            self._bytes -= oldest.nbytes


def reuse_logits(drafting: Drafting, known: KnownLogits) -> Drafting:
    """Yields the same drafts, without the rows whose logits are cached.

    Only for generators that feed whole paths (`core.drafting.feeding`): a sequence whose row was omitted lacks the
    row's tokens, and the next row feeds them too.
    """
    try:
        rows, drafts = next(drafting)
        while rows:
            paths = [_path(row) for row in rows]
            cached = [None if path is None else known.after(path) for path in paths]
            missing = [row for row, logits in zip(rows, cached, strict=True) if logits is None]
            computed = iter((yield missing, drafts) if missing else [])
            after: list[Tensor] = []
            for path, logits in zip(paths, cached, strict=True):
                if logits is None:
                    logits = next(computed)
                    if path is not None:
                        known.keep(path, logits)
                after.append(logits)
            rows, drafts = drafting.send(after)
        yield [], drafts
    finally:
        drafting.close()


def _path(row: Row) -> tuple[int, ...] | None:
    """All tokens before the row's logits; None for a row of embeddings, or one that requests other logits than the
    last."""
    fed = row.sequence.inputs
    if isinstance(row.inputs, Tensor) or row.every or row.silent or row.parents is not None or None in fed:
        return None
    return (*fed, *row.inputs)  # pyright: ignore[reportReturnType] no None among them
