"""`eval tails`: how well the ends of drafts hold, as made at every key and at full length.

`below` is the share of shown tokens, from a draft's third on, to which the model alone gives less than LEAST when it
reads that draft alone; `mixed_below` is the share to which model and n-gram stores together give less: stores propose
tokens that the model alone finds implausible. At full length there are three ways: superposed as at every key, a row
for each draft, and what the app does on this machine (`core.drafting.tails`). Every way makes its drafts at the same
places, in turns.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Annotated

import numpy as np

from core.drafting.drafts import Drafts, Options
from core.drafting.driver import draft_all
from core.drafting.tails import choose_tails
from core.models import Sequence
from core.modes.checked import IMPLAUSIBLE
from core.modes.start import Mode, start
from core.ngram.interpolation import Interpolation
from core.ngram.shelf import interpolation
from research.evals.methods import SHIPPED
from research.evals.verified import logprobs
from research.options import AutocompleteOptions, DraftCountOptions, DraftCounts, Length, PlacesOptions, amount, loaded
from research.places import LENGTH, places, texts
from research.report import Progress, Report, counted, turned
from research.scores import mean, scored, summary

FIRST = 2  # tokens of a draft that are not counted
AT_EVERY_KEY, SUPERPOSED, OWN_ROWS, HELD = "at every key", "full, superposed", "full, own rows", "full, as the app"
TARGETS = {3: 0.035, 5: 0.035, 9: 0.05}  # of `below` at full length, by k


@dataclass(frozen=True)
class TailsOptions(DraftCountOptions, AutocompleteOptions, PlacesOptions):
    repetitions: Annotated[int, amount("Places per kind of text.")] = 40
    k: DraftCounts = "3,5,9"
    length: Length = LENGTH


def measure(options: TailsOptions, progress: Progress) -> Report:
    autocomplete = loaded(options)
    for _ in autocomplete.time_rows():
        pass
    model, length = autocomplete.model, options.length
    chosen = places(model.tokenizer, texts(options.text), options.repetitions, options.context, length=length)
    stores = interpolation(autocomplete.ngrams)
    shown = Options(
        length=length,
        ngrams=stores,
        **{name: getattr(SHIPPED, name) for name in ("forks", "exact_steps", "end_below", "min_branch")},
    )
    report, sequence = Report("eval tails"), model.open()
    for k in options.ks:
        chosen_here = choose_tails(autocomplete.row_costs, k, length, shown.exact_steps, shown.forks)
        full = replace(shown, k=k, end_below=0.0)
        ways = {
            AT_EVERY_KEY: (replace(shown, k=k), False),
            SUPERPOSED: (full, False),
            OWN_ROWS: (replace(full, exact_steps=length - 1), False),
            HELD: (replace(full, exact_steps=chosen_here.exact_steps), chosen_here.checked),
        }
        scores, by_model, mixed = ({name: [] for name in ways} for _ in range(3))
        for number, place in enumerate(counted(chosen, f"k={k}: place", progress)):
            for name, (way, check) in turned([*ways.items()], number):
                sequence.sync(place.before)
                began = time.perf_counter()
                ids = drafts_of(sequence, place.before, way, check)
                ms = 1000 * (time.perf_counter() - began)
                scores[name].append(scored(model.tokenizer, place.kind, ids, place.after, ms))
                for draft in ids:
                    alone = logprobs(sequence, place.before, draft)
                    by_model[name] += alone[FIRST:]
                    mixed[name] += with_stores(stores, place.before, draft, alone)[FIRST:]
        for name, (way, check) in ways.items():
            summed = summary(scores[name])
            below, mixed_below = (
                mean([float(p < math.log(IMPLAUSIBLE)) for p in of[name]]) for of in (by_model, mixed)
            )
            about = {"k": k, "way": name, "exact_steps": way.exact_steps, "checked": "yes" if check else "no"}
            figures = {each: summed[each] for each in ("places", "match", "match_ci", "ms")}
            report.rows.append(
                about | figures | {"tokens": len(by_model[name]), "below": below, "mixed_below": mixed_below}
            )
            if name == HELD and k in TARGETS:
                report.target(f"{name}, k={k}: share of tokens below 1 %", below, f"<= {TARGETS[k]}")
    sequence.close()
    model.close()
    return report


def with_stores(ngrams: Interpolation | None, prefix: list[int], draft: list[int], logq: list[float]) -> list[float]:
    """Returns ln p of each token of a draft by the model's ln q and the stores together."""
    if ngrams is None or not draft:
        return logq
    contexts = [prefix + draft[:i] for i in range(len(draft))]
    return ngrams.after(prefix).scores(np.array(logq)[:, None], contexts, [[token] for token in draft])[:, 0].tolist()


def drafts_of(sequence: Sequence, prefix: list[int], options: Options, check: bool) -> list[list[int]]:
    """Returns the shown tokens of the drafts after a text that the sequence contains."""
    drafting: Iterator[list[Drafts]] = draft_all(
        sequence.model, [prefix], lambda s, ids: start(s, ids, options, Mode(), check_tails=check), [sequence]
    )
    *_, (last,) = drafting
    return [draft.ids[: draft.own] for draft in last.drafts]
