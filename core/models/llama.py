"""The Llama family on a CPU at the speed of its memory: compiled code in place of transformers' layers.

A pass advances any number of sequences, each by its own number of inputs. In float32 the logits are the module's
except for the order of additions. The same holds for weights in a GGUF file's own format of a few bits
(`native_gguf`): the decoded values are equal. bfloat16 halves the bytes to read; only weights are rounded, and
everything between them, including the cache, stays float32.

Shapes: N inputs of all lines, D width, w width of a head, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from core.models.adapter import Adapter, Projection
from core.models.embeddings import Embeddings, largest
from core.models.native import Change, Compiled, LayerMaps, Line, Map, Shape, why_not_width

if TYPE_CHECKING:
    from transformers import PreTrainedModel


def why_not(module: PreTrainedModel) -> str:
    """Why `NativeLlama` cannot replace this module here, or "" (which may compile the code first)."""
    return why_not_family(module) or why_not_width(head_width(module.config))


def why_not_family(module: PreTrainedModel) -> str:
    """The difference between this module's layers and those that compiled code computes, or ""."""
    from transformers import LlamaForCausalLM, MistralForCausalLM, Qwen2ForCausalLM

    config = module.config
    # The same layers, with or without biases.
    if type(module) not in (LlamaForCausalLM, MistralForCausalLM, Qwen2ForCausalLM):
        return f"{type(module).__name__} is not a model of the Llama family"
    if config.hidden_act != "silu":
        return f"its feed-forward layers use {config.hidden_act}, not SiLU"
    kinds = set(getattr(config, "layer_types", None) or ["full_attention"])
    if kinds != {"full_attention"} or (type(module) is MistralForCausalLM and config.sliding_window):
        return "it attends to a sliding window"
    if module.device.type != "cpu":
        return f"it runs on {module.device}"
    heads, key_heads = config.num_attention_heads, config.num_key_value_heads
    if heads % key_heads:
        return f"its {heads} attention heads cannot share {key_heads} key heads evenly"
    return ""


def head_width(config: Any) -> int:
    return getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads


