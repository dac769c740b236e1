"""The EAGLE-3 head for inference: norms in the maps that follow them, W (g · x) = (W g) x, and a cache that is the
engine's own.

What enters and leaves a matrix product has the engine's precision; the residual, norms and rotation are float32.

Shapes: n positions, D width of the head, D_t of the target, H heads of width w on K key heads, V_d draft vocabulary.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor

from core.speculative.eagle3 import Eagle3Head

SHARPER = 0.9  # of the temperature, where there are dice: what a head does not know makes it too flat

Linear = Callable[[Tensor], Tensor]  # (…, in) -> (…, out)
Attend = Callable[[Tensor, Tensor, Tensor], Tensor]  # q (n, H, w), k and v (n, K, w) -> (n, H, w)


def likeliest(
    logits: Tensor, b: int, temperature: float | Tensor, noise: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    """Logits (n, V_d) -> the b tokens likeliest to be the target's next one, best first: ln of how likely, and their
    places in the draft vocabulary, (n, b) each. `noise` (V_d,) is what dice add to ln q."""
    if noise is None:
        return (logits / temperature).log_softmax(-1).topk(b)
    best, at = (logits / (SHARPER * temperature) + noise).topk(b)
    return best.log_softmax(-1), at


class InferenceHead:
    """The head's maps, as an engine wants them."""

    def __init__(self, head: Eagle3Head, dtype: torch.dtype, device: torch.device, linear: Callable[[Tensor], Linear]):
        """`linear` makes a map of its weight (out, in), which is float32 on the CPU."""
        config, layer = head.config, head.midlayer
        a = layer.self_attn
        self.dtype, self._eps = dtype, config.rms_norm_eps
        self.heads, self.key_heads, self.width = a.heads, a.key_heads, config.width
        before = torch.cat((layer.input_layernorm.weight, layer.hidden_norm.weight)).detach()
        qkv = torch.cat([each.weight.detach() for each in (a.q_proj, a.k_proj, a.v_proj)])
        self._fc = linear(head.fc.weight.detach())
        self._qkv = linear(qkv * before)
        self._out = linear(a.o_proj.weight.detach())
        gate_up = torch.cat((layer.mlp.gate_proj.weight, layer.mlp.up_proj.weight)).detach()
        self._gate_up = linear(gate_up * layer.post_attention_layernorm.weight.detach())
        self._down = linear(layer.mlp.down_proj.weight.detach())
        self._spoken = linear((head.lm_head.weight * head.norm.weight).detach())
        self.vocabulary = head.vocabulary.to(device)  # (V_d,)
        powers = torch.arange(0, config.width, 2, dtype=torch.float32) / config.width
        self._speeds = (config.rope_theta**-powers).to(device)  # (w/2,)

    def fuse(self, features: Tensor) -> Tensor:
        """(n, 3·D_t) -> (n, D)"""
        return self._fc(features.to(self.dtype)).float()

    def logits(self, outputs: Tensor) -> Tensor:
        """(n, D) -> (n, V_d)"""
        return self._spoken(self._normed(outputs)).float()

    def layer(self, embeddings: Tensor, features: Tensor, positions: Tensor, attend: Attend) -> Tensor:
        """(n, D_t), (n, D) and positions (n,) -> outputs (n, D)."""
        n = len(embeddings)
        x = torch.cat((self._normed(embeddings.float()), self._normed(features)), -1)
        q, k, v = self._qkv(x).view(n, -1, self.width).split([self.heads, self.key_heads, self.key_heads], 1)
        angles = positions[:, None, None] * self._speeds
        cos, sin = angles.cos(), angles.sin()
        h = features + self._out(attend(self._turned(q, cos, sin), self._turned(k, cos, sin), v).reshape(n, -1))
        gate, up = self._gate_up(self._normed(h)).chunk(2, -1)
        return h + self._down(F.silu(gate).mul_(up))

    def _normed(self, x: Tensor) -> Tensor:
        return (x * torch.rsqrt(x.square().mean(-1, keepdim=True) + self._eps)).to(self.dtype)

    def _turned(self, x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        a, b = x.float().chunk(2, -1)
        return torch.cat((a * cos - b * sin, b * cos + a * sin), -1).to(self.dtype)
