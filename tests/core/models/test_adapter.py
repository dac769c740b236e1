"""Low-rank adapters: engines compute what merged weights compute, and files are in the layout of `peft`, or refused."""

from __future__ import annotations

import copy
import json
import os
import stat
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import safetensors.torch
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from tiny_models import computed
from torch import Tensor
from transformers import PreTrainedModel

from core.errors import BackendUnavailable
from core.models import gguf_file, hf, native_gguf
from core.models.adapter import (
    CONFIG,
    PROJECTIONS,
    WEIGHTS,
    Adapter,
    AdapterError,
    LowRank,
    Projection,
    Result,
    load,
    projections,
    save,
    tensor_name,
)
from core.models.base import LanguageModel
from core.models.llama import NativeLlama
from core.models.static import StaticModel
from core.models.torch_model import TorchModel
from tests.core.models.test_coded import module_and_compiled
from tests.core.models.test_native import module_of

RESULT = Result(1000, 100, 0.2, 0.05)


def adapter_for(
    shapes: dict[Projection, tuple[int, int]], names: Sequence[str], rank: int = 3, size: float = 0.3, seed: int = 0
) -> Adapter:
    chance = torch.Generator().manual_seed(seed)
    maps = {
        projection: LowRank(
            torch.randn(rank, inputs, generator=chance) * size, torch.randn(out, rank, generator=chance) * size
        )
        for projection, (out, inputs) in sorted(shapes.items())
        if projection[1] in names
    }
    return Adapter(maps, 2.0 * rank, "a model", RESULT)


def rounded(adapter: Adapter) -> Adapter:
    """The same with numbers that bfloat16 can represent, as files have them."""
    maps = {
        projection: LowRank(*(x.to(torch.bfloat16).to(torch.float32) for x in (low.a, low.b)))
        for projection, low in adapter.maps.items()
    }
    return replace(adapter, maps=maps)


def merged(module: PreTrainedModel, adapters: Sequence[tuple[Adapter, float]]) -> Any:
    """A copy of the module with the changes added to its weights."""
    changed: Any = copy.deepcopy(module)
    linears = projections(changed.named_modules())
    for adapter, strength in adapters:
        for projection, low in adapter.maps.items():
            linears[projection].weight += strength * adapter.scale * (low.b @ low.a)
    return changed


# ---------------------------------------------------------------- engines


@settings(max_examples=20)
@given(
    names=st.lists(st.sampled_from(list(PROJECTIONS)), min_size=1, max_size=7, unique=True),
    ranks=st.lists(st.integers(1, 9), min_size=1, max_size=3),
    lines=st.integers(1, 3),
    n=st.integers(1, 30),
    threads=st.integers(1, 3),
    layer=st.integers(0, 1),
)
def test_any_adapters_on_any_projections_add_up(
    names: list[str], ranks: list[int], lines: int, n: int, threads: int, layer: int
) -> None:
    module = module_of("llama")
    made = NativeLlama.of(module, torch.float32)
    adapters: list[tuple[Adapter, float]] = []
    for number, rank in enumerate(ranks):  # the second has other projections, and one layer alone
        chosen = names if number != 1 else ["k_proj", "up_proj"]
        adapter = adapter_for(made.projections, chosen, rank, 0.2, seed=number)
        if number == 1:
            adapter = replace(
                adapter, maps={projection: low for projection, low in adapter.maps.items() if projection[0] == layer}
            )
        adapters.append((adapter, 1 / (number + 1)))
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    ids = torch.randint(0, 101, (lines, n))
    made.adapt(adapters)
    try:
        ours = computed(made, ids)
    finally:
        torch.set_num_threads(before)
    expected = merged(module, adapters)(input_ids=ids, use_cache=False).logits
    torch.testing.assert_close(ours, expected, atol=1e-4 * float(expected.abs().max()), rtol=1e-4)


def of_model(model: LanguageModel, adapter: Adapter) -> Adapter:
    return replace(adapter, model=model.fingerprint)


def test_torch_layers_and_a_static_cache_use_adapters_too(tiny_folder: Callable[[str], Path]) -> None:
    for kind in ("llama", "gemma3"):
        plain = hf.load(tiny_folder(kind), "tiny", plain=True)
        module = plain.layers.module
        adapter = of_model(plain, adapter_for(plain.layers.projections, ["q_proj", "down_proj"], size=0.1))
        ids = [5, 6, 7, 8]
        before = plain.open().feed_every(ids)
        with torch.inference_mode():
            expected = merged(module, [(adapter, 0.5)])(input_ids=torch.tensor([ids])).logits[0]
        for model in (plain, StaticModel(plain, lines=2, capacity=32)):
            model.adapt([(adapter, 0.5)])
            torch.testing.assert_close(model.open().feed_every(ids), expected, atol=1e-3, rtol=1e-3)
            assert not torch.allclose(before, expected, atol=1e-2)
            model.adapt([])
            torch.testing.assert_close(model.open().feed_every(ids), before, atol=1e-4, rtol=1e-4)


