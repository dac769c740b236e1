"""Text in, drafts out: healing, whole characters, and what the cache saves, on the model as shipped."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from app.options.settings import DraftSettings, drafting
from core.ask import KeptRow
from core.healing import Healer
from core.modes.start import Mode
from core.text import ShownText, without_dangling
from tests.completing import complete, completed


def run(autocomplete, session, text, kept=(), **options):
    return complete(session, text, kept=kept, **options).finish()


@pytest.mark.parametrize(
    ("typed", "rest"),
    [("The weather is beauti", "ful"), ("The United Sta", "tes"), ("It was once part of Czechoslov", "ak")],
)
def test_half_a_word_is_finished(autocomplete, session, typed, rest):
    drafts = run(autocomplete, session, typed).drafts
    assert any(draft.text.startswith(rest) for draft in drafts), [draft.text for draft in drafts]


def test_without_healing_the_last_token_stays(autocomplete, session):
    assert run(autocomplete, session, "I am writ").inside
    assert not run(autocomplete, session, "I am writ", heal=False).inside


def test_a_word_that_may_be_complete_goes_on_or_ends(autocomplete, session):
    texts = [draft.text for draft in run(autocomplete, session, "She laughed because we live", k=5).drafts]
    assert any(text.startswith(" ") for text in texts), texts
    assert any(text[0].isalpha() for text in texts), texts


def test_drafts_stand_in_the_order_of_their_beginnings_and_stay_there(autocomplete, session):
    completion = complete(session, "The meeting was moved to", k=5, forks=0)
    order = []
    while not completion.done:
        completion.advance(autocomplete.model.forward(completion.rows()))
        if completion.drafts:
            order.append([draft.id for draft in completion.drafts])
            chances = [draft.probability for draft in completion.drafts]
            assert chances == sorted(chances, reverse=True)
    assert all(ids == order[0] for ids in order)


def test_the_drafts_of_a_word_begin_differently_and_add_up(autocomplete, session):
    for typed in ("The sounds of Soun", "Mr. Schwarzeneg", "She liked photosynthes", "because we live", "it's"):
        completion = complete(session, typed, k=9)
        while not completion.drafts and not completion.done:
            completion.advance(autocomplete.model.forward(completion.rows()))
        texts = [draft.text for draft in completion.drafts]
        assert len(set(texts)) == len(texts) > 1
        assert sum(draft.probability for draft in completion.drafts) <= 1 + 1e-6
        completion.close()


def test_typing_inside_a_word_feeds_nothing_again(autocomplete, session):
    run(autocomplete, session, "The weather today is b")
    completion = complete(session, "The weather today is bea")
    assert completion.next_logits is not None, "the first tokens are known without a pass"
    assert completion.fed == 0
    completion.close()


def test_other_settings_at_a_word_s_end_need_no_pass_for_the_first_drafts(autocomplete):
    a = autocomplete
    session, fresh = a.open(), a.open()
    text = "She laughed because we live"
    first = run(a, session, text)  # may be a whole word: a pass computed the logits at its token boundaries
    assert first.fed > 0
    assert session.word_logits.word_ids
    options = {"mode": Mode("sampled"), "rule": a.sampler("top-k", {"top_k": 3})}
    other = run(a, fresh, text, **options)
    for _ in range(2):
        fed = a.model.tokens_fed
        again = complete(session, text, **options)
        assert (again.fed, a.model.tokens_fed) == (0, fed)
        assert again.next_logits is not None
        assert torch.equal(again.next_logits, first.next_logits)
        again.finish()
        assert again.drafts[0].text == other.drafts[0].text
    assert run(a, session, text + "d").reused >= 4  # the typed letters are still in the cache
    session.close()
    fresh.close()


def test_one_more_word_feeds_only_that_word(autocomplete, session):
    run(autocomplete, session, "It was a bright cold day in April, and the clocks were")
    completion = run(autocomplete, session, "It was a bright cold day in April, and the clocks were striking")
    assert completion.fed <= 2
    assert completion.reused >= 11


def test_stopping_at_any_pass_leaves_a_usable_cache(autocomplete):
    text = "We went down to the harb"
    wanted = [d.text for d in completed(autocomplete, text).drafts]
    session = autocomplete.open()
    for passes in range(6):
        completion = complete(session, text)
        for _ in range(passes):
            if not completion.done:
                completion.advance(autocomplete.model.forward(completion.rows()))
        completion.close()
        assert None not in session.sequence.inputs
    assert run(autocomplete, session, text).drafts[0].text.split()[0] == wanted[0].split()[0]
    session.close()


def test_a_long_text_is_cut_where_typing_does_not_move_the_cut(autocomplete):
    text = "One two three four five six seven. " * 300
    healer, window = autocomplete.healer, autocomplete.window
    plans = [healer.plan(text + "and so it goes on"[:n], window=window).prefix_ids for n in range(17)]
    assert all(window // 2 <= len(plan) <= window for plan in plans)
    for a, b in itertools.pairwise(plans):
        assert b[: window // 2] == a[: window // 2]


TEXTS = [
    "",
    " ",
    "\n\n",
    "a\x00b",
    "\udc80",
    "مرحبا بال",
    "शुभ प्रभ",
    "こんにちは、私",
    "I ❤",
    "👩‍👩‍",
    "🇩",
    "don'",
    "x = [1, 2,",
    "é" * 400,
]


@settings(max_examples=15)
@given(st.one_of(st.sampled_from(TEXTS), st.text(max_size=30)))
def test_drafts_are_whole_text_whatever_is_typed(tiny_autocomplete, text):
    drafts = completed(tiny_autocomplete, text, length=4).drafts
    assert len({draft.text for draft in drafts}) == len(drafts)
    for draft in drafts:
        assert draft.text
        assert "\ufffd" not in draft.text and "\n" not in draft.text and "\x00" not in draft.text
        draft.text.encode("utf-8")
        assert not draft.text.endswith("\u200d")
        assert 0 <= draft.probability <= 1 + 1e-6


@settings(max_examples=100)
@given(st.text(max_size=20), st.integers(0, 40))
def test_a_cut_inside_a_character_shows_no_part_of_it(autocomplete, text, cut):
    """Any tokens, cut anywhere: the visible text is a beginning of their text."""
    tokenizer = autocomplete.model.tokenizer
    ids = tokenizer.encode(text)[:cut]
    whole = b"".join(tokenizer.pieces[i] for i in ids).decode("utf-8", errors="ignore")
    assert whole.startswith(shown(tokenizer, ids)) or "\ufffd" in whole


def shown(tokenizer: Any, ids: list[int], typed: bytes = b"", lines: bool = False) -> str:
    return ShownText(tokenizer, lines)(ids, typed)[0]


@settings(max_examples=200)
@given(
    st.text(st.sampled_from("ab é\n日🇩🇪👩\u200d👧\u0301\ufe0f\ufffd\x00"), max_size=16),
    st.integers(0, 40),
    st.integers(0, 3),
    st.booleans(),
)
def test_the_ends_of_a_drafts_tokens_are_those_of_its_beginnings(autocomplete, text, cut, typed, lines):
    tokenizer = autocomplete.model.tokenizer
    ids, begun = tokenizer.encode(text)[:cut], text.encode()[:typed]
    texts = [shown(tokenizer, ids[:n], begun, lines) for n in range(len(ids) + 1)]
    grown = ShownText(tokenizer, lines)
    for n in (*range(len(ids) + 1), len(ids) // 2):  # token by token, and back
        assert grown(ids[:n], begun) == (texts[n], [len(text) for text in texts[: n + 1]])


def test_unfinished_emoji_are_held_back(autocomplete):
    tokenizer = autocomplete.model.tokenizer
    for text, whole in (("ok 👩‍👩‍👧", {"ok 👩", "ok 👩‍👩", "ok 👩‍👩‍👧"}), ("a 🇩🇪", {"a 🇩🇪"})):
        ids = tokenizer.encode(text)
        seen = {shown(tokenizer, ids[:n]) for n in range(len(ids) + 1)}
        assert text in seen <= {text[:n] for n in range(4)} | whole


@settings(max_examples=40)
@given(st.text(alphabet="abc é日ß", min_size=1, max_size=6))
def test_beginnings_are_exactly_the_tokens_that_go_on(autocomplete, rest):
    healer: Healer = autocomplete.healer
    pieces = autocomplete.model.tokenizer.pieces
    data = rest.encode()
    wanted = {
        i
        for i, piece in enumerate(pieces)
        if piece.startswith(data)
        and piece != data
        and i not in healer.line_ends
        and i not in autocomplete.model.tokenizer.special_ids
    }
    assert set(healer.beginnings(data).tolist()) == wanted


@pytest.mark.parametrize(
    ("draft", "kept"),
    [
        (" the end of the", " the end"),
        (" writing and the", " writing"),
        (" of the", " of the"),  # there is nothing else
        (" it is over.", " it is over."),
        ("", ""),
    ],
)
def test_a_draft_does_not_end_in_words_that_ask_for_more(draft, kept):
    assert without_dangling(draft) == kept


def test_three_drafts_of_a_sure_word_part_after_it(autocomplete, session):
    drafts = run(autocomplete, session, "I am writ", forks=3, exact_steps=2).drafts
    assert sum(draft.text.startswith("ing") for draft in drafts) >= 2, [draft.text for draft in drafts]
    assert sum(draft.probability for draft in drafts) <= 1 + 1e-6
    distinct = run(autocomplete, session, "I am writ", forks=0, exact_steps=2).drafts
    assert sum(draft.text.startswith("ing") for draft in distinct) == 1


def test_rows_grow_to_the_full_length_on_request(autocomplete, session):
    options = {"forks": 3, "exact_steps": 2, "end_below": 0.3}
    before = run(autocomplete, session, "The weather is", length=8, **options).drafts
    kept = [KeptRow(d.id, d.text) for d in before]
    options |= {"grow": True, "exact_steps": 19}
    after = {d.id: d for d in run(autocomplete, session, "The weather is", kept=kept, length=20, **options).drafts}
    assert all(after[row.id].text.startswith(row.text) for row in kept)
    tokens = [len(autocomplete.model.tokenizer.encode(d.text)) for d in after.values() if not d.finished]
    assert all(n >= 15 for n in tokens), tokens


def test_kept_rows_have_the_probability_of_their_own_branch(autocomplete):
    """Rows that branch beyond the tokens of the new request's passes: their probability is not that of their common
    part."""
    a, options = autocomplete, {"k": 3, "forks": 3, "exact_steps": 2, "end_below": 0.3, "min_branch": 0.01}
    before = (
        "Dear Ms. Alvarez,\n\nThank you for your letter of 3 May. We have read it with great interest, and I am wri"
    )
    session = a.open()
    rows = run(a, session, before, **options).drafts
    kept = [KeptRow(row.id, row.text[1:]) for row in rows if row.text.startswith("t")]
    again = run(a, session, before + "t", kept=kept, **options).drafts
    session.close()
    assert [row.id for row in again] == [row.id for row in rows]
    assert sum(row.probability for row in again) <= 1.001
    for row, earlier in zip(again, rows, strict=True):
        assert row.probability == pytest.approx(earlier.probability, rel=0.2)


def test_the_best_draft_is_the_same_for_any_number_of_drafts(autocomplete):
    best = []
    for k in (1, 3, 9):
        found = completed(autocomplete, "Dear Anna,\n\nThank you for ", drafting(DraftSettings(k=k)))
        best += [(draft.ids, draft.text) for draft in found.drafts if draft.id == found.best]
    assert best == [best[0]] * 3


def test_no_row_is_only_the_beginning_of_another(autocomplete):
    """A row that ended where the text was unsure goes on, in its place, once a path that continues it is chosen."""
    a, options = autocomplete, {"k": 3, "forks": 3, "exact_steps": 2, "end_below": 0.3, "min_branch": 0.01}
    before = "Dear Ms. Alvarez,\n\nThank you for your letter of 3 May. We have read it with great interest, and I am w"
    session = a.open()
    rows = run(a, session, before, **options).drafts
    (alone,) = (row for row in rows if row.text.startswith("r"))
    kept = [KeptRow(alone.id, alone.text[1:])]
    after = run(a, session, before + "r", kept=kept, **options).drafts
    session.close()
    assert len(after) == 3
    assert next(row for row in after if row.id == alone.id).text.startswith(kept[0].text)
    assert not any(one is not other and other.text.startswith(one.text) for one in after for other in after)
