"""W1 between two distributions on the same few points, exactly: a plan that moves one into the other, and a potential
that shows that none is cheaper.

By successive shortest paths (Ahuja, Magnanti, Orlin: Network Flows, 9.7), for tens of points.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

import numpy as np

_NOTHING = 1e-15  # of probability, left over by rounding
_SHORTER = 1e-13  # by which a path must be shorter than another


@dataclass(frozen=True)
class Transport:
    """The cheapest way to move p to q.

    Attributes:
        cost: W1(p, q).
        plan: (n, n), what moves from each point to each other one.
        potential: (n,) 1-Lipschitz, with Σ (p_i - q_i)·f_i = W1 (eq. 4 of Top-W's paper).
    """

    cost: float
    plan: np.ndarray
    potential: np.ndarray


def transport(p: np.ndarray, q: np.ndarray, d: np.ndarray) -> Transport:
    """Moves p (n,) to q (n,) under a metric d (n, n). What both have stays where it is."""
    sources, sinks = np.flatnonzero(p > q), np.flatnonzero(q > p)
    if not len(sinks):
        return Transport(0.0, np.zeros_like(d), np.zeros(len(p)))
    if len(sinks) > len(sources):  # the paths are searched among the sinks
        back = transport(q, p, d)
        return Transport(back.cost, back.plan.T, -back.potential)
    c = d[np.ix_(sources, sinks)]  # (s, k)
    moved, room = np.zeros_like(c), (q - p)[sinks]
    for source, left in enumerate((p - q)[sources]):
        while left > _NOTHING and room.max() > _NOTHING:
            reroute, by = _reroutes(c, moved)
            length, before = _shortest(c[source].copy(), reroute)
            path = [int(np.where(room > _NOTHING, length, np.inf).argmin())]
            while before[path[0]] >= 0:
                path.insert(0, int(before[path[0]]))
            hops = [(by[a, b], a, b) for a, b in pairwise(path)]
            amount = min(left, room[path[-1]], *(moved[other, a] for other, a, _ in hops))
            moved[source, path[0]] += amount
            for other, a, b in hops:
                moved[other, a] -= amount
                moved[other, b] += amount
            left -= amount
            room[path[-1]] -= amount
    plan = np.zeros_like(d)
    plan[np.ix_(sources, sinks)] = moved
    height, _ = _shortest(np.zeros(len(sinks)), _reroutes(c, moved)[0])
    return Transport(float((plan * d).sum()), plan, (d[:, sinks] - height).min(1))


def _reroutes(c: np.ndarray, moved: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """What it costs to send to sink b what some source sends to sink a (k, k), and the source for which it costs least;
    infinite where nothing arrives at a."""
    costs = np.where(moved > _NOTHING, -c, np.inf)[:, :, None] + c[:, None, :]  # (s, a, b)
    return costs.min(0), costs.argmin(0)


def _shortest(length: np.ndarray, reroute: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The lengths of the shortest paths to each sink (k,) from direct ones, and the sink before it on its path; -1 for
    none (Bellman and Ford)."""
    before = np.full(len(length), -1)
    for _ in range(len(length)):
        through = length[:, None] + reroute
        shorter = through.min(0) < length - _SHORTER
        if not shorter.any():
            break
        before = np.where(shorter, through.argmin(0), before)
        length = np.where(shorter, through.min(0), length)
    return length, before