def test_weights_in_a_few_bits_and_an_adapter_give_the_logits_of_merged_weights(tmp_path: Path) -> None:
    for kind in ("Q4_1", "mixed"):
        module, made = module_and_compiled(kind, tmp_path / f"{kind}.gguf")
        adapter = rounded(adapter_for(made.projections, ["q_proj", "v_proj", "o_proj", "down_proj"], 8, 0.1))
        ids = torch.randint(0, 101, (2, 30))
        expected = merged(module, [(adapter, 1.0)])(input_ids=ids, use_cache=False).logits
        scale = float(expected.abs().max())
        before = computed(made, ids)
        made.adapt([(adapter, 1.0)])
        torch.testing.assert_close(computed(made, ids), expected, atol=1e-4 * scale, rtol=1e-4)
        assert not torch.allclose(before, expected, atol=1e-2 * scale)
        made.adapt([])
        assert torch.equal(computed(made, ids), before)


def test_where_inputs_are_rounded_the_factors_are_bytes_and_change_the_logits_alike(tmp_path: Path) -> None:
    path = tmp_path / "file.gguf"
    module_and_compiled("Q4_1", path)
    made = native_gguf.read(gguf_file.read(path), rounded=True)
    assert made is not None
    names = ["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"]
    adapters = [(adapter_for(made.projections, names, 8, 0.1), 1.0), (adapter_for(made.projections, names[2:], 3), 0.5)]
    ids = torch.randint(0, 101, (2, 30))
    before = computed(made, ids)
    made.adapt(adapters)
    in_bytes = computed(made, ids)
    made._compiled._model.rounded = 0  # while the factors are stored
    made._compiled._adapted.clear()
    made.adapt(adapters)
    made._compiled._model.rounded = 1
    in_float32 = computed(made, ids)
    made.adapt([])
    assert torch.equal(computed(made, ids), before)
    effect, error = (in_float32 - before).norm(), (in_bytes - in_float32).norm()
    assert 0 < error < 0.05 * effect


def test_llama_cpp_uses_the_same_adapter(llama_model: LanguageModel, torch_model: TorchModel) -> None:
    """llama.cpp rounds what goes into a product, so the logits differ; what the adapter changes in them does not."""
    shapes = torch_model.layers.projections
    one = of_model(torch_model, adapter_for(shapes, ["q_proj", "k_proj", "down_proj"], 8, 0.08))
    other = of_model(torch_model, adapter_for(shapes, ["v_proj", "o_proj", "gate_proj", "up_proj"], 4, 0.06, seed=1))
    ids = list(range(500, 520))

    def changes(model: LanguageModel) -> list[Tensor]:
        found: list[Tensor] = []
        try:
            for adapters in ([], [(one, 1.0)], [(one, 0.5), (other, 1.0)], []):
                model.adapt(adapters)
                found.append(model.open().feed_every(ids))
        finally:
            model.adapt([])
        assert torch.allclose(found[0], found[-1], atol=1e-3)
        return [after - found[0] for after in found[1:-1]]

    for ours, theirs in zip(changes(torch_model), changes(llama_model), strict=True):
        assert float(ours.std()) > 0.5
        alike = torch.cosine_similarity(ours.flatten(), theirs.flatten(), 0)
        assert float(alike) > 0.95
    with pytest.raises(AdapterError, match="another model"):
        llama_model.adapt([(replace(one, model="another"), 1.0)])


def test_an_adapter_of_another_model_is_refused(tiny_folder: Callable[[str], Path]) -> None:
    model = hf.load(tiny_folder("compiled llama"), "tiny")
    adapter = adapter_for(model.layers.projections, ["q_proj"])
    with pytest.raises(AdapterError, match="another model"):
        model.adapt([(adapter, 1.0)])
    (projection, low), *_ = adapter.maps.items()
    narrow = replace(of_model(model, adapter), maps={projection: LowRank(low.a[:, 1:], low.b)})
    beyond = replace(of_model(model, adapter), maps={(2, "q_proj"): low})
    for wrong in (narrow, beyond):
        with pytest.raises(AdapterError, match="q_proj of layer"):
            model.adapt([(wrong, 1.0)])
    model.adapt([(of_model(model, adapter), 1.0)])


