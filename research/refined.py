"""Superposed drafts that one or several checks correct, also by another model than the one that drafted."""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import dataclass
from typing import Any

from core.drafting.drafts import Options
from core.drafting.verifier import Verifier
from core.models.base import LanguageModel, Sequence
from core.modes.checked import NODES, CheckedRow, check
from core.options import LIBRARY
from core.superposed import superpose


@dataclass(frozen=True)
class Refined:
    """Drafts in the order of their rows, which is constant.

    Attributes:
        ids: of each draft.
        logprobs: Σ ln p of each draft's tokens: the target's for checked tokens, the drafter's for the others.
        sure: the number of leading tokens of each that are the target's, n-grams mixed in.
        changed: the index of each draft's first token that differs from the one shown before; its length if none does.
        checked: whether the target has checked these drafts; False while they are superposed.
        fed: tokens of the tree that the check fed to the target.
    """

    ids: list[list[int]]
    logprobs: list[float]
    sure: list[int]
    changed: list[int]
    checked: bool
    fed: int = 0


def refine(sequence: Sequence, prefix_ids: list[int], drafts: Refined, length: int, **options: Any) -> Refined:
    """One check of drafts.

    Args:
        sequence: of the model that drafts; it contains exactly the text afterwards.
        drafts: superposed ones, or the result of an earlier check. Rows keep their order.
        length: of every draft afterwards, unless it has ended.
        options: as for `check`.
    Raises: InputError for an empty text, models with different tokenizers; ContextFull.
    """
    rows: list[CheckedRow] = []
    for ids, logprob, sure in zip(drafts.ids, drafts.logprobs, drafts.sure, strict=True):
        evenly = [min(logprob, 0.0) / len(ids)] * len(ids)
        rows.append(CheckedRow(list(ids), evenly, max(1, min(sure, len(ids))), length, list(ids)))
    checking, fed = check(rows, sequence, prefix_ids, **options), 0
    try:
        needed = next(checking)
        while needed:
            fed += sum(len(row.inputs) for row in needed if row.parents is not None)
            needed = checking.send(needed[0].sequence.model.forward(needed))
    finally:
        checking.close()
    return Refined(
        [list(row.ids) for row in rows],
        [sum(row.logprobs) for row in rows],
        [row.sure for row in rows],
        [row.changed for row in rows],
        True,
        fed,
    )


def verified(
    model: LanguageModel,
    prefix_ids: list[int],
    k: int = LIBRARY.k,
    length: int = LIBRARY.length,
    *,
    sequence: Sequence | None = None,
    target: Sequence | None = None,
    first: int | None = None,
    rounds: int = 1,
    nodes: int = NODES,
    **options: Any,
) -> Generator[Refined, None, None]:
    """Superposed drafts, then refined ones: yields after every step of superposing, then after every round of checks.
    Rows keep the order of the last superposed step.

    Args:
        k, length, options: as for `superpose`.
        sequence: may contain part of the text; it contains exactly the text afterwards.
        target: a sequence of the model that checks; None is `model`.
        first: length of the superposed drafts; None for `length`. Shorter drafts are checked earlier and cheaper.
        rounds: number of checks. nodes: see `check`.
    Raises: as `superpose` and `refine`.
    """
    # No forks by default: the superposed drafts are short, and checks correct them anyway.
    superposing = {"forks": 0, **options}
    own = sequence is None
    drafter = model.open() if sequence is None else sequence
    o = Options(k=k, length=length, **superposing)
    try:
        latest = Refined([], [], [], [], False)
        for drafts in superpose(model, prefix_ids, k, min(first or length, length), sequence=drafter, **superposing):
            sure = [min(o.exact_steps + 1, len(ids)) for ids in drafts.ids]
            changed = [len(ids) - 1 for ids in drafts.ids]
            latest = Refined(drafts.ids, drafts.logprobs, sure, changed, False)
            yield latest
        for _ in range(rounds):
            latest = refine(
                drafter,
                prefix_ids,
                latest,
                length,
                target=target,
                verifier=Verifier(o.interpolation(prefix_ids), o.m),
                nodes=nodes,
                stop_ids=o.stop_ids,
            )
            yield latest
    finally:
        if own:
            drafter.close()
