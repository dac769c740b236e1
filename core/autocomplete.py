"""Drafts for a text: token healing, the cached sequence and the modes of drafting behind one interface.

An `Autocomplete` belongs to a model, a `Session` to one text that is being typed, a `Completion` to one request. A
completion computes no pass itself: `rows` returns the rows of the next pass, and `advance` takes their logits. So the
caller can join the rows of several sessions in one pass, and can stop a completion between two passes.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Iterator, Mapping
from collections.abc import Sequence as Ids
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar

from torch import Tensor

from core.adapters import Adapters
from core.after import TextAfter
from core.calibration import Making, calibration_of
from core.chains import names_of
from core.chances import Chances, TokenChances
from core.drafting.boundaries import only
from core.drafting.candidates import log_total
from core.drafting.drafts import Drafts, Figures, Options
from core.drafting.driver import Drafting
from core.drafting.reuse import KnownLogits
from core.drafting.scored import finished
from core.drafting.tails import tails
from core.errors import InputError
from core.fim import AcrossPrompt
from core.healing import Healer, Healing, WordLogits
from core.language import OtherLanguage
from core.models import LanguageModel, Row, Sequence, Tokenizer, load_model
from core.models.adapter import Adapter, AdapterError
from core.models.costs import CostCurve, are_calm, known_rows, remember_rows, timing_rows
from core.models.prose import prose_of
from core.modes.start import Mode, start
from core.ngram import Interpolation, NgramStore, StoreError
from core.ngram.base import BASE_STORE, BaseShelf, base_store
from core.ngram.earned import Earned
from core.ngram.interpolation import Linear, Store
from core.ngram.personal import PersonalStore
from core.ngram.shelf import ALPHA, Shelf, interpolation
from core.options import OPTIONS, Backend, Precision, Value
from core.present import SHORT, KeptRow, Presentation, TextDraft, kept_rows, present
from core.samplers import Geometry, Rule
from core.samplers.catalog import sampler
from core.samplers.dry import breakers
from core.samplers.geometry import METRICS
from core.style import Barred
from core.text import following
from core.time_saved import RowPath

WINDOW = 1024  # tokens of text before the caret that the model reads
BACKGROUND = 32  # characters of a background's end that are encoded for each token that is read
PART = 32  # tokens of a pass that gives the probability of each: their logits are large
REMEMBERED = 64  # rows that a session stores; kept rows take their probabilities from them


class Autocomplete:
    """Makes drafts with one model. Not thread-safe: one thread owns it.

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
        self.row_costs: CostCurve | None = known_rows(model)
        self._adapters, self._loading_notice = Adapters(model, prose), notice
        self.healer, self.barred = Healer(model.tokenizer), Barred(model.tokenizer.pieces)
        self.window = min(WINDOW, model.context_length // 2)
        self.in_other_language = OtherLanguage(model.languages)
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

    def sampler(self, rule: str, values: Mapping[str, Value] | None = None, temperature: float = 1.0) -> Rule:
        """Returns a rule of `core.controls` for this model, applied after the temperature. Raises InputError."""
        names, none = names_of(rule), frozenset[int]()
        marks = self._breakers if "dry" in names else none
        ends = self.model.tokenizer.ends if "xtc" in names else none
        return sampler(rule, values, temperature, self.geometries, marks, ends)

    @cached_property
    def _breakers(self) -> frozenset[int]:
        return breakers(self.model.tokenizer.pieces)

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
            times = yield from timing_rows(self.model)
            self.row_costs = CostCurve.of_times(times)
            if are_calm(times):
                remember_rows(self.model, self.row_costs)

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

    def open(self) -> Session:
        """Opens a session with its own cached sequence. Raises ContextFull if there are too many."""
        return Session(self)


@dataclass(frozen=True)
class CompleteOptions(Options):
    """The options of one completion: those of drafting, and:

    Attributes:
        heal: whether drafts continue half-typed words.
        one_line: whether drafts stop at the end of the line.
        mode: how drafts are made; see `core.modes.start`.
        ngrams: replaces the stores; None for the base store and the personal stores, or, with mixing="geometric", the
            base store alone.
        alpha, personal_weight, stores, base_stores: of the base stores and the personal stores; see `mixture`.
        verify: the number of tokens of complete superposed drafts that one more pass checks, the most probable
            first. A draft is corrected at its first wrong token and continued from there in its place. 0: none.
        grow: whether every row grows to the full length, past the places where it would otherwise end.
        tails: whether the ends of superposed drafts shall hold, for drafts that are not made at every key: each has a
            row of its own where rows are cheap. Elsewhere as many exact steps as fit, at least `exact_steps`, and one
            pass that cuts a draft where it becomes implausible; `verify` replaces that pass. False: `exact_steps`.
        background: text that the model reads before the document and never shows: the mail that one answers, notes,
            names. Its end counts, up to half of the window.
        after: the text after the caret. Drafts end where they begin to repeat it. When they are complete, `best` is
            the draft that raises its probability most; if all make it much less probable, there are no drafts
            (`core.after`).
        unasked: whether the writer has not requested the drafts: then fewer are shown where they would disturb. Where
            a paragraph begins, only drafts in the document's form (`core.forms`); where text follows on the line, only
            drafts that join it, each up to the next punctuation. In a text in a language that the model does not write
            (`core.language`), none.
        earned: whether the stores of `mixture` earn their weights in the text before the caret (`core.ngram.earned`).
            Those in `ngrams` keep theirs, as do all of them in a prompt that fills in the middle.
        corrects: whether rows may correct a slip of the finger in the half-typed word (`core.slips`). They have
            `TextDraft.replace`; for superposed drafts of distinct lineages without text after the caret on the line.
        merge_alike: whether rows count as one that differ only in case, number or spelling, or in less than a third of
            their letters (`core.text`).
        likeliest: the number of most probable tokens in each of `TextDraft.chances`, which one more pass of the
            model alone computes. None: no such pass.
        repeats: whether sampled drafts without text, and those with the text of another, are kept.
        stop_ids: replace those that `one_line` selects.
    """

    READERS: ClassVar[tuple[str, ...]] = ("drafting", "session")

    heal: bool = True
    one_line: bool = True
    mode: Mode = field(default_factory=Mode)
    stores: list[str] | None = None
    base_stores: Ids[str] = ()
    grow: bool = False
    tails: bool = False
    background: str = ""
    after: str = ""
    unasked: bool = False
    earned: bool = True
    merge_alike: bool = False
    corrects: bool = False
    likeliest: int | None = None
    repeats: bool = False


# The names of the options that a session reads, and a person chooses.
READ = tuple(name for name, control in OPTIONS.items() if control.reader in CompleteOptions.READERS)
AS_SET = CompleteOptions()


def background_ids(tokenizer: Tokenizer, text: str) -> list[int]:
    """Returns the tokens of a background and of the empty line after it, as they are where a word follows."""
    return tokenizer.encode_to_go_on(f"{text}\n\n")[0] if text else []


class Session:
    """One text that is being typed, with a sequence in the model's cache that contains its tokens."""

    def __init__(self, autocomplete: Autocomplete, sequence: Sequence | None = None) -> None:
        self.autocomplete = autocomplete
        self.sequence = autocomplete.model.open() if sequence is None else sequence
        self.word_logits = WordLogits()
        self.known = KnownLogits()
        self.earned = Earned()
        self._read: tuple[str, list[int]] = "", []  # the background, and its tokens
        self.suspect = ""  # the latest text whose last word, half-typed or just finished, may contain a slip
        self.shown: list[tuple[str, TextDraft]] = []  # the rows of the latest completions, with the text before each

    def complete(self, before: str, kept: Ids[KeptRow] = (), options: CompleteOptions = AS_SET) -> Completion:
        """Starts drafts for a text. The session's previous completion must be closed.

        Args:
            before: the text before the caret.
            kept: rows of an earlier completion that the page still shows and that agree with the text. They keep their
                numbers, and grow when they become short. The other rows are filled. For superposed drafts of distinct
                lineages; other modes make all rows anew.
            options: see `CompleteOptions`.
        Raises: InputError for a weight out of range; StoreError for a named store that cannot be used.
        """
        a, o = self.autocomplete, options
        changes: dict[str, Any] = {}
        if o.ngrams is None and o.mixing == "geometric":
            changes["ngrams"] = a.base_stores_with(o.base_stores) or None
        elif o.ngrams is None:
            alpha = ALPHA if o.alpha is None else o.alpha
            changes["ngrams"] = a.mixture(alpha, o.personal_weight, o.stores, o.base_stores)
            changes["alpha"] = None  # the mixture contains it
        if o.stop_ids is None:
            changes["stop_ids"] = a.healer.line_ends if o.one_line else a.model.tokenizer.eos_ids
        changes["barred"] = a.barred.of(before + o.after)
        if o.grow:
            changes["end_below"] = 0.0
        check_tails = False
        # A further token shows whether the last word is whole. It would change the best of several texts, and resets.
        ahead = o.mode.drawn or (o.mode.name != "beam" and o.distinct and not o.reset_every)
        changes["length"] = length = o.length + ahead
        if o.tails and o.mode.name == "superposed" and o.distinct and not o.reset_every:
            chosen = tails(a.row_costs, o.k, length, o.exact_steps, o.forks)
            changes["exact_steps"], check_tails = chosen.exact_steps, chosen.checked
        read = self._background(o.background)
        finished = o.corrects and bool(self.suspect) and before == self.suspect.rstrip(" ") + " "
        plan = {"window": a.window, "heal": o.heal, "after": o.after, "background": read, "finished": finished}
        healing = a.healer.plan(before, **plan)
        across = healing.prefix_ids != healing.before_ids
        changes["earned"] = o.earned and not across and isinstance(changes.get("ngrams"), Linear)
        o = replace(o, **changes)
        if across and (ngrams := o.interpolation()) is not None:
            o = replace(o, ngrams=AcrossPrompt(ngrams, len(healing.prefix_ids), healing.before_ids))
        keeps = o.mode.name == "superposed" and o.distinct
        return Completion(self, healing, o, kept if keeps else (), before, check_tails, options.length)

    def _background(self, text: str) -> list[int]:
        """The tokens of a background and of the empty line after it, from its end as many as half of the window: the
        same ones at every key, because they are encoded apart from the text."""
        most, text = self.autocomplete.window // 2, text.rstrip()
        if text != self._read[0]:
            end = text[-most * BACKGROUND :]  # no need to encode a whole book
            self._read = text, background_ids(self.autocomplete.model.tokenizer, end)[-most:]
        return self._read[1]

    def rest(self) -> None:
        """Frees the cached logits, which only the next few keys can use. The text stays in the model's cache."""
        self.known = KnownLogits()
        self.sequence.forget_logits()

    def fork(self) -> Session:
        """Returns another session with the same text, also while a completion runs. Raises ContextFull."""
        session = Session(self.autocomplete, self.sequence.fork())
        session.earned = self.earned.copy()
        return session

    def close(self) -> None:
        self.sequence.close()


class Completion:
    """The drafts for one state of the text, while they are made.

    Attributes:
        drafts: the newest, in the order of their rows (with the paper's rule: the most probable first); [] before the
            first pass, unless its logits were cached.
        step: 0 before the first drafts, then the number of passes that made them.
        settled: whether rows only grow from now on; before, a row may be replaced.
        judged: whether the drafts have been compared with the text after the caret, if there is any. Before, all of
            them may be withdrawn.
        foreign: whether there are no drafts because nobody has requested them, and the text is in another language than
            the model's.
        seen: set by the caller if the page has shown rows or requested all of them; then no row is withdrawn.
        best: the number of the draft with the longest expected match; None before the first drafts.
        reused, fed: the number of the text's tokens that were in the cache, and of those that were fed so far.
        figures: statistics of speculation; None without speculation.
        exact_steps: those of superposed drafts, given or chosen.
        checked: whether the model has checked the drafts; see `verify` and `tails` of `CompleteOptions`.
        done: whether no pass follows.
    """

    def __init__(
        self,
        session: Session,
        healing: Healing,
        options: CompleteOptions,
        kept: Ids[KeptRow],
        before: str,
        check_tails: bool,
        shown: int,
    ) -> None:
        """`shown`: the highest number of tokens of a draft that a row shows."""
        self.drafts: list[TextDraft] = []
        self.figures: Figures | None = None
        self.step = 0
        self.settled = self.checked = self.seen = self.done = False
        self.best: int | None = None
        self.reused = self.fed = 0
        self.exact_steps = options.exact_steps
        self._session, self._healing, self._check_tails = session, healing, check_tails
        self._mixes_ngrams = options.interpolation() is not None
        self._logits: list[Tensor] = []  # (V,) at each boundary where drafts may begin
        self._chances: Chances = {}
        self._presented: tuple[Drafts | None, list[TextDraft]] = None, []  # the newest drafts, and their rows
        mode, after = options.mode, options.after
        plain = mode.name == "superposed"
        distinct = not plain or options.distinct
        self._presentation = Presentation(
            session.autocomplete.model.tokenizer,
            healing.rests[0],
            mode.most(options.k),
            distinct,
            tokens=shown,
            rounded=plain and distinct,
            kept={row.id: row.text for row in kept},
            before=before,
            earlier=tuple(session.shown),
            after=after,
            unasked=options.unasked,
            merge_alike=options.merge_alike,
            corrects=options.corrects,
            all=options.repeats and mode.drawn,
            lines=bool(options.reset_every),
        )
        verify = options.verify if plain and distinct and not options.reset_every else 0
        # Models that fill in the middle have read the text after the caret already.
        line = following(after) if session.autocomplete.healer.fim is None else ""
        self._after = TextAfter(line, self._presentation, session.autocomplete.row_costs) if line else None
        self.foreign = options.unasked and session.autocomplete.in_other_language(before)
        self.judged = self._after is None or self.foreign
        self._steps = self._drafted(options, kept, verify)
        self._take(*next(self._steps))

    @property
    def next_logits(self) -> Tensor | None:
        """The logits (V,) of the drafts' first token; None before the first drafts. In a half-typed word, the logits at
        the most probable token boundary, with -inf for all tokens that do not continue the word.
        `core.samplers.view` shows other rules at this position without a pass."""
        if not self._logits:
            return None
        boundaries = self._session.autocomplete.healer.boundaries(self._healing)
        boundary = boundaries.likeliest(self._logits)
        allowed = boundaries.allowed(boundary)
        return self._logits[boundary] if allowed is None else only(self._logits[boundary], allowed)

    @property
    def paths(self) -> list[RowPath]:
        """The newest drafts with the calibrated probability of each place where they may end; see
        `core.time_saved`."""
        return [RowPath.of(draft, calibration_of(self.making(draft))) for draft in self.drafts]

    def making(self, draft: TextDraft) -> Making:
        """How one of the drafts was made."""
        return Making(bool(self._presentation.typed), self._mixes_ngrams, draft.tail == "superposed")

    def rows(self) -> list[Row]:
        """Returns the rows of the next pass; [] only when the completion is done."""
        return self._rows

    def advance(self, logits: list[Tensor]) -> None:
        """Takes the logits of `rows()`, in their order."""
        self._take(*self._steps.send(logits))

    def finish(self) -> Completion:
        """Computes all passes that are left, for a caller who shares none with other texts; returns itself."""
        while not self.done:
            self.advance(self._session.autocomplete.model.forward(self.rows()))
        return self

    def close(self) -> None:
        """Stops between two passes; the cache keeps only the text."""
        self.done, self._rows = True, []
        self._steps.close()

    def _take(self, rows: list[Row], drafts: Drafts | None) -> None:
        self._rows = rows
        if drafts is not None:
            self.step, self.settled, self.checked = drafts.step, drafts.settled, drafts.checked
            self.figures = drafts.figures
            self.best = drafts.best
            self.drafts = self._shown(drafts)
            if drafts.done and self._after is not None:
                self.judged, self.drafts = True, self._after.ranked(self.drafts)
                if known := [(row.gain, -row.id) for row in self.drafts if row.gain is not None]:
                    self.best = -max(known)[1]
                if self._presentation.unasked:
                    self.drafts = [row for row in self.drafts if self._after.joins(row)]
                elif self._after.silent and not self.seen:
                    self.drafts = [row for row in self.drafts if row.id in self._presentation.kept]
            if self._chances:
                self.drafts = [replace(row, chances=self._chances.get(row.ids, ())) for row in self.drafts]
            self._session.shown = [
                *((self._presentation.before, row) for row in self.drafts if not row.replace),
                *self._presentation.earlier,
            ][:REMEMBERED]
        if not rows:
            self.close()

    def _shown(self, drafts: Drafts) -> list[TextDraft]:
        """The rows of these drafts, which are made once."""
        if drafts is not self._presented[0]:
            self._presented = drafts, present(drafts, self._presentation)
        return self._presented[1]

    def _drafted(
        self, options: CompleteOptions, kept: Ids[KeptRow], verify: int
    ) -> Generator[tuple[list[Row], Drafts | None], list[Tensor], None]:
        """One request: yields the rows of each pass with the drafts so far, and receives the logits. No rows mean the
        end."""
        session, healing, mode = self._session, self._healing, options.mode
        healer, sequence, before = session.autocomplete.healer, session.sequence, self._presentation.before
        corrects = options.corrects and mode.name == "superposed" and options.distinct and not following(options.after)
        if self.foreign:
            yield [], None
            return
        branch: Sequence | None = None  # drafts grow in it while the sequence keeps the half-typed word
        drafting: Drafting | None = None
        try:
            # 1. The text before the half-typed word. If this request is the first to read a word that is finished
            # already, drafts may correct a slip in it, and then they begin before it.
            if mode.speculation is not None and mode.speculation.by.drafter.layers:
                sequence.reveal()
            prefix, known, logits = healing.prefix_ids, None, list[Tensor]()
            unread = session.earned.unread(prefix, healing.begins) if options.earned else sequence.common_prefix(prefix)
            word = healer.finished_word(healing, before) if corrects and unread < len(prefix) else None
            if word is not None:
                unread = min(unread, len(word.prefix_ids))
                if not options.earned and len(prefix) - unread >= PART:
                    word = None  # it would take more passes
            if unread == len(prefix) and session.word_logits.match(healing, sequence):
                logits = session.word_logits.logits
                self.reused = sequence.length
            elif unread < len(prefix) and (options.earned or word is not None):
                back = 0 if word is None else len(prefix) - len(word.prefix_ids)
                lines = yield from self._read(prefix, unread, back, options.earned)
                known = lines[-1]
                if word is not None and healer.with_slips(word, lines, options.interpolation(), before).slips:
                    self._healing = healing = word
                    self._presentation = replace(self._presentation, typed=word.rests[0])
                    prefix, known, logits = word.prefix_ids, None, lines
            else:
                known = sequence.resume(prefix)
                self.reused = sequence.length
                if known is None:
                    rest = prefix[sequence.length :]
                    (known,) = yield [Row(sequence, rest)], None
                    self.fed += len(rest)
            if options.earned and isinstance(rule := options.interpolation(), Linear):
                options = replace(options, ngrams=session.earned.rule(rule, len(prefix)))

            # 2. The half-typed word, if drafts may begin at a token boundary inside it.
            if known is not None:
                logits = [known]
                if not healer.certain(healing, known, options.interpolation()):
                    (inside,) = yield [Row(sequence, list(healing.word_ids), every=True)], None
                    self.fed += len(healing.word_ids)
                    logits += [*inside]
                    if options.earned:
                        session.earned.read(len(prefix), healing.word_ids, _told(logits, healing.word_ids))
                    session.word_logits = WordLogits(prefix, healing.word_ids, logits)
            if len(logits) > 1:
                branch = sequence.fork()
            self._logits = logits

            # 3. The drafts.
            boundaries = healer.boundaries(healing)
            if corrects:
                boundaries = healer.with_slips(healing, logits, options.interpolation(), before)
                session.suspect = before if boundaries.slips else ""
            held = branch or sequence
            short = options.length if options.grow else min(SHORT, options.length)
            rows = kept_rows(kept, self._presentation, len(healing.word_ids), short)
            checks, same = (verify, self._check_tails), self._presentation.say_the_same if options.merge_alike else None
            drafting = start(held, prefix, options, mode, boundaries, rows, *checks, session.known, same)(logits)
            chances: TokenChances | None = None
            if options.likeliest is not None:
                chances = TokenChances(self._presentation, options.likeliest, healer.boundaries(healing))
            if chances is None and self._after is None:
                yield from drafting
                return

            # 4. Over the complete drafts, one pass for the probability of the text after the caret, and one for the
            # probabilities of the drafts' own tokens.
            drafts = yield from finished(drafting)
            if self._after is not None:
                yield from self._after(drafts, self._shown(drafts), held, logits[0])
            if chances is not None:
                self._chances = yield from chances(drafts, self._shown(drafts), held, logits)
            yield [], drafts
        finally:
            if drafting is not None:
                drafting.close()
            if branch is not None:
                branch.close()
            sequence.settle()

    def _read(
        self, prefix: list[int], unread: int, back: int, earned: bool
    ) -> Generator[tuple[list[Row], None], list[Tensor], list[Tensor]]:
        """Reads the prefix from its token `unread` on, with the probability of each token, by which the stores earn
        their weights if they are `earned`. Returns the logits (V,) before each of the last `back` tokens, which are
        among those read, and after the prefix."""
        sequence, lines = self._session.sequence, list[Tensor]()
        ahead = sequence.resume(prefix[:unread])
        self.reused = sequence.length
        if ahead is None and (before := prefix[sequence.length : unread - 1]):
            yield [Row(sequence, before, silent=True)], None
            self.fed += len(before)
        while part := prefix[sequence.length :][:PART]:
            (after,) = yield [Row(sequence, part, every=True)], None
            self.fed += len(part)
            new = [*after] if ahead is None else [ahead, *after]
            tokens = prefix[unread : sequence.length]
            if earned:
                self._session.earned.read(unread, tokens, _told(new, tokens))
            unread, ahead = unread + len(tokens), after[-1].clone()
            lines = [*lines[:-1], *new[:-1], ahead][-back - 1 :]
        return lines


def _told(lines: Ids[Tensor], tokens: Ids[int]) -> list[float]:
    """ln p of each token by the logits (V,) before it."""
    return [float(x[i]) - log_total(x.numpy(), 1.0) for x, i in zip(lines, tokens, strict=False)]


def load_autocomplete(
    model: str = "default",
    backend: Backend = "auto",
    store: Path | None = BASE_STORE,
    personal: bool = True,
    precision: Precision = "file",
    in_background: bool = False,
    bases: Callable[[str], BaseShelf] | None = None,
    prose: bool = False,
) -> Autocomplete:
    """The model by name, with the base n-gram store where it belongs to the model's tokenizer.

    `backend` and `precision` are those of `load_model`. `store` is the base store, None for none; with `bases`, a
    function of the tokenizer's fingerprint, those of the user's choice are used instead. With `personal`, drafts use
    the user's personal stores that are on, too. With `in_background`, drafts never wait for the counts of much personal
    text: a thread makes them (`Shelf`). With `prose`, drafts use the app's adapter to general prose, if it is for this
    model.

    Raises: as `load_model`; StoreError for another base store than the app's that cannot be used. For the app's own and
        another model there is a notice.
    """
    loaded = load_model(model, backend, precision)
    notices = [loaded.notice] if loaded.notice else []
    try:
        shelved = None if bases is None else bases(loaded.tokenizer.fingerprint)
        ngrams, missing = base_store(loaded.tokenizer.fingerprint, None if shelved else store)
        missing = missing if shelved is None else shelved.notice
    except StoreError:
        loaded.close()
        raise
    notices += [missing] if missing else []
    shelf = Shelf(loaded.tokenizer, in_background=in_background) if personal else None
    if shelf and in_background:
        shelf.active()  # they begin to count
    adapter = None
    try:
        adapter = prose_of(loaded) if prose else None
    except AdapterError as error:
        notices.append(f"The adapter of prose is not used: {error}")
    autocomplete = Autocomplete(loaded, ngrams, " ".join(notices) or None, shelf, shelved, adapter)
    autocomplete.adapt()
    return autocomplete
