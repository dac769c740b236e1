"""The EAGLE-3 head: one transformer layer that predicts the target's next tokens (Li et al. 2025, arXiv 2503.01840).

At position i its inputs are the *feature* of token i and the embedding of token i+1, and it predicts token i+2. The
target computes the feature, from the hidden states of a low, a middle and a high layer. After the last token that the
target has processed, the head's own output replaces the feature, so the head can predict several tokens. The training
(`training.heads`) does the same, so the predictions stay good over several tokens.

The files are those of the published checkpoints: `config.json` beside `model.safetensors` or `pytorch_model.bin`, with

    fc.weight                          three features -> one
    midlayer.{self_attn,mlp}.*_proj.weight, midlayer.{hidden_norm,input_layernorm,post_attention_layernorm}.weight
    norm.weight, lm_head.weight        output -> draft vocabulary
    d2t, t2d                           draft id -> target id, as a difference; which target ids are draft ids

Shapes: n positions, D width of the head, D_t of the target, H heads of width w on K key heads, V_d draft vocabulary.
"""

from __future__ import annotations

import copy
import json
from collections.abc import Callable, Mapping
from dataclasses import MISSING, asdict, dataclass, fields
from pathlib import Path
from pickle import UnpicklingError  # torch raises it for a file that contains more than tensors; nothing is unpickled
from typing import Annotated, Any
from zipfile import ZIP_STORED, BadZipFile, ZipFile, is_zipfile

import torch
import torch.nn.functional as F
from pydantic import Field, FiniteFloat, TypeAdapter, ValidationError
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from core.errors import InputError, PolydraftError, first_fault, first_line
from core.files import check_regular, read_json, replacing, write_whole

# Of config.json.
Size = Annotated[int, Field(gt=0, lt=2**31, strict=True)]
Number = Annotated[FiniteFloat, Field(gt=0, strict=True)]
Layer = Annotated[int, Field(ge=0, strict=True)]

Attend = Callable[[Tensor, Tensor, Tensor], Tensor]  # q (…, n, H, w), k and v (…, n, K, w) -> (…, n, H, w)


class HeadError(PolydraftError):
    """A checkpoint is missing or damaged, or has another layout or another target."""


