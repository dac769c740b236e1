"""EAGLE-3 heads as drafters: features of the right positions, trees that are the head's own, and lossless texts."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import cache
from itertools import product
from pathlib import Path
from typing import Any, NamedTuple

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
from core.models.base import LanguageModel, Row
from core.models.costs import CostCurve
from core.models.static import StaticModel
from core.models.torch_model import TorchModel
from core.noise import SeededNoise
from core.speculative import generate
from core.speculative.drafters import Moment, eagle3_static
from core.speculative.drafters.eagle3 import Eagle3Drafter
from core.speculative.drafters.eagle3_cpu import CpuTrees
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


class Said(NamedTuple):
    """Of a token of a tree: its probability among its siblings, with the noise, and the head's own after its parent."""

    confidence: float
    likelihood: float


def by_the_head(
    head: Eagle3Head, model: LanguageModel, moment: Moment, levels: int, beam: int, most: int
) -> dict[tuple[int, ...], Said]:
    """The tree by its definition, with each distribution computed by the module: at each level the `beam` most probable
    paths continue, each with its `beam` most probable tokens, and the `most` most probable of all are kept."""
    ids, vocabulary, T = moment.ids, head.vocabulary.tolist(), len(moment.ids)

    @cache
    def after(path: tuple[int, ...]) -> tuple[torch.Tensor, Any]:
        """The output after the text and this path, (1, 1, D), and the cache."""
        if path:
            features, held = after(path[:-1])
            return one_pass(head, model.embedded(path[-1:])[None], features, torch.tensor([T - 2 + len(path)]), held)
        assert moment.features is not None
        output, held = one_pass(
            head, model.embedded(ids[1:])[None], head.fuse(moment.features)[None], torch.arange(T - 1)
        )
        return output[:, -1:], held

    kept: list[tuple[float, tuple[int, ...], Said]] = []
    paths: list[tuple[float, tuple[int, ...]]] = [(0.0, ())]
    for level in range(levels):
        noise = None
        if moment.noise is not None:
            noise = torch.from_numpy(moment.noise.gumbel(T + level, np.array(vocabulary))).float()
        grown: list[tuple[float, tuple[int, ...], Said]] = []
        for total, path in paths:
            with torch.no_grad():
                logits = head.logits(after(path)[0][0, 0])
            q = (logits / moment.temperature).softmax(-1)
            for logp, at in zip(*most_probable(logits, min(beam, len(q)), moment.temperature, noise), strict=True):
                said = Said(float(logp.exp()), float(q[at]))
                grown.append((total + float(logp), (*path, vocabulary[at]), said))
        kept += grown
        paths = [(total, path) for total, path, _ in sorted(grown, key=lambda each: -each[0])[:beam]]
    return {path: said for _, path, said in sorted(kept, key=lambda each: -each[0])[:most]}


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
    drafter = Eagle3Drafter(head_for(model, width=COMPILED_WIDTH), model, beam=3)
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
    max_examples=12,
    derandomize=True,  # where two paths are as likely to the last digit, either may come first
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture],
)
@given(data=st.data())
def test_trees_are_what_the_head_says_after_each_of_the_texts(
    model: LanguageModel, plain_layers: LanguageModel, replayed: None, engine: str, data: st.DataObject
) -> None:
    """For texts that grow at different speeds, end early, are cut back, are the same or others altogether, at any
    depths, and are sampled differently."""
    target = {"plain": model, "compiled": model, "static": behind_a_static_cache(plain_layers)}[engine]
    sizes = st.sampled_from([(4, 5, 12, 2), (6, 6, 32, 2), (1, 3, 32, 1), (50, 2, 8, 4)])
    beam, depth, most, key_heads = data.draw(sizes, label="beam, depth, most, key heads")
    width = COMPILED_WIDTH if engine == "compiled" else PLAIN_WIDTH
    head = head_for(model, key_heads=key_heads, width=width)
    with torch.no_grad():
        for parameter in head.parameters():
            parameter.copy_(parameter.bfloat16())
    drafter = Eagle3Drafter(head, target, beam=beam, depth=depth, most=most)
    assert isinstance(drafter._trees, CpuTrees) == (engine == "compiled")
    new = st.lists(st.integers(0, VOCAB - 1), max_size=4) | st.lists(st.integers(0, VOCAB - 1), min_size=9, max_size=20)
    texts = [[*PREFIX, 3, 4] for _ in range(data.draw(st.integers(1, 4), label="texts"))]
    for _ in range(data.draw(st.integers(1, 4), label="cycles")):
        if len(texts) > 1 and data.draw(st.booleans(), label="one ends"):
            texts.pop(data.draw(st.integers(0, len(texts) - 1)))
        cuts = [data.draw(st.integers(0, 2) | st.integers(0, len(text) - 2), label="cut") for text in texts]
        texts = [
            [*text[: len(text) - n], *data.draw(new, label="new")][:CONTEXT]
            for n, text in zip(cuts, texts, strict=True)
        ]
        depths = [data.draw(st.integers(0, 6), label="levels") for _ in texts]
        moments = []
        for n, text in enumerate(texts):
            sequence = target.open()
            sequence.feed(text[:-1])
            assert sequence.features is not None
            noise, temperature = data.draw(
                st.sampled_from([(None, 1.0), (SeededNoise(1, n), 1.0), (SeededNoise(1), 0.5)])
            )
            whole = data.draw(st.booleans(), label="with distributions")
            moments.append(Moment(text, sequence.features.clone(), noise, temperature, whole))
            sequence.close()
        for tree, moment, levels in zip(drafter.draft_all(moments, depths), moments, depths, strict=True):
            said = by_the_head(head, model, moment, min(levels, depth), beam, most)
            at = tree.indices()
            assert at.keys() == said.keys()
            confidence = [said[path].confidence for path in at]
            assert [tree.confidence[node] for node in at.values()] == pytest.approx(confidence, rel=2e-3)
            if not moment.distributions or not levels:
                assert tree.likelihood is None and not tree.own
                continue
            assert tree.likelihood is not None
            likelihood = [said[path].likelihood for path in at]
            assert [tree.likelihood[node] for node in at.values()] == pytest.approx(likelihood, rel=2e-3)
            assert set(tree.own) == set(tree.parents)
            for node, parent in enumerate(tree.parents):
                q = tree.own[parent].over(VOCAB)
                assert q.sum() == pytest.approx(1.0)
                assert q[tree.ids[node]] == pytest.approx(tree.likelihood[node], rel=1e-3)
    drafter.close()


