"""The effect of rules on one next-token distribution: the data for charts and tables, without a model pass.

`look` compares rules at one temperature, `sweep` counts the tokens they keep over several temperatures, `top_w_map`
places the candidates of Top-W on a plane. All work on logits that the caller has cached.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from core.controls import CATALOG, title_of
from core.errors import InputError
from core.models.base import Tokenizer
from core.options import SelectAt, Value
from core.samplers.base import DROPPED, without_nan
from core.samplers.catalog import cuts, sampler
from core.samplers.chain import Chain
from core.samplers.geometry import Geometry
from core.samplers.temperature import Temperature
from core.samplers.top_w import Selection, TopW

TOP = 30  # tokens that a chart shows
MOST_POINTS = 120  # candidates of Top-W on its map
TEMPERATURES = (0.5, 0.75, 1.0, 1.25, 1.5, 2.0, 2.5, 3.0, 4.0)
Geometries = Mapping[str, Geometry]
Settings = Mapping[str, Mapping[str, Value]]  # rule of the catalogue, or chain: values of its controls


@dataclass(frozen=True)
class CandidateToken:
    """One bar of the chart: its text from the tokenizer, and its probability at the view's temperature."""

    id: int
    text: str
    probability: float


@dataclass(frozen=True)
class RuleView:
    """The tokens that one rule keeps.

    Attributes:
        rule, title: its name in the catalogue, and as the papers write it.
        count: number of kept tokens.
        mass: their probability before renormalisation.
        entropy: in nats, after renormalisation.
        kept: which of the view's tokens are among them.
        last: index of the last kept one among the view's tokens, -1 if there is none: the position of the boundary.
    """

    rule: str
    title: str
    count: int
    mass: float
    entropy: float
    kept: list[bool]
    last: int


@dataclass(frozen=True)
class View:
    """One position, all rules.

    Attributes:
        temperature: T.
        entropy: in nats, of the whole distribution at T.
        tokens: the most probable, best first.
        choices: one per rule, in the requested order.
        top_w: Top-W's choice and whether distances affected it, if it is among the rules.
        possible: number of possible tokens (healing leaves only those that complete the word).
    """

    temperature: float
    entropy: float
    tokens: list[CandidateToken]
    choices: list[RuleView]
    top_w: Selection | None
    possible: int

    def as_dict(self) -> dict[str, Any]:
        fields = asdict(self)
        if self.top_w is not None:
            fields["top_w"]["geometry_mattered"] = self.top_w.geometry_mattered
        return fields


def look(
    logits: Tensor,
    tokenizer: Tokenizer,
    temperature: float = 1.0,
    settings: Settings | None = None,
    geometries: Geometries | None = None,
    top: int = TOP,
    whole: Tensor | None = None,
    select_at: SelectAt = "temperature",
) -> View:
    """Applies every rule to one row of logits (V,).

    Args:
        whole: the row with the tokens that cannot follow, which are at -inf in `logits`; None where all can.
        temperature: T.
        settings: rules by name, with values of their controls; None is all of them with their defaults.
        geometries: by metric, for top-w; without them the default rules exclude it.
        select_at: the temperature at which the rules select.
    Raises: InputError for another shape, an unknown rule, or a value out of range.
    """
    x = _row(logits)
    settings = _all(geometries) if settings is None else settings
    p = _probabilities(x / temperature)
    best = torch.topk(p, min(top, int((p > 0).sum()) or 1)).indices
    tokens = [CandidateToken(int(i), tokenizer.decode([int(i)]), float(p[i])) for i in best]
    choices, selection = [], None
    for name, values in settings.items():
        if name == "top-w":  # its choice includes the kept tokens
            selection = _top_w(values, temperature, geometries).select(_tempered(x, temperature, select_at))
            alive = torch.zeros(len(x), dtype=torch.bool)
            alive[selection.ids] = True
        else:
            rule = sampler(name, values, temperature, geometries, ends=tokenizer.ends, select_at=select_at)
            alive = (rule if whole is None else rule.measuring(_row(whole)[None]))(None, x[None])[0] > DROPPED
        kept = [bool(alive[t.id]) for t in tokens]
        last = max((i for i, k in enumerate(kept) if k), default=-1)
        weights = p[alive]
        choices.append(
            RuleView(
                name,
                title_of(name),
                int(alive.sum()),
                float(weights.sum()),
                _entropy(weights / weights.sum()),
                kept,
                last,
            )
        )
    return View(temperature, _entropy(p), tokens, choices, selection, int((x > DROPPED).sum()))


