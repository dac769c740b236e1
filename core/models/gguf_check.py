"""Checks that a GGUF file's tensors match its metadata: one table of names, shapes and types.

Compiled code allocates memory by the metadata and fills it from the tensors, so the two must agree before either is
used. For the Llama family the table contains every tensor of the layers. For other architectures, which
transformers or llama.cpp read, only the sizes that all of them have are compared.

Shapes: D width, H query heads on K key heads, w width of a head, V vocabulary.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, NoReturn

from gguf.constants import GGMLQuantizationType

from core.errors import ModelFileError
from core.models.gguf_file import GGUFFile

FAMILY = "llama"
THETA = 10000.0  # of the rotation, if the file has none
LARGEST = 2**31 - 1  # the largest size accepted from the metadata
NORMS = frozenset({GGMLQuantizationType.F32, GGMLQuantizationType.F16, GGMLQuantizationType.BF16})
_INTEGERS = {kind for kind in GGMLQuantizationType if kind.name in ("I8", "I16", "I32", "I64")}
MATRICES = frozenset(GGMLQuantizationType) - _INTEGERS


@dataclass(frozen=True)
class Config:
    """The sizes of a model of the Llama family, with the attribute names of a transformers configuration, whose
    import would take longer than reading the file."""

    hidden_size: int
    num_hidden_layers: int
    num_attention_heads: int
    num_key_value_heads: int
    head_dim: int
    intermediate_size: int
    vocab_size: int
    rms_norm_eps: float
    rope_theta: float
    max_position_embeddings: int | None

    def get_text_config(self) -> Config:
        return self


@dataclass(frozen=True)
class Expected:
    shape: tuple[int, ...]
    kinds: frozenset[GGMLQuantizationType]


def check(file: GGUFFile) -> None:
    """Raises ModelFileError, in one sentence, if tensors and metadata disagree or are incomplete."""
    if not isinstance(file.architecture, str):
        _wrong(file, f"its general.architecture is {file.architecture!r}, where a name is expected")
    tokens = file.fields.get("tokenizer.ggml.tokens")
    for key in ("token_type", "scores"):
        of_tokens = file.fields.get(f"tokenizer.ggml.{key}")
        if of_tokens is not None and not (isinstance(of_tokens, list) and len(of_tokens) == len(tokens or [])):
            _wrong(file, f"its tokenizer.ggml.{key} is not a list with one number per token")
    if file.architecture == FAMILY:
        config = config_of(file)
        for name, expected in table(config).items():
            tensor = file.tensors.get(name)
            if tensor is None:
                if not _may_lack(file, name):
                    _wrong(file, f"it has no tensor {name}")
            elif tensor.shape != expected.shape:
                _wrong(file, f"{name} has the shape {tensor.shape}, where its metadata gives {expected.shape}")
            elif tensor.kind not in expected.kinds:
                _wrong(file, f"{name} has the type {tensor.kind.name}, which none of its kind has")
        return
    _check_common(file)


def config_of(file: GGUFFile) -> Config:
    """The sizes of a file of the Llama family; all are above 0 and consistent. Raises ModelFileError."""
    dim, heads = _size(file, "embedding_length"), _size(file, "attention.head_count")
    key_heads = _size(file, "attention.head_count_kv", heads)
    if heads % key_heads:
        _wrong(file, f"its {heads} attention heads cannot share {key_heads} key heads evenly")
    stated = file.stated("attention.key_length")
    if stated is None and dim % heads:
        _wrong(file, f"its embedding_length {dim} cannot be divided among {heads} attention heads")
    width = _size(file, "attention.key_length", dim // heads)
    if width % 2 or _size(file, "attention.value_length", width) != width:
        _wrong(file, f"its attention heads are {width} wide, where values are as wide as keys and the width is even")
    if _size(file, "rope.dimension_count", width) > width:
        _wrong(file, f"its rotation turns {file.stated('rope.dimension_count')} of the {width} numbers of a head")
    layers = _size(file, "block_count")
    if layers > len(file.tensors):
        _wrong(file, f"its block_count is {layers}, but it has only {len(file.tensors)} tensors")
    tokens = file.fields.get("tokenizer.ggml.tokens")
    if not isinstance(tokens, list) or not tokens:
        _wrong(file, "it has no tokens in tokenizer.ggml.tokens")
    return Config(
        hidden_size=dim,
        num_hidden_layers=layers,
        num_attention_heads=heads,
        num_key_value_heads=key_heads,
        head_dim=width,
        intermediate_size=_size(file, "feed_forward_length"),
        vocab_size=len(tokens),
        rms_norm_eps=_positive(file, "attention.layer_norm_rms_epsilon"),
        rope_theta=_positive(file, "rope.freq_base", THETA),
        max_position_embeddings=None if file.stated("context_length") is None else _size(file, "context_length"),
    )


def table(c: Config) -> dict[str, Expected]:
    """Every tensor of a model of the Llama family."""
    D, inner, V = c.hidden_size, c.intermediate_size, c.vocab_size
    queries, keys = c.num_attention_heads * c.head_dim, c.num_key_value_heads * c.head_dim
    of_layer = {
        "attn_norm": Expected((D,), NORMS),
        "attn_q": Expected((queries, D), MATRICES),
        "attn_k": Expected((keys, D), MATRICES),
        "attn_v": Expected((keys, D), MATRICES),
        "attn_output": Expected((D, queries), MATRICES),
        "ffn_norm": Expected((D,), NORMS),
        "ffn_gate": Expected((inner, D), MATRICES),
        "ffn_up": Expected((inner, D), MATRICES),
        "ffn_down": Expected((D, inner), MATRICES),
    }
    return {
        "token_embd.weight": Expected((V, D), MATRICES),
        "output_norm.weight": Expected((D,), NORMS),
        "output.weight": Expected((V, D), MATRICES),
        **{f"blk.{i}.{part}.weight": each for i in range(c.num_hidden_layers) for part, each in of_layer.items()},
    }


def _may_lack(file: GGUFFile, name: str) -> bool:
    """Whether a tensor may be missing: output rows may be the embeddings; experts have their own tensors; a part of a
    split file lacks the others'."""
    experts = ".ffn_" in name and any(".expert" in key for key in file.fields)
    parts = file.fields.get("split.count")
    return name == "output.weight" or experts or (isinstance(parts, int) and parts > 1)


