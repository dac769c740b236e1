"""Writing stores: by several processes, into a given size, of other stores; full disks and processes that die."""

from __future__ import annotations

import errno
import json
import random
import sys
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

import ngram_builder
from app.cli import ngram as ngram_cli
from app.cli.main import app
from core.errors import InputError, PolydraftError
from core.ngram import NgramStore
from ngram_builder import child, machines, pipeline, runs, stored
from ngram_builder.count import Packing
from tests.ngram_tools import WordTokenizer, segments_of, tiny_runs

pytestmark = pytest.mark.usefixtures("small_process")


@pytest.fixture
def source(tmp_path) -> Path:
    rng = random.Random(8)
    texts = [" ".join(str(min(int(rng.expovariate(0.15)), 63)) for _ in range(400)) for _ in range(40)]
    (tmp_path / "s.jsonl").write_text("".join(json.dumps({"text": text}) + "\n" for text in texts))
    return tmp_path / "s.jsonl"


def build(source: Path, out: Path, **options) -> ngram_builder.BuildReport:
    return ngram_builder.build([source], out, WordTokenizer(), **{"workers": 2} | options)


# Processes


def test_processes_write_the_same_bytes(source, tmp_path, monkeypatch):
    with segments_of(2000):
        build(source, tmp_path / "alone.ngram", min_count=1)
        monkeypatch.setattr(machines, "FEW", 0)
        build(source, tmp_path / "together.ngram", min_count=1)
    assert len(NgramStore.open(tmp_path / "alone.ngram").manifest["segments"]) > 4
    assert (tmp_path / "together.ngram").read_bytes() == (tmp_path / "alone.ngram").read_bytes()


def test_a_process_that_dies_is_reported_and_nothing_is_lost(source, tmp_path, monkeypatch):
    monkeypatch.setattr(machines, "FEW", 0)
    monkeypatch.setattr(child, "COMMAND", (sys.executable, "-c", "import os; os.kill(os.getpid(), 9)"))
    with segments_of(2000):
        with pytest.raises(PolydraftError, match=r"ended with status -9, .* What is done so far is kept"):
            build(source, tmp_path / "s.ngram")
        monkeypatch.undo()
        said: list[str] = []
    with segments_of(2000):
        build(source, tmp_path / "s.ngram", notify=said.append)
        build(source, tmp_path / "whole.ngram")
    assert said[0].startswith("Resuming after")
    assert (tmp_path / "s.ngram").read_bytes() == (tmp_path / "whole.ngram").read_bytes()


# A given size


def test_the_least_pruning_that_fits_is_chosen(source, tmp_path):
    sizes = {least: build(source, tmp_path / f"{least}.ngram", min_count=least).size for least in (1, 2, 3, 4)}
    said: list[str] = []
    report = build(source, tmp_path / "s.ngram", min_count=1, fit=sizes[2] + 600, notify=said.append)
    store = NgramStore.open(tmp_path / "s.ngram", verify=True)
    pruning = list(store.manifest["min_count"].values())
    assert sizes[3] < report.size <= sizes[2] + 600
    assert pruning in ([1, 1, 1, 2, 2], [1, 1, 2, 2, 2], [1, 2, 2, 2, 2], [2, 2, 2, 2, 2], [2, 2, 2, 2, 3])
    build(source, tmp_path / "again.ngram", min_count=dict(zip(range(2, 7), pruning, strict=True)))
    assert (tmp_path / "s.ngram").read_bytes() == (tmp_path / "again.ngram").read_bytes()
    head, *rows = said
    assert head.split() == ["min-count", "n-grams", "file", "in", "memory"]
    (marked,) = (row for row in rows if row.endswith("<- fits"))
    assert int(marked.split()[1].replace(",", "")) > 1000
    smaller = [int(row.split()[1].replace(",", "")) for row in rows]
    assert smaller == sorted(smaller, reverse=True)


def test_a_size_that_nothing_fits_into_is_refused(source, tmp_path):
    with pytest.raises(InputError, match=r"--fit 100 bytes given; .* the store still takes .* (bytes|kB)"):
        build(source, tmp_path / "s.ngram", fit=100)


