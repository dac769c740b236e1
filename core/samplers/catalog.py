"""Creates a rule, or a chain of rules, from its name and the values of its controls (`core.controls`)."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence, Set
from importlib import import_module

from torch import Tensor

from core.controls import CATALOG, TIED, CatalogEntry, checked_rule, entries_of
from core.options import SelectAt, Value
from core.samplers.base import Rule
from core.samplers.chain import Chain
from core.samplers.dry import DRY
from core.samplers.geometry import Geometry
from core.samplers.temperature import Temperature
from core.samplers.top_w import TopW
from core.samplers.xtc import XTC


def _class_of(entry: CatalogEntry) -> Callable[..., Rule]:
    module, _, name = entry.made_by.partition(":")
    return getattr(import_module(f".{module}", __package__), name)


# `checked_rule` has checked the arguments, which are the controls of the rule.
RULES = {entry.name: _class_of(entry) for entry in CATALOG.values() if entry.made_by}

NOTHING_MORE: Mapping[str, Mapping[str, object]] = {}


def sampler(
    rule: str = "none",
    values: Mapping[str, Value] | None = None,
    temperature: float = 1.0,
    embeddings: Tensor | Mapping[str, Geometry] | None = None,
    breakers: Set[int] = frozenset(),
    ends: Set[int] = frozenset(),
    select_at: SelectAt = "temperature",
    more: Mapping[str, Mapping[str, object]] = NOTHING_MORE,
) -> Rule:
    """The temperature followed by the rule or by the rules of a chain, as one rule; with `select_at` "1" after them.
    DRY as the first rule always comes before the temperature, as in its source.

    Args:
        rule: a name of the catalogue, or several as `core.chains` joins them.
        values: of the controls, by name; the rest have their defaults.
        temperature: T, 0.05 to 10.
        embeddings: (V, D), which top-w needs unless its metric is uniform; or geometries to share, by metric.
        breakers: the ids that `core.samplers.dry.breakers` finds, for dry.
        ends: the ids `Tokenizer.ends`, for xtc.
        select_at: the temperature at which the rule selects.
        more: by the name of a rule, arguments of its class that are no controls.
    Raises: InputError that names the value.
    """
    checked_rule(rule, values or {}, temperature)
    tempering: list[Rule] = [] if temperature == 1 or rule == "greedy" else [Temperature(temperature)]
    rules = cuts(rule, values, temperature, embeddings, breakers, ends, more)
    first = len(rules) if select_at == "1" else int(bool(rules) and isinstance(rules[0], DRY))
    rules[first:first] = tempering
    return rules[0] if len(rules) == 1 else Chain(rules)


def cuts(
    rule: str,
    values: Mapping[str, Value] | None = None,
    temperature: float | Sequence[float] = 1.0,
    embeddings: Tensor | Mapping[str, Geometry] | None = None,
    breakers: Set[int] = frozenset(),
    ends: Set[int] = frozenset(),
    more: Mapping[str, Mapping[str, object]] = NOTHING_MORE,
) -> list[Rule]:
    """The rules alone, for logits that have been divided by the temperature already.

    Args:
        temperature: T, or one for each row; controls that follow it depend on it.
        rule, values, embeddings, breakers, ends, more: as of `sampler`.
    Raises: as `sampler` does.
    """
    arguments = checked_rule(rule, values or {})
    rules: list[Rule] = []
    for entry in entries_of(rule):
        kind = RULES.get(entry.name)
        if kind is None:
            continue
        own: dict[str, object] = {control.name: arguments[control.name] for control in entry.controls}
        if entry.tie is not None and own.pop(entry.tie.by) == TIED:
            tied = [entry.tie.value(t) for t in (temperature if isinstance(temperature, Sequence) else [temperature])]
            own[entry.tie.control] = tied if isinstance(temperature, Sequence) else tied[0]
        if kind is TopW:
            own["embeddings"] = embeddings.get(str(own["metric"])) if isinstance(embeddings, Mapping) else embeddings
        if kind is DRY:
            own["breakers"] = breakers
        if kind is XTC:
            own["ends"] = ends
        rules.append(kind(**own, **more.get(entry.name, {})))
    return rules
