"""`eval repetition`: repetition within and between long drafts, by their length (Superposed Decoding, section 5.3,
Figure 8), with and without resets.

At each place every method makes k drafts of the greatest length once. The figures of a shorter length are those of the
drafts at that step, which are not the beginnings of the last ones: the drafts that are dropped on the way leave long
ones with one beginning. With resets, one draft, sampled by its probability, becomes text every RESET tokens, so all
drafts share it, and self-BLEU is high. `unique_n` is the share of different n-grams among a draft's n-grams, averaged
over drafts. `self_bleu` is the mean BLEU-2 of each draft against the others.
"""

from __future__ import annotations

from dataclasses import dataclass
from statistics import fmean
from typing import Annotated

from core.autocomplete import load_autocomplete
from core.models import Sequence
from core.ngram.shelf import interpolation
from research.evals.methods import SHIPPED, Method, by_the_paper, nucleus, sampled, superposed
from research.evals.samplers import self_bleu
from research.options import MixedOptions, PlacesOptions, PlotOptions, amount
from research.places import places, texts
from research.plots import lines, page, series
from research.report import Progress, Report, ReportRow, counted
from research.scores import half_interval

K = 3
LENGTHS = (5, 10, 15, 20, 50, 100, 150, 200)
RESET = 10  # tokens
FIGURES = ("unique_1", "unique_2", "unique_3", "self_bleu")


@dataclass(frozen=True)
class RepetitionOptions(PlotOptions, MixedOptions, PlacesOptions):
    repetitions: Annotated[int, amount("Places per kind of text.")] = 8


def measure(options: RepetitionOptions, progress: Progress) -> Report:
    autocomplete = load_autocomplete(options.model, options.backend, options.store, personal=False)
    model, base = autocomplete.model, autocomplete.ngrams
    rule, r = interpolation(base), SHIPPED.exact_steps
    compared = {
        "nucleus": nucleus(None),
        "top-n-sigma": sampled(autocomplete.sampler("top-n-sigma")),
        "top-n-sigma, dry": sampled(autocomplete.sampler("top-n-sigma+dry")),  # Top-nσ's appendix E
        "greedy": superposed(rule, single=True),
        "superposed, the paper's": by_the_paper(base),
        f"superposed, the paper's, reset every {RESET}": by_the_paper(base, reset_every=RESET),
        f"superposed, r={r}": superposed(rule, r),
        f"superposed, r={r}, reset every {RESET}": superposed(rule, r, reset_every=RESET),
    }
    chosen = places(model.tokenizer, texts(options.text), options.repetitions, options.context)
    groups: dict[tuple[str, int], list[list[list[int]]]] = {(name, n): [] for name in compared for n in LENGTHS}
    sequence = model.open()
    for place in counted(chosen, "place", progress):
        for name, draft in compared.items():
            sequence.sync(place.before)
            for length, drafts in at_each_length(draft, sequence, place.before).items():
                groups[name, length].append(drafts)
    sequence.close()
    model.close()
    report = Report("eval repetition")
    report.rows = [_row(name, length, drafts) for (name, length), drafts in groups.items()]
    return report


def at_each_length(
    draft: Method, sequence: Sequence, prefix: list[int], lengths: tuple[int, ...] = LENGTHS
) -> dict[int, list[list[int]]]:
    """Returns the K drafts of each length, which are made once, to the greatest length."""
    by_length: dict[int, list[list[int]]] = {}

    def growing(drafts: list[list[int]]) -> bool:
        if (length := len(drafts[0])) in lengths:
            by_length[length] = [list(ids) for ids in drafts]
        return True

    by_length[max(lengths)] = draft(sequence, prefix, K, max(lengths), growing)
    return by_length


def unique(ids: list[int], n: int) -> float:
    """Returns the share of different n-grams among a draft's n-grams; 1 if it has none."""
    grams = list(zip(*(ids[i:] for i in range(n)), strict=False))
    return len(set(grams)) / len(grams) if grams else 1.0


def _row(method: str, length: int, groups: list[list[list[int]]]) -> ReportRow:
    """Returns the figures of each place's drafts, which have `length` tokens."""
    row: ReportRow = {"method": method, "length": length, "places": len(groups)}
    for n in (1, 2, 3):
        shares = [fmean(unique(draft, n) for draft in drafts) for drafts in groups]
        row |= {f"unique_{n}": fmean(shares), f"unique_{n}_ci": half_interval(shares)}
    alike = [self_bleu(drafts) for drafts in groups]
    return row | {"self_bleu": fmean(alike), "self_bleu_ci": half_interval(alike)}


def plots(report: Report) -> str:
    """Draws each figure against the length."""
    return page([lines(figure, "tokens", series(report.rows, "method", "length", figure)) for figure in FIGURES])
