"""The Llama family on a CPU, lean: weights packed by oneDNN and one short loop over the layers.

transformers spends much of a small model's step outside of matrix products, and torch's own `linear` brings its weight
into oneDNN's order anew at every call. Here weights are packed once, projections of the same input are joined, and
what is left per layer is a dozen calls. It takes the place of transformers' module inside `TorchModel` and is called
like it: the cache, masks and positions are the caller's.

In float32 the logits are the module's but for the order of additions. In bfloat16 half as many bytes are read: the
residual stream, norms, rotation and logits stay float32, what enters and leaves a matrix product is rounded.

Shapes: B rows, n inputs each, D width, H query heads in G groups per key head, w width of a head, C columns.
"""

from __future__ import annotations

from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from transformers import LlamaForCausalLM, MistralForCausalLM, PreTrainedModel, Qwen2ForCausalLM
from transformers.cache_utils import Cache

BATCH = 16  # inputs that packing has in mind; the packed weights serve any number
FAMILY = (LlamaForCausalLM, MistralForCausalLM, Qwen2ForCausalLM)  # the same layers, with or without biases


def why_not(module: PreTrainedModel, dtype: torch.dtype) -> str:
    """Why `LeanLlama` cannot stand in for this module here, or ""."""
    config = module.config
    if type(module) not in FAMILY:
        return f"{type(module).__name__} is no model of the Llama family"
    if config.hidden_act != "silu":
        return f"its feed-forward layers use {config.hidden_act}, not SiLU"
    kinds = set(getattr(config, "layer_types", None) or ["full_attention"])
    if kinds != {"full_attention"} or (type(module) is MistralForCausalLM and config.sliding_window):
        return "it attends to a sliding window"
    if module.device.type != "cpu" or not torch.backends.mkldnn.is_available():
        return "it does not run on a CPU with oneDNN"
    if dtype == torch.bfloat16 and not torch.ops.mkldnn._is_mkldnn_bf16_supported():
        return "this processor computes no bfloat16 products (AVX-512 expected)"
    return ""


class _Packed:
    """One or several linear maps of the same input, as oneDNN wants them: out = x Wᵀ + b."""

    def __init__(self, dtype: torch.dtype, *layers: nn.Linear) -> None:
        weight = torch.cat([layer.weight.detach() for layer in layers]).to(dtype)  # (out, in)
        self.weight = torch.ops.mkldnn._reorder_linear_weight(weight.contiguous(), BATCH)
        biases = [layer.bias.detach() for layer in layers if layer.bias is not None]
        self.bias = torch.cat(biases).to(dtype) if biases else None

    def __call__(self, x: Tensor, then: str = "none") -> Tensor:
        """x (…, in) -> (…, out); `then` is "none" or "swish" (SiLU)."""
        return torch.ops.mkldnn._linear_pointwise(x, self.weight, self.bias, then, [], "")

    def times(self, x: Tensor, other: Tensor) -> Tensor:
        """The map of x, multiplied by `other`, element by element."""
        return torch.ops.mkldnn._linear_pointwise.binary(x, other, self.weight, self.bias, "mul")


@dataclass
class _Layer:
    norm: Tensor  # (D,) float32
    qkv: _Packed
    out: _Packed
    norm_mlp: Tensor  # (D,) float32
    gate: _Packed
    up: _Packed
    down: _Packed