def sweep(
    logits: Tensor,
    settings: Settings | None = None,
    geometries: Geometries | None = None,
    temperatures: Sequence[float] = TEMPERATURES,
    ends: Set[int] = frozenset(),
    whole: Tensor | None = None,
    select_at: SelectAt = "temperature",
) -> dict[str, list[int]]:
    """The number of tokens that each rule keeps of one row (V,) at each temperature. Raises as `look` does.

    Args:
        ends: `Tokenizer.ends`, for xtc.
        whole, select_at: as for `look`.
    """
    settings = _all(geometries) if settings is None else settings

    def tempered(row: Tensor) -> Tensor:  # (temperatures, V)
        rows = _row(row).expand(len(temperatures), -1)
        return rows if select_at == "1" else Temperature(list(temperatures))(None, rows)

    x, all_of_it = tempered(logits), None if whole is None else tempered(whole)
    counts: dict[str, list[int]] = {}
    for name, values in settings.items():
        rule = Chain(cuts(name, values, list(temperatures), geometries, ends=ends))
        rule = rule if all_of_it is None else rule.measuring(all_of_it)
        counts[name] = (rule(None, x) > DROPPED).sum(1).tolist()
    return counts


@dataclass(frozen=True)
class Point:
    """A candidate of Top-W on the plane: position, probability, kept or not, kept without distances or not."""

    token: CandidateToken
    x: float
    y: float
    kept: bool
    kept_without_geometry: bool


def top_w_map(
    logits: Tensor,
    tokenizer: Tokenizer,
    temperature: float = 1.0,
    values: Mapping[str, Value] | None = None,
    geometries: Geometries | None = None,
    select_at: SelectAt = "temperature",
) -> list[Point]:
    """The most probable candidates on the two principal axes of their whitened unit vectors. Raises as `look` does."""
    x = _row(logits)
    rule = _top_w(values or {}, temperature, geometries)
    selection = rule.select(_tempered(x, temperature, select_at))
    p = _probabilities(x / temperature)
    ids = torch.topk(p, min(MOST_POINTS, rule.top_m, int((p > 0).sum()) or 1)).indices
    geometry = rule.geometry if rule.geometry.metric != "uniform" else (geometries or {}).get("l2")
    if geometry is None:
        raise InputError("No embeddings given; geometries with the metric l2 expected.")
    u = geometry.vectors(ids).double()
    u -= u.mean(0)
    values_, axes = torch.linalg.eigh(u @ u.T)  # (n, n): n is small where D is not
    plane = (axes[:, -2:] * values_[-2:].clamp(min=0).sqrt()).flip(1)  # (n, up to 2)
    plane = torch.nn.functional.pad(plane, (0, 2 - plane.shape[1]))
    plane = plane * torch.where(plane.gather(0, plane.abs().argmax(0, keepdim=True)) < 0, -1.0, 1.0)
    kept, plain = set(selection.ids), set(selection.without_geometry)
    return [
        Point(CandidateToken(i, tokenizer.decode([i]), float(p[i])), a, b, i in kept, i in plain)
        for i, (a, b) in zip(ids.tolist(), plane.tolist(), strict=True)
    ]


def _all(geometries: Geometries | None) -> Settings:
    return {name: {} for name in CATALOG if name != "top-w" or geometries is not None}


def _top_w(values: Mapping[str, Value], temperature: float, geometries: Geometries | None) -> TopW:
    (rule,) = cuts("top-w", values, temperature, geometries or {})
    assert isinstance(rule, TopW)
    return rule


def _tempered(x: Tensor, temperature: float, select_at: SelectAt) -> Tensor:
    """The row (V,) from which a rule selects."""
    return x if select_at == "1" else Temperature(temperature)(None, x[None])[0]


def _row(logits: Tensor) -> Tensor:
    if logits.ndim != 1 or not len(logits):
        raise InputError(f"Logits of shape {tuple(logits.shape)} given; one row (V,) expected.")
    return without_nan(logits[None].float().cpu())[0][0]


def _probabilities(x: Tensor) -> Tensor:
    return x.double().softmax(0)


def _entropy(p: Tensor) -> float:
    q = p[p > 0].numpy()
    return max(0.0, float(-(q * np.log(q)).sum()))  # in this order, so that the result is never -0
