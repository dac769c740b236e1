"""Weights in a few bits: the compiled code computes with exactly the values of the GGUF file."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import gguf
import numpy as np
import pytest
import torch
from gguf.quants import quantize
from hypothesis import given, settings
from hypothesis import strategies as st
from tiny_models import computed
from torch import Tensor, nn
from transformers import LlamaConfig
from transformers.models.auto.modeling_auto import AutoModelForCausalLM

from core.models import gguf_file, hf, native_gguf
from core.models.coded import Coded, joined
from core.models.gguf_file import GGUFTensor
from core.models.llama import NativeLlama, in_coded_form
from core.models.torch_model import TorchModel

TYPES = ["Q4_0", "Q4_1", "Q8_0"]


def in_a_file(path: Path, tensors: dict[str, tuple[Tensor, str]]) -> dict[str, GGUFTensor]:
    """Write them, each in its type, and read the file."""
    writer = gguf.GGUFWriter(path, "llama")
    for name, (weight, kind) in tensors.items():
        of = gguf.GGMLQuantizationType[kind]
        writer.add_tensor(name, quantize(weight.numpy(), of), raw_dtype=of)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return gguf_file.read(path).tensors


def as_read(tensor: GGUFTensor) -> Tensor:
    return torch.from_numpy(tensor.unpacked())


@pytest.mark.parametrize("kind", [*TYPES, "F16"])
def test_decoded_weights_are_those_of_the_file(tmp_path: Path, kind: str) -> None:
    torch.manual_seed(0)
    weight = torch.randn(70, 96) * torch.logspace(-6, 2, 70)[:, None]  # scales from the least of half precision on
    weight[3] = 0
    tensor = in_a_file(tmp_path / "x.gguf", {"x": (weight, kind)})["x"]
    coded = Coded.of(tensor)
    if kind == "F16":
        assert coded is None
        return
    assert coded is not None
    assert coded.shape == (70, 96)
    assert torch.equal(coded.decoded(), as_read(tensor))
    assert torch.equal(coded.rows(torch.tensor([5, 5, 0])).decoded(), as_read(tensor)[[5, 5, 0]])


def test_maps_are_joined_as_they_are_or_decoded(tmp_path: Path) -> None:
    tensors = in_a_file(tmp_path / "x.gguf", {kind: (torch.randn(8, 64), kind) for kind in TYPES})
    four, other, eight = (Coded.of(tensors[kind]) for kind in TYPES)
    assert four is not None and other is not None and eight is not None
    both = joined([four, other])
    assert isinstance(both, Coded)
    assert torch.equal(both.decoded(), torch.cat([four.decoded(), other.decoded()]))
    plain = torch.randn(3, 64)
    for mixed, second in ((joined([four, eight]), eight.decoded()), (joined([four, plain]), plain)):
        assert isinstance(mixed, Tensor)
        assert torch.equal(mixed, torch.cat([four.decoded(), second]))


def test_a_files_order_of_rows_is_found_and_what_is_not_the_same_is_left(tmp_path: Path) -> None:
    tensor = in_a_file(tmp_path / "x.gguf", {"x": (torch.randn(64, 32), "Q4_1")})["x"]
    coded = Coded.of(tensor)
    assert coded is not None
    weight = coded.decoded()
    turned = (
        weight.view(4, 8, 2, 32).transpose(1, 2).reshape(64, 32)
    )  # four heads of 16, pairs side by side in the file
    for same in (weight, turned):
        found = in_coded_form(same, coded, 16)
        assert isinstance(found, Coded)
        assert torch.equal(found.decoded(), same)
    other = torch.randn(64, 32)
    assert in_coded_form(other, coded, 16) is other
    assert in_coded_form(weight[:32], coded, 16) is not coded
    assert in_coded_form(weight, None, 16) is weight


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> dict[str, tuple[nn.Module, NativeLlama]]:
    """A module whose weights a file has in each type, and the compiled one with them as they are."""
    made = {}
    for kind in TYPES:
        torch.manual_seed(3)
        config = LlamaConfig(
            hidden_size=64,
            num_hidden_layers=2,
            num_attention_heads=4,
            num_key_value_heads=2,
            head_dim=16,
            intermediate_size=160,
            vocab_size=101,
            max_position_embeddings=64,
            attention_bias=True,
        )
        module = AutoModelForCausalLM.from_config(config).eval().requires_grad_(False)
        names = {"q_proj": "attn_q", "k_proj": "attn_k", "v_proj": "attn_v", "o_proj": "attn_output"}
        names |= {"gate_proj": "ffn_gate", "up_proj": "ffn_up", "down_proj": "ffn_down"}
        linears = {
            f"blk.{i}.{names[name.split('.')[-1]]}.weight": linear
            for i, layer in enumerate(module.model.layers)
            for name, linear in layer.named_modules()
            if isinstance(linear, nn.Linear)
        }
        linears["output.weight"] = module.lm_head
        for parameter in module.parameters():
            parameter.normal_(std=0.3) if parameter.ndim > 1 else parameter.uniform_(0.5, 1.5)
        path = tmp_path_factory.mktemp(kind) / "x.gguf"
        tensors = in_a_file(path, {name: (linear.weight, kind) for name, linear in linears.items()})
        for name, linear in linears.items():
            linear.weight.copy_(as_read(tensors[name]))
        made[kind] = module, NativeLlama.of(module, torch.float32, hf._coded(path))
    return made


@pytest.mark.parametrize("kind", TYPES)
@settings(max_examples=25)
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


@pytest.mark.parametrize("kind", TYPES)
def test_they_stay_as_small_as_the_file_has_them(models: dict[str, tuple[nn.Module, NativeLlama]], kind: str) -> None:
    module, made = models[kind]
    weights = sum(p.numel() for p in module.parameters() if p.ndim > 1) - module.get_input_embeddings().weight.numel()
    of_each = {"Q4_0": 5, "Q4_1": 5, "Q8_0": 8.5}[kind]  # bits; all with 4 bits have offsets here
    filled = 1.35  # the output's last panel of 32
    assert weights * of_each / 8 < made.bytes < weights * of_each / 8 * filled + 8000


def test_the_default_model_stays_as_its_file_has_it(torch_model: TorchModel, default_gguf: Path) -> None:
    module = torch_model.layers.module
    assert isinstance(module, NativeLlama)
    assert module.bytes < 1.1 * default_gguf.stat().st_size
    assert np.isclose(module.bytes / 1e6, 96.6, atol=1)


def test_a_file_read_straight_is_what_transformers_reads(
    plain_torch_model: TorchModel, default_gguf: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def not_needed(*_: object) -> None:
        raise AssertionError("transformers unpacked it")

    monkeypatch.setattr(hf, "_load_module", not_needed)
    model = hf.load(default_gguf, "default")
    assert isinstance(model.layers.module, NativeLlama)
    assert torch.equal(model.embeddings, plain_torch_model.embeddings)
    assert model.context_length == plain_torch_model.context_length
    assert model.tokenizer.fingerprint == plain_torch_model.tokenizer.fingerprint
    assert model.tokenizer.eos_ids == plain_torch_model.tokenizer.eos_ids
    ids = list(range(500, 540))
    ours, theirs = (each.open().feed_every(ids) for each in (model, plain_torch_model))
    assert torch.allclose(ours, theirs, atol=2e-3)


@pytest.mark.parametrize("change", ["a scaled rotation", "another tensor", "another architecture", "another tokenizer"])
def test_what_may_mean_something_else_goes_the_long_way(default_gguf: Path, change: str) -> None:
    file = gguf_file.read(default_gguf)
    fields, tensors = dict(file.fields), dict(file.tensors)
    if change == "a scaled rotation":
        fields["llama.rope.scaling.type"] = "linear"
    elif change == "another tensor":
        tensors["rope_freqs.weight"] = tensors["output_norm.weight"]
    elif change == "another tokenizer":
        fields["tokenizer.ggml.model"] = "llama"
    else:
        fields["general.architecture"] = "falcon"
    changed = replace(file, fields=fields, tensors=tensors)
    assert native_gguf.read(changed) is None
    assert not native_gguf.fits(changed)
