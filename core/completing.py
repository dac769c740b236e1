"""Makes the drafts for one text: a generator over passes.

    1. Read the text before the caret, up to a half-typed word, as far as the cache does not contain it.
    2. Read the half-typed word, if drafts may begin at a token boundary inside it.
    3. Draft, in one of the modes.
    4. Over complete drafts, one pass for the probability of the text after the caret, and one for the probabilities of
       the drafts' own tokens, where they are asked for.

As in every mode, `logits = yield rows, drafts`; `core.drafting.driver.Driven` runs it.
"""

from __future__ import annotations

from collections.abc import Generator
from collections.abc import Sequence as Ids
from dataclasses import replace
from typing import TypeVar

from torch import Tensor

from core.after import TextAfter
from core.ask import Ask
from core.completion import Completion
from core.drafting.candidates import log_total
from core.drafting.drafts import Drafts
from core.drafting.driver import Steps, finish
from core.drafting.record import Record
from core.drafting.stepping_back import Never
from core.explaining import Explaining, explain_cost
from core.healing import Healing, WordLogits
from core.kept import KeptText
from core.logprobs import LogprobsPass, ModelLogprobs
from core.models.base import Row, Sequence
from core.modes.start import start
from core.ngram.interpolation import Linear
from core.present import SHORT, Presentation, TextDraft, kept_rows, present
from core.text import following

PART = 32  # tokens of a pass that gives the probability of each: their logits are large

Result = TypeVar("Result")
Reading = Generator[tuple[list[Row], Completion], list[Tensor], Result]


def complete(text: KeptText, ask: Ask, options: Ask, healing: Healing, checks_tails: bool) -> Steps[Completion]:
    """Yields the rows of each pass with the drafts so far, and receives their logits. It may be closed between two
    passes; the cache then contains only the text.

    Args:
        ask: what the request asks.
        options: the same with the stores of this model, the tokens at which a draft stops, and one token more where it
            shows whether the last word is whole.
        healing: the half-typed word.
        checks_tails: whether one pass cuts drafts where they become implausible.
    """
    if ask.unasked and text.equipped.in_other_language(ask.before):
        cut, of_background = healing.skipped, text.background_skipped
        yield [], Completion([], done=True, foreign=True, skipped=cut, background_skipped=of_background)
        return
    steps = _Completing(text, ask, options, healing, checks_tails).steps()
    yield from steps if not ask.explain else explain_cost(steps, text.equipped)


