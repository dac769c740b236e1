"""N-gram stores: the file format, its reader, and the rules that mix n-grams into a model's probabilities."""

from core.ngram.errors import StoreError
from core.ngram.interpolation import Geometric, Interpolation, Linear
from core.ngram.store import Evidence, NgramStore

__all__ = ["Evidence", "Geometric", "Interpolation", "Linear", "NgramStore", "StoreError"]
