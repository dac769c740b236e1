"""Sequences on every engine: whatever passes, trees, rewinds and forks came before, logits are those of the same text
computed anew, and what cannot be done changes nothing."""

from __future__ import annotations

import gc
import random
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

import pytest
import tiny_recurrent
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from tiny_models import CONTEXT, VOCAB, Replayed
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence
from transformers.models.auto.modeling_auto import AutoModelForCausalLM

from core.errors import ContextFull, InputError
from core.models import LanguageModel, Row, capture, hf, llamacpp
from core.models.base import Sequence, path_to
from core.models.llamacpp import MAX_SEQUENCES
from core.models.static import StaticModel
from core.models.torch_model import TorchModel

pytestmark = pytest.mark.usefixtures("small_scale")

LINES = 5  # of a static cache
LAYERS = (0, 1, 1)  # that are watched
TORCH = ("llama", "compiled llama", "gpt2", "gemma3", "mistral", "bloom")
STATIC = ("static llama", "static gpt2", "static gemma3")
RECURRENT = tiny_recurrent.NAMES
IDS = [504, 3575, 282, 4649, 314, 7042, 30]


Anew = Callable[[list[Tensor]], tuple[list[Tensor], list[Tensor]]]


@dataclass
class Engine:
    """A model; `anew` computes logits (n, V) after embeddings (n, D) of each of some texts, without a cache, and the
    states that enter the watched layers, (n, 3 · D)."""

    model: LanguageModel
    anew: Anew
    apart: float  # of a logit
    mixes: bool = True  # passes of mixtures may be followed by any other

    def check(self, texts: list[Tensor], found: list[Tensor], held: list[Held]) -> None:
        watching = [one for one in held if self.model.watched and one.sequence.length]
        logits, features = self.anew([*texts, *(one.fed for one in watching)]) if texts or watching else ([], [])
        for x, expected in zip(found, logits, strict=False):
            torch.testing.assert_close(x, expected[-len(x) :], rtol=1e-4, atol=self.apart)
        for one, expected in zip(watching, features[len(texts) :], strict=True):
            torch.testing.assert_close(one.sequence.features, expected, rtol=1e-4, atol=self.apart)

    def after(self, ids: list[int]) -> Tensor:
        return self.anew([self.model.embedded(ids)])[0][0][-1]


