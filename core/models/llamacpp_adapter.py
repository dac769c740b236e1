"""Adapters as llama.cpp reads them: a GGUF file with its names of tensors and its order of rows."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import gguf
import torch
from torch import Tensor

from core.models.adapter import PROJECTIONS, Adapter, Projection
from core.models.families import PARTS
from core.models.gguf_file import GGUFFile
from core.models.llama import unpaired

# Of tensors, by the names of projections.
NAMES = {place.rpartition(".")[2]: name for name, place in PARTS.items() if place.rpartition(".")[2] in PROJECTIONS}
# Architectures with these projections; in files of the first, the pairs of a rotation are side by side.
PAIRED, PLAIN = "llama", "qwen2"


def projections(file: GGUFFile) -> dict[Projection, tuple[int, int]]:
    """The shapes (out, in) of the projections in a model's file that adapters can change."""
    if file.architecture not in (PAIRED, PLAIN):
        return {}
    shapes: dict[Projection, tuple[int, int]] = {}
    for layer in range(int(file.stated("block_count", 0))):
        for name, theirs in NAMES.items():
            tensor = file.tensors.get(f"blk.{layer}.{theirs}.weight")
            if tensor is not None and len(tensor.shape) == 2:
                shapes[layer, name] = tensor.shape[0], tensor.shape[1]
    return shapes


def head_width(file: GGUFFile) -> int:
    """The width of an attention head if the file has the pairs of a rotation side by side, else 0."""
    if file.architecture != PAIRED:
        return 0
    heads = int(file.stated("attention.head_count", 1))
    return int(file.stated("attention.key_length", int(file.stated("embedding_length", 0)) // heads))


def write(adapter: Adapter, architecture: str, width: int, path: Path) -> None:
    """Writes an adapter for a model of this architecture; `width` as `head_width` returns it."""
    writer = gguf.GGUFWriter(path, architecture)
    writer.add_type("adapter")
    writer.add_string("adapter.type", "lora")
    writer.add_float32("adapter.lora.alpha", adapter.alpha)
    for name, tensor in _tensors(adapter, width).items():
        writer.add_tensor(name, tensor.contiguous().numpy())
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def _tensors(adapter: Adapter, width: int) -> Mapping[str, Tensor]:
    tensors: dict[str, Tensor] = {}
    for (layer, name), low in adapter.maps.items():
        b = low.b
        if width and name in ("q_proj", "k_proj"):
            b = torch.empty_like(low.b)
            b[unpaired(len(b), width)] = low.b
        tensors[f"blk.{layer}.{NAMES[name]}.weight.lora_a"] = low.a
        tensors[f"blk.{layer}.{NAMES[name]}.weight.lora_b"] = b
    return tensors
