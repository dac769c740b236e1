"""EAGLE-3 heads as drafters: features of the right positions, trees that are the head's own, and lossless texts."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from itertools import pairwise, product
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from eagle3_reference import one_pass
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tiny_models import CONTEXT, VOCAB, Replayed
from torch.utils._python_dispatch import TorchDispatchMode

from core.errors import BackendUnavailable, ContextFull, InputError
from core.models import capture, hf, static
from core.models.base import LanguageModel, Row, Sequence, path_to
from core.models.static import StaticModel
from core.models.torch_model import TorchModel
from core.noise import SeededNoise
from core.speculative import generate
from core.speculative.cost import CostCurve
from core.speculative.drafters import Moment, eagle3_static
from core.speculative.drafters.eagle3 import Eagle3Drafter
from core.speculative.drafters.eagle3_cpu import CompiledHead, CpuTrees, PlainHead
from core.speculative.drafters.eagle3_tree import SHARPER, most_probable
from core.speculative.eagle3 import Eagle3Head, HeadConfig, HeadError

pytestmark = pytest.mark.usefixtures("one_thread")
LAYERS = (0, 1, 1)
PREFIX = [72, 101, 108, 108, 111]
FLAT = CostCurve((1, 32), (10.0, 11.0))


@pytest.fixture(scope="module")
def folder(tiny_folder: Callable[[str], Path]) -> Path:
    return tiny_folder("compiled llama")


@pytest.fixture(scope="module")
def model(folder: Path) -> LanguageModel:
    return hf.load(folder, "tiny")


@pytest.fixture(scope="module")
def plain_layers(folder: Path) -> LanguageModel:
    return hf.load(folder, "tiny", plain=True)


@pytest.fixture
def replayed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Exact arithmetic, and small sizes, so that short texts need several graphs."""
    monkeypatch.setattr(capture, "Captured", Replayed)
    monkeypatch.setattr(static, "COLUMNS", 8)
    for name, value in {"COLUMNS": 8, "CHUNK": 7, "FEW": 8, "USUAL": 2}.items():
        monkeypatch.setattr(eagle3_static, name, value)


def behind_a_static_cache(model: LanguageModel, few: int = 9) -> StaticModel:
    assert isinstance(model, TorchModel)
    made = StaticModel(model, lines=4, capacity=CONTEXT)
    made.few = few
    return made


PLAIN_WIDTH, COMPILED_WIDTH = 6, 16  # of a head; compiled code needs a multiple of the processor's lanes, 4, 8 or 16


def head_for(
    model: LanguageModel, seed: int = 0, size: int = 40, key_heads: int = 2, width: int = PLAIN_WIDTH
) -> Eagle3Head:
    torch.manual_seed(seed)
    config = HeadConfig(
        hidden_size=model.dim,
        intermediate_size=48,
        num_attention_heads=4,
        num_key_value_heads=key_heads,
        head_dim=width,
        vocab_size=model.vocab_size,
        draft_vocab_size=size,
        layers=LAYERS,
    )
    head = Eagle3Head(config)
    head.set_vocabulary(torch.arange(60, 60 + size))
    with torch.no_grad():
        for parameter in head.parameters():
            if parameter.ndim == 2:
                parameter.mul_(4)  # so that it has opinions
    return head.eval()


# ---------------------------------------------------------------- features


def test_features_of_positions_that_were_fed_unwatched_are_not_made_up(model: LanguageModel) -> None:
    sequence = model.open()
    sequence.feed(PREFIX)
    model.watch(LAYERS)
    sequence.feed([1])
    assert sequence.features is None
    tokens = list(
        generate(
            model,
            Eagle3Drafter(head_for(model), model),
            [*PREFIX, 1],
            sequence=sequence,
            length=4,
            tree_size=4,
            temperature=0,
        )
    )
    assert len(tokens) == 4
    assert sequence.features is not None
    with pytest.raises(InputError, match="Layers"):
        model.watch((0, 1, 2))


# ---------------------------------------------------------------- trees


