"""`eval time`: what the simulated typist pays and takes, and how true the probabilities of cuts are."""

from __future__ import annotations

import math

import pytest

from app.options.typist import Passage
from core.time_saved import Costs, Cut, RowPath
from research.cut_calibration import Making
from research.evals.time import (
    RowsAt,
    always,
    calibration_error,
    one,
    reliability,
    threshold,
    write,
)

COSTS = Costs(100, 30, 400, 120)


def row(number: int, *words: str, probability: float = 0.5) -> RowPath:
    ends = [len("".join(words[: n + 1])) for n in range(len(words))]
    return RowPath(
        number, "".join(words), tuple(Cut(end, math.log(probability) * (n + 1)) for n, end in enumerate(ends))
    )


def answer(*rows: RowPath) -> RowsAt:
    branches = tuple(math.exp(one.cuts[0].log_chance) for one in rows)
    made = (Making(inside=False, mixed=False),) * len(rows)
    return RowsAt(rows, branches, rows[0].id if rows else None, rows, made)


def test_a_passage_costs_its_keys_the_new_rows_and_the_takings() -> None:
    """ " a wonderful": the row is read once, stays while the writer types along, and is taken when that pays most."""
    rest = " a wonderful"
    nothing = [answer()] * len(rest)
    times = [100.0] * len(rest)
    alone = write(rest, nothing, always, COSTS, times)
    assert (alone.time, alone.alone, alone.new_rows, alone.taken) == (1200, 1200, 0, 0)

    there = [*nothing[:2], answer(row(0, " terrible")), *nothing[3:]]  # wrong: one look
    assert write(rest, there, always, COSTS, times).time == 1200 + 30

    there[2] = answer(row(0, " wonderful"), row(1, " terrible"))
    taken = write(rest, there, always, COSTS, times)
    assert (taken.time, taken.new_rows, taken.taken) == (200 + 2 * 30 + 400, 2, 1)
    assert write(rest, there, one, COSTS, times).time == 200 + 30 + 400
    assert write(rest, there, threshold, COSTS, times).new_rows == 2

    slow = Costs(100, 30, 1000, 120)  # nobody takes it, but it was read, and stays
    along = [answer(row(0, rest[at:])) if at > 2 else answer() for at in range(len(rest))]
    stayed = write(rest, along, always, slow, times)
    assert (stayed.time, stayed.new_rows, stayed.taken) == (1200 + 30, 1, 0)


def test_reliability_counts_each_cut_once_and_its_error_weights_the_tenths_by_their_cuts() -> None:
    rest = " wonderful day"
    rows = [row(0, " wonderful", " day", probability=0.8), row(1, " wonderful", " night", probability=0.8)]
    found = reliability(3, [(Passage("a", "", rest), [answer(*rows)])])
    assert [one["cuts"] for one in found] == [1, 1, 2, 2, 2]  # " wonderful night" is longer than the passage
    assert [one.get("true") for one in found] == [1, 1, None, None, None]
    assert found[-1]["error"] == pytest.approx(((1 - 0.8) + (1 - 0.64)) / 2)
    assert calibration_error([(0.5, True), (0.5, False), (0.91, True), (0.99, True)]) == pytest.approx(0.1 / 4)
    assert math.isnan(calibration_error([]))
