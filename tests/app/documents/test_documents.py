"""Documents as files: plain text that other programs may touch; two writers never replace each other's words."""

from __future__ import annotations

import json
import os
import stat
import sys
import threading
import unicodedata
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from fastapi import FastAPI
from fastapi.testclient import TestClient
from hypothesis import given, settings
from hypothesis import strategies as st

from app.documents.folder import Changed, DocumentFolder, Entry
from app.documents.notes import MOST_BACKGROUND, MOST_TITLE
from app.web.routes.documents import add_routes
from app.wire.refusals import format_errors
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


def case_ignored(patch: pytest.MonkeyPatch, folder: Path, keeps_name: bool) -> None:
    """Makes a folder ignore case, as on a Mac and on Windows. `keeps_name`: a file that is renamed to its own name in
    other letters keeps the old one, as on Linux."""

    def own(path: Any) -> Any:
        if isinstance(path, int) or folder not in Path(path).parents:
            return path
        path = Path(path)
        there = path.parent.iterdir() if path.parent.is_dir() else ()
        return next((one for one in there if one.name.casefold() == path.name.casefold()), path)

    for name in ("stat", "lstat", "open", "unlink"):
        real = getattr(os, name)
        patch.setattr(os, name, lambda path, *args, real=real, **more: real(own(path), *args, **more))
    replace = os.replace

    def renamed(source: Any, target: Any) -> None:
        there = own(target)
        if there == own(source):
            replace(there, there if keeps_name else target)
        else:
            replace(own(source), there)

    patch.setattr(os, "replace", renamed)


IGNORING = pytest.mark.parametrize("disk", ["case counts", "case is ignored", "and a name kept"])


