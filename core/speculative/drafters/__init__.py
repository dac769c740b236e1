"""Drafters: n-grams, a suffix automaton, a smaller model, an EAGLE-3 head, superposed drafts."""

from core.speculative.drafters.base import Drafter, Moment
from core.speculative.drafters.model import ModelDrafter
from core.speculative.drafters.ngram import NgramDrafter
from core.speculative.drafters.suffix import SuffixDrafter
from core.speculative.drafters.superposed import SuperposedDrafter

__all__ = ["Drafter", "ModelDrafter", "Moment", "NgramDrafter", "SuffixDrafter", "SuperposedDrafter"]
