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

SHAPES = {
    "Llama-2-7B": {"hidden_size": 4096, "intermediate_size": 11008, "layers": 32, "heads": (32, 32), "V": 32_000},
    "Llama-3.1-8B": {"hidden_size": 4096, "intermediate_size": 14336, "layers": 32, "heads": (32, 8), "V": 128_256},
}
TINY = {"tiny": {"hidden_size": 64, "intermediate_size": 128, "layers": 2, "heads": (4, 2), "V": 512}}


class IdsOnly(Tokenizer):
    """A vocabulary of numbers, for models with random weights."""

    def __init__(self, size: int) -> None:
        self.pieces = [b""] * size
        self.eos_ids = self.special_ids = frozenset()
        self.start_ids, self.document_start = [], 0

    def encode(self, text: str) -> list[int]:
        raise InputError("A model of random weights given text; token ids expected.")


def random_model(name: str, shape: dict[str, Any], device: torch.device, dtype: torch.dtype) -> TorchModel:
    """Creates a Llama of this shape on its device. Raises torch.OutOfMemoryError."""
    heads, key_heads = shape["heads"]
    config = LlamaConfig(
        hidden_size=shape["hidden_size"],
        intermediate_size=shape["intermediate_size"],
        num_hidden_layers=shape["layers"],
        num_attention_heads=heads,
        num_key_value_heads=key_heads,
        vocab_size=shape["V"],
        max_position_embeddings=CONTEXT,
        tie_word_embeddings=False,
        bos_token_id=None,
        eos_token_id=None,
        pad_token_id=None,
    )
    torch.manual_seed(0)
    with torch.device(device):
        module = AutoModelForCausalLM.from_config(config, dtype=dtype)
    return TorchModel(module.to(device), IdsOnly(shape["V"]), name, CONTEXT)


def bytes_read(module: PreTrainedModel) -> int:
    """Bytes of weights that one step reads: all, except most rows of a separate input table."""
    inputs: Any = module.get_input_embeddings()
    outputs: Any = module.get_output_embeddings()
    table, head = inputs.weight, outputs.weight
    total = sum(p.numel() * p.element_size() for p in module.parameters())
    return total if table is head else total - table.numel() * table.element_size()
