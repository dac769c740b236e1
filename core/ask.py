"""What one request asks: a frozen value, made where the request enters and passed on unchanged."""

from __future__ import annotations

from collections.abc import Sequence as Ids
from dataclasses import dataclass, field
from functools import cached_property
from typing import ClassVar

from core.drafting.drafts import Options
from core.modes.start import Mode
from core.options import OPTIONS
from core.phrases import Phrases, compiled, opening


@dataclass(frozen=True)
class KeptRow:
    """A row that the page still shows.

    Attributes:
        id: its number.
        text: the part of its text that is not typed yet.
        chosen: whether the writer chose its beginning: it stays however improbable it is, and grows to the full length.
    """

    id: int
    text: str
    chosen: bool = False


@dataclass(frozen=True, kw_only=True)
class Ask(Options):
    """The text at the caret, what the client can do, and the options of drafting. A new flag is a field here, and the
    place that reads it; `app.service.requests.DraftRequest` has the same name where the page or a program may set it.

    Attributes:
        before: the text before the caret.
        after: the text after the caret. Drafts end where they begin to repeat it. When they are complete, `best` is
            the draft that raises its probability most; if all make it much less probable, there are no drafts
            (`core.after`).
        words: what stands between the two. The drafts are then what could stand there instead (`core.rewording`), and
            of the other fields `background` and `never` count. "": nothing; these are drafts after `before`.
        background: text that the model reads before the document and never shows: the mail that one answers, notes,
            names. Its end counts, up to half of the window.
        kept: rows of an earlier request that the page still shows and that agree with the text. They keep their
            numbers, and grow when they become short. The other rows are filled. For superposed drafts of distinct
            lineages; other modes make all rows anew.
        heal: whether drafts continue half-typed words.
        one_line: whether drafts stop at the end of the line.
        mode: how drafts are made; see `core.modes.start`.
        ngrams: replaces the stores; None for the base store and the personal stores, or, with mixing="geometric", the
            base store alone.
        alpha, personal_weight, stores, base_stores: of the base stores and the personal stores; see
            `Autocomplete.mixture`.
        verify: the number of tokens of complete superposed drafts that one more pass checks, the most probable
            first. A draft is corrected at its first wrong token and continued from there in its place. 0: none.
        grow: whether every row grows to the full length, past the places where it would otherwise end.
        tails: whether the ends of superposed drafts shall hold, for drafts that are not made at every key: each has a
            row of its own where rows are cheap. Elsewhere as many exact steps as fit, at least `exact_steps`, and one
            pass that cuts a draft where it becomes implausible; `verify` replaces that pass. False: `exact_steps`.
        unasked: whether the writer has not requested the drafts: then fewer are shown where they would disturb. Where
            a paragraph begins, only drafts in the document's form (`core.forms`); where text follows on the line, only
            drafts that join it, each up to the next punctuation. In a text in a language that the model does not write
            (`core.language`), none.
        earned: whether the stores earn their weights in the text before the caret (`core.ngram.earned`). Those in
            `ngrams` keep theirs, as do all of them in a prompt that fills in the middle.
        corrects: whether rows may correct a slip of the finger in the half-typed word (`core.slips`). They have
            `TextDraft.replace`; for superposed drafts of distinct lineages without text after the caret on the line.
        merge_alike: whether rows count as one that differ only in case, number or spelling, or in less than a third of
            their letters (`core.text`).
        scores: whether the text itself is scored: the only draft is then the text `before`, or that of `ids`, with
            `likeliest` for each of its tokens (`core.scoring`). No other field counts.
        ids: the tokens of a text that is scored, if they are given instead of it.
        likeliest: the number of most probable tokens in each of `TextDraft.model_logprobs`, which one more pass of the
            model alone computes. None: no such pass.
        after_rule: whether these are the probabilities after rule and temperature, of sampled drafts.
        explain: whether `TextDraft.made` shall say of each token how it was made, and `Completion.explained` what that
            took.
        never: the phrases that no row contains; see `core.phrases`.
        token_bias: tokens, or texts for their tokens, each with the number that is added to their logits; with
            `core.phrases.BANNED` or less a token is in no draft.
        avoid: rows that were shown for this text: no draft begins with the first word of one. A draft that is less
            probable than `min_branch` is left out, too, even if it is the only one.
        without_slurs: whether rows that appear unasked contain none of the slurs that come with the app either.
        no_slurs: whether no row contains one of them, for programs in which rows appear by themselves.
        repeats: whether sampled drafts without text, and those with the text of another, are kept.
        stop_ids: replace those that `one_line` selects.
    """

    READERS: ClassVar[tuple[str, ...]] = ("drafting", "session")

    before: str = ""
    after: str = ""
    words: str = ""
    background: str = ""
    kept: Ids[KeptRow] = ()
    heal: bool = True
    one_line: bool = True
    mode: Mode = field(default_factory=Mode)
    stores: list[str] | None = None
    base_stores: Ids[str] = ()
    grow: bool = False
    tails: bool = False
    unasked: bool = False
    earned: bool = True
    corrects: bool = False
    merge_alike: bool = False
    scores: bool = False
    ids: Ids[int] = ()
    likeliest: int | None = None
    after_rule: bool = False
    explain: bool = False
    never: Ids[str] = ()
    token_bias: Ids[tuple[int | str, float]] = ()
    avoid: Ids[str] = ()
    no_slurs: bool = False
    repeats: bool = False

    @cached_property
    def phrases(self) -> Phrases:
        """The phrases that no row contains, compiled."""
        return compiled(tuple(self.never), slurs=self.no_slurs or (self.unasked and self.without_slurs))

    @cached_property
    def openings(self) -> frozenset[str]:
        """The openings of the rows to avoid."""
        return frozenset(filter(None, map(opening, self.avoid)))

    @cached_property
    def plain(self) -> bool:
        """Whether the drafts are superposed on the text itself."""
        return self.mode.name == "superposed"

    @cached_property
    def in_slots(self) -> bool:
        """Whether each draft stays in its slot. False: the paper's rule, which sorts drafts by score."""
        return not self.plain or self.distinct

    @cached_property
    def keeps_rows(self) -> bool:
        """Whether rows of an earlier request keep their slots."""
        return self.plain and self.distinct


# The names of the options that a session reads, and a person chooses.
READ = tuple(name for name, control in OPTIONS.items() if control.reader in Ask.READERS)
