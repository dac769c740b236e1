"""`eval kneser-ney`: the store and the rule of drafts beside interpolated modified Kneser-Ney and stupid backoff, which
count all n-grams of the same text.

At held-out tokens each is mixed with the model's distribution q by a gate, (1 - g)·q + g·p, g = σ(θ·x); of our store
the estimate of each order by a gate of its own, from the shortest context to the longest, as the rule `linear` does
with its weights. The features x are the length of the longest known context, how often it occurred, T/(C + ½) of each
order, the model's entropy, and the share of the last contexts that are known. θ is fitted for each by maximum
likelihood on every second document, and the rows are measured on the others. The rows "alone" have no model: there our
rule mixes the n-grams with the frequencies of tokens. The differences are to our store by gates; intervals are of means
over windows.
"""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import numpy as np
import torch

from core.models import LanguageModel, load_model
from core.ngram import Linear, NgramStore
from core.ngram.shelf import ALPHA
from ngram_builder import build
from ngram_builder.pipeline import DEFAULT_ORDERS
from research.kneser_ney import TextGrams
from research.options import BackendOptions, SourceOptions, amount
from research.places import texts
from research.predicted import Window, gain, mixed, windows
from research.report import Progress, Report, counted
from research.texts import read

ORDER = 6
GATED = [f"order {n}" for n in DEFAULT_ORDERS]  # of our store
PENALTY = 1e-3  # on θ²
LEAST = -5.0  # of the logarithm of T/(C + ½)
RECENT = 24  # tokens whose contexts say how familiar the text is
OURS, KNESER_NEY, BACKOFF = "our store", "Kneser-Ney", "stupid backoff"


@dataclass(frozen=True)
class KneserNeyOptions(BackendOptions, SourceOptions):
    repetitions: Annotated[int, amount("Tokens of each kind of text that are predicted, in each half.")] = 1920


def measure(options: KneserNeyOptions, progress: Progress) -> Report:
    source = options.built_from
    model = load_model(options.model, options.backend)
    halves = {
        part: windows(model, texts(options.text, part), options.repetitions, progress)
        for part in ("validation", "test")
    }
    progress("counting the text")
    encoded = [model.tokenizer.encode(text) for _, of_file in read([source]) for text in of_file]
    others = TextGrams(encoded, model.vocab_size, ORDER)
    with tempfile.TemporaryDirectory(prefix="polydraft-eval-") as folder:
        path = Path(folder) / "store.ngram"
        build([source], path, model.tokenizer)
        store = NgramStore.open(path)
        fitted_on, test = (
            [MixedWindow.of(w, model, store, others) for w in counted(halves[part], f"{part} window", progress)]
            for part in halves
        )
    model.close()
    return report_of(fitted_on, test)


@dataclass(frozen=True)
class MixedWindow:
    """The predictions at a window's tokens.

    Attributes:
        features: of the gates (m, F).
        logp: ln p (m,) by the model, by what has no model, and by the model with the store as in drafts; of each order
            of the store nan where it does not know the context.
    """

    features: np.ndarray
    logp: dict[str, np.ndarray]

    @classmethod
    def of(cls, window: Window, model: LanguageModel, store: NgramStore, others: TextGrams) -> MixedWindow:
        ids, start = window.ids, window.start
        rule = Linear(store, ALPHA)
        single = np.array([store.count([token]) for token in ids[start:]])
        usual = np.log((single + 0.5) / (store.count([]) + 0.5 * model.vocab_size))
        known = others.known(ids, start)  # by the tokens of context
        longest = (known > 0).sum(axis=1)
        occurred = np.log(known[np.arange(len(known)), longest - 1])
        familiar = [np.mean(longest[max(i - RECENT, 0) : i + 1] == ORDER) for i in range(len(longest))]
        orders = np.arange(1, ORDER + 1) == longest[:, None]
        evidence = store.evidence([ids[:at] for at in range(start, len(ids))], [[token] for token in ids[start:]])
        kept = np.maximum(evidence.totals, 1e-9) / (np.maximum(evidence.seen, evidence.totals) + 0.5)
        estimates = np.log(np.maximum(evidence.fractions()[:, :, 0], 1e-40))
        estimates[evidence.totals == 0] = np.nan
        return cls(
            np.column_stack(
                [orders, orders * occurred[:, None], np.maximum(np.log(kept), LEAST), window.entropy, familiar]
            ),
            dict(zip(GATED, estimates.T, strict=True))
            | {
                "model": window.logq,
                "shipped": mixed(rule, window),
                OURS: mixed(rule, window, usual),
                KNESER_NEY: np.log(others.kneser_ney(ids, start)),
                BACKOFF: np.log(np.maximum(others.stupid_backoff(ids, start), 1e-12)),
            },
        )


