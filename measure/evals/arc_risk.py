"""`eval arc-risk`: whether the bound of ARC's tolerance holds on the tokens that it accepted (Table 5).

Texts are sampled with ARC at each of TEMPERATURES. A temperature for which the model is not calibrated has a row that
says so, because constants hold only at the temperature at which they were measured. For each proposal that became text,
U_min is compared with the divergence that it bounds: JS between the target's next distributions after this token and
after its own most probable one, both of which this evaluation computes. A proposal that *is* the target's most probable
token has U = JS = 0 and is covered; the paper counts these, so both shares are reported. The same texts are sampled
losslessly with the same seeds, and τ, the tokens per pass, of both shows the gain of tolerance.
"""

from __future__ import annotations

from dataclasses import dataclass

from core.models import LanguageModel, load_model
from core.models.chat import chat_template
from core.speculative import Calibration, NgramDrafter, Statistics, TargetSampling, Token, generate
from core.speculative.arc import risk
from core.speculative.calibration import CalibrationError, for_model
from measure.drafters import accept_length, base_stores
from measure.options import EvalOptions
from measure.prompts import prompts
from measure.report import Progress, Report, counted
from training.calibration import divergence, wilson

LENGTH = 32  # tokens after each prompt
COUNT = 20  # prompts of each kind
TREE = 8
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


def measure(options: EvalOptions, progress: Progress) -> Report:
    model = load_model(options.model, options.backend)
    stores = base_stores(model, options.store)
    report = Report("eval arc-risk")
    questions = prompts(options.text, model.tokenizer, options.repetitions or COUNT, chat_template(options.model))
    for temperature in TEMPERATURES:
        try:
            calibration = for_model(model, TargetSampling(temperature))
        except CalibrationError as error:
            report.rows.append({"T": temperature, "left out": str(error)})
            continue
        for kind, of_kind in questions.items():
            accepted: list[Audited] = []
            arc, lossless = list[Statistics](), list[Statistics]()
            for number, ids in enumerate(counted(of_kind, f"T = {temperature:g}, {kind}, prompt", progress)):
                proposals, statistics = audited(model, calibration, NgramDrafter(stores), ids, number, temperature)
                accepted += proposals
                arc.append(statistics)
                how = {"length": LENGTH, "seed": number, "tree_size": TREE, "temperature": temperature}
                plain = generate(model, NgramDrafter(stores), ids, "lossless", **how)
                list(plain)
                lossless.append(plain.statistics)
            tolerated = sum(s.tolerated for s in arc)
            lengths = {
                "accept length": accept_length(arc),
                "lossless accept length": accept_length(lossless),
                "tolerated / accepted": tolerated / max(sum(s.accepted for s in arc) + tolerated, 1),
            }
            report.rows.append({"T": temperature, "prompts": kind, **lengths, **summary(accepted)})
            longer = accept_length(arc) / max(accept_length(lossless), 1e-9)
            report.target(f"T = {temperature:g}, {kind}: accept length, ARC / lossless", longer, ">= 1.0")
            coverage = summary(accepted)["coverage"]
            report.target(f"T = {temperature:g}, {kind}: JS <= U_min / accepted", coverage, ">= 0.95")
    model.close()
    return report


def audited(
    model: LanguageModel,
    calibration: Calibration,
    drafter: NgramDrafter,
    ids: list[int],
    seed: int,
    temperature: float = 1.0,
) -> tuple[list[Audited], Statistics]:
    """Returns the proposals that became text in one continuation sampled at this temperature, and its counts."""
    how = {"length": LENGTH, "seed": seed, "tree_size": TREE, "temperature": temperature}
    how |= {"calibration": calibration, "prune": False}
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
            *risk(p[at], model, calibration, text[at], depth[at]),
            divergence(before[at + 1], after_other[at], temperature, calibration.top_k) if at in other else 0.0,
            at not in other,
            tokens[at].how == "tolerated",
            depth[at],
        )
        for at in proposed
    ]
    return proposals, generation.statistics


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


def summary(accepted: list[Audited]) -> dict[str, float | int]:
    """Returns coverage with its Wilson interval, of all accepted tokens, and of those that were not the target's most
    probable ones."""
    others = [a for a in accepted if not a.best]
    held, held_others = sum(a.js <= a.bound for a in accepted), sum(a.js <= a.bound for a in others)
    tolerated = [a for a in others if a.tolerated]
    low, high = wilson(held, len(accepted))
    low_others, high_others = wilson(held_others, len(others))
    return {
        "accepted": len(accepted),
        "coverage": held / len(accepted) if accepted else 1.0,
        "low": low,
        "high": high,
        "not the most probable": len(others),
        "their coverage": held_others / len(others) if others else 1.0,
        "their low": low_others,
        "their high": high_others,
        "tolerated": sum(a.tolerated for a in accepted),
        "tolerated, not the most probable": len(tolerated),
        "of these JS <= tau": sum(a.js <= a.tolerance for a in tolerated) / max(len(tolerated), 1),
        "their mean JS": sum(a.js for a in others) / max(len(others), 1),
    }
