"""Low-rank adapters (LoRA, arXiv 2106.09685): a small change to a model's weights, learned from one person's text.

A projection W x becomes W x + scale · B (A x), with A (r, in) and B (out, r). The files have the layout that `peft`
publishes and loads:

    adapter_config.json         rank, alpha, and the adapted projections
    adapter_model.safetensors   base_model.model.model.layers.7.self_attn.q_proj.lora_A.weight, ….lora_B.weight

The metadata of the second file contains what `peft` ignores: the fingerprint of the model and the result on held-out
text. Only the owner can read the files; each is written under a temporary name and renamed.
"""

from __future__ import annotations

import hashlib
import json
import math
import re
from collections.abc import Collection, Iterable, Mapping
from dataclasses import asdict, dataclass, field, fields
from functools import cached_property
from pathlib import Path
from typing import Any

import safetensors.torch
import torch
from safetensors import SafetensorError
from torch import Tensor, nn

from core.errors import PolydraftError, first_line
from core.files import parsed_json, read_regular, write_whole

WEIGHTS, CONFIG = "adapter_model.safetensors", "adapter_config.json"
# The projections of a layer of the Llama family, with the module that contains each.
PROJECTIONS = {
    **dict.fromkeys(("q_proj", "k_proj", "v_proj", "o_proj"), "self_attn"),
    **dict.fromkeys(("gate_proj", "up_proj", "down_proj"), "mlp"),
}
MOST_RANK = 256
MOST_BYTES = 1 << 30  # of the weights
LARGEST = 1e4  # of the factors, and of alpha; trained ones are below 10, and of alpha below 1,000
_MOST_CONFIG = 1 << 20  # bytes
_OURS = "polydraft"  # the entry of the metadata
_NAME = re.compile(r"base_model\.model\.model\.layers\.(\d{1,4})\.(\w+)\.(\w+)\.lora_([AB])\.weight")
_REFUSED = ("use_rslora", "use_dora", "fan_in_fan_out", "modules_to_save", "rank_pattern", "alpha_pattern")


class AdapterError(PolydraftError):
    """An adapter that cannot be used: missing, damaged, or for another model."""


@dataclass(frozen=True)
class LowRank:
    """The change of one projection: A (r, in) and B (out, r), float32."""

    a: Tensor
    b: Tensor

    @property
    def shape(self) -> tuple[int, int]:
        """(out, in) of the projection."""
        return self.b.shape[0], self.a.shape[1]


Projection = tuple[int, str]  # its layer and name


@dataclass(frozen=True)
class Result:
    """The size of an adapter's training text, and its effect on held-out text.

    Attributes:
        tokens: learned, each counted once.
        held_out: tokens on which it was evaluated.
        gain: the mean gain in ln p per token there, at this strength, with the store's n-grams mixed in.
        error: the standard error of that mean.
        strength: the share of the change that drafts use, 0 to 1.
        general: the change of ln p per token of general text at this strength.
        others: the model's own ln p per token there; 0 if it was not measured.
        characters: of held-out text that was typed with drafts; 0 if it was not.
        keys_alone, keys: the percentage of keys that drafts saved there, without and with the adapter.
    """

    tokens: int
    held_out: int
    gain: float
    error: float
    strength: float = 1.0
    general: float = 0.0
    others: float = 0.0
    characters: int = 0
    keys_alone: float = 0.0
    keys: float = 0.0

    @property
    def loss(self) -> float | None:
        """The share by which the loss on general text grows at this strength; None if it was not measured."""
        return self.general / self.others if self.others else None

    @property
    def better(self) -> bool:
        """Whether the adapter beats the model by more than the standard error."""
        return self.gain > self.error