class _Completing:
    """One request while its drafts are made; `now` is what is known of them."""

    def __init__(self, text: KeptText, ask: Ask, options: Ask, healing: Healing, checks_tails: bool) -> None:
        self.text, self.sequence, self.healer = text, text.sequence, text.equipped.healer
        self.ask, self.options, self.healing, self.checks_tails = ask, options, healing, checks_tails
        self.presentation = Presentation(self.healer.tokenizer, ask, healing.rests[0], tuple(text.shown))
        # Models that fill in the middle have read the text after the caret already.
        line = following(ask.after) if self.healer.fim is None else ""
        self.after = TextAfter(line, self.presentation, text.equipped.row_costs) if line else None
        self.corrects = ask.corrects and ask.keeps_rows and not following(ask.after)
        self.model_logprobs: ModelLogprobs = {}
        self.explaining: Explaining | None = None
        self.rows: tuple[Drafts | None, list[TextDraft]] = None, []  # the newest drafts, and their rows
        self.now = Completion(
            [],
            compared=self.after is None,
            exact_steps=options.exact_steps,
            skipped=healing.skipped,
            background_skipped=text.background_skipped,
        )

    def steps(self) -> Steps[Completion]:
        text, sequence, ask = self.text, self.sequence, self.ask
        fork: Sequence | None = None  # drafts grow in it while the sequence keeps the half-typed word
        try:
            if ask.mode.speculation is not None and ask.mode.speculation.by.drafter.layers:
                sequence.reveal()
            logits = yield from self._read_text()
            prefix, options = self.healing.prefix_ids, self.options
            if options.earned and isinstance(rule := options.interpolation(), Linear):
                options = replace(options, ngrams=text.earned.rule(rule, len(prefix)))
            if len(logits) == 1:
                logits = yield from self._read_word(logits[0], options)
            if len(logits) > 1:
                fork = sequence.fork()
            plain = boundaries = self.healer.boundaries(self.healing)
            self.now = replace(self.now, logits=logits, boundaries=plain, inside=bool(self.presentation.typed))
            if self.corrects:
                boundaries = self.healer.with_slips(self.healing, logits, options.interpolation(), ask.before)
                text.suspect = ask.before if boundaries.slips else ""

            drafts_in = fork or sequence
            short = options.length if options.grow else min(SHORT, options.length)
            kept = kept_rows(ask.kept, self.presentation, len(self.healing.word_ids), short) if ask.keeps_rows else ()
            verify = options.verify if ask.keeps_rows and not options.reset_every else 0
            same = self.presentation.say_the_same if options.merge_alike else None
            record = Record(len(prefix)) if ask.explain else None
            if record is not None:
                self.explaining = Explaining(record, self.presentation, {row.slot: row.ids for row in kept})
            begin = start(
                drafts_in,
                prefix,
                options,
                ask.mode,
                boundaries,
                kept,
                verify,
                self.checks_tails,
                text.known,
                same,
                record,
                self._never(),
            )
            if self.after is None and ask.likeliest is None:
                yield from self._present(begin(logits))
                return
            drafts = yield from self._present(finish(begin(logits)))
            if self.after is not None:
                yield from self._present(self.after(drafts, self._rows_of(drafts), drafts_in, logits[0]))
            if ask.likeliest is not None:
                drawn = (prefix, options) if ask.after_rule else None
                logprobs = LogprobsPass(self.presentation, ask.likeliest, plain, drawn)
                self.model_logprobs = yield from self._present(
                    logprobs(drafts, self._rows_of(drafts), drafts_in, logits)
                )
            yield [], self._update(drafts)
        finally:
            if fork is not None:
                fork.close()
            sequence.settle()

    def _read_text(self) -> Reading[list[Tensor]]:
        """Reads the text before the half-typed word. If this request is the first to read a word that is finished
        already, drafts may correct a slip in it, and then they begin before it. Returns the logits after the text, with
        those in the half-typed word if they are cached, or were read with it."""
        text, sequence, healing, earned = self.text, self.sequence, self.healing, self.options.earned
        prefix = healing.prefix_ids
        unread = text.earned.unread(prefix, healing.begins) if earned else sequence.common_prefix(prefix)
        word = None
        if self.corrects and unread < len(prefix):
            word = self.healer.finished_word(healing, self.ask.before)
        if word is not None:
            unread = min(unread, len(word.prefix_ids))
            if not earned and len(prefix) - unread >= PART:
                word = None  # it would take more passes
        if unread == len(prefix) and text.word_logits.match(healing, sequence):
            self.now = replace(self.now, reused=sequence.length)
            return text.word_logits.logits
        if unread < len(prefix) and (earned or word is not None):
            back = 0 if word is None else len(prefix) - len(word.prefix_ids)
            logits = yield from self._read_with_logprobs(prefix, unread, back)
            if word is None or not self._has_slips(word, logits):
                return logits[-1:]
            self.healing = word
            self.presentation = replace(self.presentation, typed=word.rests[0])
            return logits
        known = sequence.resume(prefix)
        self.now = replace(self.now, reused=sequence.length)
        if known is None:
            rest = prefix[sequence.length :]
            (known,) = yield [Row(sequence, rest)], self.now
            self._count(rest)
        return [known]

    def _never(self) -> Never:
        """What the drafts never contain, and how none of them begins."""
        ask, typed = self.ask, self.presentation.typed
        end = max(len(ask.before) - len(typed), 0)
        before = (ask.phrases.tail(ask.before[:end]) + ask.before[end:]).encode("utf-8", "replace")
        word = tuple(self.healing.word_ids)
        first = [
            (word[:n], token)
            for opened in ask.openings
            for n, rest in enumerate(self.healing.rests)
            for token in self.healer.tokens(rest + opened.encode())
        ]
        return Never(ask.phrases, before[: len(before) - len(typed)], typed, ask.openings, first)

    def _has_slips(self, word: Healing, logits: list[Tensor]) -> bool:
        return bool(self.healer.with_slips(word, logits, self.options.interpolation(), self.ask.before).slips)

    def _read_with_logprobs(self, prefix: list[int], unread: int, back: int) -> Reading[list[Tensor]]:
        """Reads the prefix from its token `unread` on, with the probability of each token, by which the stores earn
        their weights. Returns the logits (V,) before each of the last `back` tokens, which are among those read, and
        after the prefix."""
        sequence, logits = self.sequence, list[Tensor]()
        ahead = sequence.resume(prefix[:unread])
        self.now = replace(self.now, reused=sequence.length)
        if ahead is None and (before := prefix[sequence.length : unread - 1]):
            yield [Row(sequence, before, silent=True)], self.now
            self._count(before)
        while part := prefix[sequence.length :][:PART]:
            (after,) = yield [Row(sequence, part, every=True)], self.now
            self._count(part)
            new = [*after] if ahead is None else [ahead, *after]
            tokens = prefix[unread : sequence.length]
            if self.options.earned:
                self.text.earned.read(unread, tokens, _logprobs(new, tokens))
            unread, ahead = unread + len(tokens), after[-1].clone()
            logits = [*logits[:-1], *new[:-1], ahead][-back - 1 :]
        return logits

    def _read_word(self, known: Tensor, options: Ask) -> Reading[list[Tensor]]:
        """Reads the half-typed word after the logits before it, unless drafts begin there alone. Returns the logits at
        every boundary where they may begin."""
        text, healing, word = self.text, self.healing, list(self.healing.word_ids)
        if self.healer.certain(healing, known, options.interpolation()):
            return [known]
        (inside,) = yield [Row(self.sequence, word, every=True)], self.now
        self._count(word)
        logits = [known, *inside]
        if options.earned:
            text.earned.read(len(healing.prefix_ids), word, _logprobs(logits, word))
        text.word_logits = WordLogits(healing.prefix_ids, word, logits)
        return logits

    def _count(self, tokens: Ids[int]) -> None:
        self.now = replace(self.now, fed=self.now.fed + len(tokens))

    def _present(self, steps: Generator[tuple[list[Row], Drafts], list[Tensor], Result]) -> Reading[Result]:
        """Runs a generator of drafts, and yields what it yields with the drafts as rows."""
        try:
            rows, drafts = next(steps)
            while True:
                logits = yield rows, self._update(drafts)
                rows, drafts = steps.send(logits)
        except StopIteration as ended:
            return ended.value
        finally:
            steps.close()

    def _rows_of(self, drafts: Drafts) -> list[TextDraft]:
        """The rows of these drafts, which are made once."""
        if drafts is not self.rows[0]:
            self.rows = drafts, present(drafts, self.presentation)
        return self.rows[1]

    def _update(self, drafts: Drafts) -> Completion:
        """Updates and returns the state of the request with these drafts."""
        rows, withdrawn, best, compared = self._rows_of(drafts), list[TextDraft](), drafts.best, self.now.compared
        if drafts.done and (after := self.after) is not None:
            compared, rows = True, after.ranked(rows)
            if known := [(row.gain, -row.id) for row in rows if row.gain is not None]:
                best = -max(known)[1]
            if self.ask.unasked:
                rows = [row for row in rows if after.joins(row)]
            elif after.silent:
                withdrawn = [row for row in rows if row.id not in self.presentation.kept]
                rows = [row for row in rows if row.id in self.presentation.kept]
        if drafts.done and self.ask.avoid:
            rows = [row for row in rows if row.probability >= self.ask.min_branch]
        if self.model_logprobs:
            rows = [replace(row, model_logprobs=self.model_logprobs.get(row.ids, ())) for row in rows]
        if drafts.done and self.explaining is not None:
            rows, withdrawn = (self.explaining(each, drafts) for each in (rows, withdrawn))
        self.text.remember(self.ask.before, [*rows, *withdrawn], self.presentation.earlier)
        self.now = replace(
            self.now,
            drafts=rows,
            withdrawn=withdrawn,
            step=drafts.step,
            settled=drafts.settled,
            compared=compared,
            checked=drafts.checked,
            done=drafts.done,
            best=best,
            figures=drafts.figures,
        )
        return self.now


def _logprobs(logits: Ids[Tensor], tokens: Ids[int]) -> list[float]:
    """ln p of each token by the logits (V,) before it."""
    return [float(x[i]) - log_total(x.numpy(), 1.0) for x, i in zip(logits, tokens, strict=False)]
