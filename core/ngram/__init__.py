"""N-gram stores: the file format, its reader, and the rules that mix n-grams into a model's probabilities.

Its parts are imported at their first use: the process that reads files needs `plain` alone, and no numpy.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from core.lazy import imported_at_first_use

if TYPE_CHECKING:
    from core.ngram.errors import StoreError
    from core.ngram.interpolation import PRUNED, WHOLE, Geometric, Interpolation, Linear, Mixed, Trust
    from core.ngram.store import Evidence, NgramStore

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

__getattr__ = imported_at_first_use(
    __name__,
    {
        "errors": ("StoreError",),
        "interpolation": ("PRUNED", "WHOLE", "Geometric", "Interpolation", "Linear", "Mixed", "Trust"),
        "store": ("Evidence", "NgramStore"),
    },
)
