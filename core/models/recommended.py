"""Models that continue text well for their size and run in compiled code, and which of them suit this machine.

All are base models: models tuned to chat answer a text instead of going on with it. Sizes are those of the files.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from core.models.estimate import Speed

SHARE = 0.5  # of the memory that a model may take, beside the page, the stores and other programs
TAKES = 1.25  # bytes in memory for each byte of a file
PATIENCE = 600  # ms a key: drafts that come later are rarely read
QUICK = 300  # ms a key: drafts come while one still thinks of the next word


@dataclass(frozen=True)
class Recommended:
    """A file on the Hub.

    Attributes:
        name: OWNER/REPO:TYPE, as `polydraft models get` takes it.
        title: to show.
        bytes: of the file, roughly.
        why: in a sentence.
    """

    name: str
    title: str
    bytes: int
    why: str

    def names(self, file: str) -> bool:
        """Whether a file has the name that this model's file has by the custom of the Hub: the repository's, and the
        type. So copies that other programs downloaded are found without a connection."""
        repo, _, kind = self.name.partition("/")[2].partition(":")
        stem = re.escape(re.sub(r"-GGUF$", "", repo, flags=re.I))
        return bool(re.fullmatch(rf"(?:.*--)?{stem}[-._]{re.escape(kind)}(\.gguf)?", file, re.I))


RECOMMENDED = (
    Recommended(
        "mradermacher/SmolLM2-360M-GGUF:Q8_0",
        "SmolLM2 360M",
        386_000_000,
        "English: the default model's larger sister, for any computer.",
    ),
    Recommended(
        "ggml-org/Qwen3-0.6B-Base-GGUF:Q8_0",
        "Qwen3 0.6B",
        639_000_000,
        "Many languages and program code, and still fast.",
    ),
    Recommended(
        "mradermacher/Llama-3.2-1B-GGUF:Q4_K_M", "Llama 3.2 1B", 808_000_000, "English and seven other languages."
    ),
    Recommended(
        "mradermacher/gemma-3-1b-pt-GGUF:Q4_K_M",
        "Gemma 3 1B",
        806_000_000,
        "English; it knows many words, which takes memory.",
    ),
    Recommended(
        "mradermacher/Qwen3-1.7B-Base-GGUF:Q4_K_M",
        "Qwen3 1.7B",
        1_110_000_000,
        "Many languages and program code; knows more than Qwen3 0.6B.",
    ),
    Recommended(
        "mradermacher/SmolLM3-3B-Base-GGUF:Q4_K_M",
        "SmolLM3 3B",
        1_920_000_000,
        "English and five other languages of Europe; the largest of these, and the slowest.",
    ),
)


@dataclass(frozen=True)
class Advice:
    """Whether a recommended model suits this machine.

    Attributes:
        fits: whether the memory suffices.
        ms: of a key, estimated; None if the speed of this machine is unknown.
        best: whether it is the one to begin with.
    """

    model: Recommended
    fits: bool
    ms: int | None
    best: bool = False

    @property
    def suits(self) -> bool:
        return self.fits and (self.ms is None or self.ms <= PATIENCE)

    def stated(self) -> dict[str, object]:
        """For JSON."""
        model = self.model
        stated = {"name": model.name, "title": model.title, "bytes": model.bytes, "why": model.why}
        return stated | {"fits": self.fits, "ms": self.ms, "suits": self.suits, "best": self.best}


def advice(speed: Speed | None, memory: int) -> list[Advice]:
    """Every recommended model, rated by the memory, and by the speed if it is known.

    The one to begin with is the largest that is quick, else the smallest that suits.

    Args:
        speed: of compiled code on this machine.
        memory: bytes of this machine.
    """
    rated = [
        Advice(each, each.bytes * TAKES < memory * SHARE, None if speed is None else round(speed.ms(each.bytes)))
        for each in RECOMMENDED
    ]
    best = _best([each for each in rated if each.suits])
    return [replace(each, best=each is best) for each in rated]


def _best(suitable: Sequence[Advice]) -> Advice | None:
    quick = [each for each in suitable if each.ms is not None and each.ms <= QUICK]
    if quick:
        return max(quick, key=lambda each: each.model.bytes)
    return min(suitable, key=lambda each: each.model.bytes, default=None)
