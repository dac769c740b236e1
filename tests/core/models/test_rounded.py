"""Products with inputs of 8 bits: every way of the processors gives the bits of the plain one."""

from __future__ import annotations

import json
import os
import struct
import subprocess
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from test_coded import TYPES, in_a_file
from tiny_gguf import F32, data_of, tiny
from tiny_gguf import Tensor as Weights
from torch import Tensor

from core.errors import InputError, ModelFileError
from core.models import adapter as adapters
from core.models import load_model, native, native_gguf
from core.models.coded import Coded, weight_of
from core.models.native import _in_bytes, panels_of
from core.models.native_library import COMPILERS
from core.models.torch_model import TorchModel
from tests.arm import remote
from tests.paths import DATA, ROOT

# Ways that this processor may be able to run: its own, and those of processors with fewer instructions.
WAYS = {
    "its own": ("-march=native",),
    "AVX2": ("-march=haswell",),
    "AVX-512 without VNNI": ("-march=skylake-avx512",),
    "none": (),
}
ARM_WAYS = {
    "NEON": "armv8-a",
    "NEON with dot products": "armv8.2-a+dotprod",
    "NEON with matrix products": "armv8.2-a+dotprod+i8mm",
}
K = 1280  # inputs: more than are decoded at once, and no multiple of that
NEEDED = {"AVX2": "avx2", "AVX-512 without VNNI": "avx512bw"}
NEWER = ("avx512", "avx_vnni")  # without any of these, AVX2 is a processor's own way, and need not be compiled again


@pytest.fixture(scope="module")
def programs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[str]]:
    """The commands that run `rounded.cpp` for each way."""
    folder, made = tmp_path_factory.mktemp("ways"), dict[str, list[str]]()

    def build(way: str, compiler: str, options: tuple[str, ...], before: tuple[str, ...] = ()) -> None:
        program = str(folder / way.replace(" ", "-"))
        source = Path(__file__).with_name("rounded.cpp")
        command = [compiler, "-std=c++17", "-O0", *options, "-I", native.SOURCE.path.parent, source, "-o", program]
        subprocess.run([*map(str, command)], check=True, capture_output=True)
        made[way] = [*before, program]

    known = Path("/proc/cpuinfo").read_text() if Path("/proc/cpuinfo").exists() else ""
    for way, options in WAYS.items():
        if NEEDED.get(way, "") in known and (way != "AVX2" or any(each in known for each in NEWER)):
            build(way, COMPILERS[0], options)
    if "POLYDRAFT_ARM" in os.environ:  # `make test-arm`
        for way, march in ARM_WAYS.items():
            build(way, remote.COMPILER, (*remote.OPTIONS, f"-march={march}"), (remote.EMULATOR,))
    return made


def products(program: list[str], weight: Coded, x: Tensor) -> tuple[Tensor, Tensor]:
    """x (rows, in) and a weight (out, in) -> (rows, out), number by number and in the program's way."""
    panel = int(subprocess.run(program, capture_output=True, check=True).stdout)
    panels, form = panels_of(weight, panel), weight.form
    sizes = struct.pack("<7q", form.bits, form.offsets, form.scaled, form.group, x.shape[1], len(panels), len(x))
    given = sizes + x.numpy().tobytes() + panels.numpy().tobytes()
    found = subprocess.run([*program, "-"], input=given, capture_output=True, check=True).stdout
    both = torch.from_numpy(np.frombuffer(found, np.float32).copy()).view(2, len(panels), len(x), panel)
    plain, way = both.transpose(1, 2).flatten(2)[..., : len(weight)]
    return plain, way


@pytest.fixture(scope="module")
def weights(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Coded]:
    torch.manual_seed(1)
    weight = torch.randn(70, K)
    tensors = in_a_file(tmp_path_factory.mktemp("rounded") / "x.gguf", {kind: (weight, kind) for kind in TYPES})
    return {kind: found for kind in TYPES if isinstance(found := weight_of(tensors[kind]), Coded)}


