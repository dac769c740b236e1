"""One text that is being typed."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from core.ask import Ask
from core.completing import complete
from core.completion import Completion
from core.composed import Composer, decomposed, is_decomposed
from core.drafting.biased import bias_of
from core.drafting.driver import Driven, Steps, finish
from core.drafting.reuse import KnownLogits
from core.drafting.tails import choose_tails
from core.equipped import EquippedModel
from core.fim import AcrossPrompt
from core.kept import KeptText
from core.models import Sequence, Tokenizer
from core.ngram.interpolation import Linear
from core.ngram.shelf import ALPHA
from core.rewording import reworded
from core.scoring import scored

BACKGROUND = 32  # characters of a background's end that are encoded for each token that is read


class Session(KeptText):
    """One text that is being typed. `core.completing` makes the drafts of its requests, one request at a time."""

    def __init__(self, equipped: EquippedModel, sequence: Sequence | None = None) -> None:
        super().__init__(equipped, sequence)
        self._composer = Composer()
        self._background: tuple[str, list[int]] = "", []  # its text, and its tokens

    def complete(self, ask: Ask) -> Driven[Completion]:
        """Begins the drafts of a request. Those of the session's previous request must be closed.

        Raises: InputError for a weight out of range, for a bias of no token, and for words or a text that
            `core.rewording` and `core.scoring` cannot take; StoreError for a named store that cannot be used.
        """
        if ask.scores:
            return Driven(scored(self, ask))
        as_decomposed = is_decomposed(ask.before)
        ask = self._composer.composed(ask)
        if ask.words:
            background = self._background_ids(ask.background)
            steps = reworded(self, ask, background)
            return Driven(_decomposed(steps) if as_decomposed else steps)
        if ask.phrases and any(gone := [ask.phrases.within(row.text, ask.before) for row in ask.kept]):
            ask = replace(ask, kept=[row for row, goes in zip(ask.kept, gone, strict=True) if not goes])
        a, changes = self.equipped, dict[str, Any]()
        if ask.ngrams is None and ask.mixing == "geometric":
            changes["ngrams"] = a.base_stores_with(ask.base_stores) or None
        elif ask.ngrams is None:
            alpha = ALPHA if ask.alpha is None else ask.alpha
            changes["ngrams"] = a.mixture(alpha, ask.personal_weight, ask.stores, ask.base_stores)
            changes["alpha"] = None  # the mixture contains it
        if ask.stop_ids is None:
            changes["stop_ids"] = a.healer.line_ends if ask.one_line else a.model.tokenizer.eos_ids
        changes["bias"] = bias_of(ask.token_bias, a.model.tokenizer) if ask.token_bias else None
        changes["barred"] = a.barred.of(ask.before + ask.after)
        if ask.grow:
            changes["end_below"] = 0.0
        # A further token shows whether the last word is whole. It would change the best of several texts, and resets.
        ahead = ask.mode.drawn or (ask.mode.name != "beam" and ask.distinct and not ask.reset_every)
        changes["length"] = length = ask.length + ahead
        checks_tails = False
        if ask.tails and ask.keeps_rows and not ask.reset_every:
            chosen = choose_tails(a.row_costs, ask.k, length, ask.exact_steps, ask.forks)
            changes["exact_steps"], checks_tails = chosen.exact_steps, chosen.checked
        finished = ask.corrects and bool(self.suspect) and ask.before == self.suspect.rstrip(" ") + " "
        read = self._background_ids(ask.background)
        plan = {"window": a.window, "heal": ask.heal, "after": ask.after, "background": read, "finished": finished}
        healing = a.healer.plan(ask.before, **plan)
        across = healing.prefix_ids != healing.before_ids
        changes["earned"] = ask.earned and not across and isinstance(changes.get("ngrams"), Linear)
        options = replace(ask, **changes)
        if across and (ngrams := options.interpolation()) is not None:
            options = replace(options, ngrams=AcrossPrompt(ngrams, len(healing.prefix_ids), healing.before_ids))
        steps = complete(self, ask, options, healing, checks_tails)
        return Driven(_decomposed(steps) if as_decomposed else steps)

    def _background_ids(self, text: str) -> list[int]:
        """The tokens of a background and of the empty line after it, from its end as many as half of the window: the
        same ones at every key, because they are encoded apart from the text."""
        most, text = self.equipped.window // 2, text.rstrip()
        if text != self._background[0]:
            end = text[-most * BACKGROUND :]  # no need to encode a whole book
            tokenizer = self.equipped.model.tokenizer
            read = background_ids(tokenizer, end)[-most:]
            self._background = text, read
            whole = len(read) < most and end == text
            self.background_skipped = 0 if whole else max(len(text) - len(tokenizer.decode(read).rstrip()), 0)
        return self._background[1]

    def rest(self) -> None:
        """Frees the cached logits, which only the next few keys can use. The text stays in the model's cache."""
        self.known = KnownLogits()
        self.sequence.forget_logits()

    def fork(self) -> Session:
        """Returns another session with the same text, also while drafts are made. Raises ContextFull."""
        session = Session(self.equipped, self.sequence.fork())
        session.earned = self.earned.copy()
        return session

    def close(self) -> None:
        self.sequence.close()


def _decomposed(steps: Steps[Completion]) -> Steps[Completion]:
    """The same steps, with decomposed letters in the drafts."""
    last = yield from finish(steps, decomposed)
    yield [], decomposed(last)


def background_ids(tokenizer: Tokenizer, text: str) -> list[int]:
    """Returns the tokens of a background and of the empty line after it, as they are where a word follows."""
    return tokenizer.encode_to_go_on(f"{text}\n\n")[0] if text else []
