"""GGUF files from any source: metadata is compared with the contents; an inconsistent file is refused with a
message."""

from __future__ import annotations

import ctypes
import os
import random
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest import mock

import fuzz_models
import gguf
import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tiny_gguf import (
    ARRAY,
    BOOL,
    FLOAT,
    I32,
    Q8_0,
    TEXT,
    U32,
    U64,
    Field,
    Sizes,
    Tensor,
    TinyGguf,
    data_of,
    mutated,
    tiny,
)

from core.errors import ModelFileError
from core.models import gguf_file, load_model, native
from core.models.families import FAMILIES
from core.models.llama import NativeLlama
from core.models.on_machine import read_about
from core.models.torch_model import TorchModel

Change = Callable[[TinyGguf], None]


def written(folder: Path, change: Change | None = None, family: str = "llama") -> Path:
    made = tiny(family=family)
    if change:
        change(made)
    path = folder / "tiny.gguf"
    path.write_bytes(made.written())
    return path


@pytest.mark.parametrize("change", ["scores", "merges"])
def test_a_tokenizer_without_a_part_is_refused(tmp_path: Path, change: str) -> None:
    lies = {"scores": ("tokenizer.ggml.model", "llama", TEXT), "merges": ("tokenizer.ggml.merges", (TEXT, []), ARRAY)}
    with pytest.raises(ModelFileError, match="a tokenizer whose parts do not fit together"):
        load_model(str(written(tmp_path, set_to(*lies[change]))), "torch")


@pytest.mark.parametrize("family", FAMILIES)
def test_a_tiny_model_of_each_family_runs_in_compiled_code_in_any_types(tmp_path: Path, family: str) -> None:
    for seed in range(2):
        path = tmp_path / "tiny.gguf"
        path.write_bytes(tiny(Sizes(dim=256, inner=256), family=family, rng=random.Random(seed)).written())
        model = load_model(str(path), "torch")
        assert isinstance(model, TorchModel) and isinstance(model.layers.module, NativeLlama)
        assert torch.isfinite(model.open().feed([1, 2, 3])).all()


def test_what_is_read_is_what_the_formats_own_reader_reads(tmp_path: Path) -> None:
    path = written(tmp_path)
    ours, theirs = gguf_file.read(path), gguf.GGUFReader(path)
    fields = {name: each.contents() for name, each in theirs.fields.items() if not name.startswith("GGUF.")}
    assert ours.fields == fields
    assert list(ours.tensors) == [each.name for each in theirs.tensors]
    for each in theirs.tensors:
        found = ours.tensors[each.name]
        assert (found.shape, found.kind) == (tuple(each.shape[::-1].tolist()), each.tensor_type)
        assert np.array_equal(found.data(), each.data)