def inputs() -> Tensor:
    """Of all sizes, with blocks of zeros, of the least numbers, and with numbers that drown the others."""
    torch.manual_seed(2)
    x = torch.randn(37, K) * torch.logspace(-3, 3, 37)[:, None]
    x[3], x[4, :64], x[5, 7], x[6] = 0, 1e-38, 1e6, 1.0
    x[7, ::2] = -x[7, 1::2]
    x[30:, 40] *= 100
    return x


def rounded_once(blocks: Tensor) -> Tensor:
    most = blocks.abs().amax(-1, keepdim=True)
    used = most >= 1e-30
    codes = torch.where(used, (blocks * (127 / most)).round(), 0)
    return codes.double() * torch.where(used, most / 127, 0).double()


def rounded(x: Tensor) -> Tensor:
    """The inputs after rounding, twice in blocks that are coarser than the others."""
    blocks = x.view(len(x), -1, 32)
    once = rounded_once(blocks)
    squares = blocks.abs().amax(-1, keepdim=True).double().square()
    coarse = squares > 9 * squares.mean(1, keepdim=True)
    left = (blocks.double() - once).float()
    return torch.where(coarse, once + rounded_once(left), once).flatten(1)


def test_one_large_channel_does_not_coarsen_the_others_of_its_block(
    programs: dict[str, list[str]], weights: dict[str, Coded]
) -> None:
    torch.manual_seed(3)
    x, decoded = torch.randn(40, K), weights["Q4_1"].float().double()
    plain = abs(products(programs["its own"], weights["Q4_1"], x)[1] - x.double() @ decoded.T).mean()
    x[:, 40] = 100
    found = products(programs["its own"], weights["Q4_1"], x)[1]
    once = rounded_once(x.view(40, -1, 32)).flatten(1)
    exact = x.double() @ decoded.T
    assert abs(found - exact).mean() < 1.1 * plain < 0.2 * abs(once @ decoded.T - exact).mean()


@pytest.mark.parametrize("kind", TYPES)
def test_every_way_gives_the_bits_of_the_plain_product_of_the_rounded_inputs(
    programs: dict[str, list[str]], weights: dict[str, Coded], kind: str
) -> None:
    x, weight = inputs(), weights[kind]
    expected, _ = products(programs["its own"], weight, x)
    decoded = weight.float().double()
    size = rounded(x).abs() @ (decoded.abs() + decoded.abs().amax()).T  # a weight may be the difference of two numbers
    assert bool((abs(expected - rounded(x) @ decoded.T) <= 1e-5 * size).all())
    for way, program in programs.items():
        for found in products(program, weight, x):
            assert np.array_equal(found.numpy().view(np.int32), expected.numpy().view(np.int32)), way
        assert torch.equal(products(program, weight, x[:1].contiguous())[1], expected[:1]), way


def test_a_rows_products_do_not_depend_on_how_many_rows_there_are(
    programs: dict[str, list[str]], weights: dict[str, Coded]
) -> None:
    x, weight = inputs(), weights["Q4_1"]
    for way, program in programs.items():
        expected = products(program, weight, x)[1]
        for rows in (2, 3, 4, 5, 7, 8, 9, 16, 36):
            assert torch.equal(products(program, weight, x[:rows].contiguous())[1], expected[:rows]), (way, rows)


# --- models


@pytest.fixture(scope="module")
def int8() -> TorchModel:
    model = load_model("default", "torch", "int8")
    assert isinstance(model, TorchModel)
    return model


