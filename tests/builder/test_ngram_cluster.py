"""Counting on a real Dask cluster of this machine: the same bytes, also when a worker is killed."""

from __future__ import annotations

import os
import random
import signal
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from typer.testing import CliRunner

import ngram_builder
from app.cli.main import app
from core.errors import InputError
from ngram_builder import cluster as clusters
from ngram_builder.cluster import Cluster, cluster
from tests.ngram_tools import WordTokenizer, segments_of, tiny_runs

if TYPE_CHECKING:
    from distributed import Client

pytestmark = pytest.mark.usefixtures("small_process")


class SlowTokenizer(WordTokenizer):
    """Gives a test the time to kill its process."""

    def encode(self, text: str) -> list[int]:
        time.sleep(0.1)
        return super().encode(text)


@pytest.fixture(scope="module", autouse=True)
def _imported_once() -> Iterator[None]:
    """Workers are forked off a process that has imported what they need. Each would take seconds for torch alone."""
    import dask
    from distributed.utils import get_mp_context

    with dask.config.set({"distributed.worker.multiprocessing-method": "forkserver"}):
        get_mp_context().set_forkserver_preload(["distributed", "app.cli.personal", "core.models.hf"])
        yield


@pytest.fixture(scope="module")
def local() -> Iterator[Client]:
    from distributed import Client, LocalCluster

    with (
        LocalCluster(n_workers=2, threads_per_worker=1, processes=True, dashboard_address=None) as workers,
        Client(workers) as client,
    ):
        yield client


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("corpus")
    rng = random.Random(2)
    for name in "abcdef":
        words = (str(min(int(rng.expovariate(0.2)), 63)) for _ in range(4000))
        (folder / f"{name}.txt").write_text(" ".join(words))
        (folder / f"{name}.jsonl").write_text('{"text": "1 2 3 4"}\nbroken\n')
    return folder


@pytest.mark.timeout(240)
def test_the_command_counts_on_a_cluster(local: Client, tiny_file: Path, tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("To be, or not to be, that is the question. " * 20)

    def build(out: str, *flags: str) -> bytes:
        command = ["ngram", "build", str(tmp_path / "a.txt"), "-o", str(tmp_path / out), *flags]
        command += ["--tokenizer", str(tiny_file)]
        result = CliRunner().invoke(app, command)
        assert result.exit_code == 0, result.output
        return (tmp_path / out).read_bytes()

    alone = build("alone.ngram")
    assert build("scheduler.ngram", "--scheduler", local.scheduler_info()["address"]) == alone
    assert build("dask.ngram", "--dask", "local", "--workers", "1") == alone


@pytest.mark.timeout(120)
@pytest.mark.parametrize("file", ["part-*/journal.json", "ranges/range-*.json", "ranges/segments/segment-*.ngram"])
def test_a_worker_killed_while_it_counts_merges_or_writes_changes_nothing(local, corpus, tmp_path, file):
    work, killed = tmp_path / "work", list[int]()

    def kill() -> None:
        while not list(work.glob(file)):
            time.sleep(0.001)
        killed.append(next(iter(local.run(os.getpid).values())))
        os.kill(killed[0], signal.SIGKILL)

    killer = threading.Thread(target=kill, daemon=True)
    options = {"max_bad": 0.5, "dedup": "paragraphs", "sample": 0.9}
    load = SlowTokenizer if file.startswith("part") else WordTokenizer
    with tiny_runs(2000), segments_of(300):
        alone = ngram_builder.build([corpus], tmp_path / "alone.ngram", WordTokenizer(), **options)
        killer.start()
        there = {"work": work, "machines": Cluster(local, load)}
        together = ngram_builder.build([corpus], tmp_path / "s.ngram", WordTokenizer(), **options, **there)
    killer.join(20)
    assert killed
    assert (tmp_path / "s.ngram").read_bytes() == (tmp_path / "alone.ngram").read_bytes()
    assert (together.documents, together.tokens, together.damage) == (alone.documents, alone.tokens, alone.damage)
    assert not work.exists()


def test_workers_that_do_not_see_the_work_are_named(local, corpus, tmp_path, monkeypatch):
    monkeypatch.setattr(clusters, "_sees", _sees_nothing)
    with pytest.raises(InputError, match=r"(1 of 1|2 of 2) workers \(tcp://.* have no access to .*: choose a folder"):
        ngram_builder.build([corpus], tmp_path / "s.ngram", WordTokenizer(), machines=Cluster(local, WordTokenizer))


def _sees_nothing(path: str) -> bool:
    return False


def test_a_scheduler_that_does_not_answer_is_reported(monkeypatch):
    monkeypatch.setattr(clusters, "PATIENCE", 0.5)
    with (
        pytest.raises(InputError, match=r"No Dask scheduler answers at tcp://127\.0\.0\.1:1"),
        cluster("tcp://127.0.0.1:1", WordTokenizer),
    ):
        pass
