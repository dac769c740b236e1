"""Weights in a few bits: the compiled code computes with exactly the values of the GGUF file."""

from __future__ import annotations

import platform
from dataclasses import replace
from pathlib import Path

import gguf
import numpy as np
import pytest
import torch
from gguf.quants import quantize
from hypothesis import given, settings
from hypothesis import strategies as st
from tiny_families import file_of, module_of
from tiny_gguf import Sizes, data_of, tiny
from tiny_gguf import Tensor as TinyTensor
from tiny_models import computed
from torch import Tensor, nn
from transformers import PreTrainedModel

from core.models import gguf_file, gguf_module, load, native_gguf
from core.models.coded import LARGE, Coded, joined, weight_of, weights_of
from core.models.coded import TYPES as TYPES_OF_FILES
from core.models.embeddings import Embeddings
from core.models.gguf_file import GGUFTensor
from core.models.llama import NativeLlama
from core.models.native import Compiled, LayerMaps, Line, Shape, StoredRows
from core.models.torch_model import TorchModel

QUANTIZED = ["Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q8_0"]  # gguf can make them of weights
TYPES = [*QUANTIZED, "Q4_K", "Q5_K", "Q6_K"]
PLAIN = {"F32": torch.float32, "F16": torch.float16, "BF16": torch.bfloat16}


def in_type(weight: Tensor, kind: str, seed: int) -> tuple[gguf.GGMLQuantizationType, bytes]:
    """The type, and the weight in it; a random one in a type that gguf cannot make."""
    of = gguf.GGMLQuantizationType[kind]
    made = kind in QUANTIZED or kind in PLAIN
    return of, quantize(weight.numpy(), of).tobytes() if made else data_of([*weight.shape], of, seed)


def in_a_file(path: Path, tensors: dict[str, tuple[Tensor, str]]) -> dict[str, GGUFTensor]:
    """Write them, each in its type, and read the file."""
    writer = gguf.GGUFWriter(path, "llama")
    for seed, (name, (weight, kind)) in enumerate(tensors.items()):
        of, data = in_type(weight, kind, seed)
        writer.add_tensor(name, np.frombuffer(data, np.uint8).reshape(len(weight), -1), raw_dtype=of)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return gguf_file.read(path).tensors


def as_read(tensor: GGUFTensor) -> Tensor:
    return torch.from_numpy(tensor.unpacked())


@pytest.mark.parametrize("kind", [*TYPES, *PLAIN])
def test_decoded_weights_are_those_of_the_file(tmp_path: Path, kind: str) -> None:
    torch.manual_seed(0)
    weight = torch.randn(70, 512) * torch.logspace(-6, 2, 70)[:, None]  # scales from the least of half precision on
    weight[3] = 0
    tensor = in_a_file(tmp_path / "x.gguf", {"x": (weight, kind)})["x"]
    found, expected = weight_of(tensor), as_read(tensor)
    assert found.shape == (70, 512)
    assert torch.equal(found.float(), expected)
    stored, some = StoredRows.of(found), [5, -1, 69, -70, 5]  # as compiled code has them
    assert torch.equal(stored(torch.arange(70)), expected) and torch.equal(stored(torch.tensor(some)), expected[some])
    assert torch.equal(Embeddings.of_gguf(tensor).rows(some), expected[some])
    for wrong in (70, -71):
        with pytest.raises(IndexError, match="70 rows"):
            stored(torch.tensor([0, wrong]))
    if isinstance(found, Tensor):
        assert found.dtype == PLAIN[kind]
        return
    assert torch.equal(StoredRows.of(found[torch.tensor([5, 5, 0])])(torch.arange(3)), expected[[5, 5, 0]])
    assert torch.equal(StoredRows.of(found.split([30, 40])[1])(torch.arange(40)), expected[30:])