@dataclass(frozen=True)
class Adapter:
    """An adapter for one model.

    Attributes:
        maps: the change of each projection.
        alpha: `scale` is alpha / rank, as in `peft`.
        model: the fingerprint of the model.
        result: see `Result`; the adapter is used only if it is `better`.
        store: the name of the personal store beside which it lies, for messages.
        folder: from which it was read; None for one that was not.
    """

    maps: Mapping[Projection, LowRank]
    alpha: float
    model: str
    result: Result
    store: str = field(default="", compare=False)
    folder: Path | None = field(default=None, compare=False)

    @property
    def rank(self) -> int:
        return len(next(iter(self.maps.values())).a)

    @property
    def scale(self) -> float:
        return self.alpha / self.rank

    @cached_property
    def identity(self) -> str:
        """Hexadecimal SHA-256 of the model and the change, as the files have it: the fingerprint of the model with this
        adapter at full strength."""
        digest = hashlib.sha256(f"{self.model} {self.alpha:g}".encode())
        for projection, low in sorted(self.maps.items()):
            digest.update(f"{projection} {low.shape}".encode())
            for x in (low.a, low.b):
                digest.update(x.to(torch.bfloat16).contiguous().view(torch.int16).numpy().astype("<i2").tobytes())
        return digest.hexdigest()

    def check(self, models: Collection[str], shapes: Mapping[Projection, tuple[int, int]]) -> None:
        """Raises AdapterError unless it fits a model of one of these fingerprints with projections of these shapes
        (out, in)."""
        if self.model not in models:
            raise AdapterError("The adapter was trained for another model; train it anew with `polydraft learn`.")
        for projection, low in self.maps.items():
            if (shape := shapes.get(projection)) != low.shape:
                layer, name = projection
                raise AdapterError(
                    f"The adapter changes {name} of layer {layer} as {low.shape}, the model has {shape}; "
                    "train it anew with `polydraft learn`."
                )


# ---------------------------------------------------------------- files


def tensor_name(projection: Projection, part: str) -> str:
    layer, name = projection
    return f"base_model.model.model.layers.{layer}.{PROJECTIONS[name]}.{name}.lora_{part}.weight"


def save(adapter: Adapter, folder: Path) -> None:
    """Writes the files, in bfloat16; a reader sees the old or the new adapter. Raises AdapterError."""
    tensors = {
        tensor_name(projection, part): x.to(torch.bfloat16).contiguous()
        for projection, low in adapter.maps.items()
        for part, x in (("A", low.a), ("B", low.b))
    }
    about = {"version": 1, "model": adapter.model, **asdict(adapter.result)}
    config = {
        "peft_type": "LORA",
        "task_type": "CAUSAL_LM",
        "base_model_name_or_path": None,
        "inference_mode": True,
        "r": adapter.rank,
        "lora_alpha": adapter.alpha,
        "lora_dropout": 0.0,
        "bias": "none",
        "target_modules": sorted({name for _, name in adapter.maps}),
    }
    write(folder / CONFIG, json.dumps(config, indent=1).encode())
    write(folder / WEIGHTS, safetensors.torch.save(tensors, {"format": "pt", _OURS: json.dumps(about)}))


def write(path: Path, content: bytes) -> None:
    """Writes a file that only the owner can read, whole or not at all. Raises AdapterError."""
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        write_whole(path, content)
    except OSError as error:
        raise AdapterError(f"{path} cannot be written: {error.strerror or error}.") from error


def load(folder: Path) -> Adapter:
    """Reads an adapter and validates all of it. Raises AdapterError, with one sentence."""
    config = _config(folder / CONFIG)
    rank, alpha = config["r"], float(config["lora_alpha"])
    path = folder / WEIGHTS
    tensors, metadata = read_tensors(path)
    parts: dict[Projection, dict[str, Tensor]] = {}
    for name, tensor in tensors.items():
        match = _NAME.fullmatch(name)
        if match is None or PROJECTIONS.get(match[3]) != match[2]:
            raise AdapterError(f"{path} contains {name[:100]!r}; the names of `peft` for the Llama family expected.")
        if tensor.ndim != 2 or not tensor.numel() or tensor.dtype not in (torch.float32, torch.bfloat16, torch.float16):
            raise AdapterError(f"{name} of {path} is {tensor.dtype} {list(tensor.shape)}; a matrix of floats expected.")
        if tensor.shape[0 if match[4] == "A" else 1] != rank:
            raise AdapterError(f"{name} in {path} is {tuple(tensor.shape)}; its rank should be {rank}.")
        if not bool(torch.isfinite(tensor).all()):
            raise AdapterError(f"{name} in {path} contains numbers that are not finite.")
        if (largest := float(tensor.abs().max())) > LARGEST:
            raise AdapterError(f"{name} in {path} contains {largest:.3g}; numbers up to {LARGEST:g} expected.")
        parts.setdefault((int(match[1]), match[3]), {})[match[4]] = tensor.to(torch.float32)
    if not parts or any(len(both) < 2 for both in parts.values()):
        raise AdapterError(f"{path} is incomplete; pairs of lora_A and lora_B expected.")
    maps = {projection: LowRank(both["A"], both["B"]) for projection, both in sorted(parts.items())}
    model, result = _about(metadata.get(_OURS), path)
    return Adapter(maps, alpha, model, result, folder=folder)


