"""An EAGLE-3 head on the CPU, with its cache: in compiled code (`core.models.native`), or on oneDNN where there is no
compiler.

Shapes: n positions, D width of the head, D_t of the target, V_d draft vocabulary, K key heads of width w, C columns.
"""

from __future__ import annotations

from functools import partial

import torch
import torch.nn.functional as F
from torch import Tensor

from core.models.lean import Packed
from core.models.native import Compiled, LayerMaps, Shape
from core.speculative.drafters.eagle3_head import InferenceHead
from core.speculative.eagle3 import Eagle3Head

ROOM = 256  # columns by which the cache grows


class _Cache:
    """Keys and values (2, 1, K, C, w), C growing."""

    def __init__(self, head: Eagle3Head, dtype: torch.dtype) -> None:
        self._block = torch.empty(2, 1, head.config.key_heads, 0, head.config.width, dtype=dtype)

    def up_to(self, end: int, kept: int) -> Tensor:
        """All columns before `end`; the first `kept` keep what they have."""
        if end > self._block.shape[3]:
            grown = self._block.new_empty(*self._block.shape[:3], end + ROOM, self._block.shape[4])
            grown[..., :kept, :] = self._block[..., :kept, :]
            self._block = grown
        return self._block[..., :end, :]


class CompiledHead:
    """Weights in bfloat16, everything else in float32; `native.why_not_width(head.config.width)` must be ""."""

    def __init__(self, head: Eagle3Head) -> None:
        c, layer = head.config, head.midlayer
        self._norm = partial(F.rms_norm, normalized_shape=[c.hidden_size], eps=c.rms_norm_eps)
        self._norm_tokens = partial(F.rms_norm, normalized_shape=[c.target_width], eps=c.rms_norm_eps)
        self._fc = head.fc.weight.detach()
        before = torch.cat((layer.input_layernorm.weight, layer.hidden_norm.weight)).detach()
        between = layer.post_attention_layernorm.weight.detach()
        a, mlp = layer.self_attn, layer.mlp
        qkv = torch.cat([each.weight.detach() for each in (a.q_proj, a.k_proj, a.v_proj)])
        maps = LayerMaps(
            qkv=(qkv * before, None),
            out=(a.o_proj.weight.detach(), None),
            gate=(mlp.gate_proj.weight.detach() * between, None),
            up=(mlp.up_proj.weight.detach() * between, None),
            down=(mlp.down_proj.weight.detach(), None),
        )
        shape = Shape(c.hidden_size, c.num_attention_heads, c.key_heads, c.width, c.intermediate_size, c.rms_norm_eps)
        output = (head.lm_head.weight * head.norm.weight).detach(), None
        self._compiled = Compiled(shape, [maps], output, torch.bfloat16)
        self._cache = _Cache(head, torch.float32)
        powers = torch.arange(0, c.width, 2, dtype=torch.float32) / c.width
        self._speeds = (c.rope_theta**-powers).repeat(2)  # (w,)

    def fuse(self, features: Tensor) -> Tensor:
        """(n, 3·D_t) -> (n, D)"""
        return F.linear(features.float(), self._fc)

    def __call__(
        self,
        embeddings: Tensor,
        features: Tensor,
        positions: Tensor,
        start: int,
        mask: Tensor | None,
        last: bool = False,
    ) -> tuple[Tensor, Tensor]:
        """One pass; keys and values go to columns `start` … `start` + n.

        Args:
            embeddings: (n, D_t) of the tokens after those of the features.
            features: (n, D), fused, or the head's own output.
            positions: (n,)
            mask: (n, start + n), which columns each sees, None all.
            last: only the last position's logits are wanted.
        Returns: outputs (n, D), logits (n, V_d) or (1, V_d).
        """
        n = len(embeddings)
        h = features.clone()[None]
        entering = torch.cat((self._norm_tokens(embeddings), self._norm(features)), -1)
        angles = (positions[:, None] * self._speeds)[None]
        logits, _ = self._compiled(
            h,
            (angles.cos(), angles.sin()),
            self._cache.up_to(start + n, start),
            start,
            seen=None if mask is None else mask.contiguous(),
            kept=torch.tensor([n - 1]) if last else None,
            entering=entering,
        )
        return h[0], logits


class PackedHead:
    """Weights packed by oneDNN, in bfloat16 where the processor computes it."""

    def __init__(self, head: Eagle3Head) -> None:
        dtype = torch.bfloat16 if torch.ops.mkldnn._is_mkldnn_bf16_supported() else torch.float32
        self._head = InferenceHead(head, dtype, torch.device("cpu"), partial(Packed, dtype))
        self._cache = _Cache(head, dtype)
        self.fuse = self._head.fuse

    def __call__(
        self,
        embeddings: Tensor,
        features: Tensor,
        positions: Tensor,
        start: int,
        mask: Tensor | None,
        last: bool = False,
    ) -> tuple[Tensor, Tensor]:
        """As `CompiledHead.__call__`."""
        end = start + len(positions)
        block = self._cache.up_to(end, start)[:, 0]  # (2, K, C, w)

        def attend(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
            block[0, :, start:] = k.transpose(0, 1)
            block[1, :, start:] = v.transpose(0, 1)
            keys, values = block[:, None].unbind(0)
            mixed = F.scaled_dot_product_attention(
                q.transpose(0, 1)[None], keys, values, attn_mask=mask, enable_gqa=True
            )  # (1, H, n, w)
            return mixed[0].transpose(0, 1)

        outputs = self._head.layer(embeddings, features, positions, attend)
        return outputs, self._head.logits(outputs[-1:] if last else outputs)
