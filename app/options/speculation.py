"""Speculation as set in the settings: creates drafters, keeps their estimates beside the model, and describes the
choices to the page."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Generator, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

from core.controls import DRAFTERS, WITH_STORES
from core.errors import InputError, PolydraftError

if TYPE_CHECKING:
    from app.options.settings import DraftSettings
    from core.autocomplete import Autocomplete
    from core.models.costs import CostCurve
    from core.modes.speculated import Speculation, Speculator
    from core.ngram.interpolation import Store
    from core.options import Backend, Precision
    from core.speculative import Drafter
    from core.speculative.calibration import Calibration


def make_drafter(name: str, autocomplete: Autocomplete, head: Path | None = None) -> Drafter:
    """Creates a drafter of `core.controls.DRAFTERS`. `head`: the folder of an EAGLE-3 head; None is `head_of`."""
    from core.speculative import ModelDrafter, NgramDrafter, SuffixDrafter, SuperposedDrafter
    from core.speculative.drafters.eagle3 import Eagle3Drafter, head_of
    from core.speculative.eagle3 import Eagle3Head

    model, stores = autocomplete.model, autocomplete.base_stores
    if name == "ngram":
        return NgramDrafter([store for store, _ in stores])
    if name == "suffix":
        return SuffixDrafter([store for store, _ in stores])
    if name == "superposed":
        return SuperposedDrafter(autocomplete.draft_model or model, 3, ngrams=stores or None)
    if name == "model":
        assert autocomplete.draft_model is not None
        return ModelDrafter(autocomplete.draft_model, model)
    return Eagle3Drafter(Eagle3Head.load(head or head_of(autocomplete.prose)), model)


def missing_for(name: str, autocomplete: Autocomplete, head: Path | None = None) -> str:
    """The reason why the model does not support a drafter; "" if it does. `head`: as in `make_drafter`."""
    model = autocomplete.model
    if name == "model" and autocomplete.draft_model is None:
        return (
            "No draft model is loaded; start with --draft-model FILE, a smaller model with the tokenizer of "
            f"{model.name}."
        )
    if name != "eagle3":
        return ""
    if model.backend != "torch":
        return f"EAGLE-3 reads hidden states, which {model.backend} does not provide; start with --backend torch."
    from core.speculative.drafters.eagle3 import head_of
    from core.speculative.eagle3 import Eagle3Head, HeadError

    try:
        Eagle3Head.load(head or head_of(autocomplete.prose)).check(model.vocab_size, model.dim)
    except HeadError as error:
        return str(error)
    return ""


def add_draft_model(
    autocomplete: Autocomplete, name: str, backend: Backend = "auto", precision: Precision = "file"
) -> None:
    """Loads the model that proposes tokens as the drafter "model".

    Raises: as `core.models.load_model` does; InputError for a model with another tokenizer.
    """
    from core.models import load_model
    from core.speculative import ModelDrafter

    small = load_model(name, backend, precision)
    try:
        ModelDrafter(small, autocomplete.model).close()
    except BaseException:
        small.close()
        raise
    autocomplete.draft_model = small


def offer_draft_model(
    autocomplete: Autocomplete, name: str, backend: Backend = "auto", precision: Precision = "file"
) -> None:
    """As `add_draft_model`, for the app: a problem is a notice, because the user may later load a model with another
    tokenizer."""
    try:
        add_draft_model(autocomplete, name, backend, precision)
    except PolydraftError as error:
        autocomplete.remark(f"The draft model is not used: {error}")


OTHER_MODEL = (
    "The EAGLE-3 head was trained for the model alone, and a store's adapter is on: drafts stay exact, but its "
    "proposals may be accepted less often."
)
MODEL_AS_IT_CAME = (
    "The EAGLE-3 head was trained for the model as it came, and Prose is on: drafts stay exact, but its proposals may "
    "be accepted less often."
)
NOT_ADAPTED = (
    "ARC's constants were measured for the model alone, and hold only there, but the adapter of a store is on. Switch "
    "“Write in my style” off, or choose lossless speculation."
)
LEARNT = 16  # settings whose acceptance estimates are kept
READERS = 3  # choices of personal stores whose passages are in memory, some 13 MB each


class _Learnt:
    """The acceptance estimates of a model's drafters, kept for the life of the model."""

    def __init__(self) -> None:
        # By name, and for the suffix automaton also by the personal stores that it reads.
        self.drafters: dict[tuple[str, ...], Drafter] = {}
        self.head: Path | None = None  # of EAGLE-3, as the user chose; None is `head_of`
        self.bases: list[tuple[Store, float]] = []  # the base stores of the drafters
        self.removed = ""  # `Autocomplete.removed` of the personal stores
        self.speculators: OrderedDict[str, Speculator] = OrderedDict()
        self.curve: CostCurve | None = None
        self.measuring: Generator[None, None, CostCurve] | None = None
        self.calibrations: dict[tuple[bool, float], Calibration] = {}  # with prose or not, by temperature

    def drop(self, names: list[tuple[str, ...]]) -> None:
        """Closes these drafters, and forgets their estimates."""
        gone = [self.drafters.pop(name) for name in names]
        for key in [key for key, by in self.speculators.items() if by.drafter in gone]:
            del self.speculators[key]
        for drafter in gone:
            drafter.close()


