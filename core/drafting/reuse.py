"""Logits that an earlier request of the session has computed: a pass that would compute them again is left out.

While a word is typed, the drafts of one key part at much the same places as those of the key before. The tokens of such
a place are the same, so its logits are too.
"""

from __future__ import annotations

from collections import OrderedDict

from torch import Tensor

from core.drafting.driver import Drafting
from core.models.base import Row

BYTES = 4 << 20  # of logits that a session keeps: 21 places of the default model


class KnownLogits:
    """The latest logits of a session, each with the tokens from the start of the text that they follow."""

    def __init__(self, most: int = BYTES) -> None:
        self._most, self._held = most, 0
        self._logits: OrderedDict[tuple[int, ...], Tensor] = OrderedDict()

    def after(self, ids: tuple[int, ...]) -> Tensor | None:
        """The logits (V,) after these tokens; None where they are not known."""
        found = self._logits.get(ids)
        if found is not None:
            self._logits.move_to_end(ids)
        return found

    def keep(self, ids: tuple[int, ...], logits: Tensor) -> None:
        """Keep a copy; those that were used longest ago make room."""
        if (old := self._logits.pop(ids, None)) is not None:
            self._held -= old.nbytes
        self._logits[ids] = logits.clone()  # a pass returns views of one block
        self._held += logits.nbytes
        while self._held > self._most:
            _, oldest = self._logits.popitem(last=False)
            self._held -= oldest.nbytes


def reusing(drafting: Drafting, known: KnownLogits) -> Drafting:
    """The same drafts, without the rows of tokens whose logits are known.

    For ways of drafting that feed whole paths (`core.drafting.feeding`): a sequence whose row was left out does not
    hold the row's tokens, and is fed them with the next ones.
    """
    try:
        rows, drafts = next(drafting)
        while rows:
            paths = [_path(row) for row in rows]
            found = [None if path is None else known.after(path) for path in paths]
            missing = [row for row, logits in zip(rows, found, strict=True) if logits is None]
            computed = iter((yield missing, drafts) if missing else [])
            after: list[Tensor] = []
            for path, logits in zip(paths, found, strict=True):
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
    """All tokens that the row's logits follow; None for a row of embeddings, or one of other logits than the last."""
    held = row.sequence.inputs
    if isinstance(row.inputs, Tensor) or row.every or row.silent or row.parents is not None or None in held:
        return None
    return (*held, *row.inputs)  # pyright: ignore[reportReturnType] no None among them
