"""Greedy and sampled drafts made several tokens per pass: the same drafts, in fewer passes, from the same cache."""

from __future__ import annotations

import itertools
import time

import pytest

from core.controls import MODES
from core.drafting.drafts import Options
from core.drafting.driver import Driven
from core.modes.speculated import Speculation, Speculator
from core.modes.start import Mode, start
from core.noise import SeededNoise
from core.samplers import TopK
from core.speculative.budget import Memory
from core.speculative.cycles import Text, cycles
from core.speculative.drafters.base import Drafter, Moment
from core.speculative.options import SpeculationOptions
from core.speculative.tree import TokenTree
from tests.table_model import TableModel, chain

PREFIX = [0, 1, 2, 3, 1]
LENGTH = 12
STOP = frozenset({5})


class Guess(Drafter):
    """Goes on with the table's likeliest token: often right, and it knows its siblings."""

    name = "guess"

    def __init__(self, model: TableModel, worth: float = 1.0) -> None:
        self.model, self.worth, self.seen = model, worth, 0

    def draft(self, moment: Moment, depth: int) -> TokenTree:
        self.seen += 1
        ids, paths = list(moment.ids), []
        for _ in range(min(depth, 3)):
            best = self.model.after(ids + paths).topk(1).indices.tolist()
            paths += best
        return chain(paths, [0.9] * len(paths))


def drafts(model: TableModel, mode: Mode, k: int = 3, **options):
    sequence = model.open()
    passes = rows = 0
    try:
        made = Options(**{"k": k, "length": LENGTH, "stop_ids": STOP, "seed": 7} | options)
        state = Driven(start(sequence, PREFIX, made, mode)([sequence.sync(PREFIX)]))
        steps = [state.latest]
        while not state.done:
            asked = state.rows()
            passes, rows = passes + 1, rows + len(asked)
            steps.append(state.advance(model.forward(asked)))
        assert sequence.inputs[: len(PREFIX)] == PREFIX
        return steps, passes
    finally:
        sequence.close()


def speculating(model: TableModel, name: str, how: str = "lossless", **options) -> tuple[Mode, Speculator]:
    by = Speculator(Guess(model), lambda n: 1 + n / 50)
    return Mode(name, speculation=Speculation(by, SpeculationOptions(how, **options))), by  # pyright: ignore[reportArgumentType]


def greedy(model: TableModel) -> list[int]:
    ids: list[int] = []
    while len(ids) < LENGTH and not (ids and ids[-1] in STOP):
        ids.append(int(model.after(PREFIX + ids).argmax()))
    return ids


def logprob(model: TableModel, ids: list[int]) -> float:
    return sum(float(model.after(PREFIX + ids[:i]).log_softmax(0)[token]) for i, token in enumerate(ids))


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("name", ["greedy", "sampled"])
@pytest.mark.parametrize("size", ["auto", 4])
def test_the_drafts_are_the_same_in_fewer_passes(seed, name, size):
    model = TableModel(seed=seed)
    mode, by = speculating(model, name, tree_size=size)
    fast, fewer = drafts(model, mode)
    if name == "greedy":
        ids = greedy(model)
        passes = len(ids) - 1
        assert fast[-1].ids == [ids]
        assert fast[-1].logprobs[0] == pytest.approx(logprob(model, ids), abs=1e-4)
    else:
        plain, passes = drafts(model, Mode(name))
        made = [dict(zip(last.lineages, last.ids, strict=True)) for last in (plain[-1], fast[-1])]
        assert made[0] == made[1]
        assert sorted(plain[-1].logprobs) == pytest.approx(sorted(fast[-1].logprobs), abs=1e-4)
        assert sorted(plain[-1].p_first) == pytest.approx(sorted(fast[-1].p_first))
    assert fewer <= passes
    if name == "greedy" and passes > 3:
        assert fewer < passes  # the drafter is always right
    figures = fast[-1].figures
    assert (figures.accept_length >= 1) == (fewer > 0)
    for ids, how, ended in ((draft.ids, draft.how, draft.ended) for draft in fast[-1].drafts):
        assert len(ids) == len(how) and ended == (ids[-1] in STOP)
        assert how[0][0] == "plain"
        assert {came for came, _ in how} <= {"plain", "accepted", "corrected", "bonus"}
    assert (by.drafter.seen > 0) == (fewer > 0)  # pyright: ignore[reportAttributeAccessIssue]


def test_a_rule_crops_speculated_drafts_too():
    model = TableModel(seed=3)
    mode, _ = speculating(model, "sampled", tree_size=4)
    plain, _ = drafts(model, Mode("sampled"), rule=TopK(2), tau=0.7)
    fast, _ = drafts(model, mode, rule=TopK(2), tau=0.7)
    assert sorted(plain[-1].ids) == sorted(fast[-1].ids)


def test_every_step_only_adds_and_stopping_anywhere_leaves_the_prefix():
    model = TableModel(seed=1)
    mode, _ = speculating(model, "sampled", tree_size=4)
    steps, _ = drafts(model, mode)
    for before, after in itertools.pairwise(steps):
        known = dict(zip(after.lineages, after.ids, strict=True))
        for lineage, ids in zip(before.lineages, before.ids, strict=True):
            assert known[lineage][: len(ids)] == ids
    for stop in range(len(steps)):
        sequence = model.open()
        begin = start(sequence, PREFIX, Options(k=3, length=LENGTH, stop_ids=STOP, seed=7), mode)
        state = Driven(begin([sequence.sync(PREFIX)]))
        for _ in range(stop):
            if not state.done:
                state.advance(model.forward(state.rows()))
        if not state.done:
            state.rows()  # asked for, and never run
        state.close()
        assert state.rows() == []
        assert sequence.inputs == PREFIX
        sequence.close()