@settings(max_examples=40, deadline=None)
@given(kind=st.sampled_from(TYPES), data=st.data())
def test_blocks_of_any_bytes_are_decoded_as_by_a_reader_of_the_file(kind: str, data: st.DataObject) -> None:
    of = gguf.GGMLQuantizationType[kind]
    inputs, size = gguf.GGML_QUANT_SIZES[of]
    out, blocks = data.draw(st.integers(1, 40)), data.draw(st.integers(1, 3))
    random = np.random.default_rng(data.draw(st.integers(0, 1 << 32)))
    raw = random.integers(0, 256, (out, blocks, size), np.uint8)
    for place in TYPES_OF_FILES[of].halves:  # finite, of any size from the least on
        halves = random.integers(0, LARGE, (out, blocks), np.uint16) | random.choice([0, 0x8000], (out, blocks))
        raw[..., place : place + 2] = halves.astype("<u2")[..., None].view(np.uint8)
    weight = Coded(of, torch.from_numpy(raw.reshape(out, -1)))
    assert weight.shape == (out, blocks * inputs)
    assert torch.equal(StoredRows.of(weight)(torch.arange(out)), weight.float())


def test_maps_that_follow_each_other_in_memory_are_joined_without_a_copy(tmp_path: Path) -> None:
    tensors = in_a_file(tmp_path / "x.gguf", {name: (torch.randn(8, 256), "Q4_K") for name in "qkv"})
    q, k, v = (weight for weight in weights_of([tensors[name] for name in "qkv"]) if isinstance(weight, Coded))
    order = torch.randperm(8)
    for parts, same in (([q[order], k, v], True), ([q[order], v, k], False)):
        (found,) = joined(parts)
        assert isinstance(found, Coded)
        assert (found.blocks.data_ptr() == q.blocks.data_ptr()) == same
        assert torch.equal(found.float(), torch.cat([part.float() for part in parts]))
        assert torch.equal(StoredRows.of(found)(torch.arange(24)), found.float())


def test_an_order_with_a_row_that_a_matrix_lacks_is_refused(tmp_path: Path) -> None:
    weight = weight_of(in_a_file(tmp_path / "x.gguf", {"x": (torch.randn(8, 256), "Q6_K")})["x"])
    assert isinstance(weight, Coded)
    for row in (-1, 8):
        with pytest.raises(ValueError, match="2 outputs"):
            StoredRows.of(replace(weight, order=torch.tensor([0, row])))


def module_and_compiled(kind: str, path: Path) -> tuple[PreTrainedModel, NativeLlama]:
    """Models of a file that has its matrices in a type, or in several: in transformers' layers, and compiled."""
    family = "llama with biases"
    sizes = {"hidden_size": 256, "intermediate_size": 512, "num_attention_heads": 16, "num_key_value_heads": 4}
    made = file_of(family, module_of(family, head_dim=16, **sizes))
    mixture = [*TYPES, *PLAIN]  # queries, keys and values, and gate and up, of different types
    matrices = [name for name, tensor in made.tensors.items() if len(tensor.shape) == 2 and "embd" not in name]
    for i, name in enumerate(matrices):
        weight = torch.from_numpy(np.frombuffer(made.tensors[name].data, np.float32) / 1.5)
        shape = made.tensors[name].shape
        of = mixture[i % len(mixture)] if kind == "mixed" else kind
        made.tensors[name] = TinyTensor(shape, *in_type(weight.view(shape[::-1]), of, i))
    path.write_bytes(made.written())
    file = gguf_file.read(path)
    compiled = native_gguf.read(file)
    assert compiled is not None
    return gguf_module.read(file, torch.device("cpu"), torch.float32), compiled


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> dict[str, tuple[nn.Module, NativeLlama]]:
    folder = tmp_path_factory.mktemp("models")
    return {kind: module_and_compiled(kind, folder / f"{kind}.gguf") for kind in ("Q4_1", "mixed")}


@pytest.mark.parametrize("kind", ["Q4_1", "mixed"])
@settings(max_examples=8)
@given(lines=st.integers(1, 2), n=st.integers(1, 30), threads=st.integers(1, 3), seed=st.integers(0, 99))
def test_logits_are_those_of_the_same_weights_unpacked(
    models: dict[str, tuple[nn.Module, NativeLlama]], kind: str, lines: int, n: int, threads: int, seed: int
) -> None:
    module, made = models[kind]
    torch.manual_seed(seed)
    ids = torch.randint(0, 101, (lines, n))
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        ours = computed(made, ids)
        with torch.inference_mode():
            theirs = module(input_ids=ids, use_cache=False).logits
    finally:
        torch.set_num_threads(before)
    torch.testing.assert_close(ours, theirs, atol=2e-4, rtol=1e-4)