@settings(max_examples=30, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(first=st.integers(24, 3000))
def test_a_header_is_read_the_same_in_any_parts(tmp_path: Path, first: int) -> None:
    """Headers of large vocabularies take more than the first part."""
    path = written(tmp_path)
    expected = gguf_file.read(path)
    gguf_file.forget()
    with mock.patch.object(gguf_file, "_FIRST", first):
        found = gguf_file.read(path)
    gguf_file.forget()
    assert (found.fields, [*found.tensors]) == (expected.fields, [*expected.tensors])


def set_to(key: str, value: object, kind: int = U32) -> Change:
    return lambda made: made.fields.__setitem__(key, Field(kind, value))


def without(key: str) -> Change:
    return lambda made: made.fields.pop(key) and None


def shaped(name: str, *shape: int) -> Change:
    """A tensor of another shape, with as much data as that has: only the metadata contradicts it."""

    def change(made: TinyGguf) -> None:
        kind = made.tensors[name].kind
        made.tensors[name] = Tensor(list(shape), kind, data_of(list(shape), kind))

    return change


def announced(key: str, count: int) -> Change:
    return lambda made: setattr(made.fields[key], "announced", count)


def put_at(name: str, offset: int) -> Change:
    return lambda made: setattr(made.tensors[name], "offset", offset)


def both(*changes: Change) -> Change:
    return lambda made: [change(made) for change in changes] and None


def with_factors(count: int) -> Change:
    data = data_of([count], gguf.GGMLQuantizationType.F32)
    return lambda made: made.tensors.__setitem__(
        "rope_freqs.weight", Tensor([count], gguf.GGMLQuantizationType.F32, data)
    )


def of_kind(name: str, kind: int) -> Change:
    def change(made: TinyGguf) -> None:
        shape = made.tensors[name].shape
        made.tensors[name] = Tensor(shape, kind, data_of(shape, kind))

    return change


def nested(depth: int) -> tuple[int, list[Any]]:
    return (ARRAY, [nested(depth - 1)]) if depth else (U32, [1])


TYPES = "tokenizer.ggml.token_type"
HEADS, KEY_HEADS = "llama.attention.head_count", "llama.attention.head_count_kv"
LIES: dict[str, tuple[Change, str]] = {
    "many more rows": (shaped("blk.0.attn_q.weight", 32, 262_144), r"attn_q.weight has the shape \(262144, 32\)"),
    "a few more rows": (
        shaped("blk.0.attn_q.weight", 32, 96),
        r"shape \(96, 32\), where its metadata gives \(32, 32\)",
    ),
    "fewer rows of the embeddings": (shaped("token_embd.weight", 32, 100), "token_embd.weight has the shape"),
    "a wider norm": (shaped("output_norm.weight", 64), "output_norm.weight has the shape"),
    "a norm of whole numbers": (of_kind("output_norm.weight", gguf.GGMLQuantizationType.I32), "has the type I32"),
    "more key heads than heads": (both(set_to(HEADS, 2), set_to(KEY_HEADS, 4)), "cannot share 4 key heads"),
    "no heads": (set_to(HEADS, 0), "head_count is 0, where a whole number above 0 is expected"),
    "heads missing": (without(HEADS), "head_count is missing"),
    "no width": (set_to("llama.embedding_length", 0), "embedding_length is 0"),
    "width missing": (without("llama.embedding_length"), "embedding_length is missing"),
    "a text for a number": (set_to("llama.block_count", "two", TEXT), "block_count is 'two'"),
    "a list for a number": (set_to(HEADS, (U32, [2, 2]), ARRAY), r"head_count is \[2, 2\]"),
    "a negative number": (set_to("llama.feed_forward_length", -64, I32), "feed_forward_length is -64"),
    "more layers than tensors": (set_to("llama.block_count", 2**31 - 1), "block_count is 2147483647, but it has only"),
    "a number beyond all sizes": (set_to("llama.embedding_length", 2**63, U64), "embedding_length is 9223372036854"),
    "an epsilon that is no number": (
        set_to("llama.attention.layer_norm_rms_epsilon", float("nan"), FLOAT),
        "rms_epsilon is nan",
    ),
    "no tokens": (both(without("tokenizer.ggml.tokens"), without(TYPES)), "no tokens"),
    "a type for some tokens only": (set_to(TYPES, (I32, [1, 1]), ARRAY), "token_type is not a list"),
    "no architecture": (without("general.architecture"), "architecture is None"),
    "a tensor missing": (lambda made: made.tensors.pop("blk.1.ffn_up.weight") and None, "no tensor blk.1.ffn_up"),
    "a list without end": (announced("tokenizer.ggml.tokens", 1 << 40), "1099511627776 texts of .* announced"),
    "numbers without end": (announced("tokenizer.ggml.token_type", 2**64 - 1), "18446744073709551615 numbers"),
    "fields without end": (lambda made: setattr(made, "field_count", 1 << 40), "1099511627776 fields"),
    "tensors without end": (lambda made: setattr(made, "tensor_count", 2**64 - 1), "18446744073709551615 tensors"),
    "a shape whose product overflows": (
        lambda made: made.tensors["token_embd.weight"].shape.append(2**62),
        "token_embd.weight' up to byte",
    ),
    "an empty shape": (lambda made: made.tensors["token_embd.weight"].shape.append(0), "the empty shape"),
    "too many dimensions": (
        lambda made: made.tensors["token_embd.weight"].shape.extend([1, 1, 1]),
        "5 dimensions for 'token_embd.weight'",
    ),
    "a place past the end": (put_at("token_embd.weight", 1 << 40), "up to byte 10995.* but only"),
    "one tensor over another": (put_at("blk.0.attn_q.weight", 0), "'blk.0.attn_q.weight' over"),
    "a place between": (put_at("blk.0.attn_q.weight", 1), "the offset 1 for .* not a multiple of 32"),
    "an impossible type": (
        lambda made: setattr(made.tensors["token_embd.weight"], "kind", 2**31),
        "the unknown type 2147483648",
    ),
    "lists in lists without end": (
        set_to("general.tags", (ARRAY, [nested(12)]), ARRAY),
        "lists in 9 lists for 'general.tags'",
    ),
    "many lists in a list": (
        lambda made: made.fields.__setitem__("general.tags", Field(ARRAY, (ARRAY, []), announced=1 << 40)),
        "1099511627776 lists of .* announced",
    ),
    "a name twice": (
        both(lambda made: made.twice.append("token_embd.weight"), put_at("token_embd.weight", 0)),
        "'token_embd.weight' over 'token_embd.weight'",
    ),
    "a field twice": (lambda made: made.twice.append("general.name"), "the field 'general.name' twice"),
    "an alignment of nothing": (set_to("general.alignment", 0), "an alignment of 0"),
    "an impossible version": (lambda made: setattr(made, "version", 1 << 20), "version 1048576, where 2 or 3"),
    "a token that is not UTF-8": (
        lambda made: made.fields["tokenizer.ggml.tokens"].value[1].__setitem__(5, "\udcff"),
        "not UTF-8 for 'tokenizer.ggml.tokens'",
    ),
}


def typed(number: int) -> Change:
    return lambda made: setattr(made.tensors["token_embd.weight"], "kind", number)


def emptied(made: TinyGguf) -> None:
    made.tensors.clear()


# Sound files that are no model, or not one of today: each with what it is, and what to do.
OTHERS: dict[str, tuple[Change, str]] = {
    "a newer type of weights": (typed(42), r"has 'token_embd.weight' in the type 42, which .* not know.*; choose"),
    "a removed type of weights": (typed(31), r"in the type Q4_0_4_4, which llama.cpp gave up; choose another file"),
    "a newer type of metadata": (set_to("general.tags", (99, []), ARRAY), "has 'general.tags' in the type 99, which"),
    "a vocabulary": (emptied, "has a model's vocabulary or description and no weights; choose the model's own file"),
    "a projector": (set_to("general.type", "mmproj", TEXT), "is a projector, .*; choose the model's own file"),
    "an older projector": (set_to("general.architecture", "clip", TEXT), "is a projector, .*; choose the model's"),
    "a LoRA adapter": (set_to("general.type", "adapter", TEXT), "is a LoRA adapter, .*; choose the model's own file"),
    "an importance matrix": (set_to("general.type", "imatrix", TEXT), "is an importance matrix, .*; choose the model"),
    "a part": (both(set_to("split.no", 0), set_to("split.count", 2)), "is part 1 of 2 of a model; join them"),
    "a part without tensors": (
        both(emptied, set_to("split.no", 0), set_to("split.count", 3)),
        "is part 1 of 3 of a model; join them",
    ),
    "a big-endian file": (lambda made: setattr(made, "version", 3 << 24), "is a GGUF file for big-endian machines"),
    "a newer version": (lambda made: setattr(made, "version", 4), "is of version 4 of GGUF, and 2 and 3 are read"),
}


@pytest.mark.parametrize("other", OTHERS)
def test_a_sound_file_that_is_no_model_of_today_is_said_to_be_what_it_is(tmp_path: Path, other: str) -> None:
    change, said = OTHERS[other]
    path = written(tmp_path, change)
    with pytest.raises(ModelFileError, match=said) as refused:
        load_model(str(path), "torch")
    assert "download it again" not in str(refused.value) and "\n" not in str(refused.value)
    assert read_about(path).unusable.startswith(f"It {str(refused.value).removeprefix(f'{path} ')[:20]}")


def test_metadata_that_says_nothing_about_the_computation_stops_no_load(tmp_path: Path) -> None:
    def described(made: TinyGguf) -> None:
        made.fields["general.description"] = Field(TEXT, "caf\udce9")  # Latin-1
        made.fields["general.tags"] = Field(ARRAY, (TEXT, ["text", "\udcff"]))
        made.fields["general.lists"] = Field(ARRAY, (ARRAY, [(U32, [1, 2]), (TEXT, ["\udcff"]), (ARRAY, [(U32, [3])])]))

    path = written(tmp_path, described)
    fields = gguf_file.read(path).fields
    assert fields["general.description"] == "caf\ufffd" and fields["general.tags"] == ["text", "\ufffd"]
    assert fields["general.lists"] == [[1, 2], ["\ufffd"], [[3]]]
    load_model(str(path), "torch")


NAN = float("nan")
LIES_OF_FAMILIES: dict[str, tuple[str, Change, str]] = {
    "a window of text": ("gemma3", set_to("gemma3.attention.sliding_window", "9", TEXT), "sliding_window is '9'"),
    "a negative window": ("phi3", set_to("phi3.attention.sliding_window", -9, I32), "sliding_window is -9"),
    "a pattern of too few layers": (
        "gemma2",
        set_to("gemma2.attention.sliding_window_pattern", (BOOL, [True]), ARRAY),
        "a yes or no for each layer",
    ),
    "a limit that is no number": ("gemma2", set_to("gemma2.attn_logit_softcapping", NAN, FLOAT), "softcapping is nan"),
    "a negative limit": ("gemma2", set_to("gemma2.final_logit_softcapping", -1.0, FLOAT), "softcapping is -1.0"),
    "an endless factor": ("granite", set_to("granite.residual_scale", float("inf"), FLOAT), "residual_scale is inf"),
    "a factor of text": ("granite", set_to("granite.logit_scale", "x", TEXT), "logit_scale is 'x'"),
    "a huge factor": ("granite", set_to("granite.residual_scale", 1e38, FLOAT), "a number from 9e-13 to 1e.12"),
    "a factor without effect": ("granite", set_to("granite.logit_scale", 1e-38, FLOAT), "where a number from 9e-13"),
    "a rotation of no length": (
        "qwen3",
        set_to("qwen3.rope.scaling.original_context_length", 0),
        "original_context_length is 0",
    ),
    "a rotation that stands": ("qwen3", set_to("qwen3.rope.freq_base", 1.0, FLOAT), "freq_base should be above 1"),
    "a rotation wider than a head": ("phi3", set_to("phi3.rope.dimension_count", 18), "turns 18 of the 16 numbers"),
    "an odd rotation": ("phi3", set_to("phi3.rope.dimension_count", 7), "turns 7 of the 16 numbers"),
    "norms of other heads": ("qwen3", shaped("blk.0.attn_q_norm.weight", 32), "attn_q_norm.weight has the shape"),
    "a norm of a head for all": ("olmo2", shaped("blk.0.attn_q_norm.weight", 16), "attn_q_norm.weight has the shape"),
    "biases of other rows": ("qwen2", shaped("blk.0.attn_k.bias", 32), "attn_k.bias has the shape"),
    "a bias missing": (
        "qwen2",
        lambda made: made.tensors.pop("blk.1.attn_v.bias") and None,
        "no tensor blk.1.attn_v.bias",
    ),
    "half of a gate": ("phi3", shaped("blk.0.ffn_up.weight", 32, 64), "ffn_up.weight has the shape"),
    "factors of another rotation": ("llama", with_factors(9), r"rope_freqs.weight has the shape \(9,\)"),
}


@pytest.mark.parametrize("lie", [*LIES, *LIES_OF_FAMILIES])
def test_an_inconsistent_file_is_refused_in_one_sentence_at_once(tmp_path: Path, lie: str) -> None:
    family, change, said = LIES_OF_FAMILIES.get(lie) or ("llama", *LIES[lie])
    path = written(tmp_path, change, family)
    begun = time.process_time()
    with pytest.raises(ModelFileError, match=said) as refused:
        load_model(str(path), "torch")
    assert time.process_time() - begun < 1
    assert str(path) in str(refused.value)
    assert "\n" not in str(refused.value) and len(str(refused.value)) < 500


@pytest.mark.parametrize(
    ("content", "said"),
    [(b"no model", 'begins with "no m"'), (b"\xff\x00 model", "begins with the bytes ff 00 20 6d"), (b"", "is empty")],
    ids=["text", "bytes", "nothing"],
)
def test_what_is_no_model_is_said_to_be_what_it_is(tmp_path: Path, content: bytes, said: str) -> None:
    path = tmp_path / "x.gguf"
    path.write_bytes(content)
    with pytest.raises(ModelFileError) as refused:
        gguf_file.read(path)
    assert f"{path} is not a GGUF file (it {said});" in str(refused.value)


def test_a_file_cut_anywhere_is_refused_in_one_sentence(tmp_path: Path) -> None:
    whole = tiny().written()
    path = tmp_path / "cut.gguf"
    for length in [*range(60), *range(60, len(whole), 997), len(whole) - 40]:
        path.write_bytes(whole[:length])
        with pytest.raises(ModelFileError):
            gguf_file.read(path)


def test_a_file_cut_short_while_it_is_read_is_an_error_and_no_signal(tmp_path: Path) -> None:
    path = written(tmp_path)
    file = gguf_file.read(path)
    os.truncate(path, path.stat().st_size - 5000)
    with pytest.raises(ModelFileError, match="truncated while it was read"):
        [tensor.data() for tensor in file.tensors.values()]


def test_a_file_that_was_repaired_meanwhile_is_read_anew(tmp_path: Path) -> None:
    path = written(tmp_path, without(HEADS))
    with pytest.raises(ModelFileError):
        load_model(str(path), "torch")
    load_model(str(written(tmp_path)), "torch")


def a_layer(rows: int = 64, heads: int = 4, key_heads: int = 4, inner: int = 96, norm: int = 32) -> native.Compiled:
    """Wider than the model are the inputs of `out`, 64 of attention, and those of `down`."""
    shape = native.Shape(dim=32, heads=heads, key_heads=key_heads, width=16, inner=inner, eps=1e-5)
    sizes = [(rows, 32), (64, 32), (64, 32), (32, 64), (96, 32), (96, 32), (32, 96)]  # of q, k, v, out, gate, up, down
    maps = native.LayerMaps(*((torch.randn(*size), None) for size in sizes), torch.ones(32), torch.ones(32))
    return native.Compiled(shape, [maps], (torch.randn(9, 32), None), torch.ones(norm))


def test_compiled_code_refuses_sizes_that_do_not_fit_before_it_touches_anything() -> None:
    """Arguments that no checked file leads to, as a mistake in our own code could pass them."""
    a_layer()
    for change, said in (
        ({"rows": 96}, "queries, keys and values have another shape"),
        ({"heads": 3, "key_heads": 2}, "no multiple of the key heads"),
        ({"heads": 0}, "not above 0"),
        ({"key_heads": 0}, "not above 0"),
        ({"inner": 64}, "gate and up have another shape"),
        ({"norm": 31}, "31 numbers given; 32 expected"),
    ):
        with pytest.raises(ValueError, match=said):
            a_layer(**change)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda layer, line, norm: setattr(layer.out, "norm", norm), "a norm is given where the model has none"),
        (lambda layer, line, norm: setattr(layer.down, "norm", norm), "a norm is given where the model has none"),
        (lambda layer, line, norm: setattr(line, "n", 2**63 - 1), "too many inputs"),
        (lambda layer, line, norm: setattr(line, "n", 2**31 - 2), "too many inputs"),
        (lambda layer, line, norm: setattr(line, "past", 2**63 - 1), "too many inputs"),
    ],
    ids=["norm of out", "norm of down", "n", "n with past", "past"],
)
def test_compiled_code_refuses_what_would_be_written_past_its_room(
    change: Callable[[Any, Any, int], None], said: str
) -> None:
    made = a_layer()
    block, h, turn, norm = torch.zeros(2, 4, 8, 16), torch.zeros(1, 32), torch.zeros(1, 16), torch.ones(96)
    line = native._stated(native.Line(block, 3, 1))
    stated = native._Pass(lines=1, inputs=1, threads=1, line=ctypes.pointer(line), h=h.data_ptr())
    stated.cos = stated.sin = turn.data_ptr()
    fault = native.library().polydraft_fault
    assert fault(made._model, stated) is None
    change(made._model.layer[0], line, norm.data_ptr())
    assert fault(made._model, stated).decode() == said


