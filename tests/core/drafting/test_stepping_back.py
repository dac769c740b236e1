"""Phrases that no draft contains: in no mode, in no step, by the stated distribution, and without passes twice."""

from __future__ import annotations

import itertools
import re
from collections import Counter, defaultdict
from collections.abc import Iterator
from functools import cache

import numpy as np
import pytest
import torch
from table_model import TableModel

from core.controls import MODES
from core.drafting import stepping_back
from core.drafting.drafts import Draft, Kept, Options
from core.drafting.driver import Driven
from core.drafting.stepping_back import MOST, Never
from core.modes.speculated import Speculation, Speculator
from core.modes.start import Mode, draft, start
from core.noise import SeededNoise
from core.phrases import Phrases
from core.samplers import TopK
from core.speculative.options import SpeculationOptions
from tests.core.modes.test_speculated import Guess

PIECES = [" in", " of", "to", " x", ".", " go"]
PREFIX = [3, 0]  # " x in"
LENGTH, SHORT = 4, 3
PHRASES = {"in to": r"in\s+to", "of in*": r"of\s+in[a-z]*", "x": "x", "into go": r"into\s+go"}
ENDLESS = frozenset[int]()


def model(seed: int = 0, spread: float = 1.0) -> TableModel:
    table = TableModel(len(PIECES), seed, spread)
    table.tokenizer.pieces = [piece.encode() for piece in PIECES]
    return table


def text_of(ids: list[int] | tuple[int, ...]) -> str:
    return "".join(PIECES[i] for i in ids)


@cache
def phrase_in(ids: tuple[int, ...], whole: bool) -> int | None:
    """The token in which a phrase begins, of those that are complete first the last, by plain regular expressions."""
    before = text_of(PREFIX)
    text = before + text_of(ids)
    closed = r"(?![a-z])" if whole else r"(?=[^a-z])"
    found = [
        (match.end(1), -match.start(1))
        for pattern in PHRASES.values()
        for match in re.finditer(f"(?<![a-z])(?=({pattern}){'' if pattern.endswith('*') else closed})", text)
        if match.end(1) > len(before)
    ]
    if not found:
        return None
    start = -min(found)[1]
    ends = np.cumsum([len(PIECES[i]) for i in ids]) + len(before)
    return int(np.searchsorted(ends, start, side="right"))


def exact_distribution(table: TableModel, most: int, greedy: bool = False) -> dict[tuple[int, ...], float]:
    """The probability of each draft, by running every course that the drawing can take."""
    done = defaultdict[tuple[int, ...], float](float)
    nothing = frozenset[int]()
    # By steps back and tokens: the draft and what is removed after each of its beginnings, with the probability.
    courses = defaultdict(lambda: defaultdict[tuple[tuple[int, ...], tuple[frozenset[int], ...]], float](float))
    courses[0, 0][(), (nothing,)] = 1.0
    for steps, length in itertools.product(range(most + 1), range(SHORT + 1)):
        for (ids, removed), chance in courses[steps, length].items():
            whole = length == SHORT
            at = phrase_in(ids, whole)
            if at is not None and steps < most:
                courses[steps + 1, at][ids[:at], (*removed[:at], removed[at] | {ids[at]})] += chance
            elif whole:
                done[ids if at is None else ids[:at]] += chance
            else:
                p = table.after([*PREFIX, *ids]).double().softmax(0).numpy().copy()
                p[list(removed[-1])] = 0
                p = np.eye(len(p))[p.argmax()] if greedy else p
                for token in np.flatnonzero(p):
                    courses[steps, length + 1][(*ids, int(token)), (*removed, nothing)] += chance * p[token] / p.sum()
    return done


def run(table: TableModel, mode: Mode, phrases: object = tuple(PHRASES), **options: object) -> Iterator[list[Draft]]:
    """The drafts after each pass."""
    never = Never(Phrases.of(phrases), text_of(PREFIX).encode())  # pyright: ignore[reportArgumentType]
    sequence, o = table.open(), Options(**{"length": LENGTH, **options})  # pyright: ignore[reportArgumentType]
    state = Driven(start(sequence, PREFIX, o, mode, never=never)([sequence.sync(PREFIX)]))
    yield state.latest.drafts
    while not state.done:
        yield state.advance(table.forward(state.rows())).drafts


def test_sampled_drafts_have_the_stated_distribution(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stepping_back, "MOST", 3)  # so that drafts are cut, too
    table, drawn = model(), Counter[tuple[int, ...]]()
    for seed in range(4):
        *_, last = run(table, Mode("sampled"), k=300, seed=seed, length=SHORT, stop_ids=ENDLESS)
        drawn.update(tuple(each.ids) for each in last)
    expected = exact_distribution(table, most=3)
    assert sum(expected.values()) == pytest.approx(1)
    drawn[()] = 1200 - sum(drawn.values())  # nothing was left of them
    assert set(drawn) <= {*expected, ()}
    deviations = [(drawn[ids] - 1200 * p) / np.sqrt(1200 * p * (1 - p)) for ids, p in expected.items() if 1200 * p > 5]
    assert len(deviations) > 20
    assert np.mean(np.square(deviations)) == pytest.approx(1, abs=0.5)
    assert max(map(abs, deviations)) < 4.5


