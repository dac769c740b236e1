"""N-gram stores: the file format, its reader, and the rules that mix n-grams into a model's probabilities."""

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
