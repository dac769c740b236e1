"""`eval samplers`: three drafts drawn by each rule at temperatures 0.5 to 4, against what the writer wrote.

Per rule and temperature, over the same places and seeds: does one of 3 drafts begin with the writer's next token, how
many of the writer's tokens does the best draft match, how varied are the drafts (self-BLEU-2, distinct-2), how
likely does the model itself, untempered and uncropped, find what was drawn (perplexity), and how much is kept.
The papers' claim is on accuracy at high temperature: it should fall for top-p and min-p and stay for top-nσ and Top-W.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
import torch
from torch import Tensor

from app.bench import text
from app.bench.report import Options, Report
from core.autocomplete import Autocomplete, load_autocomplete
from core.controls import CATALOG, PRESETS
from core.models import Sequence
from core.modes import draft
from core.samplers import Rule

PLACES = 24
PREFIX = 32
LENGTH = 6
DRAWS = 3
TEMPERATURES = (0.5, 1.0, 1.5, 2.0, 3.0, 4.0)
NEVER = frozenset[int]()


def measure(options: Options, progress: Callable[[str], None]) -> Report:
    progress("loading the model")
    autocomplete = load_autocomplete(options.model, options.backend, None)
    places = _places(autocomplete, text.load(options.text), options.repetitions or PLACES)
    report = Report("samplers")
    settings = _settings()
    sequence = autocomplete.model.open()
    try:
        for name, (rule, values) in settings.items():
            for t in TEMPERATURES:
                progress(f"{name}, T = {t:g}")
                found = [
                    _drawn(autocomplete, sequence, place, rule, values, t, seed) for seed, place in enumerate(places)
                ]
                report.rows.append({"rule": name, "T": t} | _summary(found))
    finally:
        sequence.close()
    for name in ("top-n-sigma", "top-w (the paper's)", "top-w (ours)"):
        match = {row["T"]: row["prefix"] for row in report.rows if row["rule"] == name}
        if match:
            report.target(f"{name}: prefix at T = 3 / at T = 1", match[3.0] / max(match[1.0], 1e-9), ">= 0.9")
    return report


def _settings() -> dict[str, tuple[str, dict[str, Any]]]:
    """Every rule with its defaults, and Top-W's presets beside."""
    found: dict[str, tuple[str, dict[str, Any]]] = {n: (n, {}) for n in CATALOG if n not in ("greedy", "top-w")}
    found["top-k"] = ("top-k", {"top_k": 20})
    found["top-w (the paper's)"] = ("top-w", dict(next(p for p in PRESETS if p.name == "Top-W, the paper's").values))
    found["top-w (ours)"] = ("top-w", {})
    return found


def _places(autocomplete: Autocomplete, files: list[list[str]], count: int) -> list[tuple[list[int], list[int]]]:
    """(prefix ids, the writer's next ids), each up to a word."""
    tokenizer = autocomplete.model.tokenizer
    found = []
    for place in text.words(files, count):
        before = tokenizer.encode(place.before.rstrip(" "))[-PREFIX:]
        after = tokenizer.encode(" " + place.document[place.at : place.at + 12 * LENGTH])[:LENGTH]
        if len(before) == PREFIX and len(after) == LENGTH:
            found.append((before, after))
    return found


@dataclass
class _Drawn:
    """Three drafts of one place: their ids, the longest match, and the sums over their tokens."""

    ids: list[list[int]]
    matched: int
    surprise: float
    tokens: int
    kept: list[int]


class _Watched:
    """A rule that notes how much it keeps and what the model alone thinks of the tokens that follow."""

    def __init__(self, rule: Rule) -> None:
        self.rule = rule
        self.kept: list[int] = []
        self.logp: dict[tuple[int, ...], Tensor] = {}

    def __call__(self, input_ids: Tensor, logits: Tensor) -> Tensor:
        out = self.rule(input_ids, logits)
        self.kept += (out > -torch.inf).sum(1).tolist()
        for ids, row in zip(input_ids.tolist(), logits.log_softmax(-1), strict=True):
            self.logp[tuple(ids)] = row
        return out


def _drawn(
    autocomplete: Autocomplete,
    sequence: Sequence,
    place: tuple[list[int], list[int]],
    name: str,
    values: dict[str, Any],
    t: float,
    seed: int,
) -> _Drawn:
    prefix, written = place
    watched = _Watched(autocomplete.sampler(name, values, t))
    options = {"k": DRAWS, "length": LENGTH, "rule": watched, "seed": seed, "stop_ids": NEVER, "sequence": sequence}
    *_, drafts = draft(autocomplete.model, prefix, "sampled", **options)
    surprise, tokens = 0.0, 0
    for ids in drafts.ids:
        for n, token in enumerate(ids):
            surprise -= float(watched.logp[tuple(prefix + ids[:n])][token])
            tokens += 1
    return _Drawn(drafts.ids, max(_common(ids, written) for ids in drafts.ids), surprise, tokens, watched.kept)


def _summary(found: list[_Drawn]) -> dict[str, float]:
    drafts = [d.ids for d in found]
    pairs = [Counter(pairwise(ids)) for group in drafts for ids in group]
    return {
        "match_1_percent": 100 * float(np.mean([d.matched >= 1 for d in found])),
        "match_2_percent": 100 * float(np.mean([d.matched >= 2 for d in found])),
        "prefix": float(np.mean([d.matched for d in found])),
        "self_bleu": float(np.mean([self_bleu(group) for group in drafts])),
        "distinct_2": len({pair for c in pairs for pair in c}) / max(sum(sum(c.values()) for c in pairs), 1),
        "perplexity": math.exp(sum(d.surprise for d in found) / max(sum(d.tokens for d in found), 1)),
        "kept": float(np.median([k for d in found for k in d.kept])),
    }


def self_bleu(drafts: list[list[int]]) -> float:
    """Mean BLEU-2 of each draft against the others, 0 (nothing shared) to 1 (all the same)."""
    scores = []
    for n, ids in enumerate(drafts):
        others = drafts[:n] + drafts[n + 1 :]
        shares = []
        for order in (1, 2):
            mine = _grams(ids, order)
            most: Counter[tuple[int, ...]] = Counter()
            for other in others:
                most |= _grams(other, order)
            shares.append(sum((mine & most).values()) / max(sum(mine.values()), 1))
        scores.append(math.sqrt(shares[0] * shares[1]))
    return float(np.mean(scores)) if scores else 0.0


def _grams(ids: list[int], order: int) -> Counter[tuple[int, ...]]:
    return Counter(tuple(ids[i : i + order]) for i in range(len(ids) - order + 1))


def _common(a: list[int], b: list[int]) -> int:
    n = 0
    while n < min(len(a), len(b)) and a[n] == b[n]:
        n += 1
    return n
