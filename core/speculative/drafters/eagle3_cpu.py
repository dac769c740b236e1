"""The trees of an EAGLE-3 head on the CPU: in compiled code (`core.models.native`), or in torch if there is no
compiler.

Shapes: n positions, D width of the head, D_t of the target, V_d draft vocabulary, K key heads of width w, C columns.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

import torch
import torch.nn.functional as F
from torch import Tensor

from core.models.native import Compiled, LayerMaps, Line, Shape, why_not_width
from core.speculative.drafters.eagle3_tree import grow, with_distributions
from core.speculative.eagle3 import Eagle3Head
from core.speculative.tree import TokenTree

ROOM = 256  # columns by which the cache grows


class CpuTrees:
    """The engine of `Eagle3Drafter` for targets on the CPU."""

    def __init__(self, head: Eagle3Head, embeddings: Tensor, beam: int, most: int) -> None:
        self._head = PlainHead(head) if why_not_width(head.config.width) else CompiledHead(head)
        self._vocabulary, self._embeddings = head.vocabulary, embeddings
        self._beam, self._most = beam, most

    def __call__(
        self,
        ids: list[int],
        features: Tensor,
        start: int,
        depth: int,
        heat: float,
        noise: Tensor | None,
        distributions: bool = False,
    ) -> TokenTree:
        """Computes the text's new positions and grows the tree.

        Args:
            ids, features: (T,) and (T - 1, 3·D_t): the inputs of position t are the features of token t and the
                embedding of token t + 1.
            start: the first new position.
            heat: the temperature.
            noise: (depth, V_d)
            distributions: whether the tree contains the head's own distributions.
        """
        new, text = torch.tensor(ids[start + 1 :]), len(ids) - 1
        count, beam = len(new), min(self._beam, len(self._vocabulary))
        positions = torch.arange(start, start + count)
        seen = torch.ones(count, start + count, dtype=torch.bool).tril_(start) if count > 1 else None
        features = self._head.fuse(features[start:])
        outputs, logits = self._head(self._embeddings[new], features, positions, start, seen, last=True)
        every = torch.ones(beam, text, dtype=torch.bool)

        def advance(level: int, tokens: Tensor, outputs: Tensor, seen: Tensor) -> tuple[Tensor, Tensor]:
            positions = torch.full((beam,), text + level - 1)
            mask = torch.cat((every, seen), 1)
            return self._head(self._embeddings[tokens], outputs, positions, text + (level - 1) * beam, mask)

        tokens, parents, confidences, own = grow(
            outputs[-1:],
            logits,
            self._vocabulary,
            advance,
            beam=beam,
            depth=depth,
            most=self._most,
            temperature=heat,
            noise=noise,
            distributions=distributions,
        )
        found = tokens.tolist(), parents.tolist(), confidences.tolist()
        return with_distributions(*found, own, self._vocabulary, heat)

    def close(self) -> None:
        """Does nothing: all memory belongs to this object."""


class _Cache:
    """Keys and values (2, K, C, w), where C grows."""

    def __init__(self, head: Eagle3Head, dtype: torch.dtype) -> None:
        self._block = torch.empty(2, head.config.key_heads, 0, head.config.width, dtype=dtype)

    def up_to(self, end: int, kept: int) -> Tensor:
        """Returns all columns before `end`. The first `kept` columns keep their contents."""
        if end > self._block.shape[2]:
            grown = self._block.new_empty(*self._block.shape[:2], end + ROOM, self._block.shape[3])
            grown[..., :kept, :] = self._block[..., :kept, :]
            self._block = grown
        return self._block[..., :end, :]


@dataclass(frozen=True)
class _Folded:
    """The head's matrices (out, in), float32 on the CPU, multiplied by the weights of the norms before them:
    W (g · x) = (W g) x."""

    fuse: Tensor
    qkv: Tensor
    out: Tensor
    gate: Tensor
    up: Tensor
    down: Tensor
    lm_head: Tensor

    @classmethod
    def of(cls, head: Eagle3Head) -> _Folded:
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
            lm_head=(head.lm_head.weight * head.norm.weight).detach(),
        )


class CompiledHead:
    """Weights in bfloat16, everything else in float32; `native.why_not_width(head.config.width)` must be ""."""

    def __init__(self, head: Eagle3Head) -> None:
        c, folded = head.config, _Folded.of(head)
        self._norm = partial(F.rms_norm, normalized_shape=[c.hidden_size], eps=c.rms_norm_eps)
        self._norm_tokens = partial(F.rms_norm, normalized_shape=[c.target_width], eps=c.rms_norm_eps)
        self._fc = folded.fuse
        maps = LayerMaps(
            (folded.qkv, None), (folded.out, None), (folded.gate, None), (folded.up, None), (folded.down, None)
        )
        shape = Shape(c.hidden_size, c.num_attention_heads, c.key_heads, c.width, c.intermediate_size, c.rms_norm_eps)
        self._compiled = Compiled(shape, [maps], (folded.lm_head, None), torch.bfloat16)
        self._cache = _Cache(head, torch.float32)
        self._speeds = head.speeds.repeat(2)  # (w,)

    def fuse(self, features: Tensor) -> Tensor:
        """Projects hidden states (n, 3·D_t) to features (n, D)."""
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
        """Computes one pass. Its keys and values are written to columns `start` … `start` + n.

        Args:
            embeddings: (n, D_t) of the tokens after those of the features.
            features: (n, D), fused, or the head's own output.
            positions: (n,)
            mask: (n, start + n), the columns that each position attends to; None for all.
            last: whether only the last position's logits are returned.
        Returns: outputs (n, D), logits (n, V_d) or (1, V_d).
        """
        n = len(embeddings)
        h = features.clone()
        entering = torch.cat((self._norm_tokens(embeddings), self._norm(features)), -1)
        angles = positions[:, None] * self._speeds
        logits, _ = self._compiled(
            h,
            (angles.cos(), angles.sin()),
            [Line(self._cache.up_to(start + n, start), start, n, None if mask is None else mask.contiguous())],
            kept=torch.tensor([n - 1]) if last else None,
            entering=entering,
        )
        return h, logits


class PlainHead:
    """The same in torch, in float32."""

    def __init__(self, head: Eagle3Head) -> None:
        self._head, self._joined = head, head.joined().detach()
        self._cache = _Cache(head, torch.float32)
        self.fuse = head.fuse

    def __call__(
        self,
        embeddings: Tensor,
        features: Tensor,
        positions: Tensor,
        start: int,
        mask: Tensor | None,
        last: bool = False,
    ) -> tuple[Tensor, Tensor]:
        """Computes one pass; see `CompiledHead.__call__`."""
        end = start + len(positions)
        block = self._cache.up_to(end, start)

        def attend(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
            block[0, :, start:] = k.transpose(0, 1)
            block[1, :, start:] = v.transpose(0, 1)
            keys, values = block[:, None].unbind(0)
            mixed = F.scaled_dot_product_attention(
                q.transpose(0, 1)[None], keys, values, attn_mask=mask, enable_gqa=True
            )  # (1, H, n, w)
            return mixed[0].transpose(0, 1)

        of_tokens = self._head.of_tokens(embeddings, self._joined)
        outputs = self._head.layer(of_tokens, features, positions, self._joined, attend)
        return outputs, self._head.logits(outputs[-1:] if last else outputs)