class NativeLlama(nn.Module):
    """A causal language model with the weights of a transformers module, which may be dropped afterwards.

    Attributes:
        config: transformers' configuration of the model.
        dtype, device: float32 on the CPU, of embeddings and cache.
        planes: (heads, width) of each layer's keys and values.
        embeddings: of the inputs.
        bytes: of weights that a pass reads.
        shape_and_types: what the time of a pass depends on, without adapters.
        arithmetic: how it computes, see `LanguageModel`.
    """

    dtype, device = torch.float32, torch.device("cpu")

    def __init__(
        self,
        config: Any,
        shape: Shape,
        embeddings: Embeddings | float,
        rotary: Callable[..., tuple[Tensor, Tensor]],
        layers: Iterable[LayerMaps],
        output: Map,
        norm: Tensor,
        rounded: bool = False,
    ) -> None:
        """`why_not_width` of its heads must be "".

        Args:
            config: transformers' configuration, or an object with the same attributes.
            embeddings: of the inputs; a number if they are the output rows, times that number.
            rotary: computes cosines and sines, as transformers' module does, of each kind of rotation.
            layers: see `Compiled`.
            output, norm: the output rows, and the weight (D,) of the norm before them.
            rounded: inputs of products are rounded to 8 bits, see `Compiled`.
        """
        super().__init__()
        self.config, self._shape = config, shape
        self._rotary = rotary
        self._compiled = compiled = Compiled(shape, layers, output, norm, rounded=rounded)
        self.planes = [(shape.key_heads, shape.width)] * (2 * compiled.layers)
        self.bytes, self.shape_and_types = compiled.bytes, compiled.shape_and_types
        self.arithmetic = f"compiled, {self.shape_and_types}"
        if not isinstance(embeddings, Embeddings):
            rows = compiled.output_rows
            embeddings = Embeddings(rows.shape, rows, embeddings, largest(output[0]))
        self.embeddings = embeddings

    @classmethod
    def of(cls, module: PreTrainedModel, dtype: torch.dtype) -> NativeLlama:
        """Packs the weights of a float32 module on the CPU in float32 or bfloat16; `why_not(module)` must be ""."""
        body: Any = module.model
        output: Any = module.get_output_embeddings()
        c: Any = module.config
        width = head_width(c)
        shape = Shape(
            c.hidden_size, c.num_attention_heads, c.num_key_value_heads, width, c.intermediate_size, c.rms_norm_eps
        )
        layers = [_maps(layer, dtype) for layer in body.layers]
        embeddings = Embeddings.of_tensor(body.embed_tokens.weight.detach())
        return cls(c, shape, embeddings, body.rotary_emb, layers, _map(output, dtype), body.norm.weight.detach())

    @property
    def projections(self) -> dict[Projection, tuple[int, int]]:
        """The shapes (out, in) of the projections that adapters can change."""
        s = self._shape
        queries, keys, dim, inner = s.heads * s.width, s.key_heads * s.width, s.dim, s.inner
        of_layer = {
            "q_proj": (queries, dim),
            **dict.fromkeys(("k_proj", "v_proj"), (keys, dim)),
            "o_proj": (dim, queries),
            **dict.fromkeys(("gate_proj", "up_proj"), (inner, dim)),
            "down_proj": (dim, inner),
        }
        return {(i, name): shape for i in range(len(self.planes) // 2) for name, shape in of_layer.items()}

    def adapt(self, adapters: Sequence[tuple[Adapter, float]]) -> None:
        """Computes with these adapters, each with its strength, which fit `projections`."""
        changes: dict[Projection, list[Change]] = {}
        for adapter, strength in adapters:
            for projection, low in adapter.maps.items():
                changes.setdefault(projection, []).append(Change(low, strength * adapter.scale))
        self._compiled.adapt(changes)

    def forward(
        self,
        h: Tensor,
        positions: Tensor,
        lines: Sequence[Line],
        kept: Tensor | None = None,
        watched: tuple[int, ...] = (),
    ) -> tuple[Tensor, Tensor]:
        """Advances each line by its inputs, N in all.

        Args:
            h: (N, D) embeddings, overwritten.
            positions: (N,) in the line's text.
            kept: (inputs,) those of the N inputs after which logits are computed; None all.
            watched: layers whose input residual stream is returned; the number of layers stands for the output of the
                last one.
        Returns: logits (kept, V), and the watched streams side by side (N, watched · D).
        Raises: ContextFull if there is no memory for intermediate results.
        """
        cos, sin = (x.contiguous() for x in self._rotary(h, position_ids=positions[None]))  # (tables, N, turned)
        if self._shape.window and any(line.seen is not None for line in lines):
            of_lines = positions.split([line.n for line in lines])
            lines = [self._limited(line, at) for line, at in zip(lines, of_lines, strict=True)]
        return self._compiled(h, (cos, sin), lines, kept=kept, watched=watched)

    def _limited(self, line: Line, positions: Tensor) -> Line:
        """The line with the mask for layers with a window, which is in positions (n,): branches are in neighbouring
        columns."""
        if line.seen is None:
            return line
        of_columns = torch.cat([torch.arange(line.past), positions])
        return replace(line, near=line.seen & (positions[:, None] - of_columns < self._shape.window))


def _map(linear: nn.Linear, dtype: torch.dtype) -> Map:
    return linear.weight.detach().to(dtype), None if linear.bias is None else linear.bias.detach()


def _maps(layer: Any, dtype: torch.dtype) -> LayerMaps:
    """Of a transformers layer."""
    attention, mlp = layer.self_attn, layer.mlp
    return LayerMaps(
        q=_map(attention.q_proj, dtype),
        k=_map(attention.k_proj, dtype),
        v=_map(attention.v_proj, dtype),
        out=_map(attention.o_proj, dtype),
        gate=_map(mlp.gate_proj, dtype),
        up=_map(mlp.up_proj, dtype),
        down=_map(mlp.down_proj, dtype),
        before=layer.input_layernorm.weight.detach(),
        between=layer.post_attention_layernorm.weight.detach(),
    )


def unpaired(rows: int, width: int, turned: int | None = None) -> Tensor:
    """The order of a map's rows, to heads of that width, in a file that stores the pairs of a rotation side by side;
    `turned` numbers of a head are in pairs, by default all."""
    turned = turned or width
    heads = torch.arange(rows).view(-1, width)
    pairs = heads[:, :turned].unflatten(1, (-1, 2)).transpose(1, 2).flatten(1)
    return torch.cat([pairs, heads[:, turned:]], 1).flatten()