def test_a_coded_matrix_is_as_many_bytes_as_compiled_code_reads(tmp_path: Path) -> None:
    for sizes in (Sizes(), Sizes(dim=64, heads=6, key_heads=3, inner=160)):
        made = tiny(sizes)
        path = tmp_path / "model.gguf"
        path.write_bytes(made.written())
        load_model(str(path), "torch")
    wrong = Tensor([16, 2], Q8_0, bytes(34))  # half a block in a row
    made.tensors["blk.0.attn_q.weight"] = wrong
    path.write_bytes(made.written())
    with pytest.raises(ModelFileError, match=r"rows of 16 numbers .* blocks of 32"):
        load_model(str(path), "torch")


def test_mutated_files_are_refused_or_are_models_under_sanitizers() -> None:
    """A few of the cases that `make fuzz` runs by the thousand."""
    found = fuzz_models.fuzz(cases=40, optimisation=fuzz_models.QUICKLY_COMPILED)
    assert found.cases == 40
    assert not found.wrong, str(found)


def test_fuzz_cases_are_files_of_every_family_and_of_both_kinds_of_vocabulary(tmp_path: Path) -> None:
    families, vocabularies = set[object](), set[object]()
    for seed in range(150):
        path = tmp_path / "tiny.gguf"
        path.write_bytes(mutated(seed))
        try:
            file = gguf_file.read(path)
        except ModelFileError:
            continue
        families.add(file.architecture)
        vocabularies.add((file.fields.get("tokenizer.ggml.model"), "tokenizer.ggml.scores" in file.fields))
    assert families >= {*FAMILIES}
    assert vocabularies >= {("gpt2", False), ("llama", True)}
