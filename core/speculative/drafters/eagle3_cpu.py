"""The trees of an EAGLE-3 head in compiled code (`core.models.native`). One pass of the head per level serves all
texts, which share one cache (`eagle3_columns.py`).

Shapes: R texts, b the beam, n positions, D width of the head, D_t of the target, V_d draft vocabulary, K key heads of
width w, C columns.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from itertools import accumulate

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from core.models.base import LanguageModel
from core.models.native import Compiled, LayerMaps, Line, Shape
from core.speculative.drafters.eagle3_columns import Known, arrange
from core.speculative.drafters.eagle3_tree import HeadText, grow, tree_of
from core.speculative.eagle3 import Eagle3Head
from core.speculative.tree import TokenTree

ROOM = 256  # columns by which the cache grows


class CpuTrees:
    """The engine of `Eagle3Drafter` for targets on the CPU; `native.why_not_width(head.config.width)` must be ""."""

    def __init__(self, head: Eagle3Head, target: LanguageModel, beam: int, most: int) -> None:
        self._head = CompiledHead(head)
        self._vocabulary, self._embedded = head.vocabulary, target.embedded
        self._beam, self._most = beam, most
        self._known: list[Known] = []  # the texts in the head's cache

    def __call__(self, texts: Sequence[HeadText], temperature: float, distributions: bool) -> list[TokenTree]:
        """Computes the texts' new positions in one pass, and grows their trees.

        Args:
            temperature: the temperature.
            distributions: whether the trees contain the head's own distributions.
        """
        order = sorted(range(len(texts)), key=lambda n: -texts[n].depth)
        texts = [texts[n] for n in order]
        known, self._known = self._known, []  # until the new positions are in the cache
        kept, placed, starts = arrange(known, [text.ids for text in texts])
        self._head.keep(kept)
        outputs, logits, sees = self._read(texts, placed, starts, len(kept))
        self._known = placed
        end, beam, own = sees.shape[1], min(self._beam, len(self._vocabulary)), torch.eye(len(texts), dtype=torch.bool)
        positions = torch.tensor([[len(text.ids) - 1] for text in texts])  # of the first level, (R, 1)
        widths: list[int] = []  # texts at each level

        def advance(level: int, tokens: Tensor, outputs: Tensor, seen: Tensor) -> tuple[Tensor, Tensor]:
            active = len(tokens)
            past = end + sum(widths) * beam
            widths.append(active)
            # Columns of each level: those of the first text, of the second, …; a path sees only its own text's.
            trees = [
                (own[:active, None, :wide, None] & each[:, :, None]).flatten(2)
                for wide, each in zip(widths, seen.split(beam, 2), strict=True)
            ]
            mask = torch.cat((sees[:active, None].expand(-1, beam, -1), *trees), 2).flatten(0, 1)
            at = (positions[:active] + level - 1).expand(-1, beam).flatten()
            computed = self._head(self._embedded(tokens.flatten()), outputs.flatten(0, 1), at, past, mask)
            return computed[0].unflatten(0, (active, beam)), computed[1].unflatten(0, (active, beam))

        noises = [text.noise for text in texts if text.noise is not None]
        grown = grow(
            outputs,
            logits,
            self._vocabulary,
            advance,
            beam=beam,
            depths=[text.depth for text in texts],
            most=self._most,
            temperature=temperature,
            noise=pad_sequence(noises) if noises else None,
            distributions=distributions,
        )
        trees = {n: tree_of(nodes, self._vocabulary, temperature) for n, nodes in zip(order, grown, strict=True)}
        return [trees[n] for n in range(len(texts))]

    def _read(
        self, texts: Sequence[HeadText], placed: Sequence[Known], starts: Sequence[int], past: int
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Computes the texts' positions from `starts` on, whose columns begin at `past`. Returns the outputs (R, D) and
        logits (R, V_d) of the last positions, and the columns that each text sees (R, C)."""
        counts = [len(text.ids) - 1 - start for text, start in zip(texts, starts, strict=True)]
        ids = torch.tensor(
            [token for text, start in zip(texts, starts, strict=True) for token in text.ids[start + 1 :]]
        )
        features = torch.cat([text.features[start:] for text, start in zip(texts, starts, strict=True)])
        positions = torch.cat([torch.arange(start, start + n) for start, n in zip(starts, counts, strict=True)])
        sees = torch.zeros(len(texts), past + len(ids), dtype=torch.bool)
        for row, (_, columns) in zip(sees, placed, strict=True):
            row[torch.tensor(columns)] = True
        mask = sees.repeat_interleave(torch.tensor(counts), 0)
        for begin, n in zip(accumulate(counts, initial=0), counts, strict=False):
            mask[begin : begin + n, past + begin : past + begin + n].tril_()
        # Equal texts have one last position.
        last, of_text = torch.tensor([columns[-1] - past for _, columns in placed]).unique(return_inverse=True)
        outputs, logits = self._head(self._embedded(ids), self._head.fuse(features), positions, past, mask, last)
        return outputs[last][of_text], logits[of_text], sees

    def close(self) -> None:
        """Does nothing: all memory belongs to this object."""


