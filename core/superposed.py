"""Superposed Decoding: k drafts out of one forward pass per token (Shen et al., arXiv 2405.18400).

The model is fed one mixed embedding per step, the average of the drafts' latest tokens weighted by the drafts'
probabilities (eqs. 3-4), and the k drafts are read out of the one distribution it returns. Three things are ours and
can be switched off:

* *distinct*: each draft is a lineage of its own and is kept alive;
* *forks*: the drafts part where the probability is (`core.drafting.forks`), not all at their first token;
* *exact steps*: for r tokens after it has parted, each draft's own token runs beside the superposed row, in one batch.

`distinct=False, forks=0, exact_steps=0, mixing="geometric"` is the paper's method.

Knows ids and logits; nothing of text, files or widgets. Shapes: V vocabulary, D width, d drafts, m candidates.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Iterator
from collections.abc import Sequence as Ids
from typing import Any

import numpy as np
import torch
from torch import Tensor

from core.drafting.beginnings import beginnings
from core.drafting.candidates import Candidates
from core.drafting.drafts import Draft, Drafts, Kept, Options, snapshot
from core.drafting.driver import Drafting, grown
from core.drafting.forks import Continuations
from core.drafting.rows import first_drafts, forked_drafts, worth_keeping
from core.models.base import LanguageModel, Row, Sequence
from core.options import DEFAULT

MAJORITY = 0.5  # of the mixture's weight: what is read out of it is then mostly this draft's

Mix = Callable[[Tensor, list[int], np.ndarray], Tensor]  # (V, D), ids (d,), gamma (d,) -> the inputs of a row


def mixed_embedding(embeddings: Tensor, ids: list[int], gamma: np.ndarray) -> Tensor:
    """The superposed embedding (1, D): Σ γ_i z(id_i), eq. 3."""
    return torch.from_numpy(gamma.astype(np.float32)[None] @ embeddings.numpy()[ids])


def superposed(
    logits: list[Tensor],
    sequence: Sequence,
    prefix_ids: list[int],
    options: Options,
    word_ids: Iterable[int] = (),
    starts: list[np.ndarray] | None = None,
    kept: Ids[Kept] = (),
    score: Candidates | None = None,
    mix: Mix = mixed_embedding,
) -> Drafting:
    """Algorithm 1 for one prefix: yields the rows of the next pass and the drafts so far, and is sent their logits.

    Args:
        logits: (V,) after the prefix, then after each of the first tokens of the word, as many as are known.
        sequence: holds the prefix, and the tokens of the word whose logits are given; afterwards the prefix alone.
        word_ids: tokens of a half-typed word. Drafts may begin after the first n of them, with a token of `starts[n]`.
        kept: rows of an earlier request that stay where they are.
        score, mix: how tokens are scored and embeddings mixed, where that is done on a device.
    """
    o, word, prefix, floor = options, list(word_ids), list(prefix_ids), len(prefix_ids)
    score, embeddings, pieces = score or Candidates(o), sequence.model.embeddings, sequence.model.tokenizer.pieces
    stop = sequence.model.tokenizer.eos_ids if o.stop_ids is None else o.stop_ids
    starts = [np.asarray(o.first_ids)] if starts is None and o.first_ids is not None else starts
    random = np.random.default_rng(o.seed)
    settled_on = Draft([], [], 0)  # what resets have made text
    drafts: list[Draft] = []  # best first
    finished: list[Draft] = []
    step = 0

    def so_far(**state: bool) -> Drafts:
        return snapshot(drafts, finished, settled_on, o, step=step, **{"done": False, "settled": True, **state})

    try:
        while True:  # once, or once for every reset
            # 1. The first token: one pass gives the beginnings of all drafts (eq. 1).
            step += 1
            found = beginnings(logits, prefix, score, pieces, word, starts, [row.ids for row in kept])
            tree = Continuations(found, pieces, stop)
            kept = worth_keeping(tree, o, kept)
            parting = bool(o.forks and o.distinct and len(kept) < o.k)
            drafts, over = first_drafts(tree, o, kept, fill=not (parting and kept))
            finished = best_of(finished + over, o.k)

            # 2. Forks: each pass expands the likeliest node of the tree; then the best k paths become the drafts.
            if parting:
                for _ in range(o.forks):
                    node = tree.unexpanded(o.length - len(settled_on.ids))
                    if node is None:
                        break
                    (after,) = yield [row_of(sequence, prefix, node.ids)], so_far(settled=False)
                    step += 1
                    tree.expand(node, *score.scored(after, prefix + node.ids))
                kept = worth_keeping(tree, o, kept)
                drafts = forked_drafts(tree, o, drafts, kept)
                finished = [d for d in drafts if d.ended]

            # 3. The drafts grow: each by its own best token (distinct), or the best k of d × m (eq. 2).
            length, fed = o.length - len(settled_on.ids), 0  # fed: superposed positions in the cache
            while growing := [d for d in drafts if not d.ended and not d.rests and d.tokens < length]:
                at = min(d.tokens for d in growing)
                due = [d for d in growing if d.tokens == at]  # the others know this token already, and wait for it
                exact = [d for d in due if at < d.stem + o.exact_steps]
                for draft in drafts:
                    if draft not in exact:
                        draft.close()
                rows = [own_row(d, sequence, prefix) for d in exact]
                if any(d.stem + o.exact_steps < length for d in growing):
                    # The superposed row begins where the best draft does, and follows one token behind the drafts.
                    before = begun(sequence, prefix, growing[0]) if not fed else []
                    mixed = mixtures(growing, range(fed, at), embeddings, mix if not before else mixed_embedding)
                    inputs = torch.cat([*before, *mixed])
                    rows.insert(0, Row(sequence, inputs, silent=len(exact) == len(due)))
                    fed = at
                logits = yield rows, so_far()
                step += 1
                drafts, over = grow(drafts, growing, exact, logits, prefix, score, stop, pieces)
                finished = best_of(finished + over, o.k)
                if at + 1 == o.reset_every:
                    break

            # 4. Done; or a reset (section 5.3): one draft, drawn by its probability, becomes text.
            alive = [d for d in drafts if not d.ended and d.tokens < length]
            if not o.reset_every or not alive:
                break
            drawn = alive[random.choice(len(alive), p=normalised([d.logprob for d in alive]))]
            latest = so_far()
            for draft in drafts:
                draft.close()
            drafts = []
            sequence.rewind(len(prefix))
            settled_on = Draft(
                settled_on.ids + drawn.ids,
                [settled_on.logprob + drawn.logprob],
                0,
                personal=settled_on.personal + drawn.personal,
            )
            prefix, word, starts, kept = prefix + drawn.ids, [], None, ()
            logits = yield [Row(sequence, drawn.ids)], latest
        yield [], so_far(done=True)
    finally:
        for draft in drafts:
            draft.close()
        if sequence.length > floor:
            sequence.rewind(floor)


def mixtures(growing: list[Draft], places: range, embeddings: Tensor, mix: Mix) -> list[Tensor]:
    """What the superposed row holds at some places: the drafts' tokens there, weighted by γ_i = p_i / Σ p_j (eq. 4)."""
    if len(places) > 1:
        mix = mixed_embedding
    return [
        mix(embeddings, [d.ids[d.start + i] for d in growing], normalised([d.totals[i] for d in growing]))
        for i in places
    ]


