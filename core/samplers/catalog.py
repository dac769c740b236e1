"""Creates a rule from its name and the values of its controls (`core.controls`)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from torch import Tensor

from core.controls import checked_rule
from core.samplers.base import Rule
from core.samplers.chain import Chain
from core.samplers.eta import Eta
from core.samplers.geometry import Geometry
from core.samplers.greedy import Greedy
from core.samplers.min_p import MinP
from core.samplers.mirostat import Mirostat
from core.samplers.temperature import Temperature
from core.samplers.top_h import TopH
from core.samplers.top_k import TopK
from core.samplers.top_n_sigma import TopNSigma
from core.samplers.top_p import TopP
from core.samplers.top_w import TopW
from core.samplers.typical import Typical

RULES: dict[str, type[Rule]] = {
    "greedy": Greedy,
    "top-k": TopK,
    "top-p": TopP,
    "min-p": MinP,
    "top-n-sigma": TopNSigma,
    "top-h": TopH,
    "typical": Typical,
    "eta": Eta,
    "mirostat": Mirostat,
    "top-w": TopW,
}


def sampler(
    rule: str = "none",
    values: Mapping[str, Any] | None = None,
    temperature: float = 1.0,
    embeddings: Tensor | Mapping[str, Geometry] | None = None,
) -> Rule:
    """The temperature followed by the rule, as one rule.

    Args:
        rule: a name of the catalogue.
        values: of its controls, by name; the rest have their defaults.
        temperature: T, 0.05 to 4.
        embeddings: (V, D), which top-w needs unless its metric is uniform; or geometries to share, by metric.
    Raises: InputError that names the value.
    """
    arguments = checked_rule(rule, values or {}, temperature)
    kind = RULES.get(rule)
    if kind is Greedy:
        return Greedy()
    rules: list[Rule] = [] if temperature == 1 else [Temperature(temperature)]
    if kind is TopW:
        arguments["embeddings"] = embeddings[arguments["metric"]] if isinstance(embeddings, Mapping) else embeddings
    if kind is not None:
        rules.append(kind(**arguments))
    return rules[0] if len(rules) == 1 else Chain(rules)
