"""Superposed Decoding: k drafts from one forward pass per token (Shen et al., arXiv 2405.18400).

At each step the model receives one mixed embedding: the average of the drafts' latest tokens, weighted by the drafts'
probabilities (eqs. 3-4). The k drafts are continued from the one distribution that it returns. Three extensions are
ours and can be switched off:

* *distinct*: each draft is a separate lineage, continued at every step;
* *forks*: the drafts branch where the expected match is largest (`core.drafting.forks`), not all at their first token;
* *exact steps*: for r tokens after a draft has branched, its own token runs beside the superposed row, in one batch.

`distinct=False, forks=0, exact_steps=0, mixing="geometric"` is the paper's method.

This module handles ids and logits, no text, files or widgets. Shapes: V vocabulary, D width, d drafts, m candidates.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable, Iterator
from collections.abc import Sequence as Ids
from typing import Any

import numpy as np
import torch
from torch import Tensor

from core.drafting.beginnings import find_beginnings
from core.drafting.boundaries import Boundaries
from core.drafting.drafts import Draft, Drafts, Kept, Options, best_of
from core.drafting.driver import Drafting, draft_all
from core.drafting.feeding import open_forks, prepare_own_row, prepare_row, rewind_before_mixtures
from core.drafting.forks import Continuations
from core.drafting.growth import Growth
from core.drafting.record import Record
from core.drafting.recorded import candidates_of
from core.drafting.rows import make_first_drafts, make_forked_drafts, select_kept
from core.models.base import LanguageModel, Row, Sequence
from core.options import LIBRARY

# Nodes that one pass expands. Two rows cost little more than one, and the second is nearly always worth expanding; a
# third one is often not.
TOGETHER = 2


def mixed_embedding(model: LanguageModel, ids: list[int], gamma: np.ndarray) -> Tensor:
    """The superposed embedding (1, D): Σ γ_i z(id_i), eq. 3."""
    return torch.from_numpy(gamma.astype(np.float32)[None] @ model.embedded(ids).numpy())


def weights(logprobs: Ids[float]) -> np.ndarray:
    """γ_i = p_i / Σ p_j (eq. 4), (d,), from the drafts' log-probabilities."""
    x = np.array(logprobs)
    return np.exp(x - np.logaddexp.reduce(x))


def superposed(
    logits: list[Tensor],
    sequence: Sequence,
    prefix_ids: list[int],
    options: Options,
    boundaries: Boundaries | None = None,
    kept: Ids[Kept] = (),
    record: Record | None = None,
) -> Drafting:
    """Algorithm 1 for one prefix: yields the rows of the next pass and the drafts so far, and receives their logits.

    Args:
        logits: (V,) after the prefix, then after each of the first tokens of a half-typed word, as far as they are
            known.
        sequence: contains the prefix, and the tokens of the word whose logits are given; afterwards only the prefix.
        boundaries: where the drafts may begin; None is after the prefix.
        kept: rows of an earlier request that keep their slots.
        record: of how each token is chosen, if the request asks for it.
    """
    o, prefix, floor = options, list(prefix_ids), len(prefix_ids)
    boundaries, candidates = boundaries or Boundaries.of(o), candidates_of(o, prefix, record)
    model, pieces = sequence.model, sequence.model.tokenizer.pieces
    stop = o.stops(sequence.model)
    random = np.random.default_rng(o.seed)
    settled_on = Draft([], [], 0)  # the drafts that resets have appended to the prefix
    drafts: list[Draft] = []  # best first
    finished: list[Draft] = []
    step = 0

    def so_far(done: bool = False, settled: bool = True) -> Drafts:
        return Drafts([d.after(settled_on) for d in drafts], step, done, settled, finished)

    def best_finished(over: list[Draft]) -> list[Draft]:
        return best_of(finished + [d.after(settled_on) for d in over], o.k)

    try:
        while True:  # one iteration, or one for each reset
            # 1. The first token: one pass gives the beginnings of all drafts (eq. 1).
            step, length = step + 1, min(o.length - settled_on.tokens, o.reset_every or o.length)
            starts = find_beginnings(logits, prefix, candidates, pieces, boundaries, [row.ids for row in kept])
            tree = Continuations(starts, pieces, stop)
            kept = select_kept(tree, o, kept)
            forking = o.forks > 0 and o.distinct and len(kept) < o.k
            drafts, over = make_first_drafts(tree, o, kept, fill=not (forking and kept))
            finished = best_finished(over)

            # 2. Forks: each pass expands the most probable nodes of the tree; then the best k paths become the drafts.
            if forking:
                for _ in range(o.forks):
                    nodes = tree.unexpanded(length, TOGETHER)
                    if not nodes:
                        break
                    with open_forks(sequence, len(nodes)) as forks:
                        rows = [prepare_row(fork, prefix, node.ids) for fork, node in zip(forks, nodes, strict=True)]
                        logits = yield rows, so_far(settled=False)
                    step += 1
                    for node, after in zip(nodes, logits, strict=True):
                        choices = candidates.score(after, prefix + node.ids)
                        tree.expand(node, choices.ids, choices.scores, choices.without)
                kept = select_kept(tree, o, kept)
                drafts = make_forked_drafts(tree, o, drafts, kept)

            # 3. Growth: each draft by its best token (distinct), or the best k of d × m (eq. 2). With forks the best
            # draft has a row of its own and is not in the mixture, so its logits do not depend on the other drafts; so
            # has one that the writer chose, which would have hardly any weight.
            best = next((d for d in drafts if not (d.ended or d.rests)), None) if o.distinct and o.forks else None
            apart = {d.slot for d in drafts if d is best or d.chosen}
            fed = 0  # superposed positions in the cache
            while growing := [d for d in drafts if not d.ended and not d.rests and d.tokens < length]:
                at = min(d.tokens for d in growing)
                due = [d for d in growing if d.tokens == at]  # the others are longer, and wait
                exact = [d for d in due if at < d.stem + o.exact_steps or d.slot in apart]
                mixed = [d for d in growing if d.slot not in apart]
                for draft in drafts:
                    if draft not in exact:
                        draft.close()
                rows = [prepare_own_row(d, sequence, prefix) for d in exact]
                if len(exact) < len(due):
                    # The superposed row begins where its first draft does, and feeds all tokens since its last pass.
                    before = rewind_before_mixtures(sequence, prefix, mixed[0]) if not fed else []
                    rows.insert(0, Row(sequence, torch.cat([*before, *mixtures(mixed, range(fed, at), model)])))
                    fed = at
                logits = yield rows, so_far()
                step += 1
                gamma = dict(zip(mixed, weights([d.totals[at - 1] for d in mixed]).tolist(), strict=True))
                growth = Growth(due, exact, logits, gamma, prefix, candidates, stop, pieces)
                if o.distinct:
                    drafts = best_of_each(drafts, growth, by_score=not o.forks)
                else:
                    drafts, over = best_hypotheses(drafts, growth, o.k)
                    finished = best_finished(over)

            # 4. End; or a reset (section 5.3), as `length` ends at the next one: one draft, sampled by its probability,
            # is appended to the prefix.
            alive = [d for d in drafts if not d.ended and not d.rests]
            # A reset replaces all drafts, so there is none while kept rows are shown.
            if not alive or kept or settled_on.tokens + length >= o.length:
                break
            drawn = alive[random.choice(len(alive), p=weights([d.logprob for d in alive]))]
            latest = so_far()
            for draft in drafts:
                draft.close()
            drafts, settled_on = [], drawn.after(settled_on)
            row = prepare_row(sequence, prefix, drawn.ids)
            prefix, boundaries, kept = prefix + drawn.ids, Boundaries(), ()
            logits = yield [row], latest
        yield [], so_far(done=True)
    finally:
        for draft in drafts:
            draft.close()
        if sequence.length > floor:
            sequence.rewind(floor)


