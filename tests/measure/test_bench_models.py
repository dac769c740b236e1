"""`bench models` in a tiny shape: the files of each type run in compiled code and in llama.cpp."""

from __future__ import annotations

import json
import math

import pytest

from measure.bench.models import TYPES, measure
from measure.report import BenchOptions

pytest.importorskip("llama_cpp", reason="llama.cpp is not built here")


def test_files_of_each_type_are_measured_beside_llama_cpp() -> None:
    report = measure(BenchOptions(tiny=True, repetitions=1), lambda _: None)
    names = [target.name for target in report.targets]
    for kind in TYPES:
        assert f"tiny {kind}, 4 rows / llama.cpp" in names and f"tiny {kind}, memory / file" in names
    assert all(math.isfinite(target.value) for target in report.targets)
    json.dumps(report.as_dict(), allow_nan=False)
