"""`eval arc-risk`: whether the bound of ARC's tolerance holds on the tokens that it accepted (Table 5).

Texts are sampled with ARC at each of TEMPERATURES, by our constants and rule, and by each calibration of the paper's
and its rule, with the drafter and the tree size of the paper: EAGLE-3 and 32 proposals. A temperature for which the
model is not calibrated has a row that says so, because constants hold only at the temperature at which they were
measured. For each proposal that became text, U_min is compared with the divergence that it bounds: JS between the
target's next distributions after this token and after its own most probable one, both of which this evaluation
computes.

A proposal that *is* the target's most probable token has U = JS = 0 and cannot fail, so the columns of the others come
first; the paper counts all. `texts beyond tau` is the share of texts in which any tolerated token has JS > τ_δ, and
`corollary ii` its bound by the paper, n·(δ₁ + δ₂) for the n positions of a text. The same texts are sampled losslessly
with the same seeds, and τ, the tokens per pass, of both shows the gain of tolerance. No divergence exceeds ln 2, so a
bound or a τ_δ above it holds and says nothing.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Annotated, Any

from core.models import LanguageModel, load_model
from core.speculative import Calibration, Drafter, Statistics, TargetSampling, Token, generate
from core.speculative.arc import risk
from research.chat import chat_template
from research.drafters import ARC, Arc, accept_length, arcs, base_stores, best_drafter
from research.options import MixedOptions, Temperatures, TextOptions, amount, numbers
from research.prompts import prompts
from research.report import Progress, Report, ReportRow, counted, number_in
from research.scores import half_interval, mean
from training.calibration import divergence, wilson

LENGTH = 32  # tokens after each prompt
TEMPERATURES = (0.5, 1.0, 1.5)


@dataclass(frozen=True)
class Audited:
    """One proposal that became text.

    Attributes:
        bound, tolerance: U_min and τ_δ, of the constants for its depth.
        js: the divergence.
        best: whether it is the target's most probable token.
        tolerated: whether only ARC's tolerance accepted it.
        depth: in its tree.
    """

    bound: float
    tolerance: float
    js: float
    best: bool
    tolerated: bool
    depth: int


@dataclass(frozen=True)
class ArcRiskOptions(MixedOptions, TextOptions):
    repetitions: Annotated[int, amount("Prompts of each kind.")] = 20
    temperatures: Temperatures = None


def measure(options: ArcRiskOptions, progress: Progress) -> Report:
    temperatures = numbers("temperatures", options.temperatures, 0.05, 10) or TEMPERATURES
    model = load_model(options.model, options.backend)
    drafter = best_drafter(model, base_stores(model, options.store), progress)
    report = Report("eval arc-risk")
    questions = prompts(options.text, model.tokenizer, options.repetitions, chat_template(options.model))
    for temperature in temperatures:
        left_out: list[str] = []
        compared = arcs(model, left_out.append, TargetSampling(temperature))
        report.rows += [{"T": temperature, "left out": why} for why in left_out]
        by_kind: dict[str, dict[str, list[AuditedText]]] = {}
        for kind, of_kind in questions.items() if compared else ():
            of_all = counted(of_kind, f"T = {temperature:g}, {kind}, prompt", progress)
            texts = [
                audited_by_all(model, compared, drafter, ids, number, temperature) for number, ids in enumerate(of_all)
            ]
            by_kind[kind] = {name: [by_name[name] for by_name in texts] for name in compared}
        every = {name: [text for texts in by_kind.values() for text in texts[name]] for name in compared}
        for kind, by_name in (by_kind | {"all": every}).items():
            for name, texts in by_name.items():
                about: ReportRow = {"T": temperature, "method": name, "prompts": kind, "drafter": drafter.name}
                report.rows.append(about | row(compared[name].calibration, texts))
                if name == ARC:
                    add_targets(report, f"T = {temperature:g}, {kind}", report.rows[-1])
    drafter.close()
    model.close()
    return report


def audited_by_all(
    model: LanguageModel, compared: dict[str, Arc], drafter: Drafter, ids: list[int], seed: int, temperature: float
) -> dict[str, AuditedText]:
    """Returns one continuation by each kind of ARC."""
    lossless: dict[bool, Statistics] = {}  # by the kind of draws, because constants change no lossless text
    texts: dict[str, AuditedText] = {}
    for name, arc in compared.items():
        if arc.published not in lossless:
            plain = generate(model, drafter, ids, **_how(drafter, seed, temperature) | arc.options)
            list(plain)
            lossless[arc.published] = plain.statistics
        texts[name] = audited(model, arc, drafter, ids, seed, lossless[arc.published], temperature)
    return texts


def _how(drafter: Drafter, seed: int, temperature: float) -> dict[str, Any]:
    return {"length": LENGTH, "seed": seed, "temperature": temperature, "tree_size": drafter.most}


def add_targets(report: Report, which: str, figures: ReportRow) -> None:
    """Adds the targets of our own constants, the tokens that can fail first."""
    report.target(f"{which}: JS <= U_min / not the most probable", number_in(figures, "covered"), ">= 0.95")
    report.target(f"{which}: JS <= U_min / accepted", number_in(figures, "all covered"), ">= 0.95")
    report.target(f"{which}: accept length, ARC - lossless", number_in(figures, "to lossless"), ">= 0")


@dataclass(frozen=True)
class AuditedText:
    """One continuation: the proposals that became text, its counts, and those of the lossless one."""

    proposals: list[Audited]
    statistics: Statistics
    lossless: Statistics

    @property
    def beyond(self) -> bool:
        """Whether any tolerated token changes the next distribution by more than τ_δ."""
        return any(a.js > a.tolerance for a in self.proposals if a.tolerated)


def audited(
    model: LanguageModel,
    arc: Arc,
    drafter: Drafter,
    ids: list[int],
    seed: int,
    lossless: Statistics,
    temperature: float = 1.0,
) -> AuditedText:
    """Returns one continuation sampled with ARC at this temperature, with what each accepted proposal changed."""
    how: dict[str, Any] = _how(drafter, seed, temperature) | arc.how | {"prune": False}
    generation = generate(model, drafter, ids, "arc", **how)
    tokens = list(generation)
    text = [t.id for t in tokens]
    # One pass over the text as a tree, with the target's own token beside each proposal that became text.
    sequence = model.open()
    first = sequence.sync(ids)
    before = [first, *sequence.feed_tree(text, list(range(-1, len(text) - 1)))]
    sequence.keep([])
    p = [TargetSampling(temperature).probabilities(logits, []) for logits in before[: len(text)]]
    depth = depths(tokens)
    proposed = sorted(depth)
    other = {at: int(p[at].argmax()) for at in proposed if p[at].argmax() != text[at]}
    after_other = {}
    if other:
        beside = sequence.feed_tree(
            text + list(other.values()), list(range(-1, len(text) - 1)) + [at - 1 for at in other]
        )
        after_other = dict(zip(other, beside[len(text) :], strict=True))
    sequence.close()
    proposals = [
        Audited(
            *risk(p[at], model, arc.calibration, text[at], depth[at]),
            divergence(before[at + 1], after_other[at], temperature, arc.calibration.top_k) if at in other else 0.0,
            at not in other,
            tokens[at].how == "tolerated",
            depth[at],
        )
        for at in proposed
    ]
    return AuditedText(proposals, generation.statistics, lossless)


def depths(tokens: list[Token]) -> dict[int, int]:
    """Returns the depth in its tree of each proposed token, by its place in the text. A pass ends with a token of the
    target's own."""
    by_place: dict[int, int] = {}
    depth = 0
    for at, token in enumerate(tokens):
        proposed = token.how in ("accepted", "tolerated")
        if proposed:
            by_place[at] = depth
        depth = depth + 1 if proposed else 0
    return by_place


