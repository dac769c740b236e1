"""Stores earn their weights in the text: who was right about the words that are already there weighs more."""

from __future__ import annotations

from math import log
from typing import Any

import numpy as np
import pytest

from core.ask import Ask
from core.autocomplete import Autocomplete
from core.completion import Completion
from core.ngram.counts import Counts
from core.ngram.earned import LEARNED, MOST, Earned
from core.ngram.interpolation import Linear
from core.ngram.shelf import interpolation
from core.session import Session
from tests.completing import complete
from tests.table_model import TableModel

V = 64
PHRASE = [5, 9, 12, 7, 3, 30]  # what the store has seen


def rule_of(*passages: list[int], personal: bool = False) -> Linear:
    store = Counts.of(V, [(ids, 1) for ids in passages])
    rule = interpolation(None, [store]) if personal else interpolation(store)
    assert isinstance(rule, Linear)
    return rule


def after(rule: Linear, text: list[int], p: float = 0.05, begins: int = 0) -> Linear:
    """The rule after a text to each token of which the model gives p."""
    earned = Earned()
    unread = earned.unread(text, begins)
    earned.read(unread, text[unread:], [log(p)] * (len(text) - unread))
    return earned.rule(rule, len(text))


def given(rule: Linear, context: list[int], token: int, p: float = 0.05) -> float:
    return float(np.exp(rule.scores(np.array([[log(p)]]), [context], [token])[0, 0]))


def test_a_store_that_was_right_weighs_more_and_one_that_was_wrong_less() -> None:
    rule = rule_of(*[PHRASE] * 9, [5, 9, 12, 8])
    right, wrong = PHRASE * 20, [5, 40, 9, 41, 12, 42, 7, 43] * 20
    plain = given(rule, right[:-3], PHRASE[3])
    assert given(after(rule, right[:-3]), right[:-3], PHRASE[3]) > plain > 0.05
    misled = given(after(rule, wrong), right[:-3], PHRASE[3])
    assert 0.05 < misled < plain
    for text in ([5], [50, 51, 52] * 20):  # too short, and known to no store
        assert given(after(rule, text), PHRASE[:3], PHRASE[3]) == given(rule, PHRASE[:3], PHRASE[3])


def test_the_tokens_before_the_document_teach_nothing() -> None:
    rule, text = rule_of(*[PHRASE] * 9), PHRASE * 20
    here = PHRASE[:3], PHRASE[3]
    assert given(after(rule, text, begins=len(text)), *here) == given(rule, *here)
    assert given(after(rule, text, begins=60), *here) < given(after(rule, text), *here)


def test_the_weights_depend_on_the_text_alone_however_it_was_written() -> None:
    chance = np.random.default_rng(0)
    text = [token for _ in range(220) for token in (PHRASE if chance.random() < 0.5 else chance.integers(V, size=4))]
    text = [int(token) for token in text]
    logp = [log(p) for p in chance.uniform(0.001, 0.9, len(text))]
    assert len(text) > 1.5 * LEARNED
    for personal in (False, True):
        rule = rule_of(*[PHRASE] * 9, text[100:300], personal=personal)

        def at_once(n: int, rule: Linear = rule) -> float:
            earned = Earned()
            unread = earned.unread(text[:n], 0)
            earned.read(unread, text[unread:n], logp[unread:n])
            return given(earned.rule(rule, n), PHRASE[:3], PHRASE[3])

        typed, n = Earned(), 0
        while n < len(text):  # typed in small parts, some of them cut back and typed again
            n = min(n + int(chance.integers(1, 9)), len(text))
            if chance.random() < 0.1:
                n = max(n - int(chance.integers(1, 12)), 2)
            unread = typed.unread(text[:n], 0)
            typed.read(unread, text[unread:n], logp[unread:n]) if unread < n else None
            found = given(typed.rule(rule, n), PHRASE[:3], PHRASE[3])
            if n % 23 == 0 or n > len(text) - 3:
                assert found == pytest.approx(at_once(n), rel=1e-9)


def test_at_most_the_last_tokens_of_a_long_text_are_read_for_it() -> None:
    text = [n % V for n in range(3 * LEARNED)]
    assert Earned().unread(text, 0) >= len(text) - LEARNED
    assert Earned().unread(text, 0) <= len(text) - LEARNED // 2
    assert Earned().unread(text[:50], 0) == 1  # nothing precedes the first
    assert Earned().unread(text[:50], 20) == 20
    assert Earned().unread(text[:1], 0) == 1


