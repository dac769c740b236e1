"""Speculative decoding: a drafter proposes several tokens, and one pass of the target verifies them."""

from core.speculative.budget import Memory
from core.speculative.calibration import Calibration, CalibrationError
from core.speculative.cycles import Statistics, Token
from core.speculative.drafters import Drafter, ModelDrafter, NgramDrafter, SuffixDrafter, SuperposedDrafter
from core.speculative.generate import Generation, generate
from core.speculative.target import TargetSampling
from core.speculative.tree import TokenTree

__all__ = [
    "Calibration",
    "CalibrationError",
    "Drafter",
    "Generation",
    "Memory",
    "ModelDrafter",
    "NgramDrafter",
    "Statistics",
    "SuffixDrafter",
    "SuperposedDrafter",
    "TargetSampling",
    "Token",
    "TokenTree",
    "generate",
]
