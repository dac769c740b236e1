"""Documents as files: plain text that other programs may touch; two writers never replace each other's words."""

from __future__ import annotations

import json
import os
import stat
import sys
import threading
from contextlib import suppress
from pathlib import Path

import pytest
from fastapi import FastAPI
from fastapi.testclient import TestClient
from hypothesis import given, settings
from hypothesis import strategies as st

from app.documents.folder import Changed, DocumentFolder, Entry
from app.web.refusals import format_errors
from app.web.routes.documents import add_routes
from core.errors import InputError

KEEPER = "3fa9c2d1-0000-4000-8000-000000000001"
OTHER = "3fa9c2d1-0000-4000-8000-000000000002"
TEXT = "The lighthouse keeper opened the letter\nand read it twice.\n"


@pytest.fixture
def folder(tmp_path: Path) -> DocumentFolder:
    folder = DocumentFolder(tmp_path / "documents")
    folder.keep(True)
    return folder


def texts(folder: DocumentFolder) -> dict[str, str]:
    return {path.name: path.read_text("utf-8") for path in folder.folder.glob("*.txt")}


def test_a_document_is_a_plain_text_file_named_after_its_first_line(folder: DocumentFolder) -> None:
    written = folder.write(Entry(KEEPER), TEXT, None)
    assert texts(folder) == {"The lighthouse keeper opened the letter.txt": TEXT}
    assert (written.opening, written.words) == ("The lighthouse keeper opened the letter", 10)
    assert folder.read(KEEPER) == (written, TEXT)


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no such modes.")
def test_only_the_owner_may_read_anything(folder: DocumentFolder) -> None:
    folder.write(Entry(KEEPER), TEXT, None)
    folder.put_in_bin(KEEPER, True)
    for path in [folder.folder, *folder.folder.rglob("*")]:
        assert stat.S_IMODE(path.stat().st_mode) == (0o700 if path.is_dir() else 0o600), path


def test_the_file_follows_the_title(folder: DocumentFolder) -> None:
    first = folder.write(Entry(KEEPER), "The", None)
    second = folder.write(Entry(KEEPER), "The sea", first.digest)
    assert list(texts(folder)) == ["The sea.txt"]
    folder.write(Entry(KEEPER, title="Storm: a/b"), "The sea", second.digest)
    assert list(texts(folder)) == ["Storm a b.txt"]


def test_a_title_of_long_characters_is_a_file_name(folder: DocumentFolder) -> None:
    """Sixty characters of four bytes leave fifteen of a name's 255 bytes."""
    folder.write(Entry(KEEPER, title="𠮷" * 70), "The sea", None)
    assert list(texts(folder)) == ["𠮷" * 60 + ".txt"]


def test_two_documents_of_one_title_have_two_files(folder: DocumentFolder) -> None:
    folder.write(Entry(KEEPER, title="Letter"), "one", None)
    other = folder.write(Entry(OTHER, title="letter"), "two", None)
    folder.write(Entry(OTHER, title="letter"), "two more", other.digest)
    assert texts(folder) == {"Letter.txt": "one", "letter (2).txt": "two more"}


@pytest.mark.parametrize("title", ["../../etc/passwd", "..", "CON", "a\0b", "/", "  ", ".hidden", "x" * 500, "🦊"])
def test_no_title_leads_out_of_the_folder(folder: DocumentFolder, title: str) -> None:
    folder.write(Entry(KEEPER, title=title), TEXT, None)
    (name,) = texts(folder)
    assert not name.startswith(".") and len(name) < 80
    assert folder.read(KEEPER)[1] == TEXT


@pytest.mark.parametrize("id", ["../../../x", "3fa9c2d1/../x", "", "A" * 20, "3fa9c2d1\n"])
def test_no_id_leads_out_of_the_folder(folder: DocumentFolder, id: str) -> None:
    for attempt in (lambda: folder.read(id), lambda: folder.remove(id), lambda: folder.write(Entry(id), "x", None)):
        with pytest.raises(InputError, match="UUID"):
            attempt()


def test_a_note_that_names_another_folders_file_is_not_believed(folder: DocumentFolder, tmp_path: Path) -> None:
    (tmp_path / "secret.txt").write_text("secret")
    (folder.notes / f"{KEEPER}.json").write_text(json.dumps({"id": KEEPER, "file": "../secret.txt"}))
    with pytest.raises(InputError, match="no longer"):
        folder.read(KEEPER)
    assert folder.entries() == []


# ---------------------------------------------------------------- two writers


