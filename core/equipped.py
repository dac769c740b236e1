"""A model with what its drafts use: n-gram stores, adapters, measured costs."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cached_property

from core.adapters import Adapters
from core.chains import names_of
from core.errors import InputError
from core.healing import Healer
from core.language import OtherLanguage
from core.models import LanguageModel
from core.models.adapter import Adapter
from core.models.costs import CostCurve, known, measuring
from core.ngram import Interpolation, NgramStore
from core.ngram.base import BaseShelf
from core.ngram.interpolation import Store
from core.ngram.personal import PersonalStore
from core.ngram.shelf import Shelf, interpolation
from core.options import SelectAt, Value
from core.samplers import Geometry, Rule
from core.samplers.catalog import NOTHING_MORE, sampler
from core.samplers.dry import breakers
from core.samplers.geometry import METRICS
from core.style import Barred
from core.words import WordPieces

WINDOW = 1024  # tokens of text before the caret that the model reads


class EquippedModel:
    """A model, and what its drafts use. Not thread-safe: one thread owns it.

    Attributes:
        notice: a sentence for the user, about a backend or a store that could not be used; or None.
        bases: the base stores of the user's choice; None is `ngrams` alone.
        shelf: the personal stores that may join the base stores; None for none.
        row_costs: the ms of a pass over n rows on this machine; None until they are timed, and for models that are not
            in compiled code.
        draft_model: a smaller model with the same tokenizer, which may propose tokens for speculation; None for none.
        wants_prose: whether drafts use the adapter to general prose, if there is one, from the next `adapt` on.
    """

    def __init__(
        self,
        model: LanguageModel,
        ngrams: NgramStore | None = None,
        notice: str | None = None,
        shelf: Shelf | None = None,
        bases: BaseShelf | None = None,
        prose: Adapter | None = None,
    ) -> None:
        self.model, self._ngrams, self.notice, self.shelf, self.bases = model, ngrams, notice, shelf, bases
        self.wants_prose = True
        self.draft_model: LanguageModel | None = None
        self.row_costs: CostCurve | None = known(model, "rows") if model.compiled_as else None
        self._adapters, self._loading_notice = Adapters(model, prose), notice
        self.healer, self.barred = Healer(model.tokenizer), Barred(model.tokenizer.pieces)
        self.window = min(WINDOW, model.context_length // 2)
        self.in_other_language = OtherLanguage(model.languages)
        self._latest_breakers: tuple[tuple[str, ...], frozenset[int]] = (), frozenset()
        self.geometries = {metric: Geometry(lambda: model.embeddings, metric) for metric in METRICS}

    @property
    def base_stores(self) -> list[tuple[Store, float]]:
        """The base stores in use in every document, with their weights."""
        return self.base_stores_with(())

    def base_stores_with(self, named: Iterable[str]) -> list[tuple[Store, float]]:
        """The base stores in use in a document that names further ones of the user's choice; see `BaseShelf.active`."""
        if self.bases is not None:
            return [*self.bases.active(named)]
        return [] if self._ngrams is None else [(self._ngrams, 1.0)]

    @property
    def ngrams(self) -> NgramStore | None:
        """The only base store in use, for measurements; None for none. Raises InputError if there are several."""
        if self.bases is None:
            return self._ngrams
        several = self.bases.active()
        if len(several) > 1:
            raise InputError(f"{len(several)} base stores given; one expected here.")
        return several[0][0] if several else None

    def sampler(
        self,
        rule: str,
        values: Mapping[str, Value] | None = None,
        temperature: float = 1.0,
        select_at: SelectAt = "temperature",
        breakers: Sequence[str] | None = None,
        more: Mapping[str, Mapping[str, object]] = NOTHING_MORE,
    ) -> Rule:
        """Returns a rule of `core.controls` for this model, with the temperature.

        Args:
            breakers: the texts over which a repetition does not extend, for dry; None: its source's.
            more: by the name of a rule, arguments of its class that are no controls.
        Raises: InputError.
        """
        names, none = names_of(rule), frozenset[int]()
        marks = self._breakers_of(breakers) if "dry" in names else none
        ends = self.model.tokenizer.ends if "xtc" in names else none
        return sampler(rule, values, temperature, self.geometries, marks, ends, select_at, more)

    @cached_property
    def word_pieces(self) -> WordPieces:
        """Which tokens begin words, and go on with them."""
        return WordPieces(self.model.tokenizer)

    @cached_property
    def _breakers(self) -> frozenset[int]:
        return breakers(self.model.tokenizer.pieces)

    def _breakers_of(self, texts: Sequence[str] | None) -> frozenset[int]:
        """The ids of the tokens that end a repetition: those that contain one of the texts, and, as in dry's source,
        the last token of each text."""
        if texts is None:
            return self._breakers
        if self._latest_breakers[0] != tuple(texts):  # a program sends the same ones with every request
            tokenizer = self.model.tokenizer
            lasts = {i for text in texts for i in tokenizer.encode(f"a{text}")[-1:]}
            found = breakers(tokenizer.pieces, [text.encode() for text in texts]) | lasts
            self._latest_breakers = tuple(texts), found
        return self._latest_breakers[1]

    def mixture(
        self, alpha: float, personal_weight: float, stores: list[str] | None = None, base_stores: Iterable[str] = ()
    ) -> Interpolation | None:
        """Returns the interpolation of the base stores, with those that a document names in `base_stores`, with the
        personal stores that are on, or with those in `stores`.

        Raises: InputError for a weight out of range; StoreError for a named store that cannot be used.
        """
        chosen = self.personal(stores) if personal_weight else []
        return interpolation(self.base_stores_with(base_stores), chosen, alpha, personal_weight)

    def personal(self, stores: list[str] | None = None) -> list[PersonalStore]:
        """Returns the personal stores that are on, or those in `stores`.

        Raises: StoreError for a named store that cannot be used.
        """
        return [] if self.shelf is None else self.shelf.active() if stores is None else self.shelf.named(stores)

    def adapt(self, stores: list[str] | None = None) -> bool:
        """Applies the adapters of the personal stores that are on, or of those named, and the one to prose. Returns
        whether the model's results change; then the caller must close all sessions. `notice` names stores and adapters
        that are unusable.

        Raises: StoreError for a named store that cannot be used.
        """
        chosen = self.personal(stores)
        wanted = [(store.learned, store.strength) for store in chosen if store.adapting]
        changed = self._adapters.use(wanted, self.wants_prose)
        unusable = {} if self.shelf is None else self.shelf.problems
        problems = [f"The store {name} is not used: {why}" for name, why in unusable.items()]
        problems += [f"The adapter of {name} is not used: {why}" for name, why in self._adapters.problems.items()]
        silent = "" if self.shelf is None else self.shelf.notice
        self.notice = " ".join(filter(None, [self._loading_notice, silent, *problems])) or None
        return changed

    def time_rows(self) -> Iterator[None]:
        """Times rows of a model in compiled code, once on a machine, in steps of one pass; sets `row_costs`. Times that
        other programs disturbed serve this process alone."""
        if self.row_costs is None and self.model.compiled_as:
            self.row_costs = yield from measuring(self.model, "rows")

    @property
    def removed(self) -> str:
        """A mark that differs after text was removed from a personal store, as of the last `adapt`. Drafts made before
        may contain the text."""
        return self.shelf.removed if self.shelf else ""

    @property
    def adapted(self) -> bool:
        """Whether the model computes with the adapter of a store."""
        return self._adapters.on

    @property
    def has_prose(self) -> bool:
        """Whether there is an adapter to general prose for this model."""
        return self._adapters.prose is not None

    @property
    def with_prose(self) -> bool:
        """Whether the model computes with that adapter."""
        return self._adapters.with_prose

    @property
    def prose(self) -> Adapter | None:
        """The adapter to general prose with which the model computes, or None."""
        return self._adapters.prose if self.with_prose else None

    def remark(self, sentence: str) -> None:
        """Adds a sentence to the notice."""
        self._loading_notice = " ".join(filter(None, [self._loading_notice, sentence]))
        self.notice = " ".join(filter(None, [self.notice, sentence]))

    def close(self) -> None:
        """Closes the model, and the draft model if there is one."""
        self.model.close()
        if self.draft_model is not None:
            self.draft_model.close()
