"""An EAGLE-3 head proposes: a tree that grows where the head is sure (EAGLE-2's dynamic tree, Li et al. 2024 and 2025).

At each level the `beam` likeliest paths so far go on: one pass of the head over their last tokens, whose `beam`
likeliest next tokens each are candidates. Of all candidates of all levels, the likeliest `most` are proposed; a path
is as likely as the product of what the head says along it, so a token never stands without its parent. Nothing is
drawn by chance.

The head follows the text: positions whose features the target handed over stay in its cache, and those of the tree are
written behind them and overwritten the next time.

Shapes: n positions, C columns, D width of the head, H heads of width w (keys are repeated to as many), b the beam.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from core.models.base import LanguageModel
from core.models.lean import Packed
from core.speculative.drafters.base import Drafter, Moment
from core.speculative.eagle3 import Eagle3Head
from core.speculative.target import Choice
from core.speculative.tree import TokenTree

DEFAULT_HEAD = Path(__file__).resolve().parents[3] / "assets" / "eagle3-default"  # for the default model
DEPTH = 6
ROOM = 256  # columns by which the cache grows


class Eagle3Drafter(Drafter):
    """See the head of this file."""

    name = "EAGLE-3"

    def __init__(
        self,
        head: Eagle3Head,
        target: LanguageModel,
        choice: Choice | None = None,
        beam: int = 6,
        depth: int = DEPTH,
        most: int = 32,
    ) -> None:
        """
        Args:
            head: of this target.
            target: on torch, for it has to hand over its hidden states.
            choice: how the text is sampled; its temperature tells how much the head's likeliest tokens are worth.
            beam: paths that go on at each level, and candidates after each.
            depth, most: of the tree.
        Raises: HeadError for another target's head; BackendUnavailable where a target gives no hidden states.
        """
        head.check(target.vocab_size, target.dim)
        self.layers = head.config.feature_layers(target.depth)
        target.watch(self.layers)
        self.beam, self.depth, self.most = beam, depth, most
        self.width = 4  # a tree has about so many tokens per level
        self._heat = choice.temperature if choice is not None and not choice.greedy else 1.0
        self._embeddings = target.embeddings
        self._head = _PackedHead(head)
        self._vocabulary = head.vocabulary
        self._ids: list[int] = []  # the text whose first len - 1 positions are in the head's cache

    def draft(self, moment: Moment, depth: int, chance: np.random.Generator) -> TokenTree:
        depth = min(depth, self.depth)
        if depth < 1 or moment.features is None or len(moment.ids) < 2:
            return TokenTree()
        with torch.inference_mode():
            logq, output = self._follow(moment.ids, moment.features)
            return self._grown(logq, output, depth)

    def _follow(self, ids: list[int], features: Tensor) -> tuple[Tensor, Tensor]:
        """Read what the text has grown by. ids (T,), features (T - 1, 3·D_t); position t has the features of token t
        and the embedding of token t + 1. Returns ln q (V_d,) of the next token and the head's last output (D,)."""
        same = 0
        for a, b in zip(self._ids, ids, strict=False):
            if a != b:
                break
            same += 1
        # The last position is read again where nothing is new.
        start = min(max(same - 1, 0), len(ids) - 2)
        self._ids = list(ids)
        new = torch.tensor(ids[start + 1 :])
        count = len(new)
        positions = torch.arange(start, start + count)
        seen = torch.ones(count, start + count, dtype=torch.bool).tril_(start) if count > 1 else None
        output = self._head(self._embeddings[new], self._head.fuse(features[start:]), positions, start, seen)[-1]
        return self._said(output[None])[0], output

    def _said(self, outputs: Tensor) -> Tensor:
        """ln q (n, V_d)."""
        logits = self._head.logits(outputs)
        return (logits / self._heat if self._heat != 1 else logits).log_softmax(-1)

    def _grown(self, logq: Tensor, output: Tensor, depth: int) -> TokenTree:
        text = len(self._ids) - 1  # positions in the cache
        b = min(self.beam, logq.shape[-1])
        best, at = logq.topk(b)
        ids, parents, paths, said = [self._vocabulary[at]], [torch.full((b,), -1)], [best], [best]
        # The paths that go on: their places among the candidates, their sums, and the output that each came from.
        places, sums, outputs = torch.arange(b), best, output.expand(b, -1)
        seen = torch.zeros(b, 0, dtype=torch.bool)  # which passed tokens of the tree each path has
        total = b
        for level in range(1, depth):
            n = level * b  # columns of the tree after this pass
            seen = torch.cat((seen, torch.eye(b, dtype=torch.bool)), 1)
            mask = torch.cat((torch.ones(b, text, dtype=torch.bool), seen), 1)
            tokens = torch.cat(ids)[places]
            outputs = self._head(
                self._embeddings[tokens], outputs, torch.full((b,), text + level - 1), text + n - b, mask
            )
            logq = self._said(outputs)
            own, at = logq.topk(b, dim=-1)  # (b, b)
            reached = (sums[:, None] + own).flatten()
            ids.append(self._vocabulary[at.flatten()])
            parents.append(places.repeat_interleave(b))
            paths.append(reached)
            said.append(own.flatten())
            sums, chosen = reached.topk(b)
            places = total + chosen
            total += b * b
            came = chosen // b
            outputs, seen = outputs[came], seen[came]
        return self._likeliest(*(torch.cat(each) for each in (ids, parents, paths, said)))

    def _likeliest(self, ids: Tensor, parents: Tensor, paths: Tensor, said: Tensor) -> TokenTree:
        # Stable, and a child stands behind its parent: where both are as likely, the parent comes first.
        kept = torch.argsort(paths, descending=True, stable=True)[: self.most].sort().values
        new = {-1: -1} | {old: i for i, old in enumerate(kept.tolist())}
        return TokenTree(ids[kept].tolist(), [new[old] for old in parents[kept].tolist()], said[kept].exp().tolist())