class CompiledHead:
    """The head and its cache: weights in bfloat16, everything else in float32."""

    def __init__(self, head: Eagle3Head) -> None:
        c, layer = head.config, head.midlayer
        self._norm = partial(F.rms_norm, normalized_shape=[c.hidden_size], eps=c.rms_norm_eps)
        self._norm_tokens = partial(F.rms_norm, normalized_shape=[c.target_width], eps=c.rms_norm_eps)
        self._fc = head.fc.weight.detach()
        # Matrices contain the weights of the norms before them: W (g · x) = (W g) x.
        before = torch.cat((layer.input_layernorm.weight, layer.hidden_norm.weight)).detach()
        between, mlp = layer.post_attention_layernorm.weight.detach(), layer.mlp
        sizes = [heads * c.width for heads in (c.num_attention_heads, c.key_heads, c.key_heads)]
        q, k, v = (head.joined().detach() * before).split(sizes)
        maps = LayerMaps(
            q=(q, None),
            k=(k, None),
            v=(v, None),
            out=(layer.self_attn.o_proj.weight.detach(), None),
            gate=(mlp.gate_proj.weight.detach() * between, None),
            up=(mlp.up_proj.weight.detach() * between, None),
            down=(mlp.down_proj.weight.detach(), None),
        )
        output = (head.lm_head.weight * head.norm.weight).detach()
        shape = Shape(c.hidden_size, c.num_attention_heads, c.key_heads, c.width, c.intermediate_size, c.rms_norm_eps)
        self._compiled = Compiled(shape, [maps], (output, None), dtype=torch.bfloat16)
        self._block = torch.empty(2, c.key_heads, 0, c.width)  # keys and values (2, K, C, w), where C grows
        self._speeds = head.speeds.repeat(2)  # (w,)

    def keep(self, columns: list[int]) -> None:
        """Moves these columns of the cache, in increasing order, to the front."""
        if columns != list(range(len(columns))):
            self._block[..., : len(columns), :] = self._block[..., torch.tensor(columns), :]

    def _up_to(self, end: int, kept: int) -> Tensor:
        """Returns all columns before `end`. The first `kept` columns keep their contents."""
        if end > self._block.shape[2]:
            grown = self._block.new_empty(*self._block.shape[:2], end + ROOM, self._block.shape[3])
            grown[..., :kept, :] = self._block[..., :kept, :]
            self._block = grown
        return self._block[..., :end, :]

    def fuse(self, features: Tensor) -> Tensor:
        """Projects hidden states (n, 3·D_t) to features (n, D)."""
        return F.linear(features.float(), self._fc)

    def __call__(
        self,
        embeddings: Tensor,
        features: Tensor,
        positions: Tensor,
        start: int,
        mask: Tensor,
        kept: Tensor | None = None,
    ) -> tuple[Tensor, Tensor]:
        """Computes one pass. Its keys and values are written to columns `start` … `start` + n.

        Args:
            embeddings: (n, D_t) of the tokens after those of the features.
            features: (n, D), fused, or the head's own output.
            positions: (n,)
            mask: (n, start + n), the columns that each position attends to.
            kept: the indices of the positions whose logits are returned; None for all.
        Returns: outputs (n, D), logits (n, V_d) or (len(kept), V_d).
        """
        n = len(embeddings)
        h = features.clone()
        entering = torch.cat((self._norm_tokens(embeddings), self._norm(features)), -1)
        angles = (positions[:, None] * self._speeds)[None]  # one kind of rotation
        logits, _ = self._compiled(
            h,
            (angles.cos(), angles.sin()),
            [Line(self._up_to(start + n, start), start, n, mask.contiguous())],
            kept=kept,
            entering=entering,
        )
        return h, logits
