"""Writes a GGUF file's model for `bench serve` as a folder that vLLM loads: bfloat16 in safetensors, and the tokenizer.

A process of its own, so that the measurement does not keep torch and the weights in memory.
"""

from __future__ import annotations

import sys
from pathlib import Path

import torch
from safetensors.torch import save_file
from transformers import AutoTokenizer

from core.models.load import load_module


def write(source: Path, folder: Path) -> None:
    """Raises ModelFileError if `source` is unusable."""
    module = load_module(str(source)).layers.module
    config = module.config
    config.architectures, config.dtype = [type(module).__name__], torch.bfloat16
    config.save_pretrained(folder)
    tied = {"lm_head.weight"} if config.tie_word_embeddings else set[str]()
    weights = {name: x.to(torch.bfloat16).contiguous() for name, x in module.state_dict().items() if name not in tied}
    save_file(weights, folder / "model.safetensors", {"format": "pt"})
    AutoTokenizer.from_pretrained(source.parent, gguf_file=source.name).save_pretrained(folder)


if __name__ == "__main__":
    write(Path(sys.argv[1]), Path(sys.argv[2]))
