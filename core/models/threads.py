"""Chooses the number of threads of a pass of the compiled code: all, or fewer while other programs use the cores.

The threads synchronise some two hundred times in a pass. If another program takes a core, the other threads wait for
the thread on that core, and the pass takes many times as long as with one thread. So passes are timed, and now and
then a few of them try half or twice as many threads.
"""

from __future__ import annotations

from collections import defaultdict, deque
from dataclasses import dataclass, field
from statistics import median

FASTER = 0.9  # another number of threads is chosen when its passes take less than this share of the time
SLOWER = 1.5  # a trial follows when passes take this many times the time of the latest trial
TRIAL = 3  # passes of a trial
SOON, SELDOM = 24, 384  # passes from one trial to the next: the minimum, and the maximum after trials without success
PAUSE = 6  # passes at least between two trials


@dataclass
class _Passes:
    """Passes of about the same number of inputs."""

    threads: int = 0
    times: deque[float] = field(default_factory=lambda: deque(maxlen=TRIAL))  # seconds of the latest passes
    usual: float = float("inf")  # their time at the latest trial
    since: int = 0  # passes since then
    interval: int = SOON
    rival: int = 0  # threads of the trial under way; 0 for none
    rivals: list[float] = field(default_factory=list)  # seconds of its passes
    fewer: bool = False  # whether the next trial uses fewer threads, if both directions are possible


class Threads:
    """Chooses the number of threads of each pass from the times of earlier passes."""

    def __init__(self) -> None:
        self._passes: defaultdict[int, _Passes] = defaultdict(_Passes)

    def for_pass(self, inputs: int, most: int) -> int:
        """The number of threads, 1 to `most`, of a pass over so many inputs. Call `took` after the pass."""
        p = self._passes[inputs.bit_length()]
        if not 0 < p.threads <= most:
            self._passes[inputs.bit_length()] = p = _Passes(most)
        if not p.rival and most > 1 and len(p.times) == TRIAL:
            slower = p.since >= PAUSE and median(p.times) > SLOWER * p.usual
            if slower or p.since >= p.interval:
                p.fewer = p.threads == most or (p.threads > 1 and p.fewer)
                p.rival, p.rivals = (max(p.threads // 2, 1) if p.fewer else min(2 * p.threads, most)), []
        return min(p.rival or p.threads, most)

    def took(self, inputs: int, threads: int, seconds: float) -> None:
        """Records the time of a pass over so many inputs."""
        p = self._passes[inputs.bit_length()]
        if threads == p.threads:
            p.times.append(seconds)
            p.since += 1
        elif threads == p.rival:
            p.rivals.append(seconds)
            if len(p.rivals) == TRIAL:
                self._end_trial(p)

    def _end_trial(self, p: _Passes) -> None:
        if median(p.rivals) < FASTER * median(p.times):
            p.threads, p.interval = p.rival, PAUSE  # the next trial may find a still smaller or larger number
            p.times = deque(p.rivals, maxlen=TRIAL)
        else:
            p.interval = min(2 * max(p.interval, SOON), SELDOM)
            p.fewer = not p.fewer
        p.usual, p.since, p.rival = median(p.times), 0, 0
