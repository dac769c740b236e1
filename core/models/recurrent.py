"""Architectures with a recurrent memory. Their memory of a text cannot be rewound to an earlier position, which drafts
need at every key: https://arxiv.org/abs/2312.00752 (Mamba), https://arxiv.org/abs/2305.13048 (RWKV), and hybrids that
have such layers beside attention. With llama.cpp the text is read again (`llamacpp.py`); torch refuses them."""

from __future__ import annotations

from core.errors import ModelFileError

# By the names in GGUF files and in config.json
NAMES = frozenset(
    (
        "mamba", "mamba2", "falcon_mamba", "falcon-mamba", "rwkv", "rwkv6", "rwkv6qwen2", "rwkv7", "arwkv7", "xlstm",
        "recurrent_gemma", "jamba", "bamba", "zamba", "zamba2", "falcon_h1", "falcon-h1", "granitehybrid",
        "granitemoehybrid", "plamo2", "nemotron_h", "nemotron_h_moe", "kimi-linear", "lfm2", "lfm2moe", "lfm2_moe",
        "qwen3next", "qwen3_next", "qwen35", "qwen35moe", "qwen3_5", "qwen3_5_text", "qwen3_5_moe",
    )
)  # fmt: skip


def is_recurrent(architecture: object) -> bool:
    """Whether an architecture, as a file names it, has such a memory."""
    return architecture in NAMES


def refuse_recurrent(architecture: object, name: object) -> None:
    """Raises ModelFileError for a model of such an architecture."""
    if is_recurrent(architecture):
        raise ModelFileError(
            f"{name} is of the recurrent architecture {architecture}, whose memory cannot be rewound to an earlier "
            "position; give a GGUF file of it to --backend llama.cpp, which reads the text again, or choose another "
            "model."
        )