class _PackedHead:
    """The head for inference: weights packed by oneDNN, norms in the maps that follow them, a cache with room."""

    def __init__(self, head: Eagle3Head) -> None:
        config, layer = head.config, head.midlayer
        a = layer.self_attn
        dtype = torch.bfloat16 if torch.ops.mkldnn._is_mkldnn_bf16_supported() else torch.float32
        self.dtype, self._eps = dtype, config.rms_norm_eps
        self._heads, self._key_heads, self._width = a.heads, a.key_heads, config.width
        self._split = config.target_width
        before = torch.cat((layer.input_layernorm.weight, layer.hidden_norm.weight)).detach()
        qkv = torch.cat([each.weight.detach() for each in (a.q_proj, a.k_proj, a.v_proj)])
        self._fc = Packed(dtype, head.fc.weight.detach())
        self._qkv = Packed(dtype, qkv * before)
        self._out = Packed(dtype, a.o_proj.weight.detach())
        gate_up = torch.cat((layer.mlp.gate_proj.weight, layer.mlp.up_proj.weight)).detach()
        self._gate_up = Packed(dtype, gate_up * layer.post_attention_layernorm.weight.detach())
        self._down = Packed(dtype, layer.mlp.down_proj.weight.detach())
        self._spoken = Packed(dtype, (head.lm_head.weight * head.norm.weight).detach())
        powers = torch.arange(0, config.width, 2, dtype=torch.float32) / config.width
        self._speeds = config.rope_theta**-powers  # (w/2,)
        self._kv = torch.empty(2, a.key_heads, 0, config.width, dtype=dtype)  # keys, values (H/G, C, w)

    def fuse(self, features: Tensor) -> Tensor:
        """(n, 3·D_t) -> (n, D)"""
        return self._fc(features.to(self.dtype)).float()

    def logits(self, outputs: Tensor) -> Tensor:
        """(n, D) -> (n, V_d)"""
        return self._spoken(self._normed(outputs)).float()

    def __call__(
        self, embeddings: Tensor, features: Tensor, positions: Tensor, start: int, mask: Tensor | None
    ) -> Tensor:
        """(n, D_t), (n, D) and positions (n,) -> outputs (n, D). Keys and values go to columns start … start + n; mask
        (n, start + n) says which columns each sees, None all."""
        n, w = len(embeddings), self._width
        x = torch.cat((self._normed(embeddings), self._normed(features)), -1)
        qkv = self._qkv(x).view(n, -1, w)
        q, k, v = qkv.split([self._heads, self._key_heads, self._key_heads], 1)  # (n, heads, w)
        angles = positions[:, None, None] * self._speeds
        cos, sin = angles.cos(), angles.sin()
        end = start + n
        if end > self._kv.shape[2]:
            grown = torch.empty(2, self._key_heads, end + ROOM, w, dtype=self.dtype)
            grown[:, :, :start] = self._kv[:, :, :start]
            self._kv = grown
        self._kv[0, :, start:end] = self._turned(k, cos, sin).transpose(0, 1)
        self._kv[1, :, start:end] = v.transpose(0, 1)
        keys, values = self._kv[:, None, :, :end].unbind(0)
        mixed = F.scaled_dot_product_attention(
            self._turned(q, cos, sin).transpose(0, 1)[None], keys, values, attn_mask=mask, enable_gqa=True
        )  # (1, H, n, w)
        h = features + self._out(mixed[0].transpose(0, 1).reshape(n, -1))
        gate, up = self._gate_up(self._normed(h)).chunk(2, -1)
        return h + self._down(F.silu(gate).mul_(up))

    def _normed(self, x: Tensor) -> Tensor:
        return (x * torch.rsqrt(x.square().mean(-1, keepdim=True) + self._eps)).to(self.dtype)

    def _turned(self, x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        a, b = x.float().chunk(2, -1)
        return torch.cat((a * cos - b * sin, b * cos + a * sin), -1).to(self.dtype)
