"""The shapes of layers, and how the architectures of GGUF files differ: one table, for the check of files and for
building models.

A `Family` says what a file's metadata does not: its layout, and constants that are part of the architecture. The fields
of the metadata that a family has beside those of all (`COMMON`) are in `fields`; a file with any other field may mean
something that is not computed here, and is left to llama.cpp.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

# Fields that every family may have. What is not a size says nothing about the computation, or is checked elsewhere.
COMMON = frozenset(
    {"vocab_size", "context_length", "block_count", "embedding_length", "feed_forward_length", "tensor_data_layout"}
    | {f"attention.{key}" for key in ("head_count", "head_count_kv", "key_length", "value_length", "causal")}
    | {"attention.layer_norm_rms_epsilon", "rope.dimension_count", "rope.freq_base"}
    | {f"rope.scaling.{key}" for key in ("type", "factor", "original_context_length", "attn_factor", "finetuned")}
    | {"rope.scaling.yarn_beta_fast", "rope.scaling.yarn_beta_slow"}
)
WINDOW = frozenset({"attention.sliding_window"})
PATTERN = WINDOW | {"attention.sliding_window_pattern", "rope.freq_base_swa"}
CAPS = frozenset({"attn_logit_softcapping", "final_logit_softcapping"})
FACTORS = frozenset({"attention.scale", "embedding_scale", "residual_scale", "logit_scale"})


# Tensors of a layer, and the modules of transformers' layers that have their weights.
PARTS = {
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_qkv": "self_attn.qkv_proj",
    "attn_output": "self_attn.o_proj",
    "attn_q_norm": "self_attn.q_norm",
    "attn_k_norm": "self_attn.k_norm",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
    "attn_norm": "input_layernorm",
    "ffn_norm": "post_attention_layernorm",
}


@dataclass(frozen=True)
class Shape:
    """What all layers have in common: D, query heads H, key heads K, width w of a head, inner width I, the norms' ε,
    and features that only some families have.

    Attributes:
        turned: how many numbers of a head rotate, the first ones; None is all.
        tables: kinds of rotation, see `native.LayerMaps.table`.
        window: positions, up to its own, that an input attends to in layers that are `near`.
        gelu: the gate is GELU, by tanh; else SiLU.
        whole: norms of queries and keys are over all heads together.
        attention: factor of attention scores; None is 1 / √w.
        residual, logits: factors of what is added to the residual stream, and of logits.
        attention_cap, logit_cap: c limits scores, or logits, to c · tanh(x / c); 0 is no limit.
    """

    dim: int
    heads: int
    key_heads: int
    width: int
    inner: int
    eps: float
    turned: int | None = None
    tables: int = 1
    window: int = 0
    gelu: bool = False
    whole: bool = False
    attention: float | None = None
    residual: float = 1.0
    logits: float = 1.0
    attention_cap: float = 0.0
    logit_cap: float = 0.0

    @property
    def rotated(self) -> int:
        return self.width if self.turned is None else self.turned

    @property
    def of_scores(self) -> float:
        """The factor of attention scores."""
        return self.width**-0.5 if self.attention is None else self.attention


@dataclass(frozen=True)
class Family:
    """The layers of one architecture.

    Attributes:
        paired: the rotation turns neighbouring numbers of a head; else numbers half of the rotation apart.
        norms: where there are norms with respect to attention and to the feed-forward part.
        qk_norms: queries and keys have norms: of each head, or of all heads together.
        biases: queries, keys and values must have biases. Other families may have some.
        fused: one tensor has queries, keys and values, and another gate and up.
        gelu: the gate is GELU, by tanh; else SiLU.
        scaled_embeddings: embeddings are multiplied by √D.
        pattern: of so many layers the last attends to everything and the others to a window; 0: all layers are alike.
        window_theta: the base of the rotation in layers with a window, if the file states none; None is as elsewhere.
        no_rope: of so many layers the last has no rotation; 0: none is without.
        spread: the number of layers with which scores have the factor 1 / √(D / H), not 1 / √w; 0: none.
        fields: of the metadata, beside `COMMON`.
    """

    paired: bool = False
    norms: Literal["before", "around", "after"] = "before"
    qk_norms: Literal["each", "all"] | None = None
    biases: bool = False
    fused: bool = False
    gelu: bool = False
    scaled_embeddings: bool = False
    pattern: int = 0
    window_theta: float | None = None
    no_rope: int = 0
    spread: int = 0
    fields: frozenset[str] = frozenset()


FAMILIES: dict[str, Family] = {
    # Llama 1 to 3.3, Mistral, SmolLM 1 and 2, Falcon 3, Yi, and others
    "llama": Family(paired=True, fields=WINDOW),
    "qwen2": Family(biases=True),
    "qwen3": Family(qk_norms="each"),
    "gemma": Family(gelu=True, scaled_embeddings=True),
    "gemma2": Family(norms="around", gelu=True, scaled_embeddings=True, pattern=2, spread=46, fields=PATTERN | CAPS),
    "gemma3": Family(
        norms="around",
        qk_norms="each",
        gelu=True,
        scaled_embeddings=True,
        pattern=6,
        window_theta=10_000.0,
        spread=62,
        fields=PATTERN | CAPS,
    ),
    "smollm3": Family(paired=True, no_rope=4),
    "phi3": Family(fused=True, fields=WINDOW),
    "olmo2": Family(norms="after", qk_norms="all", pattern=4, fields=PATTERN),
    "granite": Family(paired=True, fields=FACTORS),
}