@dataclass(frozen=True)
class HeadConfig:
    """The used fields of `config.json`, with its names.

    Attributes:
        hidden_size: D.
        target_hidden_size: D_t; None if it is D.
        vocab_size, draft_vocab_size: V of the target, and V_d.
        layers: three layers of the target; the features are the hidden states that enter them. None: 2, half, and the
            last but two, as for the published heads.
    """

    hidden_size: Size
    intermediate_size: Size
    num_attention_heads: Size
    vocab_size: Size
    draft_vocab_size: Size
    num_key_value_heads: Size | None = None
    head_dim: Size | None = None
    target_hidden_size: Size | None = None
    rms_norm_eps: Number = 1e-6
    rope_theta: Number = 10000.0
    layers: tuple[Layer, Layer, Layer] | None = None

    @property
    def key_heads(self) -> int:
        return self.num_key_value_heads or self.num_attention_heads

    @property
    def width(self) -> int:
        return self.head_dim or self.hidden_size // self.num_attention_heads

    @property
    def target_width(self) -> int:
        return self.target_hidden_size or self.hidden_size

    @classmethod
    def of(cls, contents: Mapping[str, Any]) -> HeadConfig:
        """Makes a configuration from the contents of a `config.json`. Raises HeadError with the invalid field."""
        given = {field.name: contents.get(field.name) for field in fields(cls)}
        rope = contents.get("rope_parameters")
        if given["rope_theta"] is None and isinstance(rope, dict):
            given["rope_theta"] = rope.get("rope_theta")
        optional = {field.name for field in fields(cls) if field.default is not MISSING}
        try:
            config = TypeAdapter(cls).validate_python(
                {name: value for name, value in given.items() if value is not None or name not in optional}
            )
        except ValidationError as error:
            raise HeadError(f"config.json has {first_fault(error)}.") from error
        if config.draft_vocab_size > config.vocab_size:
            raise HeadError(
                f"config.json has draft_vocab_size {config.draft_vocab_size}; at most {config.vocab_size} expected."
            )
        if config.num_attention_heads % config.key_heads or config.width % 2:
            raise HeadError(
                f"config.json has {config.num_attention_heads} heads of width {config.width} on {config.key_heads} key "
                "heads, which do not fit together."
            )
        return config

    def feature_layers(self, depth: int) -> tuple[int, int, int]:
        """Returns the layers of a target with `depth` layers whose inputs are the features."""
        return self.layers or (min(2, depth - 1), depth // 2, max(depth - 3, 0))


class Eagle3Head(nn.Module):
    """The head. Its parameters have the names of the published checkpoints."""

    d2t: Tensor  # (V_d,) target id minus draft id
    t2d: Tensor  # (V,) bool
    speeds: Tensor  # (w/2,) the rotary angle per position of each pair of numbers in a query or key

    def __init__(self, config: HeadConfig) -> None:
        super().__init__()
        self.config = config
        d = config.hidden_size
        self.fc = nn.Linear(3 * config.target_width, d, bias=False)
        self.midlayer = _Layer(config)
        self.norm = nn.RMSNorm(d, config.rms_norm_eps)
        self.lm_head = nn.Linear(d, config.draft_vocab_size, bias=False)
        self.register_buffer("d2t", torch.zeros(config.draft_vocab_size, dtype=torch.int64))
        self.register_buffer("t2d", torch.arange(config.vocab_size) < config.draft_vocab_size)
        powers = torch.arange(0, config.width, 2, dtype=torch.float32) / config.width
        self.register_buffer("speeds", config.rope_theta**-powers, persistent=False)

    def set_vocabulary(self, ids: Tensor) -> None:
        """Sets the draft vocabulary to these target ids (V_d,), which must increase."""
        if len(ids) != self.config.draft_vocab_size or bool((ids[1:] <= ids[:-1]).any()):
            raise InputError(f"{len(ids)} ids given; {self.config.draft_vocab_size} increasing ones expected.")
        self.d2t.copy_(ids - torch.arange(len(ids)))
        self.t2d.zero_()
        self.t2d[ids] = True

    @property
    def vocabulary(self) -> Tensor:
        """The target ids of the draft vocabulary, (V_d,)."""
        return torch.arange(len(self.d2t), device=self.d2t.device) + self.d2t

    def fuse(self, features: Tensor) -> Tensor:
        """Projects the concatenated hidden states (…, 3·D_t) of the low, middle and high layer to features (…, D)
        float32."""
        return _linear(features, self.fc.weight).float()

    def joined(self) -> Tensor:
        """Returns the matrices of queries, keys and values, stacked: ((H + 2K)·w, D_t + D)."""
        attention = self.midlayer.self_attn
        return torch.cat([each.weight for each in (attention.q_proj, attention.k_proj, attention.v_proj)])

    def of_tokens(self, embeddings: Tensor, joined: Tensor) -> Tensor:
        """Returns the contribution of embeddings (…, D_t) to the queries, keys and values: (…, (H + 2K)·w)."""
        return _linear(self.midlayer.input_layernorm(embeddings.float()), joined[:, : embeddings.shape[-1]])

    def layer(self, of_tokens: Tensor, features: Tensor, positions: Tensor, joined: Tensor, attend: Attend) -> Tensor:
        """Computes `midlayer`: attention over [embedding, feature], then a feed-forward layer; the feature is the
        residual. Products have the precision of the matrices; residual, norms and rotation are float32.

        Args:
            of_tokens: the result of `of_tokens` for the tokens *after* those of the features.
            features: (…, n, D), fused, or the head's own output.
            positions: (n,) of the features' tokens in the text.
            joined: the result of `joined`; a caller computes it once for many calls.
            attend: the attention over the caller's cache.
        Returns: the output (…, n, D), which is the next position's feature.
        """
        layer, c = self.midlayer, self.config
        qkv = of_tokens + _linear(layer.hidden_norm(features), joined[:, -c.hidden_size :])
        q, k, v = qkv.unflatten(-1, (-1, c.width)).split([c.num_attention_heads, c.key_heads, c.key_heads], -2)
        attended = attend(self._rotated(q, positions), self._rotated(k, positions), v)
        h = features + _linear(attended.flatten(-2), layer.self_attn.o_proj.weight)
        x = layer.post_attention_layernorm(h)
        gate, up = _linear(x, layer.mlp.gate_proj.weight), _linear(x, layer.mlp.up_proj.weight)
        return h + _linear(F.silu(gate) * up, layer.mlp.down_proj.weight)

    def _rotated(self, x: Tensor, positions: Tensor) -> Tensor:
        """Applies rotary positions to queries or keys (…, n, heads, w)."""
        angles = positions[:, None, None] * self.speeds  # (n, 1, w/2)
        a, b = x.float().chunk(2, -1)
        cos, sin = angles.cos(), angles.sin()
        return torch.cat((a * cos - b * sin, b * cos + a * sin), -1).to(x.dtype)

    def logits(self, output: Tensor) -> Tensor:
        """Returns logits (…, V_d) over the draft vocabulary for the token after the embedded one."""
        return _linear(self.norm(output), self.lm_head.weight)

    def on(self, device: torch.device, dtype: torch.dtype) -> Eagle3Head:
        """Returns a copy for inference on a device, with its matrices in `dtype`."""
        head = copy.deepcopy(self).eval().requires_grad_(False).to(device)
        for module in head.modules():
            if isinstance(module, nn.Linear):
                module.to(dtype)
        return head

    def save(self, folder: Path, dtype: torch.dtype = torch.bfloat16) -> None:
        """Writes the checkpoint."""
        folder.mkdir(parents=True, exist_ok=True)
        tensors = {
            name: (value.to(dtype) if value.is_floating_point() else value).cpu().contiguous()
            for name, value in self.state_dict().items()
        }
        with replacing(folder / "model.safetensors") as file:
            save_file(tensors, file.name)
        config = {name: value for name, value in asdict(self.config).items() if value is not None}
        config = {"architectures": ["LlamaForCausalLMEagle3"], **config}
        write_whole(folder / "config.json", json.dumps(config, indent=1).encode())

    @classmethod
    def load(cls, folder: Path) -> Eagle3Head:
        """Reads a checkpoint in float32. Raises HeadError."""
        config = HeadConfig.of(_config(folder))
        tensors = _tensors(folder)
        try:
            with torch.device("meta"):  # before memory is taken for what config.json states
                expected = cls(config).state_dict()
        except RuntimeError as error:
            raise HeadError(f"{folder}: config.json has sizes that no head has ({first_line(error)}).") from error
        # Some published heads contain the target's embeddings, which are not needed, and names with "model." first.
        tensors = {name.removeprefix("model."): value for name, value in tensors.items()}
        tensors.pop("embed_tokens.weight", None)
        if missing := sorted(set(expected) - set(tensors)):
            raise HeadError(f"{folder} has no {missing[0]}; it is not an EAGLE-3 checkpoint.")
        if unknown := sorted(set(tensors) - set(expected)):
            raise HeadError(f"{folder} has {unknown[0]}, which an EAGLE-3 head of one layer does not have.")
        for name, value in tensors.items():
            if value.shape != expected[name].shape:
                raise HeadError(
                    f"{folder}: {name} has shape {tuple(value.shape)}; {tuple(expected[name].shape)} expected from "
                    "config.json."
                )
            if value.layout != torch.strided or not bool(value.isfinite().all()):
                raise HeadError(f"{folder}: {name} contains numbers that are not finite; get the checkpoint again.")
        head = cls(config)
        head.load_state_dict({name: value.to(expected[name].dtype) for name, value in tensors.items()})
        ids = head.vocabulary
        if bool((ids < 0).any() or (ids >= head.config.vocab_size).any()) or not bool(head.t2d[ids].all()):
            raise HeadError(f"{folder}: d2t and t2d do not agree on the draft vocabulary.")
        return head.eval()

    def check(self, vocab_size: int, dim: int) -> Eagle3Head:
        """Returns this head. Raises HeadError if it is for another target."""
        if (self.config.vocab_size, self.config.target_width) != (vocab_size, dim):
            raise HeadError(
                f"The EAGLE-3 head is for a target with {self.config.vocab_size} tokens and width "
                f"{self.config.target_width}; this one has {vocab_size} and {dim}."
            )
        return self


class _Layer(nn.Module):
    """The parameters of `midlayer`, for `Eagle3Head.layer`."""

    def __init__(self, config: HeadConfig) -> None:
        super().__init__()
        d, eps = config.hidden_size, config.rms_norm_eps
        self.hidden_norm = nn.RMSNorm(d, eps)
        self.input_layernorm = nn.RMSNorm(config.target_width, eps)
        self.self_attn = _Attention(config)
        self.post_attention_layernorm = nn.RMSNorm(d, eps)
        self.mlp = _FeedForward(d, config.intermediate_size)


class _Attention(nn.Module):
    def __init__(self, config: HeadConfig) -> None:
        super().__init__()
        both, heads, keys = config.target_width + config.hidden_size, config.num_attention_heads, config.key_heads
        self.q_proj = nn.Linear(both, heads * config.width, bias=False)
        self.k_proj = nn.Linear(both, keys * config.width, bias=False)
        self.v_proj = nn.Linear(both, keys * config.width, bias=False)
        self.o_proj = nn.Linear(heads * config.width, config.hidden_size, bias=False)


class _FeedForward(nn.Module):
    def __init__(self, d: int, inner: int) -> None:
        super().__init__()
        self.gate_proj = nn.Linear(d, inner, bias=False)
        self.up_proj = nn.Linear(d, inner, bias=False)
        self.down_proj = nn.Linear(inner, d, bias=False)


def _linear(x: Tensor, weight: Tensor) -> Tensor:
    return F.linear(x.to(weight.dtype), weight)


def _config(folder: Path) -> dict[str, Any]:
    path = folder / "config.json"
    try:
        contents = read_json(path)
    except OSError as error:
        raise HeadError(
            f"No EAGLE-3 head at {folder} ({error.strerror}); a folder with config.json expected."
        ) from error
    except (ValueError, RecursionError) as error:
        raise HeadError(f"{path} is not JSON ({first_line(error)}); get the checkpoint again.") from error
    if not isinstance(contents, dict):
        raise HeadError(f"{path} contains no JSON object; get the checkpoint again.")
    return contents


def _tensors(folder: Path) -> dict[str, Tensor]:
    """Returns the tensors by name. No code in the files is executed."""
    safe, plain = folder / "model.safetensors", folder / "pytorch_model.bin"
    if not safe.is_file() and not plain.is_file():
        raise HeadError(f"{folder} has neither model.safetensors nor pytorch_model.bin.")
    path = safe if safe.is_file() else plain
    try:
        check_regular(path)
        if path == plain and is_zipfile(plain):  # torch stores numbers as they are, and would unpack them
            with ZipFile(plain) as members:
                if any(member.compress_type != ZIP_STORED for member in members.infolist()):
                    raise HeadError(f"{path} is compressed, which a checkpoint is not; get the checkpoint again.")
        tensors = load_file(safe) if path == safe else torch.load(plain, map_location="cpu", weights_only=True)
    except (
        SafetensorError,
        OSError,
        RuntimeError,
        ValueError,
        EOFError,
        KeyError,
        UnpicklingError,
        BadZipFile,
    ) as error:
        raise HeadError(f"{path} cannot be read ({first_line(error)}); get the checkpoint again.") from error
    if not isinstance(tensors, dict) or not all(isinstance(value, Tensor) for value in tensors.values()):
        raise HeadError(f"{path} contains no named tensors; get the checkpoint again.")
    return tensors
