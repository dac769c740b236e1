"""Checks that a GGUF file's tensors match its metadata: one table of names, shapes and types.

Compiled code allocates memory by the metadata and fills it from the tensors, so the two must agree before either is
used. For the families that compiled code knows, the table contains every tensor of the layers. For other
architectures, which llama.cpp reads, only the sizes that all of them have are compared.

Shapes: D width, H query heads on K key heads, w width of a head, V vocabulary.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NoReturn

from gguf.constants import GGMLQuantizationType

from core.errors import ModelFileError
from core.models.families import COMMON, FAMILIES, Family, Shape
from core.models.gguf_file import GGUFFile
from core.models.recurrent import is_recurrent

STRICT = "llama"  # the architecture of which no file may lack a tensor
THETA = 10000.0  # of the rotation, if the file has none
SCALINGS = ("none", "linear", "yarn", "longrope")  # of the rotation
LARGEST = 2**31 - 1  # the largest size accepted from the metadata
LEAST, MOST = 2.0**-40, 2.0**40  # of the other numbers; compiled code refuses factors above MOST
NORMS = frozenset({GGMLQuantizationType.F32, GGMLQuantizationType.F16, GGMLQuantizationType.BF16})
_INTEGERS = {kind for kind in GGMLQuantizationType if kind.name in ("I8", "I16", "I32", "I64")}
MATRICES = frozenset(GGMLQuantizationType) - _INTEGERS


@dataclass(frozen=True)
class Scaling:
    """How a rotation is stretched to longer texts than the model first learnt.

    Attributes:
        kind: "linear" divides all speeds by the factor, "yarn" (arXiv 2309.00071) those of the slow pairs. "long" takes
            factors from tensors.
        factor: by which texts are longer.
        original: positions that the model first learnt.
        size: factor of cosines and sines, beside that of YaRN.
        fast, slow: turns within `original` positions, from which on YaRN leaves the speed as it is, and up to which it
            divides it by the whole factor.
    """

    kind: str = "none"
    factor: float = 1.0
    original: int = 1
    size: float = 1.0
    fast: float = 32.0
    slow: float = 1.0


@dataclass(frozen=True)
class Config:
    """The sizes and features of a model of one of the families. What the torch engines read has the names of a
    transformers configuration, whose import would take longer than reading the file.

    Attributes:
        shape: without the number of kinds of rotation.
        near: for each layer, whether it has the window; the window is 0 if none has.
        window_theta: base of the rotation in those layers, if they have one of their own.
        embeddings: factor of the embeddings.
    """

    family: Family
    shape: Shape
    layers: int
    vocab_size: int
    max_position_embeddings: int | None
    rope_theta: float
    scaling: Scaling
    near: tuple[bool, ...]
    window_theta: float | None
    embeddings: float

    def get_text_config(self) -> Config:
        return self


@dataclass(frozen=True)
class Expected:
    shape: tuple[int, ...]
    kinds: frozenset[GGMLQuantizationType]
    optional: bool = False


def check(file: GGUFFile) -> None:
    """Raises ModelFileError, in one sentence, if tensors and metadata disagree or are incomplete."""
    if not isinstance(file.architecture, str):
        _wrong(file, f"its general.architecture is {file.architecture!r}, where a name is expected")
    tokens = file.fields.get("tokenizer.ggml.tokens")
    for key in ("token_type", "scores"):
        of_tokens = file.fields.get(f"tokenizer.ggml.{key}")
        if of_tokens is not None and not (isinstance(of_tokens, list) and len(of_tokens) == len(tokens or [])):
            _wrong(file, f"its tokenizer.ggml.{key} is not a list with one number per token")
    if file.architecture in FAMILIES and (file.architecture == STRICT or not unknown(file)):
        config = config_of(file)
        for name, expected in table(config).items():
            tensor = file.tensors.get(name)
            if tensor is None:
                if not expected.optional and not _may_lack(file, name):
                    _wrong(file, f"it has no tensor {name}")
            elif tensor.shape != expected.shape:
                _wrong(file, f"{name} has the shape {tensor.shape}, where its metadata gives {expected.shape}")
            elif tensor.kind not in expected.kinds:
                _wrong(file, f"{name} has the type {tensor.kind.name}, which none of its kind has")
        return
    _check_common(file)


def unknown(file: GGUFFile) -> str:
    """What is in this file of one of the families that compiled code may not know, as a clause, or ""."""
    family, start = FAMILIES[file.architecture], f"{file.architecture}."
    for key, value in file.fields.items():
        name = key.removeprefix(start)
        if key.startswith(start) and name not in COMMON | family.fields and not _is_zero(value):
            return f"its metadata has {_short(name)}"
    if not file.stated("rope.scaling.finetuned", True) and "attention.scale" in family.fields:
        return "its queries and keys have no rotation"
    if file.stated("rope.scaling.type", "none") not in SCALINGS:
        return f"its rotation is scaled by {_short(file.stated('rope.scaling.type'))}"
    window, length = file.stated("attention.sliding_window", 0), file.stated("context_length", 0)
    if "attention.sliding_window" not in family.fields and isinstance(window, int) and 0 < window < length:
        return "it attends to a sliding window"
    return ""


def _is_zero(value: Any) -> bool:
    """Whether a field states that there is nothing of its kind, such as experts."""
    return type(value) in (int, float, bool) and value == 0


def config_of(file: GGUFFile) -> Config:
    """The sizes and features of a file of one of the families; all are in their ranges and consistent. Raises
    ModelFileError."""
    family = FAMILIES[file.architecture]
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
    turned = _size(file, "rope.dimension_count", width)
    if turned > width or turned % 2:
        _wrong(file, f"its rotation turns {turned} of the {width} numbers of a head")
    layers = _size(file, "block_count")
    if layers > len(file.tensors):
        _wrong(file, f"its block_count is {layers}, but it has only {len(file.tensors)} tensors")
    tokens = file.fields.get("tokenizer.ggml.tokens")
    if not isinstance(tokens, list) or not tokens:
        _wrong(file, "it has no tokens in tokenizer.ggml.tokens")
    length = None if file.stated("context_length") is None else _size(file, "context_length")
    window, near = _windows(file, family, layers, length)
    scaling = _scaling(file)
    if scaling.kind == "long" and length is not None:
        length = min(length, scaling.original)  # the factors for longer texts would change those of shorter ones
    attention = _positive(file, "attention.scale") if file.stated("attention.scale") else None
    if attention is None and family.spread == layers:
        attention = (dim / heads) ** -0.5
    theta = family.window_theta
    shape = Shape(
        dim,
        heads,
        key_heads,
        width,
        _size(file, "feed_forward_length"),
        _positive(file, "attention.layer_norm_rms_epsilon"),
        turned=turned,
        window=window,
        gelu=family.gelu,
        whole=family.qk_norms == "all",
        attention=attention,
        residual=_factor(file, "residual_scale"),
        logits=1.0 / _factor(file, "logit_scale"),
        attention_cap=_factor(file, "attn_logit_softcapping", 0.0),
        logit_cap=_factor(file, "final_logit_softcapping", 0.0),
    )
    return Config(
        family,
        shape,
        layers,
        vocab_size=len(tokens),
        max_position_embeddings=length,
        rope_theta=_positive(file, "rope.freq_base", THETA),
        scaling=scaling,
        near=near,
        window_theta=_positive(file, "rope.freq_base_swa", theta) if theta and window else None,
        embeddings=_factor(file, "embedding_scale") * (dim**0.5 if family.scaled_embeddings else 1.0),
    )


def _windows(file: GGUFFile, family: Family, layers: int, length: int | None) -> tuple[int, tuple[bool, ...]]:
    """The window, and which layers have it; 0 if it is as long as the context."""
    none = 0, (False,) * layers
    if "attention.sliding_window" not in family.fields or not file.stated("attention.sliding_window"):
        return none
    window = _size(file, "attention.sliding_window")
    pattern = file.stated("attention.sliding_window_pattern", family.pattern)
    if isinstance(pattern, list):
        if len(pattern) != layers or not all(type(each) is bool for each in pattern):
            _wrong(file, "its attention.sliding_window_pattern is not a list with a yes or no for each layer")
        near = tuple(pattern)
    else:
        every = _size(file, "attention.sliding_window_pattern", family.pattern) if pattern else 0
        near = tuple(not every or (i + 1) % every != 0 for i in range(layers))
    return none if length is not None and window >= length and not family.window_theta else (window, near)


def _scaling(file: GGUFFile) -> Scaling:
    kind = file.stated("rope.scaling.type", "none")
    if "rope_factors_long.weight" in file.tensors or kind == "longrope":
        kind = "long"
    elif kind not in ("linear", "yarn"):
        return Scaling()
    if kind == "yarn" and _positive(file, "rope.freq_base", THETA) <= 1:
        _wrong(file, "its rotation is scaled by yarn, where its rope.freq_base should be above 1")
    return Scaling(
        kind,
        _factor(file, "rope.scaling.factor"),
        _size(file, "rope.scaling.original_context_length", 1 if kind == "linear" else None),
        _factor(file, "rope.scaling.attn_factor"),
        _factor(file, "rope.scaling.yarn_beta_fast", 32.0),
        _factor(file, "rope.scaling.yarn_beta_slow", 1.0),
    )


def table(c: Config) -> dict[str, Expected]:
    """Every tensor of a model of one of the families."""
    s, V = c.shape, c.vocab_size
    D, inner, queries, keys = s.dim, s.inner, s.heads * s.width, s.key_heads * s.width
    family, of_layer = c.family, dict[str, Expected]()

    def map(name: str, out: int, inputs: int, biases: bool = False) -> None:
        of_layer[f"{name}.weight"] = Expected((out, inputs), MATRICES)
        of_layer[f"{name}.bias"] = Expected((out,), NORMS, optional=not biases)

    if family.fused:
        map("attn_qkv", queries + 2 * keys, D)
        map("ffn_up", 2 * inner, D)
    else:
        for name, out in (("attn_q", queries), ("attn_k", keys), ("attn_v", keys)):
            map(name, out, D, family.biases)
        map("ffn_gate", inner, D)
        map("ffn_up", inner, D)
    map("attn_output", D, queries)
    map("ffn_down", D, inner)
    norms = dict.fromkeys(("attn_norm", "ffn_norm") if family.norms != "after" else (), D)
    norms |= dict.fromkeys(("post_attention_norm", "post_ffw_norm") if family.norms != "before" else (), D)
    if family.qk_norms:
        norms |= {"attn_q_norm": queries, "attn_k_norm": keys}
        norms |= dict.fromkeys(("attn_q_norm", "attn_k_norm"), s.width) if family.qk_norms == "each" else {}
    of_layer |= {f"{name}.weight": Expected((size,), NORMS) for name, size in norms.items()}
    factors = ("rope_factors_long", "rope_factors_short") if c.scaling.kind == "long" else ("rope_freqs",)
    return {
        "token_embd.weight": Expected((V, D), MATRICES),
        "output_norm.weight": Expected((D,), NORMS),
        "output.weight": Expected((V, D), MATRICES),
        **{f"{name}.weight": Expected((s.rotated // 2,), NORMS, optional=len(factors) == 1) for name in factors},
        **{f"blk.{i}.{part}": each for i in range(c.layers) for part, each in of_layer.items()},
    }


def _may_lack(file: GGUFFile, name: str) -> bool:
    """Whether a tensor may be missing: output rows may be the embeddings; experts have their own tensors."""
    return name == "output.weight" or (".ffn_" in name and any(".expert" in key for key in file.fields))


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
        # Some architectures have a list, one entry per layer, with zeros in it; one without attention has no heads.
        stated = file.stated(key)
        if isinstance(stated, int) and not (_is_zero(stated) and is_recurrent(file.architecture)):
            _size(file, key)


def _size(file: GGUFFile, key: str, default: int | None = None) -> int:
    size = file.stated(key, default)
    if type(size) is not int or not 0 < size <= LARGEST:
        _wrong(file, f"its {file.architecture}.{key} is {_short(size)}, where a whole number above 0 is expected")
    return size


def _positive(file: GGUFFile, key: str, default: float | None = None) -> float:
    number = file.stated(key, default)
    if type(number) not in (int, float) or not LEAST <= number <= MOST:
        expected = f"a number from {LEAST:.0e} to {MOST:.0e}"
        _wrong(file, f"its {file.architecture}.{key} is {_short(number)}, where {expected} is expected")
    return float(number)


def _factor(file: GGUFFile, key: str, default: float = 1.0) -> float:
    """A number that is optional: 0, too, means that there is none."""
    stated = file.stated(key)
    return default if stated is None or _is_zero(stated) else _positive(file, key)


def _short(value: Any) -> str:
    text = "missing" if value is None else repr(value)
    return text if len(text) <= 40 else text[:39] + "…"


def _wrong(file: GGUFFile, what: str) -> NoReturn:
    raise ModelFileError(f"{file.path} is a GGUF file that cannot be used: {what}; download it again.")
