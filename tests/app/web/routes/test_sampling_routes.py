"""The routes for rules, positions and presets; and that the engine answers between two passes."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterator
from itertools import cycle
from pathlib import Path
from typing import Any

import pytest
from fastapi.testclient import TestClient

from app.options import presets as presets_module
from app.options.presets import OwnPresets
from app.service.service import DraftService
from app.web.routes.sampling import SWEPT
from app.web.site import create_app
from core.controls import CATALOG, MODES, PRESETS, Preset
from core.errors import InputError
from core.options import DRAFTING
from core.samplers.view import look, sweep, top_w_map
from tests.fake_sampling import SamplingAutocomplete, Tokenizer, logits_after

TEXT = "Once upon a"
ALL: dict[str, dict[str, Any]] = {name: {} for name in CATALOG}
FAKE = SamplingAutocomplete()


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TestClient]:
    file = tmp_path_factory.mktemp("data") / "presets.sqlite"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(presets_module, "presets_file", lambda: file)
        service = DraftService(FAKE.real, "scripted", pace=0)
        service.start()
        with TestClient(create_app(service), base_url="http://127.0.0.1") as client:
            yield client
    service.close()


def draft(client: TestClient, tab: str, n: int = 1, text: str = TEXT, **settings: Any) -> list[dict[str, Any]]:
    body = {"tab": tab, "n": n, "before": text, "settings": settings}
    return [json.loads(line) for line in client.post("/api/drafts", json=body).text.splitlines()]


def test_a_view_is_the_cores_and_costs_no_pass(client: TestClient) -> None:
    draft(client, "view", 3, length=2)
    passes = len(FAKE.model.passes)
    for temperature in (1.0, 2.5, 1.0):
        body = {"tab": "view", "temperature": temperature, "rules": ALL, "map": True}
        found = client.post("/api/view", json=body).json()
        expected = look(logits_after(TEXT), Tokenizer(), temperature, ALL, FAKE.geometries)  # pyright: ignore[reportArgumentType]
        assert found["n"] == 3
        assert found["entropy"] == expected.entropy
        assert found["tokens"] == [vars(token) for token in expected.tokens]
        assert found["choices"] == [vars(choice) for choice in expected.choices]
        assert expected.top_w is not None
        moved = set(expected.top_w.ids) ^ set(expected.top_w.without_geometry)
        assert found["top_w"]["gained"] + found["top_w"]["lost"] == len(moved)
        points = top_w_map(logits_after(TEXT), Tokenizer(), temperature, {}, FAKE.geometries)  # pyright: ignore[reportArgumentType]
        assert [point["kept"] for point in found["map"]] == [point.kept for point in points]
        assert [point["x"] for point in found["map"]] == pytest.approx([point.x for point in points], abs=1e-4)
    assert len(FAKE.model.passes) == passes


def test_a_slider_computes_its_own_rule_anew_and_no_other(client: TestClient, monkeypatch: pytest.MonkeyPatch) -> None:
    import app.service.charts as module

    asked: list[set[str]] = []
    monkeypatch.setattr(module, "look", lambda *a, **more: (asked.append(set(a[3])), look(*a, **more))[1])
    draft(client, "slider")
    for top_p in (0.5, 0.6, 0.5):
        body = {"tab": "slider", "rules": {**ALL, "top-p": {"top_p": top_p}}}
        found = client.post("/api/view", json=body).json()
        expected = look(logits_after(TEXT), Tokenizer(), 1.0, {"top-p": {"top_p": top_p}}, FAKE.geometries)  # pyright: ignore[reportArgumentType]
        assert next(c for c in found["choices"] if c["rule"] == "top-p") == vars(expected.choices[0])
    draft(client, "slider", 2, temperature=1.5)  # another setting, the same text
    client.post("/api/view", json={"tab": "slider", "rules": {"top-p": {"top_p": 0.5}}})
    assert asked == [set(ALL), {"top-p"}]
    draft(client, "slider", 3, TEXT + " time")
    client.post("/api/view", json={"tab": "slider", "rules": {"top-p": {"top_p": 0.5}}})
    assert asked[2:] == [{"top-p"}]


def test_a_sweep_is_the_cores(client: TestClient) -> None:
    draft(client, "sweep")
    for _ in range(2):
        found = client.post("/api/sweep", json={"tab": "sweep", "rules": ALL}).json()
        assert found["temperatures"] == list(SWEPT) and SWEPT[-1] == DRAFTING["temperature"].high
        assert found["counts"] == sweep(logits_after(TEXT), ALL, FAKE.geometries, SWEPT)


@pytest.mark.parametrize(
    ("path", "body", "status", "words"),
    [
        ("view", {"tab": "nobody", "rules": ALL}, 409, "There are no drafts yet"),
        ("view", {"tab": "a", "rules": {"top-q": {}}}, 422, "rule 'top-q' given"),
        ("view", {"tab": "a", "rules": {"top-p": {"top_p": 2}}}, 422, "top-p 2 given; a number from 0 to 1 expected."),
        ("presets/save", {"name": "", "rule": "top-p"}, 409, "1 to 80 letters expected"),
        ("presets/save", {"name": PRESETS[0].name, "rule": "top-p"}, 409, "comes with Polydraft"),
        ("presets/save", {"name": "x", "rule": "top-p", "mode": "best"}, 409, "mode 'best' given"),
        ("presets/delete", {"name": "nobody's"}, 409, "There is no preset"),
        ("presets/import", {"text": "{"}, 409, "neither JSON nor YAML"),
    ],
)
def test_what_is_wrong_is_named(client: TestClient, path: str, body: Any, status: int, words: str) -> None:
    response = client.post(f"/api/{path}", json=body)
    assert response.status_code == status
    assert words in response.json()["message"]


def test_every_rule_and_mode_reaches_the_drafting(client: TestClient) -> None:
    for rule, mode in zip(CATALOG, cycle(MODES)):
        chosen = {"rule": rule, "mode": mode, "seed": 4}
        lines = draft(client, f"{rule} {mode}", length=1, temperature=1.5, sampling=chosen)
        assert [line["type"] for line in lines] == ["drafts", "stats"]
        ask = FAKE.sessions[-1].completions[-1].ask
        assert (ask.mode.name, ask.seed) == (mode, 4)
        kept = FAKE.sampler(rule, {}, 1.5)(None, logits_after(TEXT)[None])[0].isfinite().sum()
        assert len(lines[0]["drafts"]) == min(3, int(kept)), (rule, mode)


# ---------------------------------------------------------------- the file of presets


def test_presets_are_kept_replaced_and_carried(tmp_path: Path) -> None:
    own = OwnPresets(tmp_path / "one" / "presets.sqlite")
    assert own.all() == []
    assert not own.file.exists()
    first = Preset("näme 1", "top-w", {"beta": 4.0, "metric": "cosine"}, 1.5, mode="sampled")
    own.save(first)
    own.save(Preset("b", "none", {}))
    own.save(Preset("b", "top-p", {"top_p": 0.5}))
    assert own.all() == [Preset("b", "top-p", {"top_p": 0.5}), first]
    other = OwnPresets(tmp_path / "two.sqlite")
    assert other.imported(own.exported()) == ["b", "näme 1"]
    assert other.all() == own.all()
    assert other.imported(first.as_json()) == ["näme 1"]
    own.delete("b")
    assert own.all() == [first]


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ("nothing", "not JSON"),
        ([], "contains no presets"),
        ({"kind": "other", "presets": []}, "contains no presets"),
        ({"kind": "polydraft presets", "version": 2, "presets": [{}]}, "version 2 is unknown"),
        ({"kind": "polydraft presets", "version": 1, "presets": [], "more": 1}, "unknown field 'more'"),
        ({"kind": "polydraft presets", "version": 1, "presets": []}, "The file contains no presets."),
        ({"name": "a", "rule": "top-q"}, "Preset 1 (a): rule 'top-q' given"),
        ({"name": "a", "rule": "top-p", "temperature": True}, "Preset 1 (a): temperature True given"),
        ({"name": " a", "rule": "top-p"}, "' a' given as the name"),
    ],
)
def test_bad_files_are_refused_whole(tmp_path: Path, content: Any, words: str) -> None:
    own = OwnPresets(tmp_path / "presets.sqlite")
    with pytest.raises(InputError) as refused:
        own.imported(content if content == "nothing" else json.dumps(content))
    assert words in str(refused.value)
    good = {"name": "good", "rule": "top-p"}
    both = {"kind": "polydraft presets", "version": 1, "presets": [good, {"name": "bad", "rule": "top-p", "values": 3}]}
    with pytest.raises(InputError, match=r"Preset 2 \(bad\)"):
        own.imported(json.dumps(both))
    assert own.all() == []


def test_a_newer_versions_preset_is_left_alone(tmp_path: Path) -> None:
    own = OwnPresets(tmp_path / "presets.sqlite")
    own.save(Preset("b", "top-p", {}))
    with sqlite3.connect(own.file) as connection:
        connection.execute('insert into presets values (\'new\', \'{"name": "new", "rule": "next"}\')')
    connection.close()
    assert [preset.name for preset in own.all()] == ["b"]
