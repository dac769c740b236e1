"""A chain of rules, applied in the given order; meaningless combinations are refused."""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor

from core.errors import InputError
from core.samplers.base import Rule, mended
from core.samplers.eta import Eta
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

_BY_PROBABILITY = (
    TopP,
    MinP,
    TopH,
    TopW,
    Typical,
    Eta,
    Mirostat,
)  # the tokens that they keep depend on the temperature


_BY_SHARE = (TopP, TopH, TopW, Typical, Eta)  # they depend on each token's share of the probability

_TOP_P_FIRST = (
    " So at most those tokens remain that both rules keep of the whole distribution; put top-p first for exactly these."
)


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
        _refuse(self.rules)
        self.notes = _notes(self.rules)

    def crop(self, x: Tensor, best: Tensor, input_ids: Tensor | None) -> Tensor:
        for rule in self.rules:
            x = rule.crop(x, best, input_ids)
            best = x.amax(-1, keepdim=True)
        return x if self.rules else mended(x)[0]


def parts(rule: object) -> list[object]:
    """The rules that a rule applies, in their order: those of a chain, else itself."""
    return list(rule.rules) if isinstance(rule, Chain) else [rule]


def _refuse(rules: list[Rule]) -> None:
    kinds = [type(rule) for rule in rules]
    for rule in rules:
        if kinds.count(type(rule)) > 1:
            raise InputError(f"{rule.title} given twice; one would have the same effect: give one value.")
    present = dict(zip(kinds, rules, strict=True))
    if Greedy in present and len(rules) > 1:
        others = ", ".join(r.title for r in rules if not isinstance(r, Greedy))
        raise InputError(f"greedy given with {others}; greedy keeps one token in any case: give greedy alone.")
    croppers = [r.title for r in rules if not isinstance(r, Temperature | Mirostat)]
    if Mirostat in present and croppers:
        raise InputError(
            f"mirostat given with {', '.join(croppers)}; mirostat controls the cut by the surprise it observes, and "
            "another cut would distort it: give one or the other."
        )
    top_w = present.get(TopW)
    if isinstance(top_w, TopW) and Temperature in present and not _is_one(top_w):
        before = kinds.index(Temperature) < kinds.index(TopW)
        if before:
            raise InputError(
                "temperature before Top-W, and a selection_temperature as well, would apply two temperatures to the "
                "choice; give the temperature alone, or put it after Top-W."
            )


def _is_one(rule: TopW) -> bool:
    t = rule.selection_temperature
    return not isinstance(t, Sequence | Tensor) and t == 1


def _notes(rules: list[Rule]) -> list[str]:
    notes: list[str] = []
    kinds = [type(rule) for rule in rules]
    for at, rule in enumerate(rules):
        earlier = rules[:at]
        cropped = [r.title for r in earlier if not isinstance(r, Temperature)]
        if isinstance(rule, TopNSigma) and cropped:
            notes.append(
                f"top-nσ after {', '.join(cropped)}: σ is computed over the remaining logits and is smaller than over "
                "the model's logits, so fewer tokens remain than with top-nσ first."
            )
        if isinstance(rule, _BY_SHARE) and cropped:
            notes.append(
                f"{rule.title} after {', '.join(cropped)}: its probabilities are those among the remaining tokens, "
                f"which sum to 1.{_TOP_P_FIRST if isinstance(rule, TopP) else ''}"
            )
        if isinstance(rule, _BY_PROBABILITY) and Temperature in kinds[at:]:
            notes.append(
                f"temperature after {rule.title}: {rule.title} chooses at T = 1, and the temperature only shifts "
                "weight among the kept tokens."
            )
    if Typical in kinds and TopK in kinds and kinds.index(Typical) < kinds.index(TopK):
        notes.append("top-k after typical: typical may have dropped the likeliest tokens already.")
    return notes