_learnt: WeakKeyDictionary[Autocomplete, _Learnt] = WeakKeyDictionary()


def chosen_by(
    autocomplete: Autocomplete, settings: DraftSettings, stores: list[str] | None = None
) -> Speculation | None:
    """The speculation for these drafts. None while the cost of passes is unknown: the first time on a machine,
    until `chore` is done.

    Args:
        stores: the personal stores that were named; None for those that are on.
    Raises: CalibrationError where ARC has no calibration for these settings; InputError for a drafter that this model
        does not support; StoreError for a named store that cannot be used.
    """
    from core.models.costs import known, measuring
    from core.modes.speculated import Speculation
    from core.speculative.options import SpeculationOptions

    wanted, model = settings.sampling.speculation, autocomplete.model
    learnt = _learnt.setdefault(autocomplete, _Learnt())
    calibration = _calibration(autocomplete, settings, learnt) if wanted.mode == "arc" else None
    if learnt.curve is None:
        learnt.curve = known(model, "tokens")
    if learnt.curve is None:
        learnt.measuring = learnt.measuring or measuring(model, "tokens")
        return None
    values: dict[str, Any] = dict(wanted.values)
    options = SpeculationOptions(
        wanted.mode,  # pyright: ignore[reportArgumentType]
        tree_size=int(values.pop("tree_size")) or "auto",
        calibration=calibration,
        **values,
    )
    return Speculation(_speculator(autocomplete, settings, learnt, learnt.curve, stores), options)


def _calibration(autocomplete: Autocomplete, settings: DraftSettings, learnt: _Learnt) -> Calibration:
    """ARC's constants for these settings. Raises CalibrationError where there are none."""
    from core.speculative import TargetSampling
    from core.speculative.calibration import CalibrationError, for_model

    if autocomplete.adapted:
        raise CalibrationError(NOT_ADAPTED)
    chosen = settings.sampling
    rule = autocomplete.sampler(
        chosen.rule, chosen.values, settings.temperature, settings.select_at, chosen.breakers, chosen.more
    )
    sampling = TargetSampling(settings.tau, rule)
    known = autocomplete.with_prose, sampling.overall_temperature
    calibration = learnt.calibrations.get(known) or for_model(autocomplete.model, sampling)
    learnt.calibrations[known] = calibration.check(autocomplete.model, sampling)
    return learnt.calibrations[known]


