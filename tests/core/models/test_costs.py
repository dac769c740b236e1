"""The cost of passes: timed once for each model, whatever else disturbs it, and kept in the cache folder."""

from __future__ import annotations

import json
import math
from collections.abc import Generator
from pathlib import Path
from typing import get_args

import pytest
from tiny_models import save_model, tiny

from core.autocomplete import Autocomplete
from core.errors import InputError
from core.models import costs, hf
from core.models.base import Row
from core.models.costs import SIZES, CostCurve, What, cost_curve, finished, keep, known, timing
from tests.table_model import TableModel

CURVE = CostCurve(SIZES["rows"], (4.0, 5.0, 6.0, 9.5, 13.0))


@pytest.fixture(autouse=True)
def file(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """Passes of a table take microseconds, which any other load changes."""
    monkeypatch.setattr(costs, "CALM", math.inf)
    monkeypatch.setattr(costs, "_file", lambda: tmp_path / "cache" / "costs.json")
    return tmp_path / "cache" / "costs.json"


class Timed(TableModel):
    """Its clock says that a pass takes 3 ms, and 1 ms for each input; every third pass is disturbed."""

    compiled_as = "a tiny shape"
    now = 0.0
    passes = 0

    def _forward(self, rows: list[Row]) -> list:
        self.passes += 1
        inputs = sum(len(row.inputs) for row in rows)
        self.now += (3 + inputs) / 1000 + 0.05 * (self.passes % 3 == 0)
        return super()._forward(rows)


@pytest.mark.parametrize("what", get_args(What))
def test_the_fastest_passes_of_each_size_count(what: What) -> None:
    model = Timed()
    curve = CostCurve.of_times(finished(timing(model, what, clock=lambda: model.now)))
    assert curve.sizes == SIZES[what]
    assert curve.ms == pytest.approx([3 + n for n in SIZES[what]])


def test_one_slow_pass_says_nothing_of_the_others() -> None:
    """Every pass over two tokens was disturbed: two are known to take no longer than four do."""
    times = {1: [1.0, 9.0], 2: [5.0, 6.0], 4: [1.5], 8: [2.0]}
    assert CostCurve.of_times(times) == CostCurve((1, 2, 4, 8), (1.0, 1.5, 1.5, 2.0))


def test_a_curve_is_a_straight_line_between_its_points() -> None:
    curve = CostCurve((1, 3, 5), (10, 20, 30))
    assert [curve(n) for n in (1, 2, 4, 10)] == [10, 15, 25, 60]
    for sizes, ms in (((), ()), ((2,), (1,)), ((1, 1), (1, 1)), ((1,), (0,)), ((1, 2), (1,)), ((1,), (float("nan"),))):
        with pytest.raises(InputError, match="curve"):
            CostCurve(sizes, ms)  # type: ignore[arg-type]


def test_costs_are_measured_once_and_their_file_takes_the_old_ones_place(file: Path) -> None:
    model, first = Timed(), Autocomplete(Timed())
    assert first.row_costs is None
    assert list(first.time_rows())
    again = Autocomplete(Timed())
    assert again.row_costs == first.row_costs is not None
    assert not list(again.time_rows())
    tokens = cost_curve(model)
    fed = model.tokens_fed
    assert cost_curve(model) == tokens != first.row_costs and model.tokens_fed == fed
    assert {path.suffix for path in file.parent.iterdir()} <= {".json", ".lock"}, "no temporary file is left"


def test_times_of_rows_that_others_disturbed_are_not_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    def disturbed(model: TableModel, what: What) -> Generator[None, None, costs.Times]:
        yield
        return {1: [4.0, 4.1, 4.0], 2: [5.0, 9.0, 9.0]}

    monkeypatch.setattr(costs, "CALM", 1.3)
    monkeypatch.setattr(costs, "timing", disturbed)
    autocomplete = Autocomplete(Timed())
    assert list(autocomplete.time_rows())
    assert autocomplete.row_costs == CostCurve((1, 2), (4.0, 5.0))
    assert known(Timed(), "rows") is None


@pytest.mark.parametrize(
    "damaged",
    [
        *(b"", b"{", b"[]", b"\xff\x00", b'{"KEY": 3}'),
        *(b'{"KEY": {"sizes": [1, 2], "ms": [1]}}', b'{"KEY": {"sizes": [2], "ms": [1]}}'),
        *(b'{"KEY": {"sizes": [1e999], "ms": [1]}}', b'{"KEY": {"sizes": [1], "ms": ["x"]}}'),
    ],
)
def test_a_damaged_file_is_measured_anew(file: Path, damaged: bytes) -> None:
    keep(Timed(), "rows", CURVE)
    (key,) = json.loads(file.read_bytes())
    file.write_bytes(damaged.replace(b"KEY", key.encode()))
    autocomplete = Autocomplete(Timed())
    assert autocomplete.row_costs is None
    assert list(autocomplete.time_rows())
    assert known(Timed(), "rows") is not None


def test_each_shape_and_arithmetic_has_its_own_costs_and_only_compiled_models_have_those_of_rows() -> None:
    other, plain, static = Timed(), TableModel(), TableModel()
    other.compiled_as, static.arithmetic = "another shape", "weights kept in another way"
    keep(Timed(), "rows", CURVE)
    keep(plain, "tokens", CURVE)
    assert known(Timed(), "rows") == known(plain, "tokens") == CURVE
    assert known(other, "rows") is known(Timed(), "tokens") is known(static, "tokens") is None
    autocomplete = Autocomplete(TableModel())
    assert not list(autocomplete.time_rows())
    assert autocomplete.row_costs is None


def test_without_a_place_for_the_file_passes_are_timed_in_every_process(file: Path) -> None:
    file.parent.write_text("a file where the folder should be")
    autocomplete = Autocomplete(Timed())
    assert list(autocomplete.time_rows())
    assert autocomplete.row_costs is not None


def test_a_compiled_model_is_known_by_its_shape_and_types(tmp_path: Path) -> None:
    def of(kind: str, name: str, dtype: str | None = None) -> str:
        import torch

        folder = save_model(tmp_path / name, tiny(kind))
        model = hf.load(folder, name, None if dtype is None else getattr(torch, dtype))
        return model.compiled_as

    compiled = of("compiled llama", "a")
    assert compiled
    assert of("compiled llama", "b") == compiled
    assert of("compiled llama", "c", "bfloat16") != compiled
    assert of("long compiled llama", "d") == compiled, "the context's length changes no pass"
    assert not of("gpt2", "e")
