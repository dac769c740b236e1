"""`eval weights`: what the stores give to a writer's next token with the weights of `Trust`, and with weights that they
earn in the text (`core.ngram.earned`), beside the model alone.

Each kind of text is one writer, or with --only each name. The first half of the writer's text is learned by a personal
store, and the next token is predicted in the second half; with --past, that text is learned, and all of the other is
predicted. With --counted, the base store has counted the writer's text, so its counts are left out.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import Annotated

import numpy as np
import typer

from core.autocomplete import load_autocomplete
from core.errors import InputError
from core.models import LanguageModel
from core.ngram import NgramStore
from core.ngram.counts import Counts
from core.ngram.earned import Earned
from core.ngram.interpolation import Interpolation, Linear
from core.ngram.shelf import interpolation
from core.ngram.store import CandidateIds, Contexts, Evidence
from research.evals.prose import texts_of
from research.options import MixedOptions, NamedTextOptions, amount
from research.places import texts
from research.report import Progress, Report
from research.scores import half_interval
from training.held_out import means_of_blocks

LEARNT = 80_000  # tokens of each writer's half, at most
STEP = 256  # tokens that are predicted in one pass, after as many of context
CONSTANT, EARNED = "constants", "earned"


@dataclass(frozen=True)
class WeightsOptions(MixedOptions, NamedTextOptions):
    past: Annotated[Path | None, typer.Option(help="The writer's earlier text, of which a personal store is made.")] = (
        None
    )
    counted: Annotated[
        bool,
        typer.Option("--counted", help="The text is part of what the base store counted: its counts are left out."),
    ] = False
    repetitions: Annotated[int, amount("Tokens of each writer that are predicted.")] = 2048


def measure(options: WeightsOptions, progress: Progress) -> Report:
    autocomplete = load_autocomplete(options.model, options.backend, options.store, personal=False)
    documents = texts_of(options)
    model, base = autocomplete.model, autocomplete.ngrams
    if options.counted and base is None:
        raise InputError("--counted given without a base store; leave it out, or give --base-store.")
    past = None if options.past is None else [text for several in texts(options.past).values() for text in several]
    by_writer: dict[str, dict[str, list[float]]] = {}
    for number, (writer, written) in enumerate(documents.items()):
        progress(f"{writer} ({number + 1} of {len(documents)})")
        ids = [token for text in written for token in model.tokenizer.encode(text)]
        counted = base
        if options.counted and base is not None:
            counted = Without(base, Counts.of(model.vocab_size, [(model.tokenizer.encode(t), 1) for t in written]))
        if past is None:
            half = min(len(ids) // 2, LEARNT)
            learnt, ids = [ids[:half]], ids[max(half - STEP, 0) :]
        else:
            learnt = [model.tokenizer.encode(text) for text in past]
        ids = ids[: STEP + (options.repetitions)]
        if len(ids) < STEP + 2:
            raise InputError(f"The {writer} text is too short: {len(ids)} tokens to predict; {STEP + 2} expected.")
        own = Counts.of(model.vocab_size, [(passage, 1) for passage in learnt])
        rules = {"base store": interpolation(counted), "base and personal": interpolation(counted, [own])}
        by_writer[writer] = predicted(ids, logs(model, ids), rules)
    model.close()
    return report_of(by_writer)


def logs(model: LanguageModel, ids: list[int]) -> list[float]:
    """ln p by the model of each token after the first STEP."""
    logp: list[float] = []
    for at in range(STEP, len(ids), STEP):
        with closing(model.open()) as sequence:
            window = ids[at - STEP : at + STEP]
            logits = sequence.feed_every(window[:-1])[STEP - 1 :].log_softmax(-1)
        logp += [float(x[i]) for x, i in zip(logits, window[STEP:], strict=True)]
    return logp


def predicted(ids: list[int], logp: list[float], rules: dict[str, Interpolation | None]) -> dict[str, list[float]]:
    """ln p of each token after the first STEP, by the model and by each rule: as it is, and with earned weights."""
    by_rule = {"model": logp}
    for name, rule in rules.items():
        if not isinstance(rule, Linear):  # there is no store
            continue
        earned = Earned()
        constant, learnt = by_rule[f"{name}, {CONSTANT}"], by_rule[f"{name}, {EARNED}"] = [], []
        for at, logq in enumerate(logp, start=STEP):
            if (unread := earned.unread(ids[:at], STEP)) < at:
                earned.read(unread, ids[unread:at], logp[unread - STEP : at - STEP])
            here = [ids[:at]], [ids[at]]
            after = rule.after(ids[:at])
            constant.append(float(after.scores(np.array([[logq]]), *here)[0, 0]))
            learnt.append(float(earned.rule(after, at).scores(np.array([[logq]]), *here)[0, 0]))
    return by_rule


def report_of(by_writer: dict[str, dict[str, list[float]]]) -> Report:
    """A row for each writer. `gain_ci` is half of the 95 % confidence interval of the earned weights' gain over the
    model alone, from means over blocks of tokens."""
    report, best = Report("eval weights"), "base and personal"
    gains: dict[str, list[float]] = {CONSTANT: [], EARNED: []}
    for writer, by_rule in by_writer.items():
        report.rows.append(
            {"writer": writer, "tokens": len(by_rule["model"])} | {n: fmean(x) for n, x in by_rule.items()}
        )
        more = {way: np.subtract(by_rule[f"{best}, {way}"], by_rule["model"]).tolist() for way in gains}
        for way, of_way in gains.items():
            of_way.append(fmean(more[way]))
        report.rows[-1]["gain_ci"] = half_interval(means_of_blocks(more[EARNED]))
    report.target("ln p with earned weights, over the model's, of the worst writer", min(gains[EARNED]), ">= -0.005")
    report.target("the same with the constants", min(gains[CONSTANT]), ">= -0.005")
    report.target(
        "mean gain with earned weights / with the constants", fmean(gains[EARNED]) / fmean(gains[CONSTANT]), ">= 1.5"
    )
    return report


class Without:
    """A pruned store as it would be without some of the text that it counted, for single candidates."""

    def __init__(self, store: NgramStore, left_out: Counts) -> None:
        self._store, self._left_out, self.orders = store, left_out, store.orders
        self._least = {int(n): int(least) for n, least in store.manifest["min_count"].items()}

    def count(self, ids: Sequence[int]) -> int:
        return self._rest(len(ids), self._store.count(ids), self._left_out.count(ids))

    def continuations(self, context: Sequence[int], limit: int | None = None) -> list[tuple[int, int]]:
        rest = [(i, self.count([*context, i])) for i, _ in self._store.continuations(context)]
        return sorted((pair for pair in rest if pair[1]), key=lambda pair: -pair[1])[:limit]

    quick_continuations = continuations

    def evidence(self, contexts: Contexts, candidates: CandidateIds, orders: Sequence[int] | None = None) -> Evidence:
        known = self._store.evidence(contexts, candidates, orders)
        ids = np.broadcast_to(np.asarray(candidates), known.counts[:, 0].shape)
        counts, totals, seen = known.counts.copy(), known.totals.copy(), known.seen.copy()
        for row, context in enumerate(contexts):
            for column, n in enumerate(known.orders):
                before = list(context[len(context) - n + 1 :])
                if len(before) < n - 1 or not totals[row, column]:
                    continue
                for token, left_out in self._left_out.continuations(before):
                    if counted := self._store.count([*before, token]):
                        rest = self._rest(n, counted, left_out)
                        totals[row, column] -= counted - rest
                        counts[row, column, ids[row] == token] = rest
                seen[row, column] = max(seen[row, column] - self._left_out.count(before), totals[row, column])
        return Evidence(known.orders, counts, totals, seen)

    def _rest(self, n: int, counted: int, left_out: int) -> int:
        rest = counted - left_out
        return rest if rest >= self._least.get(n, 1) else 0
