"""`eval personal`: drafts for a writer, with and without a personal store learned from an earlier text."""

from __future__ import annotations

import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from app.options.settings import DraftSettings
from core.autocomplete import load_autocomplete
from core.models import LanguageModel
from core.ngram import Interpolation
from core.ngram.interpolation import Geometric
from core.ngram.shelf import interpolation
from core.superposed import superpose
from research.evals.methods import Method, by_the_paper
from research.options import MixedOptions, PastOptions, PlacesOptions, amount
from research.places import LENGTH, Place, places, texts
from research.report import Progress, Report, counted
from research.scores import Score, half_interval, scored, summary

K = 3
EXACT = range(1, 5)


@dataclass(frozen=True)
class PersonalOptions(MixedOptions, PastOptions, PlacesOptions):
    repetitions: Annotated[int, amount("Places per kind of text.")] = 300


def measure(options: PersonalOptions, progress: Progress) -> Report:
    autocomplete = load_autocomplete(options.model, options.backend, options.store, personal=False)
    model = autocomplete.model
    learnt, tested = learn_and_test(options)
    chosen = places(model.tokenizer, tested, options.repetitions, options.context)

    from core.ngram.personal import PersonalStore  # sqlite-utils takes a while to import

    with (
        tempfile.TemporaryDirectory() as folder,
        PersonalStore.open(Path(folder) / "writer.sqlite", model.tokenizer, create=True) as store,
    ):
        progress("learning")
        store.add("past", learnt)
        rules: dict[str, Interpolation | None] = {
            "no n-grams": None,
            "base store": interpolation(autocomplete.ngrams),
            "personal store": interpolation(None, [store]),
            "base and personal": interpolation(autocomplete.ngrams, [store]),
        }
        published = {"the paper's rule, personal store": by_the_paper(Geometric(store))}
        if (base := autocomplete.ngrams) is not None:
            published["the paper's rule, base store"] = by_the_paper(Geometric(base))
            published["the paper's rule, base and personal"] = by_the_paper(Geometric([(base, 0.5), (store, 0.5)]))
        results: dict[str, list[Score]] = {name: [] for name in (*rules, *published)}
        for place in counted(chosen, "place", progress):
            for name, rule in rules.items():
                results[name].append(drafted(model, place, rule))
            for name, method in published.items():
                results[name].append(made(model, place, method))
    model.close()
    return report_of(results)


def report_of(results: dict[str, list[Score]]) -> Report:
    report = Report("eval personal")
    for name, scores in results.items():
        report.rows.append({"stores": name, **summary(scores, EXACT)})
    alone, both = results["base store"], results["base and personal"]
    gained = [b.match - a.match for a, b in zip(alone, both, strict=True)]
    rows = {row["stores"]: row for row in report.rows}
    rows["base and personal"]["gain_ci"] = half_interval(gained)  # of the difference at the same places
    before = sum(score.match for score in alone)
    gain = sum(gained) / before if before else float("nan")
    report.target("mean matching prefix, personal over base alone, %", 100 * gain, ">= 10")
    return report


def learn_and_test(options: PastOptions) -> tuple[list[str], dict[str, list[str]]]:
    """Returns the training text and the test text; without `options.past`, the first and second half of each
    document."""
    tested = texts(options.text)
    if options.past is not None:
        return [text for documents in texts(options.past).values() for text in documents], tested
    earlier = [text[: len(text) // 2] for of_kind in tested.values() for text in of_kind]
    return earlier, {kind: [text[len(text) // 2 :] for text in of_kind] for kind, of_kind in tested.items()}


def newest(documents: list[str], share: float) -> list[str]:
    """Returns the newest part of some documents, oldest first: this share of their characters, more than 0, up to 1."""
    wanted = round(share * sum(map(len, documents)))
    latest: list[str] = []
    for text in reversed(documents):
        if wanted > 0:
            latest.insert(0, text[max(len(text) - wanted, 0) :])
            wanted -= len(text)
    return latest


def made(model: LanguageModel, place: Place, method: Method, k: int = K) -> Score:
    """The best of k drafts of a method at a place."""
    sequence = model.open()
    sequence.sync(place.before)
    drafts = method(sequence, place.before, k, LENGTH)
    sequence.close()
    return scored(model.tokenizer, place.kind, drafts, place.after, 0.0)


def drafted(model: LanguageModel, place: Place, rule: Interpolation | None, k: int = K) -> Score:
    """The best of k drafts at a place, with these n-grams."""
    sequence = model.open()
    steps = DraftSettings().exact_steps
    *_, last = superpose(model, place.before, k, LENGTH, sequence=sequence, ngrams=rule, exact_steps=steps)
    sequence.close()
    return scored(model.tokenizer, place.kind, last.ids, place.after, 0.0)
