"""Selects the drafts and assigns them to rows: after the first pass, and again once the tree of continuations is known.

A shown draft keeps its row. It either keeps growing, or is replaced once, when the tree is known.
"""

from __future__ import annotations

import math
from collections.abc import Sequence as Ids
from dataclasses import replace

from core.drafting.drafts import Draft, Kept, Options
from core.drafting.forks import Continuations, Node, Path, branch_probabilities, choose, find_replaceable

STAYS = 0.7  # least value of a kept row that stays, as a fraction of the best omitted path's
UNSEEN = math.log(0.5)  # assumed ln p of a kept row's token that no pass has computed


def make_first_drafts(
    tree: Continuations, o: Options, kept: Ids[Kept] = (), fill: bool = True
) -> tuple[list[Draft], list[Draft]]:
    """The drafts after the first pass, best first: the kept rows and, with `fill`, the most probable beginnings. By the
    paper's rule (distinct=False), the drafts that reached a stop token are returned in the second list."""
    if not o.distinct:
        roots = tree.roots[: 2 * o.k]
        drafts = [_make_draft([node], n) for n, node in enumerate([r for r in roots if not r.stops][: o.k])]
        return drafts, [_make_draft([node], 0) for node in roots if node.stops]
    drafts = [_make_kept_draft(row, tree) for row in kept]
    rows = [tree.row(row.ids) for row in kept]
    free = [row for row in range(o.k) if row not in {draft.slot for draft in kept}]
    for node in tree.roots if fill else ():
        if not free:
            break
        p = math.exp(node.logprob)
        if any(row.passes(node) for row in rows) or (p < o.min_branch and drafts):
            continue
        drafts.append(_make_draft([node], free.pop(0), [_is_personal(node, tree.roots, o.k)]))
        rows.append(node.row)
    _set_p_branch(drafts, tree)
    return sorted(drafts, key=lambda draft: -_value(draft, tree)) if kept and o.forks else drafts, []


def select_kept(tree: Continuations, o: Options, kept: Ids[Kept]) -> list[Kept]:
    """The kept rows that stay: the chosen ones, and those with at least `min_branch` probability, unless another path
    has a much higher value."""
    nodes, stay = tree.nodes(), _drop_beginnings(kept, tree)
    p = branch_probabilities(nodes, [tree.row(row.ids) for row in stay])
    stay = [row for row, p_branch in zip(stay, p, strict=True) if row.chosen or p_branch >= o.min_branch]
    while o.forks and stay:
        paths, chosen = [tree.row(row.ids) for row in stay], [i for i, row in enumerate(stay) if row.chosen]
        if (least := find_replaceable(nodes, o.k, paths, STAYS, chosen)) is None:
            break
        del stay[least]
    return stay


def _drop_beginnings(kept: Ids[Kept], tree: Continuations) -> list[Kept]:
    """The rows that are not the beginning of another one, and the chosen ones."""
    paths = [tree.row(row.ids) for row in kept]
    longer = [any(other.text != path.text and other.passes(path) for other in paths) for path in paths]
    return [row for row, is_beginning in zip(kept, longer, strict=True) if row.chosen or not is_beginning]


def make_forked_drafts(tree: Continuations, o: Options, shown: list[Draft], kept: Ids[Kept] = ()) -> list[Draft]:
    """The drafts once the tree is known, the one with the highest value first: the kept rows, and in the free rows the
    paths that add most to them."""
    while True:
        chosen = choose(tree.leaves(), o.k - len(kept), [tree.row(row.ids) for row in kept], o.min_branch)
        grown = [row for row in kept if not row.chosen and any(leaf.row.passes(tree.row(row.ids)) for leaf in chosen)]
        if not grown:
            break
        kept = [row for row in kept if row not in grown]  # a path that continues a kept row takes its place
        shown = [*shown, *(_make_kept_draft(row, tree) for row in grown)]
    free = [row for row in range(o.k) if row not in {draft.slot for draft in kept}]
    rows: dict[int, int] = {}  # by the number of the leaf
    if chosen and not kept:
        rows[0] = free.pop(0)  # the best is the first
    for n, leaf in enumerate(chosen):  # a path that continues a shown beginning takes its row
        at = next((d.slot for d in shown if d.slot in free and leaf.row.passes(tree.row(d.ids))), None)
        if n not in rows and at is not None:
            rows[n] = at
            free.remove(at)
    for n in range(len(chosen)):
        if n not in rows:
            rows[n] = free.pop(0)
    on_paths = {node for leaf in chosen for node in leaf.path}

    def marks(leaf: Node) -> list[bool]:
        siblings = [node.parent.children if node.parent else tree.roots for node in leaf.path]
        slots = [sum(sibling in on_paths for sibling in of_node) for of_node in siblings]
        return [_is_personal(*token) for token in zip(leaf.path, siblings, slots, strict=True)]

    drafts = [_make_kept_draft(row, tree) for row in kept]
    drafts += [_make_draft(leaf.path, rows[n], marks(leaf)) for n, leaf in enumerate(chosen)]
    _set_p_branch(drafts, tree)
    return sorted(drafts, key=lambda draft: -_value(draft, tree))


