"""Drafters: n-grams, a smaller model, superposed drafts."""

from core.speculative.drafters.base import Drafter, Moment
from core.speculative.drafters.model import ModelDrafter
from core.speculative.drafters.ngram import NgramDrafter
from core.speculative.drafters.superposed import SuperposedDrafter

__all__ = ["Drafter", "ModelDrafter", "Moment", "NgramDrafter", "SuperposedDrafter"]
