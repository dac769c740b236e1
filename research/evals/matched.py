"""Parameters at which rules are equally strong: found by bisection, so that each rule keeps as much as Top-nσ does.

A rule that keeps fewer tokens is more often right and less varied, so two rules with their usual parameters differ
mostly in strength. Here each rule has one parameter to solve for (`DIALS`), and two measures of strength can be made
equal over the same places: the mean probability of the kept tokens, or the mean number of different tokens among
three draws. Both are monotone in every parameter, up to the tokens that enter one by one.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from core.controls import CATALOG
from core.options import Value
from core.samplers import Chain, Geometry
from core.samplers.catalog import cuts

PEER = "top-n-sigma"  # with its default, n = 1
DRAWS = 3
STEPS = 24
TOLERANCE = 5e-4  # of a kept mass; of the number of different draws as well
REACHED = 5e-3  # rules that differ by no more are as strong: tokens enter one by one, so a few places make jumps
ROWS = 64  # of logits at once

Strength = Literal["mass", "variety"]


@dataclass(frozen=True)
class Dial:
    """The parameter of a rule that is solved for, and whether it is bisected by its logarithm."""

    control: str
    by_logarithm: bool = False


DIALS = {
    "min-p": Dial("min_p", by_logarithm=True),
    "top-p": Dial("top_p"),
    "typical": Dial("mass"),
    "eta": Dial("epsilon", by_logarithm=True),
    "top-h": Dial("alpha"),
    "top-w": Dial("beta"),
}
LEAST = 1e-6  # of a parameter that is bisected by its logarithm and may be 0


@dataclass(frozen=True)
class Solved:
    """A rule's parameter.

    Attributes:
        strength: at this value; away from the target by more than REACHED if the rule cannot be as strong or as weak.
    """

    rule: str
    control: str
    value: float
    strength: float

    @property
    def values(self) -> dict[str, Value]:
        return {self.control: self.value}


def solved(
    tempered: Tensor,
    t: float,
    by: Strength,
    geometries: Mapping[str, Geometry],
    rules: Mapping[str, Dial] = DIALS,
) -> Iterator[Solved]:
    """Yields Top-nσ's default, then each rule's parameter at which it is as strong, one after the other.

    Args:
        tempered: logits (n, V), divided by the temperature t.
    """

    def strength(rule: str, values: Mapping[str, Value]) -> float:
        return strength_of(tempered, Chain(cuts(rule, values, t, geometries)), by)

    n = float(CATALOG[PEER].control("n").default)
    target = strength(PEER, {"n": n})
    yield Solved(PEER, "n", n, target)
    for rule, dial in rules.items():
        control = CATALOG[rule].control(dial.control)
        low, high = float(control.low), float(control.high)
        if dial.by_logarithm:
            low = max(low, LEAST)
        value, reached = bisected(
            lambda x, rule=rule, dial=dial: strength(rule, {dial.control: x}), low, high, target, dial.by_logarithm
        )
        yield Solved(rule, dial.control, value, reached)


def strength_of(tempered: Tensor, rule: Callable[[None, Tensor], Tensor], by: Strength) -> float:
    """Returns the mean strength of a rule over logits (n, V)."""
    total = 0.0
    for rows in tempered.split(ROWS):
        kept = rule(None, rows)
        if by == "mass":
            total += float(torch.where(kept > -torch.inf, rows.softmax(1), 0).sum(1).double().sum())
        else:
            total += float((1 - (1 - kept.softmax(1)) ** DRAWS).sum(1).double().sum())
    return total / len(tempered)


def bisected(
    function: Callable[[float], float], low: float, high: float, target: float, by_logarithm: bool = False
) -> tuple[float, float]:
    """Returns the x in [low, high] at which a monotone function is nearest to a target, and the function there: an end
    if the target lies beyond it; else within TOLERANCE, or next to a jump of the function."""
    there, back = (math.log, math.exp) if by_logarithm else (float, float)
    ends = [(low, function(low)), (high, function(high))]
    ends.sort(key=lambda end: end[1])
    (below, least), (above, most) = ends
    best = min(ends, key=lambda end: abs(end[1] - target))
    if not least < target < most:
        return best
    for _ in range(STEPS):
        if abs(best[1] - target) <= TOLERANCE:
            break
        middle = back((there(below) + there(above)) / 2)
        result = function(middle)
        best = min(best, (middle, result), key=lambda end: abs(end[1] - target))
        if result < target:
            below = middle
        else:
            above = middle
    return best