def test_a_personal_store_that_learned_this_very_text_earns_nothing_by_it() -> None:
    text = np.random.default_rng(1).integers(V, size=400).tolist()
    others = [[int(t) for t in np.random.default_rng(n).integers(V, size=200)] for n in range(2, 30)]
    fresh, learned = rule_of(*others, personal=True), rule_of(*others, text, personal=True)
    here = text[50:55], text[55]
    assert given(after(learned, text), *here) <= given(learned, *here) * 1.05
    assert given(after(fresh, text), *here) <= given(fresh, *here) * 1.05


def test_a_store_that_learns_is_heard_anew() -> None:
    store, text = Counts.of(V, [([*range(V)], 1)]), PHRASE * 20
    rule = interpolation(None, [store])
    assert isinstance(rule, Linear)
    earned = Earned()
    earned.read(earned.unread(text, 0), text[1:], [log(0.05)] * (len(text) - 1))
    before = given(earned.rule(rule, len(text)), PHRASE[:3], PHRASE[3])
    for _ in range(9):
        store.add(PHRASE)
    plain = given(rule, PHRASE[:3], PHRASE[3])
    assert given(earned.rule(rule, len(text)), PHRASE[:3], PHRASE[3]) > plain > before


def test_offsets_are_bounded_and_unlikely_words_break_nothing() -> None:
    rule = rule_of(*[PHRASE] * 9)
    for p in (1e-30, 1.0):
        found = after(rule, PHRASE * 80, p)
        assert np.isfinite(given(found, PHRASE[:3], PHRASE[3], 0.5))
    weight = (given(after(rule, PHRASE * 80, 1e-9), PHRASE[:3], PHRASE[3], 0.5) - 0.5) / 0.5
    assert weight < 1 / (1 + np.exp(-MOST))


def completed(session: Session, before: str, earned: bool = True, **options: object) -> Completion:
    settings = Ask(k=3, length=4, earned=earned, **options)  # pyright: ignore[reportArgumentType]
    return complete(session, before, settings).finish()


def scores(completion: Completion) -> list[float]:
    return [draft.probability for draft in completion.drafts]


TEXT = "".join("abcdefg" if n % 3 else "qrstuvwxyz"[n % 10 :] for n in range(40))


@pytest.fixture
def autocomplete() -> Autocomplete:
    """A model whose logits are exact however a text is fed, with a store."""
    model = TableModel(26, seed=3)
    store: Any = Counts.of(26, [(model.tokenizer.encode(f"abcdefg{letter}"), 3) for letter in "qrstabc"])
    return Autocomplete(model, store)


def test_drafts_after_a_text_that_was_typed_are_those_of_the_text_at_once(autocomplete: Autocomplete) -> None:
    typed, constant = autocomplete.open(), autocomplete.open()
    differed, fed = 0, [0, 0]
    for n in [*range(40, 66), 50, *range(48, 70, 7), len(TEXT) - 1, len(TEXT)]:
        found, expected = completed(typed, TEXT[:n]), completed(autocomplete.open(), TEXT[:n])
        assert [draft.p_joint for draft in found.drafts] == [draft.p_joint for draft in expected.drafts]
        assert scores(found) == pytest.approx(scores(expected), rel=1e-6)
        usual = completed(constant, TEXT[:n], earned=False)
        differed += scores(found) != pytest.approx(scores(usual), rel=1e-3)
        fed = [fed[0] + found.fed, fed[1] + usual.fed]
    assert differed > 20
    assert fed[0] <= fed[1] + 40, "what was fed is not fed again to learn from it"


def test_a_stopped_reading_goes_on_where_it_stopped_and_a_background_is_not_learned_from(
    autocomplete: Autocomplete,
) -> None:
    session = autocomplete.open()
    completion = complete(session, TEXT, k=3, length=4)
    for _ in range(3):
        completion.advance(autocomplete.model.forward(completion.rows()))
    completion.close()
    read = len(session.sequence.inputs)
    again = completed(session, TEXT)
    assert again.reused >= read - 1 > 30
    assert scores(again) == pytest.approx(scores(completed(autocomplete.open(), TEXT)), rel=1e-6)
    alone = completed(autocomplete.open(), "a", earned=False, background=TEXT)
    assert scores(completed(autocomplete.open(), "a", background=TEXT)) == pytest.approx(scores(alone), rel=1e-6)