@pytest.mark.parametrize("adapted", [False, True])
def test_the_default_models_distributions_are_nearly_those_of_float32(
    int8: TorchModel, torch_model: TorchModel, adapted: bool
) -> None:
    """Also with an adapter, which is rounded too, and whose effect stays."""
    if torch_model.device != "cpu":
        pytest.skip("The default model does not run in compiled code here.")
    prefixes = [case["prefix_ids"] for case in json.loads((DATA / "spd_plain.json").read_text())["cases"][:5]]
    prose = "He closed the door behind him, and for a moment nobody in the small room said a word. " * 2
    code = (ROOT / "core/superposed.py").read_text()
    texts = [*prefixes, *(int8.tokenizer.encode(text)[:150] for text in (prose, code))]

    def logprobs(model: TorchModel) -> Tensor:
        return torch.cat([model.open().feed_every(ids)[8:].log_softmax(-1) for ids in texts])

    plain = logprobs(torch_model)
    try:
        for model in (int8, torch_model) if adapted else ():
            model.adapt([(adapters.load(ROOT / "assets/prose"), 1.0)])
        p, q = map(logprobs, (torch_model, int8))
    finally:
        for model in (int8, torch_model):
            model.adapt([])
    assert float((p.exp() * (p - q)).sum(-1).mean()) < 0.004  # nats
    assert (float((p.exp() * (p - plain)).sum(-1).mean()) > 0.05) == adapted


def test_a_text_has_the_same_logits_read_at_once_and_token_by_token(int8: TorchModel, torch_model: TorchModel) -> None:
    """With an adapter, and of so many tokens that threads divide what they derive from them."""
    ids = list(range(500, 575))
    try:
        int8.adapt([(adapters.load(ROOT / "assets/prose"), 1.0)])
        sequence = int8.open()
        apart = torch.stack([sequence.feed([token]) for token in ids])
        assert torch.equal(int8.open().feed_every(ids), apart)
    finally:
        int8.adapt([])
    assert not torch.equal(torch_model.open().feed_every(ids), apart)


def test_inputs_that_exceed_the_cache_are_computed_in_groups(int8: TorchModel) -> None:
    """In the default model's widest product, 200 tokens need twice as many groups as 100."""
    ids, halves = list(range(500, 700)), int8.open()
    expected = torch.cat([halves.feed_every(ids[:100]), halves.feed_every(ids[100:])])
    assert torch.equal(int8.open().feed_every(ids), expected)


@given(rows=st.integers(1, 5), columns=st.integers(1, 40), dim=st.integers(0, 1), seed=st.integers(0, 99))
def test_factors_in_bytes_are_within_half_a_step(rows: int, columns: int, dim: int, seed: int) -> None:
    x = torch.randn(rows, columns, generator=torch.Generator().manual_seed(seed))
    x[0] = 0
    codes, factors = _in_bytes(x, dim)
    assert codes.dtype == torch.int8 and codes.float().abs().max() <= 127
    steps = factors.unsqueeze(dim)
    assert bool(((codes * steps - x).abs() <= 0.5001 * steps).all())


def test_a_model_that_is_not_computed_so_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no GGUF file"):
        load_model(str(tmp_path), "torch", "int8")


def test_auto_rounds_inputs_where_a_file_allows_it_and_refuses_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "tiny.gguf"
    path.write_bytes(tiny().written())
    rounds = [load_model(str(path), "torch", x).compiled_as.endswith("8 bits") for x in ("auto", "int8", "file")]
    assert rounds == [True, True, False]
    with monkeypatch.context() as older:
        older.setattr(native_gguf, "rounds", lambda: False)
        assert load_model(str(path), "torch", "auto").compiled_as == load_model(str(path), "torch", "file").compiled_as
        with pytest.raises(InputError, match="this CPU has no instructions"):
            load_model(str(path), "torch", "int8")
    whole = tiny()
    whole.tensors = {name: Weights(each.shape, F32, data_of(each.shape, F32)) for name, each in whole.tensors.items()}
    path.write_bytes(whole.written())
    assert not load_model(str(path), "torch", "auto").compiled_as.endswith("8 bits")
    with pytest.raises(InputError, match="none of its weights"):
        load_model(str(path), "torch", "int8")
    with pytest.raises(ModelFileError, match=r"no config\.json"):  # a folder, which is not refused for its precision
        load_model(str(tmp_path), "torch", "auto")
