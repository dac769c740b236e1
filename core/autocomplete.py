"""Text in, drafts as text out: healing, the cached sequence and Superposed Decoding behind one small interface.

An `Autocomplete` belongs to a model, a `Session` to someone typing, a `Completion` to one keystroke. A completion
runs no model pass itself: `rows` says what it needs next and `advance` takes the logits, so that the caller can
join the passes of several people into one, and stop between any two.
"""

from __future__ import annotations

from collections.abc import Mapping
from collections.abc import Sequence as Ids
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from torch import Tensor

from core.drafting.candidates import PROPOSALS
from core.drafting.drafts import Drafts, Kept, Options
from core.healing import Healer
from core.models import LanguageModel, Row, Sequence, load_model
from core.modes import Drafting, Mode, begin
from core.ngram import Interpolation, NgramStore, StoreError
from core.ngram.shelf import ALPHA, PERSONAL_WEIGHT, Shelf, interpolation
from core.places import likeliest_place, only
from core.samplers import Geometry, Rule
from core.samplers.catalog import sampler
from core.samplers.geometry import METRICS
from core.text import shown, whole_words, without_dangling

SHORT = 4  # tokens left of a kept row, below which it grows again
WINDOW = 1024  # tokens of text before the caret that the model sees
Came = tuple[int, int, str, float | None]  # from where to where, how, and the LTS
BASE_STORE = Path(__file__).resolve().parent.parent / "assets" / "base.ngram"


@dataclass(frozen=True)
class TextDraft:
    """One draft as the person sees it.

    Attributes:
        id: stays with the draft while it grows.
        text: exactly what picking it inserts at the caret.
        probability: how likely the writer is to take this branch: of the token with which the draft parts from the
            others, given what is typed.
        whole: of all its tokens.
        finished: it ended its line.
        personal: from where to where in `text` a personal store decided on the words; it ends before the second.
        how: likewise, how each token came by speculation, and its LTS where it has one.
    """

    id: int
    text: str
    probability: float
    whole: float
    finished: bool
    personal: tuple[tuple[int, int], ...] = ()
    how: tuple[Came, ...] = ()


@dataclass(frozen=True)
class KeptRow:
    """A row that the reader still sees: its number, and exactly what is left of it at the caret."""

    id: int
    text: str


