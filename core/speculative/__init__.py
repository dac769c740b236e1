"""Speculative decoding: several tokens proposed, checked in one pass of the target."""

from core.speculative.calibration import Calibration, CalibrationError
from core.speculative.drafters import Drafter, ModelDrafter, NgramDrafter, SuperposedDrafter
from core.speculative.generate import Generation, Memory, Statistics, Token, generate
from core.speculative.target import Choice
from core.speculative.tree import TokenTree

__all__ = [
    "Calibration",
    "CalibrationError",
    "Choice",
    "Drafter",
    "Generation",
    "Memory",
    "ModelDrafter",
    "NgramDrafter",
    "Statistics",
    "SuperposedDrafter",
    "Token",
    "TokenTree",
    "generate",
]
