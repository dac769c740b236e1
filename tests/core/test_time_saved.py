"""The rows that save time: against brute force over all sets of rows, cuts and orders; and what the rule means."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from itertools import permutations, product
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from core.errors import InputError
from core.present import TextDraft
from core.time_saved import Costs, Cut, PayingRows, RowPath, branch_chances, expected_ms, is_new, with_offset
from core.time_saved import rows_that_pay as chosen
from tests.shared_cases import cases

WORDS = (" a", " be", " deer", ", so")


def row(number: int, words: Sequence[str], probabilities: Sequence[float]) -> RowPath:
    """A row of these words, with the probability of each one after the ones before it."""
    ends = [len("".join(words[: n + 1])) for n in range(len(words))]
    totals = [math.log(math.prod(probabilities[: n + 1])) for n in range(len(words))]
    return RowPath(number, "".join(words), tuple(map(Cut, ends, totals)))


def rows_that_pay(rows: Sequence[RowPath], c: Costs, on_screen: Sequence[str] = ()) -> PayingRows:
    return chosen(rows, c, on_screen, looks=1)  # so that these tests do not depend on what was fitted


@st.composite
def answers(draw: st.DrawFn) -> list[RowPath]:
    """Up to three rows of up to three words, from one distribution of next words: rows with a common beginning agree on
    its probability."""
    chance = {}

    def next_chance(before: tuple[str, ...], word: str) -> float:
        if before not in chance:
            weights = draw(st.lists(st.integers(0, 9), min_size=len(WORDS), max_size=len(WORDS)))
            chance[before] = [(weight + 0.5) / (sum(weights) + len(WORDS)) for weight in weights]
        return chance[before][WORDS.index(word)]

    texts = draw(st.lists(st.lists(st.sampled_from(WORDS), min_size=1, max_size=3), min_size=1, max_size=3))
    return [
        row(number, words, [next_chance(tuple(words[:n]), word) for n, word in enumerate(words)])
        for number, words in enumerate(texts)
    ]


costs = st.builds(
    Costs,
    st.sampled_from([120.0, 157.0, 480.0]),
    st.sampled_from([0.0, 30.0, 50.0]),
    st.sampled_from([100.0, 400.0, 700.0]),
    st.sampled_from([None, 0.0, 120.0]),
)


def outcomes(rows: Sequence[RowPath]) -> dict[str, float]:
    """The places at which the writer's text leaves the rows, and their probabilities. "" is at once."""
    nodes = {row.text[: cut.end]: math.exp(cut.log_chance) for row in rows for cut in row.cuts}
    left = {"": 1.0} | nodes
    for text, probability in nodes.items():
        parents = [other for other in nodes if other != text and text.startswith(other)]
        left[max(parents, key=len, default="")] -= probability
    return left


def gain(shown: str, outcome: str, cuts: set[str], c: Costs) -> float:
    """The best that a writer whose text leaves the rows at `outcome` makes of one shown row."""
    within = sorted((cut for cut in cuts if shown.startswith(cut)), key=len)
    takings = [0.0]
    for m, cut in enumerate(within):
        if outcome.startswith(cut):
            if cut == shown:
                takings.append(len(cut) * c.key_ms - c.take_ms)
            elif c.word_ms is not None:
                takings.append(len(cut) * c.key_ms - c.take_ms - m * c.word_ms)
    return max(takings)


def saved(texts: Sequence[str], rows: Sequence[RowPath], c: Costs) -> float:
    """The expected time that these rows save, before the looks."""
    cuts = {row.text[: cut.end] for row in rows for cut in row.cuts}
    return sum(p * max([0.0, *(gain(text, where, cuts, c) for text in texts)]) for where, p in outcomes(rows).items())


def new_rows(texts: Sequence[str], on_screen: Sequence[str]) -> int:
    return sum(not any(one.startswith(text) for one in on_screen) for text in texts)


@settings(max_examples=100)
@given(
    answers(),
    costs,
    st.lists(st.lists(st.sampled_from(WORDS), max_size=2).map("".join), max_size=2),
    st.sampled_from([0.5, 1.0, 2.0]),
)
def test_no_other_rows_cuts_or_order_save_more_time(
    rows: list[RowPath], c: Costs, on_screen: list[str], looks: float
) -> None:
    choice = chosen(rows, c, on_screen, looks)
    most, fewest = 0.0, 0
    for cuts in product(*([None, *row.cuts] for row in rows)):
        texts = [row.text[: cut.end] for row, cut in zip(rows, cuts, strict=True) if cut]
        value = saved(texts, rows, c) - looks * c.look_ms * new_rows(texts, on_screen)
        if value > most + 1e-9:
            most, fewest = value, len(texts)
        elif value > most - 1e-9:
            fewest = min(fewest, len(texts))
    texts = [one.text for one in choice.rows]
    worth, new = saved(texts, rows, c), new_rows(texts, on_screen)
    assert worth - looks * c.look_ms * new == pytest.approx(most)
    assert choice.saved_ms == pytest.approx(worth - c.look_ms * new)
    assert len(texts) <= fewest or most == pytest.approx(0)
    assert [one.new for one in choice.rows] == [new_rows([text], on_screen) == 1 for text in texts]

    # Each shown text is the beginning of a row of its own.
    by_id = {row.id: row.text for row in rows}
    assert len({one.id for one in choice.rows}) == len(choice.rows)
    assert all(by_id[one.id].startswith(one.text) for one in choice.rows)

    # No order saves more with its first rows alone.
    totals = [saved(texts[: n + 1], rows, c) for n in range(len(texts))]
    for other in permutations(texts):
        for n, total in enumerate(totals):
            value = saved(other[: n + 1], rows, c)
            assert value <= total + 1e-6
            if value < total - 1e-6:
                break
    for one, a, b in zip(choice.rows, [0.0, *totals], totals, strict=False):
        assert one.saved_ms == pytest.approx(b - a, abs=1e-6)


