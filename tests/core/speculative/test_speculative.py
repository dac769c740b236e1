"""Speculative decoding: lossless means lossless, nothing is fed twice, and what does not pay switches itself off."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable
from functools import cache
from itertools import permutations, product
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from core.errors import InputError
from core.models.base import Row, path_to
from core.models.costs import CostCurve
from core.samplers import Chain, MinP, Mirostat, Temperature, TopNSigma
from core.samplers.greedy import Greedy
from core.speculative import (
    ModelDrafter,
    NgramDrafter,
    SuffixDrafter,
    SuperposedDrafter,
    TargetSampling,
    TokenTree,
    generate,
)
from core.speculative.acceptance import rejection
from core.speculative.drafters import Drafter, Moment
from tests.table_model import TableModel, chain

PREFIX = [0, 1, 2, 0, 1]
FLAT = CostCurve((1, 32), (10.0, 11.0))  # proposals cost next to nothing


class Scripted(Drafter):
    """Proposes what it is told."""

    name = "scripted"

    def __init__(self, propose: Callable[[list[int], int], TokenTree]) -> None:
        self.propose, self.calls = propose, 0

    def draft(self, moment: Moment, depth: int) -> TokenTree:
        self.calls += 1
        return self.propose(moment.ids, depth)


# --- the distribution


class Remembered:
    """A rule whose answers are kept: a small table has few rows."""

    def __init__(self, rule: Callable[[Tensor, Tensor], Tensor]) -> None:
        self.rule, self.known = rule, {}

    def __call__(self, ids: Tensor, logits: Tensor) -> Tensor:
        key = logits.numpy().tobytes()
        if key not in self.known:
            self.known[key] = self.rule(ids, logits)
        return self.known[key]


MODEL = TableModel()
EMBEDDINGS = torch.randn(6, 4, generator=torch.Generator().manual_seed(1))
OTHER = TableModel(seed=1)  # another table: proposals are often wrong


def small_model() -> Drafter:
    return ModelDrafter(OTHER, MODEL)


class Knowing(Drafter):
    """Proposes what another table draws with the target's own noise."""

    name = "knowing"

    def __init__(self, model: TableModel, choice: TargetSampling) -> None:
        self.model, self.choice = model, choice
        self.known: dict[tuple[int, ...], np.ndarray] = {}  # by the last two tokens, on which alone they depend

    def draft(self, moment: Moment, depth: int) -> TokenTree:
        assert moment.noise is not None
        ids = list(moment.ids)
        for _ in range(depth):
            last = tuple(ids[-2:])
            if last not in self.known:
                self.known[last] = self.choice.probabilities(self.model.after(ids), ids)
            ids.append(moment.noise.draw(self.known[last], len(ids)))
        return chain(ids[len(moment.ids) :], [0.5] * depth)


# --- the rejection sampler


@settings(max_examples=60)
@given(st.integers(2, 5), st.integers(1, 3), st.integers(0, 2**32 - 1), st.booleans())
def test_rejection_gives_exactly_the_targets_distribution(size: int, count: int, seed: int, cropped: bool) -> None:
    """Sums over all ordered samples of q without replacement, and over the results of each test."""
    random, count = np.random.default_rng(seed), min(count, size)
    p, q = random.dirichlet(np.full(size, 0.5)), random.dirichlet(np.ones(size))
    if cropped:  # a rule drops a token of p
        p[random.integers(size)] = 0.0
        p = p / p.sum() if p.sum() else np.full(size, 1 / size)
    found = np.zeros(size)
    for order in permutations(range(size), count):
        chance, rest = 1.0, 1.0
        for x in order:
            chance, rest = chance * q[x] / rest, rest - q[x]
        reached = 1.0  # the chance that all proposals so far were rejected
        for n in range(count):
            # The threshold of u, below which the n-th proposal is accepted, by bisection.
            low, high = 0.0, 1.0
            for _ in range(50):
                middle = (low + high) / 2
                which, _ = rejection(p, q, order[: n + 1], [1.0] * n + [middle])
                low, high = (middle, high) if which == n else (low, middle)
            if rejection(p, q, order[: n + 1], [1.0] * n + [0.0])[0] not in (n, None):
                break  # an earlier one is always accepted
            found[order[n]] += chance * reached * low
            reached *= 1 - low
        which, left = rejection(p, q, order, [1.0] * count)
        if which is None:
            found += chance * reached * left
    assert np.allclose(found, p, atol=1e-6)


