"""The EAGLE-3 head: one transformer layer that guesses the target's next tokens (Li et al. 2025, arXiv 2503.01840).

At position i it is given the *feature* of token i, which the target computed, and the embedding of token i+1, and says
what token i+2 will be. A feature is what three layers of the target, a low, a middle and a high one, say together.
Beyond the tokens that the target has seen, the head's own output takes the feature's place, so that it can go
on by itself. The training (`training.heads`) does the same, which is what makes it last for several tokens.

The files are those of the published checkpoints: `config.json` beside `model.safetensors` or `pytorch_model.bin`, with

    fc.weight                          three features -> one
    midlayer.{self_attn,mlp}.*_proj.weight, midlayer.{hidden_norm,input_layernorm,post_attention_layernorm}.weight
    norm.weight, lm_head.weight        output -> draft vocabulary
    d2t, t2d                           draft id -> target id, as a difference; which target ids are draft ids

Shapes: B rows, n positions, c cached positions, D width of the head, D_t of the target, H heads in G groups per key
head, w width of a head, V_d draft vocabulary.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from pickle import UnpicklingError  # what torch raises for a file with more than tensors in it; nothing is unpickled
from tempfile import NamedTemporaryFile
from typing import Any

import torch
import torch.nn.functional as F
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from core.errors import InputError, PolydraftError

KeysValues = tuple[Tensor, Tensor]  # (B, H/G, c, w) each


class HeadError(PolydraftError):
    """A checkpoint that cannot be used: missing, damaged, of another layout or for another target."""


@dataclass(frozen=True)
class HeadConfig:
    """The fields of `config.json` that matter, under the names they have there.

    Attributes:
        hidden_size: D.
        target_hidden_size: D_t; None where it is D.
        vocab_size, draft_vocab_size: of the target; V_d.
        layers: of the target, whose outputs are the features: the hidden states that enter these layers.
            None: 2, half, and the last but two, as the published heads are trained.
    """

    hidden_size: int
    intermediate_size: int
    num_attention_heads: int
    vocab_size: int
    draft_vocab_size: int
    num_key_value_heads: int | None = None
    head_dim: int | None = None
    target_hidden_size: int | None = None
    rms_norm_eps: float = 1e-6
    rope_theta: float = 10000.0
    layers: tuple[int, int, int] | None = None

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
    def of(cls, said: Mapping[str, Any]) -> HeadConfig:
        """From the contents of a `config.json`. Raises HeadError that names what is missing or no number."""
        known = {field.name for field in fields(cls)}
        given = {name: value for name, value in said.items() if name in known and value is not None}
        theta = (said.get("rope_parameters") or {}).get("rope_theta")
        if theta is not None:
            given.setdefault("rope_theta", theta)
        for name in ("hidden_size", "intermediate_size", "num_attention_heads", "vocab_size", "draft_vocab_size"):
            if not isinstance(given.get(name), int) or given[name] < 1:
                raise HeadError(f"config.json has {name} {given.get(name)!r}; a number above 0 expected.")
        for name in ("num_key_value_heads", "head_dim", "target_hidden_size"):
            if name in given and (not isinstance(given[name], int) or given[name] < 1):
                raise HeadError(f"config.json has {name} {given[name]!r}; a number above 0 expected.")
        if "layers" in given:
            if not isinstance(given["layers"], list) or len(given["layers"]) != 3:
                raise HeadError(f"config.json has layers {given['layers']!r}; three numbers expected.")
            given["layers"] = tuple(int(n) for n in given["layers"])
        made = cls(**given)
        if made.num_attention_heads % made.key_heads or made.width % 2:
            raise HeadError(
                f"config.json has {made.num_attention_heads} heads of width {made.width} on {made.key_heads} key "
                "heads, which do not fit together."
            )
        return made

    def feature_layers(self, depth: int) -> tuple[int, int, int]:
        """Before which of the target's `depth` layers the features are taken."""
        return self.layers or (min(2, depth - 1), depth // 2, max(depth - 3, 0))


class Eagle3Head(nn.Module):
    """The head. Its parameters have the names of the published checkpoints."""

    d2t: Tensor  # (V_d,) what to add to a draft id
    t2d: Tensor  # (V,) bool

    def __init__(self, config: HeadConfig) -> None:
        super().__init__()
        self.config = config
        d = config.hidden_size
        self.fc = nn.Linear(3 * config.target_width, d, bias=False)
        self.midlayer = _Layer(config)
        self.norm = nn.RMSNorm(d, config.rms_norm_eps)
        self.lm_head = nn.Linear(d, config.draft_vocab_size, bias=False)
        self.register_buffer("d2t", torch.zeros(config.draft_vocab_size, dtype=torch.int64))
        self.register_buffer("t2d", torch.zeros(config.vocab_size, dtype=torch.bool))
        self.set_vocabulary(torch.arange(config.draft_vocab_size))

    def set_vocabulary(self, ids: Tensor) -> None:
        """Make these target ids (V_d,), which must rise, the draft vocabulary."""
        if len(ids) != self.config.draft_vocab_size or bool((ids[1:] <= ids[:-1]).any()):
            raise InputError(f"{len(ids)} ids given; {self.config.draft_vocab_size} rising ones expected.")
        self.d2t.copy_(ids - torch.arange(len(ids)))
        self.t2d.zero_()
        self.t2d[ids] = True

    @property
    def vocabulary(self) -> Tensor:
        """The target ids of the draft vocabulary, (V_d,)."""
        return torch.arange(len(self.d2t), device=self.d2t.device) + self.d2t

    def fuse(self, features: Tensor) -> Tensor:
        """Features of three layers (…, 3·D_t), low, middle and high side by side, as one (…, D)."""
        return self.fc(features)

    def forward(
        self,
        embeddings: Tensor,
        features: Tensor,
        positions: Tensor,
        past: KeysValues | None = None,
        mask: Tensor | None = None,
    ) -> tuple[Tensor, KeysValues]:
        """One pass.

        Args:
            embeddings: (B, n, D_t) of the tokens *after* those of the features.
            features: (B, n, D), fused, or the head's own output.
            positions: (n,) or (B, n) of the features' tokens in the text.
            past: keys and values of c earlier positions.
            mask: (n, c + n) or (B, n, c + n), True where a position may look; None is each at all before it.

        Returns: the output (B, n, D), which is the next position's feature; keys and values with the new ones.
        """
        return self.midlayer(embeddings, features, positions, past, mask)

    def logits(self, output: Tensor) -> Tensor:
        """(…, V_d) over the draft vocabulary, of the token after the one that was embedded."""
        return self.lm_head(self.norm(output))

    def save(self, folder: Path, dtype: torch.dtype = torch.bfloat16) -> None:
        """Write the checkpoint, each file under a temporary name first."""
        folder.mkdir(parents=True, exist_ok=True)
        tensors = {
            name: (value.to(dtype) if value.is_floating_point() else value).contiguous()
            for name, value in self.state_dict().items()
        }
        with NamedTemporaryFile(dir=folder, suffix=".tmp", delete=False) as file:
            pass
        save_file(tensors, file.name)
        Path(file.name).replace(folder / "model.safetensors")
        said = {name: value for name, value in asdict(self.config).items() if value is not None}
        with NamedTemporaryFile("w", encoding="utf-8", dir=folder, suffix=".tmp", delete=False) as file:
            json.dump({"architectures": ["LlamaForCausalLMEagle3"], **said}, file, indent=1)
        Path(file.name).replace(folder / "config.json")

    @classmethod
    def load(cls, folder: Path) -> Eagle3Head:
        """Read a checkpoint, in float32. Raises HeadError."""
        head = cls(HeadConfig.of(_config(folder)))
        found = _tensors(folder)
        expected = head.state_dict()
        # Published heads repeat the target's embeddings, which the target has; names may begin with the module's.
        found = {name.removeprefix("model."): value for name, value in found.items()}
        found.pop("embed_tokens.weight", None)
        if missing := sorted(set(expected) - set(found)):
            raise HeadError(f"{folder} has no {missing[0]}; it is no EAGLE-3 checkpoint.")
        if unknown := sorted(set(found) - set(expected)):
            raise HeadError(f"{folder} has {unknown[0]}, which an EAGLE-3 head of one layer does not have.")
        for name, value in found.items():
            if value.shape != expected[name].shape:
                raise HeadError(
                    f"{folder}: {name} has shape {tuple(value.shape)}; {tuple(expected[name].shape)} expected from "
                    "config.json."
                )
        head.load_state_dict({name: value.to(expected[name].dtype) for name, value in found.items()})
        ids = head.vocabulary
        if bool((ids < 0).any() or (ids >= head.config.vocab_size).any()) or not bool(head.t2d[ids].all()):
            raise HeadError(f"{folder}: d2t and t2d do not agree on the draft vocabulary.")
        return head.eval()

    def check(self, vocab_size: int, dim: int) -> Eagle3Head:
        """This head. Raises HeadError if it is for another target."""
        if (self.config.vocab_size, self.config.target_width) != (vocab_size, dim):
            raise HeadError(
                f"The EAGLE-3 head is for a target with {self.config.vocab_size} tokens and width "
                f"{self.config.target_width}; this one has {vocab_size} and {dim}."
            )
        return self


class _Layer(nn.Module):
    """`midlayer`: attention over [embedding, feature], then a feed-forward layer; the feature is the residual."""

    def __init__(self, config: HeadConfig) -> None:
        super().__init__()
        d, eps = config.hidden_size, config.rms_norm_eps
        self.hidden_norm = nn.RMSNorm(d, eps)
        self.input_layernorm = nn.RMSNorm(config.target_width, eps)
        self.self_attn = _Attention(config)
        self.post_attention_layernorm = nn.RMSNorm(d, eps)
        self.mlp = _FeedForward(d, config.intermediate_size)

    def forward(
        self, embeddings: Tensor, features: Tensor, positions: Tensor, past: KeysValues | None, mask: Tensor | None
    ) -> tuple[Tensor, KeysValues]:
        x = torch.cat((self.input_layernorm(embeddings), self.hidden_norm(features)), -1)
        attended, held = self.self_attn(x, positions, past, mask)
        out = features + attended
        return out + self.mlp(self.post_attention_layernorm(out)), held


class _Attention(nn.Module):
    def __init__(self, config: HeadConfig) -> None:
        super().__init__()
        self.heads, self.key_heads, self.width = config.num_attention_heads, config.key_heads, config.width
        wide = config.target_width + config.hidden_size
        self.q_proj = nn.Linear(wide, self.heads * self.width, bias=False)
        self.k_proj = nn.Linear(wide, self.key_heads * self.width, bias=False)
        self.v_proj = nn.Linear(wide, self.key_heads * self.width, bias=False)
        self.o_proj = nn.Linear(self.heads * self.width, config.hidden_size, bias=False)
        self._theta = config.rope_theta

    def forward(
        self, x: Tensor, positions: Tensor, past: KeysValues | None, mask: Tensor | None
    ) -> tuple[Tensor, KeysValues]:
        q, k, v = self.project(x, positions)
        if past is not None:
            k, v = torch.cat((past[0], k), 2), torch.cat((past[1], v), 2)
        if mask is None:
            c = k.shape[2] - q.shape[2]
            mask = torch.ones(q.shape[2], k.shape[2], dtype=torch.bool, device=x.device).tril(c)
        if mask.ndim == 3:
            mask = mask.unsqueeze(1)
        attended = F.scaled_dot_product_attention(q, k, v, attn_mask=mask, enable_gqa=True)
        return self.o_proj(attended.transpose(1, 2).flatten(2)), (k, v)

    def project(self, x: Tensor, positions: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Rotated queries (B, H, n, w), rotated keys and values (B, H/G, n, w)."""
        q, k, v = (
            map_(x).unflatten(-1, (heads, self.width)).transpose(1, 2)
            for map_, heads in ((self.q_proj, self.heads), (self.k_proj, self.key_heads), (self.v_proj, self.key_heads))
        )
        return self.turned(q, positions), self.turned(k, positions), v

    def turned(self, x: Tensor, positions: Tensor) -> Tensor:
        """Queries or keys (B, heads, n, w), rotated by their positions (n,) or (B, n)."""
        return _rotated(x, *self._rotation(positions, x))

    def _rotation(self, positions: Tensor, x: Tensor) -> tuple[Tensor, Tensor]:
        """cos and sin (…, 1, n, w)."""
        powers = torch.arange(0, self.width, 2, device=x.device, dtype=torch.float32) / self.width
        angles = positions.to(torch.float32).unsqueeze(-1) * self._theta**-powers  # (…, n, w/2)
        angles = torch.cat((angles, angles), -1).unsqueeze(-3)
        return angles.cos().to(x.dtype), angles.sin().to(x.dtype)


def _rotated(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    first, second = x.chunk(2, -1)
    return x * cos + torch.cat((-second, first), -1) * sin


class _FeedForward(nn.Module):
    def __init__(self, d: int, inner: int) -> None:
        super().__init__()
        self.gate_proj = nn.Linear(d, inner, bias=False)
        self.up_proj = nn.Linear(d, inner, bias=False)
        self.down_proj = nn.Linear(inner, d, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        return self.down_proj(F.silu(self.gate_proj(x)) * self.up_proj(x))


def _config(folder: Path) -> dict[str, Any]:
    path = folder / "config.json"
    try:
        said = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise HeadError(
            f"No EAGLE-3 head at {folder} ({error.strerror}); a folder with config.json expected."
        ) from error
    except ValueError as error:
        raise HeadError(f"{path} is no JSON ({error}); get the checkpoint again.") from error
    if not isinstance(said, dict):
        raise HeadError(f"{path} holds no JSON object; get the checkpoint again.")
    return said


def _tensors(folder: Path) -> dict[str, Tensor]:
    """By name. Nothing in the files is executed."""
    safe, plain = folder / "model.safetensors", folder / "pytorch_model.bin"
    if not safe.is_file() and not plain.is_file():
        raise HeadError(f"{folder} has neither model.safetensors nor pytorch_model.bin.")
    path = safe if safe.is_file() else plain
    try:
        found = load_file(safe) if path == safe else torch.load(plain, map_location="cpu", weights_only=True)
    except (SafetensorError, OSError, RuntimeError, ValueError, EOFError, KeyError, UnpicklingError) as error:
        raise HeadError(f"{path} cannot be read ({str(error).splitlines()[0]}); get the checkpoint again.") from error
    if not isinstance(found, dict) or not all(isinstance(value, Tensor) for value in found.values()):
        raise HeadError(f"{path} holds no tensors by name; get the checkpoint again.")
    return found
