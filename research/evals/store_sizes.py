"""`eval store-sizes`: what a base store of a given size is worth when it is pruned by counts, as `ngram build --fit`
prunes, and by what its n-grams say beyond the order below.

The largest store has all n-grams that occur twice. `count` drops those that occur seldom, those of the highest orders
first. The others keep the n-grams with the highest scores, and the contexts of these, so many that the file is no
larger than that of `count`:

- `relative entropy`: c(h, t) · ln(p/p'), what the counted text loses if the n-gram is dropped (Stolcke 1998): p is the
  probability of t after h by the rule of drafts with the frequencies of tokens in place of a model, p' the same
  without the order of the n-gram.
- `surprise`: ln(p/p') alone.

The rule of drafts weighs a context by (T/(C + ½))², and takes what is not in the store for rare. So each store is
measured with the weights of drafts, and with those fitted for it on the windows of the other half (`fitted`): exponent,
and shares by order. The differences are to `count` in a file of the same size; intervals are of means over windows.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import compress
from pathlib import Path
from typing import Annotated

import numpy as np
import torch

from core.models import load_model
from core.ngram import Linear, Mixed, NgramStore
from core.ngram.interpolation import PRUNED
from core.ngram.shelf import ALPHA
from ngram_builder import build, merge
from ngram_builder.fitting import CLOSE
from research.options import BackendOptions, SourceOptions, amount
from research.places import texts
from research.predicted import Window, gain, mixed, windows
from research.report import Progress, Report, ReportRow, number_in

PARTS = (0.8, 0.5, 0.25, 0.12)  # of the largest store's bytes
COUNT, ENTROPY, SURPRISE = "count", "relative entropy", "surprise"
TRIES, AIM = 4, 0.99  # stores that are written to meet a size, and the share of it that is aimed at


@dataclass(frozen=True)
class StoreSizesOptions(BackendOptions, SourceOptions):
    repetitions: Annotated[int, amount("Tokens of each kind of text that are predicted.")] = 3840


def measure(options: StoreSizesOptions, progress: Progress) -> Report:
    source = options.built_from
    model = load_model(options.model, options.backend)
    read = windows(model, texts(options.text), options.repetitions, progress)
    tokenizer = model.tokenizer
    model.close()
    with tempfile.TemporaryDirectory(prefix="polydraft-eval-") as name:
        folder = Path(name)
        progress("building the largest store")
        largest = folder / "largest"
        work = folder / "work"
        build([source], largest, tokenizer, work=work, keep=True)
        store = NgramStore.open(largest)
        grams = Grams.of(store)
        rows = Measured(read)
        rows.add("largest", COUNT, store)
        for part in PARTS:
            size = f"{part:.0%}"
            by_count = folder / f"{size} count"
            progress(f"{size} of its bytes, by count")
            build([source], by_count, tokenizer, fit=int(part * store.path.stat().st_size), work=work, keep=True)
            rows.add(size, COUNT, NgramStore.open(by_count))
            for pruning, score in grams.scores().items():
                progress(f"{size} of its bytes, by {pruning}")
                path = folder / f"{size} {pruning}"
                grams.write(store, score, by_count.stat().st_size, path)
                rows.add(size, pruning, NgramStore.open(path))
    return rows.report()


@dataclass(frozen=True)
class Grams:
    """The n-grams of a store (g,), in its order.

    Attributes:
        order: tokens of each.
        context: the number of each one's context; 0 for the empty n-gram itself.
        counts: occurrences.
        gain: ln(p/p') of each, see above; 0 for single tokens.
    """

    order: np.ndarray
    context: np.ndarray
    counts: np.ndarray
    gain: np.ndarray

    @classmethod
    def of(cls, store: NgramStore) -> Grams:
        entries = list(store.ngrams())
        number = {ids: i for i, (ids, _, _) in enumerate(entries)}
        order = np.array([len(ids) for ids in number])
        context = np.array([number[ids[:-1]] for ids in number])
        suffix = np.array([number[ids[1:]] for ids in number])
        counts, totals = (np.array([entry[i] for entry in entries], dtype=np.float64) for i in (1, 2))
        fractions = counts / np.maximum(totals[context], 1)
        p, gain = np.where(order == 1, fractions, 0), np.zeros(len(entries))
        for n in range(2, store.orders[-1] + 1):
            at = np.flatnonzero(order == n)
            total, seen = totals[context[at]], counts[context[at]]
            kept = np.minimum(total / (np.maximum(seen, total) + PRUNED.offset), 1)
            weight = ALPHA * PRUNED.shares[n - 2] * kept**PRUNED.exponent
            below = (1 - weight) * p[suffix[at]]
            p[at] = below + weight * fractions[at]
            gain[at] = np.log(p[at] / below)
        return cls(order, context, counts, gain)

    def scores(self) -> Mapping[str, np.ndarray]:
        return {ENTROPY: self.counts * self.gain, SURPRISE: self.gain}

    def write(self, store: NgramStore, score: np.ndarray, size: int, path: Path) -> None:
        """Writes the n-grams with the highest scores, as many as fit into `size` bytes, and few less."""
        number = len(store) * size // store.path.stat().st_size
        for _ in range(TRIES):
            keep = self._best(score, number)
            written = merge([PartialStore(store, keep)], path).size
            if CLOSE * size <= written <= size:
                return
            number = int(int(keep.sum()) * AIM * size / written)

    def _best(self, score: np.ndarray, number: int) -> np.ndarray:
        """The n-grams (g,) bool with the highest scores, with their contexts and all single tokens at most `number`."""
        ranked = np.argsort(np.where(self.order > 1, -score, np.inf), kind="stable")
        ranked = ranked[: int((self.order > 1).sum())]
        low, high = 0, len(ranked)
        while low < high:
            middle = (low + high + 1) // 2
            if int(self._with_contexts(ranked[:middle]).sum()) <= number:
                low = middle
            else:
                high = middle - 1
        return self._with_contexts(ranked[:low])

    def _with_contexts(self, chosen: np.ndarray) -> np.ndarray:
        keep = self.order < 2
        keep[chosen] = True
        for n in range(self.order.max(), 2, -1):
            keep[self.context[keep & (self.order == n)]] = True
        return keep


class PartialStore(NgramStore):
    """Some n-grams of a store, for `merge`."""

    def __init__(self, store: NgramStore, keep: np.ndarray) -> None:
        self._store, self._keep = store, keep
        self.fingerprint, self.orders = store.fingerprint, store.orders
        self.manifest = store.manifest | {"closed": False}  # the suffix of an n-gram may be left out

    def ngrams(self) -> Iterator[tuple[tuple[int, ...], int, int]]:
        return compress(self._store.ngrams(), self._keep)


class Measured:
    """The stores measured on the windows, a row for each."""

    def __init__(self, read: Sequence[Window]) -> None:
        self._windows, self._rows = read, list[ReportRow]()
        self._by_count: dict[str, dict[str, list[np.ndarray]]] = {}

    def add(self, size: str, pruning: str, store: NgramStore) -> None:
        shipped = Linear([Mixed(store, ALPHA, PRUNED)])
        logp = {"shipped": [mixed(shipped, window) for window in self._windows], "fitted": self._fitted(store)}
        by_count = self._by_count.setdefault(size, logp)
        row: ReportRow = {"size": size, "pruning": pruning, "bytes": store.path.stat().st_size, "ngrams": len(store)}
        for weights, of_windows in logp.items():
            row[f"{weights}_ln_p"] = float(np.mean(of_windows))
            more, interval = gain(of_windows, by_count[weights])
            row |= {f"{weights}_less_count": more, f"{weights}_ci": interval}
        self._rows.append(row)

    def report(self) -> Report:
        report = Report("eval store-sizes")
        model = float(np.mean([window.logq for window in self._windows]))
        report.rows = [{"size": "no store", "pruning": "", "bytes": 0, "shipped_ln_p": model}, *self._rows]
        sure = [number_in(row, "fitted_less_count") - number_in(row, "fitted_ci") for row in self._rows]
        report.target("ln p, what another pruning surely gains over count at equal bytes", max(sure), "<= 0")
        return report

    def _fitted(self, store: NgramStore) -> list[np.ndarray]:
        """ln p of each window's tokens with the weights that are the best ones for the windows of the other half."""
        read = [WindowEvidence.of(window, store) for window in self._windows]
        halves = [fit(read[1::2]), fit(read[::2])]
        return [known.logp(halves[i % 2]).numpy() for i, known in enumerate(read)]


@dataclass(frozen=True)
class WindowEvidence:
    """What a store knows of a window's tokens, for its N orders: float64.

    Attributes:
        logq: ln p by the model (m,).
        fractions: count / total of the token (m, N).
        kept: the logarithm of T/(C + ½) (m, N); -inf where a context is unknown.
        familiar: the factor of familiarity (m, 1).
    """

    logq: torch.Tensor
    fractions: torch.Tensor
    kept: torch.Tensor
    familiar: torch.Tensor

    @classmethod
    def of(cls, window: Window, store: NgramStore) -> WindowEvidence:
        ids, start = window.ids, window.start
        contexts, tokens = [ids[:at] for at in range(start, len(ids))], [[token] for token in ids[start:]]
        evidence = store.evidence(contexts, tokens)
        seen = np.maximum(evidence.seen, evidence.totals) + PRUNED.offset
        with np.errstate(divide="ignore"):
            kept = np.log(np.minimum(evidence.totals / seen, 1))
        familiar = PRUNED.familiar_at(store, ids, start)[:, None]
        return cls(*map(torch.from_numpy, (window.logq, evidence.fractions()[:, :, 0], kept, familiar)))

    def logp(self, theta: torch.Tensor) -> torch.Tensor:
        """ln p (m,) by the rule `linear`, whose weights are σ(θ) for each order, times T/(C + ½) to the power exp θ."""
        weights = self.familiar * torch.sigmoid(theta[:-1]) * torch.exp(self.kept.clamp(min=-100) * theta[-1].exp())
        p = self.logq.exp()
        for weight, fraction in zip(weights.T, self.fractions.T, strict=True):
            p = (1 - weight) * p + weight * fraction
        return p.log()


def fit(read: Sequence[WindowEvidence]) -> torch.Tensor:
    """The weights (N + 1,) with which these tokens are the most probable."""
    theta = torch.tensor([*PRUNED.shares, PRUNED.exponent], dtype=torch.double)
    theta[:-1] = (theta[:-1] * ALPHA).clamp(0.05, 0.95).logit()
    theta[-1] = theta[-1].log()
    theta.requires_grad_()
    optimizer = torch.optim.LBFGS([theta], max_iter=100, line_search_fn="strong_wolfe")

    def loss() -> torch.Tensor:
        optimizer.zero_grad()
        value = -torch.cat([known.logp(theta) for known in read]).mean()
        value.backward()
        return value

    optimizer.step(loss)
    return theta.detach()
