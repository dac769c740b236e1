"""`bench gpu` in its tiny shape, and its message without a GPU."""

from __future__ import annotations

import json
import math

import pytest
import torch
from typer.testing import CliRunner

from app.cli.main import app
from core.errors import InputError
from research.bench import gpu, models
from research.bench.shapes import SHAPES, TINY, bytes_read, random_model
from research.report import BenchOptions

pytestmark = pytest.mark.usefixtures("one_thread")


def test_a_tiny_shape_goes_through_the_whole_measurement():
    report = gpu.measure(BenchOptions(tiny=True, repetitions=1), lambda _: None)
    said = [row["what"] for row in report.rows if row.get("model") == "tiny"]
    for part in ("floor of a step", "k=8, ms", "superposed k=3", "one batch k=8", "in a row k=3", "beam search k=8"):
        assert any(part in what for what in said), part
    assert any("4 people at once" in what for what in said)
    for part in ("verification of 1 + 16 tokens", "step with all logits", "a tree, captured", "a tree, on the CPU"):
        assert any(part in what for what in said), part
    assert any("Top-W, V=512" in what for what in said)
    assert all(row["value"] > 0 for row in report.rows if "value" in row)
    names = [target.name for target in report.targets]
    assert "tiny: superposed step, k=8 / k=1" in names and "tiny: 8 runs in a row / superposed" in names
    assert all(math.isfinite(target.value) for target in report.targets)
    json.dumps(report.as_dict(), allow_nan=False)


@pytest.mark.parametrize("name", ["gpu", "models"])
def test_shapes_are_chosen_by_name(name: str) -> None:
    measured, known = {"gpu": (gpu, "tiny"), "models": (models, "tiny, default")}[name]
    with pytest.raises(InputError, match=f"--shapes: 'Llama-9' given; {known} are known"):
        measured.measure(BenchOptions(tiny=True, shapes="tiny,Llama-9"), lambda _: None)


@pytest.mark.skipif(torch.cuda.is_available(), reason="There is a CUDA device here.")
def test_a_missing_gpu_is_reported_in_one_sentence():
    ran = CliRunner().invoke(app, ["bench", "gpu", "--json"])
    assert (ran.exit_code, ran.stdout) == (1, "")
    assert all(part in ran.stderr for part in ("no CUDA device", "bench cpu-torch", "--tiny"))


def test_the_weights_that_a_step_reads_leave_the_input_table_out():
    model = random_model("tiny", TINY["tiny"], torch.device("cpu"), torch.float32)
    parameters = sum(p.numel() for p in model.layers.module.parameters())
    assert bytes_read(model.layers.module) == 4 * (parameters - 512 * 64)


@pytest.mark.parametrize(("name", "billions"), [("Llama-2-7B", 6.738), ("Llama-3.1-8B", 8.030)])
def test_the_shapes_have_the_size_of_their_namesakes(name, billions):
    shape = SHAPES[name]
    width, heads, key_heads = shape.hidden_size, shape.num_attention_heads, shape.num_key_value_heads
    attention = 2 * width * width + 2 * width * width * key_heads // heads
    layer = attention + 3 * width * shape.intermediate_size + 2 * width
    parameters = shape.num_hidden_layers * layer + 2 * shape.vocab_size * width + width
    assert parameters / 1e9 == pytest.approx(billions, abs=1e-3)


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="There is no CUDA device here.")
def test_a_tiny_shape_is_captured_on_the_gpu():
    report = gpu.measure(BenchOptions(tiny=True, repetitions=1), lambda _: None)
    assert any("step, captured, k=1, ms" in row["what"] for row in report.rows)
