"""EAGLE-3 heads as drafters: features of the right positions, trees that are the head's own, and lossless texts."""

from __future__ import annotations

from collections import Counter
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
import torch
from test_speculative import chi_squared
from tiny_models import save_model, tiny

from core.errors import BackendUnavailable, InputError
from core.models import hf
from core.models.base import LanguageModel
from core.speculative import generate
from core.speculative.cost import CostCurve
from core.speculative.drafters import Eagle3Drafter, Moment
from core.speculative.eagle3 import Eagle3Head, HeadConfig, HeadError
from core.speculative.target import Choice

torch.set_num_threads(1)
LAYERS = (0, 1, 1)
PREFIX = [72, 101, 108, 108, 111]
FLAT = CostCurve((1, 32), (10.0, 11.0))


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_model(tmp_path_factory.mktemp("models") / "llama", tiny("llama"))


@pytest.fixture(scope="module")
def model(folder: Path) -> LanguageModel:
    return hf.load(folder, "tiny")


@pytest.fixture(scope="module")
def plain_layers(folder: Path) -> LanguageModel:
    return hf.load(folder, "tiny", lean=False)


def head_for(model: LanguageModel, seed: int = 0, size: int = 40) -> Eagle3Head:
    torch.manual_seed(seed)
    config = HeadConfig(
        hidden_size=model.dim,
        intermediate_size=48,
        num_attention_heads=4,
        num_key_value_heads=2,
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


def test_both_torch_paths_hand_over_the_same_features(model: LanguageModel, plain_layers: LanguageModel) -> None:
    """Of fed tokens, of a path of a tree that was kept, and after a rewind: as of the text in one pass."""
    found = []
    for each in (model, plain_layers):
        each.watch(LAYERS)
        sequence = each.open()
        sequence.feed(PREFIX)
        sequence.feed_tree([1, 2, 3, 4, 5], [-1, 0, 0, 2, -1])
        sequence.keep([0, 2, 3])
        sequence.rewind(7)
        sequence.feed([9, 8])
        text = [*PREFIX, 1, 3, 9, 8]
        assert sequence.inputs == text
        whole = each.open()
        whole.feed(text)
        assert whole.features is not None and sequence.features is not None
        assert sequence.features.shape == (9, 3 * each.dim)
        torch.testing.assert_close(sequence.features, whole.features, atol=1e-5, rtol=1e-4)
        fork = sequence.fork()
        fork.feed([7])
        assert fork.features is not None and fork.features.shape[0] == 10
        found.append(sequence.features.clone())
        each.watch(())
        assert sequence.features is None
    torch.testing.assert_close(found[0], found[1], atol=1e-5, rtol=1e-4)
    # The first of the layers is entered by the embeddings themselves.
    torch.testing.assert_close(found[0][:, : model.dim], model.embeddings[torch.tensor(text)])


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
) -> float:
    """ln q of a path after the text, computed by the module, token by token."""
    with torch.no_grad():
        text = torch.tensor(ids)
        out, held = head(model.embeddings[text[1:]][None], head.fuse(features)[None], torch.arange(len(ids) - 1))
        f, total = out[:, -1:], 0.0
        for depth, token in enumerate(path):
            logq = head.logits(f[0, 0]).log_softmax(-1)
            total += float(logq[head.vocabulary.tolist().index(token)])
            at = torch.tensor([len(ids) - 1 + depth])
            f, held = head(model.embeddings[torch.tensor([[token]])], f, at, held)
        return total