def test_texts_by_rejection_have_the_distribution_of_plain_decoding() -> None:
    """By the χ² of the tokens after each pair of tokens, on which alone the table's probabilities depend."""
    choice = TargetSampling(1.5, Remembered(TopNSigma(1.0)))
    drafter, sequence, seen = small_model(), MODEL.open(), Counter[tuple[int, ...]]()
    for seed in range(30):
        sampling: dict[str, Any] = {"temperature": 1.5, "rule": choice.rule, "seed": seed, "length": 100}
        made = generate(MODEL, drafter, PREFIX, sequence=sequence, tree_size=2, draws="rejection", **sampling)
        ids = PREFIX[-2:] + [token.id for token in made]
        seen.update(zip(ids, ids[1:], ids[2:], strict=False))
        sequence.rewind(len(PREFIX) - 1)

    def departure(choice: TargetSampling) -> float:
        """How many standard deviations above its mean χ² lies; cells that are expected less than 5 times are one."""
        statistic, freedom = 0.0, 0
        for pair in product(range(MODEL.vocab_size), repeat=2):
            p = choice.probabilities(MODEL.after([*pair]), [*pair])
            found = np.array([seen[(*pair, token)] for token in range(len(p))])
            expected = p * found.sum()
            assert not found[p == 0].any()
            cells = [*zip(found[expected >= 5], expected[expected >= 5], strict=True)]
            if (rest := expected[expected < 5].sum()) >= 5:
                cells.append((found[expected < 5].sum(), rest))
            statistic += sum((n - e) ** 2 / e for n, e in cells)
            freedom += max(len(cells) - 1, 0)
        v = 2 / (9 * freedom)  # Wilson-Hilferty: the cube root of χ² / freedom is close to normal
        return ((statistic / freedom) ** (1 / 3) - (1 - v)) / v**0.5

    assert departure(choice) < 4 < departure(TargetSampling(0.5, choice.rule))


def test_a_drafter_with_the_targets_distribution_is_never_rejected() -> None:
    made = generate(MODEL, ModelDrafter(TableModel(), MODEL), PREFIX, length=100, tree_size=3, draws="rejection")
    assert "corrected" not in {token.how for token in made}
    other = generate(MODEL, ModelDrafter(TableModel(seed=1), MODEL), PREFIX, length=100, tree_size=3, draws="rejection")
    assert {"accepted", "corrected"} <= {token.how for token in other}


@pytest.mark.parametrize(
    ("drafter", "options", "said"),
    [
        (NgramDrafter(), {"tree_size": 3}, "the drafter n-gram, which selects its proposals"),
        (SuffixDrafter(), {"tree_size": 3}, "the drafter suffix automaton, which selects its proposals"),
        (ModelDrafter(TableModel(), MODEL), {}, "tree_size 'auto'; it needs 'lossless' and a fixed size"),
        (ModelDrafter(TableModel(), MODEL), {"tree_size": 3, "mode": "arc"}, "given with mode 'arc'"),
        (ModelDrafter(TableModel(), MODEL), {"tree_size": 3, "draws": "best"}, "coupled, independent, rejection"),
    ],
)
def test_rejection_is_refused_where_proposals_are_selected(drafter: Drafter, options: Any, said: str) -> None:
    with pytest.raises(InputError, match=said):
        generate(MODEL, drafter, PREFIX, **{"draws": "rejection"} | options)


def test_a_drafter_that_does_not_know_the_dice_changes_no_text() -> None:
    class Blind(Drafter):
        name = "blind"

        def draft(self, moment: Moment, depth: int) -> TokenTree:
            assert moment.noise is None
            best = MODEL.after(list(moment.ids)).argsort(descending=True)[:3].tolist()
            return TokenTree(best, [-1] * 3, [0.5, 0.3, 0.2])

    for seed in range(3):
        drafted = generate(MODEL, Blind(), PREFIX, length=40, seed=seed, tree_size=6, draws="independent")
        assert [token.id for token in drafted] == token_by_token(1.0, seed, 0)
        assert drafted.statistics.accepted


RULES = (None, MinP(0.1), TopNSigma(1.0))


