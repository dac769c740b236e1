"""The trees of an EAGLE-3 head in torch, on the device of a target with a static cache, each grown by one replay of a
graph.

One captured function computes the new positions of a text, grows the tree level by level and selects its most probable
tokens. The host sends one copy (the new ids and their places) and receives one (the tree), without synchronisation in
between. The target's features stay on the device. The function is captured once per depth and per power of two of new
positions and of columns; positions beyond a graph's size are computed in chunks before it.

          column   0 1 2 3 4 5 6 7 8 9 …     t: tokens of the tree, `beam` per level
                   t t t t a a a . . .       a: the text, with its new positions at its end

So the columns of each level are known when the graph is captured, and only the end of the text is variable. The last
column is write-only scratch for padding. Several texts get their trees one after the other. Without CUDA the same
function runs uncaptured; so it does, on the CPU, for other targets where there is no compiled code.

Shapes: n new positions, C columns of the text, T of the tree, D width of the head, H heads of width w on K key heads,
b the beam.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor

from core.errors import ContextFull
from core.models.base import LanguageModel
from core.models.capture import Graphs, bucket
from core.models.static import CHUNK, COLUMNS, FEW, StaticModel
from core.speculative.drafters.eagle3_columns import Known, arrange
from core.speculative.drafters.eagle3_tree import Grown, HeadDistributions, HeadText, grow, tree_of
from core.speculative.eagle3 import Eagle3Head
from core.speculative.tree import TokenTree

USUAL = 8  # the smallest graph's new positions, enough for the accepted tokens of most verifications


class StaticTrees:
    """The engine of `Eagle3Drafter` in torch: in the precision of a `StaticModel`, else in float32."""

    def __init__(self, head: Eagle3Head, target: LanguageModel, beam: int, depth: int, most: int) -> None:
        if isinstance(target, StaticModel):
            self._device, dtype, pool = target.layers.device, target.layers.dtype, target.graphs.pool
            self._embedded = target.embedded_there
        else:
            self._device, dtype, pool, self._embedded = torch.device("cpu"), torch.float32, None, target.embedded
        self._beam, self._most = min(beam, len(head.d2t)), most
        self._head = head.on(self._device, dtype)
        self._joined, self._vocabulary = self._head.joined(), self._head.vocabulary
        self._host_vocabulary = head.vocabulary
        self._tree = (depth - 1) * self._beam  # T
        self._columns = -(-target.context_length // COLUMNS) * COLUMNS
        # Keys and values in the columns shown above: (2, K, T + C + 1, w)
        kept = self._tree + self._columns + 1
        self._kv = torch.zeros(2, head.config.key_heads, kept, head.config.width, dtype=dtype, device=self._device)
        # The graphs read the features of new positions from here.
        self._new_features = torch.zeros(FEW, head.fc.in_features, dtype=dtype, device=self._device)
        self._temperature = torch.ones((), device=self._device)
        self._noise = torch.zeros(depth, len(head.d2t), device=self._device)
        self._graphs = Graphs(self._device, pool)
        self._known: list[Known] = []  # the text in the cache

    def __call__(self, texts: Sequence[HeadText], temperature: float, distributions: bool) -> list[TokenTree]:
        """Returns the tree after each text.

        Args:
            temperature: of the distributions.
            distributions: whether the trees contain the head's own distributions.
        Raises: ContextFull for a text longer than the target's context, or if the memory is full.
        """
        return [self._tree_after(text, temperature, distributions) for text in texts]

    def _tree_after(self, text: HeadText, temperature: float, distributions: bool) -> TokenTree:
        ids, features, depth, noise = text
        if len(ids) - 1 > self._columns:
            raise ContextFull(f"A text of {len(ids)} tokens given; the head has room for {self._columns + 1}.")
        known, self._known = self._known, []  # until the new positions are in the cache
        _, placed, (start,) = arrange(known, [ids])
        new = ids[start + 1 :]
        while len(new) > FEW:
            count = min(len(new) - 1, CHUNK)
            self._read(new[:count], features[start : start + count], start)
            start, new = start + count, new[count:]
        n = bucket(len(new), USUAL)
        columns = min(bucket(start + len(new), COLUMNS), self._columns)
        self._new_features[: len(new)].copy_(features[start:])
        fed = torch.zeros(n + 2, dtype=torch.long)
        fed[: len(new)] = torch.tensor(new)
        fed[n], fed[n + 1] = start, len(new)
        self._temperature.fill_(temperature)
        if noise is not None:
            self._noise[:depth].copy_(noise, non_blocking=True)
        noised = noise is not None
        key = (n, columns, depth, noised, distributions)
        tree, *parts = self._graphs(key, lambda x: self._grown(x, *key), fed)
        tokens, parents, confidences = tree.to("cpu")  # the only synchronisation, except for distributions
        own = None
        if distributions:
            (likelihood, rows), logits = (part.to("cpu", copy=True) for part in parts)
            own = HeadDistributions(likelihood, rows.long(), logits)
        self._known = placed
        return tree_of(Grown(tokens.long(), parents.long(), confidences, own), self._host_vocabulary, temperature)

    def close(self) -> None:
        self._graphs.clear()

    def _read(self, ids: list[int], features: Tensor, start: int) -> None:
        """Computes positions beyond a graph's size, uncaptured."""
        positions = torch.arange(start, start + len(ids), device=self._device)
        new = torch.tensor(ids, device=self._device)
        columns = min(bucket(start + len(ids), COLUMNS), self._columns)
        self._follow(new, features, positions, self._tree + positions, columns)

    def _follow(self, ids: Tensor, features: Tensor, positions: Tensor, where: Tensor, columns: int) -> Tensor:
        """Returns the outputs (n, D) of new positions (n,) of the text with features (n, 3·D_t). Their keys and values
        are written to columns `where`."""
        column = torch.arange(-self._tree, columns, device=self._device)  # the tree's columns are below 0
        sees = (column >= 0) & (column <= positions[:, None])
        return self._pass(ids, self._head.fuse(features), positions, where, sees)

    def _grown(
        self, fed: Tensor, n: int, columns: int, depth: int, noised: bool, distributions: bool
    ) -> tuple[Tensor, ...]:
        """Returns the ids, parents and confidences of the tree (3, most); with `distributions` also the likelihoods and
        rows (2, most), and the logits (rows, V_d), of `HeadDistributions`. `fed` is ids (n,), start and count,
        concatenated."""
        ids, start, count = fed[:n], fed[n], fed[n + 1 :]
        step = torch.arange(n, device=self._device)
        positions = start + step
        where = (self._tree + positions).masked_fill(step >= count, self._kv.shape[2] - 1)
        outputs = self._follow(ids, self._new_features[:n], positions, where, columns)
        output = outputs.index_select(0, count - 1)  # (1, D)
        b, T = self._beam, self._tree
        length = start + count  # (1,), of the text in the cache
        text = (torch.arange(columns, device=self._device) < length).expand(b, -1)

        def advance(level: int, tokens: Tensor, outputs: Tensor, seen: Tensor) -> tuple[Tensor, Tensor]:
            end = level * b  # columns of the tree after this pass
            sees = torch.cat((F.pad(seen[0], (0, T - end)), text), 1)
            columns_of = torch.arange(end - b, end, device=self._device)
            output = self._pass(tokens[0], outputs[0], (length + level - 1).expand(b), columns_of, sees)
            return output[None], self._head.logits(output).float()[None]

        ((ids, parents, confidences, own),) = grow(
            output,
            self._head.logits(output).float(),
            self._vocabulary,
            advance,
            beam=b,
            depths=[depth],
            most=self._most,
            temperature=self._temperature,
            noise=self._noise[:, None] if noised else None,
            distributions=distributions,
        )
        tree = torch.stack((ids.float(), parents.float(), confidences))  # ids are exact below 2²⁴
        return (tree,) if own is None else (tree, torch.stack((own.likelihood, own.rows.float())), own.logits)

    def _pass(self, ids: Tensor, features: Tensor, positions: Tensor, where: Tensor, sees: Tensor) -> Tensor:
        """Returns the outputs (n, D) of inputs with ids and positions (n,) and features (n, D). Their keys and values
        are written to columns `where` (n,); `sees` (n, T + C) is the attention mask."""

        def attend(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
            self._kv.index_copy_(2, where, torch.stack((k, v)).transpose(1, 2))
            keys, values = self._kv[:, :, : sees.shape[1]].unbind(0)  # (K, T + C, w)
            n, heads, w = q.shape
            # The queries of a group are stacked before their common key head, so no key is repeated.
            group = heads // len(keys)
            q = q.view(n, -1, group, w).permute(1, 2, 0, 3).reshape(len(keys), group * n, w)
            mixed = F.scaled_dot_product_attention(q[None], keys[None], values[None], attn_mask=sees.repeat(group, 1))
            return mixed.view(-1, group, n, w).permute(2, 0, 1, 3).flatten(1, 2)  # (n, H, w)

        of_tokens = self._head.of_tokens(self._embedded(ids), self._joined)
        return self._head.layer(of_tokens, features, positions, self._joined, attend)
