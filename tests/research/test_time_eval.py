"""`eval time`: what the simulated typist pays, takes and counts, on answers that are written by hand."""

from __future__ import annotations

import math
from statistics import fmean, stdev

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.options.typist import Passage
from core.calibration import Making, calibration_of
from core.time_saved import Costs, Cut, RowPath
from research.evals.time import (
    KEYS,
    KEYS_MS,
    LEAST,
    LOOKS_MS,
    POLICIES,
    TAKES_MS,
    RowsAt,
    Shown,
    always,
    calibration_error,
    compared,
    judge,
    one,
    reliability,
    saved,
    taking,
    threshold,
    typed,
    typing_times,
    write,
)
from research.report import Report

COSTS = Costs(100, 30, 400, 120)


def row(number: int, *words: str, probability: float = 0.5) -> RowPath:
    ends = [len("".join(words[: n + 1])) for n in range(len(words))]
    return RowPath(
        number, "".join(words), tuple(Cut(end, math.log(probability) * (n + 1)) for n, end in enumerate(ends))
    )


def answer(*rows: RowPath) -> RowsAt:
    branches = tuple(math.exp(one.cuts[0].logprob) for one in rows)
    making = Making(inside=False, ngrams=True, mixed=False)
    return RowsAt(rows, branches, rows[0].id if rows else None, rows, tuple((making, one) for one in rows))


def test_the_typist_takes_the_row_or_the_words_that_save_most() -> None:
    shown = Shown(row(0, " nevertheless", " it", " rains"), len(" nevertheless it rains"))
    assert taking(shown, " nevertheless it rains", COSTS) == (22 * 100 - 400, 22)  # the whole row, for one taking
    assert taking(shown, " nevertheless it snows", COSTS) == (16 * 100 - 400 - 120, 16)  # two words of it
    assert taking(shown, " nevertheless its", COSTS) == (13 * 100 - 400, 13)  # "it" is not the writer's word
    assert taking(shown, " never", COSTS) == (0, 0)
    whole = Costs(100, 30, 400, None)
    assert taking(shown, " nevertheless it rains", whole) == (1800, 22)
    assert taking(shown, " nevertheless it snows", whole) == (0, 0)
    assert taking(Shown(shown.row, 13), " nevertheless it snows", whole) == (900, 13)


def test_what_does_not_pay_is_not_taken() -> None:
    shown = Shown(row(0, " it"), 3)
    assert taking(shown, " it", COSTS) == (0, 0)
    assert taking(shown, " it", Costs(157, 30, 400)) == (71, 3)


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


def test_a_row_that_grows_is_read_again() -> None:
    rest = " or not"
    there = [answer(row(0, " or")), answer(row(0, "or", " else")), *[answer()] * 5]
    assert write(rest, there, always, COSTS, [100.0] * 7).new_rows == 2


def test_keys_are_the_case_of_no_costs() -> None:
    rest = " a dark night"
    there = [answer(row(0, " a", " dark", " day"))] + [answer()] * (len(rest) - 1)
    (written,) = typed([(Passage("a", "It was", rest), there)], always, KEYS, sigma=0)
    assert written.time == 2 + 6  # two words by one key each, and " night"
    assert saved([written]) == pytest.approx(100 * (1 - 8 / 13))


def test_times_between_keys_are_log_normal_and_the_same_for_every_speed() -> None:
    passage = Passage("a", "", "x" * 20_000)
    times = typing_times(passage, 157)
    assert fmean(times) == pytest.approx(157, rel=0.02)
    assert stdev(map(math.log, times)) == pytest.approx(0.4, rel=0.02)
    assert typing_times(passage, 314) == pytest.approx([2 * time for time in times])
    assert typing_times(passage, 157, sigma=0) == [157] * 20_000


@given(st.lists(st.floats(0.01, 0.99), min_size=13, max_size=13), st.sampled_from(KEYS_MS))
def test_no_draft_costs_no_time(chances: list[float], key_ms: float) -> None:
    """No policy without rows differs from writing alone, and looks at rows that are never right only cost."""
    rest = " a dark night"
    drafted = [(Passage("a", "", rest), [answer(row(0, "zzz", probability=p)) for p in chances])]
    for name, policy in POLICIES.items():
        (written,) = typed(drafted, policy, Costs(key_ms))
        assert written.time == pytest.approx(written.alone + 50 * written.new_rows)
        assert written.taken == 0
        assert name != "none" or written.new_rows == 0


def test_the_report_compares_every_policy_in_every_setting() -> None:
    rest = " wonderful wonderful"
    drafted = [(Passage("a", "It is", rest), [answer(row(0, rest[at:], probability=0.9)) for at in range(len(rest))])]
    report = Report("eval time", compared(3, drafted))
    timed = [found for found in report.rows if "take_ms" in found]
    assert len(timed) == len(POLICIES) * len(LOOKS_MS) * len(TAKES_MS)
    assert [found["saved_157"] for found in timed if found["policy"] == "none"] == pytest.approx([0] * 6)
    keys = {found["policy"]: found["keys_saved_percent"] for found in report.rows if "keys" in found}
    assert keys == pytest.approx({name: 0 if name == "none" else 95 for name in POLICIES})
    judge(report)
    assert len(report.targets) == len(LEAST) * len(KEYS_MS) + 2
    assert report.targets[-1].value == pytest.approx(0)


def test_reliability_counts_each_cut_once() -> None:
    rest = " wonderful day"
    rows = [row(0, " wonderful", " day", probability=0.8), row(1, " wonderful", " night", probability=0.8)]
    found = reliability(3, [(Passage("a", "", rest), [answer(*rows)])])
    map_of = calibration_of(Making(inside=False, ngrams=True, mixed=False))
    assert [one["cuts"] for one in found] == [1, 1, 2, 2, 2]  # " wonderful night" is longer than the passage
    assert [one.get("true") for one in found] == [1, 1, None, None, None]
    assert found[-1]["error"] == pytest.approx(((1 - map_of(0.8)) + (1 - map_of(0.64))) / 2)


def test_the_calibration_error_weights_the_tenths_by_their_cuts() -> None:
    assert calibration_error([(0.5, True), (0.5, False), (0.91, True), (0.99, True)]) == pytest.approx(0.1 / 4)
    assert math.isnan(calibration_error([]))