@cache
def token_by_token(temperature: float, seed: int, cropped: int) -> list[int]:
    """The text of plain decoding."""
    made = generate(MODEL, None, PREFIX, "off", temperature=temperature, rule=RULES[cropped], seed=seed, length=40)
    return [token.id for token in made]


@pytest.mark.parametrize(
    "make",
    [
        NgramDrafter,
        SuffixDrafter,
        small_model,
        lambda: Knowing(TableModel(seed=1, spread=1.0), TargetSampling(1.0)),
    ],
)
@pytest.mark.parametrize("tree_size", ["auto", 0, 5])
def test_a_seed_has_one_text_whatever_is_proposed(make: Callable[[], Drafter], tree_size: Any) -> None:
    """The same tokens as token by token, rules or none: the target draws them with the seed's noise alone."""
    for seed, (temperature, cropped) in enumerate(product((0.5, 1.0, 1.5), range(len(RULES)))):
        rule = Remembered(RULES[cropped]) if cropped else None
        options: dict[str, Any] = {"temperature": temperature, "rule": rule, "seed": seed, "length": 40}
        made = generate(MODEL, make(), PREFIX, tree_size=tree_size, curve=FLAT, **options)
        assert [t.id for t in made] == token_by_token(temperature, seed, cropped)
        others = token_by_token(temperature, seed + 1, cropped)
        assert token_by_token(temperature, seed, cropped) != others


# --- the loop


def continued(model: TableModel, ids: list[int], n: int) -> list[int]:
    """The n most probable tokens, one after the other."""
    ids = list(ids)
    for _ in range(n):
        ids.append(int(model.after(ids).argmax()))
    return ids[-n:]


@st.composite
def proposals(draw: st.DrawFn) -> TokenTree:
    n = draw(st.integers(0, 7))
    tree = TokenTree()
    for i in range(n):
        parent = draw(st.integers(-1, i - 1))
        taken = {t for t, p in zip(tree.ids, tree.parents, strict=True) if p == parent}
        token = draw(st.sampled_from(sorted(set(range(6)) - taken)))
        tree.ids.append(token)
        tree.parents.append(parent)
        tree.confidence.append(draw(st.floats(0.01, 1)))
    return tree


@settings(max_examples=60)
@given(trees=st.lists(proposals(), min_size=1, max_size=5), length=st.integers(1, 12), auto=st.booleans())
def test_greedy_is_plain_greedy_whatever_is_proposed_and_nothing_is_fed_twice(
    trees: list[TokenTree], length: int, auto: bool
) -> None:
    model = TableModel()
    drafter = Scripted(lambda ids, depth: trees[drafter.calls % len(trees)])
    made = generate(model, drafter, PREFIX, temperature=0, length=length, tree_size="auto" if auto else 7, curve=FLAT)
    tokens = list(made)
    assert [t.id for t in tokens] == continued(model, PREFIX, length)
    s = made.statistics
    assert model.tokens_fed == len(PREFIX) + s.fed
    assert s.fed == s.cycles + s.proposed  # each pass: the one new token of the text, and its proposals
    assert s.tokens == length - 1 == s.cycles + s.accepted + s.tolerated - (tokens[-1].how == "accepted" and length > 1)
    assert Counter(t.how for t in tokens)["accepted"] == s.accepted
    assert made.ids == PREFIX + [t.id for t in tokens]


def test_the_sequence_holds_the_text_and_nothing_else_afterwards() -> None:
    sequence = MODEL.open()
    sequence.feed(PREFIX[:3])
    made = generate(MODEL, NgramDrafter(), PREFIX, length=20, sequence=sequence, curve=FLAT)
    for _ in range(7):
        next(made)
    made.close()
    assert sequence.inputs == made.ids[: sequence.length]
    assert sequence.length >= len(made.ids) - 1


def test_perfect_proposals_are_taken_whole() -> None:
    model = TableModel()
    drafter = Scripted(lambda ids, depth: chain(continued(model, ids, depth)))
    made = generate(model, drafter, PREFIX, temperature=0, length=25, tree_size=5, depth=5)
    hows = [t.how for t in made]
    assert hows[1:7] == ["accepted"] * 5 + ["bonus"]
    assert made.statistics.accept_length == 6


