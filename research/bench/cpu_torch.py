"""`bench cpu-torch`: the default model's step on the torch backend, beside the time of reading its weights.

The floor is the bytes of the weights divided by the bandwidth at which this CPU reads them: a sum over as many bytes,
measured in the same rounds. With `--beside` other processes compute the same steps meanwhile, as when an evaluation
runs beside the app. A step is `LanguageModel.forward` of one token for 1, 4 and 9 sequences (a superposed row;
the same with 3 or 8 exact rows beside it), with transformers' layers, and in compiled code in float32, in bfloat16 and
in the file's format. A ratio to the floor is the median over the rounds of two times of the same round, because the
bandwidth of a shared machine varies.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from multiprocessing import get_context
from typing import Annotated

import torch
import typer
from transformers import PreTrainedModel

from core.errors import ModelFileError
from core.models import hf
from core.models.base import Row, Sequence
from core.models.llama import NativeLlama, why_not
from core.models.located import DEFAULT_NAME, default_model_path
from core.models.torch_model import TorchModel
from research.options import Rounds
from research.report import Progress, Report, interleaved

ROWS = (1, 4, 9)
STEPS = 9  # in a row, as in a set of drafts of 10 tokens; times are per step
HELD = 32  # tokens that each sequence holds
TARGET = 1.5  # times the floor
READ, COPY = "reading as many bytes", "copying as many bytes"


@dataclass
class _Way:
    """One way to run the model, with sequences that hold the same text."""

    name: str
    model: TorchModel
    weights: int  # bytes
    sequences: list[Sequence]

    def step(self, rows: int) -> None:
        for _ in range(STEPS):
            self.model.forward([Row(s, [20]) for s in self.sequences[:rows]])

    def back(self) -> None:
        for sequence in self.sequences:
            sequence.rewind(HELD)


@dataclass(frozen=True)
class CpuTorchOptions:
    repetitions: Rounds = 7
    beside: Annotated[int, typer.Option(min=0, help="Other processes that compute the same steps meanwhile.")] = 0


def measure(options: CpuTorchOptions, progress: Progress) -> Report:
    """Runs the measurement. Raises the errors of loading the model."""
    spawned = [get_context("spawn").Process(target=_keep_computing, daemon=True) for _ in range(options.beside)]
    for process in spawned:
        process.start()
    try:
        return _measured(options, progress)
    finally:
        for process in spawned:
            process.kill()


def _keep_computing() -> None:
    model = hf.load(default_model_path(), DEFAULT_NAME)
    way = _way("", model, 0)
    while True:
        way.back()
        way.step(max(ROWS))


def _measured(options: CpuTorchOptions, progress: Progress) -> Report:
    plain = hf.load(default_model_path(), DEFAULT_NAME, plain=True)
    module = plain.layers.module
    if plain.device != "cpu" or not isinstance(module, PreTrainedModel):
        raise ModelFileError("The model is not on the CPU; set CUDA_VISIBLE_DEVICES= to measure the CPU.")
    report = Report("cpu-torch")
    count = sum(p.numel() for p in module.parameters())  # counts a tied table once: a step reads it as its output layer
    ways = [_way("transformers' layers, float32", plain, count * 4)]
    if reason := why_not(module):
        report.rows.append({"way": "compiled", "note": f"not measured: {reason}"})
    else:
        for dtype, size in ((torch.float32, 4), (torch.bfloat16, 2)):
            name = f"compiled, {str(dtype).removeprefix('torch.')}"
            progress(name)
            model = TorchModel(NativeLlama.of(module, dtype), plain.tokenizer, name, plain.context_length)
            ways.append(_way(name, model, count * size))
        name = "compiled, in the file's format"
        progress(name)
        model = hf.load(default_model_path(), DEFAULT_NAME)
        assert isinstance(model.layers.module, NativeLlama)
        ways.append(_way(name, model, model.layers.module.bytes))
    # float32, as many bytes as its weights; zeros might be mapped to a single page of memory
    source = torch.ones(count)
    target = torch.zeros_like(source)

    def read() -> None:
        for _ in range(STEPS):
            source.sum()

    runs: dict[str, Callable[[], object]] = {READ: read, COPY: lambda: target.copy_(source)}
    for way in ways:
        for rows in ROWS:
            runs[f"{way.name} {rows}"] = lambda way=way, rows=rows: way.step(rows)
    rounds = options.repetitions

    def before(number: int) -> None:
        progress(f"round {max(number, 0) + 1} of {rounds}")
        for way in ways:
            way.back()

    timings = interleaved(runs, rounds, before)
    for name, passes, moved in ((READ, STEPS, count * 4), (COPY, 1, 2 * count * 4)):
        ms = timings.median(name) / passes * 1000
        least = min(timings.seconds[name]) / passes * 1000
        report.rows.append({"way": name, "ms": ms, "least_ms": least, "GB_per_s": moved / ms / 1e6})
    for way in ways:
        share = way.weights / (count * 4)
        for rows in ROWS:
            name = f"{way.name} {rows}"
            row = {"way": way.name, "rows": rows, "ms": timings.median(name) / STEPS * 1000}
            row["least_ms"] = min(timings.seconds[name]) / STEPS * 1000
            report.rows.append(row | {"of_floor": timings.ratio(name, READ) / share})
            if way.name.startswith("compiled, ") and "file" not in way.name and rows == 1:
                report.target(f"{way.name}: step / floor", timings.ratio(name, READ) / share, f"<= {TARGET}")
    return report


def _way(name: str, model: TorchModel, weights: int) -> _Way:
    sequences: list[Sequence] = [model.open() for _ in range(max(ROWS))]
    model.forward([Row(s, list(range(100, 100 + HELD))) for s in sequences])
    return _Way(name, model, weights, sequences)
