"""Models of known shapes with random weights, for measurements that need only the size; nothing is downloaded."""

from __future__ import annotations

from typing import Any

import torch
from transformers import LlamaConfig, PreTrainedModel
from transformers.models.auto.modeling_auto import AutoModelForCausalLM

from core.errors import InputError
from core.models.base import Tokenizer
from core.models.torch_model import TorchModel

CONTEXT = 1024


def _llama(width: int, inner: int, layers: int, heads: tuple[int, int], vocabulary: int) -> LlamaConfig:
    """Returns a shape with so many heads of queries, and of keys and values."""
    return LlamaConfig(
        hidden_size=width,
        intermediate_size=inner,
        num_hidden_layers=layers,
        num_attention_heads=heads[0],
        num_key_value_heads=heads[1],
        vocab_size=vocabulary,
        max_position_embeddings=CONTEXT,
        tie_word_embeddings=False,
        bos_token_id=None,
        eos_token_id=None,
        pad_token_id=None,
    )


SHAPES = {
    "Llama-2-7B": _llama(4096, 11008, 32, (32, 32), 32_000),
    "Llama-3.1-8B": _llama(4096, 14336, 32, (32, 8), 128_256),
}
TINY = {"tiny": _llama(64, 128, 2, (4, 2), 512)}


class IdsOnly(Tokenizer):
    """A vocabulary of numbers, for models with random weights."""

    def __init__(self, size: int) -> None:
        self.pieces = [b""] * size
        self.eos_ids = self.special_ids = frozenset()
        self.start_ids, self.document_start = [], 0

    def encode(self, text: str) -> list[int]:
        raise InputError("A model of random weights given text; token ids expected.")


def random_model(name: str, config: LlamaConfig, device: torch.device, dtype: torch.dtype) -> TorchModel:
    """Creates a Llama of this shape on its device. Raises torch.OutOfMemoryError."""
    torch.manual_seed(0)
    with torch.device(device):
        module = AutoModelForCausalLM.from_config(config, dtype=dtype)
    return TorchModel(module.to(device), IdsOnly(config.vocab_size), name, CONTEXT)


def bytes_read(module: PreTrainedModel) -> int:
    """Bytes of weights that one step reads: all, except most rows of a separate input table."""
    inputs: Any = module.get_input_embeddings()
    outputs: Any = module.get_output_embeddings()
    table, head = inputs.weight, outputs.weight
    total = sum(p.numel() * p.element_size() for p in module.parameters())
    return total if table is head else total - table.numel() * table.element_size()
