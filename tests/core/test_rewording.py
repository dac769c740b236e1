"""What else could stand in place of words: the same as by trying all words of a small vocabulary."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch

from core import rewording
from core.ask import Ask
from core.autocomplete import Autocomplete
from core.completion import Completion
from core.drafting.driver import Driven
from core.errors import InputError
from core.ngram.store import Evidence
from core.rewording import Alternative, alternatives
from core.session import Session
from tests.completing import complete
from tests.table_model import Letters, TableModel, words

PIECES = (b" ca", b" dog", b" s", b"t", b"r", b"s", b".", b",", b"\n", b" ")
BEFORE = " dogs. "


class Pieces(Letters):
    """Words of several tokens, each with one division into tokens."""

    def __init__(self) -> None:
        super().__init__(0)
        self.pieces = [*PIECES]

    def encode(self, text: str) -> list[int]:
        ids, left = list[int](), text.encode()
        while left:
            piece = max((piece for piece in PIECES if left.startswith(piece)), key=len, default=left[:1])
            ids += [PIECES.index(piece)] if piece in PIECES else []
            left = left[len(piece) :]
        return ids

    def encode_to_go_on(self, text: str) -> tuple[list[int], bytes]:
        """Every word has its space."""
        return self.encode(text), b" " * text.endswith(" ")


@pytest.fixture
def model() -> TableModel:
    made = TableModel(vocabulary=len(PIECES), seed=5)
    made.tokenizer = Pieces()
    return made


@pytest.fixture
def session(model: TableModel) -> Iterator[Session]:
    made = Autocomplete(model).open()
    yield made
    made.close()


def found(session: Session, before: str, after: str, count: int = 1, present: str = "") -> list[Alternative]:
    """Runs the passes of `alternatives`."""
    result: list[Alternative] = []

    def steps() -> Iterator[object]:
        result.extend((yield from alternatives(session, before, after, count, present)))
        yield [], Completion([])

    Driven(steps()).finish(session.equipped.model)  # pyright: ignore[reportArgumentType]
    return result


def logprob(model: TableModel, prefix: list[int], text: str) -> float:
    """ln P of a text after a prefix, token by token."""
    ids = [*prefix, *model.tokenizer.encode(text)]
    return sum(float(torch.log_softmax(model.after(ids[:n]), 0)[ids[n]]) for n in range(len(prefix), len(ids)))


def ends(model: TableModel, prefix: list[int], text: str) -> float:
    """ln P that a word ends after a text."""
    after = torch.softmax(model.after([*prefix, *model.tokenizer.encode(text)]), 0)
    return math.log(1 - float(after[[PIECES.index(piece) for piece in (b"t", b"r", b"s")]].sum()))


def every_word(tokens: int) -> list[str]:
    more = [b"".join(some) for n in range(tokens) for some in itertools.product((b"t", b"r", b"s"), repeat=n)]
    return [(first + rest).decode() for first in PIECES[:3] for rest in more]


@pytest.mark.parametrize("after", [" dog.", ", dogs", "\n ca", "", "  \n"])
def test_the_likeliest_of_all_words_by_what_precedes_and_by_what_follows(
    model: TableModel, session: Session, after: str
) -> None:
    prefix = session.equipped.healer.plan(BEFORE, window=session.equipped.window).prefix_ids
    follows = (lambda word: logprob(model, prefix, word + after)) if after.strip() else None
    scores = {
        word.strip(): follows(word) if follows else logprob(model, prefix, word) + ends(model, prefix, word)
        for word in every_word(rewording.TOKENS)
    }
    best = sorted(scores, key=lambda word: -scores[word])[: rewording.OFFERED]
    offered = found(session, BEFORE, after)
    assert [each.text for each in offered[: rewording.OFFERED]] == best
    mass = math.fsum(map(math.exp, scores.values()))
    for each in offered[: rewording.OFFERED]:  # what the words have that were not scored is estimated
        assert each.chance == pytest.approx(math.exp(scores[each.text]) / mass, rel=0.15)
    for one, other in itertools.pairwise(offered):
        assert one.chance / other.chance == pytest.approx(math.exp(scores[one.text] - scores[other.text]), rel=1e-4)
    for each in offered:
        alone = logprob(model, prefix, f" {each.text}") + ends(model, prefix, f" {each.text}")
        assert each.logprob == pytest.approx(alone, abs=1e-4)


def test_a_model_without_trees_finds_the_same(
    model: TableModel, session: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    expected = found(session, BEFORE, " dog.", 2)
    monkeypatch.setattr(model, "takes_trees", False)
    assert found(session, BEFORE, " dog.", 2) == expected
    monkeypatch.setattr(model, "takes_trees", True)
    monkeypatch.setattr(rewording, "INPUTS", 2)  # a pass for each path
    assert found(session, BEFORE, " dog.", 2) == expected


def test_a_selection_is_replaced_by_as_many_words_or_one_fewer_and_what_stands_there_is_among_them(
    session: Session,
) -> None:
    offered = found(session, BEFORE, ".", 3, "ca dogs t")
    assert {len(each.text.split()) for each in offered} == {2, 3}
    assert "ca dogs t" in {each.text for each in offered}
    assert 0 < math.fsum(each.chance for each in offered) < 1
    assert [each.chance for each in offered] == sorted((each.chance for each in offered), reverse=True)


def test_a_request_gives_the_present_words_the_number_0_and_the_cache_stays_as_it_was(session: Session) -> None:
    drafts = complete(session, BEFORE, k=2, length=3).finish().drafts
    done = session.complete(Ask(before=BEFORE, words="cat", after=" dog.")).finish(session.equipped.model)
    assert done.done
    assert [draft.id for draft in done.drafts] == list(range(rewording.OFFERED + 1))
    assert done.drafts[0].text == "cat"
    assert "cat" not in {draft.text for draft in done.drafts[1:]}
    again = complete(session, BEFORE, k=2, length=3).finish()
    assert again.drafts == drafts
    assert again.fed <= 1


def test_words_that_are_never_suggested_make_room_for_others(session: Session) -> None:
    def offered(never: list[str]) -> list[str]:
        ask = Ask(before=BEFORE, words="cat", after=" dog.", never=never)
        return [draft.text for draft in session.complete(ask).finish(session.equipped.model).drafts]

    here, a, b, c, *others = offered([])
    less = offered([a, f"dogs. {c}", here])
    assert less[: 2 + len(others)] == [here, b, *others]
    assert len(less) == len([here, a, b, c, *others])


def test_in_a_script_without_spaces_each_token_is_a_word() -> None:
    model = TableModel(vocabulary=6, seed=1)
    session = Autocomplete(model).open()
    before, after = words("abc"), words("de")
    prefix = session.equipped.healer.plan(before, window=session.equipped.window, heal=False).prefix_ids
    scores = {word: logprob(model, prefix, word + after) for word in map(words, "abcdef")}
    offered = found(session, before, after)
    assert [each.text for each in offered] == sorted(scores, key=lambda word: -scores[word])


def test_no_word_and_too_many_words_are_refused_with_a_sentence(session: Session) -> None:
    for given, sentence in ((" — ", "There is no word"), ("a b c d e f g h i", "9 words given; at most 8")):
        with pytest.raises(InputError, match=sentence):
            session.complete(Ask(before=BEFORE, words=given))


def test_words_of_the_text_itself_are_found_however_unlikely_the_model_thinks_them(
    model: TableModel, session: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rewording, "FIRST", 1)
    monkeypatch.setattr(rewording, "WIDTH", 1)
    before = " catrs, dogtt. "
    prefix = session.equipped.healer.plan(before, window=session.equipped.window).prefix_ids
    offered = {each.text: each.logprob for each in found(session, before, " strt.")}
    assert {"catrs", "dogtt", "strt"} <= offered.keys()
    for word in ("catrs", "dogtt", "strt"):
        expected = logprob(model, prefix, f" {word}") + ends(model, prefix, f" {word}")
        assert offered[word] == pytest.approx(expected, abs=1e-4)


class Bigrams:
    """A store that has seen each of some tokens before another one, ten times."""

    orders = (2,)

    def __init__(self, seen: dict[int, int]) -> None:
        self.seen = seen

    def evidence(self, contexts: list[list[int]], candidates: list[int], orders: list[int]) -> Evidence:
        counts = np.array([[[10.0 * (self.seen.get(ids[-1]) == candidates[0])]] for ids in contexts])
        return Evidence((2,), counts, np.full((len(contexts), 1), 10.0), np.full((len(contexts), 1), 10.0))


@pytest.mark.parametrize("token", [0, 1, 2])
def test_an_unlikely_word_that_a_base_store_knows_before_the_text_after_is_found(
    model: TableModel, monkeypatch: pytest.MonkeyPatch, token: int
) -> None:
    monkeypatch.setattr(rewording, "FIRST", 1)
    monkeypatch.setattr(rewording, "NEARBY", 0)
    after = PIECES.index(b".")
    store: Any = Bigrams({token: after})
    session = Autocomplete(model, store).open()
    prefix = session.equipped.healer.plan(BEFORE, window=session.equipped.window).prefix_ids
    starts = model.after(prefix)[:3]
    firsts = {each.text[:1] for each in found(session, BEFORE, ".")}
    assert firsts == {PIECES[i].decode()[1] for i in (int(starts.argmax()), token)}
    session.close()
