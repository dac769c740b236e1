"""Models by name; `load_model` is the entry point."""

from core.models.base import LanguageModel, Row, Sequence, Tokenizer
from core.models.load import load_model

__all__ = ["LanguageModel", "Row", "Sequence", "Tokenizer", "load_model"]
