"""`bench models`: models in the shapes that people have, with random weights, in compiled code beside llama.cpp.

The files have the families' metadata, and tensors of random bytes in the types of a Q4_K_M and of a Q8_0. Layers are
reduced to `LAYERS`, so times and sizes are not those of the whole models. The shape `default` is the default model's
own file. Rows are sequences that read one token each. The floors of a pass are the time of reading as many bytes as its
weights have, and the time of 2 · weights · rows operations at the rate of a float32 product here.
"""

from __future__ import annotations

import gc
import importlib.util
import os
import tempfile
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import psutil
import torch
from gguf.constants import GGML_QUANT_SIZES, GGMLQuantizationType

from core.errors import BackendUnavailable
from core.memory import return_freed
from core.models import hf, native
from core.models.base import LanguageModel, Row, Sequence
from core.models.load import default_model_path
from core.models.processor import cpu
from core.models.torch_model import TorchModel
from research.options import Rounds, ShapeOptions, chosen
from research.report import Progress, Report, Timings, interleaved, number_in

LAYERS = 8
ROWS = (1, 4, 9)
READ = 1000  # tokens
HELD = 32  # tokens that each sequence holds
CONTEXT = 2048
LETTERS = [chr(n) for n in (*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x144))]  # a byte-level alphabet
F32, Q8_0, Q5_0, Q4_K, Q6_K = (GGMLQuantizationType[name] for name in ("F32", "Q8_0", "Q5_0", "Q4_K", "Q6_K"))
# In half precision, by place in a block: scales with which weights have a deviation of some .02.
HALVES = {Q8_0: {0: 0.0003}, Q5_0: {0: 0.0022}, Q4_K: {0: 0.0001, 2: 0.0008}, Q6_K: {208: 0.00002}}
OURS, ROUNDED, THEIRS = "compiled", "compiled, int8", "llama.cpp"
DEFAULT = "default"  # the shape
FEW, MANY = 4, 32  # rows: of three drafts at once, and those that rounding should make cheap
LANES_OF_AVX512 = 16  # numbers of float32 at a time


@dataclass(frozen=True)
class FileShape:
    """D width, query heads on key heads of width w, inner width, vocabulary V."""

    architecture: str
    dim: int
    heads: int
    key_heads: int
    width: int
    inner: int
    vocabulary: int
    layers: int = LAYERS


SHAPES = {
    "Qwen3-0.6B": FileShape("qwen3", 1024, 16, 8, 128, 3072, 151_936),
    "Llama-3.2-1B": FileShape("llama", 2048, 32, 8, 64, 8192, 128_256),
    "Gemma-3-1B": FileShape("gemma3", 1152, 4, 1, 256, 6912, 262_144),
    "Qwen3-1.7B": FileShape("qwen3", 2048, 16, 8, 128, 6144, 151_936),
    "SmolLM3-3B": FileShape("smollm3", 2048, 16, 4, 128, 11_008, 128_256),
}
TINY = {"tiny": FileShape("qwen3", 256, 4, 2, 64, 512, 600, layers=2)}
TYPES = ("Q4_K_M", "Q8_0")