def _check_common(file: GGUFFile) -> None:
    """The checks for every architecture."""
    layers = file.stated("block_count")
    if layers is not None and _size(file, "block_count") > len(file.tensors):
        _wrong(file, f"its block_count is {layers}, but it has only {len(file.tensors)} tensors")
    table = file.tensors.get("token_embd.weight")
    tokens = file.fields.get("tokenizer.ggml.tokens")
    if table is None or not isinstance(tokens, list):
        return  # the backend reports the missing part
    expected = (len(tokens), _size(file, "embedding_length"))
    if table.shape != expected:
        _wrong(file, f"token_embd.weight has the shape {table.shape}, where its metadata gives {expected}")
    for key in ("attention.head_count", "attention.head_count_kv", "feed_forward_length", "context_length"):
        if isinstance(file.stated(key), int):  # some architectures have a list, one entry per layer, with zeros in it
            _size(file, key)


def _size(file: GGUFFile, key: str, default: int | None = None) -> int:
    found = file.stated(key, default)
    if type(found) is not int or not 0 < found <= LARGEST:
        _wrong(file, f"its {file.architecture}.{key} is {_short(found)}, where a whole number above 0 is expected")
    return found


def _positive(file: GGUFFile, key: str, default: float | None = None) -> float:
    found = file.stated(key, default)
    if type(found) not in (int, float) or not 0 < found < math.inf:
        _wrong(file, f"its {file.architecture}.{key} is {_short(found)}, where a number above 0 is expected")
    return float(found)


def _short(value: Any) -> str:
    text = "missing" if value is None else repr(value)
    return text if len(text) <= 40 else text[:39] + "…"


def _wrong(file: GGUFFile, what: str) -> NoReturn:
    raise ModelFileError(f"{file.path} is a GGUF file that cannot be used: {what}; download it again.")