def by_the_head(
    head: Eagle3Head, model: LanguageModel, ids: list[int], features: torch.Tensor, path: list[int]
) -> list[torch.Tensor]:
    """ln q of the tokens of its vocabulary after the text, and after each token of a path, computed by the module."""
    with torch.no_grad():
        text = torch.tensor(ids)
        out, held = one_pass(
            head, model.embeddings[text[1:]][None], head.fuse(features)[None], torch.arange(len(ids) - 1)
        )
        f, found = out[:, -1:], []
        for depth, token in enumerate(path):
            found.append(head.logits(f[0, 0]).log_softmax(-1))
            at = torch.tensor([len(ids) - 1 + depth])
            f, held = one_pass(head, model.embeddings[torch.tensor([[token]])], f, at, held)
        return [*found, head.logits(f[0, 0]).log_softmax(-1)]


@pytest.mark.parametrize("made", [PlainHead, CompiledHead])
def test_the_tree_is_what_the_head_says(model: LanguageModel, monkeypatch: pytest.MonkeyPatch, made: type) -> None:
    """Each path has the product of the module's probabilities; after every kind of growth of the text."""
    head = head_for(model, width=COMPILED_WIDTH if made is CompiledHead else PLAIN_WIDTH)
    with torch.no_grad():
        for parameter in head.parameters():
            parameter.copy_(parameter.bfloat16())
    drafter = Eagle3Drafter(head, model, beam=3, depth=4, most=9)
    assert isinstance(drafter._trees, CpuTrees)
    assert isinstance(drafter._trees._head, made)
    sequence = model.open()
    for text in (PREFIX, [*PREFIX, 70, 71, 72], [*PREFIX, 70, 71, 72, 80], [*PREFIX, 70, 90], [90, 91]):
        sequence.sync(text[:-1])
        features = sequence.features
        assert features is not None
        tree = drafter.draft(Moment(text, features), 6)
        assert 0 < len(tree) <= 9
        assert max(tree.depths) <= 3
        products, vocabulary = tree.products(), head.vocabulary.tolist()
        for place in range(len(tree)):
            path = [tree.ids[i] for i in path_to(place, tree.parents)]
            said = by_the_head(head, model, text, features, path[:-1])
            logq = sum(float(each[vocabulary.index(token)]) for each, token in zip(said, path, strict=True))
            assert np.log(products[place]) == pytest.approx(logq, abs=1e-3)
        (first,) = by_the_head(head, model, text, features, [])
        root = tree.ids[tree.children()[-1][0]]
        assert first[vocabulary.index(root)] >= first.max() - 1e-4


@pytest.mark.parametrize(("noise", "temperature"), [(None, 1.0), (SeededNoise(3), 0.5)])
def test_a_tree_tells_the_heads_own_distributions_without_the_dice(
    model: LanguageModel, noise: SeededNoise | None, temperature: float
) -> None:
    """What the head knows of the noise is in the confidences alone; likelihoods and distributions are the module's."""
    head = head_for(model)
    drafter = Eagle3Drafter(head, model, beam=3, depth=3, most=9)
    sequence = model.open()
    sequence.feed(PREFIX[:-1])
    assert sequence.features is not None
    told, silent = (
        drafter.draft(Moment(PREFIX, sequence.features, noise, temperature, whole), 3) for whole in (True, False)
    )
    assert (told.ids, told.parents) == (silent.ids, silent.parents)
    assert told.confidence == pytest.approx(silent.confidence, rel=1e-4)
    assert silent.likelihood is None and not silent.own
    assert told.likelihood is not None and set(told.own) == set(told.parents)
    assert (told.likelihood == pytest.approx(told.confidence, rel=1e-4)) == (noise is None)
    vocabulary = head.vocabulary.tolist()
    for place, parent in enumerate(told.parents):
        before = [told.ids[i] for i in path_to(parent, told.parents)] if parent >= 0 else []
        logq = by_the_head(head, model, PREFIX, sequence.features, before)[-1]
        expected = logq.div(temperature).softmax(0).numpy()
        q = told.own[parent].over(model.vocab_size)
        assert q[vocabulary] == pytest.approx(expected, abs=2e-3)
        assert q.sum() == pytest.approx(1.0)
        assert told.likelihood[place] == pytest.approx(q[told.ids[place]], rel=1e-3)


def test_what_is_proposed_is_the_likeliest_of_what_was_looked_at(model: LanguageModel) -> None:
    sequence = model.open()
    head = head_for(model)
    small, large = (Eagle3Drafter(head, model, beam=4, depth=3, most=most) for most in (6, 36))
    sequence.feed(PREFIX[:-1])
    few, many = (d.draft(Moment(PREFIX, sequence.features), 3) for d in (small, large))
    assert (len(few), len(many)) == (6, 36)
    best = np.sort(many.products())[::-1]
    assert np.allclose(np.sort(few.products())[::-1], best[:6], rtol=1e-5)
    assert all(parent < place for place, parent in enumerate(many.parents))
    children = many.children()
    assert all(len({many.ids[i] for i in places}) == len(places) for places in children.values())
    assert all(
        many.confidence[a] >= many.confidence[b] - 1e-6 for places in children.values() for a, b in pairwise(places)
    )