def grow(
    drafts: list[Draft],
    growing: list[Draft],
    exact: list[Draft],
    logits: list[Tensor],
    prefix: list[int],
    score: Candidates,
    stop: frozenset[int],
    pieces: Ids[bytes],
) -> tuple[list[Draft], list[Draft]]:
    """One more token for the shortest of the growing drafts; returns all drafts, and those that met a stop token.

    Args:
        growing: what the mixture is made of. exact: those of the shortest with logits of their own.
        logits: of the superposed row, if there was one, then of each exact draft.
    """
    o, at = score.options, min(d.tokens for d in growing)
    gamma = dict(zip(growing, normalised([d.totals[at - 1] for d in growing]), strict=True))
    after: dict[Draft, tuple[np.ndarray, np.ndarray, np.ndarray]] = {}  # ids, scores, scores without personal stores
    shared = [d for d in growing if d.tokens == at and d not in exact]
    if exact:
        own = logits[len(logits) - len(exact) :]
        after |= zip(exact, zip(*score.apart(own, [prefix + d.ids for d in exact]), strict=True), strict=True)
    if shared:
        found = score.shared(logits[0], [prefix + d.ids for d in shared])
        after |= zip(shared, zip(*found, strict=True), strict=True)

    def child(draft: Draft, c: int) -> Draft:
        ids, scores, without = after[draft]
        token = int(ids[c])
        # Only where each lineage takes its own best is there one token that would stand here otherwise.
        personal = o.distinct and int(np.argmax(without)) != c
        own = draft in exact or gamma[draft] >= MAJORITY or score.known([*(prefix + draft.ids)[-2:], token])
        grown = draft.child(token, draft.logprob + float(scores[c]), personal, own)
        grown.ended = token in stop
        return grown

    if o.distinct:  # each lineage goes on with its own best token
        over: list[Draft] = []
        for i, draft in enumerate(drafts):
            if draft not in after:
                continue
            ids, scores, _ = after[draft]
            c = int(scores.argmax()) if len(scores) else -1
            if c < 0 or not np.isfinite(scores[c]):  # everything was ruled out
                draft.ended = True
            elif np.exp(scores[c]) < o.end_below and begins_word(pieces[ids[c]]):
                draft.rests = True  # going on is likelier wrong than right
            else:
                drafts[i] = child(draft, c)
                drafts[i].sequence, draft.sequence = draft.sequence, None
                over += [drafts[i]] if drafts[i].ended else []
        if not o.forks:
            drafts.sort(key=lambda d: -d.logprob)
        return drafts, over

    # The best 2k of d × m hypotheses (eq. 2), so that k remain when some of them end.
    totals = [(draft.logprob + float(s), n, c) for n, draft in enumerate(after) for c, s in enumerate(after[draft][1])]
    best = sorted((t for t in totals if np.isfinite(t[0])), key=lambda t: (-t[0], t[1], t[2]))[: 2 * o.k]
    parents = list(after)
    children = [(parents[n], child(parents[n], c)) for _, n, c in best]
    alive = [(parent, one) for parent, one in children if not one.ended][: o.k]
    if not children:  # everything was ruled out: what stood stays, and the drafts end here
        for draft in growing:
            draft.ended = True
        return drafts, []
    for parent, one in alive:  # a parent's own sequence goes to its first child; later ones make theirs anew
        one.sequence, parent.sequence = parent.sequence, None
    for draft in growing:
        draft.close()
    return [one for _, one in alive], [one for _, one in children if one.ended]


