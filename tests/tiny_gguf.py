"""GGUF files of a few kilobytes, written field by field, so that each of them can be made to lie."""

from __future__ import annotations

import random
import struct
from dataclasses import dataclass, field, replace
from math import prod
from pathlib import Path
from typing import Any

import numpy as np
from gguf.constants import GGML_QUANT_SIZES, GGMLQuantizationType, GGUFValueType
from tokenizers.pre_tokenizers import ByteLevel

from core.models.families import FAMILIES
from core.models.gguf_check import config_of, table
from core.models.gguf_file import GGUFFile

F32, F16 = GGMLQuantizationType.F32, GGMLQuantizationType.F16
Q4_0, Q4_1, Q8_0 = GGMLQuantizationType.Q4_0, GGMLQuantizationType.Q4_1, GGMLQuantizationType.Q8_0
BF16, Q5_0, Q5_1 = GGMLQuantizationType.BF16, GGMLQuantizationType.Q5_0, GGMLQuantizationType.Q5_1
Q4_K, Q5_K, Q6_K = GGMLQuantizationType.Q4_K, GGMLQuantizationType.Q5_K, GGMLQuantizationType.Q6_K
# Numbers in half precision in a block of each type, by place: a scale, and an offset or its scale. The rest is free.
HALVES = {
    Q4_0: {0: 0.01},
    Q4_1: {0: 0.01, 2: -0.08},
    Q5_0: {0: 0.005},
    Q5_1: {0: 0.005, 2: -0.08},
    Q8_0: {0: 0.01},
    Q4_K: {0: 0.0003, 2: 0.003},
    Q5_K: {0: 0.00015, 2: 0.003},
    Q6_K: {208: 0.00004},
}
U32, I32, FLOAT, BOOL = GGUFValueType.UINT32, GGUFValueType.INT32, GGUFValueType.FLOAT32, GGUFValueType.BOOL
TEXT, ARRAY, U64 = GGUFValueType.STRING, GGUFValueType.ARRAY, GGUFValueType.UINT64
FORMATS = {
    GGUFValueType.UINT8: "B",
    GGUFValueType.INT8: "b",
    GGUFValueType.UINT16: "H",
    GGUFValueType.INT16: "h",
    U32: "I",
    I32: "i",
    FLOAT: "f",
    BOOL: "?",
    U64: "Q",
    GGUFValueType.INT64: "q",
    GGUFValueType.FLOAT64: "d",
}


@dataclass
class Sizes:
    """D width, heads on key heads of width w, inner width; of a model with two layers unless said otherwise."""

    dim: int = 32
    heads: int = 2
    key_heads: int = 1
    width: int = 16
    inner: int = 64
    layers: int = 2


@dataclass
class Field:
    kind: int
    value: Any  # of an array: (kind, values)
    announced: int | None = None  # a length that is not the array's


@dataclass
class Tensor:
    """`shape` is as GGUF writes it, innermost first."""

    shape: list[int]
    kind: int
    data: bytes
    offset: int | None = None  # one that is not where the data is


@dataclass
class TinyGguf:
    fields: dict[str, Field]
    tensors: dict[str, Tensor]
    version: int = 3
    field_count: int | None = None
    tensor_count: int | None = None
    twice: list[str] = field(default_factory=list)  # fields and tensors that are written again

    def header(self) -> bytes:
        offset, table = 0, []
        for name in [*self.tensors, *(name for name in self.twice if name in self.tensors)]:
            tensor = self.tensors[name]
            place = offset if tensor.offset is None else tensor.offset
            dims = struct.pack(f"<I{len(tensor.shape)}Q", len(tensor.shape), *tensor.shape)
            table.append(text(name) + dims + struct.pack("<IQ", tensor.kind, place))
            offset += aligned(len(tensor.data))
        fields = [*self.fields.items(), *((name, self.fields[name]) for name in self.twice if name in self.fields)]
        counts = (
            len(table) if self.tensor_count is None else self.tensor_count,
            len(fields) if self.field_count is None else self.field_count,
        )
        head = b"GGUF" + struct.pack("<IQQ", self.version, *counts)
        return head + b"".join(text(name) + value(each) for name, each in fields) + b"".join(table)

    def written(self) -> bytes:
        header = self.header()
        return header.ljust(aligned(len(header)), b"\0") + b"".join(
            tensor.data.ljust(aligned(len(tensor.data)), b"\0") for tensor in self.tensors.values()
        )


