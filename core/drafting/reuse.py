"""Caches logits that earlier passes have computed, and omits rows that would compute them again.

While a word is typed, the drafts of consecutive keys branch at mostly the same tokens; and drafts that are made again
because one of them stepped back (`core.drafting.stepping_back`) repeat their passes up to there. The logits after the
same inputs are the same.
"""

from __future__ import annotations

from collections import OrderedDict

import torch
from torch import Tensor

from core.drafting.driver import Drafting
from core.models.base import Row, Sequence

BYTES = 4 << 20  # of cached logits per session: 21 positions of the default model
Path = tuple[int | bytes, ...]  # the inputs before the logits: tokens, and embeddings by their bytes


class KnownLogits:
    """The latest logits, by all inputs before them."""

    def __init__(self, most: int = BYTES) -> None:
        self._most, self._bytes = most, 0
        self._logits: OrderedDict[Path, Tensor] = OrderedDict()

    def after(self, path: Path) -> Tensor | None:
        """The logits (V,) after these inputs; None if they are not cached."""
        logits = self._logits.get(path)
        if logits is not None:
            self._logits.move_to_end(path)
        return logits

    def keep(self, path: Path, logits: Tensor) -> None:
        """Caches them, and drops the least recently used ones if there is too little room. Nobody may modify them."""
        if (old := self._logits.pop(path, None)) is not None:
            self._bytes -= old.nbytes
        if logits.untyped_storage().nbytes() > logits.nbytes:
            # It would keep the logits of all rows of its pass in memory. NumPy copies in this thread; threads of torch
            # would wait for a core.
            logits = torch.from_numpy(logits.numpy().copy())
        self._logits[path] = logits
        self._bytes += logits.nbytes
        while self._bytes > self._most:
            _, oldest = self._logits.popitem(last=False)
            self._bytes -= oldest.nbytes


def reuse_logits(drafting: Drafting, known: KnownLogits, mixed: bool = False, after: int = 0) -> Drafting:
    """Yields the same drafts, without the rows whose logits are cached.

    Only for generators that feed whole paths (`core.drafting.feeding`): a sequence whose row was omitted lacks the
    row's tokens, and the next row feeds them too.

    Args:
        mixed: whether superposed rows are omitted as well; the next superposed row then feeds their embeddings too.
        after: the number of tokens with which every sequence begins, if they are the same wherever `known` is used:
            the paths are then the inputs after them, which are few.
    """
    superposed: dict[Sequence, _Superposed] = {}
    try:
        rows, drafts = next(drafting)
        while rows:
            paths = [_path(row, superposed, after) if mixed else _tokens(row, after) for row in rows]
            cached = [None if path is None else known.after(path) for path in paths]
            missing = [
                superposed[row.sequence].whole(row) if row.sequence in superposed else row
                for row, logits in zip(rows, cached, strict=True)
                if logits is None
            ]
            computed = iter((yield missing, drafts) if missing else [])
            of_rows: list[Tensor] = []
            for row, path, logits in zip(rows, paths, cached, strict=True):
                if logits is None:
                    logits = next(computed)
                    if path is not None:
                        known.keep(path, logits)
                elif row.sequence in superposed:
                    superposed[row.sequence].omitted.append(torch.as_tensor(row.inputs))
                of_rows.append(logits)
            rows, drafts = drafting.send(of_rows)
        yield [], drafts
    finally:
        drafting.close()


class _Superposed:
    """The superposed positions of a sequence.

    Attributes:
        path: all inputs up to the latest of them.
        omitted: those (n, D) that are not in the sequence.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.omitted: list[Tensor] = []

    def whole(self, row: Row) -> Row:
        """The row with the omitted positions before its own."""
        inputs, self.omitted = torch.cat([*self.omitted, torch.as_tensor(row.inputs)]), []
        return Row(row.sequence, inputs)


def _path(row: Row, superposed: dict[Sequence, _Superposed], after: int) -> Path | None:
    """The inputs before the row's logits; None for a row that requests other logits than the last."""
    if not isinstance(row.inputs, Tensor):
        superposed.pop(row.sequence, None)  # rewound
        return _tokens(row, after)
    if row.sequence not in superposed:
        fed = row.sequence.inputs[after:]
        if None in fed:
            return None
        superposed[row.sequence] = _Superposed(tuple(fed))  # pyright: ignore[reportArgumentType] no None among them
    positions = superposed[row.sequence]
    positions.path = (*positions.path, row.inputs.numpy().tobytes())
    return positions.path


def _tokens(row: Row, after: int) -> Path | None:
    """The tokens before the row's logits; None for a row of embeddings, or one that requests other logits than the
    last."""
    if isinstance(row.inputs, Tensor) or row.every or row.silent or row.parents is not None:
        return None
    fed = row.sequence.inputs[after:]
    if None in fed:
        return None
    return (*fed, *row.inputs)  # pyright: ignore[reportReturnType] no None among them
