"""Checked drafts: one tree pass verifies superposed drafts, the target's token replaces the first that fails, and new
tokens are superposed from there. The order of the rows stays.

Superposed drafts drift: after a token or two they differ from the tokens that the model would choose after the same
beginning. A check has a budget of tokens, and spends it on the most probable ones. The target is the model that
drafted, or a larger one with the same tokenizer.

`tails_checked` only cuts: a draft ends before the first token that the model finds implausible after its own text.

Shapes: V vocabulary, D width, n tokens of a tree.
"""

from __future__ import annotations

import math
from collections.abc import Generator
from collections.abc import Sequence as Ids
from dataclasses import dataclass, field, replace
from itertools import accumulate

import numpy as np
import torch
from torch import Tensor

from core.drafting.candidates import log_total
from core.drafting.drafts import Draft, Drafts, Options
from core.drafting.driver import Drafting, finish
from core.drafting.growth import begins_word
from core.drafting.record import Record
from core.drafting.scored import score_paths
from core.drafting.verifier import Verifier
from core.errors import InputError
from core.models.base import Row, Sequence
from core.speculative.tree import TokenTree
from core.superposed import mixed_embedding, weights

NODES = 16  # tokens of the tree of one check
IMPLAUSIBLE = 0.01  # probability of a token before which a draft is cut


def checked(
    drafting: Drafting,
    sequence: Sequence,
    prefix_ids: list[int],
    options: Options,
    nodes: int,
    record: Record | None = None,
) -> Drafting:
    """Runs `drafting` to its end, then one check of its drafts with at most `nodes` tokens. Tokens that pass stay in
    the record as they were drafted."""
    drafts = yield from finish(drafting)
    if not drafts.ids:
        yield [], drafts
        return
    open_rows = _rows(drafts)
    verifier = Verifier(options.interpolation(prefix_ids), options.m, options.stepped_back)
    stop = options.stops(sequence.model)
    checking = check(open_rows, sequence, prefix_ids, verifier=verifier, nodes=nodes, stop_ids=stop, record=record)
    waiting = replace(drafts, done=False, checked=True)
    try:
        rows = next(checking)
        while rows:
            logits = yield rows, waiting
            rows = checking.send(logits)
    finally:
        checking.close()
    corrected = [_corrected(d, row, stop) for d, row in zip(drafts.drafts, open_rows, strict=True)]
    yield [], replace(waiting, drafts=corrected, done=True)


def _corrected(draft: Draft, row: CheckedRow, stop: frozenset[int]) -> Draft:
    changed, totals = row.changed, list(accumulate(row.logprobs))
    return replace(
        draft,
        ids=list(row.ids),
        totals=totals[min(draft.start, len(totals) - 1) :],
        own=max(row.sure, min(draft.own, changed)),
        exact=row.sure,
        personal=draft.personal[:changed] + [False] * (len(row.ids) - changed),
        ended=row.ids[-1] in stop,
    )


def tails_checked(drafting: Drafting, sequence: Sequence) -> Drafting:
    """Runs `drafting` to its end, then one pass over its superposed tokens, and cuts each draft before the first one to
    which the model gives less than `IMPLAUSIBLE` after the draft's own text. Tokens that a personal store decided stay:
    they are the writer's own, and often improbable for the model.

    Until then only the exact tokens of each draft count as its own, so that rows only grow.
    """
    drafts = yield from finish(drafting, _exact_alone)
    open_ended = [d for d in drafts.drafts if d.exact < len(d.ids)]
    if not open_ended:
        yield [], drafts
        return
    waiting = replace(_exact_alone(drafts), done=False)
    after = yield from _read_alone([d.ids[:-1] for d in open_ended], sequence, waiting)
    pieces = sequence.model.tokenizer.pieces
    cut = {d.slot: _cut(d, logits, pieces) for d, logits in zip(open_ended, after, strict=True)}
    yield [], replace(drafts, drafts=[cut.get(d.slot, d) for d in drafts.drafts], checked=True)


def _exact_alone(drafts: Drafts) -> Drafts:
    return replace(drafts, drafts=[replace(d, own=min(d.own, d.exact)) for d in drafts.drafts], done=False)


