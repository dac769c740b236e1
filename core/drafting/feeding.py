"""Rows that feed a draft to a sequence: the sequence keeps the common prefix, and the row feeds the rest."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager

from torch import Tensor

from core.drafting.drafts import Draft
from core.models.base import Row, Sequence, as_embeddings


def prepare_row(sequence: Sequence, prefix: list[int], ids: list[int]) -> Row:
    """The row after whose pass the sequence contains the prefix and then `ids`. The last id is always fed.

    The sequence contains the prefix, or its beginning where the passes over the rest were omitted
    (`core.drafting.reuse`).
    """
    at = min(sequence.length, len(prefix))
    last = min(sequence.length, len(prefix) + len(ids) - 1)
    while at < last and sequence.inputs[at] == ids[at - len(prefix)]:
        at += 1
    sequence.rewind(at)
    return Row(sequence, prefix[at:] + ids[max(at - len(prefix), 0) :])


@contextmanager
def open_forks(sequence: Sequence, n: int) -> Iterator[list[Sequence]]:
    """Forks a sequence for n rows of one pass: gives the sequence and n - 1 forks of it, and closes the forks
    afterwards."""
    with ExitStack() as stack:
        yield [sequence, *(stack.enter_context(closing(sequence.fork())) for _ in range(n - 1))]


def prepare_own_row(draft: Draft, sequence: Sequence, prefix: list[int]) -> Row:
    """The row that feeds a draft's latest token to the draft's own sequence, which the first call forks."""
    if draft.sequence is None:
        draft.sequence = sequence.fork()
    return prepare_row(draft.sequence, prefix, draft.ids)


def rewind_before_mixtures(sequence: Sequence, prefix: list[int], best: Draft) -> list[Tensor]:
    """Rewinds to the position where the best draft begins. Returns the embeddings (n, D) of the tokens before it that
    the sequence does not contain, as those of a half-typed word."""
    missing = prepare_row(sequence, prefix, best.ids[: best.start + 1]).inputs
    return [as_embeddings(sequence.model, missing[:-1])] if len(missing) > 1 else []
