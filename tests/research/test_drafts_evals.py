"""How evaluations choose places, make drafts by every method, and score them."""

from __future__ import annotations

import math
from pathlib import Path

import pytest

from core.autocomplete import Autocomplete
from core.errors import InputError
from core.ngram.shelf import interpolation
from research.evals import perplexity
from research.evals.drafts import telling
from research.evals.keytype import acceptable
from research.evals.methods import AS_SHIPPED, NUCLEUS_OF_TOP_K, methods
from research.places import LENGTH, places, texts
from research.scores import Score, half_interval, scored, summary
from tests.ngram_tools import WordTokenizer
from tests.table_model import FIRST, TableModel


@pytest.fixture(scope="module")
def autocomplete(tiny_autocomplete: Autocomplete) -> Autocomplete:
    """The product on llama.cpp, which has a limited number of sequences: a tiny model, base store."""
    return tiny_autocomplete


def test_the_best_draft_is_scored_and_a_summary_says_how_sure_it_is() -> None:
    score = scored(WordTokenizer(), "book", [[1, 9], [1, 2, 9], [1, 9]], [1, 2, 3], 4.0)
    assert (score.match, score.characters, score.ms) == (2, len("1 2") - 1, 4.0)
    assert score.tokens == pytest.approx((2 + 3 + 2) / 3)
    assert score.duplicates == pytest.approx(1 / 3)
    assert scored(WordTokenizer(), "book", [[9]], [1], 1.0).characters == 0
    found = summary([Score("a", n, n, 0.0, float(n)) for n in (0, 1, 2, 3)])
    assert (found["match"], found["exact_1"], found["exact_3"], found["exact_4"]) == (1.5, 0.75, 0.25, 0)
    assert found["match_ci"] == pytest.approx(1.96 * math.sqrt(5 / 3) / 2)
    assert math.isnan(half_interval([1.0]))


@pytest.mark.parametrize(
    ("shown", "good"),
    [
        ("will reply with", True),
        ("will reply with what the terminal", True),  # goes on where the acceptable text ends
        ("will rep", False),  # ends inside a word
        ("will reply,", True),  # closing punctuation aside
        ("  will   reply ", True),
        ("may reply", False),
        ("", False),
        ("(", False),
    ],
)
def test_keytype_accepts_what_its_rules_accept(shown: str, good: bool) -> None:
    assert acceptable(shown, ["will reply with what the"]) is good


def test_settings_are_chosen_on_documents_that_are_not_tested_on(tmp_path: Path) -> None:
    for kind in ("books", "docs"):
        for n in range(5):
            (tmp_path / f"{kind}-{n}.txt").write_text(f"{kind} {n}")
    every, tuned, tested = (texts(tmp_path, part) for part in ("all", "validation", "test"))
    for kind in ("books", "docs"):
        assert not set(tuned[kind]) & set(tested[kind])
        assert {*tuned[kind], *tested[kind]} == set(every[kind])
        assert len(tuned[kind]) >= 2
    with pytest.raises(InputError, match="part 'rest' given; one of all, validation, test expected"):
        texts(tmp_path, "rest")
    with pytest.raises(InputError, match="one document, which has no validation half"):
        texts(tmp_path / "books-0.txt", "validation")


def test_every_method_gives_k_drafts_and_leaves_the_cache_as_it_was(autocomplete: Autocomplete) -> None:
    model, base = autocomplete.model, autocomplete.ngrams
    prefix = model.tokenizer.encode("The captain looked at the")
    sequence = model.open()
    found = {}
    for method in methods(base, interpolation(base)):
        sequence.sync(prefix)
        drafts = found[method.name, method.ngrams] = method.draft(sequence, prefix, 3, 5)
        lengths = [len(ids) for ids in drafts]
        assert len(drafts) == (1 if method.single else 3) and max(lengths) <= 5
        assert method.name == AS_SHIPPED or set(lengths) == {5}, "only the app's drafts end early"
        assert sequence.inputs[: len(prefix)] == prefix
    for ngrams in (False, True):
        # The same definitions by another road: greedy is the first beginning's branch, and all branches are ours.
        assert found["greedy", ngrams][0] in found["branching greedy", ngrams]
        assert len({ids[0] for ids in found["branching greedy", ngrams]}) == 3
        assert len({tuple(ids) for ids in found["beam", ngrams]}) == 3
    sequence.close()
    for _ in range(3):  # all forks were given back
        model.open().close()


def test_stopping_drafts_that_can_tell_no_more_changes_no_matching_figure(autocomplete: Autocomplete) -> None:
    """Stopped and whole drafts of every method, from several places, against what really follows there."""
    model, base = autocomplete.model, autocomplete.ngrams
    found = places(model.tokenizer, texts(None), 1, 12)
    whole, stopped = (methods(base, interpolation(base)) for _ in range(2))  # sampling draws alike in both
    sequence = model.open()
    shorter = 0
    for place in found:
        for one, other in zip(whole, stopped, strict=True):
            sequence.sync(place.before)
            full = one.draft(sequence, place.before, 3, LENGTH)
            sequence.sync(place.before)
            part = other.draft(sequence, place.before, 3, LENGTH, telling(other, place.after))
            if one.name != NUCLEUS_OF_TOP_K:  # a stopped one draws less often, so later places see other numbers
                a, b = (scored(model.tokenizer, "", drafts, place.after, 0.0) for drafts in (full, part))
                assert (a.match, a.characters) == (b.match, b.characters), one.name
                assert all(any(ids[: len(p)] == p for p in part) for ids in full), one.name
            shorter += len(part[0]) < LENGTH
    sequence.close()
    assert shorter > len(found)


def test_a_judge_with_another_tokenizer_reads_the_text_anew_and_five_tokens_do_not_count(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Each word of the drafting model is two of the judge's: (w, w)."""
    model, judge = TableModel(vocabulary=6), TableModel(vocabulary=6, seed=1)
    before, ids = [0, 1, 2, 3], [4, 5]
    assert perplexity.judged(judge.open(), model, before, ids) == pytest.approx(
        perplexity.perplexity(judge.open(), before, ids)
    )
    judge = TableModel(vocabulary=6, seed=1)
    monkeypatch.setattr(judge.tokenizer, "pieces", [*judge.tokenizer.pieces, b"more"])
    monkeypatch.setattr(judge.tokenizer, "encode", lambda text: [ord(c) - FIRST for c in text for _ in (0, 1)])
    twice, p = [w for w in before + ids for _ in (0, 1)], 0.0
    for n in range(5, len(twice)):
        p += float(judge.open().feed(twice[:n]).double().log_softmax(0)[twice[n]]) / (len(twice) - 5)
    assert perplexity.judged(judge.open(), model, before, ids) == pytest.approx(math.exp(-p))
    with pytest.raises(InputError, match="--context 1 given"):
        perplexity.judged(judge.open(), model, [0], [1])
