"""Every family that compiled code knows: a GGUF file gives the logits of transformers, and of llama.cpp."""

from __future__ import annotations

import ctypes
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
import torch
from tiny_families import FAMILIES, VOCAB, file_of, module_of, real, whole
from tiny_models import byte_level_tokenizer
from torch import Tensor, nn
from transformers import PreTrainedModel

from core.errors import ModelFileError
from core.models import gguf_file, hf, load, load_model, native_gguf
from core.models.adapter import Adapter, LowRank, Result
from core.models.base import LanguageModel, Row
from core.models.llama import NativeLlama
from core.models.load import load_module
from core.models.torch_model import TorchModel

pytestmark = pytest.mark.usefixtures("small_scale")

IDS = torch.randint(0, VOCAB - 2, (40,), generator=torch.Generator().manual_seed(2)).tolist()  # far past a window


@dataclass
class Loaded:
    name: str
    path: Path
    module: PreTrainedModel
    model: LanguageModel

    def expected(self, ids: list[int]) -> Tensor:
        """Logits (n, V) of transformers."""
        with torch.inference_mode():
            return self.module(input_ids=torch.tensor([ids]), use_cache=False).logits[0]


@pytest.fixture(scope="module", params=FAMILIES)
def loaded(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Loaded:
    module = module_of(request.param)
    path = tmp_path_factory.mktemp("family") / "tiny.gguf"
    path.write_bytes(file_of(request.param, module).written())
    assert native_gguf.why_not(gguf_file.read(path)) == ""
    model = load_model(str(path), "torch")
    assert isinstance(model, TorchModel) and isinstance(model.layers.module, NativeLlama)
    return Loaded(request.param, path, module, model)


def close(found: Tensor, expected: Tensor) -> None:
    assert expected.std() > 0.2, "logits that say nothing"
    torch.testing.assert_close(found, expected, atol=1e-3, rtol=1e-3)


def test_logits_are_those_of_transformers_for_a_text_and_for_steps_and_forks(loaded: Loaded) -> None:
    expected = loaded.expected(IDS)
    sequence = loaded.model.open()
    close(sequence.feed_every(IDS[:30]), expected[:30])
    fork = sequence.fork()
    for i in range(30, 40):
        close(sequence.feed([IDS[i]]), expected[i])
    other = [*IDS[:30], *IDS[:3]]
    rows = [Row(fork, IDS[:3], every=True), Row(loaded.model.open(), IDS[:9], every=True)]
    of_fork, of_new = loaded.model.forward(rows)
    close(of_fork, loaded.expected(other)[30:])
    close(of_new, expected[:9])
    sequence.rewind(12)
    close(sequence.feed_every(IDS[12:16]), expected[12:16])


def test_each_branch_of_a_tree_sees_its_own_path_within_the_window(loaded: Loaded) -> None:
    """The tree is deeper than a window."""
    parents = [-1, 0, 1, 2, 3, 4, 5, 6, 7, 0, 9, 4, 11]
    tokens = IDS[20 : 20 + len(parents)]
    sequence = loaded.model.open()
    sequence.feed(IDS[:20])
    (found,) = loaded.model.forward([Row(sequence, tokens, parents=parents)])
    for leaf in (8, 10, 12):
        path, at = [], leaf
        while at >= 0:
            path.insert(0, at)
            at = parents[at]
        close(found[path], loaded.expected(IDS[:20] + [tokens[i] for i in path])[20:])


def test_an_adapter_changes_what_it_would_change_in_transformers(loaded: Loaded) -> None:
    model = loaded.model
    assert isinstance(model, TorchModel)
    torch.manual_seed(4)
    maps = {
        place: LowRank(torch.randn(2, inputs) / 8, torch.randn(out, 2) / 8)
        for place, (out, inputs) in model.layers.projections.items()
    }
    adapter = Adapter(maps, 4.0, model.fingerprint, Result(1, 1, 1.0, 0.1))
    model.adapt([(adapter, 0.5)])
    try:
        found = model.open().feed_every(IDS[:12])
    finally:
        model.adapt([])
    before = {name: weight.clone() for name, weight in loaded.module.state_dict().items()}
    try:
        for (layer, name), low in maps.items():
            weight, rows = weight_of(loaded.module, layer, name)
            weight[rows] += 0.5 * adapter.scale * low.b @ low.a
        close(found, loaded.expected(IDS[:12]))
    finally:
        loaded.module.load_state_dict(before)
    close(model.open().feed_every(IDS[:12]), loaded.expected(IDS[:12]))


def weight_of(module: PreTrainedModel, layer: int, name: str) -> tuple[Tensor, slice]:
    """The matrix of a projection, and its rows of it: Phi has several in one."""
    found = dict(module.named_modules())[f"model.layers.{layer}"]
    linears = {key.rpartition(".")[2]: each for key, each in found.named_modules() if isinstance(each, nn.Linear)}
    if name in linears:
        return linears[name].weight, slice(None)
    c = module.config
    assert c is not None
    queries, keys = c.num_attention_heads * c.head_dim, c.num_key_value_heads * c.head_dim
    firsts = {"q_proj": (0, queries), "k_proj": (queries, keys), "v_proj": (queries + keys, keys)}
    firsts |= {"gate_proj": (0, c.intermediate_size), "up_proj": (c.intermediate_size, c.intermediate_size)}
    first, count = firsts[name]
    return linears["qkv_proj" if name[0] in "qkv" else "gate_up_proj"].weight, slice(first, first + count)


# llama.cpp ignores the window of `llama`, and takes the factors for long texts where its whole context is long.
OTHERWISE = ("mistral", "phi3, longrope")


def test_llama_cpp_computes_the_same_from_the_same_file(loaded: Loaded, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("llama_cpp", reason="llama.cpp is not built here")
    if loaded.name in OTHERWISE:
        return
    from core.models import llamacpp

    monkeypatch.setattr(llamacpp, "cores", lambda: 1)  # a second thread of a tiny model only waits for the first
    model = llamacpp.load(loaded.path, "tiny")
    found, expected = model.open().feed_every(IDS), loaded.model.open().feed_every(IDS)
    model.close()
    assert (found - expected).abs().max() < 0.01 * (expected.max() - expected.min())


# --- files as people have them


@pytest.mark.parametrize("kind", ["Q4_0", "Q4_K_M", "Q5_K_M", "Q8_0"])
def test_a_file_that_llama_cpp_quantised_gives_the_logits_of_its_decoded_weights(kind: str, tmp_path: Path) -> None:
    """llama.cpp mixes types: a Q4_K_M has some matrices and the output rows in Q6_K, a Q4_0 the output rows."""
    llama_cpp = pytest.importorskip("llama_cpp", reason="llama.cpp is not built here").llama_cpp
    whole, quantised, decoded = (tmp_path / f"{name}.gguf" for name in ("whole", "quantised", "decoded"))
    module = module_of("qwen3", hidden_size=256, intermediate_size=512, num_attention_heads=8, num_hidden_layers=4)
    made = file_of("qwen3", module)
    whole.write_bytes(made.written())
    params = llama_cpp.llama_model_quantize_default_params()
    params.ftype = getattr(llama_cpp, f"LLAMA_FTYPE_MOSTLY_{kind}")
    assert llama_cpp.llama_model_quantize(str(whole).encode(), str(quantised).encode(), ctypes.byref(params)) == 0
    tensors = gguf_file.read(quantised).tensors
    types = {tensor.kind.name for tensor in tensors.values() if len(tensor.shape) == 2}
    assert types == MIXED.get(kind, {kind.removesuffix("_M")})
    for name, tensor in tensors.items():
        made.tensors[name].data = tensor.unpacked().tobytes()
    decoded.write_bytes(made.written())
    ours, expected = (load_model(str(path), "torch") for path in (quantised, decoded))
    assert isinstance(ours, TorchModel) and isinstance(ours.layers.module, NativeLlama)
    assert torch.equal(ours.embeddings, expected.embeddings)
    close(ours.open().feed_every(IDS), expected.open().feed_every(IDS))
    close(ours.open().feed(IDS[:3]), expected.open().feed(IDS[:3]))


MIXED = {"Q4_0": {"Q4_0", "Q6_K"}, "Q4_K_M": {"Q4_K", "Q6_K"}, "Q5_K_M": {"Q5_K", "Q6_K"}}


# --- the same files computed otherwise


def test_a_file_gives_the_same_logits_in_transformers_layers(loaded: Loaded) -> None:
    """In them models are trained, and computed on a GPU."""
    model = load_module(str(loaded.path))
    assert isinstance(model.layers.module, PreTrainedModel)
    close(model.open().feed_every(IDS), loaded.expected(IDS))


def test_a_folder_of_safetensors_gives_the_same_logits(loaded: Loaded, tmp_path: Path) -> None:
    loaded.module.save_pretrained(tmp_path)
    byte_level_tokenizer().save_pretrained(tmp_path)
    close(hf.load(tmp_path, "tiny").open().feed_every(IDS), loaded.expected(IDS))


@pytest.mark.parametrize("kind", ["unknown field", "another architecture", "limited scores"])
def test_a_file_that_says_more_than_torch_computes_is_refused_for_training(kind: str, tmp_path: Path) -> None:
    made = file_of("gemma3", module_of("gemma3"))
    if kind == "unknown field":
        made.fields["gemma3.expert_count"] = whole(4)
    elif kind == "another architecture":
        made.fields = {key.replace("gemma3.", "starcoder2."): each for key, each in made.fields.items()}
        made.fields["general.architecture"].value = "starcoder2"
    else:
        made.fields["gemma3.attn_logit_softcapping"] = real(50.0)
    path = tmp_path / "tiny.gguf"
    path.write_bytes(made.written())
    expected = "limits attention scores" if kind == "limited scores" else "can run in llama.cpp alone"
    with pytest.raises(ModelFileError, match=expected):
        load_module(str(path))


@pytest.fixture
def on_a_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is decided where there is a GPU; the CPU computes."""
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(hf, "_usual", lambda: (torch.device("cpu"), torch.bfloat16))


def test_on_a_gpu_every_family_runs_on_torch_and_every_other_file_in_llama_cpp(
    on_a_gpu: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, module = tmp_path / "tiny.gguf", cast(Any, module_of("llama 3.2"))
    made = file_of("llama 3.2", module)
    path.write_bytes(made.written())
    model = load_model(str(path))
    assert isinstance(model, TorchModel) and model.notice is None
    assert model.layers.dtype == torch.bfloat16
    assert isinstance(model.layers.module, PreTrainedModel)
    with torch.inference_mode():
        expected = module.to(torch.bfloat16)(input_ids=torch.tensor([IDS]), use_cache=False).logits[0].float()
    found = model.open().feed_every(IDS)
    assert (found - expected).abs().max() < 0.02 * (expected.max() - expected.min())

    made.fields["llama.expert_count"] = whole(4)
    path.write_bytes(made.written())
    monkeypatch.setattr(load, "_with_llama_cpp", lambda *_: SimpleNamespace(notice=None))
    monkeypatch.setattr(load, "_llama_cpp_problem", lambda _: "")
    notice = load_model(str(path)).notice
    assert notice is not None and "llama.cpp" in notice and "expert_count" in notice
    monkeypatch.setattr(load, "_llama_cpp_problem", lambda _: "it is not installed")
    with pytest.raises(ModelFileError, match=r"in llama.cpp alone \(.*expert_count'\), .*: it is not installed; "):
        load_model(str(path))
