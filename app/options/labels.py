"""What the panel writes beside the options, rules and methods of `core.options` and `core.controls`, and where it shows
each option. An option or a rule without an entry here stands among those for experts, under its own name.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from core.controls import CATALOG
from core.options import Control


@dataclass(frozen=True)
class Labelled:
    """How the panel shows an option.

    Attributes:
        label: its name.
        main: whether it is shown at once, instead of under *For experts*.
        most: the largest value of its slider, where that is below the largest that links and presets reach.
        source: its symbol, and the place in a paper or a page of docs/ that says what it does.
    """

    label: str
    main: bool = False
    most: float | None = None
    source: str = ""


_SPD = "Superposed Decoding"

# The options of drafting are in the order of the panel: those for experts in the order in which a draft is made, from
# the model's logits and what is mixed in, over places where drafts branch, to how they grow, end and are made anew.
_SHOWN = {
    "temperature": Labelled("Temperature", True, 4.0, "T · divides the logits before the rule"),
    "select-at": Labelled("Select at temperature", source="T_sel · Top-W, Algorithm 1"),
    "k": Labelled("How many", True),
    "length": Labelled("How far ahead", True),
    "end-below": Labelled("How sure", True),
    "seed": Labelled("Seed", True),
    "tau": Labelled("Softmax τ", source=f"τ · {_SPD}, appendix B"),
    "ngrams": Labelled("Common phrases", source=f"p_ngram · {_SPD}, eq. 5"),
    "mixing": Labelled(
        "Mixing of phrases", source=f"p_f · {_SPD}, eqs. 6 and 7; linear: Polydraft’s, research/docs/ngram-stores.md"
    ),
    "alpha": Labelled("Weight of common phrases", source=f"α · {_SPD}, eq. 6"),
    "personal-weight": Labelled("Weight of your phrases", source="α of your stores · Polydraft’s, personal-stores.md"),
    "prose": Labelled("Prose"),
    "distinct": Labelled("Distinct beginnings", source=f"Off: {_SPD}, eq. 2. On: Polydraft’s, superposed-decoding.md"),
    "forks": Labelled("Forks", source="Polydraft’s, superposed-decoding.md"),
    "exact-steps": Labelled("Exact steps", source=f"r · Polydraft’s, superposed-decoding.md. 0: {_SPD}, eqs. 3 and 4"),
    "verify": Labelled("Checked tokens", source="Polydraft’s, superposed-decoding.md"),
    "reset-every": Labelled("Resets", source=f"s · {_SPD}, section 5.3"),
    "min-branch": Labelled("Least likely draft", source="Polydraft’s, superposed-decoding.md"),
    "min-confidence": Labelled("Minimum confidence"),
    "refill": Labelled("Fresh at every key", source="When rows are made anew"),
    # of rules
    "top-k": Labelled("k · how many", True, 200),
    "top-p": Labelled("p · share of probability", True),
    "min-p": Labelled("p · share of the likeliest", True),
    "n-sigma": Labelled("n · standard deviations", True),
    "top-h": Labelled("α · share of entropy", True),
    "mass": Labelled("Share of probability", True),
    "epsilon": Labelled("ε · threshold", True, 0.01),
    "dry-multiplier": Labelled("Strength", True),
    "dry-base": Labelled("Base", True),
    "dry-allowed": Labelled("Allowed", True),
    "xtc-threshold": Labelled("Threshold", True),
    "xtc-probability": Labelled("Probability", True),
    "surprise": Labelled("τ · surprise", True),
    "rate": Labelled("η · rate", True),
    "beta": Labelled("β · reward of probability", True),
    "beta-by": Labelled("β by"),
    "lam": Labelled("λ · price of entropy", True),
    "geom-scale": Labelled("Distance", True),
    "warm-start": Labelled("Warm start"),
    "metric": Labelled("Metric"),
    "potential": Labelled("Potential", source="f · Top-W, section 4.1"),
    "top-m": Labelled("Pool", most=2000),
    "alternations": Labelled("Rounds"),
    "neighbours": Labelled("Neighbours"),
    # of methods and of speculation
    "samples": Labelled("n · beginnings", True),
    "sampled-tokens": Labelled("m · tokens of a beginning", True),
    "tree-size": Labelled("Tree size", True),
    "theta": Labelled("θ · tolerance", True),
    "prune-lambda": Labelled("λ · caution", True),
    "prune-epsilon": Labelled("ε · dropped share", True),
}

# The choices of an option whose values are not plain.
CHOICES = {
    "select-at": {"temperature": "The same: the temperature comes first", "1": "1: the rule comes first"},
    "mixing": {"linear": "Phrases only add probability", "geometric": "As in the paper"},
    "beta-by": {"value": "β as set", "temperature": "The temperature"},
}

# Options of the page that a command does not have: it makes drafts once.
OF_THE_PAGE = frozenset({"refill"})

# The rules that the panel offers as buttons; the others are one click further.
BUTTONS = ("none", "top-w", "top-n-sigma", "min-p", "top-p", "top-h", "p-less")

# What a rule does, in a few words for people who do not know the papers.
PLAIN = {
    "none": "Any word.",
    "greedy": "Only the likeliest word.",
    "top-k": "A fixed number of likely words.",
    "top-p": "Likely words, up to a share of all chances.",
    "min-p": "Words that are not much less likely than the best.",
    "p-less": "Words that are likely for how open the text is.",
    "top-n-sigma": "Words close to the best, at any temperature.",
    "top-h": "More words where the text is open.",
    "typical": "Words as surprising as one would expect here.",
    "eta": "No very unlikely words.",
    "dry": "No phrases that the text has already.",
    "xtc": "No obvious words, where there is a choice.",
    "mirostat": "A steady level of surprise.",
    "top-w": "Likely words with related meanings.",
}

_RULES = {"none": "None", "eta": "Eta (η)"}

MODES = {
    "superposed": "Superposed",
    "sampled": "Sampled",
    "beam": "Beam search",
    "greedy": "Greedy",
    "branching": "Branching",
    "sampled+superposed": "Sampled + superposed",
}
WAYS = {"off": "Off", "lossless": "Lossless", "arc": "ARC"}
DRAFTERS = {
    "ngram": "N-grams",
    "suffix": "Repeated text",
    "superposed": "Superposed drafts",
    "model": "A draft model",
    "eagle3": "EAGLE-3",
}

# The presets that the panel offers first.
STYLES = {
    "Precise": "Likely words only. Sometimes there are fewer drafts.",
    "Balanced": "Likely words first. This is the default.",
    "Wild": "Drawn by chance: surprising words, and sometimes nonsense.",
}


def shown(control: Control) -> Labelled:
    return _SHOWN.get(control.flag) or Labelled(named(control.flag))


def info(control: Control) -> str:
    """What a change of an option does; of one for experts also its symbol and source."""
    more = shown(control)
    return f"{control.explain}\n{more.source}" if more.source and not more.main else control.explain


def rule_label(rule: str) -> str:
    """The title of a rule, beginning with a capital as all labels do."""
    title = CATALOG[rule].title
    return _RULES.get(rule) or title[:1].upper() + title[1:]


def named(name: str) -> str:
    """The label of something that has none of its own."""
    return name[:1].upper() + name[1:].replace("-", " ").replace("_", " ")


def choices(names: Iterable[str], titles: Mapping[str, str]) -> list[tuple[str, str]]:
    """Pairs of label and name, for a list of the panel."""
    return [(titles.get(name) or named(name), name) for name in names]


def in_order(controls: list[Control]) -> list[Control]:
    """Controls in the order of the panel; those without an entry come last."""
    places = [*_SHOWN]
    return sorted(controls, key=lambda each: places.index(each.flag) if each.flag in _SHOWN else len(places))