def _read_alone(
    paths: list[list[int]], sequence: Sequence, drafts: Drafts
) -> Generator[tuple[list[Row], Drafts], list[Tensor], list[Tensor]]:
    """One pass over paths of tokens that continue the sequence. A tree reads the tokens that paths share once. Returns
    logits (n, V) after each token of each path."""
    if not sequence.model.takes_trees:
        return (yield from score_paths(paths, sequence, drafts))
    tree = TokenTree.of_paths([(token, 1.0) for token in path] for path in paths)
    (after,) = yield [Row(sequence, tree.ids, parents=tree.parents)], drafts
    sequence.keep([])
    known = tree.indices()
    return [after[[known[tuple(path[: n + 1])] for n in range(len(path))]] for path in paths]


def _cut(draft: Draft, after: Tensor, pieces: Ids[bytes]) -> Draft:
    """The draft before its first implausible superposed token, if there is one, at the beginning of a word where
    possible. `after`: the logits (n - 1, V) after each of its tokens but the last."""

    def implausible(at: int) -> bool:
        x = after[at - 1].numpy()
        return not draft.personal[at] and float(x[draft.ids[at]]) - log_total(x, 1.0) < math.log(IMPLAUSIBLE)

    end = next((at for at in range(max(draft.exact, 1), len(draft.ids)) if implausible(at)), len(draft.ids))
    if end == len(draft.ids):
        return replace(draft, own=end)
    stem = draft.start + draft.stem  # rows may show it already
    end = next((at for at in range(end, stem - 1, -1) if begins_word(pieces[draft.ids[at]])), end)
    return replace(
        draft,
        ids=draft.ids[:end],
        totals=draft.totals[: end - draft.start],
        own=end,
        exact=min(draft.exact, end),
        personal=draft.personal[:end],
        ended=False,
    )


@dataclass
class CheckedRow:
    """A draft during a check: its tokens, ln p of each, how many leading tokens are verified, its final length, and the
    tokens shown before."""

    ids: list[int]
    logprobs: list[float]
    sure: int
    length: int
    shown: list[int] = field(default_factory=list)

    def reach(self, at: int) -> float:
        """The probability of the row up to token `at`."""
        return math.exp(min(sum(self.logprobs[: at + 1]), 0.0))

    @property
    def changed(self) -> int:
        """The index of the first token that differs from the one shown before; the length if none does."""
        pairs = zip(self.ids, self.shown, strict=False)
        return next((i for i, (a, b) in enumerate(pairs) if a != b), min(len(self.ids), len(self.shown)))


def check(
    rows: list[CheckedRow],
    sequence: Sequence,
    prefix_ids: list[int],
    *,
    target: Sequence | None = None,
    verifier: Verifier | None = None,
    nodes: int = NODES,
    stop_ids: frozenset[int] | None = None,
    record: Record | None = None,
) -> Generator[list[Row], list[Tensor], None]:
    """Corrects the rows in place: verifies their most probable tokens, replaces the first that fails by the target's,
    and superposes the rest again. Yields the input rows of a pass and receives their logits; no rows are the end.

    Args:
        sequence: of the model that drafts; it contains exactly the text afterwards.
        target: a sequence of the model that checks; None is the one that drafts.
        verifier: computes the target's token at each position.
        nodes: n, tokens of the tree at most. The most probable ones are checked first.
        stop_ids: tokens that end a draft; None for the tokenizer's.
    Raises: InputError for an empty text, models with different tokenizers; ContextFull.
    """
    if not prefix_ids or not rows:
        raise InputError("An empty text or no drafts given; at least one token id and one draft expected.")
    prefix, checker, verifier = list(prefix_ids), target or sequence, verifier or Verifier()
    if checker.model.tokenizer.fingerprint != sequence.model.tokenizer.fingerprint:
        raise InputError(
            f"{checker.model.name} and {sequence.model.name} have different tokenizers; a model that checks drafts "
            "must share theirs."
        )
    stop = sequence.model.tokenizer.eos_ids if stop_ids is None else stop_ids
    for each in {id(s): s for s in (sequence, checker)}.values():
        each.rewind(each.common_prefix(prefix))
        if each.length < len(prefix):
            each.feed(prefix[each.length :])
    try:
        # 1. One pass over the tree of the most probable tokens; the target's token replaces the first that fails.
        deep = depths_to_check(rows, nodes)
        tree = TokenTree.of_paths([(token, 1.0) for token in row.ids[:n]] for row, n in zip(rows, deep, strict=True))
        if len(tree):
            (after,) = yield [Row(checker, tree.ids, parents=tree.parents)]
            checker.keep([])
            _correct(rows, deep, tree, after, prefix, verifier, record)
            for row in rows:  # drop the tokens after a stop token
                if end := next((at + 1 for at, token in enumerate(row.ids) if token in stop), 0):
                    del row.ids[end:], row.logprobs[end:]

        # 2. New superposed tokens: one mixture of all rows at each position (eqs. 3-4). Consecutive positions at which
        # no row waits for a token share a pass.
        fed = 0
        while waiting := [row for row in rows if len(row.ids) < row.length and row.ids[-1] not in stop]:
            at = min(len(row.ids) for row in waiting)
            (after,) = yield [Row(sequence, torch.cat([_mixture(rows, i, sequence) for i in range(fed, at)]))]
            fed = at
            due = [row for row in waiting if len(row.ids) == at]
            choices = verifier([after] * len(due), [prefix + row.ids for row in due], [row.ids[-1] for row in due])
            if record is not None:
                some, gamma = _weighed(rows, at - 1)
                record.weigh([prefix + row.ids for row in some], gamma)
            for row, (token, logprob, _) in zip(due, choices, strict=True):
                if record is not None:
                    record.see(context := prefix + row.ids, after, None)
                    record.choose(context, token, logprob, verifier.ngrams, "superposed")
                row.ids.append(token)
                row.logprobs.append(logprob)
        yield []
    finally:
        if sequence.length > len(prefix):
            sequence.rewind(len(prefix))


