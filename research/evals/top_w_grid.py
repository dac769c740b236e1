"""`eval top-w-grid`: the search for λ and β of Top-W by its paper (appendix M), for this model.

The paper rates each pair of its grid of 18 × 18 by GSM8K, which is out of a small model's reach. Here a pair is rated
at real positions of a text, as in `eval top-w`: by the match of three samples with the writer's token, and by the gain
over a mass cut (top-p) that gives equally many different tokens. The other settings are those that the app ships. The
rows "ours" and "the paper's" are the two pairs that lie in the grid's plane, not on its lines.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import product
from typing import Annotated

import numpy as np
from torch import Tensor

from core.autocomplete import load_autocomplete
from core.controls import CATALOG
from core.samplers import Geometry, Temperature, TopW
from core.samplers.catalog import cuts
from research import texts as text
from research.evals.top_w import gains, mass_cuts, match_and_variety
from research.options import BackendOptions, PlotOptions, TextOptions, amount
from research.plots import heat_map, page
from research.positions import positions
from research.report import Progress, Report, ReportRow, number_in, one_thread, text_in

TEMPERATURES = (1.0, 2.0)
# λ and β of the grid, as in the paper
GRID = (0.0, 0.1, 0.25, 0.5, 0.75, 1.0, 1.25, 1.5, 1.75, 2.0, 2.25, 2.5, 2.75, 3.0, 3.5, 4.0, 4.5, 5.0)
_SHIPPED = {control.name: control.default for control in CATALOG["top-w"].controls}
POINTS = {"ours": (float(_SHIPPED["lam"]), float(_SHIPPED["beta"])), "the paper's": (2.2, 2.8)}  # λ and β


@dataclass(frozen=True)
class TopWGridOptions(PlotOptions, BackendOptions, TextOptions):
    repetitions: Annotated[int, amount("Places.")] = 120


def measure(options: TopWGridOptions, progress: Progress) -> Report:
    autocomplete = load_autocomplete(options.model, options.backend, None)
    logits, chosen = positions(autocomplete.model, text.load(options.text), options.repetitions)
    report = Report("top-w-grid")
    with one_thread():
        for t in TEMPERATURES:
            report.rows += rows(Temperature(t)(None, logits), chosen, autocomplete.geometries, t, progress)
    autocomplete.model.close()
    return report


def rows(
    logits: Tensor,
    chosen: Tensor,
    geometries: dict[str, Geometry],
    t: float,
    progress: Progress = lambda _: None,
) -> list[ReportRow]:
    """Returns a row for each pair of the grid and for each of POINTS.

    Args:
        logits: (n, V), divided by the temperature t.
        chosen: (n,) the writer's tokens.
    """
    equal = mass_cuts(logits, chosen)
    pairs = [("grid", *pair) for pair in product(GRID, GRID)] + [(name, *pair) for name, pair in POINTS.items()]
    grid: list[ReportRow] = []
    for point, lam, beta in pairs:
        progress(f"T = {t:g}, λ = {lam:g}, β = {beta:g}")
        (rule,) = cuts("top-w", {"lam": lam, "beta": beta}, embeddings=geometries)
        assert isinstance(rule, TopW)
        kept = [rule.select(row).ids for row in logits]
        figures = match_and_variety(logits, kept, chosen)
        grid.append(
            {
                "T": t,
                "point": point,
                "lam": lam,
                "beta": beta,
                "positions": len(logits),
                "kept": float(np.median([len(ids) for ids in kept])),
                "match_percent": float(figures[:, 1].mean()),
                "different": float(figures[:, 0].mean()),
                "gain_over_mass_cut": float(gains(figures, equal).mean()),
            }
        )
    return grid


def plots(report: Report) -> str:
    """Draws the match and the gain over λ and β at each temperature, with our point and the paper's."""
    charts = []
    for t in TEMPERATURES:
        of_t = [row for row in report.rows if row["T"] == t]
        for figure, title in (("match_percent", "match, %"), ("gain_over_mass_cut", "gain over a mass cut")):
            values = {_place(row): number_in(row, figure) for row in of_t if row["point"] == "grid"}
            marks = {text_in(row, "point"): _place(row) for row in of_t if row["point"] != "grid"}
            charts.append(heat_map(f"T = {t:g}: {title}", "β", "λ", values, marks))
    return page(charts)


def _place(row: ReportRow) -> tuple[float, float]:
    return number_in(row, "beta"), number_in(row, "lam")