@pytest.fixture(scope="module")
def careless() -> Iterator[None]:
    """Results of a graph last until the next one, and llama.cpp has one thread."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(capture, "Captured", Replayed)
        patch.setattr(llamacpp, "cores", lambda: 1)  # a second thread of a tiny model only waits for the first
        yield


@pytest.fixture(scope="module")
def engines(
    careless: None,
    tiny_folder: Callable[[str], Path],
    tmp_path_factory: pytest.TempPathFactory,
    request: pytest.FixtureRequest,
) -> Callable[[str], Engine]:
    made: dict[str, Engine] = {}

    def by_transformers(kind: str) -> Anew:
        module = AutoModelForCausalLM.from_pretrained(tiny_folder(kind), dtype=torch.float32).eval()

        def anew(texts: list[Tensor]) -> tuple[list[Tensor], list[Tensor]]:
            padded = pad_sequence(texts, batch_first=True)  # no position sees a later one
            with torch.no_grad():
                out = module(inputs_embeds=padded, use_cache=False, output_hidden_states=True)
            both = out.logits, torch.cat([out.hidden_states[layer] for layer in LAYERS], -1)
            logits, features = ([x[: len(text)] for x, text in zip(part, texts, strict=True)] for part in both)
            return logits, features

        return anew

    def get(name: str) -> Engine:
        if name == "llama.cpp":
            # Its sums of rounded numbers depend on the order of its cells, which moves this model's logits by up to
            # 0.15; a token that is left out of a path moves them by 1 or more.
            return by_llama_cpp(request.getfixturevalue("tiny_llama"), 0.35)
        if name in RECURRENT and name not in made:
            path = tmp_path_factory.mktemp("recurrent") / "tiny.gguf"
            path.write_bytes(tiny_recurrent.file_of(name).written())
            made[name] = by_llama_cpp(llamacpp.load(path, name), 5e-3, mixes=False)  # keys and values have 16 bits
        elif name not in made:
            kind = name.removeprefix("static ")
            model: LanguageModel = hf.load(tiny_folder(kind), kind, plain="compiled" not in kind)
            if kind != name:
                assert isinstance(model, TorchModel)
                model = StaticModel(model, lines=LINES, capacity=CONTEXT)
                model.few = 9  # both ways to read are taken
            model.watch(LAYERS)
            made[name] = Engine(model, by_transformers(kind), 3e-4)
        return made[name]

    return get


def by_llama_cpp(model: LanguageModel, apart: float, mixes: bool = True) -> Engine:
    def anew(texts: list[Tensor]) -> tuple[list[Tensor], list[Tensor]]:
        found: list[Tensor] = []
        for text in texts:
            sequence = model.open()
            found += model.forward([Row(sequence, text, every=True)])
            sequence.close()
        return found, []

    return Engine(model, anew, apart, mixes)


@pytest.fixture(scope="module", params=[*TORCH, *STATIC, "llama.cpp", *RECURRENT])
def engine(engines: Callable[[str], Engine], request: pytest.FixtureRequest) -> Engine:
    return engines(request.param)


@dataclass
class Held:
    """A sequence with embeddings (length, D) of its inputs, and its tree if it has one."""

    sequence: Sequence
    fed: Tensor
    tree: tuple[list[int], list[int]] | None = None


@settings(max_examples=40)
@given(data=st.data())
def test_any_program_of_passes_trees_rewinds_and_forks_equals_computing_everything_anew(
    engine: Engine, data: st.DataObject
) -> None:
    model = engine.model
    places: list[int] = getattr(model, "_free", getattr(model, "_free_ids", []))
    free = len(places)
    held = [Held(model.open(), torch.empty(0, model.dim))]
    texts: list[Tensor] = []  # after which there were these logits
    found: list[Tensor] = []

    def inputs_of(one: Held, most: int) -> Row:
        n = data.draw(st.integers(1, min(CONTEXT - one.sequence.length, most)), label="n")
        chance = random.Random(data.draw(st.integers(0, 99), label="of ids"))  # 20 drawn ids take a pass's time
        ids = chance.choices(range(min(VOCAB, model.vocab_size)), k=n)
        how = data.draw(st.sampled_from(["ids", "tree", "mixtures"][: 2 + engine.mixes]))
        if how == "mixtures":
            return Row(one.sequence, 0.7 * model.embedded(ids) + 0.3 * model.embedded(ids[::-1]), every=n % 2 == 0)
        if how == "ids":
            every, silent = data.draw(st.sampled_from([(True, False), (False, False), (False, True)]))
            return Row(one.sequence, ids, every=every, silent=silent)
        parents = [chance.randrange(-1, i) if model.takes_trees else i - 1 for i in range(n)]
        return Row(one.sequence, ids, parents=parents)

    def run(chosen: list[Held], most: int) -> None:
        before, rows = model.tokens_fed, [inputs_of(one, most) for one in chosen]
        outputs = model.forward(rows)
        assert model.tokens_fed - before == sum(len(row.inputs) for row in rows)
        for one, row, logits in zip(chosen, rows, outputs, strict=True):
            vectors = row.inputs if isinstance(row.inputs, Tensor) else model.embedded(row.inputs)
            if row.parents is not None:
                one.tree = list(row.inputs), row.parents  # pyright: ignore[reportAttributeAccessIssue]
                for node in {*range(len(vectors))} - {*row.parents}:
                    path = path_to(node, row.parents)
                    texts.append(torch.cat([one.fed, vectors[path]]))
                    found.append(logits[path])
                continue
            one.fed, one.tree = torch.cat([one.fed, vectors]), None
            assert logits.shape == ((0,) if row.silent else (len(vectors), model.vocab_size)[not row.every :])
            if not row.silent:
                texts.append(one.fed)
                found.append(logits if row.every else logits[None])

    try:
        for _ in range(data.draw(st.integers(3, 9), label="steps")):
            do = data.draw(st.sampled_from(["pass", "step", "pass", "keep", "keep", "fork", "rewind", "open", "close"]))
            one = held[data.draw(st.integers(0, len(held) - 1), label="which")]
            if do in ("pass", "step"):
                some = st.lists(st.sampled_from(range(len(held))), min_size=1, unique=True)
                chosen = [held[i] for i in data.draw(some)] if do == "pass" else held
                if chosen := [each for each in chosen if each.sequence.length < CONTEXT]:
                    run(chosen, 1 if do == "step" else 21)
            elif do == "keep" and one.tree is not None:
                ids, parents = one.tree
                path = path_to(data.draw(st.integers(-1, len(ids) - 1), label="keep"), parents)
                one.sequence.keep(path)
                one.fed, one.tree = torch.cat([one.fed, model.embedded([ids[node] for node in path])]), None
            elif do == "rewind":
                one.sequence.rewind(length := data.draw(st.integers(0, one.sequence.length), label="to"))
                one.fed, one.tree = one.fed[:length], None
            elif do in ("fork", "open") and len(held) < LINES:
                held.append(Held(one.sequence.fork(), one.fed) if do == "fork" else Held(model.open(), one.fed[:0]))
                one.tree = None if do == "fork" else one.tree
            elif do == "close" and len(held) > 1:
                one.sequence.close()
                held.remove(one)
            assert [each.sequence.length for each in held] == [len(each.fed) for each in held]
        engine.check(texts, found, held)
    finally:
        for each in held:
            each.sequence.close()
    assert len(places) >= free, "every place in the cache was given back"


@pytest.mark.parametrize("name", ["compiled llama", "static llama", "llama.cpp"])
def test_whatever_else_is_done_forgets_the_tree(engines: Callable[[str], Engine], name: str) -> None:
    model = engines(name).model
    steps: list[Callable[[Sequence], object]] = [
        lambda s: s.feed([9]),
        lambda s: s.feed_embedding(model.embedded([3])[0]),
        lambda s: s.rewind(1),
        lambda s: s.fork().close(),
    ]
    for step in steps:
        sequence = model.open()
        sequence.feed([1, 2])
        sequence.feed_tree([5, 6, 7], [-1, -1, 0])
        step(sequence)
        with pytest.raises(InputError, match="no tree"):
            sequence.keep([0])
        sequence.close()


@pytest.mark.parametrize("name", ["llama", "compiled llama", "static llama", "llama.cpp"])
def test_what_cannot_be_done_is_named_and_changes_nothing(engines: Callable[[str], Engine], name: str) -> None:
    engine = engines(name)
    model = engine.model
    one, full = model.open(), model.open()
    one.feed([1, 2])
    full.feed([3] * 7)
    fed, room = model.tokens_fed, model.context_length
    wrong: list[tuple[list[Row], type[Exception], str]] = [
        ([Row(one, [4]), Row(full, [5] * room)], ContextFull, f"7 positions are held and {room} more.* {room}"),
        ([Row(one, [4]), Row(one, [5])], InputError, "appears twice"),
        ([Row(one, [])], InputError, "No input"),
        ([Row(one, [4, -1])], InputError, "Token id -1 is outside"),
        ([Row(one, [model.vocab_size])], InputError, "outside the vocabulary"),
        ([Row(one, torch.zeros(1, 5))], InputError, r"shape \(1, 5\)"),
        ([Row(one, model.embedded([4, 5]), parents=[-1, 0])], InputError, "A tree of embeddings"),
        *(([Row(one, [5, 6], parents=each)], InputError, "parent") for each in ([0, 0], [-1, 1], [-2, 0], [-1])),
        ([Row(one, [4]), Row(engines("gpt2").model.open(), [4])], InputError, "another model"),
    ]
    for rows, error, said in wrong:
        with pytest.raises(error, match=said):
            model.forward(rows)
    assert (one.inputs, full.length, model.tokens_fed) == ([1, 2], 7, fed)
    one.feed_tree([5, 6, 7], [-1, 0, 0])
    for path in ([1], [0, 0], [3], [0, 1, 2]):
        with pytest.raises(InputError, match="not a path"):
            one.keep(path)
    one.keep([0, 2])
    torch.testing.assert_close(one.feed([9]), engine.after([1, 2, 5, 7, 9]), rtol=1e-4, atol=engine.apart)
    for each in (one, full):
        each.close()
        each.close()
        with pytest.raises(InputError, match="closed"):
            each.feed([1])
        with pytest.raises(InputError, match="closed"):
            each.fork()


def test_logits_belong_to_the_caller(engines: Callable[[str], Engine]) -> None:
    engine = engines("compiled llama")
    sequence = engine.model.open()
    for logits in (sequence.feed([1, 2]), sequence.sync([1, 2])):
        logits[:] = 0  # must be allowed, and must not change the cached logits
    torch.testing.assert_close(sequence.sync([1, 2]), engine.after([1, 2]), rtol=1e-4, atol=3e-4)
    torch.testing.assert_close(sequence.feed([3]), engine.after([1, 2, 3]), rtol=1e-4, atol=3e-4)


def test_a_model_that_counts_its_own_positions_takes_chains_only(engines: Callable[[str], Engine]) -> None:
    model = engines("bloom").model
    assert not model.takes_trees
    with pytest.raises(InputError, match="chain"):
        model.open().feed_tree([5, 6], [-1, -1])


# --- llama.cpp's own cells and ids


@pytest.fixture(scope="module")
def own_llama(tiny_default: Path) -> Iterator[LanguageModel]:
    """As `tiny_llama`, but no other file holds any of its sequences."""
    with closing(llamacpp.load(tiny_default, "tiny")) as model:
        yield model


def test_a_kept_path_is_bit_for_bit_what_the_same_cells_hold_without_a_tree(own_llama: LanguageModel) -> None:
    """llama.cpp's sums depend on the order of its cells. A rejected token leaves a hole that later tokens fill; so does
    another sequence that was closed. The two give the same bits, and both differ from a cache without holes."""
    text = [504, 338, 253, 1109, 282, 260]
    other, plain, tree = own_llama.open(), own_llama.open(), own_llama.open()
    plain.feed(IDS)
    other.feed([9])
    plain.feed(text[:2])
    other.close()
    with_hole = plain.feed(text[2:])
    plain.close()
    tree.feed(IDS)
    tree.feed_tree([9, *text[:2]], [-1, -1, 1])
    tree.keep([1, 2])
    assert torch.equal(tree.feed(text[2:]), with_hole)
    tree.close()


def test_every_sequence_id_is_given_back(own_llama: LanguageModel) -> None:
    tree = own_llama.open()
    tree.feed(IDS)
    tree.feed_tree([5, 6, 7], [-1, -1, 0])
    del tree  # with the ids of its branches
    gc.collect()
    opened: list[Sequence] = []
    with pytest.raises(ContextFull, match=f"All {MAX_SEQUENCES} sequences"):
        while len(opened) < 1000:
            opened.append(own_llama.open())
    assert len(opened) == MAX_SEQUENCES
    for sequence in opened:
        sequence.close()
