"""Models small enough to compute with in milliseconds, with random weights."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import tokenizers
import torch
from tokenizers import decoders, models, pre_tokenizers
from torch import Tensor
from transformers import (
    BloomConfig,
    Gemma3TextConfig,
    GPT2Config,
    LlamaConfig,
    MistralConfig,
    PreTrainedConfig,
    PreTrainedTokenizerFast,
)
from transformers.models.auto.modeling_auto import AutoModelForCausalLM

from core.models.capture import Captured
from core.models.llama import NativeLlama
from core.models.native import Line

CONTEXT = 48
VOCAB = 300  # 256 bytes, two control tokens, and rows that no token uses


def tiny(kind: str) -> PreTrainedConfig:
    """One small configuration for each way to know about positions and to limit attention."""
    ends = {"bos_token_id": None, "eos_token_id": 256, "pad_token_id": None}
    heads = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 48}
    rope = {
        **heads,
        "vocab_size": VOCAB,
        "max_position_embeddings": CONTEXT,
        "num_key_value_heads": 2,
        **ends,
    }
    match kind:
        case "llama":  # rotary positions, grouped queries
            return LlamaConfig(**rope)
        case "compiled llama":  # heads of a width that `native` computes
            return LlamaConfig(**rope, head_dim=16)
        case "long compiled llama":
            return LlamaConfig(**rope | {"max_position_embeddings": 256}, head_dim=16)
        case "gpt2":  # learnt positions
            return GPT2Config(vocab_size=VOCAB, n_positions=CONTEXT, n_embd=32, n_layer=2, n_head=4, **ends)
        case "gemma3":  # sliding windows in half of the layers, a scaled embedding table
            layers = ["sliding_attention", "full_attention"]
            return Gemma3TextConfig(**rope, head_dim=8, sliding_window=5, layer_types=layers)
        case "mistral":  # a sliding window everywhere
            return MistralConfig(**rope, sliding_window=5)
        case "bloom":  # ALiBi
            return BloomConfig(vocab_size=VOCAB, hidden_size=32, n_layer=2, n_head=4, seq_length=CONTEXT, **ends)
    raise AssertionError(kind)


def byte_level_tokenizer() -> PreTrainedTokenizerFast:
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    backend = tokenizers.Tokenizer(models.BPE(vocab={letter: i for i, letter in enumerate(alphabet)}, merges=[]))
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    backend.decoder = decoders.ByteLevel()
    backend.add_special_tokens(["<|endoftext|>", "<|im_end|>"])
    return PreTrainedTokenizerFast(tokenizer_object=backend, eos_token="<|endoftext|>")


def save_model(folder: Path, config: PreTrainedConfig) -> Path:
    torch.manual_seed(7)
    module = AutoModelForCausalLM.from_config(config)
    with torch.no_grad():
        for parameter in module.parameters():
            if parameter.ndim > 1:
                parameter.normal_(std=0.3)  # as initialised, all logits would be nearly equal
    module.save_pretrained(folder)
    byte_level_tokenizer().save_pretrained(folder)
    return folder


def cache_of(module: NativeLlama, lines: int, columns: int) -> Tensor:
    """(lines, planes, heads, columns, width), full of numbers that must never be read."""
    return torch.full((lines, len(module.planes), module.planes[0][0], columns, module.planes[0][1]), torch.nan)


def computed(
    module: NativeLlama,
    ids: Tensor,
    past: int = 0,
    cache: Tensor | None = None,
    seen: Tensor | None = None,
    positions: Tensor | None = None,
) -> Tensor:
    """Logits (B, n, V) of the compiled code after ids (B, n), by default all of a text.

    Args:
        seen: (B, n, past + n) bool. positions: (B, n).
    """
    B, n = ids.shape
    cache = cache_of(module, B, past + n) if cache is None else cache
    lines = [Line(block, past, n, None if seen is None else seen[b].contiguous()) for b, block in enumerate(cache)]
    positions = torch.arange(past, past + n).repeat(B) if positions is None else positions.flatten()
    with torch.no_grad():
        logits, _ = module(module.embeddings.rows(ids.flatten()), positions, lines)
    return logits.view(B, n, -1)


class Replayed(Captured):
    """On a CPU what a graph does to those who are careless with it: it warms up first, and whatever runs next, works
    where its results are."""

    latest: tuple[torch.Tensor, ...] = ()

    def __init__(self, *how: Any) -> None:
        super().__init__(*how)
        for _ in range(3):
            self.uncaptured()

    def __call__(self, fed: torch.Tensor) -> tuple[torch.Tensor, ...]:
        with torch.inference_mode():
            for found in Replayed.latest:
                found.fill_(torch.nan)
        Replayed.latest = super().__call__(fed)
        return Replayed.latest
