"""`eval samplers`: three drafts by each rule, at temperatures 0.5 to 4, compared with the writer's text.

The probability that a draft agrees with the writer for m tokens is the product of the m probabilities q(y) along the
writer's text, so no sampling is needed: one of three drafts matches with probability 1 - (1 - Π q(y))³. The same
distributions give the number of kept tokens, the number of different first tokens of three drafts, and the
model's own perplexity, without temperature and rule, of the sampled tokens. Self-BLEU-2 and distinct-2 of whole drafts
need samples, which are drawn at fewer places. The papers claim that accuracy at high temperature decreases for top-p
and min-p but not for top-nσ and Top-W.
"""

from __future__ import annotations

import math
from collections import Counter
from itertools import pairwise

import numpy as np
import torch
from torch import Tensor

from core.autocomplete import Autocomplete, load_autocomplete
from core.controls import CATALOG, PRESETS
from core.models import Sequence
from core.modes.start import draft
from core.options import Value
from core.samplers import Mirostat, Rule
from measure.plots import lines, page, series
from measure.positions import along, runs
from measure.report import BenchOptions, Progress, Report, counted, number_in, one_thread
from training import texts as text

RUNS = 30  # texts
LENGTH = 6  # tokens of a draft
DRAWS = 3
DRAWN_OF = 4  # whole drafts are sampled at one place of every fourth text
TEMPERATURES = (0.5, 1.0, 1.5, 2.0, 3.0, 4.0)
NEVER = frozenset[int]()


def measure(options: BenchOptions, progress: Progress) -> Report:
    autocomplete = load_autocomplete(options.model, options.backend, None)
    texts = runs(autocomplete.model.tokenizer, text.load(options.text), options.repetitions or RUNS)
    report = Report("samplers")
    settings = _settings()
    exact: dict[tuple[str, float], list[dict[str, float]]] = {(n, t): [] for n in settings for t in TEMPERATURES}
    drawn: dict[tuple[str, float], list[list[list[int]]]] = {key: [] for key in exact}
    sequence = autocomplete.model.open()
    with one_thread():
        for number, (before, written) in enumerate(counted(texts, "text", progress)):
            logits = along(sequence, before, written)
            for name, t in exact:
                rule, values = settings[name]
                exact[name, t].append(expected(autocomplete.sampler(rule, values, t), logits, before, written))
                if number % DRAWN_OF == 0:
                    sampler = autocomplete.sampler(rule, values, t)
                    drawn[name, t].append(_drafts(autocomplete, sequence, before, sampler, number))
    sequence.close()
    for key, figures_of in exact.items():
        means = {figure: float(np.mean([figures[figure] for figures in figures_of])) for figure in figures_of[0]}
        means["perplexity"] = math.exp(means.pop("surprise"))
        means["kept"] = float(np.median([figures["kept"] for figures in figures_of]))
        report.rows.append({"rule": key[0], "T": key[1]} | means | _variety(drawn[key]))
    for name in ("top-n-sigma", "top-w (the paper's)", "top-w (ours)", "top-p", "min-p"):
        prefix = {row["T"]: number_in(row, "prefix") for row in report.rows if row["rule"] == name}
        # The claim concerns the papers' rules; the others are listed for comparison.
        bound = ">= 0.9" if name.startswith(("top-n", "top-w")) else "<= 0.9"
        report.target(f"{name}: prefix at T = 3 / at T = 1", prefix[3.0] / max(prefix[1.0], 1e-9), bound)
    return report