@pytest.fixture
def on_disk(folder: DocumentFolder, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    return lambda disk: None if disk == "case counts" else case_ignored(monkeypatch, folder.folder, "kept" in disk)


@IGNORING
@pytest.mark.parametrize("other", ["The Lighthouse", "the lighthouse", "The lighthouse (2)", "The lighthouse."])
def test_a_title_in_other_letters_is_the_files_name(
    folder: DocumentFolder, on_disk: Callable[[str], None], disk: str, other: str
) -> None:
    on_disk(disk)
    first = folder.write(Entry(KEEPER, title="The lighthouse"), TEXT, None)
    written = folder.write(Entry(KEEPER, title=other), TEXT, first.digest)
    assert texts(folder) == {f"{other.rstrip('.')}.txt": TEXT}
    assert folder.read(KEEPER) == (written, TEXT)
    assert DocumentFolder(folder.folder).entries() == [written]


@IGNORING
def test_a_title_in_other_letters_takes_no_other_documents_place(
    folder: DocumentFolder, on_disk: Callable[[str], None], disk: str
) -> None:
    on_disk(disk)
    folder.write(Entry(OTHER, title="Caf\u00e9"), "Another.", None)
    first = folder.write(Entry(KEEPER, title="Tea"), TEXT, None)
    for title in ("CAFE\u0301", "cafe\u0301", "caf\u00e9"):
        first = folder.write(Entry(KEEPER, title=title), TEXT, first.digest)
        name = unicodedata.normalize("NFC", title)
        assert texts(folder) == {"Caf\u00e9.txt": "Another.", f"{name} (2).txt": TEXT}
    folder.put_in_bin(OTHER, True)
    first = folder.write(Entry(KEEPER, title="Caf\u00e9"), TEXT, first.digest)
    folder.put_in_bin(OTHER, False)
    assert sorted(texts(folder).values()) == sorted(["Another.", TEXT])


@IGNORING
def test_a_file_that_another_program_renames_to_other_letters_is_the_same_document(
    folder: DocumentFolder, on_disk: Callable[[str], None], disk: str
) -> None:
    folder.write(Entry(KEEPER, title="The lighthouse", private=[[0, 3]]), TEXT, None)
    (folder.folder / "The lighthouse.txt").rename(folder.folder / "The Lighthouse.txt")
    on_disk(disk)
    (entry,) = folder.entries()
    assert (entry.id, entry.title, entry.private, entry.unsure) == (KEEPER, "The Lighthouse", [[0, 3]], False)
    folder.write(entry, TEXT + "More.", entry.digest)
    assert texts(folder) == {"The Lighthouse.txt": TEXT + "More."}


NAMES = {
    "../../etc/passwd": "etc passwd", "..": "Untitled", "/": "Untitled", "a\\b/c:d": "a b c d", "  ": "Untitled",
    ".hidden": "hidden", "x" * 500: "x" * 60, "🦊": "Untitled", "🦊 and 👩‍👩‍👧 ❤️": "and",
    "a\0b\x07c\x7fd\u0085e\nf": "a b c d e f",
    "[draft] {1} <b>": "draft 1 b", "Storm. . .": "Storm", "Storm\u00a0 ": "Storm", "a\u202eb": "a b", "\u0301x": "x",
    "CON": "Untitled", "nul.tar.gz": "Untitled", "Com1": "Untitled", "LPT³": "Untitled", "aux .b": "Untitled",
    "Console": "Console", "~$*?|\"": "Untitled", "-rf": "-rf",
    "हिन्दी की किताब": "हिन्दी की किताब", "ภาษาไทยที่รัก": "ภาษาไทยที่รัก", "தமிழ் நூல்": "தமிழ் நூல்",
    "الْعَرَبِيَّةُ": "الْعَرَبِيَّةُ",
    "می\u200cخواهم": "می\u200cخواهم", "Tie\u0302\u0301ng Vie\u0323\u0302t": "Ti\u1ebfng Vi\u1ec7t",
    "日本語、二": "日本語 二",
    "x" * 59 + "q\u0323\u0307z": "x" * 59, "𠮷" * 70: "𠮷" * 60,  # four bytes each, of a name's 255
}  # fmt: skip


def test_a_title_of_any_letters_is_a_file_name_in_the_folder(folder: DocumentFolder) -> None:
    for title, name in NAMES.items():
        written = folder.write(Entry(KEEPER, title=title), TEXT, None)
        assert texts(folder) == {unicodedata.normalize("NFC", name) + ".txt": TEXT}
        folder.write(Entry(KEEPER, title=title), TEXT + "More.", written.digest)
        assert list(texts(folder).values()) == [TEXT + "More."], title
        assert DocumentFolder(folder.folder).read(KEEPER)[0].title == title
        folder.remove(KEEPER)


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


@pytest.mark.parametrize("name", ["Notes [draft] #3.md", "हिन्दी 🦊.txt", "y" * 240 + ".txt", "a (2).txt"])
def test_a_name_that_another_program_gave_stays(folder: DocumentFolder, name: str) -> None:
    (folder.folder / name).write_text("one", "utf-8")
    client = client_of(folder)
    (shown,) = client.get("/api/documents").json()["documents"]
    record = {**RECORD, "id": shown["id"], "title": shown["title"], "text": "two", "base": shown["revision"]}
    assert client.post("/api/documents/write", json=record).status_code == 200
    assert [(path.name, path.read_text()) for path in folder.folder.iterdir() if path.is_file()] == [(name, "two")]


# ---------------------------------------------------------------- texts that are odd

ODD = [
    "\ufefftext", "\ufeff\ufeff", "\ufeff", "a\ufeffb", "\ufffe", "\uffff", "a\0b", "\0", "\x1a",
    "a\u2028b\u2029c", "a\x85b\x0bc\x0cd",
    "\n", "\n\n a", "a ", "e\u0301", "\u00e9", "\U0001f98a", "ÿþ", "þÿ", "ï»¿a", "\u200b", "\ue000", "\U0010ffff", "",
]  # fmt: skip
LINES = ["a\r\nb\r\n", "a\rb\r", "a\r\nb\n", "\r", "\r\r\n", "\ufeffa\r\nb"]


@settings(max_examples=40)
@given(st.text(st.characters(codec="utf-8")) | st.sampled_from(ODD), st.text(max_size=60))
def test_what_is_written_is_read_again(tmp_path_factory: pytest.TempPathFactory, text: str, title: str) -> None:
    folder = DocumentFolder(tmp_path_factory.mktemp("d"))
    written = folder.write(Entry(KEEPER, title=title), text, None)
    lines = text.replace("\r\n", "\n").replace("\r", "\n")
    assert folder.read(KEEPER)[1] == lines
    assert DocumentFolder(folder.folder).entries() == [written]
    (folder.notes / f"{KEEPER}.json").unlink()  # also where nothing but the file is left
    (entry,) = folder.entries()
    assert folder.read(entry.id)[1] == lines


@pytest.mark.parametrize("text", LINES)
def test_lines_end_as_in_the_field_and_private_ranges_move_with_them(folder: DocumentFolder, text: str) -> None:
    text = f"🦊{text}secret"
    start, lines = len(text) - 5, text.replace("\r\n", "\n").replace("\r", "\n")  # in UTF-16 units
    written = folder.write(Entry(KEEPER, title="Odd", private=[[start, start + 6]]), text, None)
    assert folder.read(KEEPER) == (written, lines)
    assert written.private == [[len(lines) - 5, len(lines) + 1]]


@pytest.mark.parametrize("data", [*(text.encode() for text in [*ODD, *LINES]), b"na\xefve", "größer".encode("utf-16")])
def test_a_file_whose_text_did_not_change_keeps_its_bytes(folder: DocumentFolder, data: bytes) -> None:
    (folder.folder / "Their.txt").write_bytes(data)
    (entry,) = folder.entries()
    written = folder.write(Entry(entry.id, title="Mine"), folder.read(entry.id)[1], entry.digest)
    assert (folder.folder / "Mine.txt").read_bytes() == data
    assert written.digest == entry.digest


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (b"a\r\nb\r\n", b"a\r\nb\r\nMore.\r\n"),
        (b"a\rb\r", b"a\rb\rMore.\r"),
        (b"a\nb\n", b"a\nb\nMore.\n"),
        (b"\xef\xbb\xbfa\r\n", b"\xef\xbb\xbfa\r\nMore.\r\n"),
    ],
)
def test_a_file_keeps_the_line_ends_of_its_program(folder: DocumentFolder, before: bytes, after: bytes) -> None:
    (folder.folder / "Their.txt").write_bytes(before)
    (entry,) = folder.entries()
    written = folder.write(entry, folder.read(entry.id)[1] + "More.\n", entry.digest)
    assert (folder.folder / "Their.txt").read_bytes() == after
    assert folder.entries() == [written]


