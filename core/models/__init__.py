"""Models by name; `load_model` is the entry point.

What needs torch is imported at its first use: commands that only need a tokenizer start without it.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from core.models.base import LanguageModel, Row, Sequence, Tokenizer
    from core.models.load import load_model

__all__ = ["LanguageModel", "Row", "Sequence", "Tokenizer", "load_model"]


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module("core.models.load" if name == "load_model" else "core.models.base"), name)