# ---------------------------------------------------------------- several texts


class Counted:
    """A head that notes the number of positions of each of its passes."""

    def __init__(self, head: Any) -> None:
        self._head, self.keep, self.fuse, self.passes = head, head.keep, head.fuse, list[int]()

    def __call__(self, embeddings: torch.Tensor, *inputs: Any) -> Any:
        self.passes.append(len(embeddings))
        return self._head(embeddings, *inputs)


def test_one_pass_of_the_head_for_each_level_serves_all_texts(model: LanguageModel) -> None:
    """The common beginning is read once, then the new tokens of all texts in one pass."""
    drafter = Eagle3Drafter(head_for(model), model, beam=3)
    assert isinstance(drafter._trees, CpuTrees)
    counted = drafter._trees._head = Counted(drafter._trees._head)  # type: ignore[assignment]
    texts = [[*PREFIX, n] for n in range(3)]

    def draft(depths: list[int]) -> list[int]:
        moments = []
        for text in texts:
            sequence = model.open()
            sequence.feed(text[:-1])
            moments.append(Moment(list(text), sequence.features, SeededNoise(3, len(moments))))
        counted.passes.clear()
        drafter.draft_all(moments, depths)
        return list(counted.passes)

    assert draft([4, 4, 4]) == [len(PREFIX) - 1 + 3, 9, 9, 9]
    texts = [[*text, *new] for text, new in zip(texts, ([7], [8, 9, 10], [11, 12]), strict=True)]
    assert draft([4, 4, 4]) == [6, 9, 9, 9]
    texts = [[*texts[0], 20, 21], [*texts[2], 22]]  # one text has ended
    assert draft([2, 5]) == [3, 6, 3, 3, 3]  # and one has room for fewer levels


@pytest.mark.parametrize("engine", ["plain", "compiled", "static"])
@settings(
    max_examples=6,
    derandomize=True,  # where two paths are as likely to the last digit, either may come first
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture],
)
@given(data=st.data())
def test_trees_drafted_together_are_those_of_each_text_alone(
    model: LanguageModel, plain_layers: LanguageModel, replayed: None, engine: str, data: st.DataObject
) -> None:
    """For texts that grow at different speeds, end early, are cut back or are the same, at any depths."""
    target = {"plain": model, "compiled": model, "static": behind_a_static_cache(plain_layers)}[engine]
    head = head_for(model, width=COMPILED_WIDTH if engine == "compiled" else PLAIN_WIDTH)
    drafter = Eagle3Drafter(head, target, beam=4, depth=5, most=12)
    token = st.integers(0, VOCAB - 1)
    texts = [[*PREFIX, 3, 4] for _ in range(data.draw(st.integers(1, 4), label="texts"))]
    for _ in range(data.draw(st.integers(1, 4), label="cycles")):
        if len(texts) > 1 and data.draw(st.booleans(), label="one ends"):
            texts.pop(data.draw(st.integers(0, len(texts) - 1)))
        texts = [text[: len(text) - data.draw(st.integers(0, 2), label="cut")] for text in texts]
        texts = [[*text, *data.draw(st.lists(token, max_size=4), label="new")] for text in texts]
        depths = [data.draw(st.integers(0, 6), label="levels") for _ in texts]
        noise, temperature = data.draw(
            st.sampled_from([(False, 1.0), (True, 1.0), (True, 0.5)]), label="noise and temperature"
        )
        whole = data.draw(st.booleans(), label="whole")
        moments = []
        for n, text in enumerate(texts):
            sequence = target.open()
            sequence.feed(text[:-1])
            assert sequence.features is not None
            moments.append(
                Moment(text, sequence.features.clone(), SeededNoise(1, n) if noise else None, temperature, whole)
            )
            sequence.close()
        together = drafter.draft_all(moments, depths)
        for tree, moment, depth in zip(together, moments, depths, strict=True):
            single = Eagle3Drafter(head, target, beam=4, depth=5, most=12)
            alone = single.draft(moment, depth)
            single.close()
            assert (tree.ids, tree.parents) == (alone.ids, alone.parents)
            assert tree.confidence == pytest.approx(alone.confidence, rel=1e-3)
            assert bool(tree.ids) == (depth > 0)
            if whole and depth:
                assert tree.likelihood == pytest.approx(alone.likelihood, rel=1e-3)
                assert set(tree.own) == set(alone.own)
                for parent, q in tree.own.items():
                    assert q.over(VOCAB) == pytest.approx(alone.own[parent].over(VOCAB), abs=1e-4)
    drafter.close()


