"""A model's tokenizer alone."""

from __future__ import annotations

from pathlib import Path

from core.models import gguf_check, gguf_file
from core.models.hf_tokenizer import from_gguf
from core.models.located import locate
from core.models.tokenizer import Tokenizer


def load_tokenizer(name: str = "default") -> Tokenizer:
    """The tokenizer of a model by name, as `load_model` finds it. Of a GGUF file neither weights nor torch are loaded,
    if its tokenizer is one of those that we build.

    Raises: ModelNotFound, ModelFileError, BackendUnavailable; each message contains a remedy.
    """
    source, _ = locate(name)
    if isinstance(source, Path) and source.is_file():
        file = gguf_file.read(source)
        gguf_check.check(file)
        if tokenizer := from_gguf(file.fields, len(file.fields.get("tokenizer.ggml.tokens") or ())):
            return tokenizer
    from core.models.load import load_model

    return load_model(name).tokenizer