# ---------------------------------------------------------------- notes of a newer version


def test_what_a_newer_version_wrote_stays_in_its_note_and_a_line_says_so(folder: DocumentFolder) -> None:
    note = folder.notes / f"{KEEPER}.json"
    written = folder.write(Entry(KEEPER, title="Letter"), TEXT, None)
    newer = {"version": 2, "mood": {"deep": [1, None, "é"]}, "pages": 3}
    note.write_text(json.dumps(json.loads(note.read_bytes()) | newer))
    client = client_of(folder)
    (problem,) = client.get("/api/documents").json()["problems"]
    assert problem["message"].startswith("“Letter” was saved by a newer Polydraft.")
    record = {**RECORD, "title": "Mail", "text": "Another text.", "base": written.digest}
    assert "mood" not in client.post("/api/documents/write", json=record).json()
    client.post("/api/documents/bin", json={"id": KEEPER, "on": True})
    (folder.bin / "Mail.txt").write_text("Changed elsewhere.")
    client.get("/api/documents")
    kept = json.loads(note.read_bytes())
    assert {name: kept[name] for name in newer} == newer
    assert (kept["title"], kept["background"]) == ("Mail", RECORD["background"])


def test_a_note_that_only_a_newer_version_can_read_says_so(folder: DocumentFolder) -> None:
    folder.write(Entry(KEEPER, title="Letter"), TEXT, None)
    note = folder.notes / f"{KEEPER}.json"
    note.write_text(json.dumps(json.loads(note.read_bytes()) | {"version": 2, "caret": "end"}))
    (problem,) = folder.listing().problems
    assert "is one of a newer Polydraft. Update this one." in problem.message


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


def client_of(folder: DocumentFolder) -> TestClient:
    app = FastAPI()
    format_errors(app)
    add_routes(app, folder)
    return TestClient(app)


@pytest.fixture
def client(tmp_path: Path) -> TestClient:
    return client_of(DocumentFolder(tmp_path / "documents"))


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
    assert (gone.status_code, gone.json()["message"][:16]) == (404, "This document is")


@pytest.mark.parametrize("letter", ["a", "語", "🦊", "\x01"])
def test_a_background_has_one_limit_in_the_pages_unit(client: TestClient, letter: str) -> None:
    client.post("/api/documents/keep", json={"where": "files"})
    most = MOST_BACKGROUND // (len(letter.encode("utf-16-le")) // 2)
    record = {**RECORD, "background": letter * most}
    assert client.post("/api/documents/write", json=record).status_code == 200
    assert client.get(f"/api/documents/{KEEPER}").json()["background"] == letter * most
    refused = client.post("/api/documents/write", json={**record, "background": letter * (most + 1)})
    assert refused.status_code == 422
    assert "262" in refused.json()["message"]


def test_a_title_of_any_files_name_fits(client: TestClient) -> None:
    assert client.post("/api/documents/write", json={**RECORD, "title": "x" * MOST_TITLE}).status_code == 200
    refused = client.post("/api/documents/write", json={**RECORD, "title": "x" * (MOST_TITLE + 1)})
    assert (refused.status_code, refused.json()["message"]) == (422, "title is longer than 1000 characters.")
