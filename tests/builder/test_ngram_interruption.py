"""Builds that are killed, or lack room: the files afterwards, and that the same command ends in the same bytes."""

from __future__ import annotations

import contextlib
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import textwrap
import traceback
from collections import namedtuple
from collections.abc import Callable, Iterator
from pathlib import Path

import filelock
import pytest
import zstandard

import ngram_builder
from core.errors import InputError
from core.ngram import NgramStore
from ngram_builder import pipeline, work
from ngram_builder.pipeline import BuildReport
from tests.ngram_tools import Noting, WordTokenizer, segments_of, tiny_runs
from tests.paths import ROOT

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="processes are forked to be killed")

# Everything that touches files raises one of these audit events first, so a kill at the n-th of them is a kill between
# any two steps.
_STEPS = ("open", "os.rename", "os.remove", "os.mkdir", "os.rmdir", "os.listdir", "os.scandir", "os.chmod")


@pytest.fixture(scope="module")
def sources(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    folder = tmp_path_factory.mktemp("sources")
    rng = random.Random(11)
    texts = [" ".join(str(min(int(rng.expovariate(0.3)), 60)) for _ in range(rng.randrange(9))) for _ in range(24)]
    lines = [json.dumps({"text": text}).encode() + b"\n" for text in texts]
    (folder / "a.jsonl").write_bytes(b"".join([*lines[:8], b"broken\n", *lines[8:10], b"[]\n"]))
    pack = zstandard.ZstdCompressor().compress
    (folder / "b.jsonl.zst").write_bytes(pack(b"".join(lines[10:18])) + pack(b"".join(lines[18:])))
    (folder / "c.txt").write_text("1 2 3 4 5 6 7 " * 3)
    return [str(folder / "a.jsonl"), str(folder)]


def build(sources: list[str], out: Path, **options) -> BuildReport:
    settings = {"min_count": {2: 1, 3: 2, 4: 2}, "max_bad": 0.5, "workers": 2} | options
    return ngram_builder.build(sources, out, WordTokenizer(), **settings)


def forked(run: Callable[[], object], before: Callable[[], object]) -> bool:
    """Runs in a separate process. Returns whether it ended normally, and was not killed."""
    pid = os.fork()
    if pid == 0:
        try:
            before()
            run()
            os._exit(0)
        finally:
            traceback.print_exc()
            sys.stderr.flush()
            os._exit(3)
    _, status = os.waitpid(pid, 0)
    if os.WIFSIGNALED(status):
        assert os.WTERMSIG(status) == signal.SIGKILL
        return False
    assert os.waitstatus_to_exitcode(status) == 0, "the build raised"
    return True


def dying(step: int, durable: Path) -> Callable[[], None]:
    """Kill this process at its `step`-th step with files; `durable` collects the numbers of files that were synced,
    in this process and in those before it."""

    def arm() -> None:
        left, sync = step, os.fsync
        notes = os.open(durable, os.O_WRONLY | os.O_CREAT | os.O_APPEND)

        def noted(handle: int) -> None:
            sync(handle)
            os.write(notes, b"%d\n" % os.fstat(handle).st_ino)

        def hook(event: str, _: object) -> None:
            nonlocal left
            if event in _STEPS:
                left -= 1
                if left == 0:
                    os.kill(os.getpid(), signal.SIGKILL)

        os.fsync = noted
        sys.addaudithook(hook)

    return arm


def cut_power(folder: Path, durable: Path, rng: random.Random) -> None:
    """Files that were never synced are truncated, emptied, or filled with zeros."""
    synced = set(map(int, durable.read_text().split())) if durable.exists() else set()
    for path in folder.rglob("*"):
        with contextlib.suppress(FileNotFoundError):
            if path.is_file() and path.stat().st_ino not in synced and path.name != "lock":
                size = path.stat().st_size
                os.truncate(path, rng.randrange(size + 1))
                if rng.random() < 0.5:
                    os.truncate(path, size)


@pytest.mark.parametrize(
    ("options", "firsts"), [({}, range(1, 420, 70)), ({"fit": 9_000}, (130, 380))], ids=["", "into a given size"]
)
def test_a_build_killed_between_any_two_steps_goes_on_to_the_same_bytes(sources, tmp_path, options, firsts):
    rng = random.Random(7)
    out, durable = tmp_path / "s.ngram", tmp_path / "durable"
    killed = 0
    with tiny_runs(40), segments_of(30):
        expected_report = build(sources, tmp_path / "whole.ngram", **options)
        expected = (tmp_path / "whole.ngram").read_bytes()
        for step in firsts:
            while not forked(lambda: build(sources, out, **options), dying(step, durable)):
                killed += 1
                if rng.random() < 0.5:
                    cut_power(tmp_path / ".s.ngram.work", durable, rng)
                step = rng.randrange(1, 500)
            assert out.read_bytes() == expected
            durable.unlink(missing_ok=True)
            left = {path.name for path in tmp_path.iterdir()}
            assert left == {"whole.ngram", "s.ngram"}
            out.unlink()
        assert killed >= len(firsts)
        assert not forked(lambda: build(sources, out, **options), dying(120, durable))
        report = build(sources, out, **options)
    assert out.read_bytes() == expected
    assert (report.documents, report.tokens, report.damage) == (
        expected_report.documents,
        expected_report.tokens,
        expected_report.damage,
    )


def test_input_that_changes_between_kills_ends_in_the_bytes_of_a_build_from_scratch(tmp_path):
    rng = random.Random(5)
    folder, out, durable = tmp_path / "corpus", tmp_path / "s.ngram", tmp_path / "durable"
    folder.mkdir()
    options = {"max_bad": 0.5, "dedup": "documents", "sample": 0.8}

    def change() -> None:
        path = folder / f"{rng.choice('abcd')}.jsonl"
        if path.exists() and rng.random() < 0.3:
            path.unlink()
        elif path.exists() and rng.random() < 0.3:
            os.utime(path, ns=(1, rng.randrange(10**18)))
        else:
            texts = [" ".join(str(rng.randrange(4)) for _ in range(rng.randrange(1, 5))) for _ in range(8)]
            path.write_text("".join(json.dumps({"text": text}) + "\n" for text in texts))

    for _ in range(4):
        change()
    (folder / "e.txt").write_text("5 6 7 8 9 " * 30)
    killed = 0
    with tiny_runs(30):
        for _ in range(4):
            while not forked(
                lambda: build([folder], out, keep=True, **options), dying(rng.randrange(20, 450), durable)
            ):
                killed += 1
                if rng.random() < 0.3:
                    cut_power(tmp_path / ".s.ngram.work", durable, rng)
                change()
            build([folder], tmp_path / "whole.ngram", **options)
            assert out.read_bytes() == (tmp_path / "whole.ngram").read_bytes()
            change()
    assert killed > 2


@pytest.fixture
def half_done(sources, tmp_path) -> Iterator[Path]:
    """A store that was being built when its process was killed, with some runs done."""
    with tiny_runs(40):
        assert not forked(lambda: build(sources, tmp_path / "s.ngram"), dying(70, tmp_path / "durable"))
        (tmp_path / "durable").unlink()
        assert list(tmp_path.glob(".s.ngram.work/part-*/run-*"))
        yield tmp_path / "s.ngram"


def test_what_was_counted_serves_another_pruning(half_done, sources):
    said: list[str] = []
    build(sources, half_done, min_count=1, orders=range(3, 7), notify=said.append)
    assert said[0].startswith("Resuming after 0.0 M tokens")
    build(sources, half_done.with_name("whole.ngram"), min_count=1, orders=range(3, 7))
    assert half_done.read_bytes() == half_done.with_name("whole.ngram").read_bytes()


@pytest.mark.parametrize("tokenizer", [WordTokenizer(65), WordTokenizer()], ids=["another tokenizer", "fewer orders"])
def test_work_of_another_build_is_discarded_with_a_word(half_done, sources, tokenizer):
    said: list[str] = []
    orders = range(2, 6 if len(tokenizer.pieces) == 64 else 7)
    ngram_builder.build(sources, half_done, tokenizer, orders=orders, max_bad=0.5, notify=said.append)
    assert "of a build with other options or another tokenizer; they were discarded" in said[0]
    assert NgramStore.open(half_done, tokenizer.fingerprint).orders[-1] == orders[-1]


def test_two_builds_do_not_share_a_work_folder(half_done, sources):
    with (
        filelock.FileLock(half_done.with_name(".s.ngram.work") / "lock"),
        pytest.raises(InputError, match="Another process"),
    ):
        build(sources, half_done)


def test_a_folder_with_other_things_in_it_is_not_worked_in(sources, tmp_path):
    (tmp_path / "mine.txt").write_text("keep me")
    with pytest.raises(InputError, match=r"holds other files \(mine.txt\)"):
        build(sources, tmp_path / "s.ngram", work=tmp_path)
    assert (tmp_path / "mine.txt").read_text() == "keep me"


def test_too_much_damage_keeps_the_counts(sources, tmp_path):
    with pytest.raises(ngram_builder.TooMuchDamage, match=r"the counts are kept, and .* --max-bad resumes from them"):
        build(sources, tmp_path / "s.ngram", max_bad=0.05)
    assert [path.name for path in tmp_path.iterdir()] == [".s.ngram.work"]
    said: list[str] = []
    build(sources, tmp_path / "s.ngram", notify=said.append)
    assert said[0].startswith("Resuming after")
    build(sources, tmp_path / "whole.ngram")
    assert (tmp_path / "s.ngram").read_bytes() == (tmp_path / "whole.ngram").read_bytes()


def test_too_much_damage_ends_the_build_when_the_rest_cannot_change_it(tmp_path, monkeypatch):
    monkeypatch.setattr(pipeline, "_LITTLE", 100)
    for name in "abcdefgh":
        (tmp_path / f"{name}.jsonl").write_text('{"text": "1 2 3"}\n' + "broken\n" * 200)
    tokenizer = Noting()
    with pytest.raises(ngram_builder.TooMuchDamage, match=r"in the first \d+% of the input: more than 1.0% of it"):
        ngram_builder.build([tmp_path], tmp_path / "s.ngram", tokenizer)
    assert len(tokenizer.texts) < 3


def test_damage_at_the_beginning_does_not_end_a_build_whose_rest_is_sound(tmp_path, monkeypatch):
    monkeypatch.setattr(pipeline, "_LITTLE", 100)
    (tmp_path / "a.jsonl").write_text('{"text": "1 2 3"}\n' + "broken\n" * 5)
    (tmp_path / "b.jsonl").write_text('{"text": "1 2 3"}\n' * 1000)
    assert len(ngram_builder.build([tmp_path], tmp_path / "s.ngram", WordTokenizer()).damage) == 5


# Room


def test_too_small_a_disk_is_refused_with_the_estimate_and_one_that_may_be_is_mentioned(sources, tmp_path, monkeypatch):
    usage = namedtuple("usage", "total used free")
    monkeypatch.setattr(work.shutil, "disk_usage", lambda _: usage(1 << 40, 1 << 40, 300))
    with pytest.raises(ngram_builder.NoRoom, match=r"needs about [\d.]+ kB in .* and 300 bytes are free"):
        build(sources, tmp_path / "s.ngram")
    assert not (tmp_path / "s.ngram").exists()
    monkeypatch.setattr(work.shutil, "disk_usage", lambda _: usage(1 << 40, 1 << 40, 18_000))
    said: list[str] = []
    build(sources, tmp_path / "s.ngram", notify=said.append)
    assert "may need" in said[0] and "and 18.0 kB are free" in said[0]


def test_the_estimate_of_disk_space_holds(tmp_path):
    rng = random.Random(5)
    (tmp_path / "s.txt").write_text(" ".join(str(rng.randrange(1000, 9999)) for _ in range(50_000)))
    (file,) = ngram_builder.readers.expand([tmp_path / "s.txt"])
    for least in (1, 2):
        options = {"min_count": least, "work": tmp_path / "work"}
        most = 0

        def watch(phase: str, share: float, report: BuildReport) -> None:
            nonlocal most
            sizes = []
            for path in (tmp_path / "work").rglob("*"):
                with contextlib.suppress(FileNotFoundError):  # a process has renamed it meanwhile
                    sizes.append(path.stat().st_size if path.is_file() else 0)
            most = max(most, sum(sizes))

        ngram_builder.build([file.address], tmp_path / "s.ngram", WordTokenizer(10_000), progress=watch, **options)
        packing = pipeline.Packing(6, 10_000)
        estimate = pipeline._room([file], packing, dict.fromkeys(range(2, 7), least))
        assert most + (tmp_path / "s.ngram").stat().st_size < estimate * 1.25
        shutil.rmtree(tmp_path / "work", ignore_errors=True)


def test_a_full_disk_keeps_the_work(sources, tmp_path, monkeypatch):
    build(sources, tmp_path / "whole.ngram")
    with tiny_runs(40):
        real, calls = ngram_builder.parts.write_run, []

        def full(path: Path, blocks):
            calls.append(path)
            if len(calls) > 2:
                raise OSError(28, "No space left on device")
            return real(path, blocks)

        monkeypatch.setattr(ngram_builder.parts, "write_run", full)
        with pytest.raises(ngram_builder.NoRoom, match=r"The disk at /.* is full: .*s.ngram could not be written"):
            build(sources, tmp_path / "s.ngram")
        monkeypatch.setattr(ngram_builder.parts, "write_run", real)
        said: list[str] = []
        build(sources, tmp_path / "s.ngram", notify=said.append)
    assert said[0].startswith("Resuming after")
    assert (tmp_path / "s.ngram").read_bytes() == (tmp_path / "whole.ngram").read_bytes()


def test_too_little_memory_is_refused(sources, tmp_path):
    with pytest.raises(InputError, match=r"Memory of 1.0 MB given; .* at least [\d.]+ [MG]B are needed"):
        build(sources, tmp_path / "s.ngram", memory=1_000_000)


def test_memory_stays_under_what_was_given(tmp_path):
    """Three million windows sorted at once would make a process of 340 MB."""
    script = r"""
        import re, resource, sys
        from pathlib import Path
        import numpy as np
        import ngram_builder
        from tests.ngram_tools import WordTokenizer
        folder = Path(sys.argv[1])
        class Letters(WordTokenizer):
            def encode(self, text):
                return [ord(letter) for letter in text]
        chances = np.random.default_rng(1)
        with (folder / "s.txt").open("w", encoding="utf-8") as file:
            for _ in range(300):
                file.write("".join(map(chr, chances.integers(13_000, 42_000, 10_000).tolist())))
        report = ngram_builder.build([folder / "s.txt"], folder / "s.ngram", Letters(42_000), memory=320 << 20)
        assert report.tokens == 3_000_000
        status = Path("/proc/self/status")
        if status.exists():  # on Linux ru_maxrss includes the copy of the parent before exec
            print(int(re.search(r"VmHWM:\s+(\d+) kB", status.read_text())[1]) << 10)
        else:
            print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)
    """
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(script), str(tmp_path)], capture_output=True, text=True, env=environment
    )
    assert done.returncode == 0, done.stderr
    assert 0 < int(done.stdout) < 320 << 20
