"""Beam search: the k texts of highest Σ log-probability, n-grams mixed in, each in a separate row.

An ended text remains while it is among the k best. A continued text keeps its lineage; if two texts continue the same
one, the more probable one keeps it.
"""

from __future__ import annotations

from itertools import count

import numpy as np
import torch
from torch import Tensor

from core.drafting.boundaries import Boundaries
from core.drafting.candidates import crop_logits
from core.drafting.drafts import Draft, Drafts, Options, end_stopped
from core.drafting.driver import Drafting
from core.drafting.feeding import prepare_own_row
from core.drafting.record import Record
from core.models.base import Sequence
from core.ngram.interpolation import Interpolation


def beam(
    logits: list[Tensor],
    sequence: Sequence,
    prefix_ids: list[int],
    options: Options,
    boundaries: Boundaries,
    record: Record | None = None,
) -> Drafting:
    """k drafts of `length` tokens each. The arguments are those of `core.superposed.superposed`."""
    o, prefix, stop = options, list(prefix_ids), options.stops(sequence.model)
    ngrams, at = o.interpolation(prefix), boundaries.likeliest(logits)
    stem = boundaries.word[:at]
    tokens, scores = _scored(o, ngrams, logits[at], prefix + stem, boundaries.allowed(at), record)
    best = np.argsort(-scores, kind="stable")[: o.k]
    drafts = [Draft.begun([*stem, int(tokens[i])], float(scores[i]), n, at) for n, i in enumerate(best)]
    try:
        for step in count(1):
            alive = end_stopped(drafts, stop)
            if step >= o.length or not alive:
                yield [], Drafts.of(drafts, step, done=True)
                return
            logits = yield [prepare_own_row(draft, sequence, prefix) for draft in alive], Drafts.of(drafts, step)
            # (score, parent, token); an ended text is its own continuation
            extended: list[tuple[float, Draft, int | None]] = [(d.logprob, d, None) for d in drafts if d.ended]
            for draft, row in zip(alive, logits, strict=True):
                tokens, scores = _scored(o, ngrams, row, prefix + draft.ids, record=record)
                extended += [(draft.logprob + float(s), draft, int(t)) for s, t in zip(scores, tokens, strict=True)]
            extended.sort(key=lambda scored: -scored[0])
            del extended[o.k :]
            if any(token is not None for _, _, token in extended):
                drafts = _children(extended, alive, o.k)
            else:  # no token is possible, or the ended texts are more probable
                for draft in alive:
                    draft.ended = True
    finally:
        for draft in drafts:
            draft.close()


def _children(extended: list[tuple[float, Draft, int | None]], alive: list[Draft], k: int) -> list[Draft]:
    """The drafts of the next step. The most probable child of a parent inherits its sequence; the others fork it."""
    lineages = {parent: parent.slot for _, parent, _ in extended}
    free = [n for n in range(k) if n not in lineages.values()]
    grown = []
    for score, parent, token in extended:
        if token is None:
            grown.append(parent)
            continue
        first = parent in lineages
        child = parent.child(token, score, slot=lineages.pop(parent) if first else free.pop(0))
        child.sequence = parent.sequence if first or parent.sequence is None else parent.sequence.fork()
        grown.append(child)
    continued = {parent for _, parent, _ in extended}
    for draft in alive:
        if draft in continued:
            draft.sequence = None
        draft.close()
    return grown


def _scored(
    o: Options,
    ngrams: Interpolation | None,
    logits: Tensor,
    context: list[int],
    allowed: np.ndarray | None = None,
    record: Record | None = None,
) -> tuple[np.ndarray, np.ndarray]:
    """The most probable candidates (m,) and their log-probabilities (m,), n-grams mixed in; impossible ones are
    omitted."""
    row = crop_logits(o, logits[None], [context], allowed)[0]
    top, tokens = torch.topk(row, min(o.m, len(row)))
    alive = (top > -torch.inf).numpy()
    tokens = tokens.numpy()[alive]
    logq = scores = (top - torch.logsumexp(row, 0)).double().numpy()[alive]
    if ngrams is not None and len(tokens):
        scores = ngrams.scores(logq[None], [context], tokens)[0]
    if record is not None:
        kept = [] if o.rule is None else [int(torch.isfinite(row).sum())]
        record.score([context], [logits], tokens, logq[None], scores[None], ngrams=ngrams, kept=kept)
    return tokens[np.isfinite(scores)], scores[np.isfinite(scores)]
