"""Models that continue text well for their size and run in compiled code, and which of them suits this machine.

All are base models: models tuned to chat answer a text instead of going on with it. Sizes are those of the files.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Recommended:
    """A file on the Hub.

    Attributes:
        name: OWNER/REPO:QUANT, as `polydraft models get` takes it.
        bytes: of the file, roughly.
        why: in a clause.
    """

    name: str
    bytes: int
    why: str


RECOMMENDED = (
    Recommended(
        "mradermacher/SmolLM2-360M-GGUF:Q8_0", 386_000_000, "the default model's larger sister, for any machine"
    ),
    Recommended("ggml-org/Qwen3-0.6B-Base-GGUF:Q8_0", 639_000_000, "many languages and program code, still fast"),
    Recommended("mradermacher/Llama-3.2-1B-GGUF:Q4_K_M", 808_000_000, "English and seven other languages"),
    Recommended("mradermacher/gemma-3-1b-pt-GGUF:Q4_K_M", 806_000_000, "English; its large vocabulary takes memory"),
    Recommended("mradermacher/Qwen3-1.7B-Base-GGUF:Q4_K_M", 1_110_000_000, "languages and code, larger than 0.6B"),
    Recommended("mradermacher/SmolLM3-3B-Base-GGUF:Q4_K_M", 1_920_000_000, "the largest of these, and the slowest"),
)