def test_texts_that_are_sampled_differently_may_be_drafted_for_in_one_call(model: LanguageModel) -> None:
    head = head_for(model, width=COMPILED_WIDTH)
    sequence = model.open()
    drafter = Eagle3Drafter(head, model, beam=3, depth=3)
    sequence.feed(PREFIX[:-1])
    ways: list[tuple[SeededNoise | None, float]] = [
        (SeededNoise(1), 1.0),
        (None, 1.0),
        (SeededNoise(1), 0.5),
        (SeededNoise(2), 1.0),
    ]
    moments = [Moment(PREFIX, sequence.features, noise, temperature) for noise, temperature in ways]
    together = drafter.draft_all(moments, [3] * 4)
    alone = [Eagle3Drafter(head, model, beam=3, depth=3).draft(moment, 3) for moment in moments]
    assert [(tree.ids, tree.parents) for tree in together] == [(tree.ids, tree.parents) for tree in alone]


# ---------------------------------------------------------------- on a static cache


@pytest.mark.parametrize(("beam", "depth", "most", "key_heads"), [(6, 6, 32, 2), (1, 3, 32, 1), (50, 2, 8, 4)])
@settings(
    max_examples=6,
    derandomize=True,  # where two paths are as likely to the last digit, either may come first
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture],
)
@given(data=st.data())
def test_the_trees_are_those_of_the_other_engine(
    plain_layers: LanguageModel, replayed: None, beam: int, depth: int, most: int, key_heads: int, data: st.DataObject
) -> None:
    """After texts that grow, are rewound, branch off in forks, or are others altogether."""
    head = head_for(plain_layers, key_heads=key_heads)
    targets = (plain_layers, behind_a_static_cache(plain_layers))
    drafters = [Eagle3Drafter(head, each, beam=beam, depth=depth, most=most) for each in targets]
    token = st.integers(0, VOCAB - 1)
    held: list[list[Sequence]] = [[each.open() for each in targets]]
    for _ in range(data.draw(st.integers(2, 6), label="steps")):
        do = data.draw(st.sampled_from(["grow", "grow", "rewind", "fork", "open"]), label="do")
        which = data.draw(st.integers(0, len(held) - 1), label="which")
        if do == "fork" and len(held) < 4:
            held.append([each.fork() for each in held[which]])
        elif do == "open" and len(held) < 4:
            held.append([each.open() for each in targets])
        pair = held[which]
        if do == "rewind":
            length = data.draw(st.integers(0, pair[0].length), label="to")
            for each in pair:
                each.rewind(length)
        room = CONTEXT - pair[0].length
        ids = data.draw(st.lists(token, min_size=not pair[0].length, max_size=min(room, 25)), label="ids")
        levels = data.draw(st.integers(1, 7), label="levels")
        last = data.draw(token, label="last")
        noise = data.draw(st.sampled_from([None, SeededNoise(1), SeededNoise(2, 3)]), label="noise")
        temperature = data.draw(st.sampled_from([1.0, 0.5]), label="temperature") if noise else 1.0
        whole = data.draw(st.booleans(), label="whole")
        trees = []
        for drafter, each in zip(drafters, pair, strict=True):
            if ids:
                each.feed(ids)
            text = [*each.inputs, last]
            moment = Moment(text, each.features, noise, temperature, whole)  # pyright: ignore[reportArgumentType]
            trees.append(drafter.draft(moment, levels))
        assert len(trees[0]) and (trees[0].ids, trees[0].parents) == (trees[1].ids, trees[1].parents)
        assert trees[1].confidence == pytest.approx(trees[0].confidence, rel=1e-3)
        if whole:
            assert trees[1].likelihood == pytest.approx(trees[0].likelihood, rel=1e-3)
            q, other = (tree.own[-1].over(VOCAB) for tree in trees)
            assert other == pytest.approx(q, abs=1e-4)
    for pair in held:
        for each in pair:
            each.close()
    drafters[1].close()