class Autocomplete:
    """Drafts from one model. Not thread-safe: one thread owns it.

    Attributes:
        notice: what the user should know (a backend or a store that could not be used), or None.
        shelf: the personal stores that may join the base store `ngrams`; None for none.
    """

    def __init__(
        self, model: LanguageModel, ngrams: Any = None, notice: str | None = None, shelf: Shelf | None = None
    ) -> None:
        self.model, self.ngrams, self.notice, self.shelf = model, ngrams, notice, shelf
        self.healer = Healer(model.tokenizer)
        self.window = min(WINDOW, model.context_length // 2)
        self.geometries = {metric: Geometry(model.embeddings, metric) for metric in METRICS}

    def sampler(self, rule: str, values: Mapping[str, Any] | None = None, temperature: float = 1.0) -> Rule:
        """A rule of `core.controls` by name, after the temperature, for this model. Raises InputError."""
        return sampler(rule, values, temperature, self.geometries)

    def mixture(self, alpha: float, personal_weight: float, stores: list[str] | None = None) -> Interpolation | None:
        """The base store and the personal stores that are on, or those named in `stores`, as one rule.

        Raises: InputError for a weight out of range; StoreError for a named store that cannot be used.
        """
        shelf = self.shelf if personal_weight else None
        chosen = [] if shelf is None else shelf.active() if stores is None else shelf.named(stores)
        return interpolation(self.ngrams, chosen, alpha, personal_weight)

    def open(self) -> Session:
        """A session with a cached sequence of its own. Raises ContextFull when there are too many."""
        return Session(self)


class Session:
    """Someone typing: remembers, in the model's cache, what was typed so far."""

    def __init__(self, autocomplete: Autocomplete) -> None:
        self.autocomplete = autocomplete
        self.sequence = autocomplete.model.open()
        self.weighed = Weighed([], [], [])
        self.shown: dict[int, TextDraft] = {}  # by number, the rows that the latest completion made

    def complete(
        self,
        before: str,
        *,
        heal: bool = True,
        one_line: bool = True,
        mode: Mode | None = None,
        alpha: float | None = None,
        personal_weight: float = PERSONAL_WEIGHT,
        stores: list[str] | None = None,
        verify: int = 0,
        kept: Ids[KeptRow] = (),
        grow: bool = False,
        **options: Any,
    ) -> Completion:
        """Start drafts after the text before the caret; the session's previous completion must be closed.

        Args:
            heal: finish half-typed words.
            one_line: drafts stop at the end of the line.
            mode: how drafts are made; see `core.modes`. None is superposed.
            alpha, personal_weight, stores: of the base store and the personal stores; see `mixture`.
            verify: tokens of superposed drafts that one more pass checks once they are there, where the text is
                likeliest to go; a draft is corrected where it fails and goes on from there, in its place. 0 for none.
            kept: rows of an earlier completion that the reader still sees and that agree with the text. They keep their
                numbers, and grow once they are short. The other rows are filled. For superposed drafts of distinct
                lineages; other modes make all rows anew.
            grow: let every row grow to the full length on its own, wherever it would have ended before.
            options: of `core.superposed.superpose`, the rule among them. With `ngrams` the stores are those given there
                instead; with mixing="geometric" it is the base store alone.
        Raises: InputError for an option out of range.
        """
        if "ngrams" not in options and options.get("mixing") != "geometric":
            options["ngrams"] = self.autocomplete.mixture(ALPHA if alpha is None else alpha, personal_weight, stores)
        else:
            options.setdefault("ngrams", self.autocomplete.ngrams)
            options["alpha"] = alpha
        mode = mode or Mode()
        if grow:
            options |= {"end_below": 0.0, "exact_steps": max(options.get("length", Options.length) - 1, 0)}
        if mode.name != "superposed" or not options.get("distinct", True):
            kept = ()
        if mode.drawn:  # one more, which tells whether the last word is whole
            options["length"] = options.get("length", Options.length) + 1
        return Completion(self, before, heal, one_line, mode, options, verify, kept, grow)

    def close(self) -> None:
        self.sequence.close()


@dataclass(frozen=True)
class Weighed:
    """Logits before a half-typed word and after each of its tokens, so that drafts for other settings need no pass.

    They hold for as long as the sequence holds prefix and word.
    """

    prefix_ids: list[int]
    word_ids: list[int]
    logits: list[Tensor]  # 1 + tokens of the word, each (V,)


class Completion:
    """The drafts for one state of the text, while they are made.

    Attributes:
        drafts: the newest, likeliest beginning first (by the paper's rule: likeliest draft first); [] before the
            first pass, unless the cache knew the answer.
        step: 0 before the first drafts, then the passes that made them.
        settled: from now on rows only grow; before, a row may still be replaced.
        best: number of the draft that is likely to come true furthest; None before the first ones.
        reused, fed: tokens of the text that were in the cache, and that had to be fed.
        figures: what speculation came to, where there is some; see `core.speculated.Figures`.
        checked: the model has looked at the drafts; see `verify` of `Session.complete`.
        done: nothing follows.
    """

    def __init__(
        self,
        session: Session,
        before: str,
        heal: bool,
        one_line: bool,
        mode: Mode,
        options: dict[str, Any],
        verify: int = 0,
        kept: Ids[KeptRow] = (),
        grow: bool = False,
    ) -> None:
        self._autocomplete = a = session.autocomplete
        self._session, self._sequence = session, session.sequence
        self._branch: Sequence | None = None  # where drafts grow while the sequence keeps the half-typed word
        self._one_line = one_line
        self._options, self._mode = options, mode
        self._verify = verify
        self._kept, self._grow = kept, grow
        self._earlier = dict(session.shown)
        self._made: Options | None = None
        self.checked = False
        Options(**options)  # refuses values out of range before anything is fed
        self._healing = a.healer.plan(before, window=a.window, heal=heal)
        self._drafting: Drafting | None = None
        self._weighing: Tensor | None = None  # logits before the word, while its boundaries are weighed
        self.drafts: list[TextDraft] = []
        self.figures: Any = None
        self.step = 0
        self.settled = False
        self.best: int | None = None
        self.done = False
        self.fed = 0
        self._first: tuple[list[Tensor], list[np.ndarray]] | None = None  # what the drafts began with
        wanted = self._healing.prefix_ids
        if mode.speculation is not None and mode.speculation.by.drafter.layers:
            self._sequence.reveal()
        if (weighed := self._weighed_before()) is not None:
            self.reused, self._rest = self._sequence.length, []
            self._begin(weighed)
            return
        known = self._sequence.resume(wanted)
        self.reused = self._sequence.length
        self._rest = wanted[self._sequence.length :]
        if known is not None:
            self._after_prefix(known)

    def rows(self) -> list[Row]:
        """What the next pass needs; [] only when done."""
        if self.done:
            return []
        if self._drafting is not None:
            return self._drafting.rows()
        if self._weighing is not None:
            return [Row(self._sequence, list(self._healing.word_ids), every=True)]
        return [Row(self._sequence, self._rest)]

    def advance(self, logits: list[Tensor]) -> None:
        """Take the logits of `rows()`, in their order."""
        if self._drafting is not None:
            self._show(self._drafting.advance(logits))
        elif self._weighing is not None:
            self.fed += len(self._healing.word_ids)
            self._begin([self._weighing, *logits[0]])
        else:
            self.fed += len(self._rest)
            self._after_prefix(logits[0])

    @property
    def next_logits(self) -> Tensor | None:
        """What the drafts begin with (V,); None before the first ones. At the likeliest place of a half-typed word,
        where only tokens that go on with it are above -inf. For `core.samplers.view`: what another rule would make of
        this position costs no pass."""
        if self._first is None:
            return None
        logits, starts = self._first
        place = likeliest_place(logits, self._healing.word_ids, starts)
        return only(logits[place], starts[place])

    def close(self) -> None:
        """Stop between any two passes; the cache keeps the text and nothing else."""
        self.done = True
        if self._drafting is not None:
            self._drafting.close()
        if self._branch is not None:
            self._branch.close()
            self._branch = None
        self._sequence.settle()

    def _weighed_before(self) -> list[Tensor] | None:
        """The logits of this very place, where the session's latest drafts began at it and its word is still cached."""
        w, healing = self._session.weighed, self._healing
        if not w.word_ids or (w.prefix_ids, w.word_ids) != (healing.prefix_ids, healing.word_ids):
            return None
        return w.logits if self._sequence.inputs == w.prefix_ids + w.word_ids else None

    def _after_prefix(self, logits: Tensor) -> None:
        if self._autocomplete.healer.certain(self._healing, logits) and not self._proposed_inside():
            self._begin([logits])
        else:
            self._weighing = logits

    def _proposed_inside(self) -> bool:
        """Whether a personal store knows how the unfinished word goes on at a boundary inside it. The model alone may
        be sure of another word; and then one more pass is well spent."""
        rule, healing = self._options["ngrams"], self._healing
        if not isinstance(rule, Interpolation):
            return False
        inside = range(1, len(healing.word_ids) + 1)
        contexts = [healing.prefix_ids + healing.word_ids[:n] for n in inside]
        return any(
            (self._autocomplete.healer.beginnings(healing.rests[n]) == i).any()
            for n, ids in zip(inside, rule.proposals(contexts, PROPOSALS), strict=True)
            for i in ids
        )

    def _begin(self, logits: list[Tensor]) -> None:
        """Drafts start: the logits before the unfinished word, and after its tokens where those count."""
        healing, healer = self._healing, self._autocomplete.healer
        stop = healer.line_ends if self._one_line else self._autocomplete.model.tokenizer.eos_ids
        starts = [healer.beginnings(rest) for rest in healing.rests]
        options = Options(**self._options, stop_ids=stop)
        self._made = options
        sequence = self._sequence
        if len(logits) > 1:
            # Drafts rewind into the word: they do so on a branch, and its tokens stay cached.
            self._session.weighed = Weighed(healing.prefix_ids, healing.word_ids, logits)
            sequence = self._branch = sequence.fork()
        kept = self._kept_rows(options)
        self._drafting = begin(sequence, healing.prefix_ids, options, self._mode, healing.word_ids, starts, kept)
        self._first = logits, starts
        self._show(self._drafting.advance(logits))

    def _refine(self, drafts: Drafts) -> None:
        """The drafts are all there: one more pass looks at them."""
        from core.speculative.verified import Judge, Refinement, Refining

        o = self._made
        assert o is not None
        refinement = Refinement(
            self._branch or self._sequence,
            self._healing.prefix_ids,
            drafts,
            judge=Judge(o.interpolation(), o.candidates or 3 * o.k),
            nodes=self._verify,
            sure=drafts.exact,
            stop_ids=o.stop_ids,
        )
        self._drafting = refining = Refining(drafts, refinement)
        self.checked = True
        self._show(refining.latest)

    def _show(self, drafts: Drafts) -> None:
        self.step = drafts.step
        self.done = drafts.done
        self.figures = drafts.figures
        self.settled = drafts.settled
        self.best = drafts.lineages[0] if drafts.lineages else None
        distinct = self._mode.name != "superposed" or self._options.get("distinct", True)
        rows = [
            # Only what is the draft's own is worth a reader's eye; the rest drifts into other drafts.
            TextDraft(
                lineage,
                self._text(ids[:own]),
                beginning,
                float(np.exp(logprob)),
                ended,
                self._spans(ids[:own], personal),
                self._how(ids, how),
            )
            for ids, own, logprob, beginning, lineage, ended, personal, how in zip(
                drafts.ids,
                self._own(drafts, distinct),
                drafts.logprobs,
                drafts.branches or drafts.beginnings,
                drafts.lineages,
                drafts.ended,
                drafts.personal,
                drafts.how or [[]] * len(drafts.ids),
                strict=True,
            )
        ]
        if distinct:
            rows = [self._with_earlier(row) for row in rows]
            rows.sort(key=lambda draft: draft.id)  # a draft stays where the eye found it
        else:
            # The paper's rule: finished drafts stand beside the living; several may share a lineage.
            rows += [
                TextDraft(0, self._text(ids), float(np.exp(p / len(ids))), float(np.exp(p)), True)
                for ids, p in drafts.finished
            ]
            rows.sort(key=lambda draft: -draft.whole)
            rows = [replace(row, id=i) for i, row in enumerate(rows)]
        if self.done and self._mode.name == "superposed" and distinct:
            rows = [self._rounded(row) for row in rows]
        seen: set[str] = set()
        self.drafts = []
        for row in rows:
            if row.text and row.text not in seen:
                seen.add(row.text)
                self.drafts.append(row)
        del self.drafts[self._mode.most(self._options.get("k", Options.k)) :]
        self._session.shown = {row.id: row for row in self.drafts}
        superposed = distinct and self._mode.name == "superposed" and not self._options.get("reset_every")
        if self.done and self._verify and superposed and drafts.ids and not self.checked:
            self._refine(drafts)
        elif self.done:
            self.close()

    def _rounded(self, row: TextDraft) -> TextDraft:
        """A whole draft that does not end in words like "and the"; a kept row is not cut into."""
        text = row.text if row.finished else without_dangling(row.text)
        kept = next((one.text for one in self._kept if one.id == row.id), "")
        if text == row.text or len(text) < len(kept):
            return row
        spans = tuple((a, min(b, len(text))) for a, b in row.personal if a < len(text))
        return replace(row, text=text, personal=spans)

    def _kept_rows(self, o: Options) -> list[Kept]:
        """The kept rows as tokens after the prefix; without those that cannot be continued as they stand."""
        try:
            typed = self._healing.rests[0].decode("utf-8")
        except UnicodeDecodeError:
            return []
        rows = []
        for row in self._kept:
            ids = self._autocomplete.model.tokenizer.encode(typed + row.text)
            left = len(ids) - len(self._healing.word_ids)
            if row.id < o.k and self._text(ids) == row.text:
                rows.append(Kept(row.id, ids, left < (o.length if self._grow else min(SHORT, o.length))))
        return rows

    def _with_earlier(self, row: TextDraft) -> TextDraft:
        """A kept row with what is known of its words since they were drafted."""
        kept = next((one for one in self._kept if one.id == row.id), None)
        earlier = self._earlier.get(row.id)
        if (
            kept is None
            or earlier is None
            or not row.text.startswith(kept.text)
            or not earlier.text.endswith(kept.text)
        ):
            return row
        gone = len(earlier.text) - len(kept.text)
        spans = tuple((max(a - gone, 0), b - gone) for a, b in earlier.personal if b > gone)
        since = tuple((a, b) for a, b in row.personal if a >= len(kept.text))
        return replace(row, personal=spans + since)

    def _own(self, drafts: Drafts, distinct: bool) -> list[int]:
        """How many tokens of each draft are shown. Drawn drafts end at words once they are done: their length is where
        they stop, not where anything ends."""
        own = drafts.own if distinct else [len(ids) for ids in drafts.ids]
        if not (self._mode.drawn and self.done):
            return own
        most = self._options["length"] - 1
        return [
            whole_words(lambda n, ids=ids: self._text(ids[:n]), len(ids), min(n, most))
            for ids, n in zip(drafts.ids, own, strict=True)
        ]

    def _spans(self, ids: list[int], personal: list[bool]) -> tuple[tuple[int, int], ...]:
        """Where in the draft's text the tokens stand that a personal store decided on; neighbours are joined."""
        spans: list[tuple[int, int]] = []
        for i in [i for i in range(len(ids)) if personal[i]]:
            start, end = len(self._text(ids[:i])), len(self._text(ids[: i + 1]))
            if start == end:
                continue  # nothing of it shows: typed already, or half a character
            if spans and spans[-1][1] == start:
                start = spans.pop()[0]
            spans.append((start, end))
        return tuple(spans)

    def _how(self, ids: list[int], how: list[tuple[str, float | None]]) -> tuple[Came, ...]:
        """Where in the draft's text each token stands, and how it came."""
        ends = [0, *(len(self._text(ids[: i + 1])) for i in range(len(how)))]
        return tuple((a, b, *came) for a, b, came in zip(ends, ends[1:], how, strict=False) if a < b)

    def _text(self, ids: list[int]) -> str:
        return shown(self._autocomplete.model.tokenizer, ids, self._healing.rests[0])


def load_autocomplete(
    model: str = "default",
    backend: Any = "auto",
    store: Path | None = BASE_STORE,
    personal: bool = True,
    precision: Any = "file",
    beside: bool = False,
) -> Autocomplete:
    """The model by name, with the base n-gram store where it belongs to the model's tokenizer.

    `backend` and `precision` are those of `load_model`. With `personal`, drafts use the user's personal stores that are
    on, too. With `beside`, drafts never wait for the counts of much personal text: a thread makes them (`Shelf`).

    Raises: what `load_model` raises. A store that cannot be used is a notice, not an error.
    """
    loaded = load_model(model, backend, precision)
    notices = [loaded.notice] if loaded.notice else []
    ngrams = None
    if store is not None:
        try:
            ngrams = NgramStore.open(store, fingerprint=loaded.tokenizer.fingerprint)
        except StoreError as error:
            notices.append(f"No n-grams: {error}")
    shelf = Shelf(loaded.tokenizer, beside=beside) if personal else None
    if shelf and beside:
        shelf.active()  # they begin to count
    return Autocomplete(loaded, ngrams, " ".join(notices) or None, shelf)
