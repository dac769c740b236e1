"""Rules in a chain, by name: "top-n-sigma+top-p" is top-nσ, then top-p. Combinations without a meaning are refused, and
surprising ones have notes.

It works on the rules' titles alone, so that flags, fields and presets are checked without torch.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from core.errors import InputError

JOIN = "+"  # between the names of a chain's rules
TEMPERATURE = "temperature"  # the title of the rule that is no name of the catalogue
ALONE = ("greedy", "mirostat")  # titles of rules that share a chain with no other cut

# Titles of rules whose kept tokens depend on the temperature.
_BY_PROBABILITY = ("top-p", "min-p", "p-less", "top-H", "Top-W", "typical", "η", "mirostat", "XTC")
# Titles of rules whose kept tokens depend on each token's share of the probability.
_BY_SHARE = ("top-p", "p-less", "top-H", "Top-W", "typical", "η", "XTC")

_TOP_P_FIRST = (
    " So at most those tokens remain that both rules keep of the whole distribution; put top-p first for exactly these."
)


def names_of(rule: str) -> tuple[str, ...]:
    """The names of a chain's rules, in the order in which they are applied; of one rule, its own name."""
    return tuple(rule.split(JOIN))


def joined(names: Iterable[str]) -> str:
    """The name of the chain that applies these rules in this order."""
    return JOIN.join(names)


def refuse(titles: Sequence[str]) -> None:
    """Raises InputError with the reason if a chain of rules with these titles has no meaning."""
    for title in titles:
        if titles.count(title) > 1:
            raise InputError(f"{title} given twice; one would have the same effect: give one value.")
    if "greedy" in titles and len(titles) > 1:
        others = ", ".join(title for title in titles if title != "greedy")
        raise InputError(f"greedy given with {others}; greedy keeps one token in any case: give greedy alone.")
    croppers = [title for title in titles if title not in (TEMPERATURE, "mirostat")]
    if "mirostat" in titles and croppers:
        raise InputError(
            f"mirostat given with {', '.join(croppers)}; mirostat controls the cut by the surprise it observes, and "
            "another cut would distort it: give one or the other."
        )


def notes(titles: Sequence[str]) -> list[str]:
    """Explanations of the surprising combinations in a chain of rules with these titles."""
    sentences: list[str] = []
    for at, title in enumerate(titles):
        cropped = ", ".join(earlier for earlier in titles[:at] if earlier != TEMPERATURE)
        if title == "top-nσ" and cropped:
            sentences.append(
                f"top-nσ after {cropped}: σ is computed over the remaining logits and is smaller than over "
                "the model's logits, so fewer tokens remain than with top-nσ first."
            )
        if title in _BY_SHARE and cropped:
            sentences.append(
                f"{title} after {cropped}: its probabilities are those among the remaining tokens, "
                f"which sum to 1.{_TOP_P_FIRST if title == 'top-p' else ''}"
            )
        if title in _BY_PROBABILITY and TEMPERATURE in titles[at:]:
            sentences.append(
                f"temperature after {title}: {title} chooses at T = 1, and the temperature only shifts "
                "weight among the kept tokens."
            )
    if "typical" in titles and "top-k" in titles[titles.index("typical") :]:
        sentences.append("top-k after typical: typical may have dropped the likeliest tokens already.")
    return sentences