def read_tensors(path: Path) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """The tensors and the metadata of a safetensors file, in memory: the file may be removed or overwritten meanwhile.
    Raises AdapterError."""
    data = _read(path, MOST_BYTES)
    try:
        tensors = safetensors.torch.load(data)  # checks the header and all offsets
    except (SafetensorError, ValueError, RuntimeError, KeyError, TypeError) as error:
        raise AdapterError(f"{path} is damaged ({first_line(error)}); train it anew with `polydraft learn`.") from error
    header = json.loads(data[8 : 8 + int.from_bytes(data[:8], "little")])
    return tensors, header.get("__metadata__") or {}


def _config(path: Path) -> dict[str, Any]:
    try:
        config = parsed_json(_read(path, _MOST_CONFIG))
    except ValueError as error:
        raise AdapterError(f"{path} is damaged ({first_line(error)}); train it anew with `polydraft learn`.") from error
    if not isinstance(config, dict) or config.get("peft_type") != "LORA":
        raise AdapterError(f"{path} is not of a LoRA adapter.")
    rank, alpha = config.get("r"), config.get("lora_alpha")
    if not isinstance(rank, int) or not 1 <= rank <= MOST_RANK:
        raise AdapterError(f"{path} has rank {rank!r:.40}; 1 to {MOST_RANK} expected.")
    if not _is_number(alpha, LARGEST):
        raise AdapterError(f"{path} has lora_alpha {alpha!r:.40}; a number up to {LARGEST:g} expected.")
    for name in _REFUSED:
        if config.get(name):
            raise AdapterError(f"{path} has {name} {config[name]!r:.40}, which is not supported.")
    if config.get("bias", "none") != "none":
        raise AdapterError(f"{path} has bias {config['bias']!r:.40}; 'none' expected.")
    return config


def _about(metadata: Any, path: Path) -> tuple[str, Result]:
    """The fingerprint of the model, and the result."""
    try:
        about = parsed_json(metadata) if isinstance(metadata, str) else None
    except ValueError:
        about = None
    if not isinstance(about, dict) or not isinstance(about.get("model"), str) or about.get("version") != 1:
        raise AdapterError(f"{path} lacks the fingerprint of its model; `polydraft learn` writes it.")
    numbers: dict[str, Any] = {each.name: about.get(each.name) for each in fields(Result)}
    if not all(_is_number(value) for value in numbers.values()) or not 0 <= numbers["strength"] <= 1:
        raise AdapterError(f"{path} lacks the result on held-out text; train it anew with `polydraft learn`.")
    return about["model"], Result(**numbers)


def _is_number(value: Any, most: float = 1e9) -> bool:
    return (
        isinstance(value, int | float) and not isinstance(value, bool) and abs(value) <= most and math.isfinite(value)
    )


def _read(path: Path, most: int) -> bytes:
    try:
        return read_regular(path, most)
    except OSError as error:
        raise AdapterError(f"{path} cannot be read: {error.strerror or error}.") from error


def projections(modules: Iterable[tuple[str, nn.Module]]) -> dict[Projection, nn.Module]:
    """The projections of a model of the Llama family, among the named submodules of transformers' module."""
    pattern = re.compile(r"(?:.*\.)?layers\.(\d+)\.(\w+)\.(\w+)")
    module_of: dict[Projection, nn.Module] = {}
    for name, module in modules:
        match = pattern.fullmatch(name)
        if match and PROJECTIONS.get(match[3]) == match[2] and hasattr(module, "weight"):
            module_of[int(match[1]), match[3]] = module
    return module_of