def mixtures(growing: Ids[Draft], positions: range, model: LanguageModel) -> list[Tensor]:
    """The inputs of the superposed row at these positions: the drafts' tokens, mixed by eqs. 3-4."""
    tokens = [[d.ids[d.start + i] for d in growing] for i in positions]
    gammas = [weights([d.totals[i] for d in growing]) for i in positions]
    return [mixed_embedding(model, *both) for both in zip(tokens, gammas, strict=True)]


def best_of_each(drafts: list[Draft], growth: Growth, by_score: bool) -> list[Draft]:
    """Continues each draft with its best token; drafts that wait are unchanged."""
    drafts = list(drafts)
    for i, draft in enumerate(drafts):
        if draft not in growth.choices:
            continue
        best = growth.choices[draft].best
        if best is None:  # no token is possible
            draft.ended = True
        elif growth.begins_unlikely_word(draft, best):
            draft.rests = True
        else:
            drafts[i] = growth.child(draft, best)
            drafts[i].sequence, draft.sequence = draft.sequence, None
    return sorted(drafts, key=lambda d: -d.logprob) if by_score else drafts


def best_hypotheses(drafts: list[Draft], growth: Growth, k: int) -> tuple[list[Draft], list[Draft]]:
    """The best k of d × m hypotheses (eq. 2), and separately those that reached a stop token."""
    totals = [
        (draft.logprob + float(s), n, c)
        for n, (draft, choices) in enumerate(growth.choices.items())
        for c, s in enumerate(choices.scores)
    ]
    parents = list(growth.choices)
    best = sorted((t for t in totals if np.isfinite(t[0])), key=lambda t: (-t[0], t[1], t[2]))[: 2 * k]
    children = [(parents[n], growth.child(parents[n], c)) for _, n, c in best]
    if not children:  # no token is possible: the drafts end here
        for draft in parents:
            draft.ended = True
        return drafts, []
    alive = [(parent, child) for parent, child in children if not child.ended][:k]
    for parent, child in alive:  # the first child inherits its parent's sequence; the others fork one later
        child.sequence, parent.sequence = parent.sequence, None
    for draft in parents:
        draft.close()
    return [child for _, child in alive], [child for _, child in children if child.ended]


def superpose(
    model: LanguageModel,
    prefix_ids: list[int],
    k: int = LIBRARY.k,
    length: int = LIBRARY.length,
    *,
    sequence: Sequence | None = None,
    **options: Any,
) -> Generator[Drafts, None, None]:
    """Computes k drafts after `prefix_ids`; yields all of them after every pass, and may be closed at any.

    Args:
        k, length: number of drafts, tokens per draft.
        sequence: may contain part of the prefix; afterwards it contains exactly the prefix.
        options: fields of `core.drafting.drafts.Options`.
    Raises: InputError for an empty prefix or a value out of range; ContextFull.
    """
    batch = [prefix_ids]
    for drafts in superpose_batch(
        model, batch, k, length, sequences=None if sequence is None else [sequence], **options
    ):
        yield drafts[0]


def superpose_batch(
    model: LanguageModel,
    prefixes: Iterable[list[int]],
    k: int = LIBRARY.k,
    length: int = LIBRARY.length,
    *,
    sequences: list[Sequence] | None = None,
    **options: Any,
) -> Iterator[list[Drafts]]:
    """`superpose` for several prefixes, with one pass per step for all; yields the drafts of each."""
    o = Options(k=k, length=length, **options)
    return draft_all(model, list(prefixes), lambda s, ids: lambda logits: superposed(logits, s, ids, o), sequences)
