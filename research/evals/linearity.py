"""`eval linearity`: how well one pass of a mixture replaces one pass of each draft (Superposed Decoding, section 3.3).

At each step a search gives the latest tokens zᵢ of k drafts. One sequence receives their mixtures x̃ = Σ γᵢ zᵢ, as in
Superposed Decoding, and k sequences receive each draft's own tokens. The two are compared by the cosine of eq. 8,

    cos( f(x̃), Σ γᵢ f(zᵢ) )

on the logits (the paper's Figure 3) and on the states that enter each layer (Figure 16). γᵢ is the probability of draft
i so far, divided by the sum over the drafts. The search is a beam search, as in the paper, or the drafts have distinct
first tokens and then continue greedily, as in the app without forks.

`agreement` is the effect for a user: the share of drafts, weighted by γ, whose own most probable next token is also the
most probable one after the mixture.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from statistics import fmean, stdev
from typing import Annotated

import torch
from torch import Tensor
from torch.nn.functional import cosine_similarity

from core.errors import BackendUnavailable
from core.models import LanguageModel, Row, Sequence, load_model
from research.options import BackendOptions, PlacesOptions, PlotOptions, amount
from research.places import Place, places, texts
from research.plots import lines, page, points
from research.report import Progress, Report, ReportRow, counted, number_in, text_in

K = 3
STEPS = 20
LAYER_STEPS = 5  # steps whose layers are compared, as in Figure 16

# From the log-probabilities of the drafts (d,) and of their next tokens (d, V): the parents and the tokens of the next
# drafts, and the log-probabilities of these, (k,) each.
Search = Callable[[Tensor, Tensor], tuple[list[int], list[int], Tensor]]


@dataclass
class StepFigures:
    """Figures of one step over all places: cosines of the logits, of each layer's input, and agreements."""

    cosines: list[float] = field(default_factory=list)
    agreements: list[float] = field(default_factory=list)
    layers: list[Tensor] = field(default_factory=list)  # of each place, (layers,)


@dataclass(frozen=True)
class LinearityOptions(PlotOptions, BackendOptions, PlacesOptions):
    repetitions: Annotated[int, amount("Places per kind of text.")] = 20


def measure(options: LinearityOptions, progress: Progress) -> Report:
    model = load_model(options.model, options.backend)
    layers = watch_all(model)
    chosen = places(model.tokenizer, texts(options.text), options.repetitions, options.context)
    report = Report("eval linearity")
    for name, search in SEARCHES.items():
        steps = [StepFigures() for _ in range(STEPS)]
        for place in counted(chosen, f"{name}: place", progress):
            for step, (logits, states) in zip(steps, compared(model, place, search), strict=True):
                step.cosines.append(logits[0])
                step.agreements.append(logits[1])
                step.layers.append(states)
        for number, step in enumerate(steps, 1):
            report.rows.append(_row(name, number, "logits", step.cosines) | {"agreement": fmean(step.agreements)})
        for number, step in enumerate(steps[:LAYER_STEPS] if layers else [], 1):
            of_layers = torch.stack(step.layers).T.tolist()
            report.rows += [_row(name, number, f"layer {at}", of) for at, of in zip(layers, of_layers, strict=True)]
    model.watch(())
    model.close()
    return report


def watch_all(model: LanguageModel) -> tuple[int, ...]:
    """Starts recording the states that enter every layer. Returns the layers; () if the backend has no states."""
    layers = tuple(range(model.depth))
    try:
        model.watch(layers)
    except BackendUnavailable:
        return ()
    return layers


def beam(totals: Tensor, logp: Tensor) -> tuple[list[int], list[int], Tensor]:
    """Returns the K most probable pairs of a draft and its next token."""
    best = (totals[:, None] + logp).flatten().topk(K)
    return (best.indices // logp.shape[1]).tolist(), (best.indices % logp.shape[1]).tolist(), best.values


def distinct(totals: Tensor, logp: Tensor) -> tuple[list[int], list[int], Tensor]:
    """Returns the K most probable first tokens; then each draft's most probable next token."""
    if len(totals) < K:
        return beam(totals, logp)
    best = logp.max(1)
    return list(range(K)), best.indices.tolist(), totals + best.values


SEARCHES: dict[str, Search] = {"beam search": beam, "distinct beginnings": distinct}


def compared(model: LanguageModel, place: Place, search: Search) -> Iterator[tuple[tuple[float, float], Tensor]]:
    """Yields, for the STEPS steps at one place, cosine and agreement of the logits, and the cosine (layers,) of each
    layer."""
    text = model.open()
    logp = torch.log_softmax(text.sync(place.before).double(), 0)[None]
    totals, mixed, own = torch.zeros(1, dtype=torch.float64), text.fork(), [text]
    try:
        for _ in range(STEPS):
            parents, tokens, totals = search(totals, logp)
            before, own = own, [own[parent].fork() for parent in parents]
            for sequence in before:
                sequence.close()
            gamma = torch.softmax(totals, 0).float()
            superposed = (gamma[:, None] * model.embeddings[tokens].float()).sum(0, keepdim=True)  # (1, D)
            rows = [Row(mixed, superposed), *(Row(s, [token]) for s, token in zip(own, tokens, strict=True))]
            after = torch.stack(model.forward(rows)).float()  # (1 + k, V)
            cosine = float(cosine_similarity(after[0], gamma @ after[1:], dim=0))
            agreement = float(gamma @ (after[1:].argmax(1) == after[0].argmax()).float())
            yield (cosine, agreement), _of_layers(model, mixed, own, gamma)
            logp = torch.log_softmax(after[1:].double(), 1)
    finally:
        for sequence in (mixed, *own):
            sequence.close()


def _of_layers(model: LanguageModel, mixed: Sequence, own: list[Sequence], gamma: Tensor) -> Tensor:
    """Returns the cosine (layers,) between the mixture's states and the mixture of the drafts' states."""
    if not model.watched:
        return torch.empty(0)
    states = []
    for sequence in (mixed, *own):
        assert sequence.features is not None  # states are recorded from the first position on
        states.append(sequence.features[-1].float().reshape(len(model.watched), -1))  # (layers, D)
    of_drafts = torch.einsum("k,kld->ld", gamma, torch.stack(states[1:]))
    return cosine_similarity(states[0], of_drafts, dim=1)


def _row(drafts: str, step: int, where: str, cosines: list[float]) -> ReportRow:
    return {
        "drafts": drafts,
        "step": step,
        "where": where,
        "cosine": fmean(cosines),
        "sd": stdev(cosines) if len(cosines) > 1 else 0.0,
        "places": len(cosines),
    }


def plots(report: Report) -> str:
    """Draws cosine (Figure 3) and agreement against the step, and cosine against the layer for the first steps (Figure
    16)."""
    logits = [row for row in report.rows if row["where"] == "logits"]
    charts = [
        lines(label, "step", {n: points((r for r in logits if r["drafts"] == n), "step", key) for n in SEARCHES})
        for label, key in (("Cosine of the logits", "cosine"), ("Agreement", "agreement"))
    ]
    for name in SEARCHES:
        series: dict[str, list[tuple[float, float]]] = {}
        for row in report.rows:
            if row["drafts"] == name and row["where"] != "logits":
                series.setdefault(f"step {row['step']}", []).append(
                    (int(text_in(row, "where").split()[1]), number_in(row, "cosine"))
                )
        if series:
            charts.append(lines(f"Cosine of each layer's input, {name}", "layer", series))
    return page(charts)
