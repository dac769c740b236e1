"""Scores of a set of drafts against the writer's text, and confidence intervals of their means."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean, median, stdev

from core.models import Tokenizer
from core.models.base import common
from research.report import ReportRow

EXACT = range(1, 7)


@dataclass(frozen=True)
class Score:
    """One set of drafts.

    Attributes:
        match: tokens of the longest correct beginning of any draft.
        characters: saved by taking that part of the draft, minus one for the key that takes it.
        duplicates: share of the drafts that repeat an earlier one; nan for incomplete drafts.
        ms: time to make them; nan if not timed or incomplete.
        perplexity: of the best draft; nan if not computed.
        tokens: mean length of the drafts; nan for incomplete drafts.
    """

    kind: str
    match: int
    characters: int
    duplicates: float
    ms: float
    perplexity: float = math.nan
    tokens: float = math.nan


def scored(
    tokenizer: Tokenizer, kind: str, drafts: Sequence[list[int]], after: list[int], ms: float, whole: bool = True
) -> Score:
    match = max((common(draft, after) for draft in drafts), default=0)
    characters = max(len(tokenizer.decode(after[:match])) - 1, 0)
    if not whole:
        return Score(kind, match, characters, math.nan, ms)
    distinct = len({tuple(draft) for draft in drafts})
    duplicates, tokens = 1 - distinct / max(len(drafts), 1), mean([len(draft) for draft in drafts])
    return Score(kind, match, characters, duplicates, ms, tokens=tokens)


def summary(scores: Sequence[Score], exact: range = EXACT) -> ReportRow:
    """Means over sets of drafts; `match_ci` is half of the mean's 95 % confidence interval. Duplicates are those of the
    complete drafts, ms the median of the timed ones, `perplexity` the mean of the best drafts', `tokens` the
    mean length, because drafts that end early have a lower perplexity."""
    matches = [score.match for score in scores]
    duplicates = [score.duplicates for score in scores if not math.isnan(score.duplicates)]
    timed = [score.ms for score in scores if not math.isnan(score.ms)]
    perplexities = [score.perplexity for score in scores if not math.isnan(score.perplexity)]
    lengths = [score.tokens for score in scores if not math.isnan(score.tokens)]
    return {
        "places": len(scores),
        "match": fmean(matches),
        "match_ci": half_interval(matches),
        **{f"exact_{n}": fmean(match >= n for match in matches) for n in exact},
        "characters_saved": fmean(score.characters for score in scores),
        "duplicates": mean(duplicates),
        "tokens": mean(lengths),
        "perplexity": mean(perplexities),
        "perplexity_ci": half_interval(perplexities),
        "ms": median(timed) if timed else math.nan,
    }


def mean(values: Sequence[float]) -> float:
    """Returns the mean; nan without values."""
    return fmean(values) if values else math.nan


def half_interval(values: Sequence[float]) -> float:
    """Returns half of the 95 % confidence interval of a mean, by the normal approximation; nan for fewer than two
    values."""
    return 1.96 * stdev(values) / math.sqrt(len(values)) if len(values) > 1 else math.nan


def ratio_interval(above: Sequence[Sequence[float]], below: Sequence[Sequence[float]]) -> float:
    """Returns half of the 95 % confidence interval of a ratio of sums, as tokens / seconds; nan for fewer than two
    cases.

    Args:
        above, below: lists with a number for each case. The ratio is the product of the sums of `above` divided by that
            of `below`. All lists have the same cases, so what changes two of them alike cancels.
    """
    ratio = math.prod(map(sum, above)) / math.prod(map(sum, below))
    # Linearised: the relative error of a sum is that of the mean of each number divided by their mean.
    signed = [
        [sign * x / fmean(of_one) for x in of_one] for sign, lists in ((1, above), (-1, below)) for of_one in lists
    ]
    return ratio * half_interval([math.fsum(of_case) for of_case in zip(*signed, strict=True)])


def median_interval(values: Sequence[float]) -> tuple[float, float]:
    """Returns the 95 % confidence interval of a median: two of the values, by the binomial distribution's normal
    approximation."""
    ordered, n = sorted(values), len(values)
    reach = 0.98 * math.sqrt(n)  # 1.96 standard deviations of the number of values below the median
    return ordered[max(math.floor(n / 2 - reach), 0)], ordered[min(math.ceil(n / 2 + reach), n - 1)]
