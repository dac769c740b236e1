"""The folder of documents under damage: notes that cannot be read, odd files, a full disk, and a clock that jumps."""

from __future__ import annotations

import errno
import json
import os
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from app.documents import folder as documents
from app.documents.folder import Changed, DocumentFolder, Entry
from tests.app.documents.test_documents import KEEPER, OTHER, RECORD, TEXT, client_of, folder, texts

__all__ = ["folder"]  # a fixture

DAY = 86_400  # seconds


def note(folder: DocumentFolder, id: str = KEEPER) -> Path:
    return folder.notes / f"{id}.json"


def two_documents(folder: DocumentFolder) -> None:
    folder.write(Entry(KEEPER, title="One"), TEXT, None)
    folder.write(Entry(OTHER, title="Two"), "Another text.", None)


# ---------------------------------------------------------------- notes


def test_a_bad_note_is_one_problem_and_hides_no_document(folder: DocumentFolder) -> None:
    two_documents(folder)
    fields = json.loads(note(folder).read_bytes())
    note(folder).write_text(json.dumps({**fields, "changed": None}))
    client = client_of(folder)
    said = client.get("/api/documents").json()
    assert {document["title"]: document["unsure"] for document in said["documents"]} == {"One": True, "Two": False}
    (problem,) = said["problems"]
    assert problem["note"] == note(folder).name
    assert "is damaged (changed: Input should be a valid integer)" in problem["message"]
    before = texts(folder)
    assert client.post("/api/documents/set-aside", json={"note": problem["note"]}).status_code == 200
    assert client.get("/api/documents").json()["problems"] == []
    assert texts(folder) == before
    assert len(list((folder.notes / "aside").iterdir())) == 1


def a_pipe(path: Path) -> None:
    os.mkfifo(path)


def a_link(path: Path) -> None:
    path.symlink_to(path.parent / "kept")


ODD: dict[str, Callable[[Path], object]] = {
    "a folder": Path.mkdir,
    "a pipe": a_pipe,
    "a link": a_link,
    "a link to nothing": lambda path: path.symlink_to("nothing"),
    "too large": lambda path: path.write_bytes(b"[" * (5 << 20)),
    "deep": lambda path: path.write_bytes(b"[" * 100_000),
    "empty": lambda path: path.write_bytes(b""),
    "another document's": lambda path: path.write_text(json.dumps({"id": OTHER, "file": "Two.txt"})),
    "a file elsewhere": lambda path: path.write_text(json.dumps({"id": KEEPER, "file": "../../secret.txt"})),
}


@pytest.mark.timeout(20)
@pytest.mark.parametrize("odd", ODD)
def test_whatever_stands_in_a_notes_place_is_a_problem_that_can_be_removed(folder: DocumentFolder, odd: str) -> None:
    two_documents(folder)
    note(folder).unlink()
    ODD[odd](note(folder))
    client = client_of(folder)
    said = client.get("/api/documents").json()
    assert sorted(document["title"] for document in said["documents"]) == ["One", "Two"]
    assert [problem["note"] for problem in said["problems"]] == [note(folder).name]
    refused = client.post("/api/documents/write", json=RECORD)
    assert (refused.status_code, refused.json()["changed"]) == (409, True)
    assert client.post("/api/documents/set-aside", json={"note": note(folder).name}).status_code == 200
    assert client.get("/api/documents").json()["problems"] == []
    assert not os.path.lexists(note(folder))


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=5,
)
fields = st.sampled_from([*Entry.__dataclass_fields__, "unknown"])


def test_no_note_makes_a_route_fail(folder: DocumentFolder, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "fsync", lambda _: None)  # nothing cuts the power here
    client = client_of(folder)

    @settings(max_examples=15)
    @given(st.dictionaries(fields, json_values, max_size=4))
    def check(changed: dict[str, Any]) -> None:
        for path in [*folder.notes.glob("*.json"), *folder.folder.glob("*.txt"), *folder.bin.glob("*.txt")]:
            path.unlink()
        two_documents(folder)
        note(folder).write_text(json.dumps({**json.loads(note(folder).read_bytes()), **changed}))
        said = client.get("/api/documents").json()
        listed = [document for document in said["documents"] if document["id"] != OTHER]
        assert len(said["documents"]) == len(listed) + 1
        read = [client.get(f"/api/documents/{document['id']}") for document in listed]
        assert [answer.json()["text"] for answer in read] == [TEXT]
        for path, body in (
            ("write", {**RECORD, "base": listed[0]["revision"]}),
            ("bin", {"id": KEEPER, "on": True}),
            ("remove", {"id": KEEPER}),
            ("set-aside", {"note": note(folder).name}),
        ):
            assert client.post(f"/api/documents/{path}", json=body).status_code in (200, 409)
        assert client.get("/api/documents").status_code == 200

    check()


