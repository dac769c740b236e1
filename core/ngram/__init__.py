"""N-gram stores: the file format, its reader, and the rules that mix n-grams into a model's probabilities.

Its parts are imported at their first use: the process that reads files needs `plain` alone, and no numpy.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from core.ngram.errors import StoreError
    from core.ngram.interpolation import PRUNED, WHOLE, Geometric, Interpolation, Linear, Mixed, Trust
    from core.ngram.store import Evidence, NgramStore

_FROM = {
    "core.ngram.errors": ("StoreError",),
    "core.ngram.interpolation": ("PRUNED", "WHOLE", "Geometric", "Interpolation", "Linear", "Mixed", "Trust"),
    "core.ngram.store": ("Evidence", "NgramStore"),
}

__all__ = [
    "PRUNED",
    "WHOLE",
    "Evidence",
    "Geometric",
    "Interpolation",
    "Linear",
    "Mixed",
    "NgramStore",
    "StoreError",
    "Trust",
]


def __getattr__(name: str) -> Any:
    for module, names in _FROM.items():
        if name in names:
            return getattr(import_module(module), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