def test_the_search_for_a_size_resumes(source, tmp_path, monkeypatch):
    build(source, tmp_path / "whole.ngram", fit=20_000)
    real, calls = pipeline.write_store, []

    def fails(*arguments):
        calls.append(arguments)
        if len(calls) == 1:
            raise OSError(errno.EIO, "Input/output error")
        real(*arguments)

    monkeypatch.setattr(pipeline, "write_store", fails)
    with pytest.raises(OSError, match="Input/output"):
        build(source, tmp_path / "s.ngram", fit=20_000)
    monkeypatch.setattr(pipeline, "store_size", None)  # the sizes are known
    build(source, tmp_path / "s.ngram", fit=20_000)
    assert (tmp_path / "s.ngram").read_bytes() == (tmp_path / "whole.ngram").read_bytes()
    assert (tmp_path / "s.ngram").stat().st_size <= 20_000


# Disks


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs Linux")
def test_a_full_disk_is_named_with_the_file(tmp_path):
    with pytest.raises(OSError, match=r"No space left.*/dev/full"):
        runs.write_run(Path("/dev/full"), iter([(np.ones((1, 9), dtype=np.uint64), np.ones(9, dtype=np.uint64))]))


# Other stores


def test_stores_are_merged_in_small_pieces(source, tmp_path, monkeypatch):
    build(source, tmp_path / "whole.ngram")
    with segments_of(700):
        build(source, tmp_path / "divided.ngram", exact=True)
    stores = [NgramStore.open(tmp_path / name) for name in ("whole.ngram", "divided.ngram")]
    monkeypatch.setattr(stored, "_AT_ONCE", 300)
    with tiny_runs(50):
        report = ngram_builder.merge(stores, tmp_path / "both.ngram", min_count=5, exact=True)
    both = NgramStore.open(tmp_path / "both.ngram", verify=True)
    whole = {gram: count for gram, count, _ in stores[0].ngrams()}
    exact = {gram: count for gram, count, _ in stores[1].ngrams()}
    expected = {gram: whole[gram] + count for gram, count in exact.items() if len(gram) < 2 or whole[gram] + count >= 5}
    assert {gram: count for gram, count, _ in both.ngrams() if count} == expected
    assert sum(report.ngrams.values()) == len([gram for gram in expected if gram])
    assert sorted(path.name for path in tmp_path.iterdir()) == ["both.ngram", "divided.ngram", "s.jsonl", "whole.ngram"]


# The command line


def test_the_command_fits_a_size_and_shows_the_table(source, tmp_path, monkeypatch):
    monkeypatch.setattr(ngram_cli, "_tokenizer", lambda name: (WordTokenizer(), name))
    command = ["ngram", "build", str(source), "-o", str(tmp_path / "s.ngram"), "--fit"]
    done = CliRunner().invoke(app, [*command, "20kB"])
    assert done.exit_code == 0, done.output
    head, *rows = done.stderr.splitlines()
    assert head.startswith("min-count")
    assert [row for row in rows if row.endswith("<- fits")]
    assert 15_000 < (tmp_path / "s.ngram").stat().st_size <= 20_000
    refused = CliRunner().invoke(app, [*command, "small"])
    assert (refused.exit_code, refused.stderr.split(";")[0]) == (1, "Error: Size 'small' given")


def test_default_is_the_apps_own_store():
    done = CliRunner().invoke(app, ["ngram", "stats", "--store", "default", "--json"])
    assert done.exit_code == 0, done.output
    assert json.loads(done.stdout)["rows"][0]["ngrams"] == len(NgramStore.open(ngram_cli._own(Path("default"))))


def test_a_killed_build_takes_its_processes_with_it():
    """The end of its input ends a process, although one that was started later goes on."""
    children = child.Children()
    first, second = children._new(), children._new()
    for process in (first, second):
        process.stdin.close()
        assert process.wait(20) == 0


def test_ranges_of_other_runs_are_not_used(tmp_path):
    packing, orders = Packing(2, 9), range(2, 3)
    plan = pipeline.Plan(tmp_path, packing, orders, {2: 1}, 1 << 26, 1)
    about = {"closed": True, "tokenizer": {"fingerprint": "f"}, "documents": 1, "tokens": 1, "sources": []}
    for name, gram in (("a", (1, 2)), ("b", (3, 4))):
        ids = np.array([token + 1 for token in gram] + [0], dtype=np.uint32)  # a document of these two tokens
        run = runs.write_run(tmp_path / name, runs.sorted_windows(ids, packing, 10))
        pipeline.write_merged(tmp_path / "s.ngram", plan, [run], about, ngram_builder.BuildReport())
        assert NgramStore.open(tmp_path / "s.ngram").count(gram) == 1
