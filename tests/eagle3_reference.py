"""An EAGLE-3 head's layer in the plainest form, with a cache and masks, to compare the engines with.

Shapes: B rows, n positions, c cached positions, D width of the head, H heads of width w on K key heads.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from core.speculative.eagle3 import Eagle3Head

KeysValues = tuple[Tensor, Tensor]  # (B, K, c, w) each


def one_pass(
    head: Eagle3Head,
    embeddings: Tensor,
    features: Tensor,
    positions: Tensor,
    past: KeysValues | None = None,
    mask: Tensor | None = None,
) -> tuple[Tensor, KeysValues]:
    """Outputs (B, n, D) of embeddings (B, n, D_t) and features (B, n, D) at positions (n,), and the cache with them.
    `mask` (n, c + n) is True where a position may look; None is everything up to itself."""
    layer, attention, width = head.midlayer, head.midlayer.self_attn, head.config.width
    x = torch.cat((layer.input_layernorm(embeddings), layer.hidden_norm(features)), -1)
    maps = (attention.q_proj, attention.k_proj, attention.v_proj)
    q, k, v = (each(x).unflatten(-1, (-1, width)).transpose(1, 2) for each in maps)  # (B, heads, n, w)
    q, k = rotated(q, positions, head.config.rope_theta), rotated(k, positions, head.config.rope_theta)
    if past is not None:
        k, v = torch.cat((past[0], k), 2), torch.cat((past[1], v), 2)
    if mask is None:
        mask = torch.ones(q.shape[2], k.shape[2], dtype=torch.bool).tril(k.shape[2] - q.shape[2])
    repeated = (each.repeat_interleave(q.shape[1] // k.shape[1], 1) for each in (k, v))
    attended = F.scaled_dot_product_attention(q, *repeated, attn_mask=mask)
    h = features + attention.o_proj(attended.transpose(1, 2).flatten(2))
    x = layer.post_attention_layernorm(h)
    return h + layer.mlp.down_proj(F.silu(layer.mlp.gate_proj(x)) * layer.mlp.up_proj(x)), (k, v)


def rotated(x: Tensor, positions: Tensor, theta: float) -> Tensor:
    """Number i of a vector turns with number i + w/2, by position · θ^(-2i/w)."""
    half = x.shape[-1] // 2
    turns = torch.complex(x[..., :half], x[..., half:])
    angles = positions[:, None] * theta ** -(torch.arange(half) / half)
    turned = turns * torch.polar(torch.ones_like(angles), angles)
    return torch.cat((turned.real, turned.imag), -1)
