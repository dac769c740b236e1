"""Loads a GGUF file of a known family directly into compiled code, without transformers' layers in between.

The file's tensors are rearranged in their own format. Where compiled code does not run, `gguf_module` reads the same
files for transformers' layers. Files with other features (other architectures, experts) are left to llama.cpp;
`why_not_read` gives the reason. `gguf_check` has checked that tensors and metadata agree.
"""

from __future__ import annotations

import math
from dataclasses import replace
from functools import partial

import torch
from torch import Tensor, nn

from core.models import gguf_check
from core.models.coded import PLAIN, TYPES, Weight, weight_of, weights_of
from core.models.embeddings import Embeddings, largest
from core.models.families import FAMILIES
from core.models.gguf_check import Config, Scaling, config_of, table
from core.models.gguf_file import GGUFFile
from core.models.hf_tokenizer import is_built
from core.models.llama import NativeLlama, unpaired
from core.models.native import LayerMaps, Map, StoredRows, rounds, why_not_width


def why_not_read(file: GGUFFile) -> str:
    """Why neither compiled code nor `gguf_module` can read this file, as a clause about the model, or "". Raises
    ModelFileError as `gguf_check.check` does."""
    if file.architecture not in FAMILIES:
        return f"its architecture is {file.architecture}"
    if reason := gguf_check.unknown(file):
        return reason
    if not is_built(*(file.fields.get(f"tokenizer.ggml.{key}") for key in ("model", "pre"))):
        return f"its tokenizer is {file.fields.get('tokenizer.ggml.pre') or file.fields.get('tokenizer.ggml.model')}"
    gguf_check.check(file)
    expected = table(config_of(file))
    if others := [name for name in file.tensors if name not in expected]:
        return f"it has a tensor {others[0][:60]}"
    required = {name for name, each in expected.items() if not each.optional and name != "output.weight"}
    missing = required - file.tensors.keys()
    return f"it has no tensor {min(missing)}" if missing else ""


def why_not(file: GGUFFile) -> str:
    """Why compiled code does not run this file, as a clause about the model, or "". Raises ModelFileError as
    `gguf_check.check` does."""
    if reason := why_not_read(file):
        return reason
    others = [tensor.kind.name for tensor in file.tensors.values() if tensor.kind not in {*TYPES, *PLAIN}]
    return f"its weights are {others[0]}" if others else why_not_width(config_of(file).shape.width)


def why_not_rounded(file: GGUFFile) -> str:
    """Why compiled code cannot compute this file's products with inputs of 8 bits, as a clause about the model, or "".
    Raises ModelFileError."""
    if torch.cuda.is_available():
        return "it runs on the GPU"
    if reason := why_not(file):
        return reason
    if not any(tensor.kind in TYPES for tensor in file.tensors.values()):
        return "none of its weights are coded in a few bits"
    return "" if rounds() else "this CPU has no instructions for products of bytes"


def read(file: GGUFFile, dtype: torch.dtype | None = None, rounded: bool = False) -> NativeLlama | None:
    """The model, or None if another engine must read the file. Raises ModelFileError.

    Args:
        dtype: of the matrices; None keeps each in the file's form.
        rounded: see `Compiled`.
    """
    if torch.cuda.is_available() or why_not(file):
        return None
    return _Reader(file, dtype).model(rounded)


class _Reader:
    def __init__(self, file: GGUFFile, dtype: torch.dtype | None) -> None:
        self._file, self._tensors, self._config, self._dtype = file, file.tensors, config_of(file), dtype

    def model(self, rounded: bool) -> NativeLlama:
        c = self._config
        tables = rotations(self._file, c)
        shape = replace(c.shape, tables=len(tables))
        layers = (self._layer(i, len(tables)) for i in range(c.layers))  # their memory is used again
        tied = "output.weight" not in self._tensors
        output = self._weight("token_embd" if tied else "output")
        norm = self._numbers("output_norm.weight")
        assert norm is not None
        if tied and self._dtype in (None, torch.float32):
            embeddings: Embeddings | float = c.embeddings  # the output rows, which are exact
        else:
            stored = weight_of(self._tensors["token_embd.weight"])  # embeddings are not rounded
            rows = StoredRows.of(stored)
            embeddings = Embeddings(rows.shape, rows, c.embeddings, largest(stored))
        return NativeLlama(
            c, shape, embeddings, partial(Rotation(tables), layer_type=None), layers, (output, None), norm, rounded
        )

    def _layer(self, i: int, tables: int) -> LayerMaps:
        c, s, name = self._config, self._config.shape, f"blk.{i}"
        queries, keys = s.heads * s.width, s.key_heads * s.width
        if c.family.fused:
            q, k, v = self._maps(f"{name}.attn_qkv", [queries, keys, keys])
            gate, up = self._maps(f"{name}.ffn_up", [s.inner] * 2)
        else:
            q, k, v = self._neighbours([f"{name}.attn_{part}" for part in "qkv"])
            gate, up = (self._map(f"{name}.ffn_{part}") for part in ("gate", "up"))
        if c.family.paired:
            q, k = self._unpaired(q), self._unpaired(k)

        def norm(part: str) -> Tensor | None:
            return self._numbers(f"{name}.{part}.weight")

        return LayerMaps(
            q=q,
            k=k,
            v=v,
            out=self._map(f"{name}.attn_output"),
            gate=gate,
            up=up,
            down=self._map(f"{name}.ffn_down"),
            before=norm("attn_norm"),
            between=norm("ffn_norm"),
            q_norm=norm("attn_q_norm"),
            k_norm=norm("attn_k_norm"),
            after_attention=norm("post_attention_norm"),
            after_feed_forward=norm("post_ffw_norm"),
            table=None if c.family.no_rope and (i + 1) % c.family.no_rope == 0 else tables - 1 if c.near[i] else 0,
            near=c.near[i],
            plain=c.family.norms == "after",
        )

    def _weight(self, name: str) -> Weight:
        return self._typed(weight_of(self._tensors[f"{name}.weight"]))

    def _typed(self, weight: Weight) -> Weight:
        return weight if self._dtype is None else weight.float().to(self._dtype)

    def _numbers(self, name: str) -> Tensor | None:
        """A norm or a bias in float32, if the file has it."""
        return _numbers(self._file, name)

    def _map(self, name: str) -> Map:
        return self._weight(name), self._numbers(f"{name}.bias")

    def _neighbours(self, names: list[str]) -> list[Map]:
        weights = map(self._typed, weights_of([self._tensors[f"{name}.weight"] for name in names]))
        return [(weight, self._numbers(f"{name}.bias")) for weight, name in zip(weights, names, strict=True)]

    def _maps(self, name: str, sizes: list[int]) -> list[Map]:
        weight, bias = self._map(name)
        biases = [None] * len(sizes) if bias is None else bias.split(sizes)
        return list(zip(weight.split(sizes), biases, strict=True))

    def _unpaired(self, of: Map) -> Map:
        weight, bias = of
        order = unpaired(len(weight), self._config.shape.width, self._config.shape.turned)
        return weight[order], None if bias is None else bias[order]


