"""A chain of rules, applied in the given order; meaningless combinations are refused."""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor

from core.chains import notes, refuse
from core.errors import InputError
from core.samplers.base import Rule, without_nan
from core.samplers.temperature import Temperature
from core.samplers.top_w import TopW


class Chain(Rule):
    """Applies rules one after the other, each to the result of the previous one.

    A rule sees the remaining tokens alone, and their probabilities sum to 1: the chain renormalises between rules, as
    transformers, vLLM and llama.cpp do. Min-p, top-k and a temperature do not depend on that.

    The usual order is temperature first, then cropping rules, as in the papers of all probability rules.
    top-nσ and top-k keep the same tokens at any temperature and may be at any position.

    Attributes:
        rules: in their order.
        notes: explanations of surprising combinations.
    """

    title = "chain"

    def __init__(self, rules: Sequence[Rule]) -> None:
        """
        Args:
            rules: in the order in which they are applied; an empty list leaves the logits unchanged.
        Raises: InputError with the reason, for a meaningless combination.
        """
        self.rules = list(rules)
        titles = [rule.title for rule in self.rules]
        refuse(titles)
        _refuse_two_temperatures(self.rules)
        self.notes = notes(titles)
        self.reads_text = any(rule.reads_text for rule in self.rules)
        self.on_cpu = any(rule.on_cpu for rule in self.rules)

    def measuring(self, whole: Tensor, input_ids: Tensor | None = None) -> Chain:
        last = max((n for n, rule in enumerate(self.rules) if type(rule).measuring is not Rule.measuring), default=-1)
        if last < 0:
            return self
        rules = list(self.rules)
        for n, rule in enumerate(self.rules[: last + 1]):
            rules[n] = rule.measuring(whole, input_ids)
            if n < last:
                whole = rule(input_ids, whole)
        return Chain(rules)

    def crop(self, x: Tensor, best: Tensor, input_ids: Tensor | None) -> Tensor:
        for rule in self.rules:
            x = rule.crop(x, best, input_ids)
            best = x.amax(-1, keepdim=True)
        return x if self.rules else without_nan(x)[0]


def parts(rule: object) -> list[object]:
    """The rules that a rule applies, in their order: those of a chain, else itself."""
    return list(rule.rules) if isinstance(rule, Chain) else [rule]


def _refuse_two_temperatures(rules: list[Rule]) -> None:
    kinds = [type(rule) for rule in rules]
    top_w = next((rule for rule in rules if isinstance(rule, TopW)), None)
    if top_w is None or Temperature not in kinds or _is_one(top_w):
        return
    if kinds.index(Temperature) < kinds.index(TopW):
        raise InputError(
            "temperature before Top-W, and a selection_temperature as well, would apply two temperatures to the "
            "choice; give the temperature alone, or put it after Top-W."
        )


def _is_one(rule: TopW) -> bool:
    t = rule.selection_temperature
    return not isinstance(t, Sequence | Tensor) and t == 1