def expected(rule: Rule, logits: Tensor, before: list[int], written: list[int]) -> dict[str, float]:
    """Evaluates a rule along the writer's text, with logits (n, V) after `before` and each token of `written` except
    the last.

    Returns: means over the n places: match_1_percent, different (first tokens of three drafts), surprise of the sampled
    tokens in nats, kept (median); prefix, the mean length that the best of three drafts of LENGTH tokens shares with
    the writer's text, over the places that have LENGTH tokens after them.
    """
    contexts = [before + written[:n] for n in range(len(written))]
    if isinstance(rule, Mirostat) or any(isinstance(part, Mirostat) for part in getattr(rule, "rules", ())):
        # The rule depends on the tokens sampled before, which are the writer's here.
        rows = [rule(torch.tensor([ids]), row[None])[0] for ids, row in zip(contexts, logits, strict=True)]
        cropped = torch.stack(rows)
    else:
        cropped = rule(torch.zeros(len(logits), 1, dtype=torch.int64), logits)
    q = cropped.softmax(1)  # (n, V)
    chance = q[torch.arange(len(written)), torch.tensor(written)].double().numpy()
    surprise = -(q * logits.log_softmax(1)).sum(1)
    paths = np.array([np.cumprod(chance[n : n + LENGTH]) for n in range(len(written) - LENGTH + 1)])
    return {
        "match_1_percent": 100 * float(np.mean(1 - (1 - chance) ** DRAWS)),
        "prefix": float((1 - (1 - paths) ** DRAWS).sum(1).mean()),
        "different": float((1 - (1 - q) ** DRAWS).sum(1).mean()),
        "surprise": float(surprise.mean()),
        "kept": float((cropped > -torch.inf).sum(1).double().median()),
    }


def plots(report: Report) -> str:
    """Draws the table as curves over T, one chart per figure, as SVG."""
    figures = {
        "prefix": "tokens in common with the writer, best of 3 drafts",
        "match_1_percent": "one of 3 drafts begins with the writer's token, %",
        "different": "different first tokens of 3 drafts",
        "self_bleu": "self-BLEU-2 of the 3 drafts",
        "perplexity": "perplexity of the sampled tokens",
        "kept": "tokens kept, median",
    }
    return page(
        [
            lines(title, "temperature", series(report.rows, "rule", "T", figure), figure in ("perplexity", "kept"))
            for figure, title in figures.items()
        ]
    )


def _settings() -> dict[str, tuple[str, dict[str, Value]]]:
    """Returns every rule with its defaults, and Top-W's presets."""
    by_name: dict[str, tuple[str, dict[str, Value]]] = {n: (n, {}) for n in CATALOG if n not in ("greedy", "top-w")}
    by_name["top-k"] = ("top-k", {"top_k": 20})
    by_name["top-w (the paper's)"] = ("top-w", dict(next(p for p in PRESETS if p.name == "Top-W, the paper's").values))
    by_name["top-w (ours)"] = ("top-w", {})
    return by_name


def _drafts(
    autocomplete: Autocomplete, sequence: Sequence, before: list[int], rule: Rule, seed: int
) -> list[list[int]]:
    """Samples three drafts."""
    options = {"k": DRAWS, "length": LENGTH, "rule": rule, "seed": seed, "stop_ids": NEVER, "sequence": sequence}
    *_, drafts = draft(autocomplete.model, before, "sampled", **options)
    return drafts.ids


def _variety(groups: list[list[list[int]]]) -> dict[str, float]:
    pairs = [Counter(pairwise(ids)) for group in groups for ids in group]
    return {
        "self_bleu": float(np.mean([self_bleu(group) for group in groups])),
        "distinct_2": len({pair for c in pairs for pair in c}) / max(sum(sum(c.values()) for c in pairs), 1),
    }


def self_bleu(drafts: list[list[int]]) -> float:
    """Returns the mean BLEU-2 of each draft against the others, from 0 (nothing in common) to 1 (all equal)."""
    scores = []
    for n, ids in enumerate(drafts):
        others = drafts[:n] + drafts[n + 1 :]
        shares = []
        for order in (1, 2):
            own = _grams(ids, order)
            most: Counter[tuple[int, ...]] = Counter()
            for other in others:
                most |= _grams(other, order)
            shares.append(sum((own & most).values()) / max(sum(own.values()), 1))
        scores.append(math.sqrt(shares[0] * shares[1]))
    return float(np.mean(scores)) if scores else 0.0


def _grams(ids: list[int], order: int) -> Counter[tuple[int, ...]]:
    return Counter(tuple(ids[i : i + order]) for i in range(len(ids) - order + 1))
