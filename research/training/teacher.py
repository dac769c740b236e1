"""The target as a teacher of EAGLE-3 heads: it computes logits and features, and generates texts."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor
from transformers import PreTrainedModel

from core.errors import InputError
from core.files import replacing
from core.models.llama import NativeLlama
from core.models.native import Line
from core.speculative.eagle3 import HeadConfig

FEW = 8  # texts that are processed at once
BATCH = 128  # texts that are continued at once


class ModuleTeacher:
    """A teacher that is a transformers module. Features are the hidden states that enter three of its layers."""

    def __init__(self, module: PreTrainedModel) -> None:
        """`module` is any causal model."""
        self.module: Any = module.eval().requires_grad_(False)
        config: Any = module.config
        inputs: Any = module.get_input_embeddings()
        outputs: Any = module.get_output_embeddings()
        self.depth = int(config.num_hidden_layers)
        self.layers = min(2, self.depth - 1), self.depth // 2, max(self.depth - 3, 0)
        self.embeddings = inputs.weight.detach()  # (V, D_t)
        self.output = outputs.weight.detach()  # (V, D_t)
        norm = getattr(getattr(self.module, "model", None), "norm", None)
        self.norm = None if norm is None else norm.weight.detach()  # (D_t,) before the output layer

    @torch.no_grad()
    def __call__(self, ids: Tensor, vocabulary: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """Returns, for texts (B, T), the logits (B, T, V), or (B, T, V_d) of only these tokens, and the features
        (B, T, 3·D_t)."""
        out = self.module(input_ids=ids, output_hidden_states=True, use_cache=False)
        logits = out.logits if vocabulary is None else out.logits[..., vocabulary]
        return logits, torch.cat([out.hidden_states[n] for n in self.layers], -1)

    def hidden(self, ids: Tensor) -> tuple[Tensor, Tensor]:
        """Returns the features (B, T, 3·D_t) of texts (B, T), and the output of the last layer before the norm,
        (B, T, D_t). Only for a module with such a norm."""
        last: list[Tensor] = []
        hook = self.module.model.norm.register_forward_pre_hook(lambda _, given: last.append(given[0]))
        try:
            features = self(ids)[1]
        finally:
            hook.remove()
        return features, last[0]

    def config(self, draft_vocab_size: int) -> HeadConfig:
        """Returns the configuration of a head with the target's width, number of heads and rotation.

        The chosen token reaches the output only through the attention's values, so each head has its own values, even
        if the target's heads share them. The feed-forward layer has two thirds of the target's width, so that the head
        is not larger than a layer of the target.
        """
        c: Any = self.module.config
        rope = getattr(c, "rope_parameters", None) or {}
        return HeadConfig(
            hidden_size=c.hidden_size,
            intermediate_size=max(c.intermediate_size * 2 // 3, 1),
            num_attention_heads=c.num_attention_heads,
            num_key_value_heads=c.num_attention_heads,
            head_dim=getattr(c, "head_dim", None),
            vocab_size=len(self.embeddings),
            draft_vocab_size=draft_vocab_size,
            rms_norm_eps=c.rms_norm_eps,
            rope_theta=float(rope.get("rope_theta", getattr(c, "rope_theta", 10000.0))),
            layers=self.layers,
        )

    @torch.no_grad()
    def continued(self, prompts: np.ndarray, length: int, seed: int) -> np.ndarray:
        """Returns texts (N, length): the prompts (N, m), continued by the target at T = 1."""
        torch.manual_seed(seed)
        ids = torch.from_numpy(prompts.astype(np.int64)).to(self.module.device)
        texts: Any = self.module.generate(  # pyright: ignore[reportCallIssue]
            ids,
            attention_mask=torch.ones_like(ids),
            do_sample=True,
            temperature=1.0,
            top_k=0,
            top_p=1.0,
            max_length=length,
            min_length=length,
            pad_token_id=0,
        )
        return texts.cpu().numpy().astype(np.int32)


class CompiledTeacher(ModuleTeacher):
    """A teacher in compiled code with weights in bfloat16, which is several times as fast. It caches the features of
    the latest texts, including generated ones, so that training on them needs no second pass."""

    def __init__(self, module: PreTrainedModel, remembered: int = 2000) -> None:
        """
        Args:
            module: `core.models.llama.why_not(module)` must be "".
            remembered: the number of cached texts, 1.2 MB each for 256 tokens of the default model.
        """
        super().__init__(module)
        self._compiled = NativeLlama.of(module, torch.bfloat16)
        self._output_rows: tuple[Tensor, Tensor] | None = None  # a draft vocabulary and its rows of the output layer
        self._remembered: OrderedDict[bytes, Tensor] = OrderedDict()  # ids -> (T, 4·D_t) bfloat16
        self._most = remembered

    @torch.no_grad()
    def __call__(self, ids: Tensor, vocabulary: Tensor | None = None) -> tuple[Tensor, Tensor]:
        features, last = self.hidden(ids)
        normed = self.module.model.norm(last.float()).to(torch.bfloat16)
        if vocabulary is None:
            return F.linear(normed, self.output.to(torch.bfloat16)), features.float()
        if self._output_rows is None or not torch.equal(self._output_rows[0], vocabulary):
            self._output_rows = vocabulary, self.output[vocabulary].to(torch.bfloat16)
        return F.linear(normed, self._output_rows[1]), features.float()

    @torch.no_grad()
    def continued(self, prompts: np.ndarray, length: int, seed: int) -> np.ndarray:
        rng = torch.Generator().manual_seed(seed)
        texts = torch.from_numpy(prompts.astype(np.int64))
        cache = _Rows(self._compiled, len(texts), length)
        parts: list[Tensor] = []
        given = texts
        while True:
            # The last token is fed too, because its features are needed.
            logits, features = self._pass(given, cache)
            parts.append(features)
            if texts.shape[1] == length:
                break
            # argmax p/e with exponential e samples from p (the Gumbel-max trick).
            p = logits.softmax(-1)
            given = p.div_(torch.empty_like(p).exponential_(generator=rng)).argmax(-1, keepdim=True)
            texts = torch.cat((texts, given), 1)
        self._remember(texts, torch.cat(parts, 1))
        return texts.numpy().astype(np.int32)

    @torch.no_grad()
    def hidden(self, ids: Tensor) -> tuple[Tensor, Tensor]:
        keys = [row.numpy().tobytes() for row in ids]
        if not all(key in self._remembered for key in keys):
            for some in ids.split(FEW):  # keys and values of a text take as much memory as its features
                self._remember(some, self._pass(some, _Rows(self._compiled, *some.shape))[1])
        states = torch.stack([self._remembered[key] for key in keys])
        while len(self._remembered) > self._most:
            self._remembered.popitem(last=False)
        d = self.embeddings.shape[1]
        return states[..., : 3 * d], states[..., 3 * d :]

    def _pass(self, ids: Tensor, cache: _Rows) -> tuple[Tensor, Tensor]:
        """Feeds ids (B, n); returns logits (B, V) after the last of them, and features (B, n, 4·D_t) bfloat16."""
        B, n = ids.shape
        positions = torch.arange(cache.filled, cache.filled + n).repeat(B)
        lines = [Line(block, cache.filled, n) for block in cache.block]
        ends = torch.arange(n - 1, B * n, n)
        watched = (*self.layers, self.depth)
        logits, features = self._compiled(self.embeddings[ids.flatten()], positions, lines, ends, watched)
        cache.filled += n
        return logits, features.view(B, n, -1).to(torch.bfloat16)

    def _remember(self, ids: Tensor, features: Tensor) -> None:
        """Caches the states (B, T, 4·D_t) of texts (B, T)."""
        rows = (row.clone() for row in features)  # separate copies, so that each can be freed alone
        self._remembered.update(zip((row.numpy().tobytes() for row in ids), rows, strict=True))


class _Rows:
    """Keys and values of B texts, each of `filled` tokens so far and at most `length`."""

    def __init__(self, module: NativeLlama, rows: int, length: int) -> None:
        heads, width = module.planes[0]
        self.block = torch.empty(rows, len(module.planes), heads, length, width)
        self.filled = 0


def windows(
    texts: Iterable[str], encode: Callable[[str], list[int]], length: int, count: int, seed: int = 0
) -> np.ndarray:
    """Returns up to `count` pieces (N, length) of texts, in random order; each piece is from one text.

    A text gives at most twice its even share, so that a few long texts do not dominate.
    Raises InputError if no text is long enough.
    """
    rng = np.random.default_rng(seed)
    every = list(texts)
    most = 2 * max(count // max(len(every), 1), 1)
    pieces: list[list[int]] = []
    for number in rng.permutation(len(every)):
        if len(pieces) >= count:
            break
        text = every[number]
        wanted = min(most, count - len(pieces))
        # Only the needed part of a long text is tokenised, with 8 characters per token, which is more than enough.
        start = int(rng.integers(max(len(text) - 8 * length * wanted, 1)))
        ids = encode(text[start : start + 8 * length * wanted])[1 if start else 0 :]
        pieces += [ids[at : at + length] for at in range(0, len(ids) - length + 1, length)][:wanted]
    if not pieces:
        raise InputError(f"No text of {length} tokens among {len(every)}; give longer ones.")
    return np.array(pieces, dtype=np.int32)


def own_texts(
    teacher: ModuleTeacher,
    pieces: np.ndarray,
    prompt: int,
    folder: Path,
    batch: int = BATCH,
    progress: Callable[[int], None] = lambda _: None,
) -> np.ndarray:
    """Returns the first `prompt` tokens of the pieces (N, T), continued by the target.

    The results are stored in `folder/own.npy` batch by batch, and a second call resumes from there.
    """
    prompts = [pieces[at : at + batch, :prompt] for at in range(0, len(pieces), batch)]
    return _written(teacher, prompts, pieces.shape[1], folder / "own.npy", progress)


def answers(
    teacher: ModuleTeacher,
    prompts: list[list[int]],
    length: int,
    folder: Path,
    batch: int = BATCH,
    progress: Callable[[int], None] = lambda _: None,
) -> np.ndarray:
    """Returns texts (N, length) that begin with the prompts, the shorter ones first, stored in `folder/answers.npy`
    likewise.

    All prompts of a batch are cut to one length: longer ones lose their first tokens.
    """
    ordered = sorted(prompts, key=len)
    groups = [ordered[at : at + batch] for at in range(0, len(ordered), batch)]
    even = [np.array([ids[-min(map(len, group)) :] for ids in group], np.int32) for group in groups]
    return _written(teacher, even, length, folder / "answers.npy", progress)


def _written(
    teacher: ModuleTeacher, prompts: list[np.ndarray], length: int, path: Path, progress: Callable[[int], None]
) -> np.ndarray:
    """Returns texts (N, length): batches of prompts (b, m), continued by the target."""
    total = sum(map(len, prompts))
    texts = np.load(path) if path.is_file() else np.zeros((0, length), np.int32)
    begun = 0
    for some in prompts:
        before = texts[begun : begun + len(some)]
        if (
            texts.shape[1] != length
            or len(texts) > total
            or not np.array_equal(before[:, : some.shape[1]], some[: len(before)])
        ):
            raise InputError(f"{path} was made from other texts; choose another folder, or remove it.")
        begun += len(some)
        if len(before) == len(some):
            continue
        progress(len(texts))
        texts = np.concatenate((texts, teacher.continued(some[len(before) :], length, seed=len(texts))))
        with replacing(path) as file:
            np.save(file, texts)
    return texts