def copy_with_p_branch(drafts: Ids[Draft]) -> list[Draft]:
    """Copies of drafts of the paper's rule with their `p_branch`, as `make_forked_drafts` sets it: there a draft is not
    one lineage, so only the drafts of a step tell where each of them branches."""
    copies = []
    for draft in drafts:
        others = [other.ids for other in drafts if other.ids != draft.ids]
        alone = (
            n
            for n in range(draft.tokens)
            if not any(o[: (end := draft.start + n + 1)] == draft.ids[:end] for o in others)
        )
        copies.append(replace(draft, p_branch=math.exp(draft.totals[next(alone, draft.tokens - 1)])))
    return copies


def _value(draft: Draft, tree: Continuations) -> float:
    """The draft's own expected match, in bytes, as `core.drafting.forks` defines it."""
    ends = tree.ends(draft.ids)[draft.start :]
    lengths = (end - before for end, before in zip(ends, [0, *ends], strict=False))
    return sum(math.exp(total) * n for total, n in zip(draft.totals[: draft.stem], lengths, strict=False))


def _make_draft(path: list[Node], row: int, personal: Ids[bool] = (False,)) -> Draft:
    last = path[-1]
    return Draft(
        list(last.ids),
        [node.logprob for node in path],
        row,
        start=last.start,
        stem=len(path),
        own=len(last.ids),
        exact=len(last.ids),
        personal=[False] * last.start + list(personal),
        ended=last.stops,
    )


def _make_kept_draft(row: Kept, tree: Continuations) -> Draft:
    """A kept row as a draft, with ln p of each token from this request's passes, or else from the request that drafted
    it."""
    totals: list[float] = []
    known = {node.text: node.logprob for node in sorted(tree.nodes(), key=lambda node: node.logprob)}
    text = tree.row(row.ids).text
    for n, end in enumerate(tree.ends(row.ids)):
        earlier = row.totals[n] - row.totals[n - 1] if n and row.totals else UNSEEN
        totals.append(known.get(text[:end], (totals[-1] if totals else 0.0) + earlier))
    return Draft(
        list(row.ids),
        totals,
        row.slot,
        stem=len(row.ids),
        own=len(row.ids),
        exact=len(row.ids),
        personal=[False] * len(row.ids),
        rests=not row.grows,
        chosen=row.chosen,
    )


def _is_personal(node: Node, siblings: Ids[Node], slots: int) -> bool:
    """Whether personal stores brought the node among the `slots` most probable of its siblings.

    The choice of drafts may take a less probable one, with and without personal stores.
    """
    by_all = sorted(siblings, key=lambda sibling: -sibling.logprob)[:slots]
    return node in by_all and node not in sorted(siblings, key=lambda sibling: -sibling.without)[:slots]


def _set_p_branch(drafts: list[Draft], tree: Continuations) -> None:
    """Sets each draft's `p_branch`: the probability of the token at which it branches from the others."""
    rows = [tree.row(draft.ids) for draft in drafts]
    for draft, row in zip(drafts, rows, strict=True):
        others = [other for other in rows if other is not row]
        ends = tree.ends(draft.ids)
        beginnings = [Path(draft.ids[: n + 1], row.text[: ends[n]]) for n in range(draft.start, len(ends))]
        alone = (n for n, beginning in enumerate(beginnings) if not any(other.passes(beginning) for other in others))
        draft.p_branch = math.exp(draft.totals[next(alone, draft.tokens - 1)])
