"""Logits that are known are not computed again: the drafts are the same, in fewer passes."""

from __future__ import annotations

from contextlib import closing

import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from table_model import TableModel

from core.drafting.drafts import Kept, Options
from core.drafting.driver import Driven
from core.drafting.reuse import KnownLogits, reuse_logits
from core.superposed import superposed
from tests.completing import complete, completed


def drafted(sequence, prefix, options, known=None, kept=()):
    """The last drafts after a prefix, and how many passes they took."""
    logits = sequence.sync(prefix)

    def start(logits):
        drafting = superposed(logits, sequence, prefix, options, None, kept)
        return drafting if known is None else reuse_logits(drafting, known)

    driven, passes = Driven(start([logits])), 0
    while not driven.done:
        passes += 1
        driven.advance(sequence.model.forward(driven.rows()))
    assert sequence.inputs == prefix  # nothing stays behind
    return driven.latest, passes


@settings(max_examples=30)
@given(
    st.integers(0, 10**6),
    st.lists(st.integers(0, 5), min_size=2, max_size=8),
    st.integers(1, 4),
    st.integers(1, 6),
    st.integers(0, 4),
    st.integers(0, 6),
)
def test_the_drafts_are_those_of_fresh_passes_at_every_key(seed, typed, k, length, forks, exact_steps):
    model = TableModel(seed=seed)
    options = Options(k=k, length=length, forks=forks, exact_steps=exact_steps)
    known, session = KnownLogits(), model.open()
    for end in range(1, len(typed) + 1):
        mine, passes = drafted(session, typed[:end], options, known)
        fresh, all_passes = drafted(model.open(), typed[:end], options)
        assert (mine.ids, mine.logprobs) == (fresh.ids, fresh.logprobs)
        assert [draft.p_branch for draft in mine.drafts] == [draft.p_branch for draft in fresh.drafts]
        assert passes <= all_passes


def test_typing_along_a_draft_computes_only_what_is_new():
    model = TableModel()
    options, known, session = Options(k=3, length=6, exact_steps=5), KnownLogits(), model.open()
    first, all_passes = drafted(session, [0, 1], options, known)
    best = first.ids[0]
    again, none = drafted(session, [0, 1], options, known)
    assert (none, again.ids) == (0, first.ids)
    kept = [Kept(draft.slot, draft.ids[1:]) for draft in first.drafts if draft.ids[0] == best[0]]
    _, passes = drafted(session, [0, 1, best[0]], options, known, kept)
    assert passes < all_passes


def test_what_was_used_longest_ago_makes_room():
    known = KnownLogits(most=2 * 4 * 10)
    for token in (1, 2):
        known.keep((token,), torch.full((10,), float(token)))
    assert known.after((1,)) is not None
    known.keep((3,), torch.zeros(10))
    assert [known.after((token,)) is not None for token in (1, 2, 3)] == [True, False, True]


def test_another_rule_or_store_reads_the_same_logits(autocomplete):
    """The cache contains the model's own logits; settings are applied after it."""

    def texts(session, **options):
        found = complete(session, "Thank you for your", length=5, **options).finish()
        return [draft.text for draft in found.drafts]

    with closing(autocomplete.open()) as session:
        first = texts(session)
        for options in ({"k": 5}, {"alpha": 0.0}):
            fresh = completed(autocomplete, "Thank you for your", length=5, **options)
            assert texts(session, **options) == [draft.text for draft in fresh.drafts]
        assert texts(session) == first


def test_a_session_at_rest_frees_its_logits_and_keeps_its_text(autocomplete):
    session, model = autocomplete.open(), autocomplete.model

    def key(text):
        before = model.tokens_fed
        completion = complete(session, text)
        completion.finish()
        return [draft.text for draft in completion.drafts], model.tokens_fed - before, completion.fed

    drafts, *_ = key("Thank you for your")
    again, passed, _ = key("Thank you for your")
    session.rest()
    rested, computed, read = key("Thank you for your")
    assert drafts == again == rested
    assert passed < computed, "the drafts' logits are computed again"
    assert read == 0, "the text is in the cache"
    session.close()
