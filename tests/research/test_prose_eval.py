"""`eval prose` pairs every figure with and without the adapter, and resumes."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from core.errors import InputError
from core.models import load_model
from core.models.adapter import save
from research.evals import prose
from research.evals.prose import ProseOptions
from tests.core.models.test_prose_adapter import some_adapter

pytestmark = pytest.mark.usefixtures("one_thread")


@pytest.fixture
def options(tmp_path: Path, tiny_folder: Callable[[str], Path]) -> ProseOptions:
    """A tiny model, an adapter for it, and two documents of letters."""
    name = str(tiny_folder("long compiled llama"))
    model = load_model(name, "torch")
    save(some_adapter(model, model.fingerprint, seed=1), tmp_path / "adapter")
    model.close()
    chance = random.Random(0)
    lines = [json.dumps({"text": "".join(chance.choices("ab cd ", k=900)), "meta": {"name": f"x/{n}"}}) for n in "ab"]
    (tmp_path / "text.jsonl").write_text("\n".join(lines))
    (tmp_path / "only.json").write_text(json.dumps({"names": ["x/b"]}))
    return ProseOptions(
        model=name,
        backend="torch",
        text=tmp_path / "text.jsonl",
        adapter=tmp_path / "adapter",
        only=tmp_path / "only.json",
        learned=tmp_path / "kept",
        repetitions=4,
        k="2",
        base_store="none",
    )


def test_a_stopped_run_resumes_and_another_adapter_begins_anew(
    options: ProseOptions, monkeypatch: pytest.MonkeyPatch
) -> None:
    said: list[str] = []

    def stop(*_: object) -> dict[str, float]:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(prose, "keys", stop)
        with pytest.raises(KeyboardInterrupt):
            prose.measure(options, said.append)
    before = len(said)
    report = prose.measure(options, said.append)
    assert all("keys of 2" in each for each in said[before:]), "only what was not measured"
    figures = {row["figure"]: row for row in report.rows if row["kind"] == "all"}
    assert set(figures) == {
        "ln p",
        "match of 2, as shipped",
        "match of 2, branching greedy",
        "keys saved in percent, 2",
        prose.BOOKINGS,
        prose.BETRAYS,
    }
    assert {row["kind"] for row in report.rows} == {"x/b", "beginnings", "letters", "all"}
    assert figures["ln p"][prose.MODEL] != figures["ln p"][prose.ADAPTED]
    again = prose.measure(options, said.append)
    assert again.rows == report.rows
    with pytest.raises(InputError, match="another adapter, text, store"):
        prose.measure(replace(options, context=31), said.append)
    with pytest.raises(InputError, match="No adapter"):
        prose.measure(replace(options, adapter=None), said.append)