def test_a_text_is_the_same_on_a_static_cache(plain_layers: LanguageModel, replayed: None) -> None:
    for seed, few, temperature in ((0, 0, 1), (1, 9, 0)):
        prefix = [int(n) for n in np.random.default_rng(seed).integers(0, 256, 12)]
        found = []
        for target in (plain_layers, behind_a_static_cache(plain_layers, few)):
            drafter = Eagle3Drafter(head_for(plain_layers, seed), target, beam=4)
            made = generate(
                target,
                drafter,
                prefix,
                temperature=temperature,
                seed=seed,
                length=30,
                tree_size=7,
                stop_ids=frozenset(),
            )
            found.append([(token.id, token.how) for token in made])
            assert made.statistics.proposed > 50
        assert found[0] == found[1]


def test_a_head_that_knows_the_dice_guesses_more_of_what_they_give() -> None:
    """The target's own distribution stands for the head's: with the noise its first guess is always right, without them
    as often as the likeliest token is drawn."""
    target_says = torch.randn(200, 40, generator=torch.Generator().manual_seed(0)).mul_(1.5)
    vocabulary = np.arange(60, 100)
    right = {False: 0, True: 0}
    for place, logits in enumerate(target_says):
        p = np.zeros(VOCAB)
        p[vocabulary] = logits.double().softmax(-1).numpy()
        drawn = SeededNoise(5).draw(p, place)
        for noised in right:
            noise = torch.from_numpy(SeededNoise(5).gumbel(place, vocabulary)).float() if noised else None
            said, at = most_probable(logits[None] * SHARPER, 4, 1.0, noise)
            assert said[0].diff().le(0).all()
            right[noised] += int(vocabulary[at[0, 0]] == drawn)
    assert right[True] == 200
    assert right[False] < 120


def test_a_text_that_is_longer_than_the_targets_is_refused(plain_layers: LanguageModel) -> None:
    target = behind_a_static_cache(plain_layers)
    drafter = Eagle3Drafter(head_for(plain_layers), target)
    moment = Moment([1] * 66, torch.zeros(65, 3 * plain_layers.dim))
    with pytest.raises(ContextFull, match="66 tokens given; the head has room for 65"):
        drafter.draft(moment, 3)


class NothingOfTheHost(TorchDispatchMode):
    """Fails where a tensor on the host takes part, or a number is asked for: what a graph cannot capture."""

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        out = function(*args, **(kwargs or {}))
        for tensor in torch.utils._pytree.tree_leaves((args, out)):
            assert not isinstance(tensor, torch.Tensor) or tensor.device.type == "meta", function
        return out


def test_what_is_captured_asks_nothing_of_the_host(folder: Path) -> None:
    """On the device of tensors without contents: nobody can be told a number, nor a tensor be copied from there."""
    target = behind_a_static_cache(hf.load(folder, "tiny", plain=True))
    head = head_for(target)
    target.watch(LAYERS)
    nowhere = target.layers.device = torch.device("meta")
    target.layers.module.to(nowhere)
    target._planes = [plane.to(nowhere) for plane in target._planes]
    engine = eagle3_static.StaticTrees(head, target, 6, 6, 32)
    numbers = {n: torch.empty(2, n, dtype=torch.long, device=nowhere) for n in (9, 10, 2 * 8 + 1 + 8 * 8)}
    mixed = torch.empty(2, 1 + target.dim, device=nowhere)
    with torch.inference_mode(), NothingOfTheHost():
        engine._noise, engine._temperature = engine._noise.to(nowhere), engine._temperature.to(nowhere)
        for noised, whole in product((False, True), repeat=2):
            found = engine._grown(numbers[10][0], 8, 64, 6, noised, whole)
            assert [tuple(part.shape) for part in found] == [(3, 32), (2, 32), (1 + 5 * 6, 40)][: 1 + 2 * whole]
        assert target._branching(numbers[2 * 8 + 1 + 8 * 8], 0, 64, 8)[1].shape == (2, 8, 3 * target.dim)
        assert target._stepped(mixed, 0, 64)[1].shape == (2, 1, 3 * target.dim)
        target._moved(numbers[9][0])
        for wrong in (lambda: int(mixed[0, 0]), lambda: mixed[mixed > 0], lambda: torch.ones(2).to(nowhere)):
            with pytest.raises((AssertionError, RuntimeError, NotImplementedError)):
                wrong()


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="There is no CUDA device here.")
def test_captured_trees_and_their_verification_are_what_the_same_functions_give_uncaptured(folder: Path) -> None:
    target = hf.load(folder, "tiny", plain=True)
    assert isinstance(target, TorchModel)
    target = StaticModel(target, lines=2, capacity=CONTEXT)
    drafter = Eagle3Drafter(head_for(target), target)
    sequence = target.open()
    sequence.feed(PREFIX[:-1])
    text = list(PREFIX)
    for _ in range(4):  # the first captures, the others are replays
        features = sequence.features
        assert features is not None and features.device.type == "cuda"
        tree = drafter.draft(Moment(text, features, distributions=len(text) % 4 < 2), 4)
        compare(drafter._trees._graphs.captured.values())  # type: ignore[union-attr]
        ids, parents = tree.under(text[-1])
        target.forward([Row(sequence, ids, parents=parents)])
        # The model's first check was captured before the drafter watched layers.
        compare(
            graph for key, graph in target.graphs.captured.items() if key[0] == "read" and key[-1] == target.watched
        )
        sequence.keep([0, 1])
        text.append(ids[1])
        text.append(7)
        assert sequence.inputs == text[:-1]