def test_adapters_that_alternate_take_no_pass_once_they_are_tried(tiny_folder: Callable[[str], Path]) -> None:
    """Two tabs, one with prose and one without, switch at every key."""
    model = hf.load(tiny_folder("compiled llama"), "tiny")
    adapter = of_model(model, adapter_for(model.layers.projections, ["q_proj"]))
    model.adapt([(adapter, 1.0)])
    fed = model.tokens_fed
    for _ in range(3):
        model.adapt([])
        model.adapt([(adapter, 1.0)])
    assert model.tokens_fed == fed
    model.adapt([(adapter, 0.5)])
    assert model.tokens_fed > fed


def test_an_engine_without_adapters_says_so() -> None:
    from table_model import TableModel

    model = TableModel()
    model.adapt([])
    shapes: dict[Projection, tuple[int, int]] = {(0, "q_proj"): (4, 4)}
    with pytest.raises(BackendUnavailable, match="does not use adapters"):
        model.adapt([(adapter_for(shapes, ["q_proj"]), 1.0)])


# ---------------------------------------------------------------- files

SHAPES: dict[Projection, tuple[int, int]] = {(i, name): (12, 8) for i in range(2) for name in ("q_proj", "down_proj")}


def same(a: Adapter, b: Adapter) -> bool:
    both = zip(a.maps.items(), b.maps.items(), strict=True)
    return replace(a, maps={}) == replace(b, maps={}) and all(
        projection == other and torch.equal(low.a, its.a) and torch.equal(low.b, its.b)
        for (projection, low), (other, its) in both
    )


def test_what_is_written_is_read_and_only_the_owner_can_read_it(tmp_path: Path) -> None:
    folder = tmp_path / "me.adapter"
    adapter = rounded(adapter_for(SHAPES, ["q_proj", "down_proj"]))
    for made in (adapter, replace(adapter, alpha=1.0)):
        save(made, folder)
        assert same(load(folder), made)
    assert sorted(path.name for path in folder.iterdir()) == [CONFIG, WEIGHTS]
    if os.name == "posix":
        assert stat.S_IMODE(folder.stat().st_mode) == 0o700
        assert {stat.S_IMODE(path.stat().st_mode) for path in folder.iterdir()} == {0o600}


def test_peft_reads_the_files(tmp_path: Path, tiny_folder: Callable[[str], Path]) -> None:
    from peft import PeftModel

    plain = hf.load(tiny_folder("compiled llama"), "tiny", plain=True)
    module = plain.layers.module
    names = ["q_proj", "v_proj", "down_proj"]
    adapter = rounded(of_model(plain, adapter_for(plain.layers.projections, names, size=0.1)))
    save(adapter, tmp_path)
    ids = torch.tensor([[5, 6, 7, 8]])
    with torch.inference_mode():
        expected = merged(module, [(adapter, 1.0)])(input_ids=ids).logits
        theirs = PeftModel.from_pretrained(copy.deepcopy(module), str(tmp_path))(input_ids=ids).logits
    torch.testing.assert_close(theirs, expected, atol=1e-3, rtol=1e-3)
    compiled = hf.load(tiny_folder("compiled llama"), "tiny")
    compiled.adapt([(load(tmp_path), 1.0)])
    torch.testing.assert_close(compiled.open().feed_every(ids[0].tolist()), theirs[0], atol=1e-3, rtol=1e-3)


def changed(folder: Path, **settings: Any) -> None:
    path = folder / CONFIG
    path.write_text(json.dumps(json.loads(path.read_text()) | settings))


def reweighted(folder: Path, change: Callable[[dict[str, Tensor], dict[str, str]], object]) -> None:
    path = folder / WEIGHTS
    data = path.read_bytes()
    about = json.loads(data[8 : 8 + int.from_bytes(data[:8], "little")])["__metadata__"]
    tensors = safetensors.torch.load(data)
    change(tensors, about)
    path.write_bytes(safetensors.torch.save(tensors, about))


