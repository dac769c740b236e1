"""The cost of rows: timed once for each compiled library and model, kept beside the library."""

from __future__ import annotations

import json
import math
from collections.abc import Generator, Iterator
from pathlib import Path

import pytest
from tiny_models import save_model, tiny

from core.autocomplete import Autocomplete
from core.models import hf, native
from core.models.base import Row
from core.models.costs import ROWS, CostCurve, known_rows, remember_rows, timing_rows
from core.models.native_library import CannotCompile
from tests.table_model import TableModel

CURVE = CostCurve(ROWS, (4.0, 5.0, 6.0, 9.5, 13.0))


@pytest.fixture(autouse=True)
def calm(monkeypatch: pytest.MonkeyPatch) -> None:
    """Passes of a table take microseconds, which any other load changes."""
    monkeypatch.setattr("core.models.costs.CALM", math.inf)


class Timed(TableModel):
    """Its clock says that a pass takes 3 ms, and 1 ms for each row; every third pass is disturbed."""

    compiled_as = "a tiny shape"
    now = 0.0
    passes = 0

    def _forward(self, rows: list[Row]) -> list:
        self.passes += 1
        self.now += (3 + len(rows)) / 1000 + 0.05 * (self.passes % 3 == 0)
        return super()._forward(rows)


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(native, "beside_library", lambda suffix: tmp_path / f"library{suffix}")
    return tmp_path / "library.rows.json"


def test_the_fastest_passes_of_each_number_of_rows_count():
    model = Timed()

    def timing() -> Iterator[None]:
        found.append((yield from timing_rows(model, clock=lambda: model.now)))

    found: list[dict[int, list[float]]] = []
    for _ in timing():
        pass
    curve = CostCurve.of_times(found[0])
    assert curve.sizes == ROWS
    assert curve.ms == pytest.approx([3 + n for n in ROWS])


def test_times_that_others_disturbed_are_not_kept(file: Path, monkeypatch: pytest.MonkeyPatch):
    def disturbed(model: TableModel) -> Generator[None, None, dict[int, list[float]]]:
        yield
        return {1: [4.0, 4.1, 4.0], 2: [5.0, 9.0, 9.0]}

    monkeypatch.setattr("core.models.costs.CALM", 1.3)
    monkeypatch.setattr("core.equipped.timing_rows", disturbed)
    autocomplete = Autocomplete(Timed())
    assert list(autocomplete.time_rows())
    assert autocomplete.row_costs == CostCurve((1, 2), (4.0, 5.0))
    assert known_rows(Timed()) is None


def test_rows_are_timed_once_and_their_file_takes_the_old_ones_place(file: Path):
    first = Autocomplete(Timed())
    assert first.row_costs is None
    assert list(first.time_rows())
    again = Autocomplete(Timed())
    assert first.row_costs is not None and again.row_costs is not None
    assert again.row_costs.ms == pytest.approx(first.row_costs.ms, abs=1e-3)
    assert not list(again.time_rows())
    assert {path.suffix for path in file.parent.iterdir()} <= {".json", ".lock"}, "no temporary file is left"


@pytest.mark.parametrize(
    "damaged",
    [
        *(b"", b"{", b"[]", b"\xff\x00", b'{"KEY": 3}'),
        *(b'{"KEY": {"rows": [1, 2], "ms": [1]}}', b'{"KEY": {"rows": [2], "ms": [1]}}'),
        *(b'{"KEY": {"rows": [1e999], "ms": [1]}}', b'{"KEY": {"rows": [1], "ms": ["x"]}}'),
    ],
)
def test_a_damaged_file_is_measured_anew(file: Path, damaged: bytes):
    remember_rows(Timed(), CURVE)
    (key,) = json.loads(file.read_bytes())
    file.write_bytes(damaged.replace(b"KEY", key.encode()))
    autocomplete = Autocomplete(Timed())
    assert autocomplete.row_costs is None
    assert list(autocomplete.time_rows())
    assert known_rows(Timed()) is not None


def test_each_shape_has_its_own_costs_and_only_compiled_models_have_any(file: Path):
    other = Timed()
    other.compiled_as = "another shape"
    remember_rows(Timed(), CURVE)
    assert known_rows(Timed()) == CURVE
    assert known_rows(other) is None
    remember_rows(other, CostCurve((1,), (1.0,)))
    assert known_rows(Timed()) == CURVE
    plain = Autocomplete(TableModel())
    assert not list(plain.time_rows())
    assert plain.row_costs is None


def test_without_a_place_for_the_file_rows_are_timed_in_every_process(monkeypatch: pytest.MonkeyPatch):
    def none(suffix: str) -> Path:
        raise CannotCompile("no compiler")

    monkeypatch.setattr(native, "beside_library", none)
    autocomplete = Autocomplete(Timed())
    assert list(autocomplete.time_rows())
    assert autocomplete.row_costs is not None


def test_a_compiled_model_is_known_by_its_shape_and_types(tmp_path: Path):
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
    assert native.beside_library(".rows.json").with_suffix("").with_suffix(".so").exists()
