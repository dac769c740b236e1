"""Which requests go into the next pass. A pure function: it knows no model and no clock.

A pass has a limited number of inputs, which limits its time. The tab that has waited longest for its first drafts is
always part of it; while others wait, the pass reads at most a part of that tab's text. Besides, half of the inputs are
for other tabs that wait and have only a few new characters, the longest wait first; the other half for growing drafts,
the oldest first. Each half may use inputs that the other does not need. So one long text delays many short ones only a
little, and each text is read in the end.

The wait of a tab begins with its first unanswered request: a newer request of the same tab does not lose its place. A
request that its tab's next key will probably replace before the pass ends comes last: otherwise many fast typists would
get no drafts, because each pass would end after the next key.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

FEW = 16  # unread characters of a request that counts as short
PAUSE = 1.0  # seconds without a request after which a tab loses its place in the queue


@dataclass(frozen=True)
class Queued:
    """What the schedule knows of one request.

    Attributes:
        tab: its name.
        since: when its tab began to wait.
        first: when its first drafts were sent, and in which step; None before.
        unread: characters of its text that its session has not read.
        too_late: whether the tab's next key will probably come before a pass would end; see `comes_too_late`.
    """

    tab: str
    since: float
    first: tuple[float, int] | None = None
    unread: int = 0
    too_late: bool = False


def comes_too_late(age: float, between: float, seconds: float) -> bool:
    """Whether a tab's next key will probably come before a pass ends.

    Args:
        age: seconds since the tab's latest key.
        between: seconds between its latest two keys.
        seconds: of a pass.
    """
    return between - seconds < age < 1.5 * between and between < PAUSE


def next_pass(queued: Sequence[Queued], limit: int, inputs_of: Callable[[str], int | None]) -> list[str]:
    """Returns the tabs whose rows go into the next pass, in their order.

    Args:
        queued: all requests.
        limit: inputs of one pass.
        inputs_of: returns the number of inputs of a tab's next rows, and begins its request if necessary. It is called
            only for requests that may be part of the pass. 0: the request has ended. None: it waits for room.
    """
    ordered = sorted(queued, key=lambda request: (request.too_late, request.since))
    waiting = [request for request in ordered if request.first is None]
    growing = sorted((r for r in ordered if r.first is not None), key=lambda r: r.first or (0.0, 0))
    longest, others = waiting[:1], waiting[1:]
    short = [request for request in others if request.unread <= FEW]
    long = [request for request in others if request.unread > FEW]
    half = limit // 2 if growing else limit
    chosen: list[str] = []
    spent = 0  # a part of the longest wait's text counts as one input
    for requests, most, at_least_one in (
        (longest, 0, True),
        (short, half, False),
        (growing, limit, True),
        (short, limit, False),
        (long, limit, False),
    ):
        while requests and (at_least_one or spent < most):
            inputs = inputs_of(requests[0].tab)
            if inputs and not at_least_one and spent + inputs > most:
                break
            tab = requests.pop(0).tab
            if inputs:
                chosen.append(tab)
                spent += 1 if requests is longest else inputs
                at_least_one = False
    return chosen
