"""Whether drafts of full length have a row each, or are superposed and checked.

Superposed positions drift, so a long draft loses its tail: its later tokens fit another draft. Separate rows avoid
that. Their time depends on the model and the machine, so the measured cost of rows decides (`core.models.costs`).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

SHARE = 1.15  # the most time that separate rows may take, as a multiple of the superposed time
TOGETHER = 2  # rows of a pass that searches for forks


@dataclass(frozen=True)
class Tails:
    """How drafts of full length are made.

    Attributes:
        exact_steps: r, steps in which each draft has a row of its own.
        checked: whether later tokens come from superposed rows, so that one pass has to check them.
    """

    exact_steps: int
    checked: bool


def ms_of(costs: Callable[[int], float], k: int, length: int, exact_steps: int, forks: int) -> float:
    """The ms of k drafts of this length after a text that is in the cache, by the cost of rows.

    With forks the best draft has a row of its own also after the exact steps. The first superposed pass feeds the
    mixtures of all positions so far.
    """
    r, alone = min(exact_steps, length - 1), 1 if forks and k > 1 else 0
    total = forks * costs(TOGETHER) + r * costs(k)
    if r < length - 1:
        total += costs(alone + 1 + r) + (length - 2 - r) * costs(alone + 1)
    return total


def choose_tails(costs: Callable[[int], float] | None, k: int, length: int, exact_steps: int, forks: int) -> Tails:
    """Every draft has its own row to its end if that takes at most SHARE of the superposed time, or no longer than
    superposed drafts with their check; otherwise as many exact steps as fit into the share, and a check.

    Args:
        costs: the ms of a pass over n rows; None if it was not measured, so that the exact steps stay as they are.
        exact_steps: r of the superposed drafts with which the time is compared, and the least that is chosen.
    """
    last = max(length - 1, 0)
    r = min(exact_steps, last)
    if k == 1:  # the only draft is the mixture
        return Tails(last, checked=False)
    if costs is not None:
        most = SHARE * ms_of(costs, k, length, r, forks)
        r = max(n for n in range(r, last + 1) if n == r or ms_of(costs, k, length, n, forks) <= most)
        checked = ms_of(costs, k, length, r, forks) + costs(k * last)  # the check reads every draft
        if ms_of(costs, k, length, last, forks) <= checked:
            r = last
    return Tails(r, checked=r < last)