FACTORS = ("rope_freqs.weight", "rope_factors_short.weight")  # by which the speeds of a rotation are divided


def _numbers(file: GGUFFile, name: str) -> Tensor | None:
    return torch.from_numpy(file.tensors[name].unpacked()) if name in file.tensors else None


def rotations(file: GGUFFile, c: Config) -> list[tuple[Tensor, float]]:
    """The kinds of rotation: the speed of each pair (turned / 2,), and the factor of cosines and sines. Layers with a
    window have the last."""
    turned = c.shape.rotated
    speeds = _speeds(c.rope_theta, turned)
    for name in FACTORS:
        if (factors := _numbers(file, name)) is not None:
            speeds = speeds / factors
    tables = [_scaled(speeds, c.rope_theta, turned, c.scaling)]
    theta = c.window_theta or c.rope_theta
    if c.family.pattern and c.shape.window and (theta != c.rope_theta or c.scaling != Scaling()):
        tables.append((_speeds(theta, turned), 1.0))
    return tables


def _speeds(theta: float, turned: int) -> Tensor:
    """Pair i of a rotation turns by θ^(-2i/turned) per position."""
    return theta ** -(torch.arange(0, turned, 2, dtype=torch.float32) / turned)


def _scaled(speeds: Tensor, theta: float, turned: int, scaling: Scaling) -> tuple[Tensor, float]:
    if scaling.kind == "linear":
        return speeds / scaling.factor, scaling.size
    if scaling.kind != "yarn":
        return speeds, scaling.size

    def pair(turns: float) -> float:
        """The pair that turns so many times within the original context."""
        return turned * math.log(scaling.original / (turns * 2 * math.pi)) / (2 * math.log(theta))

    low, high = max(math.floor(pair(scaling.fast)), 0), min(math.ceil(pair(scaling.slow)), turned - 1)
    ramp = ((torch.arange(turned // 2) - low) / max(high - low, 0.001)).clamp(0, 1)
    size = scaling.size * (0.1 * math.log(scaling.factor) + 1 if scaling.factor > 1 else 1.0)
    return speeds * (1 - ramp) + speeds / scaling.factor * ramp, size


class Rotation(nn.Module):
    """Cosines and sines of rotary positions, in place of a transformers module."""

    speeds: Tensor  # (tables, 1, turned)
    sizes: Tensor  # (tables, 1, 1)

    def __init__(self, tables: list[tuple[Tensor, float]]) -> None:
        super().__init__()
        speeds = torch.stack([speeds for speeds, _ in tables]).repeat(1, 2)[:, None]
        self.register_buffer("speeds", speeds, persistent=False)
        self.register_buffer("sizes", torch.tensor([size for _, size in tables])[:, None, None], persistent=False)

    @torch.no_grad()
    def forward(
        self, x: Tensor, position_ids: Tensor, layer_type: str | None = "full_attention"
    ) -> tuple[Tensor, Tensor]:
        """Positions (B, n) -> cosines and sines (B, n, turned), in the type of x; without a type of layer those of
        every table, (tables, n, turned), for B = 1."""
        one = {"full_attention": slice(1), "sliding_attention": slice(-1, None), None: slice(None)}[layer_type]
        angles = position_ids[..., None].float() * self.speeds[one]
        return (angles.cos() * self.sizes[one]).to(x.dtype), (angles.sin() * self.sizes[one]).to(x.dtype)