# ---------------------------------------------------------------- on a static cache


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


@pytest.mark.parametrize("static", [False, True])
def test_texts_are_those_of_plain_decoding(
    model: LanguageModel, plain_layers: LanguageModel, replayed: None, static: bool
) -> None:
    """Out of five tokens: the rule leaves most of the draft vocabulary. The draws are those of the seed alone."""

    def rule(ids: torch.Tensor, logits: torch.Tensor) -> torch.Tensor:
        cropped = torch.full_like(logits, -torch.inf)
        cropped[..., 60:65] = 3 * logits[..., 60:65]
        return cropped

    target = behind_a_static_cache(plain_layers) if static else model
    drafter = Eagle3Drafter(head_for(model, 3, 6), target, beam=4, depth=2)
    accepted, texts = 0, set[tuple[int, ...]]()
    for seed in range(6):
        how: dict[str, Any] = {"rule": rule, "seed": seed, "length": 12, "temperature": min(seed, 1)}
        made = generate(target, drafter, PREFIX, tree_size=6, curve=FLAT, **how)
        text = [token.id for token in made]
        assert text == [token.id for token in generate(target, None, PREFIX, "off", **how)]
        texts.add(tuple(text))
        accepted += made.statistics.accepted
    assert accepted > 15 and len(texts) > 4


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
