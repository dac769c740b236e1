"""Drafts of full length have a row each where rows are cheap; elsewhere their superposed tails are checked and cut."""

from __future__ import annotations

import math
from dataclasses import replace
from itertools import pairwise

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from core.autocomplete import Autocomplete
from core.drafting.drafts import Draft, Drafts, Options
from core.drafting.driver import Drafting, draft_all
from core.drafting.tails import SHARE, Tails, choose_tails, ms_of
from core.models.costs import SIZES, CostCurve
from core.modes.checked import IMPLAUSIBLE, tails_checked
from core.modes.start import Mode, start
from tests.completing import complete
from tests.table_model import TableModel

NEVER = frozenset[int]()
COMPILED = CostCurve(SIZES["rows"], (4.3, 4.9, 6.2, 10.3, 13.3))  # ms of a small model in compiled code
# Four rows cost 2.8 times as much as one, and reading many inputs little more.
DEAR = CostCurve((1, 4, 8, 64), (10.5, 29.4, 50.0, 90.0))
FREE = CostCurve((1, 12), (5.0, 5.0))


def costs() -> st.SearchStrategy[CostCurve]:
    """The ms of one row, and what each further row adds."""
    pairs = st.tuples(st.floats(0.1, 50), st.floats(0, 20))
    return pairs.map(
        lambda found: CostCurve(SIZES["rows"], tuple(found[0] + found[1] * (n - 1) for n in SIZES["rows"]))
    )


@given(curve=costs(), k=st.integers(2, 9), length=st.integers(1, 32), r=st.integers(0, 31), forks=st.integers(0, 4))
def test_as_many_exact_steps_as_fit_into_the_share_of_the_superposed_time(curve, k, length, r, forks):
    found = choose_tails(curve, k, length, r, forks)
    usual, last = min(r, length - 1), length - 1
    most = SHARE * ms_of(curve, k, length, usual, forks)
    assert usual <= found.exact_steps <= last
    assert found.checked == (found.exact_steps < last)
    took = ms_of(curve, k, length, found.exact_steps, forks)
    fits = max(n for n in range(usual, last + 1) if n == usual or ms_of(curve, k, length, n, forks) <= most)
    if found.exact_steps == fits:
        assert fits == last or ms_of(curve, k, length, last, forks) > took + curve(k * last)
    else:
        assert found.exact_steps == last and took <= ms_of(curve, k, length, fits, forks) + curve(k * last)


@pytest.mark.parametrize(
    ("curve", "k", "expected"),
    [
        (COMPILED, 3, Tails(9, checked=False)),
        (COMPILED, 5, Tails(9, checked=False)),
        (COMPILED, 9, Tails(9, checked=False)),  # the check would take longer
        (DEAR, 9, Tails(3, checked=True)),
        (FREE, 9, Tails(9, checked=False)),
        (None, 3, Tails(2, checked=True)),
        (None, 1, Tails(9, checked=False)),  # the only draft is the mixture
    ],
)
def test_rows_are_used_where_they_are_cheap(curve, k, expected):
    assert choose_tails(curve, k, 10, 2, 2) == expected


# --- whole requests, of a model whose rows have simulated costs


def drafts_of(curve: CostCurve | None, **options):
    """The texts of each row at every step, the completion at its end, and the rows of its largest pass of tokens."""
    autocomplete = Autocomplete(TableModel(seed=5, spread=3.0))
    autocomplete.row_costs = curve
    session = autocomplete.open()
    given = {"length": 10, "exact_steps": 2, "stop_ids": NEVER, "heal": False, **options}
    completion = complete(session, "abca", **given)
    steps, widest, trees = [], 0, 0
    while rows := completion.rows():
        trees += any(row.parents is not None for row in rows)
        widest = max(widest, len(rows))
        completion.advance(autocomplete.model.forward(rows))
        steps.append((completion.settled, {d.id: d.text for d in completion.drafts}))
    session.close()
    return steps, completion, widest, trees


@pytest.mark.parametrize("k", [3, 5])
def test_cheap_rows_give_each_draft_its_own_row_to_the_end(k):
    _, completion, widest, trees = drafts_of(FREE, k=k, tails=True)
    assert (completion.exact_steps, completion.checked, widest, trees) == (10, False, k, 0)
    assert {d.tail for d in completion.drafts} == {"own"}
    assert all(len(d.text) == 10 for d in completion.drafts)


def test_dear_rows_are_superposed_and_checked_by_one_pass():
    steps, completion, _, trees = drafts_of(DEAR, k=5, tails=True)
    assert (completion.exact_steps, completion.checked, trees) == (3, True, 1)
    assert {d.tail for d in completion.drafts} == {"own", "checked"}, "the best draft has its own row in any case"
    for (settled, before), (_, after) in pairwise(steps):
        assert not settled or all(after[row].startswith(text) for row, text in before.items()), "rows only grow"