def row_of(sequence: Sequence, prefix: list[int], ids: list[int]) -> Row:
    """Lets a sequence that holds the prefix hold `ids` after it: keeps what they share, feeds the rest."""
    at = len(prefix)
    last = min(sequence.length, len(prefix) + len(ids) - 1)
    while at < last and sequence.inputs[at] == ids[at - len(prefix)]:
        at += 1
    sequence.rewind(at)
    return Row(sequence, ids[at - len(prefix) :])


def own_row(draft: Draft, sequence: Sequence, prefix: list[int]) -> Row:
    """The row of a draft's own latest token, on a sequence of its own."""
    if draft.sequence is None:
        draft.sequence = sequence.fork()
    return row_of(draft.sequence, prefix, draft.ids)


def begun(sequence: Sequence, prefix: list[int], best: Draft) -> list[Tensor]:
    """Rewinds to the beginning of the best draft; embeddings (n, D) of the word's tokens before it that are missing."""
    if not best.start:
        sequence.rewind(len(prefix))
        return []
    missing = row_of(sequence, prefix, best.ids[: best.start + 1]).inputs
    return [sequence.model.embeddings[torch.tensor(missing[:-1])]] if len(missing) > 1 else []


def begins_word(piece: bytes) -> bool:
    """Whether a token leaves the word before it whole."""
    return not piece[:1].isalnum() and piece[:1] < b"\x80"


def best_of(finished: list[Draft], k: int) -> list[Draft]:
    return sorted(finished, key=lambda d: -d.logprob)[:k]


def normalised(logprobs: Ids[float]) -> np.ndarray:
    """Probabilities (n,) that sum to 1, from natural logarithms."""
    x = np.array(logprobs)
    return np.exp(x - np.logaddexp.reduce(x))


def superpose(
    model: LanguageModel,
    prefix_ids: list[int],
    k: int = DEFAULT["k"],
    length: int = DEFAULT["length"],
    *,
    sequence: Sequence | None = None,
    **options: Any,
) -> Generator[Drafts, None, None]:
    """Grow k drafts after `prefix_ids`; yields all of them after every pass and may be stopped at any.

    Args:
        k, length: number of drafts, tokens per draft.
        sequence: one that may hold part of the prefix already; it holds the prefix, and nothing else, afterwards.
        ngrams: a store, several as [(store, factor), …], or an `Interpolation`; None for the model alone.
        mixing, alpha, penalty: how a store is mixed in: "linear" (ours) or "geometric" (eqs. 5-7, δ = e^-penalty).
        tau: temperature τ, divides the logits before everything else but `rule`.
        candidates: tokens considered per step, the same for all drafts; None means 3k, as the authors have it.
        rule: crops the logits, as a transformers LogitsProcessor.
        distinct: each draft is a lineage of its own, kept alive. False: the paper's top k of d × m.
        forks: passes spent on finding where the drafts part; 0: all part at their first token.
        exact_steps: r steps after that in which each draft's own token runs through the model as well.
        end_below: a draft ends before a word whose first token is less probable than this; 0: at `length` alone.
        min_branch: no draft parts from the others with less probability than this, unless there is no other.
        stop_ids: tokens that end a draft; None means the tokenizer's ends of text.
        first_ids: the only tokens a draft may begin with (token healing); probabilities are given that.
        reset_every, seed: section 5.3's resets every s steps; the draw is seeded.
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
    k: int = DEFAULT["k"],
    length: int = DEFAULT["length"],
    *,
    sequences: list[Sequence] | None = None,
    **options: Any,
) -> Iterator[list[Drafts]]:
    """`superpose` for several prefixes, all of them in one pass per step; yields the drafts of each."""
    made = Options(k=k, length=length, **options)
    return grown(model, list(prefixes), lambda s, ids: lambda logits: superposed(logits, s, ids, made), sequences)
