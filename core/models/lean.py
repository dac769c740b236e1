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

from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

if TYPE_CHECKING:
    from transformers import PreTrainedModel
    from transformers.cache_utils import Cache

BATCH = 16  # inputs that packing has in mind; the packed weights serve any number


def why_not_llama(module: PreTrainedModel) -> str:
    """What of this module's layers is not computed here, or ""."""
    from transformers import LlamaForCausalLM, MistralForCausalLM, Qwen2ForCausalLM

    config = module.config
    # The same layers, with or without biases.
    if type(module) not in (LlamaForCausalLM, MistralForCausalLM, Qwen2ForCausalLM):
        return f"{type(module).__name__} is no model of the Llama family"
    if config.hidden_act != "silu":
        return f"its feed-forward layers use {config.hidden_act}, not SiLU"
    kinds = set(getattr(config, "layer_types", None) or ["full_attention"])
    if kinds != {"full_attention"} or (type(module) is MistralForCausalLM and config.sliding_window):
        return "it attends to a sliding window"
    return "" if module.device.type == "cpu" else f"it runs on {module.device}"


def why_not(module: PreTrainedModel, dtype: torch.dtype) -> str:
    """Why `LeanLlama` cannot stand in for this module here, or ""."""
    if reason := why_not_llama(module):
        return reason
    if not torch.backends.mkldnn.is_available():
        return "there is no oneDNN here"
    if dtype == torch.bfloat16 and not torch.ops.mkldnn._is_mkldnn_bf16_supported():
        return "this processor computes no bfloat16 products (AVX-512 expected)"
    return ""


def head_width(config: Any) -> int:
    return getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads


def weight_and_bias(linear: nn.Linear) -> tuple[Tensor, Tensor | None]:
    return linear.weight.detach(), None if linear.bias is None else linear.bias.detach()


def mask_of(given: Tensor | dict[str, Tensor] | None, past: int, n: int) -> Tensor | None:
    """What each of n inputs sees of `past` columns and of themselves: (B, 1, n, C) or (1, 1, n, C), as booleans or as
    numbers to add; None for everything.

    Args:
        given: None, (B, C) of zeros and ones, or (B, 1, n, C).
    """
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


class Packed:
    """One or several linear maps of the same input, as oneDNN wants them: out = x Wᵀ + b."""

    def __init__(self, dtype: torch.dtype, weight: Tensor, bias: Tensor | None = None) -> None:
        """weight (out, in), bias (out,)."""
        self.weight = torch.ops.mkldnn._reorder_linear_weight(weight.to(dtype).contiguous(), BATCH)
        self.bias = None if bias is None else bias.to(dtype)

    def __call__(self, x: Tensor) -> Tensor:
        """x (…, in) -> (…, out)."""
        return torch.ops.mkldnn._linear_pointwise(x, self.weight, self.bias, "none", [], "")