def test_a_text_that_was_changed_elsewhere_is_not_replaced(folder: DocumentFolder) -> None:
    first = folder.write(Entry(KEEPER), TEXT, None)
    folder.write(Entry(KEEPER), TEXT + "One.", first.digest)
    with pytest.raises(Changed, match="changed elsewhere"):
        folder.write(Entry(KEEPER), TEXT + "Two.", first.digest)
    with pytest.raises(Changed, match="changed elsewhere"):
        folder.write(Entry(KEEPER), "As new.", None)
    assert folder.read(KEEPER)[1] == TEXT + "One."


def test_another_programs_change_counts_as_well(folder: DocumentFolder) -> None:
    first = folder.write(Entry(KEEPER, private=[[0, 3]]), TEXT, None)
    file = folder.folder / first.file
    file.write_text("Mended in another program 🦊.\n", "utf-8")
    with pytest.raises(Changed):
        folder.write(Entry(KEEPER), TEXT + "more", first.digest)
    entry, text = folder.read(KEEPER)
    assert text == "Mended in another program 🦊.\n"
    assert entry.opening == "Mended in another program 🦊."
    assert entry.private == [[0, 30]]  # in UTF-16 units: where the private words are is not known any more
    assert folder.write(Entry(KEEPER), "On.", entry.digest).words == 1


def test_a_deleted_file_is_not_written_again_in_silence(folder: DocumentFolder) -> None:
    first = folder.write(Entry(KEEPER), TEXT, None)
    (folder.folder / first.file).unlink()
    with pytest.raises(Changed, match="no longer there"):
        folder.write(Entry(KEEPER), TEXT + "more", first.digest)
    assert folder.entries() == []