def _correct(
    rows: list[CheckedRow],
    deep: list[int],
    tree: TokenTree,
    after: Tensor,
    prefix: list[int],
    verifier: Verifier,
    record: Record | None,
) -> None:
    """Marks the leading tokens of each row that are the target's as sure, and replaces the first other one. `after` are
    the logits (n, V) after each token of the tree, which contains the first `deep` tokens of the rows."""
    known = tree.indices()
    ends = [min(n + 1, len(row.ids)) for row, n in zip(rows, deep, strict=True)]
    positions = [(row, at) for row, end in zip(rows, ends, strict=True) for at in range(row.sure, end)]
    logits = [after[known[tuple(row.ids[:at])]] for row, at in positions]
    contexts, tokens = [prefix + row.ids[:at] for row, at in positions], [row.ids[at] for row, at in positions]
    choices = verifier(logits, contexts, tokens)
    for (row, at), (own, own_logprob, logprob), x in zip(positions, choices, logits, strict=True):
        if at >= len(row.ids):  # an earlier token of it failed
            continue
        if row.ids[at] == own:
            row.sure, row.logprobs[at] = at + 1, logprob
        else:
            row.sure, row.ids[at:], row.logprobs[at:] = at + 1, [own], [own_logprob]
            if record is not None:
                record.see(context := prefix + row.ids[:at], x, None)
                record.choose(context, own, own_logprob, verifier.ngrams, "corrected")


def _mixture(rows: list[CheckedRow], at: int, sequence: Sequence) -> Tensor:
    some, gamma = _weighed(rows, at)
    return mixed_embedding(sequence.model, [row.ids[at] for row in some], gamma)


def _weighed(rows: list[CheckedRow], at: int) -> tuple[list[CheckedRow], np.ndarray]:
    """The rows with a token at this position, and their weights in its mixture."""
    some = [row for row in rows if len(row.ids) > at]
    return some, weights([sum(row.logprobs[: at + 1]) for row in some])


def _rows(drafts: Drafts) -> list[CheckedRow]:
    """The drafts as rows. A draft's ln p is distributed evenly over its tokens after the first."""
    rows = []
    for ids, logprob, p_first, exact in zip(drafts.ids, drafts.logprobs, drafts.p_first, drafts.exact, strict=True):
        total = min(logprob, 0.0)
        first = min(max(math.log(max(p_first, 1e-30)), total), 0.0)
        later = (total - first) / max(len(ids) - 1, 1)
        logprobs = [first] + [later] * (len(ids) - 1)
        rows.append(CheckedRow(list(ids), logprobs, max(1, min(exact, len(ids))), len(ids), list(ids)))
    return rows


def depths_to_check(rows: list[CheckedRow], nodes: int) -> list[int]:
    """The number of leading tokens of each draft to feed, at most `nodes` in total, chosen greedily by probability per
    fed token. Verifying token `at` requires feeding all tokens before it."""
    deep = [0] * len(rows)
    left = nodes
    while True:
        best, gain, costs = -1, 0.0, 0
        for i, row in enumerate(rows):
            at = max(deep[i] + 1, row.sure)  # the next token to verify
            cost = at - deep[i]
            if at < len(row.ids) and cost <= left and (worth := row.reach(at - 1) / cost) > gain:
                best, gain, costs = i, worth, cost
        if best < 0:
            return deep
        deep[best] += costs
        left -= costs
