"""The EAGLE-3 head for inference: norms in the maps that follow them, W (g · x) = (W g) x, and a cache that is the
engine's own.

What enters and leaves a matrix product has the engine's precision; the residual, norms and rotation are float32.

Shapes: n positions, D width of the head, D_t of the target, H heads of width w on K key heads, V_d draft vocabulary.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from core.speculative.eagle3 import Eagle3Head

Linear = Callable[[Tensor], Tensor]  # (…, in) -> (…, out)
Attend = Callable[[Tensor, Tensor, Tensor], Tensor]  # q (n, H, w), k and v (n, K, w) -> (n, H, w)


@dataclass(frozen=True)
class Folded:
    """The head's maps (out, in), float32 on the CPU, with the weights of the norms before them: W (g · x) = (W g) x."""

    fuse: Tensor
    qkv: Tensor
    out: Tensor
    gate: Tensor
    up: Tensor
    down: Tensor
    spoken: Tensor

    @classmethod
    def of(cls, head: Eagle3Head) -> Folded:
        layer = head.midlayer
        a, mlp = layer.self_attn, layer.mlp
        before = torch.cat((layer.input_layernorm.weight, layer.hidden_norm.weight)).detach()
        between = layer.post_attention_layernorm.weight.detach()
        return cls(
            fuse=head.fc.weight.detach(),
            qkv=torch.cat([each.weight.detach() for each in (a.q_proj, a.k_proj, a.v_proj)]) * before,
            out=a.o_proj.weight.detach(),
            gate=mlp.gate_proj.weight.detach() * between,
            up=mlp.up_proj.weight.detach() * between,
            down=mlp.down_proj.weight.detach(),
            spoken=(head.lm_head.weight * head.norm.weight).detach(),
        )


def turns_per_position(head: Eagle3Head) -> Tensor:
    """Angles by which rotary positions turn each pair of numbers of a query or key, (w/2,)."""
    c = head.config
    return c.rope_theta ** -(torch.arange(0, c.width, 2, dtype=torch.float32) / c.width)


class InferenceHead:
    """The head as an engine of torch's own operations computes it."""

    def __init__(self, head: Eagle3Head, dtype: torch.dtype, device: torch.device) -> None:
        """`dtype` is what enters and leaves a matrix product."""
        config, maps = head.config, Folded.of(head)

        def linear(weight: Tensor) -> Linear:
            weight = weight.to(device=device, dtype=dtype)
            return lambda x: F.linear(x, weight)

        self.dtype, self._eps = dtype, config.rms_norm_eps
        self.heads, self.key_heads, self.width = config.num_attention_heads, config.key_heads, config.width
        self._fc, self._qkv, self._out = linear(maps.fuse), linear(maps.qkv), linear(maps.out)
        self._gate_up, self._down = linear(torch.cat((maps.gate, maps.up))), linear(maps.down)
        self._spoken = linear(maps.spoken)
        self.vocabulary = head.vocabulary.to(device)  # (V_d,)
        self._speeds = turns_per_position(head).to(device)  # (w/2,)

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