def test_of_many_writers_at_once_one_wins_and_the_others_get_an_error(folder: DocumentFolder) -> None:
    base = folder.write(Entry(KEEPER), TEXT, None).digest
    told: list[str] = []

    def write(number: int) -> None:
        server = DocumentFolder(folder.folder)  # as another process has it: only the lock file is shared
        try:
            server.write(Entry(KEEPER), f"{TEXT}{number}", base)
            told.append("written")
        except Changed:
            told.append("changed")

    threads = [threading.Thread(target=write, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(told) == ["changed"] * 7 + ["written"]


def test_a_crash_while_writing_leaves_the_old_text(folder: DocumentFolder, monkeypatch: pytest.MonkeyPatch) -> None:
    first = folder.write(Entry(KEEPER), TEXT, None)

    def full(_: int) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", full)
        with pytest.raises(OSError, match="No space"):
            folder.write(Entry(KEEPER), "New.", first.digest)
    assert folder.read(KEEPER)[1] == TEXT
    assert not list(folder.folder.rglob("*.tmp"))


@pytest.mark.parametrize("step", range(1, 5))
def test_a_crash_after_any_step_loses_no_text(
    folder: DocumentFolder, monkeypatch: pytest.MonkeyPatch, step: int
) -> None:
    """Writing renames a text, a note, the text to its new name, and its note: after each, a text can be found again."""
    first = folder.write(Entry(KEEPER), "Old.", None)
    done, replace = 0, Path.replace

    def stop_after(source: Path, target: Path) -> Path:
        nonlocal done
        done += 1
        if done > step:
            raise SystemExit
        return replace(source, target)

    with monkeypatch.context() as patch:
        patch.setattr(Path, "replace", stop_after)
        with suppress(SystemExit):
            folder.write(Entry(KEEPER), "New.", first.digest)
    found = DocumentFolder(folder.folder)
    assert [found.read(entry.id)[1] for entry in found.entries()] == ["New."]


# ---------------------------------------------------------------- files from elsewhere


def test_a_text_file_put_into_the_folder_becomes_a_document(folder: DocumentFolder) -> None:
    (folder.folder / "Notes.md").write_text("# Notes\n", "utf-8")
    (folder.folder / "picture.png").write_bytes(b"\x89PNG")
    (folder.folder / ".hidden.txt").write_text("no")
    (folder.folder / "link.txt").symlink_to("/etc/passwd")
    (entry,) = folder.entries()
    assert (entry.title, entry.file, entry.words) == ("Notes", "Notes.md", 2)
    assert folder.entries()[0].id == entry.id
    folder.write(Entry(entry.id, title="Notes"), "# Notes\nmore", entry.digest)
    assert (folder.folder / "Notes.md").read_text("utf-8") == "# Notes\nmore"


def test_a_file_renamed_in_the_folder_is_the_same_document(folder: DocumentFolder) -> None:
    first = folder.write(Entry(KEEPER, private=[[0, 3]]), TEXT, None)
    (folder.folder / first.file).rename(folder.folder / "Letter.txt")
    (entry,) = folder.entries()
    assert (entry.id, entry.title, entry.private) == (KEEPER, "Letter", [[0, 3]])


@pytest.mark.parametrize(
    ("data", "text"),
    [
        ("naïve “quotes”".encode("cp1252"), "naïve “quotes”"),
        ("\ufeffmark".encode(), "mark"),
        ("größer".encode("utf-16"), "größer"),
        (b"\xff\xff\x00", "ÿÿ\0"),
        (b"", ""),
    ],
)
def test_text_of_other_programs_is_read_in_its_own_code(folder: DocumentFolder, data: bytes, text: str) -> None:
    (folder.folder / "Their.txt").write_bytes(data)
    (entry,) = folder.entries()
    assert folder.read(entry.id)[1] == text


@settings(max_examples=40)
@given(st.text(st.characters(codec="utf-8")), st.text(max_size=60))
def test_what_is_written_is_read_again(tmp_path_factory: pytest.TempPathFactory, text: str, title: str) -> None:
    folder = DocumentFolder(tmp_path_factory.mktemp("d"))
    written = folder.write(Entry(KEEPER, title=title), text, None)
    assert folder.read(KEEPER)[1] == text.removeprefix("\ufeff")
    assert DocumentFolder(folder.folder).entries() == [written]


# ---------------------------------------------------------------- the bin


def test_the_bin_keeps_a_document_until_it_is_deleted(folder: DocumentFolder) -> None:
    folder.write(Entry(KEEPER, title="Letter"), TEXT, None)
    folder.put_in_bin(KEEPER, True)
    assert texts(folder) == {}
    assert folder.entries()[0].binned
    folder.write(Entry(OTHER, title="Letter"), "Another.", None)
    folder.put_in_bin(KEEPER, False)
    assert texts(folder) == {"Letter.txt": "Another.", "Letter (2).txt": TEXT}
    folder.remove(KEEPER)
    assert [entry.id for entry in folder.entries()] == [OTHER]


# ---------------------------------------------------------------- over HTTP


@pytest.fixture
def client(tmp_path: Path) -> TestClient:
    app = FastAPI()
    format_errors(app)
    add_routes(app, DocumentFolder(tmp_path / "documents"))
    return TestClient(app)


RECORD = {
    "id": KEEPER, "title": "", "text": TEXT, "base": None, "caret": [3, 3], "private": [[0, 3]], "keys": {"typed": 9},
    "stores": ["default"], "background": "Anna asks when.", "created": 1, "changed": 2, "binned": None,
}  # fmt: skip


def test_nothing_is_kept_as_files_before_the_writer_chooses_it(client: TestClient, tmp_path: Path) -> None:
    said = client.get("/api/documents").json()
    assert said == {"kept": "browser", "folder": str(tmp_path / "documents"), "documents": [], "problems": []}
    assert not (tmp_path / "documents").exists()
    client.post("/api/documents/keep", json={"where": "files"})
    assert client.get("/api/documents").json()["kept"] == "files"
    client.post("/api/documents/keep", json={"where": "browser"})
    assert client.get("/api/documents").json()["kept"] == "browser"


def test_a_document_goes_over_http_and_comes_back(client: TestClient) -> None:
    client.post("/api/documents/keep", json={"where": "files"})
    written = client.post("/api/documents/write", json=RECORD).json()
    read = client.get(f"/api/documents/{KEEPER}").json()
    assert read == {**written, "text": TEXT}
    assert (read["caret"], read["private"], read["keys"], read["words"]) == ([3, 3], [[0, 3]], {"typed": 9}, 10)
    assert read["stores"] == ["default"]
    assert read["background"] == "Anna asks when."
    conflict = client.post("/api/documents/write", json={**RECORD, "text": "Mine."})
    assert (conflict.status_code, conflict.json()["changed"]) == (409, True)
    client.post("/api/documents/bin", json={"id": KEEPER, "on": True})
    assert client.get("/api/documents").json()["documents"][0]["binned"]
    client.post("/api/documents/remove", json={"id": KEEPER})
    gone = client.get(f"/api/documents/{KEEPER}")
    assert (gone.status_code, gone.json()["message"][:16]) == (409, "This document is")


def test_five_megabytes_fit_and_forty_arerefused(client: TestClient) -> None:
    big = {**RECORD, "text": "word " * 1_000_000}
    assert client.post("/api/documents/write", json=big).json()["words"] == 1_000_000
    refused = client.post("/api/documents/write", json={**RECORD, "text": "x" * (33 << 20)})
    assert (refused.status_code, refused.json()["message"]) == (413, "The request is larger than 32,768 kB.")


def test_a_field_that_is_missing_is_named(client: TestClient) -> None:
    refused = client.post("/api/documents/write", json={key: RECORD[key] for key in RECORD if key != "base"})
    assert (refused.status_code, refused.json()["message"]) == (422, "base is missing.")