def _speculator(
    autocomplete: Autocomplete, settings: DraftSettings, learnt: _Learnt, curve: CostCurve, stores: list[str] | None
) -> Speculator:
    """The drafter of these settings with its estimates; one for each choice of settings and adapters, as acceptance
    depends on them."""
    from core.modes.speculated import Speculator
    from core.speculative import SuffixDrafter

    wanted = settings.sampling.speculation
    reads = wanted.drafter == "suffix" and settings.ngrams and settings.personal_weight
    personal = autocomplete.personal(stores) if reads else []
    bases, removed = autocomplete.base_stores, autocomplete.removed
    if (learnt.bases, learnt.removed) != (bases, removed):  # the user chose others, or removed text
        learnt.drop([key for key in learnt.drafters if key[0] in WITH_STORES])
        learnt.bases, learnt.removed = bases, removed
    name = (wanted.drafter, *(store.name for store in personal))
    head = caution = None
    if wanted.drafter == "eagle3" and autocomplete.model.backend == "torch":
        from core.speculative.drafters.eagle3 import DEFAULT_HEAD, head_of

        head = learnt.head or head_of(autocomplete.prose)
        name = wanted.drafter, str(head)
        if autocomplete.adapted:
            caution = OTHER_MODEL
        elif autocomplete.prose and head == DEFAULT_HEAD:
            caution = MODEL_AS_IT_CAME
    if name not in learnt.drafters:
        if missing := missing_for(wanted.drafter, autocomplete, head):
            raise InputError(missing)
        others = [key for key in learnt.drafters if key[0] == wanted.drafter and len(key) > 1]
        # The target computes the features of one head.
        learnt.drop(others if wanted.drafter == "eagle3" else others[: 1 - READERS])
        learnt.drafters[name] = make_drafter(wanted.drafter, autocomplete, head)
    drafter = learnt.drafters[name]
    if isinstance(drafter, SuffixDrafter):
        drafter.read(personal)
    key = settings.model_dump_json(include={"k", "temperature", "select_at", "tau", "sampling"})
    key = f"{autocomplete.adapted} {autocomplete.with_prose} {name} {key}"
    if key not in learnt.speculators:
        learnt.speculators[key] = Speculator(drafter, curve, caution)
        if len(learnt.speculators) > LEARNT:
            learnt.speculators.popitem(last=False)
    learnt.speculators.move_to_end(key)
    return learnt.speculators[key]


def chore(autocomplete: Autocomplete) -> Iterator[None]:
    """The measurements still needed before speculation, in steps of one pass of the model; empty when complete.
    Call it in the thread that owns the model."""
    learnt = _learnt.get(autocomplete)
    if learnt is None or learnt.measuring is None:
        return
    try:
        learnt.curve = yield from learnt.measuring
    finally:
        learnt.measuring = None


def prepare(autocomplete: Autocomplete, settings: DraftSettings, head: Path | None = None) -> None:
    """Runs the measurements of `chosen_by` now, for a caller that drafts only once.

    Args:
        head: the folder of an EAGLE-3 head, for that drafter; None is `head_of`.
    Raises: as `chosen_by` does; InputError for a folder without a head, too.
    """
    _learnt.setdefault(autocomplete, _Learnt()).head = head
    if chosen_by(autocomplete, settings) is None:
        for _ in chore(autocomplete):
            pass


def missing(autocomplete: Autocomplete | None) -> dict[str, object]:
    """Why a model lacks some choices, for the panel: of each drafter, and of ARC; "" for one that it has."""
    arc = ""
    if autocomplete is not None and autocomplete.adapted:
        arc = NOT_ADAPTED
    elif autocomplete is not None:  # while it is loading, that thread imports the same modules
        from core.speculative.calibration import CalibrationError, for_model

        try:
            for_model(autocomplete.model)
        except CalibrationError as error:
            arc = str(error)
    return {
        "drafters": {name: "" if autocomplete is None else missing_for(name, autocomplete) for name in DRAFTERS},
        "arc": arc,
    }
