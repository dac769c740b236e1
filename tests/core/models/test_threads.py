"""The number of threads follows what else runs on the machine."""

from __future__ import annotations

import random

import pytest

from core.models.processor import cores
from core.models.threads import Threads

QUIET = {1: 7.0, 2: 4.5, 4: 3.0}  # ms of a pass, by number of threads
BUSY = {1: 12.0, 2: 50.0, 4: 120.0}


def passes(threads, times, count, most=2, inputs=1, seed=0):
    """The number of threads of each pass, and the ms of all of them."""
    chance, chosen, total = random.Random(seed), [], 0.0
    for _ in range(count):
        n = threads.for_pass(inputs, most)
        ms = times[n] * chance.uniform(0.9, 1.2)
        threads.took(inputs, n, ms / 1000)
        chosen.append(n)
        total += ms
    return chosen, total


@pytest.mark.parametrize("most", [2, 4])
def test_a_quiet_machine_gives_all_threads_and_trials_cost_little(most):
    threads = Threads()
    passes(threads, QUIET, 100, most)
    chosen, total = passes(threads, QUIET, 1000, most)
    assert chosen.count(most) > 980
    assert total < 1.02 * 1000 * 1.05 * QUIET[most]


@pytest.mark.parametrize("most", [2, 4])
def test_a_busy_machine_gives_one_thread_within_a_few_passes(most):
    threads = Threads()
    passes(threads, QUIET, 300, most)
    passes(threads, BUSY, 20, most)
    chosen, total = passes(threads, BUSY, 200, most)
    assert chosen.count(1) > 180
    assert total < 0.5 * 200 * BUSY[2]


def test_all_threads_are_back_when_the_machine_is_quiet_again():
    threads = Threads()
    passes(threads, QUIET, 300)
    passes(threads, BUSY, 1000)
    passes(threads, QUIET, 300)
    assert passes(threads, QUIET, 200)[0].count(2) > 190


def test_one_slow_pass_changes_nothing():
    threads = Threads()
    passes(threads, QUIET, 300)
    threads.took(1, threads.for_pass(1, 2), 0.2)
    assert passes(threads, QUIET, 50)[0].count(2) >= 47


def test_passes_of_other_sizes_are_timed_by_themselves():
    threads = Threads()
    passes(threads, BUSY, 300, inputs=1)
    chosen, _ = passes(threads, QUIET, 100, inputs=40)
    assert chosen.count(2) > 90


def test_there_are_never_more_threads_than_there_may_be():
    threads = Threads()
    passes(threads, QUIET, 50, most=4)
    assert max(passes(threads, QUIET, 100, most=2)[0]) == 2
    assert set(passes(threads, QUIET, 100, most=1)[0]) == {1}


def test_the_cores_are_those_of_the_process_and_no_more_than_openmp_may_use(monkeypatch):
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    usable = cores()
    assert usable >= 1
    for given, expected in (("1", 1), (" 1,4", 1), ("100000", usable), ("0", usable), ("-1", usable), ("many", usable)):
        monkeypatch.setenv("OMP_NUM_THREADS", given)
        assert cores() == expected, given