def test_an_end_of_text_inside_a_path_ends_the_text() -> None:
    model = TableModel()
    text = continued(model, PREFIX, 12)
    drafter = Scripted(lambda ids, depth: chain(continued(model, ids, 5)))
    stop = text[3]
    made = generate(model, drafter, PREFIX, temperature=0, length=12, tree_size=5, stop_ids=frozenset({stop}))
    assert [t.id for t in made] == text[: text.index(stop) + 1]


def test_what_does_not_pay_switches_itself_off_and_says_so() -> None:
    model = TableModel()
    wrong = Scripted(lambda ids, depth: TokenTree([int(model.after(ids).argmin())], [-1], [0.99]))
    cheap_looking = CostCurve((1, 2, 32), (10.0, 11.0, 200.0))
    made = generate(model, wrong, PREFIX, temperature=0, length=200, curve=cheap_looking)
    list(made)
    s = made.statistics
    # Proposals stopped early, by themselves or by the account of what was lost.
    assert s.proposed < 20
    lost = s.proposed * 0.1 / 200
    assert lost <= 0.03
    steep = generate(model, wrong, PREFIX, temperature=0, length=50, curve=CostCurve((1, 2), (1.0, 100.0)))
    list(steep)
    assert steep.statistics.proposed == 0
    assert "switched off" in (steep.statistics.notice or "")


def clock_of(model: TableModel, monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """Seconds, which a pass takes as the curve says, and nothing else unless it adds to them."""
    now, forward = [0.0], model.forward

    def timed(rows: list[Row]) -> list[Tensor]:
        now[0] += FLAT(len(rows[0].inputs)) / 1000
        return forward(rows)

    monkeypatch.setattr(model, "forward", timed)
    monkeypatch.setattr(sys.modules["core.speculative.cycles"].time, "perf_counter", lambda: now[0])
    return now


@pytest.mark.parametrize("longer", [1, 100])
def test_a_drafter_that_pays_is_used_also_after_a_long_first_draft(
    monkeypatch: pytest.MonkeyPatch, longer: int
) -> None:
    """On a clock of its own: a pass takes what the curve says, drafting a hundredth of it. A head reads the whole
    prompt before its first tree."""
    model = TableModel()
    now = clock_of(model, monkeypatch)

    def right(ids: list[int], depth: int) -> TokenTree:
        now[0] += FLAT(1) / 100_000 * (longer if len(ids) == len(PREFIX) + 1 else 1)
        return chain(continued(model, ids, depth), [0.9] * depth)

    made = generate(model, Scripted(right), PREFIX, temperature=0, length=200, curve=FLAT)
    list(made)
    assert made.statistics.notice is None
    assert made.statistics.accept_length > 4


def test_a_drafter_that_takes_longer_than_the_target_is_asked_once(monkeypatch: pytest.MonkeyPatch) -> None:
    model = TableModel()
    now = clock_of(model, monkeypatch)

    def slowly(ids: list[int], depth: int) -> TokenTree:
        now[0] += depth * FLAT(1) / 100
        return chain(continued(model, ids, depth), [0.9] * depth)

    slow = Scripted(slowly)
    made = generate(model, slow, PREFIX, temperature=0, length=60, curve=FLAT)
    list(made)
    assert slow.calls == 1
    assert "switched off" in (made.statistics.notice or "")


def test_a_rule_with_a_memory_sees_every_token_once() -> None:
    """Mirostat's state belongs to the text: speculation and plain decoding see the same states."""
    rule = Mirostat(tau=1.5, eta=0.3)
    right = Scripted(lambda ids, depth: chain(continued(MODEL, ids, 3)))
    text = [t.id for t in generate(MODEL, right, PREFIX, length=30, rule=rule, tree_size=3, seed=3)]
    again = Mirostat(tau=1.5, eta=0.3)
    ids = list(PREFIX)
    for token in text:
        expected = again(torch.tensor([ids]), MODEL.after(ids)[None])[0]
        assert expected[token].isfinite()
        ids.append(token)


@pytest.mark.parametrize(
    ("options", "temperature", "rolls"),
    [
        ({"temperature": 0.5}, 0.5, True),
        ({"rule": Chain([Temperature(1.5), MinP(0.1)])}, 1.5, True),
        ({"temperature": 0.5, "rule": Temperature(3.0)}, 1.5, True),
        ({"temperature": 0}, 1.0, False),
        ({"rule": Greedy()}, 1.0, False),
    ],
)
def test_a_temperature_inside_the_rule_is_told_to_the_drafter(options: dict, temperature: float, rolls: bool) -> None:
    told = []

    class Listening(NgramDrafter):
        def draft(self, moment: Moment, depth: int) -> TokenTree:
            told.append((moment.temperature, moment.noise is not None))
            return super().draft(moment, depth)

    list(generate(MODEL, Listening(), PREFIX, length=12, tree_size=3, **options))
    assert set(told) == {(temperature, rolls)}


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"mode": "fast"}, "fast"),
        ({"length": 0}, "length 0"),
        ({"temperature": -1}, "temperature -1"),
        ({"tree_size": "big"}, "big"),
        ({"tolerance": "any"}, "any"),
        ({"theta": 2}, "theta 2"),
        ({"epsilon": 1}, "epsilon 1"),
        ({"lam": -1}, "lam -1"),
        ({"mode": "arc"}, "calibration"),
    ],
)
def test_values_out_of_range_are_named(wrong: dict, said: str) -> None:
    with pytest.raises(InputError, match=said):
        generate(MODEL, NgramDrafter(), PREFIX, **wrong)


