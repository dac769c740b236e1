"""Architectures with a recurrent memory. Their memory of a text cannot be rewound to an earlier position, which drafts
need at every key: https://arxiv.org/abs/2312.00752 (Mamba), https://arxiv.org/abs/2305.13048 (RWKV), and hybrids that
have such layers beside attention."""

from __future__ import annotations

from core.errors import ModelFileError

# By the names in GGUF files and in config.json
NAMES = frozenset(
    (
        "mamba", "mamba2", "falcon_mamba", "falcon-mamba", "rwkv", "rwkv6", "rwkv6qwen2", "rwkv7", "arwkv7", "xlstm",
        "recurrent_gemma", "jamba", "bamba", "zamba", "zamba2", "falcon_h1", "falcon-h1", "granitehybrid",
        "granitemoehybrid", "plamo2", "nemotron_h", "nemotron_h_moe", "kimi-linear",
    )
)  # fmt: skip


def refuse_recurrent(architecture: object, name: object) -> None:
    """Raises ModelFileError for a model of such an architecture."""
    if architecture in NAMES:
        raise ModelFileError(
            f"{name} is of the recurrent architecture {architecture}, whose memory cannot be rewound to an earlier "
            "position; choose a model with attention alone, such as the default one."
        )
