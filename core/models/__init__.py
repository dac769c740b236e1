"""Models by name; `load_model` is the entry point.

What needs torch is imported at its first use: commands that only need a tokenizer start without it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from core.lazy import imported_at_first_use

if TYPE_CHECKING:
    from core.models.base import LanguageModel, Row, Sequence, Tokenizer
    from core.models.load import load_model

__all__ = ["LanguageModel", "Row", "Sequence", "Tokenizer", "load_model"]

__getattr__ = imported_at_first_use(
    __name__,
    {"base": ("LanguageModel", "Row", "Sequence", "Tokenizer"), "load": ("load_model",)},
)