# --- drafters


def test_prompt_look_up_finds_what_followed_before() -> None:
    text = [5, 1, 2, 3, 4, 0, 5, 1, 2, 3]
    tree = NgramDrafter().draft(Moment(text), 3)
    assert [tree.ids[p] for p in path_to(tree.depths.index(2), tree.parents)] == [4, 0, 5]
    other = NgramDrafter()
    other.draft(Moment([9, 9, 9]), 3)
    again = other.draft(Moment(text), 3)
    assert again.ids == tree.ids  # another text is another text


class Follows:
    """A store that knows one continuation of everything."""

    def continuations(self, context, limit=None):
        return [((context[-1] + 1) % 6, 10), ((context[-1] + 2) % 6, 3)]


def test_a_store_goes_on_where_the_text_knows_nothing() -> None:
    drafter = NgramDrafter([Follows()], most=8)  # type: ignore[list-item]
    tree = drafter.draft(Moment([3, 0, 4]), 4)
    assert len(tree) == 8
    first = [place for place, parent in enumerate(tree.parents) if parent == -1]
    assert [tree.ids[place] for place in first] == [5, 0]


def test_a_draft_model_must_share_the_tokenizer() -> None:
    with pytest.raises(InputError, match="tokenizer"):
        ModelDrafter(TableModel(5), MODEL)


def test_a_draft_model_follows_the_text_without_feeding_it_again() -> None:
    small = TableModel(seed=1)
    drafter = ModelDrafter(small, MODEL)
    made = generate(MODEL, drafter, PREFIX, length=40, tree_size=3)
    list(made)
    s = made.statistics
    assert small.tokens_fed <= len(PREFIX) + 40 + 2 * s.proposed


def test_superposed_drafts_are_a_tree_of_k_beginnings() -> None:
    drafter = SuperposedDrafter(MODEL, k=3)
    tree = drafter.draft(Moment(PREFIX), 4)
    assert len(tree.children()[-1]) == 3
    made = generate(MODEL, drafter, PREFIX, temperature=0, length=12, tree_size=12, depth=3)
    assert [t.id for t in made] == continued(MODEL, PREFIX, 12)


def test_superposed_drafts_are_trusted_by_their_own_probabilities() -> None:
    tree = SuperposedDrafter(MODEL, k=2, exact_steps=4).draft(Moment(PREFIX, temperature=0.7), 3)
    for node, parent in enumerate(tree.parents):
        before = PREFIX + [tree.ids[at] for at in path_to(parent, tree.parents)]
        p = (MODEL.after(before) / 0.7).softmax(0)
        assert tree.confidence[node] == pytest.approx(float(p[tree.ids[node]]), rel=1e-5)


def test_superposed_drafts_know_the_dice() -> None:
    """Drafts of the target itself, exact up to their second token, begin with what the target samples."""
    drafter = SuperposedDrafter(MODEL, k=3, exact_steps=1)
    how: dict[str, Any] = {"length": 60, "temperature": 1.3, "seed": 5}
    made = generate(MODEL, drafter, PREFIX, tree_size=6, depth=2, **how)
    text = [token.id for token in made]
    assert text == [token.id for token in generate(MODEL, None, PREFIX, "off", **how)]
    assert made.statistics.accept_length > 2.8