def test_a_single_row_is_shown_up_to_its_best_cut_if_that_is_worth_the_look() -> None:
    """P(cut) · (characters · key_ms - take_ms) > look_ms, rows taken whole."""
    one = row(7, [" rather", " unlikely"], [0.8, 0.3])
    c = Costs(157, 50, 700, None)
    short, long = 0.8 * (7 * 157 - 700), 0.24 * (16 * 157 - 700)
    assert long > short > 50
    (shown,) = rows_that_pay([one], c).rows
    assert (shown.id, shown.text, shown.new) == (7, " rather unlikely", True)
    assert (shown.chance, shown.saved_ms) == (pytest.approx(0.24), pytest.approx(long))
    assert rows_that_pay([one], Costs(157, long - 1, 700, None)).saved_ms == pytest.approx(1)
    assert rows_that_pay([one], Costs(157, long + 1, 700, None)) == PayingRows()
    assert rows_that_pay([one], Costs(120, 50, 700, None)).rows[0].text == " rather unlikely"
    assert rows_that_pay([one], Costs(120, 50, 0, None)).rows[0].text == " rather"


@pytest.mark.parametrize("case", cases("costs"))
def test_what_a_row_saves_that_is_taken_whole_or_word_by_word(case: dict[str, Any]) -> None:
    """The row is right up to the end of the last word taken, and goes on if it is taken word by word."""
    taken = case["taken"]
    ends = [len("".join(taken[: n + 1])) for n in range(len(taken))]
    cuts, text = tuple(Cut(end, 0.0) for end in ends), "".join(taken)
    if len(taken) > 1:
        text += " and"
        cuts += (Cut(len(text), -math.inf),)
    assert expected_ms(RowPath(0, text, cuts, case["replaced"]), Costs()) == case["saved_ms"]


def test_a_row_on_the_screen_costs_no_look_unless_it_grows() -> None:
    rows = [row(0, [" some", " times"], [0.12, 0.01])]
    c = Costs(157, 50, 400)
    assert rows_that_pay(rows, c) == PayingRows()
    kept = rows_that_pay(rows, c, [" some where"])
    assert [(one.text, one.new) for one in kept.rows] == [(" some", False)]
    assert rows_that_pay(rows, c, [" so"]) == PayingRows()
    assert rows_that_pay(rows, c, [" something"]) == PayingRows()  # " some" is not a word of it


@pytest.mark.parametrize("case", cases("looks"))
def test_a_row_costs_a_look_unless_its_words_are_on_the_screen(case: dict[str, Any]) -> None:
    assert is_new(case["text"], case["shown"]) == case["new"]


@given(answers(), costs)
def test_the_expected_time_of_one_row_is_that_of_a_choice_of_it_alone(rows: list[RowPath], c: Costs) -> None:
    whole = rows[0]
    assert expected_ms(whole, c) == pytest.approx(saved([whole.text], [whole], c))


def test_a_row_that_ends_within_a_word_is_taken_word_by_word() -> None:
    row = RowPath(0, " lighthouse kee", (Cut(11, math.log(0.5)),))
    assert expected_ms(row, Costs(100, 0, 400, 50)) == pytest.approx(0.5 * (11 * 100 - 400))
    assert expected_ms(row, Costs(100, 0, 400, None)) == 0
    assert expected_ms(RowPath(0, " kee", ()), Costs()) == 0


def test_the_chance_of_a_row_is_that_of_its_first_own_word() -> None:
    rows = [row(0, [" the", " old", " man"], [0.8, 0.5, 0.1]), row(1, [" the", " sea"], [0.8, 0.25])]
    assert branch_chances(rows) == pytest.approx([0.4, 0.2])
    contained = [row(0, [" the"], [0.8]), row(1, [" the", " sea"], [0.8, 0.25])]
    assert branch_chances(contained) == pytest.approx([0.8, 0.2])
    assert branch_chances([RowPath(3, " th", ())]) == [0]