def test_a_note_that_could_not_be_read_again_is_not_written(folder: DocumentFolder) -> None:
    for entry in (Entry(KEEPER, private=[[3, 1]]), Entry(KEEPER, caret=[1]), Entry(KEEPER, changed=1 << 60)):
        with pytest.raises(documents.InputError, match="cannot be kept"):
            folder.write(entry, TEXT, None)
    assert texts(folder) == {}


@pytest.mark.timeout(20)
@pytest.mark.parametrize("odd", ["a folder", "a pipe", "a link", "a link to nothing"])
@pytest.mark.parametrize("name", ["lock", "kept"])
def test_an_odd_lock_or_marker_gets_an_answer_in_words_and_no_file_changes(
    folder: DocumentFolder, name: str, odd: str
) -> None:
    two_documents(folder)
    (folder.notes / name).unlink()
    (folder.notes / "other").write_text("kept as it is")
    if odd == "a link":
        (folder.notes / name).symlink_to(folder.notes / "other")
    else:
        ODD[odd](folder.notes / name)
    client = client_of(folder)
    before = texts(folder)
    answers = [client.get("/api/documents"), client.get(f"/api/documents/{KEEPER}")]
    answers += [client.post("/api/documents/keep", json={"where": where}) for where in ("files", "browser")]
    for answer in answers:
        assert answer.status_code in (200, 409)
        assert answer.status_code == 200 or answer.json()["message"]
    if name == "lock":
        assert "lock is not a plain file" in client.get(f"/api/documents/{KEEPER}").json()["message"]
    assert texts(folder) == before
    assert (folder.notes / "other").read_text() == "kept as it is"


def test_a_file_that_cannot_be_read_hides_no_other(folder: DocumentFolder, monkeypatch: pytest.MonkeyPatch) -> None:
    two_documents(folder)
    bad = folder.folder / "Bad.txt"
    bad.write_text("x")
    read_regular = documents.read_regular

    def refused(path: Path, most: int) -> bytes:
        if path == bad:
            raise PermissionError(errno.EACCES, "Permission denied", str(path))
        return read_regular(path, most)

    monkeypatch.setattr(documents, "read_regular", refused)
    found = folder.listing()
    assert len(found.entries) == 2
    assert [problem.message for problem in found.problems] == [
        "“Bad.txt” or its note could not be used: Permission denied."
    ]


def test_a_file_that_is_too_large_is_a_problem_and_not_read(folder: DocumentFolder) -> None:
    two_documents(folder)
    for name in ("Two.txt", "Log.txt"):
        with (folder.folder / name).open("ab") as file:
            file.truncate(1 << 40)  # takes no room on the disk, and would take all memory
    found = folder.listing()
    assert {entry.id for entry in found.entries} == {KEEPER, OTHER}
    assert [problem.message for problem in found.problems] == [
        f"“{name}.txt” or its note could not be used: it is larger than 33,554,432 bytes." for name in ("Two", "Log")
    ]
    refused = client_of(folder).get(f"/api/documents/{OTHER}")
    assert (refused.status_code, "larger than" in refused.json()["message"]) == (409, True)