def report_of(fitted_on: Sequence[MixedWindow], test: Sequence[MixedWindow]) -> Report:
    """Fits the gates on one list and measures on the other."""
    rows = {"the model alone": [window.logp["model"] for window in test]}
    rows["our store, weights as in drafts"] = [window.logp["shipped"] for window in test]
    gated = {name: f"{name} by gates" for name in (OURS, KNESER_NEY, BACKOFF)}
    for name, row in gated.items():
        rows[row] = gate(fitted_on, test, ["model", *(GATED if name == OURS else [name])])
    rows[f"{KNESER_NEY} on top of our store by gates"] = gate(fitted_on, test, ["model", *GATED, KNESER_NEY])
    rows |= {f"{name} alone": [window.logp[name] for window in test] for name in gated}
    report, ours = Report("eval kneser-ney"), rows[gated[OURS]]
    for name, logp in rows.items():
        more, interval = gain(logp, ours)
        mean = float(np.mean(np.concatenate(logp)))
        report.rows.append({"method": name, "mean_ln_p": mean, "less_ours": more, "less_ours_ci": interval})
    more, interval = gain(rows[gated[KNESER_NEY]], ours)
    report.target("mean ln p, Kneser-Ney less our store by gates, what is sure", more - interval, "<= 0")
    return report


def gate(fitted_on: Sequence[MixedWindow], test: Sequence[MixedWindow], names: Sequence[str]) -> list[np.ndarray]:
    """ln p (m,) of each test window with the distributions mixed one after the other, each by a gate of its own, where
    they are known."""
    x, logp = _tensors(fitted_on, names)
    mean, scale = x.mean(0), x.std(0).clamp(min=1e-6)
    theta = torch.zeros(len(names) - 1, x.shape[1] + 1, dtype=torch.double, requires_grad=True)
    optimizer = torch.optim.LBFGS([theta], max_iter=200, line_search_fn="strong_wolfe")

    def mixture(x: torch.Tensor, logp: torch.Tensor) -> torch.Tensor:
        features = torch.cat([(x - mean) / scale, torch.ones(len(x), 1, dtype=torch.double)], 1)
        total = logp[:, 0]
        for weights, more in zip(theta, logp.T[1:], strict=True):
            logit = features @ weights
            sigmoid = torch.nn.functional.logsigmoid
            known = torch.where(more.isnan(), total, more)
            total = torch.logaddexp(total + sigmoid(-logit), known + sigmoid(logit))
        return total

    def loss() -> torch.Tensor:
        optimizer.zero_grad()
        value = -mixture(x, logp).mean() + PENALTY * theta.square().sum()
        value.backward()
        return value

    optimizer.step(loss)
    with torch.no_grad():
        return [mixture(*_tensors([window], names)).numpy() for window in test]


def _tensors(several: Sequence[MixedWindow], names: Sequence[str]) -> tuple[torch.Tensor, torch.Tensor]:
    """The features (m, F) and ln p (m, names) of all windows."""
    features = np.concatenate([window.features for window in several])
    logp = np.concatenate([np.column_stack([window.logp[name] for name in names]) for window in several])
    return torch.from_numpy(features), torch.from_numpy(logp)