def test_a_row_that_corrects_saves_the_backspaces_too() -> None:
    plain = row(0, ["ch", " more"], [0.8, 0.5])
    slip = replace(plain, replace=2)
    c = Costs(100, 0, 300, None)
    assert expected_ms(plain, c) == pytest.approx(0.4 * (7 * 100 - 300))
    assert expected_ms(slip, c) == pytest.approx(0.4 * (9 * 100 - 300))
    for one in (plain, slip):
        assert rows_that_pay([one], c).saved_ms == pytest.approx(expected_ms(one, c))
    assert RowPath.of(TextDraft(4, "ch", 0.5, 0.1, False, path=((2, -0.5),), replace=2)).replace == 2


def test_the_words_of_a_row_that_corrects_are_not_those_of_another_that_begins_alike() -> None:
    """ "kee" goes on as "per", or was meant as "kep", in which "p" replaces "e"."""
    plain, slip = row(0, ["p", " going"], [0.3, 0.9]), replace(row(1, ["p", " going"], [0.6, 0.5]), replace=1)
    assert branch_chances([plain, slip]) == pytest.approx([0.3, 0.6])
    c = Costs(150, 0, 0, None)
    alone = [rows_that_pay([one], c) for one in (plain, slip)]
    both = rows_that_pay([plain, slip], c)
    assert {one.id for one in both.rows} == {0, 1}
    assert both.saved_ms == pytest.approx(sum(one.saved_ms for one in alone))
    assert {one.id: one.text for one in both.rows} == {one.rows[0].id: one.rows[0].text for one in alone}


def test_probabilities_that_disagree_stay_below_those_of_the_words_before() -> None:
    one = RowPath(0, " some times", (Cut(5, math.log(0.3)), Cut(11, math.log(0.6))))
    (shown,) = rows_that_pay([one], Costs()).rows
    assert shown.chance == pytest.approx(0.3)
    certain = [row(n, [word], [0.8]) for n, word in enumerate((" wonderful", " terrible"))]
    assert sum(one.chance for one in rows_that_pay(certain, Costs()).rows) == pytest.approx(1)


def test_the_cuts_of_a_draft_are_the_tokens_that_end_words() -> None:
    text = " the ending, so"
    path = ((0, -0.1), (4, -0.5), (8, -0.8), (11, -1.0), (12, -1.5), (13, -1.6), (15, -2.0), (22, -3.0))
    made = RowPath.of(TextDraft(4, text, 0.5, 0.1, False, path=path))
    assert (made.id, made.text) == (4, text)
    assert [(made.text[: cut.end], cut.log_chance) for cut in made.cuts] == [
        (" the", -0.5),
        (" the ending", -1.0),
        (" the ending,", -1.5),
        (" the ending, so", -2.0),
    ]
    assert RowPath.of(TextDraft(0, "", 1.0, 1.0, True)).cuts == ()


@settings(max_examples=200)
@given(st.text(alphabet="ab1 .,'’-(\"é", max_size=12))
def test_every_draft_has_a_row(text: str) -> None:
    path = tuple((n + 1, -0.1 * n) for n in range(len(text)))
    made = RowPath.of(TextDraft(0, text, 0.5, 0.1, False, path=path))
    assert chosen([made], Costs()).rows is not None


def test_wrong_values_are_named() -> None:
    for made, words in (
        (lambda: Costs(key_ms=0), "0 ms between keys given; a time above 0"),
        (lambda: Costs(look_ms=-1), "-1 given as look_ms; a time in ms"),
        (lambda: Costs(word_ms=math.nan), "nan given as word_ms"),
        (lambda: RowPath(0, " a", (Cut(3, -1),)), "ascending places within the text"),
        (lambda: RowPath(0, " ab", (Cut(2, -1),)), "ends of words expected"),
        (lambda: RowPath(0, " a", (Cut(2, 0.1),)), "ln p of 0 or less"),
    ):
        with pytest.raises(InputError, match=words):
            made()


@given(st.floats(-40, 0, exclude_max=True), st.floats(-2, 2))
def test_an_offset_is_added_to_the_log_odds_and_taken_off_again(logprob: float, offset: float) -> None:
    moved = with_offset(logprob, offset)
    assert (moved > logprob) == (offset > 0) or abs(offset) < 1e-6 or moved == pytest.approx(logprob)
    assert with_offset(moved, -offset) == pytest.approx(logprob, rel=1e-6, abs=1e-9)
    assert [with_offset(fixed, offset) for fixed in (0.0, -math.inf)] == [0.0, -math.inf]


@pytest.mark.parametrize("case", cases("offsets"))
def test_an_offset_corrects_a_chance(case: dict[str, float]) -> None:
    chance = case["chance"]
    moved = with_offset(math.log(chance) if chance else -math.inf, case["offset"])
    assert math.exp(moved) == pytest.approx(case["corrected"])
