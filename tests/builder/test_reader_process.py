"""Files are read in a process of their own, which may crash, loop or run out of memory."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import psutil
import pytest

from core.ngram.personal import PersonalStore
from ngram_builder import personal
from ngram_builder.readers import Damage, File, ReaderProcess, Reading, Senders, read_file
from tests.ngram_tools import WordTokenizer

LONG = "A line of an ordinary letter, and then one more.\n" * 60_000  # several parts


def files(folder: Path) -> list[File]:
    for name, data in (
        ("a.txt", b"Dear Ann,\n\nall is well.\n"),
        ("cut \udcff.txt", b"\x00\x01\xff" * 99),
        ("b.eml", b"From: bob@example.org\nSubject: x\n\nNot mine.\n"),
        ("c.eml", b"From: ann@example.org\nSubject: x\n\nMine.\n\n> his\n"),
        ("long.txt", LONG.encode()),
        ("d.docx", b"PK\x03\x04broken"),
    ):
        Path(os.fsencode(folder).decode(errors="surrogateescape"), name).write_bytes(data)
    return [File.at(path) for path in sorted(folder.iterdir())]


def test_it_reads_what_the_readers_read(tmp_path: Path) -> None:
    results = []
    with ReaderProcess() as reader:
        for read in (read_file, reader.read):
            places: list[Damage] = []
            notes: list[Damage] = []
            reading = Reading(places.append, note=notes.append, senders=Senders.of(["ann@example.org"]))
            documents = [document for file in files(tmp_path) for document in read(file, reading)]
            results.append((documents, places, notes, reading.senders.found, reading.senders.others))
    assert results[0] == results[1]
    assert len(results[0][0]) > 3
    assert len(results[0][1]) == 2


def pid_of_reader() -> int:
    """Tests before may have left other children, such as multiprocessing's forkserver."""
    (reader,) = (child for child in psutil.Process().children() if "ngram_builder.readers.apart" in child.cmdline())
    return reader.pid


@pytest.mark.parametrize(
    ("signal_given", "reason"),
    [(signal.SIGSEGV, "its reader crashed (SIGSEGV)"), (signal.SIGSTOP, "its reader made no progress for 1 seconds")],
)
def test_a_reader_that_crashes_or_loops_damages_its_file_alone(
    tmp_path: Path, signal_given: signal.Signals, reason: str
) -> None:
    (tmp_path / "long.txt").write_text(LONG)
    (tmp_path / "next.txt").write_text("Next.")
    places: list[Damage] = []
    with ReaderProcess() as reader:
        for _ in reader.read(File.at(tmp_path / "long.txt"), Reading(places.append)):
            reader._stall = 1  # not while it starts
            os.kill(pid_of_reader(), signal_given)
        assert len(places) == 1
        assert reason in places[0].reason
        reader._stall = 60
        reading = Reading(places.append)
        assert [document.text for document in reader.read(File.at(tmp_path / "next.txt"), reading)] == ["Next."]


def test_a_file_that_needs_more_memory_than_there_is_is_damaged(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text(LONG)
    places: list[Damage] = []
    with ReaderProcess(memory=16 << 20) as reader:  # too little for Python itself
        assert [*reader.read(File.at(tmp_path / "a.txt"), Reading(places.append))] == []
    assert len(places) == 1


def test_who_cancels_leaves_no_process_and_no_text(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text(LONG)
    before = len(psutil.Process().children())

    def cancel(share: float) -> None:
        if share > 0:
            raise KeyboardInterrupt

    with PersonalStore.open(tmp_path / "me.sqlite", WordTokenizer(), create=True) as store:
        with ReaderProcess() as reader, pytest.raises(KeyboardInterrupt):
            personal.add_file(store, File.at(tmp_path / "a.txt"), "a", reader, cancel)
        assert store.documents() == []
    assert len(psutil.Process().children()) == before