def aligned(n: int) -> int:
    return -(-n // 32) * 32


def text(said: str) -> bytes:
    data = said.encode("utf-8", "surrogateescape")
    return struct.pack("<Q", len(data)) + data


def value(field: Field) -> bytes:
    return struct.pack("<I", field.kind) + _plain(field.kind, field.value, field.announced)


def _plain(kind: int, value: Any, announced: int | None = None) -> bytes:
    if kind == TEXT:
        return text(value)
    if kind == ARRAY:
        of, values = value
        count = len(values) if announced is None else announced
        return struct.pack("<IQ", of, count) + b"".join(_plain(of, each) for each in values)
    return struct.pack(f"<{FORMATS[GGUFValueType(kind)]}", value)


def data_of(shape: list[int], kind: int, seed: int = 0) -> bytes:
    """As many bytes as a tensor of this shape and kind has; small numbers, where the kind is one that we compute."""
    numbers = prod(shape)
    rng = np.random.default_rng(seed)
    if kind == F32:
        return rng.normal(1 if len(shape) == 1 else 0, 0.1, numbers).astype(np.float32).tobytes()
    if kind == F16:
        return rng.normal(0, 0.1, numbers).astype(np.float16).tobytes()
    if kind == BF16:
        return (rng.normal(0, 0.1, numbers).astype(np.float32).view(np.uint32) >> 16).astype(np.uint16).tobytes()
    block, size = GGML_QUANT_SIZES[GGMLQuantizationType(kind)]
    data = rng.integers(0, 256, (-(-numbers // block), size), dtype=np.uint8)
    for place, number in HALVES.get(GGMLQuantizationType(kind), {}).items():
        data[:, place : place + 2] = np.frombuffer(np.float16(number).tobytes(), np.uint8)
    return data.tobytes()


def byte_tokenizer() -> dict[str, Field]:
    letters = sorted(ByteLevel.alphabet())
    tokens = [*letters, "ab", "<|endoftext|>", "<|im_end|>"]
    return {
        "tokenizer.ggml.model": Field(TEXT, "gpt2"),
        "tokenizer.ggml.pre": Field(TEXT, "smollm"),
        "tokenizer.ggml.tokens": Field(ARRAY, (TEXT, tokens)),
        "tokenizer.ggml.token_type": Field(ARRAY, (I32, [1] * (len(tokens) - 2) + [3, 3])),
        "tokenizer.ggml.merges": Field(ARRAY, (TEXT, ["a b"])),
        "tokenizer.ggml.bos_token_id": Field(U32, len(tokens) - 2),
        "tokenizer.ggml.eos_token_id": Field(U32, len(tokens) - 1),
        "tokenizer.ggml.add_bos_token": Field(BOOL, False),
    }


def sentencepiece_tokenizer() -> dict[str, Field]:
    """All bytes, and a few tokens with scores."""
    first = ["<unk>", "<s>", "</s>", *(f"<0x{byte:02X}>" for byte in range(256))]
    usual = ["\u2581", *"abcdeé1,", "ab", "\u2581a", "\u2581ab"]
    scores = [0.0] * len(first) + [-float(i) for i in range(len(usual))]
    return {
        "tokenizer.ggml.model": Field(TEXT, "llama"),
        "tokenizer.ggml.pre": Field(TEXT, "default"),
        "tokenizer.ggml.tokens": Field(ARRAY, (TEXT, [*first, *usual])),
        "tokenizer.ggml.token_type": Field(ARRAY, (I32, [2, 3, 3, *[6] * 256, *[1] * len(usual)])),
        "tokenizer.ggml.scores": Field(ARRAY, (FLOAT, scores)),
        "tokenizer.ggml.unknown_token_id": Field(U32, 0),
        "tokenizer.ggml.bos_token_id": Field(U32, 1),
        "tokenizer.ggml.eos_token_id": Field(U32, 2),
        "tokenizer.ggml.add_space_prefix": Field(BOOL, True),
    }


def tokenizer_of(file: GGUFFile) -> dict[str, Field]:
    """The fields of a file's tokenizer, to give to another model."""
    kinds = {str: TEXT, bool: BOOL, int: U32}
    found = {}
    for key, value in file.fields.items():
        if key.startswith("tokenizer.ggml"):
            of_list = isinstance(value, list) and (TEXT if isinstance(value[0], str) else I32)
            found[key] = Field(ARRAY, (of_list, value)) if of_list else Field(kinds[type(value)], value)
    return found


_NEAR = {"attention.sliding_window": Field(U32, 9)}
_CAPS = {"attn_logit_softcapping": Field(FLOAT, 50.0), "final_logit_softcapping": Field(FLOAT, 30.0)}
_YARN = {
    "rope.scaling.type": Field(TEXT, "yarn"),
    "rope.scaling.factor": Field(FLOAT, 4.0),
    "rope.scaling.original_context_length": Field(U32, 32),
    "rope.scaling.attn_factor": Field(FLOAT, 1.1),
}
_SCALES = ("attention.scale", "embedding_scale", "residual_scale", "logit_scale")
# What files of a family have beside the fields of all, without the architecture.
FIELDS = {
    "qwen3": _YARN,
    "gemma2": _NEAR | _CAPS,
    "gemma3": _NEAR,
    "phi3": _NEAR,
    "olmo2": _NEAR | _YARN,
    "granite": {name: Field(FLOAT, 0.9) for name in _SCALES},
}
KINDS = (F32, F16, BF16, Q4_0, Q4_1, Q5_0, Q5_1, Q8_0, Q4_K, Q5_K, Q6_K)
# Tensors in the order of their random numbers.
_ORDER = ("attn_norm", "attn_q", "attn_k", "attn_v", "attn_output", "ffn_norm", "ffn_gate", "ffn_up", "ffn_down")


def _kind_of(name: str, shape: tuple[int, ...]) -> GGMLQuantizationType:
    if len(shape) == 1:
        return F32
    if shape[1] % 32:
        return F16
    part = name.split(".")[-2]
    return {"attn_q": Q4_1, "attn_k": Q4_1, "ffn_down": Q4_1, "token_embd": Q8_0, "attn_output": Q8_0}.get(part, Q4_0)


def tiny(
    sizes: Sizes | None = None,
    tokenizer: dict[str, Field] | None = None,
    context: int = 64,
    family: str = "llama",
    rng: random.Random | None = None,
) -> TinyGguf:
    """A model of a family that compiled code runs, its weights in several kinds that it knows.

    Args:
        tokenizer: its fields; None is one of bytes.
        context: positions.
        rng: chooses the kinds of weights among all; None is a fixed choice.
    """
    s, tokenizer = sizes or Sizes(), tokenizer or byte_tokenizer()
    vocabulary = len(tokenizer["tokenizer.ggml.tokens"].value[1])
    fields = {
        "general.architecture": Field(TEXT, family),
        "general.name": Field(TEXT, "tiny"),
        "llama.block_count": Field(U32, s.layers),
        "llama.context_length": Field(U32, context),
        "llama.embedding_length": Field(U32, s.dim),
        "llama.feed_forward_length": Field(U32, s.inner),
        "llama.attention.head_count": Field(U32, s.heads),
        "llama.attention.head_count_kv": Field(U32, s.key_heads),
        "llama.attention.key_length": Field(U32, s.width),
        "llama.attention.value_length": Field(U32, s.width),
        "llama.attention.layer_norm_rms_epsilon": Field(FLOAT, 1e-5),
        "llama.rope.freq_base": Field(FLOAT, 10000.0),
        "llama.rope.dimension_count": Field(U32, s.width),
        "llama.vocab_size": Field(U32, vocabulary),
        **tokenizer,
    }
    fields |= {f"llama.{key}": replace(each) for key, each in FIELDS.get(family, {}).items()}  # mutations change them
    fields = {
        key.replace("llama.", f"{family}.") if key.startswith("llama.") else key: each for key, each in fields.items()
    }
    plain = {key: each.value[1] if each.kind == ARRAY else each.value for key, each in fields.items()}
    expected = table(config_of(GGUFFile(Path(), plain, dict.fromkeys(map(str, range(s.layers))))))  # type: ignore[arg-type]
    shapes = {name: each.shape for name, each in expected.items() if not each.optional and name != "output.weight"}

    def place(name: str) -> tuple[str, int]:
        layer, _, part = name.removesuffix(".weight").rpartition(".")
        return layer, _ORDER.index(part) if part in _ORDER else len(_ORDER)

    tensors: dict[str, Tensor] = {}
    for seed, name in enumerate(sorted(shapes, key=place)):
        shape, kind = shapes[name], _kind_of(name, shapes[name])
        if rng and len(shape) > 1:
            kind = rng.choice([each for each in KINDS if shape[1] % GGML_QUANT_SIZES[each][0] == 0])
        tensors[name] = Tensor([*shape[::-1]], kind, data_of([*shape[::-1]], kind, seed))
    return TinyGguf(fields, tensors)


# --- mutations

NUMBERS = [0, 1, 2, 3, 4, 5, 7, 8, 15, 16, 17, 31, 32, 33, 48, 63, 64, 96]
NUMBERS += [128, 255, 256, 257, 1000, 4096, 65535, 1 << 18]
NUMBERS += [2**31 - 1, 2**31, 2**32 - 1, 2**32, 2**40, 2**62, 2**63 - 1, 2**63, 2**64 - 1]
MOST_DATA = 1 << 20  # bytes that a tensor of another shape is given


def mutated(seed: int) -> bytes:
    """A file that is a model, or was one before one to three things in it were changed."""
    rng = random.Random(seed)
    tokenizer = rng.choice((byte_tokenizer, sentencepiece_tokenizer))()
    made = tiny(some_sizes(rng), tokenizer, family=rng.choice(list(FAMILIES)), rng=rng)
    for _ in range(rng.choice((0, 1, 1, 1, 2, 3))):
        rng.choice((_field, _field, _shape, _shape, _kind, _place, _names, _tokenizer, _counts))(made, rng)
    try:
        data = bytearray(made.written())
        header = len(made.header())
    except (struct.error, OverflowError):  # a number that its type cannot hold
        return mutated(seed + (1 << 32))
    if rng.random() < 0.3:
        rng.choice((_bits, _word, _cut))(data, header, rng)
    return bytes(data)


def some_sizes(rng: random.Random) -> Sizes:
    key_heads = rng.choice((1, 1, 2, 3))
    return Sizes(
        dim=rng.choice((32, 32, 64, 96, 256)),
        key_heads=key_heads,
        heads=key_heads * rng.choice((1, 2, 3)),
        width=rng.choice((16, 16, 32, 48, 8, 6)),
        inner=rng.choice((32, 64, 96, 160, 40, 256)),
        layers=rng.choice((1, 2)),
    )


def _number(rng: random.Random, near: int) -> int:
    return rng.choice((near + 1, near - 1, near * 2, near // 2, near * 3, -near, rng.choice(NUMBERS)))


def _field(made: TinyGguf, rng: random.Random) -> None:
    key = rng.choice([key for key in made.fields if not key.startswith("tokenizer")])
    field = made.fields[key]
    if rng.random() < 0.1:
        del made.fields[key]
    elif rng.random() < 0.2:
        kind = rng.choice((TEXT, ARRAY, FLOAT, BOOL, I32, U64))
        values = {TEXT: "x", ARRAY: (U32, [2, 2]), FLOAT: rng.choice((0.0, -1.0, 2.5, float("nan"), float("inf")))}
        made.fields[key] = Field(kind, values.get(kind, 1))
    elif field.kind == FLOAT:
        field.value = rng.choice((0.0, -1.0, 1e-38, 1e38, float("nan"), float("inf")))
    elif field.kind == TEXT:
        field.value = rng.choice(("", "llama\0", "linear", "longrope", *FAMILIES, "falcon", "x" * 1000, "\udcff"))
    else:
        near = field.value if isinstance(field.value, int) else 2  # an earlier mutation may have made it an array
        found = _number(rng, near)
        made.fields[key] = Field(U64 if found > 2**32 - 1 else I32 if found < 0 else U32, found)


def _tokenizer(made: TinyGguf, rng: random.Random) -> None:
    key = rng.choice([key for key in made.fields if key.startswith("tokenizer")] or ["tokenizer.ggml.tokens"])
    field = made.fields.get(key)
    if field is None or rng.random() < 0.2:
        made.fields.pop(key, None)
    elif field.kind == ARRAY:
        of, values = field.value
        values = list(values)
        way = rng.randrange(5)
        if way == 0:
            values = values[: rng.randrange(len(values) + 1)]
        elif way == 1:
            values += values[:1] * rng.choice((1, 5))
        elif way == 2:
            field.announced = rng.choice((0, 1, len(values) + 1, 1 << 20, 1 << 40, 2**64 - 1))
        elif way == 3 and values:
            others = {TEXT: ("", "a", "\udcff", "c d e", " "), FLOAT: (6.0, -1e38, float("inf"), float("nan"))}
            values[rng.randrange(len(values))] = rng.choice(others.get(of, (6,)))
        else:
            of, values = rng.choice(((TEXT, ["a b"]), (U32, [1, 2, 3]), (ARRAY, []), (99, [])))
        field.value = (of, values)
    elif field.kind == TEXT:
        field.value = rng.choice(("", "gpt2", "llama", "qwen2", "llama-bpe", "x"))
    else:
        made.fields[key] = Field(U32, rng.choice((0, 258, 259, 2**31, 2**32 - 1)))


def _shape(made: TinyGguf, rng: random.Random) -> None:
    tensor = made.tensors[rng.choice(list(made.tensors))]
    way = rng.random()
    if way < 0.7:
        at = rng.randrange(len(tensor.shape))
        tensor.shape[at] = max(0, min(_number(rng, tensor.shape[at]), 2**64 - 1))
    elif way < 0.8:
        tensor.shape.reverse()
    elif way < 0.9:
        tensor.shape.append(rng.choice((0, 1, 2, 2**62)))
    else:
        tensor.shape = rng.choice(list(made.tensors.values())).shape[:]
    if rng.random() < 0.7:
        _fill(tensor, rng)


def _kind(made: TinyGguf, rng: random.Random) -> None:
    tensor = made.tensors[rng.choice(list(made.tensors))]
    tensor.kind = rng.choice((*GGMLQuantizationType, 4, 99, 2**31, 2**32 - 1))
    if rng.random() < 0.7:
        _fill(tensor, rng)


def _fill(tensor: Tensor, rng: random.Random) -> None:
    """Give it the bytes that its shape asks for, so that only the metadata contradicts it."""
    kinds = {int(kind) for kind in GGMLQuantizationType}
    if tensor.kind in kinds and prod(tensor.shape) <= MOST_DATA // 4:
        tensor.data = data_of(tensor.shape, tensor.kind, rng.randrange(1000))
        if rng.random() < 0.2:
            tensor.data = rng.randbytes(len(tensor.data))


def _place(made: TinyGguf, rng: random.Random) -> None:
    tensor = made.tensors[rng.choice(list(made.tensors))]
    tensor.offset = rng.choice((0, 1, 31, 32, 1024, 1 << 20, 1 << 40, 2**63, 2**64 - 32, 2**64 - 1))


def _names(made: TinyGguf, rng: random.Random) -> None:
    name = rng.choice(list(made.tensors))
    if rng.random() < 0.3:
        made.twice.append(rng.choice((name, "general.name")))
        return
    tensor = made.tensors.pop(name)
    if rng.random() < 0.6:
        other = rng.choice(("", "x" * 100, "output.weight", "blk.9.attn_q.weight", "blk.0.attn_q.bias", "\udcff"))
        made.tensors[other] = tensor


def _counts(made: TinyGguf, rng: random.Random) -> None:
    count = rng.choice((0, 1, len(made.tensors) + 1, len(made.fields) - 1, 2**20, 2**32, 2**63, 2**64 - 1))
    if rng.random() < 0.4:
        made.tensor_count = count
    elif rng.random() < 0.7:
        made.field_count = count
    elif rng.random() < 0.5:
        made.version = rng.choice((0, 1, 2, 4, 1 << 24, 3 << 24))
    else:
        made.fields["general.alignment"] = Field(U32, rng.choice((0, 1, 3, 8, 64, 1 << 30, 2**31)))


def _bits(data: bytearray, header: int, rng: random.Random) -> None:
    for _ in range(rng.choice((1, 1, 2, 8))):
        data[rng.randrange(header if rng.random() < 0.8 else len(data))] ^= 1 << rng.randrange(8)


def _word(data: bytearray, header: int, rng: random.Random) -> None:
    form = rng.choice(("<I", "<Q"))
    found = rng.choice(NUMBERS) & (2 ** (8 * struct.calcsize(form)) - 1)
    struct.pack_into(form, data, rng.randrange(header - 8), found)


def _cut(data: bytearray, header: int, rng: random.Random) -> None:
    if rng.random() < 0.2:
        data += rng.randbytes(rng.choice((1, 100, 5000)))
    else:
        del data[rng.randrange(header if rng.random() < 0.5 else len(data)) :]
