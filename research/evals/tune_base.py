"""`eval tune-base`: the search for the weights of the base store, and for when drafts end, on one half of a text.

At places of the validation half of the text, the model's next-token logits are mixed with the store. One parameter of
`Trust` is varied at a time, in turns, until no change improves the mean ln p of the writer's next token. The result is
measured on the test half. With --adapter this is for the model with an adapter to general prose, whose distributions
differ.

Then the simulated typist writes passages of the validation half with other values of `end_below` and `forks`, one
changed at a time.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from statistics import fmean
from typing import Annotated

from app.options.settings import DraftSettings
from app.options.typist import Passage, Way, passages, typed
from core.autocomplete import Autocomplete
from core.errors import InputError
from core.ngram import Linear, Mixed, NgramStore
from core.ngram.interpolation import PRUNED
from core.ngram.shelf import ALPHA
from research.evals.tune import Setting, TunedPlace, figures_of, searched, variations
from research.options import AutocompleteOptions, PlacesOptions, amount, loaded
from research.places import places, texts
from research.report import Progress, Report, counted
from research.scores import half_interval

PLACES = 1000  # per kind of text, in each half
CHARACTERS = 1500  # typed per kind of text
K = 3
CHANGES = {"end_below": (0.15, 0.2, 0.25, 0.35, 0.4, 0.5), "forks": (1, 3, 4)}


@dataclass(frozen=True)
class TuneBaseOptions(AutocompleteOptions, PlacesOptions):
    repetitions: Annotated[
        int | None, amount("Places, and characters, per kind of text in each half; by default 1000 and 1500.")
    ] = None


def measure(options: TuneBaseOptions, progress: Progress) -> Report:
    if options.text is None:
        raise InputError("The search needs both halves of a text; give one with --text.")
    autocomplete = loaded(options)
    base = autocomplete.ngrams
    if base is None:
        raise InputError("There is no base store for this model; give one with --base-store.")
    halves = {part: texts(options.text, part) for part in ("validation", "test")}
    chosen = {part: tuned_places(autocomplete, of_part, options, progress) for part, of_part in halves.items()}
    written = passages(halves["validation"], options.repetitions or CHARACTERS)
    report = Report("eval tune-base")
    shipped = Setting(weight=ALPHA, trust=PRUNED)
    best, _ = searched(shipped, of_base, lambda s: score(chosen["validation"], base, s), report, progress)
    report.rows = [{"part": "validation", **row} for row in report.rows]
    figures = {}
    for name, setting in (("no base store", replace(shipped, weight=0.0)), ("shipped", shipped), ("best", best)):
        figures[name] = score(chosen["test"], base, setting)
        report.rows.append({"part": "test", "setting": name, **setting.as_row(), **figures[name]})
    gain = figures["best"]["mean_ln_p"] - figures["shipped"]["mean_ln_p"]
    report.target("mean ln p of the test half, best of the validation half less shipped", gain, "<= 0.01")
    keys = {name: saved(autocomplete, written, settings, name, progress) for name, settings in changed().items()}
    autocomplete.model.close()
    add_keys(report, keys)
    return report


def tuned_places(
    autocomplete: Autocomplete, documents: dict[str, list[str]], options: TuneBaseOptions, progress: Progress
) -> list[TunedPlace]:
    model = autocomplete.model
    chosen = places(model.tokenizer, documents, options.repetitions or PLACES, options.context, length=1)
    with closing(model.open()) as sequence:
        return [
            TunedPlace.at(place.before, place.after[0], sequence.sync(place.before), None)
            for place in counted(chosen, "place", progress)
        ]


def of_base(setting: Setting) -> list[Setting]:
    """Returns the settings that differ in one parameter. A pruned store has no count of a context's continuations."""
    low = [replace(setting, trust=replace(setting.trust, floor=floor)) for floor in (0.0, 0.05, 0.1, 0.2)]
    return [each for each in variations(setting) + low if not each.trust.types_weight and each != setting]


def score(chosen: Sequence[TunedPlace], base: NgramStore, setting: Setting) -> dict[str, float]:
    rule = Linear([Mixed(base, setting.weight, setting.trust)])
    return figures_of(chosen, lambda _: rule, setting.tau)


def changed() -> dict[str, DraftSettings]:
    """Returns the shipped settings, and those with one change, by name."""
    settings = {"shipped": DraftSettings(k=K)}
    for option, values in CHANGES.items():
        settings |= {f"{option} {value:g}": DraftSettings.model_validate({"k": K, option: value}) for value in values}
    return settings


def saved(
    autocomplete: Autocomplete, written: Sequence[Passage], settings: DraftSettings, name: str, progress: Progress
) -> list[float]:
    """Returns the percentage of keys saved in each passage."""
    way = Way(name, settings)
    return [typed(autocomplete, passage, way).saved for passage in counted(written, f"{name}: passage", progress)]


def add_keys(report: Report, keys: Mapping[str, Sequence[float]]) -> None:
    """Adds a row for each setting, with the paired difference to the shipped one and half of its 95 % interval."""
    surest = 0.0
    for name, percents in keys.items():
        gains = [percent - shipped for percent, shipped in zip(percents, keys["shipped"], strict=True)]
        row = {"part": "validation", "setting": name, "passages": len(percents), "keys_saved_percent": fmean(percents)}
        report.rows.append(row | {"gain": fmean(gains), "gain_ci": half_interval(gains)})
        if len(gains) > 1:
            surest = max(surest, fmean(gains) - half_interval(gains))
    report.target("keys saved, most that another setting surely adds in points", surest, "<= 0")
