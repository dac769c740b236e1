"""`eval lossless`: compares text with speculation and text without, token by token, on every prompt: greedy, and
sampled at T = 1, where a seed determines the text. It runs with n-grams, with the suffix automaton, and with an EAGLE-3
head if the model has one.

The trees have a fixed size, so that speculation never switches itself off. If two texts differ, the report has the
margin at the first difference: the difference in logits of the target's two most probable tokens. A pass over several
tokens adds in another order than a pass over one. In float32 this changes a logit by about 0.0001, with llama.cpp's
quantised activations by some tenths, so the order of nearly equal tokens may change.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean, stdev
from typing import Annotated

import numpy as np
import torch
from torch import Tensor

from core.models import LanguageModel, load_model
from core.noise import SeededNoise
from core.speculative import NgramDrafter, SuffixDrafter, generate
from core.speculative.drafters import Drafter
from research.chat import chat_template
from research.drafters import base_stores, eagle3
from research.options import MixedOptions, PrecisionOptions, TextOptions, amount
from research.prompts import prompts
from research.report import Progress, Report, ReportRow, counted

LENGTH = 32  # tokens after each prompt
TREE = 8  # proposals in each pass
TEMPERATURES = (0.0, 1.0)
NEVER = frozenset[int]()


@dataclass(frozen=True)
class Compared:
    """One prompt: whether both texts are the same, the margin at their first difference (else None), accept length τ,
    and the µs of drafting in a pass."""

    same: bool
    margin: float | None
    accept_length: float
    drafting: float


@dataclass(frozen=True)
class LosslessOptions(MixedOptions, PrecisionOptions, TextOptions):
    repetitions: Annotated[int | None, amount("Prompts of each kind; by default all.")] = None


def measure(options: LosslessOptions, progress: Progress) -> Report:
    backend = "torch" if options.backend == "auto" else options.backend
    model = load_model(options.model, backend, options.precision)
    stores = base_stores(model, options.store)
    drafters = [NgramDrafter(stores), SuffixDrafter(stores), *filter(None, [eagle3(model, progress)])]
    report = Report("eval lossless")
    questions = prompts(options.text, model.tokenizer, options.repetitions, chat_template(options.model))
    results: dict[tuple[str, float], dict[str, list[Compared]]] = {}
    for kind, of_kind in questions.items():
        for ids in counted(of_kind, f"{kind}, prompt", progress):
            for temperature in TEMPERATURES:
                for drafter, comparison in zip(drafters, compared(model, drafters, ids, temperature), strict=True):
                    results.setdefault((drafter.name, temperature), {}).setdefault(kind, []).append(comparison)
    for (name, temperature), by_kind in results.items():
        way = {"drafter": name, "T": temperature, "backend": model.backend}
        every = [comparison for of_kind in by_kind.values() for comparison in of_kind]
        for kind, of_kind in (by_kind | {"all": every}).items():
            report.rows.append(way | {"prompts": kind} | _summary(of_kind))
        same = sum(comparison.same for comparison in every) / len(every)
        report.target(f"{name}, T = {temperature:g}: prompts with identical text / all", same, ">= 1.0")
    model.close()
    return report


def compared(
    model: LanguageModel, drafters: Sequence[Drafter], ids: list[int], temperature: float = 0.0, length: int = LENGTH
) -> list[Compared]:
    """Compares each drafter's text after one prompt with the text without speculation. The prompt is computed once."""
    sequence = model.open()
    options = {"temperature": temperature, "length": length, "stop_ids": NEVER, "sequence": sequence}
    plain = [t.id for t in generate(model, None, ids, "off", **options)]
    comparisons = []
    for drafter in drafters:
        generation = generate(model, drafter, ids, "lossless", tree_size=TREE, **options)
        fast = [t.id for t in generation]
        margin = None
        if plain != fast:
            at = next(i for i, (a, b) in enumerate(zip(plain, fast, strict=True)) if a != b)
            margin = _margin(sequence.sync(ids + plain[:at]), SeededNoise(0) if temperature else None, len(ids) + at)
        s = generation.statistics
        comparisons.append(Compared(margin is None, margin, s.accept_length, 1e6 * s.drafting / max(s.cycles, 1)))
    sequence.close()
    return comparisons


def _margin(logits: Tensor, noise: SeededNoise | None, place: int) -> float:
    """Returns the difference of the two highest logits, including the noise."""
    if noise is not None:
        logits = logits + torch.from_numpy(noise.gumbel(place, np.arange(len(logits))))
    top = logits.topk(2).values
    return float(top[0] - top[1])


def _summary(comparisons: list[Compared]) -> ReportRow:
    margins = [c.margin for c in comparisons if c.margin is not None]
    lengths = [c.accept_length for c in comparisons]
    return {
        "count": len(comparisons),
        "identical": sum(c.same for c in comparisons),
        "largest margin where they part": max(margins, default=0.0),
        "accept length": fmean(lengths),
        "±": stdev(lengths) / len(lengths) ** 0.5 if len(lengths) > 1 else None,
        "drafting, µs of a pass": fmean(c.drafting for c in comparisons),
    }
