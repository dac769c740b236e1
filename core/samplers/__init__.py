"""Rules that crop next-token logits, called as transformers calls a LogitsProcessor, without importing it."""

from core.samplers.base import Rule
from core.samplers.chain import Chain
from core.samplers.dry import DRY
from core.samplers.eta import Eta
from core.samplers.geometry import Geometry
from core.samplers.greedy import Greedy
from core.samplers.min_p import MinP
from core.samplers.mirostat import Mirostat
from core.samplers.p_less import PLess
from core.samplers.temperature import Temperature
from core.samplers.top_h import TopH
from core.samplers.top_k import TopK
from core.samplers.top_n_sigma import TopNSigma
from core.samplers.top_p import TopP
from core.samplers.top_w import Selection, TopW
from core.samplers.typical import Typical
from core.samplers.xtc import XTC

__all__ = [
    "DRY",
    "XTC",
    "Chain",
    "Eta",
    "Geometry",
    "Greedy",
    "MinP",
    "Mirostat",
    "PLess",
    "Rule",
    "Selection",
    "Temperature",
    "TopH",
    "TopK",
    "TopNSigma",
    "TopP",
    "TopW",
    "Typical",
]