@pytest.mark.parametrize("seed", range(4))
def test_speculative_drafts_are_those_of_one_token_a_pass(seed: int) -> None:
    table = model(seed)
    by = Speculation(Speculator(Guess(table), lambda n: 1 + n / 50), SpeculationOptions(tree_size=4))
    (*_, plain), (*_, fast) = (
        run(table, Mode("sampled", speculation=how), k=50, seed=seed, stop_ids=ENDLESS) for how in (None, by)
    )
    assert {each.slot: each.ids for each in plain} == {each.slot: each.ids for each in fast} != {}
    *_, (greedy,) = run(table, Mode("greedy", speculation=by), length=SHORT, stop_ids=ENDLESS)
    assert exact_distribution(table, MOST, greedy=True) == {tuple(greedy.ids): 1}


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("seed", range(3))
def test_no_draft_of_any_mode_contains_a_phrase_at_any_step(mode: str, seed: int) -> None:
    for options in ({}, {"rule": TopK(1)}, {"distinct": False}, {"exact_steps": 0}, {"forks": 2}):
        if "forks" in options and mode != "superposed":
            continue
        steps = [*run(model(seed), Mode(mode), k=3, seed=seed, stop_ids=ENDLESS, **options)]
        for drafts in steps[:-1]:
            assert all(phrase_in(tuple(each.ids[: each.own]), whole=False) is None for each in drafts)
        assert steps[-1], "there are drafts without the phrases"
        assert all(phrase_in(tuple(each.ids), whole=True) is None for each in steps[-1])


def test_a_draft_goes_on_with_the_next_best_token_where_the_phrase_begins() -> None:
    table = model()
    table.table[:] = 0.0
    best = [1, 0, 3, 1]  # " of in x of"
    for at, token in enumerate(best):
        context = [*PREFIX, *best[:at]]
        table.table[context[-2], context[-1], token] = 5
    table.table[3, 0, 5] = 4  # " go" is the second after the text
    *_, last = draft(table, PREFIX, "branching", k=1, length=4, stop_ids=ENDLESS)
    assert last.ids == [best]
    *_, last = draft(table, PREFIX, "branching", k=1, length=4, stop_ids=ENDLESS, never=["of in x"])
    assert last.ids[0][0] == 5
    *_, last = draft(table, PREFIX, "branching", k=1, length=4, stop_ids=ENDLESS, never=["in x"])
    assert last.ids[0][:2] != best[:2]
    assert last.ids[0][0] == best[0]


@pytest.mark.parametrize("mode", MODES)
def test_known_logits_are_not_computed_again(mode: str) -> None:
    table = model()
    table.table[:] = torch.eye(len(PIECES)).roll(1, 1) * 9  # each token goes on with the next one
    table.table[:, 2, 5] = 5  # "to" may go on with " go"

    def passes(never: list[str]) -> tuple[int, list[int]]:
        steps = [*run(table, Mode(mode), never, k=1, forks=0, length=6, stop_ids=ENDLESS)]
        return len(steps) - 1, steps[-1][0].ids

    assert passes([]) == (5, [1, 2, 3, 4, 5, 0])
    assert passes(["x. go"]) == (5 + 3, [1, 2, 5, 0, 1, 2])  # those after the three tokens in its place


def test_a_row_that_the_page_shows_keeps_its_beginning() -> None:
    table = model()
    table.table[:] = 0.0
    table.table[:, 0, 2] = 9  # " in" goes on with "to"
    never = Never(Phrases.of(["of into"]), text_of(PREFIX).encode())
    sequence, o = table.open(), Options(k=1, length=4, stop_ids=ENDLESS, forks=0)
    kept = [Kept(0, [1, 0], grows=True)]
    state = Driven(start(sequence, PREFIX, o, Mode(), kept=kept, never=never)([sequence.sync(PREFIX)]))
    (last,) = state.finish(table).drafts
    assert last.ids[:2] == [1, 0]
    assert last.ids[2] != 2


def test_noise_after_a_step_back_is_new_and_before_it_the_same() -> None:
    noise, tokens = SeededNoise(3, 1), np.arange(5)
    renewed = SeededNoise(3, 1, renewed=(4,))
    assert (noise.gumbel(3, tokens) == renewed.gumbel(3, tokens)).all()
    for at in (4, 5):
        assert (noise.gumbel(at, tokens) != renewed.gumbel(at, tokens)).all()