def compare(graphs: Iterable[capture.Captured]) -> None:
    """What the latest replay of each left behind, with the same function launched piece by piece."""
    for graph in graphs:
        assert graph.graph is not None
        graph.graph.replay()
        captured = [found.clone() for found in graph._found]
        for a, b in zip(captured, graph.uncaptured(), strict=True):
            torch.testing.assert_close(a, b, rtol=2e-2, atol=2e-2)


# ---------------------------------------------------------------- texts


@pytest.mark.parametrize("beam", [1, 4])
def test_greedy_text_is_that_of_plain_decoding(model: LanguageModel, beam: int) -> None:
    for seed in range(2):
        prefix = [int(n) for n in np.random.default_rng(seed).integers(0, 256, 6)]
        plain = [t.id for t in generate(model, None, prefix, "off", temperature=0, length=30, stop_ids=frozenset())]
        drafter = Eagle3Drafter(head_for(model, seed), model, beam=beam)
        made = generate(model, drafter, prefix, temperature=0, length=30, tree_size=12, stop_ids=frozenset())
        assert [t.id for t in made] == plain
        assert made.statistics.proposed > 0


def test_sampled_text_is_that_of_plain_decoding(model: LanguageModel) -> None:
    """Out of five tokens: the rule leaves most of the draft vocabulary. The draws are those of the seed alone, so each
    text, and not only their distribution, is that of plain decoding."""

    def rule(ids: torch.Tensor, logits: torch.Tensor) -> torch.Tensor:
        cropped = torch.full_like(logits, -torch.inf)
        cropped[..., 60:65] = 3 * logits[..., 60:65]
        return cropped

    drafter = Eagle3Drafter(head_for(model, 3, 6), model, beam=4, depth=2)
    sequence, accepted, texts = model.open(), 0, set[tuple[int, ...]]()
    for seed in range(20):
        of_seed: dict[str, Any] = {"rule": rule, "seed": seed, "length": 12, "sequence": sequence}
        made = generate(model, drafter, PREFIX, tree_size=6, curve=FLAT, **of_seed)
        text = [token.id for token in made]
        assert text == [token.id for token in generate(model, None, PREFIX, "off", **of_seed)]
        texts.add(tuple(text))
        accepted += made.statistics.accepted
    assert accepted > 50
    assert len(texts) > 10


# ---------------------------------------------------------------- what cannot be


def test_another_targets_head_and_targets_without_features_are_refused(model: LanguageModel) -> None:
    other = HeadConfig(hidden_size=16, intermediate_size=8, num_attention_heads=2, vocab_size=300, draft_vocab_size=10)
    with pytest.raises(HeadError, match="for a target with 300 tokens and width 16"):
        Eagle3Drafter(Eagle3Head(other), model)

    class Without(LanguageModel):
        backend, device, name = "llama.cpp", "cpu", "model"
        vocab_size, dim = 300, 32
        open = close = _forward = None  # type: ignore[assignment]

    Without.__abstractmethods__ = frozenset()
    with pytest.raises(BackendUnavailable, match="on cpu does not provide hidden states"):
        Eagle3Drafter(head_for(model), Without())  # type: ignore[abstract]