def test_exact_steps_that_were_given_are_obeyed_and_what_streams_at_every_key_stays_superposed():
    for grow in (False, True):
        _, completion, widest, trees = drafts_of(FREE, k=5, grow=grow)
        assert (completion.exact_steps, completion.checked, trees) == (2, False, 0)
        assert "superposed" in {d.tail for d in completion.drafts}
        assert widest == 5


def test_a_check_that_the_user_chose_replaces_the_one_that_cuts():
    _, completion, _, trees = drafts_of(None, k=3, tails=True, verify=6)
    assert trees == 1
    assert completion.drafts == drafts_of(None, k=3, verify=6)[1].drafts


def test_without_lineages_there_are_no_tails_to_hold():
    _, completion, _, trees = drafts_of(FREE, k=3, tails=True, distinct=False, forks=0)
    assert (completion.exact_steps, trees) == (2, 0)


# --- where drafts are cut


class Chains(TableModel):
    """The same without trees that branch."""

    takes_trees = False


def made(model: TableModel, check: bool) -> Drafts:
    options = Options(k=4, length=9, forks=2, exact_steps=1, stop_ids=NEVER, candidates=6)
    text, sequence = [0, 3], model.open()

    def begin(held, ids):
        return start(held, ids, options, Mode(), check_tails=check)

    *_, (found,) = draft_all(model, [text], begin, [sequence])
    assert sequence.inputs == text
    return found


@settings(max_examples=25)
@given(seed=st.integers(0, 60))
def test_drafts_end_before_the_first_token_that_the_model_finds_implausible(seed):
    model = TableModel(seed=seed, spread=4.0)
    plain, cut = made(model, False), made(model, True)

    def p(ids: list[int], at: int) -> float:
        text = [0, 3, *ids[:at]]
        return float(torch.log_softmax(model.after(text), 0)[ids[at]].exp())

    assert cut.lineages == plain.lineages
    for before, after in zip(plain.drafts, cut.drafts, strict=True):
        end = len(after.ids)
        assert after.ids == before.ids[:end]
        assert after.totals == before.totals[: len(after.totals)]
        assert after.own == len(after.personal) == end
        assert all(p(after.ids, at) >= IMPLAUSIBLE for at in range(after.exact, end))
        assert end == len(before.ids) or p(before.ids, end) < IMPLAUSIBLE
    chains = Chains(seed=seed, spread=4.0)
    assert made(chains, True).ids == cut.ids


def test_some_drafts_are_cut_and_others_stay_whole():
    lengths = {len(ids) for seed in range(20) for ids in made(TableModel(seed=seed, spread=4.0), True).ids}
    assert len(lengths) > 3
    assert max(lengths) == 9


class Words(TableModel):
    """Tokens 0 to 2 begin a word; the others continue one. All are improbable after token 5."""

    def __init__(self) -> None:
        super().__init__()
        self.tokenizer.pieces = [b" a", b" b", b" c", b"d", b"e", b"f"]
        self.table[:, 5] = torch.tensor([-20.0, -20, -20, -20, -20, 20])
        self.table[:, :5] = 0.0


def cut_of(draft: Draft) -> list[int]:
    def drafting() -> Drafting:
        yield [], Drafts([draft], 5, done=True)

    model = Words()
    checking = tails_checked(drafting(), model.open())
    rows, found = next(checking)
    if rows:
        _, found = checking.send(model.forward(rows))
    return found.ids[0]


DRAFT = Draft([0, 3, 1, 4, 5, 4], [-0.1] * 6, 0, stem=1, exact=2, own=6, personal=[False] * 6)


@pytest.mark.parametrize(
    ("draft", "kept"),
    [
        (DRAFT, 2),  # " ad" and not " ad be", whose word goes on differently
        (replace(DRAFT, ids=[0, 3, 4, 4, 5, 4]), 5),  # one word; nothing shorter is whole
        (replace(DRAFT, stem=3, exact=4), 5),  # the word begins in the stem, which a row may show already
        (replace(DRAFT, personal=[False] * 5 + [True]), 6),  # the writer's own word
        (replace(DRAFT, ids=[0, 3, 1, 4, 5, 1]), 5),  # the implausible token is a word
        (replace(DRAFT, exact=6), 6),  # every token has a row of its own
    ],
)
def test_a_draft_is_cut_at_a_word_and_keeps_the_writers_own_tokens(draft, kept):
    assert cut_of(draft) == draft.ids[:kept]


def test_the_cost_of_partial_exactness_contains_the_pass_that_catches_up():
    curve = CostCurve((1, 100), (1.0, 100.0))  # n ms for n rows
    # Two fork passes of two rows; three exact steps of three rows; the superposed row feeds four positions at once,
    # beside the best draft's row; five passes of two rows.
    assert math.isclose(ms_of(curve, 3, 10, 3, 2), 2 * 2 + 3 * 3 + (4 + 1) + 5 * 2)
    assert math.isclose(ms_of(curve, 3, 10, 9, 2), 2 * 2 + 9 * 3)