class LeanLlama(nn.Module):
    """A causal language model with the weights of a transformers module, which may be dropped afterwards.

    Attributes:
        config: transformers' configuration of the model.
        dtype: of weights and cache, float32 or bfloat16.
    """

    def __init__(self, module: PreTrainedModel, dtype: torch.dtype) -> None:
        """Pack the weights of a float32 module on the CPU; `why_not(module, dtype)` must be ""."""
        super().__init__()
        self.dtype = dtype
        config = module.config
        self.config, self.generation_config = config, module.generation_config
        body: Any = module.model
        self.embed_tokens = body.embed_tokens  # float32, which is the public table too
        self._rotary = body.rotary_emb
        self._heads, self._key_heads = config.num_attention_heads, config.num_key_value_heads
        self._width = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
        self._eps = config.rms_norm_eps
        self._layers = [
            _Layer(
                layer.input_layernorm.weight.detach().float(),
                _Packed(dtype, layer.self_attn.q_proj, layer.self_attn.k_proj, layer.self_attn.v_proj),
                _Packed(dtype, layer.self_attn.o_proj),
                layer.post_attention_layernorm.weight.detach().float(),
                _Packed(dtype, layer.mlp.gate_proj),
                _Packed(dtype, layer.mlp.up_proj),
                _Packed(dtype, layer.mlp.down_proj),
            )
            for layer in body.layers
        ]
        self._norm = body.norm.weight.detach().float()
        self._head = _Packed(dtype, module.get_output_embeddings())

    @property
    def device(self) -> torch.device:
        return self.embed_tokens.weight.device

    def get_input_embeddings(self) -> nn.Module:
        return self.embed_tokens

    def forward(
        self,
        input_ids: Tensor | None = None,
        inputs_embeds: Tensor | None = None,
        attention_mask: Tensor | dict[str, Tensor] | None = None,
        position_ids: Tensor | None = None,
        past_key_values: Cache | None = None,
        logits_to_keep: int | Tensor = 0,
        use_cache: bool = True,
        return_dict: bool = True,
    ) -> SimpleNamespace:
        """Logits (B, kept, V) after the inputs (B, n) or (B, n, D); arguments as transformers has them.

        Args:
            attention_mask: (B, C) of zeros and ones, or (B, 1, n, C): what each input sees, as booleans or as numbers
                to add.
        """
        assert past_key_values is not None
        if inputs_embeds is None:
            # Rounded like embeddings that the caller gives: feeding a token is feeding its embedding.
            inputs_embeds = self.embed_tokens(input_ids).to(self.dtype)
        past = past_key_values.get_seq_length()
        B, n, _ = inputs_embeds.shape
        if position_ids is None:
            position_ids = torch.arange(past, past + n)[None]
        mask = self._mask(attention_mask, past, n)
        cos, sin = self._rotary(inputs_embeds.float(), position_ids=position_ids)  # (B, n, w)
        half = self._width // 2
        turn = torch.complex(cos[..., None, :half].contiguous(), sin[..., None, :half].contiguous())  # (B, n, 1, w/2)
        h = inputs_embeds.float()  # (B, n, D)
        for i, layer in enumerate(self._layers):
            qkv = layer.qkv(self._normed(h, layer.norm))
            h += layer.out(self._attention(qkv.view(B, n, -1, self._width), turn, mask, past_key_values, i))
            x = self._normed(h, layer.norm_mlp)
            h += layer.down(layer.up.times(x, layer.gate(x, "swish")))
        kept = h[:, slice(-logits_to_keep, None) if isinstance(logits_to_keep, int) else logits_to_keep]
        return SimpleNamespace(logits=self._head(self._normed(kept, self._norm)).float())

    def _normed(self, h: Tensor, weight: Tensor) -> Tensor:
        return F.rms_norm(h, weight.shape, weight, self._eps).to(self.dtype)

    def _attention(self, qkv: Tensor, turn: Tensor, mask: Tensor | None, cache: Cache, layer: int) -> Tensor:
        """qkv (B, n, H + 2·keys, w) -> (B, n, H·w)."""
        B, n, _, w = qkv.shape
        H, keys = self._heads, self._key_heads
        # Rotation of the pairs (i, i + w/2) by the position's angle, as complex numbers.
        turned = qkv[:, :, : H + keys].float().view(B, n, H + keys, 2, w // 2).transpose(3, 4).contiguous()
        turned = torch.view_as_real(torch.view_as_complex(turned) * turn).transpose(3, 4)
        turned = turned.reshape(B, n, H + keys, w).to(self.dtype)
        q, k, v = turned[:, :, :H], turned[:, :, H:], qkv[:, :, H + keys :]
        k, v = cache.update(k.transpose(1, 2), v.transpose(1, 2), layer)  # (B, keys, C, w)
        G = H // keys
        # A group's queries stand one below the other in front of their one key head: nothing is repeated.
        q = q.view(B, n, keys, G, w).permute(0, 2, 3, 1, 4).reshape(B, keys, G * n, w)
        if mask is not None and G > 1 and n > 1:
            mask = mask.repeat(1, 1, G, 1)
        o = F.scaled_dot_product_attention(q, k, v, attn_mask=mask)
        return o.view(B, keys, G, n, w).permute(0, 3, 1, 2, 4).reshape(B, n, H * w)

    def _mask(self, given: Tensor | dict[str, Tensor] | None, past: int, n: int) -> Tensor | None:
        """What each input sees: (B, 1, n, C) or (1, 1, n, C), or None for everything."""
        if isinstance(given, dict):
            given = next(iter(given.values()))  # all layers are of one kind here
        if given is not None and given.ndim == 4:
            return given
        if given is None and n == 1:
            return None
        causal = torch.ones(n, past + n, dtype=torch.bool).tril_(past)[None, None]
        if given is None:
            return causal
        # A filled-up input sees itself at least: softmax over nothing is NaN.
        own = torch.zeros_like(causal)
        own[0, 0, :, past:].fill_diagonal_(True)
        return (causal & given[:, None, None, :].bool()) | own