# ---------------------------------------------------------------- a full disk


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 1 MB; needs root."""
    place = tmp_path / "disk"
    place.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", str(place)]
    if os.name != "posix" or subprocess.run(mount, capture_output=True, check=False).returncode:
        pytest.skip("This user cannot mount a small disk; the next test simulates one.")
    yield place
    subprocess.run(["umount", str(place)], check=True)


def test_a_full_disk_loses_no_text_and_is_reported(small_disk: Path) -> None:
    folder = DocumentFolder(small_disk / "documents")
    folder.keep(True)
    client = client_of(folder)
    written = client.post("/api/documents/write", json=RECORD).json()
    (small_disk / "ballast").write_bytes(bytes(900 << 10))
    longer = {**RECORD, "text": TEXT * 5000, "base": written["revision"]}
    refused = client.post("/api/documents/write", json=longer)
    assert (refused.status_code, "No space left on device" in refused.json()["message"]) == (409, True)
    assert not list(small_disk.rglob("*.tmp"))
    with (small_disk / "ballast").open("ab") as ballast:  # now not even a note fits
        while (free := os.statvfs(small_disk).f_bavail) > 0:
            ballast.write(bytes(free * os.statvfs(small_disk).f_frsize))
            ballast.flush()
    (folder.folder / "New.txt").touch()  # an empty file needs no room
    said = client.get("/api/documents").json()
    (document,) = said["documents"]
    assert (document["id"], document["revision"]) == (KEEPER, written["revision"])
    assert ["No space left on device" in problem["message"] for problem in said["problems"]] == [True]
    assert client.get(f"/api/documents/{KEEPER}").json()["text"] == TEXT
    (small_disk / "ballast").unlink()
    assert client.post("/api/documents/write", json=longer).status_code == 200
    assert client.get(f"/api/documents/{KEEPER}").json()["text"] == TEXT * 5000


@pytest.mark.parametrize("failing", range(1, 5))
@pytest.mark.parametrize("private", [[], [[0, 3]]], ids=["open", "private"])
def test_an_error_at_any_file_loses_no_text_and_no_private_range(
    folder: DocumentFolder, monkeypatch: pytest.MonkeyPatch, failing: int, private: list[list[int]]
) -> None:
    """The disk is full at the first, second, … file of a save. The page then saves again what it has."""
    first = folder.write(Entry(KEEPER), "Old.", None)
    done, write_whole = 0, documents.write_whole

    def full(path: Path, data: bytes) -> None:
        nonlocal done
        done += 1
        if done == failing:
            raise OSError(errno.ENOSPC, "No space left on device")
        write_whole(path, data)

    with monkeypatch.context() as patch:
        patch.setattr(documents, "write_whole", full)
        with suppress(OSError):
            folder.write(Entry(KEEPER, private=private), "New text.", first.digest)
    assert [entry.id for entry in folder.entries()] == [KEEPER]
    entry, text = folder.read(KEEPER)
    assert text in ("Old.", "New text.")
    assert not private or text == "Old." or entry.private == private
    with pytest.raises(Changed) if text == "New text." else monkeypatch.context():
        folder.write(Entry(KEEPER, private=private), "New text.", first.digest)
    again = folder.write(Entry(KEEPER, private=private), "New text.", folder.read(KEEPER)[0].digest)
    assert folder.read(KEEPER)[1] == "New text." and again.private == private


# ---------------------------------------------------------------- the clock


@pytest.mark.parametrize("jump", [DAY, -DAY], ids=["forward", "back"])
def test_a_clock_set_by_a_day_changes_no_document(
    folder: DocumentFolder, monkeypatch: pytest.MonkeyPatch, jump: int
) -> None:
    now = time.time_ns() // 1_000_000
    letter = folder.write(Entry(KEEPER, title="Letter", changed=now, private=[[0, 3]]), TEXT, None)
    folder.write(Entry(OTHER, title="Away", changed=now, private=[[0, 3]]), "Away for a day.", None)
    away = folder.folder / "Away.txt"
    data = away.read_bytes()
    away.unlink()
    folder.entries()

    real = time.time_ns
    monkeypatch.setattr(documents.time, "time_ns", lambda: real() + jump * 1_000_000_000)
    assert folder.entries() == [letter]
    changed = now + jump * 1000
    later = folder.write(
        Entry(KEEPER, title="Letter", changed=changed, private=[[0, 3]]), TEXT + "More.", letter.digest
    )
    stamp = time.time() + jump
    os.utime(folder.folder / "Letter.txt", (stamp, stamp))  # as the file system would have it by this clock
    folder.put_in_bin(KEEPER, True)
    folder.put_in_bin(KEEPER, False)
    away.write_bytes(data)
    found = {entry.id: entry for entry in folder.entries()}
    assert (found[OTHER].private, found[OTHER].unsure) == ([[0, 3]], False)
    assert (found[KEEPER].digest, found[KEEPER].changed, found[KEEPER].private) == (later.digest, changed, [[0, 3]])
    assert [entry.id for entry in folder.entries()] == ([KEEPER, OTHER] if jump > 0 else [OTHER, KEEPER])