def test_the_tree_is_what_the_head_says(model: LanguageModel, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each path has the product of the module's probabilities; after every kind of growth of the text."""
    monkeypatch.setattr(torch.ops.mkldnn, "_is_mkldnn_bf16_supported", lambda: False)  # exact arithmetic
    head = head_for(model)
    drafter = Eagle3Drafter(head, model, beam=3, depth=4, most=9)
    sequence = model.open()
    chance = np.random.default_rng(0)
    for text in (PREFIX, [*PREFIX, 70, 71, 72], [*PREFIX, 70, 71, 72, 80], [*PREFIX, 70, 90], [90, 91]):
        sequence.sync(text[:-1])
        features = sequence.features
        assert features is not None
        tree = drafter.draft(Moment(text, None, features), 6, chance)
        assert 0 < len(tree) <= 9
        assert max(tree.depths) <= 3
        products = tree.products()
        for place in range(len(tree)):
            path = [tree.ids[i] for i in tree.path(place)]
            assert np.log(products[place]) == pytest.approx(by_the_head(head, model, text, features, path), abs=1e-3)
        roots = [tree.ids[i] for i in tree.children()[-1]]
        out = by_the_head(head, model, text, features, [roots[0]])
        assert all(out >= by_the_head(head, model, text, features, [other]) - 1e-4 for other in range(60, 100))


def test_what_is_proposed_is_the_likeliest_of_what_was_looked_at(model: LanguageModel) -> None:
    sequence = model.open()
    head = head_for(model)
    small, large = (Eagle3Drafter(head, model, beam=4, depth=3, most=most) for most in (6, 36))
    sequence.feed(PREFIX[:-1])
    chance = np.random.default_rng(0)
    few, many = (d.draft(Moment(PREFIX, None, sequence.features), 3, chance) for d in (small, large))
    assert (len(few), len(many)) == (6, 36)
    best = np.sort(many.products())[::-1]
    assert np.allclose(np.sort(few.products())[::-1], best[:6], rtol=1e-5)
    assert all(parent < place for place, parent in enumerate(many.parents))
    children = many.children()
    assert all(len({many.ids[i] for i in places}) == len(places) for places in children.values())
    assert all(
        many.confidence[a] >= many.confidence[b] - 1e-6 for places in children.values() for a, b in pairwise(places)
    )


# ---------------------------------------------------------------- texts


@pytest.mark.parametrize("beam", [1, 4])
def test_greedy_text_is_that_of_plain_decoding(model: LanguageModel, beam: int) -> None:
    for seed in range(4):
        prefix = [int(n) for n in np.random.default_rng(seed).integers(0, 256, 6)]
        plain = [t.id for t in generate(model, None, prefix, "off", temperature=0, length=30, stop_ids=frozenset())]
        drafter = Eagle3Drafter(head_for(model, seed), model, beam=beam)
        made = generate(model, drafter, prefix, temperature=0, length=30, tree_size=12, stop_ids=frozenset())
        assert [t.id for t in made] == plain
        assert made.statistics.proposed > 0


def test_samples_have_the_distribution_of_plain_decoding(model: LanguageModel) -> None:
    """Three tokens, out of five: the rule leaves most of the draft vocabulary."""

    def rule(ids: torch.Tensor, logits: torch.Tensor) -> torch.Tensor:
        cropped = torch.full_like(logits, -torch.inf)
        cropped[..., 60:65] = 12 * logits[..., 60:65]
        return cropped

    runs = 800
    choice = Choice(1.0, rule)
    sequence = model.open()
    drafter = Eagle3Drafter(head_for(model, 3, 6), model, choice, beam=4, depth=2)
    expected: dict[tuple[int, ...], float] = {}
    first = choice.probabilities(sequence.sync(PREFIX), PREFIX)
    for a in range(model.vocab_size):
        if first[a] > 0:
            second = choice.probabilities(sequence.sync([*PREFIX, a]), [*PREFIX, a])
            for b in np.flatnonzero(second):
                third = choice.probabilities(sequence.sync([*PREFIX, a, int(b)]), [*PREFIX, a, int(b)])
                expected |= {(a, int(b), int(c)): first[a] * second[b] * third[c] for c in np.flatnonzero(third)}
    seen: Counter = Counter()
    accepted = 0
    for seed in range(runs):
        made = generate(
            model, drafter, PREFIX, rule=rule, seed=seed, length=3, tree_size=6, sequence=sequence, curve=FLAT
        )
        seen[tuple(t.id for t in made)] += 1
        accepted += made.statistics.accepted
    assert accepted > 50
    assert chi_squared(seen, expected, runs) < 4


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
    with pytest.raises(BackendUnavailable, match="on cpu does not give hidden states"):
        Eagle3Drafter(head_for(model), Without())  # type: ignore[abstract]
