"""`eval top-n-sigma`: the statistics of logits behind Top-nσ (its Figures 2, 3 and 6), without sampling.

Along a text, at each place: μ and σ of the logits. Figure 2 is the share of logits by their distance from μ. Figure 3
is, for nuclei of top-p, the z-score (β - μ)/σ and the distance from the top (M - β)/σ (eqs. 4 and 9) of the least
logit inside the nucleus and of the greatest outside: a rule "μ + c·σ" or "M - n·σ" keeps the nucleus if c or n lies
between both. Figure 6 is σ and the number of tokens within one σ of the greatest, place by place, along the writer's
text; the paper's is along a greedy one.
"""

from __future__ import annotations

from dataclasses import dataclass
from statistics import fmean
from typing import Annotated

from torch import Tensor

from core.models import load_model
from research import texts as text
from research.options import BackendOptions, PlotOptions, TextOptions, amount
from research.plots import lines, page, points
from research.positions import RUN, positions
from research.report import Progress, Report, ReportRow
from research.scores import half_interval

MASSES = (0.5, 0.6, 0.7, 0.8, 0.9, 0.95, 0.99)  # p of top-p
BOUNDS = ("z inside", "z outside", "distance inside", "distance outside")


@dataclass(frozen=True)
class TopNSigmaOptions(PlotOptions, BackendOptions, TextOptions):
    repetitions: Annotated[int, amount("Places.")] = 240


def measure(options: TopNSigmaOptions, progress: Progress) -> Report:
    model = load_model(options.model, options.backend)
    logits, _ = positions(model, text.load(options.text), options.repetitions)
    best = [model.tokenizer.decode([int(row.argmax())]) for row in logits[:RUN]]
    model.close()
    return Report("eval top-n-sigma", [*spread(logits), *nuclei(logits), *along(logits[:RUN], best)])


def spread(logits: Tensor) -> list[ReportRow]:
    """Returns the share of logits (n, V) in each interval of one σ from μ, up to the greatest (Figure 2)."""
    z = ((logits - logits.mean(1, keepdim=True)) / logits.std(1, keepdim=True)).floor().int().flatten()
    values, counts = z.unique(return_counts=True)
    histogram = zip(values.tolist(), counts.tolist(), strict=True)
    return [{"figure": 2, "sigmas": value, "share": count / len(z)} for value, count in histogram]


def nuclei(logits: Tensor) -> list[ReportRow]:
    """Returns means of BOUNDS over the rows of logits (n, V), for each p of MASSES (Figure 3)."""
    rows: list[ReportRow] = []
    ordered = logits.double().sort(descending=True).values
    mass = ordered.softmax(1).cumsum(1)
    mu, sigma, top = ordered.mean(1), ordered.std(1), ordered[:, 0]
    for p in MASSES:
        last = (mass < p).sum(1).clamp(max=ordered.shape[1] - 2)  # place of the least token inside
        inside, outside = (ordered.gather(1, (last + n)[:, None])[:, 0] for n in (0, 1))
        values = (inside - mu, outside - mu, top - inside, top - outside)
        row: ReportRow = {"figure": 3, "p": p, "positions": len(logits)}
        for name, value in zip(BOUNDS, values, strict=True):
            sigmas = (value / sigma).tolist()
            row |= {name: fmean(sigmas), f"{name} ci": half_interval(sigmas)}
        rows.append(row)
    return rows


def along(logits: Tensor, best: list[str]) -> list[ReportRow]:
    """Returns σ and the number of tokens within one σ of the greatest at each place of a text (Figure 6).

    Args:
        best: the most probable token at each place.
    """
    sigma = logits.std(1, keepdim=True)
    within = (logits >= logits.amax(1, keepdim=True) - sigma).sum(1)
    every = zip(sigma[:, 0].tolist(), within.tolist(), best, strict=True)
    return [{"figure": 6, "place": n, "sigma": s, "within": w, "best": b} for n, (s, w, b) in enumerate(every)]


def plots(report: Report) -> str:
    """Draws the three figures."""
    two, three, six = ([row for row in report.rows if row["figure"] == n] for n in (2, 3, 6))
    charts = [
        lines("Share of the logits", "distance from μ, σ", {"logits": points(two, "sigmas", "share")}, log=True),
        lines("Bounds of the nucleus, σ", "p of top-p", {name: points(three, "p", name) for name in BOUNDS}),
        lines("σ of the logits", "place", {"σ": points(six, "place", "sigma")}),
        lines("Tokens within one σ of the greatest", "place", {"tokens": points(six, "place", "within")}),
    ]
    return page(charts)