@pytest.mark.parametrize("rounded", [False, True])
def test_codes_of_6_bits_give_the_bits_that_the_same_codes_of_8_bits_give(tmp_path: Path, rounded: bool) -> None:
    torch.manual_seed(4)
    packed = Coded.of(in_a_file(tmp_path / "x.gguf", {"x": (torch.randn(70, 256), "Q5_0")})["x"])
    assert packed is not None
    assert packed.form.bits == 6
    scales = packed.blocks.view(70, 8, -1)[..., :2]
    codes = packed.float().view(70, 8, 32) / scales.contiguous().view(torch.float16).float()
    wide = Coded(
        gguf.GGMLQuantizationType.Q8_0,
        torch.cat([scales, codes.round().to(torch.int8).view(torch.uint8)], -1).flatten(1),
    )
    assert torch.equal(wide.float(), packed.float())
    shape = Shape(dim=256, heads=4, key_heads=4, width=64, inner=256, eps=1e-5)
    q, k, v, out, gate, up, down = ((torch.randn(256, 256) / 16, None) for _ in range(7))
    layer = LayerMaps(q, k, v, out, gate, up, down)
    models = [Compiled(shape, [layer], (weight, None), rounded=rounded) for weight in (packed, wide)]
    for n in (1, 2, 3, 4, 5, 6, 9, 13):  # the compiled code has a way for each number, and others for many
        inputs, turn, block = torch.randn(n, 256), torch.randn(2, 1, n, 64), torch.zeros(2, 4, n, 64)
        found = [model(inputs.clone(), (turn[0], turn[1]), [Line(block, 0, n)])[0] for model in models]
        assert torch.equal(*found)


def test_the_default_model_stays_as_its_file_has_it(torch_model: TorchModel, default_gguf: Path) -> None:
    module = torch_model.layers.module
    assert isinstance(module, NativeLlama)
    assert module.bytes < 1.1 * default_gguf.stat().st_size
    assert np.isclose(module.bytes / 1e6, 96.6, atol=1)


def test_a_file_in_types_of_llama_cpp_alone_says_why(tmp_path: Path) -> None:
    made = tiny(Sizes(dim=256, inner=256))
    shape, kind = made.tensors["blk.0.ffn_up.weight"].shape, gguf.GGMLQuantizationType.IQ4_XS
    made.tensors["blk.0.ffn_up.weight"] = TinyTensor(shape, kind, data_of(shape, kind))
    path = tmp_path / "tiny.gguf"
    path.write_bytes(made.written())
    assert load.why_not_compiled(path) == "its weights are IQ4_XS"


def test_compiled_code_runs_on_x86_and_arm(default_gguf: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    reasons = dict[str, str]()
    for machine in ("x86_64", "AMD64", "aarch64", "arm64", "riscv64"):
        monkeypatch.setattr(platform, "machine", lambda machine=machine: machine)
        reasons[machine] = load.why_not_compiled(default_gguf)
    assert {reasons.pop("riscv64"), *reasons.values()} == {"there is no compiled code for riscv64", ""}


@pytest.mark.parametrize("change", ["a scaled rotation", "another tensor", "another architecture", "another tokenizer"])
def test_what_may_mean_something_else_is_not_read_here(default_gguf: Path, change: str) -> None:
    file = gguf_file.read(default_gguf)
    fields, tensors = dict(file.fields), dict(file.tensors)
    if change == "a scaled rotation":
        fields["llama.rope.scaling.type"] = "dynamic"
    elif change == "another tensor":
        tensors["blk.0.attn_sinks.weight"] = tensors["output_norm.weight"]
    elif change == "another tokenizer":
        fields["tokenizer.ggml.pre"] = "chameleon"
    else:
        fields["general.architecture"] = "falcon"
    changed = replace(file, fields=fields, tensors=tensors)
    assert native_gguf.read(changed) is None
    assert native_gguf.why_not(changed)