def test_what_does_not_pay_is_switched_off_and_said_also_later_on():
    model = TableModel(seed=2)
    by = Speculator(Guess(model), lambda n: 1.0 if n <= 3 else 100.0)  # no proposal is worth it
    mode = Mode("sampled", speculation=Speculation(by))
    for _ in range(2):
        steps, _ = drafts(model, mode)
        assert "switched off" in steps[-1].figures.notice


@pytest.mark.parametrize("name", [name for name in MODES if name not in ("greedy", "sampled")])
def test_other_modes_have_no_speculation(name):
    model = TableModel(seed=2)
    mode, by = speculating(model, name)
    plain, passes = drafts(model, Mode(name))
    same, as_many = drafts(model, mode)
    assert (same[-1].ids, as_many) == (plain[-1].ids, passes)
    assert by.drafter.seen == 0  # pyright: ignore[reportAttributeAccessIssue]


@pytest.mark.parametrize("name", ["greedy", "sampled"])
def test_one_token_is_a_draft(name):
    model = TableModel(seed=2)
    steps, passes = drafts(model, speculating(model, name)[0], length=1)
    assert not passes and steps[-1].done
    assert all(len(ids) == 1 for ids in steps[-1].ids)


def test_the_drafter_is_called_once_for_all_drafts_of_a_pass():
    """Its time is divided among them."""
    model = TableModel(seed=2)
    mode, by = speculating(model, "sampled", tree_size=4)
    asked: list[int] = []

    class Together(Guess):
        def draft_all(self, moments, depths):
            asked.append(len({id(moment.ids) for moment in moments}))
            return super().draft_all(moments, depths)

    by.drafter = Together(model)
    steps, passes = drafts(model, mode)
    plain, _ = drafts(model, Mode("sampled"))
    assert [draft.ids for draft in steps[-1].drafts] == [draft.ids for draft in plain[-1].drafts]
    assert asked[0] == 3 and asked == sorted(asked, reverse=True)
    assert passes - 1 <= len(asked) <= passes  # a last pass may have room for one token alone
    assert by.drafter.seen == sum(asked)


def three_texts(model: TableModel) -> list[Text]:
    texts = []
    for draft in range(3):
        sequence = model.open()
        p = model.after(PREFIX).softmax(0).double().numpy()
        sequence.sync(PREFIX)
        texts.append(Text(sequence, [*PREFIX, draft], len(PREFIX) + 1 + LENGTH, p, noise=SeededNoise(7, draft)))
    return texts


@pytest.mark.parametrize("stop", [frozenset(), STOP])
@pytest.mark.parametrize("proposing", [True, False])  # for the first text; never for the others
def test_what_speculation_saves_is_counted_against_plain_decoding_of_all_texts(monkeypatch, proposing, stop):
    """Every pass takes 1 ms. A text that is done early leaves its share to the others; one that the model ends would
    have ended in plain decoding, too."""
    monkeypatch.setattr(time, "perf_counter", lambda: 0.0)
    model, memory = TableModel(seed=2), Memory()

    class ForTheFirst(Guess):
        def draft(self, moment, depth):
            first = proposing and moment.ids[len(PREFIX)] == 0
            return super().draft(moment, depth) if first else TokenTree()

    texts = three_texts(model)
    running = cycles(texts, SpeculationOptions(stop_ids=stop), ForTheFirst(model), lambda n: 1.0, memory)
    rows, _ = next(running)
    passes, lost = 0, 0.0
    while rows:
        unstopped = sum(text.ids[-1] not in stop for text in texts)
        before = sum(text.statistics.tokens for text in texts)
        rows, _ = running.send((model.forward(rows), 0.001))
        passes += 1
        lost += unstopped - (sum(text.statistics.tokens for text in texts) - before)
    assert memory.lost == pytest.approx(lost, abs=1e-6)
    if not proposing:
        assert memory.lost == pytest.approx(0)
    elif not stop:
        assert texts[0].statistics.cycles < texts[1].statistics.cycles == passes == LENGTH
        assert memory.lost == pytest.approx(0)  # and nothing is saved, because the others need as many passes as before
        assert {len(text.ids) for text in texts} == {len(PREFIX) + 1 + LENGTH}


def test_the_time_of_drafting_is_divided_among_the_texts(monkeypatch):
    now = 0.0
    monkeypatch.setattr(time, "perf_counter", lambda: now)

    class Slow(Guess):
        calls = 0

        def draft_all(self, moments, depths):
            nonlocal now
            now, self.calls = now + 0.006, self.calls + 1
            return super().draft_all(moments, depths)

    model = TableModel(seed=2)
    drafter, texts = Slow(model), three_texts(model)
    running = cycles(texts, SpeculationOptions(tree_size=4, stop_ids=frozenset()), drafter)
    rows, _ = next(running)
    assert [text.statistics.drafting for text in texts] == [0.0] * 3
    while rows:
        rows, _ = running.send((model.forward(rows), 0.01 * len(rows)))
        if texts[0].statistics.cycles == 1:
            assert [text.statistics.drafting for text in texts] == pytest.approx([0.002] * 3)
            assert [text.statistics.seconds for text in texts] == pytest.approx([0.012] * 3)
    assert sum(text.statistics.drafting for text in texts) == pytest.approx(0.006 * drafter.calls)
    assert {len(text.ids) for text in texts} == {len(PREFIX) + 1 + LENGTH}