class _Layer:
    """One layer's maps. The norms' weights stand in the maps that follow them: W (g · x) = (W g) x."""

    def __init__(self, layer: Any, dtype: torch.dtype, width: int) -> None:
        attention, mlp = layer.self_attn, layer.mlp
        before, between = layer.input_layernorm.weight.detach(), layer.post_attention_layernorm.weight.detach()
        joined = [attention.q_proj, attention.k_proj, attention.v_proj]
        # Rotation turns the pairs (i, i + w/2) of a head. With those side by side they are complex numbers where they
        # lie; a product q·k does not see in which order both are written.
        paired = torch.arange(width).view(2, width // 2).T.flatten()
        weights, biases = [], []
        for part, linear in enumerate(joined):
            order = torch.arange(linear.out_features).view(-1, width)
            order = (order[:, paired] if part < 2 else order).flatten()
            weights.append(linear.weight.detach()[order])
            if linear.bias is not None:
                biases.append(linear.bias.detach()[order])
        self.qkv = Packed(dtype, torch.cat(weights) * before, torch.cat(biases) if biases else None)
        self.out = Packed(dtype, *weight_and_bias(attention.o_proj))
        (gate, gate_bias), (up, up_bias) = weight_and_bias(mlp.gate_proj), weight_and_bias(mlp.up_proj)
        bias = None if gate_bias is None or up_bias is None else torch.cat([gate_bias, up_bias])
        self.gate_up = Packed(dtype, torch.cat([gate, up]) * between, bias)
        self.down = Packed(dtype, *weight_and_bias(mlp.down_proj))


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
        self._width = head_width(config)
        self._eps = torch.tensor(config.rms_norm_eps)
        self._layers = [_Layer(layer, dtype, self._width) for layer in body.layers]
        head: Any = module.get_output_embeddings()
        self._head = Packed(dtype, head.weight.detach() * body.norm.weight.detach(), weight_and_bias(head)[1])

    @property
    def arithmetic(self) -> str:
        return f"oneDNN, {self.dtype}"

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
        feature_layers: tuple[int, ...] = (),
    ) -> SimpleNamespace:
        """Logits (B, kept, V) after the inputs (B, n) or (B, n, D); arguments as transformers has them.

        Args:
            attention_mask: (B, C) of zeros and ones, or (B, 1, n, C): what each input sees, as booleans or as numbers
                to add.
            feature_layers: also give, as `features` (B, n, 3·D) for three, the residual stream as it enters these
                layers, side by side; the number of layers stands for what leaves the last one.
        """
        assert past_key_values is not None
        # Rounded like embeddings that the caller gives: feeding a token is feeding its embedding.
        h: Tensor = self.embed_tokens(input_ids).to(self.dtype) if inputs_embeds is None else inputs_embeds
        past = past_key_values.get_seq_length()
        B, n, _ = h.shape
        if position_ids is None:
            position_ids = torch.arange(past, past + n)[None]
        mask = mask_of(attention_mask, past, n)
        h = h.to(torch.float32, copy=True)  # (B, n, D), the residual stream
        cos, sin = self._rotary(h, position_ids=position_ids)  # (B, n, w)
        half = self._width // 2
        turn = torch.complex(cos[..., None, :half].contiguous(), sin[..., None, :half].contiguous())  # (B, n, 1, w/2)
        entering: dict[int, Tensor] = {}
        for i, layer in enumerate(self._layers):
            if i in feature_layers:
                entering[i] = h.clone()
            qkv = layer.qkv(self._normed(h))
            h += layer.out(self._attention(qkv.view(B, n, -1, self._width), turn, mask, past_key_values, i))
            gate, up = layer.gate_up(self._normed(h)).chunk(2, dim=-1)
            h += layer.down(F.silu(gate).mul_(up))
        entering[len(self._layers)] = h
        features = torch.cat([entering[i] for i in feature_layers], -1) if feature_layers else None
        kept = h[:, slice(-logits_to_keep, None) if isinstance(logits_to_keep, int) else logits_to_keep]
        return SimpleNamespace(logits=self._head(self._normed(kept)).float(), features=features)

    def _normed(self, h: Tensor) -> Tensor:
        """h over its root mean square; the norm's weight is in the map that follows."""
        size = torch.linalg.vector_norm(h, dim=-1, keepdim=True)
        return (h * torch.addcmul(self._eps, size, size, value=1 / h.shape[-1]).rsqrt_()).to(self.dtype)

    def _attention(self, qkv: Tensor, turn: Tensor, mask: Tensor | None, cache: Cache, layer: int) -> Tensor:
        """qkv (B, n, H + 2·keys, w) -> (B, n, H·w)."""
        B, n, _, w = qkv.shape
        H, keys = self._heads, self._key_heads
        pairs = qkv[:, :, : H + keys].float().unflatten(-1, (w // 2, 2))
        turned = torch.view_as_real(torch.view_as_complex(pairs) * turn).to(self.dtype).flatten(-2)
        q, k, v = turned[:, :, :H], turned[:, :, H:], qkv[:, :, H + keys :]
        k, v = cache.update(k.transpose(1, 2), v.transpose(1, 2), layer)  # (B, keys, C, w)
        G = H // keys
        # A group's queries stand one below the other in front of their one key head: nothing is repeated.
        q = q.view(B, n, keys, G, w).permute(0, 2, 3, 1, 4).reshape(B, keys, G * n, w)
        if mask is not None and G > 1 and n > 1:
            mask = mask.repeat(1, 1, G, 1)
        o = F.scaled_dot_product_attention(q, k, v, attn_mask=mask)
        return o.view(B, keys, G, n, w).permute(0, 3, 1, 2, 4).reshape(B, n, H * w)