def write(path: Path, shape: FileShape, kind: str) -> int:
    """Writes a file of random weights; returns the weights that a pass multiplies by. The output rows are the
    embeddings."""
    random = np.random.default_rng(1)
    writer = gguf.GGUFWriter(path, shape.architecture)
    s = shape
    for key, number in {
        "context_length": CONTEXT,
        "block_count": s.layers,
        "embedding_length": s.dim,
        "feed_forward_length": s.inner,
        "attention.head_count": s.heads,
        "attention.head_count_kv": s.key_heads,
        "attention.key_length": s.width,
        "attention.value_length": s.width,
        "rope.dimension_count": s.width,
        **({"attention.sliding_window": 512} if s.architecture == "gemma3" else {}),
    }.items():
        writer.add_uint32(f"{s.architecture}.{key}", number)
    writer.add_float32(f"{s.architecture}.attention.layer_norm_rms_epsilon", 1e-6)
    writer.add_float32(f"{s.architecture}.rope.freq_base", 1e6)
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("llama-bpe")
    tokens = [*LETTERS, "ab", *(f"<{n}>" for n in range(len(LETTERS) + 1, s.vocabulary))]
    writer.add_token_list(tokens)
    writer.add_token_types([1] * (len(LETTERS) + 1) + [3] * (s.vocabulary - len(LETTERS) - 1))
    writer.add_token_merges(["a b"])
    writer.add_bos_token_id(s.vocabulary - 1)
    writer.add_eos_token_id(s.vocabulary - 1)
    weights = 0

    def matrix(name: str, out: int, inputs: int, better: bool = False) -> None:
        """`better`: a Q4_K_M has it in Q6_K. Rows that are no multiple of 256 are in Q8_0 and Q5_0 instead."""
        nonlocal weights
        weights += out * inputs
        whole = inputs % GGML_QUANT_SIZES[Q4_K][0] == 0
        of = Q8_0 if kind == "Q8_0" else (Q6_K if whole else Q8_0) if better else Q4_K if whole else Q5_0
        inputs_of_block, size = GGML_QUANT_SIZES[of]
        blocks = random.integers(0, 256, (out, inputs // inputs_of_block, size), np.uint8)
        for place, value in HALVES[of].items():
            blocks[..., place : place + 2] = np.frombuffer(np.float16(value).tobytes(), np.uint8)
        writer.add_tensor(f"{name}.weight", blocks.reshape(out, -1), raw_dtype=of)

    def norm(name: str, size: int = s.dim) -> None:
        writer.add_tensor(f"{name}.weight", np.ones(size, np.float32), raw_dtype=F32)

    matrix("token_embd", s.vocabulary, s.dim, better=True)
    norm("output_norm")
    for i in range(s.layers):
        layer, half = f"blk.{i}", i % 2 == 0  # a Q4_K_M has half of these matrices in Q6_K
        for part, out in (("q", s.heads), ("k", s.key_heads), ("v", s.key_heads)):
            matrix(f"{layer}.attn_{part}", out * s.width, s.dim, better=half and part == "v")
        matrix(f"{layer}.attn_output", s.dim, s.heads * s.width)
        matrix(f"{layer}.ffn_gate", s.inner, s.dim)
        matrix(f"{layer}.ffn_up", s.inner, s.dim)
        matrix(f"{layer}.ffn_down", s.dim, s.inner, better=half)
        for name in ("attn_norm", "ffn_norm"):
            norm(f"{layer}.{name}")
        if s.architecture in ("qwen3", "gemma3"):
            norm(f"{layer}.attn_q_norm", s.width)
            norm(f"{layer}.attn_k_norm", s.width)
        if s.architecture == "gemma3":
            norm(f"{layer}.post_attention_norm")
            norm(f"{layer}.post_ffw_norm")
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return weights


@dataclass
class _Way:
    """One way to run the file."""

    model: LanguageModel
    sequences: list[Sequence]
    reading: Sequence

    def step(self, rows: int) -> None:
        self.model.forward([Row(sequence, [20]) for sequence in self.sequences[:rows]])

    def read(self) -> None:
        self.reading.feed([(7 * i) % 200 for i in range(READ)])

    def back(self) -> None:
        for sequence in self.sequences:
            sequence.rewind(HELD)
        self.reading.rewind(0)


def _way(model: LanguageModel, rows: int = max(ROWS)) -> _Way:
    sequences = [model.open() for _ in range(rows)]
    for sequence in sequences:
        sequence.feed(list(range(100, 100 + HELD)))
    return _Way(model, sequences, model.open())


def _reading_target() -> str:
    """The share of llama.cpp's time that reading may take on this processor."""
    return "<= 0.6" if native.library().polydraft_lanes() >= LANES_OF_AVX512 else "<= 0.8"


def _many_rows_target(about: str) -> str:
    """How many times as long as one row `MANY` rounded ones may take on a processor with these instructions, or ""."""
    return "<= 3" if "vnni" in about else ""


@dataclass(frozen=True)
class ModelsBenchOptions(ShapeOptions):
    repetitions: Rounds = 5


def measure(options: ModelsBenchOptions, progress: Progress) -> Report:
    """Runs the measurement. Raises BackendUnavailable without llama.cpp."""
    if importlib.util.find_spec("llama_cpp") is None:
        raise BackendUnavailable("llama-cpp-python is not installed, and is the peer here; run `make setup-llama`.")
    report = Report("models")
    native.library()  # compiled before anything is timed
    with tempfile.TemporaryDirectory() as folder:
        path, rounds = Path(folder, "model.gguf"), options.repetitions
        shapes: dict[str, FileShape | None] = {**(TINY if options.tiny else SHAPES), DEFAULT: None}
        for name, shape in chosen("--shapes", options.shapes, shapes).items():
            if shape is None:
                if options.tiny:
                    write(path, TINY["tiny"], TYPES[0])
                _measure_default(report, path if options.tiny else default_model_path(), rounds, progress)
                continue
            for kind in TYPES:
                progress(f"{name} {kind}: writing it")
                weights = write(path, shape, kind)
                _measure(report, f"{name} {kind}", path, weights, rounds, progress)
                path.unlink()
    return report


def _measure(report: Report, name: str, path: Path, weights: int, rounds: int, progress: Progress) -> None:
    from core.models import llamacpp

    progress(f"{name}: loading it")
    gc.collect()
    return_freed()
    process, size = psutil.Process(os.getpid()), path.stat().st_size
    before, began = process.memory_info().rss, time.perf_counter()
    ours = hf.load(path, name)
    seconds = time.perf_counter() - began
    if not isinstance(ours, TorchModel) or not ours.compiled_as:
        raise BackendUnavailable(f"{name} does not run in compiled code here; run `polydraft doctor`.")
    memory = (process.memory_info().rss - before) / size
    models = {OURS: ours, ROUNDED: hf.load(path, name, rounded=True), THEIRS: llamacpp.load(path, name)}
    ways = {key: _way(model) for key, model in models.items()}
    held: Any = ours.layers.module
    source, square = torch.ones(held.bytes // 4), torch.ones(1024, 1024)
    runs: dict[str, Callable[[], object]] = {"bytes": source.sum, "product": lambda: square @ square}
    for key, way in ways.items():
        for rows in ROWS:
            runs[f"{key} {rows}"] = lambda way=way, rows=rows: way.step(rows)
        runs[f"{key} read"] = way.read

    timings = _timed(name, ways.values(), runs, rounds, progress)
    rate = 2 * 1024**3 / timings.median("product")  # operations a second
    report.rows.append({"model": name, "load_s_per_GB": seconds / size * 1e9, "memory_per_byte": memory})
    for key, label in ((OURS, name), (ROUNDED, f"{name}, int8")):
        for rows in ROWS:
            floor = max(timings.median("bytes"), 2 * weights * rows / rate)
            seconds_of_pass = timings.median(f"{key} {rows}")
            row = {"model": name, "way": key, "rows": rows, "ms": seconds_of_pass * 1000}
            row |= {"of_floor": seconds_of_pass / floor}
            row |= {"of_llama_cpp": timings.ratio(f"{key} {rows}", f"{THEIRS} {rows}")}
            report.rows.append(row)
            report.target(f"{label}, {rows} rows / floor", number_in(row, "of_floor"), "<= 1.35")
            if rows in (1, 4):
                limit = "<= 0.8" if rows == 1 else "<= 0.5"
                report.target(f"{label}, {rows} rows / llama.cpp", number_in(row, "of_llama_cpp"), limit)
        reading = timings.ratio(f"{key} read", f"{THEIRS} read")
        ms = timings.median(f"{key} read") * 1000
        report.rows.append({"model": name, "way": key, "read": READ, "ms": ms, "of_llama_cpp": reading})
        report.target(f"{label}, reading / llama.cpp", reading, _reading_target())
    report.target(f"{name}, memory / file", memory, "<= 1.25")
    report.target(f"{name}, loading s a GB", seconds / size * 1e9, "<= 1.5")
    for model in models.values():
        model.close()


def _timed(
    name: str, ways: Iterable[_Way], runs: dict[str, Callable[[], object]], rounds: int, progress: Progress
) -> Timings:
    """Times the runs in turns; between them every way cuts its sequences back."""

    def back(number: int) -> None:
        progress(f"{name}: round {max(number, 0) + 1} of {rounds}")
        for way in ways:
            way.back()

    return interleaved(runs, rounds, back)


def _measure_default(report: Report, path: Path, rounds: int, progress: Progress) -> None:
    """The default model's file: many rows beside one, and reading, exact and with inputs rounded to 8 bits."""
    from core.models import llamacpp

    progress(f"{DEFAULT}: loading it")
    models = {
        OURS: hf.load(path, DEFAULT),
        ROUNDED: hf.load(path, DEFAULT, rounded=True),
        THEIRS: llamacpp.load(path, DEFAULT),
    }
    ways = {key: _way(model, FEW if key == THEIRS else MANY) for key, model in models.items()}
    runs: dict[str, Callable[[], object]] = {}
    for key, way in ways.items():
        for rows in (1, FEW) if key == THEIRS else (1, FEW, MANY):
            runs[f"{key} {rows}"] = lambda way=way, rows=rows: way.step(rows)
        runs[f"{key} read"] = way.read

    timings = _timed(DEFAULT, ways.values(), runs, rounds, progress)
    for run in runs:
        report.rows.append({"model": DEFAULT, "way": run, "ms": timings.median(run) * 1000})
    for key in (OURS, ROUNDED):
        many = timings.ratio(f"{key} {MANY}", f"{key} 1")
        step, few, read = (timings.ratio(f"{key} {what}", f"{THEIRS} {what}") for what in ("1", FEW, "read"))
        row = {"model": DEFAULT, "way": key, "many_of_one": many, "of_llama_cpp": step, "few": few, "read": read}
        report.rows.append(row)
        if key == ROUNDED:
            if limit := _many_rows_target(cpu()):
                report.target(f"{DEFAULT}, int8, {MANY} rows / one", many, limit)
            report.target(f"{DEFAULT}, int8, reading / llama.cpp", read, "<= 0.35")
    for model in models.values():
        model.close()