FIRST = tensor_name((0, "down_proj"), "A")
DAMAGES: dict[str, tuple[Callable[[Path], object], str]] = {
    "no configuration": (lambda f: (f / CONFIG).unlink(), "cannot be read"),
    "no weights": (lambda f: (f / WEIGHTS).unlink(), "cannot be read"),
    "a configuration that is no JSON": (lambda f: (f / CONFIG).write_bytes(b"\xff{"), "damaged"),
    "deep JSON": (lambda f: (f / CONFIG).write_text("[" * 100_000), "damaged"),
    "a configuration of something else": (lambda f: changed(f, peft_type="IA3"), "not of a LoRA"),
    "a rank that is no number": (lambda f: changed(f, r="8"), "rank '8'"),
    "a negative rank": (lambda f: changed(f, r=-1), "rank -1"),
    "another rank": (lambda f: changed(f, r=4), "its rank should be 4"),
    "an infinite alpha": (lambda f: changed(f, lora_alpha=float("inf")), "lora_alpha inf"),
    "an absurd alpha": (lambda f: changed(f, lora_alpha=1e6), "lora_alpha 1000000.0"),
    "absurd numbers": (lambda f: reweighted(f, lambda t, _: t[FIRST].fill_(1e19)), "contains 1e[+]19; numbers up to"),
    "another scale": (lambda f: changed(f, use_rslora=True), "use_rslora"),
    "magnitudes": (lambda f: changed(f, use_dora=True), "use_dora"),
    "other ranks": (lambda f: changed(f, rank_pattern={"q_proj": 2}), "rank_pattern"),
    "biases": (lambda f: changed(f, bias="all"), "bias 'all'"),
    "a pickle": (lambda f: torch.save({"x": torch.ones(1)}, f / WEIGHTS), "damaged"),
    "half a file": (lambda f: (f / WEIGHTS).write_bytes((f / WEIGHTS).read_bytes()[:-100]), "damaged"),
    "a header beyond the file": (lambda f: (f / WEIGHTS).write_bytes(b"\xff" * 8 + b"{}"), "damaged"),
    "another name": (lambda f: reweighted(f, lambda t, _: t.update(x=torch.ones(2))), "contains 'x'"),
    "a name of another module": (
        lambda f: reweighted(f, lambda t, _: t.update({FIRST.replace("mlp", "self_attn"): t.pop(FIRST)})),
        "names of `peft`",
    ),
    "half a pair": (lambda f: reweighted(f, lambda t, _: t.pop(FIRST)), "incomplete"),
    "no tensors": (lambda f: reweighted(f, lambda t, _: t.clear()), "incomplete"),
    "whole numbers": (lambda f: reweighted(f, lambda t, _: t.update({FIRST: t[FIRST].int()})), "torch.int32"),
    "an empty matrix": (lambda f: reweighted(f, lambda t, _: t.update({FIRST: torch.ones(3, 0)})), "a matrix"),
    "a vector": (lambda f: reweighted(f, lambda t, _: t.update({FIRST: t[FIRST][0].clone()})), "a matrix"),
    "a number that is none": (lambda f: reweighted(f, lambda t, _: t[FIRST].fill_(torch.nan)), "not finite"),
    "no fingerprint": (lambda f: reweighted(f, lambda _, about: about.pop("polydraft")), "fingerprint"),
    "a fingerprint that is no text": (
        lambda f: reweighted(f, lambda _, about: about.update(polydraft='{"version": 1, "model": 3}')),
        "fingerprint",
    ),
    "no result": (
        lambda f: reweighted(f, lambda _, about: about.update(polydraft='{"version": 1, "model": "m", "gain": NaN}')),
        "result",
    ),
}


@pytest.mark.parametrize("name", DAMAGES)
def test_a_hostile_or_damaged_file_is_refused_in_one_sentence(tmp_path: Path, name: str) -> None:
    save(adapter_for(SHAPES, ["q_proj", "down_proj"]), tmp_path)
    damage, says = DAMAGES[name]
    damage(tmp_path)
    with pytest.raises(AdapterError, match=says) as caught:
        load(tmp_path)
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 500


@settings(max_examples=50)
@given(data=st.data())
def test_a_file_with_wrong_bytes_is_read_or_refused(tmp_path_factory: pytest.TempPathFactory, data: Any) -> None:
    folder = tmp_path_factory.getbasetemp() / "flipped"
    save(adapter_for(SHAPES, ["q_proj"]), folder)
    path = folder / data.draw(st.sampled_from([CONFIG, WEIGHTS]))
    content = bytearray(path.read_bytes())
    for _ in range(data.draw(st.integers(1, 4))):
        content[data.draw(st.integers(0, min(len(content) - 1, 600)))] = data.draw(st.integers(0, 255))
    path.write_bytes(content)
    with suppress(AdapterError):
        assert all(torch.isfinite(low.a).all() for low in load(folder).maps.values())


def test_a_folder_that_cannot_be_written_is_said(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(AdapterError, match="cannot be written"):
        save(adapter_for(SHAPES, ["q_proj"]), tmp_path / "file" / "me.adapter")