def row(calibration: Calibration, texts: list[AuditedText]) -> ReportRow:
    """Returns one line of the table: what `summary` says, the texts beyond τ_δ, and the accept lengths."""
    beyond, n = sum(text.beyond for text in texts), len(texts)
    low, high = wilson(beyond, n)
    pairs = [(text.statistics, text.lossless) for text in texts]
    apart = [arc.accept_length - plain.accept_length for arc, plain in pairs if arc.cycles and plain.cycles]
    tolerated, accepted = (sum(getattr(arc, name) for arc, _ in pairs) for name in ("tolerated", "accepted"))
    return {
        **summary([proposal for text in texts for proposal in text.proposals]),
        "texts": n,
        "texts beyond tau": beyond / n,
        "beyond low": low,
        "beyond high": high,
        "corollary ii": min(1.0, 2 * LENGTH * calibration.each_delta),
        "tau": calibration.overall.tau,
        "accept length": accept_length([arc for arc, _ in pairs]),
        "lossless accept length": accept_length([plain for _, plain in pairs]),
        "to lossless": mean(apart),
        "to lossless ci": half_interval(apart),
        "tolerated / accepted": tolerated / max(accepted + tolerated, 1),
    }


def summary(accepted: list[Audited]) -> ReportRow:
    """Returns coverage with its Wilson interval: of the accepted tokens that were not the target's most probable ones,
    of those of them that only tolerance accepted, and of all."""
    others = [a for a in accepted if not a.best]
    tolerated = [a for a in others if a.tolerated]
    figures: ReportRow = {}
    for prefix, name, of in (
        ("", "not the most probable", others),
        ("tolerated ", "tolerated, not the most probable", tolerated),
        ("all ", "accepted", accepted),
    ):
        held = sum(a.js <= a.bound for a in of)
        low, high = wilson(held, len(of))
        share = held / len(of) if of else math.nan
        figures |= {name: len(of), f"{prefix}covered": share, f"{prefix}low": low, f"{prefix}high": high}
    return figures | {
        "tolerated": sum(a.tolerated for a in accepted),
        "tolerated mean JS": mean([a.js for a in tolerated]),
    }
