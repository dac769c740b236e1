"""Private text in documents kept as files: whatever other programs do to the files, no private text becomes public."""

from __future__ import annotations

import shutil
import time
from pathlib import Path

import pytest

from app.documents import folder as documents
from app.documents.folder import DocumentFolder, Entry
from app.documents.notes import units
from tests.app.documents.test_documents import KEEPER, OTHER, client, folder

__all__ = ["client", "folder"]  # fixtures

SECRET = "Nobody else may know that the key is under the mat."
TEXT = f"Dear 🦊,\n{SECRET}\nYours."
START = units(TEXT[: TEXT.index(SECRET)])
PRIVATE = [[START, START + units(SECRET)]]
EDITED = TEXT.replace("may know", "shall know")
UNRELATED = "Heat the oil in a pan, add the onions and cook until they are soft."
DAY = 86_400_000  # ms


def private_letter(folder: DocumentFolder) -> Path:
    """A document with one private sentence, in its file."""
    return folder.folder / folder.write(Entry(KEEPER, title="Letter", private=[*PRIVATE]), TEXT, None).file


def only(folder: DocumentFolder) -> Entry:
    (entry,) = folder.entries()
    return entry


def by_file(folder: DocumentFolder) -> dict[str, Entry]:
    return {entry.file: entry for entry in folder.entries()}


def whole(text: str) -> list[list[int]]:
    return [[0, units(text)]]


# ---------------------------------------------------------------- what other programs do to a file


def test_a_file_that_was_away_for_a_listing_comes_back_as_it_was(folder: DocumentFolder, tmp_path: Path) -> None:
    file = private_letter(folder)
    before = only(folder)
    file.rename(tmp_path / "away")
    assert folder.entries() == []
    (tmp_path / "away").rename(file)
    assert only(folder) == before
    assert before.private == PRIVATE and not before.unsure


def test_a_file_that_was_edited_while_it_was_away_is_private_as_a_whole(folder: DocumentFolder) -> None:
    file = private_letter(folder)
    file.unlink()
    folder.entries()
    file.write_text(EDITED, "utf-8")
    entry = only(folder)
    assert (entry.id, entry.private, entry.unsure) == (KEEPER, whole(EDITED), True)


@pytest.mark.parametrize("listed", [False, True], ids=["at once", "listed in between"])
def test_a_file_renamed_and_edited_elsewhere_is_private_as_a_whole(folder: DocumentFolder, listed: bool) -> None:
    private_letter(folder).unlink()
    if listed:
        folder.entries()
    (folder.folder / "Post.txt").write_text("Other words altogether.", "utf-8")
    entry = only(folder)
    assert (entry.file, entry.private, entry.unsure) == ("Post.txt", whole("Other words altogether."), True)


def test_a_copy_has_the_private_ranges_of_its_original(folder: DocumentFolder) -> None:
    file = private_letter(folder)
    shutil.copy(file, folder.folder / "Copy.txt")
    found = by_file(folder)
    assert {name: entry.private for name, entry in found.items()} == {"Letter.txt": PRIVATE, "Copy.txt": PRIVATE}
    assert not found["Copy.txt"].unsure


@pytest.mark.parametrize("text", [EDITED, f"PS {SECRET}", UNRELATED], ids=["edited", "a passage", "something else"])
def test_a_new_file_beside_a_private_document_is_private_as_a_whole(folder: DocumentFolder, text: str) -> None:
    private_letter(folder)
    (folder.folder / "New.txt").write_text(text, "utf-8")
    found = by_file(folder)
    assert (found["New.txt"].private, found["New.txt"].unsure) == (whole(text), True)
    assert (found["Letter.txt"].private, found["Letter.txt"].unsure) == (PRIVATE, False)


def test_without_private_text_what_other_programs_write_is_public(folder: DocumentFolder) -> None:
    file = folder.folder / folder.write(Entry(OTHER, title="Recipe"), UNRELATED, None).file
    file.write_text(UNRELATED + " Add salt.", "utf-8")
    (folder.folder / "New.txt").write_text(EDITED, "utf-8")
    assert [(entry.private, entry.unsure) for entry in folder.entries()] == [([], False)] * 2


def test_a_passage_that_was_cut_elsewhere_is_private_in_the_file_to_which_it_was_moved(folder: DocumentFolder) -> None:
    file = private_letter(folder)
    file.write_text("Dear 🦊,\nYours.", "utf-8")
    assert only(folder).private == whole("Dear 🦊,\nYours.")
    (folder.folder / "New.txt").write_text(f"PS {SECRET}", "utf-8")
    assert by_file(folder)["New.txt"].private == whole(f"PS {SECRET}")


@pytest.mark.parametrize("renamed", [False, True], ids=["in its place", "renamed meanwhile"])
@pytest.mark.parametrize("text", ["", UNRELATED], ids=["emptied", "made equal to a public one"])
def test_a_private_document_stays_in_doubt_whatever_its_text_becomes_in_between(
    folder: DocumentFolder, text: str, renamed: bool
) -> None:
    file = private_letter(folder)
    folder.write(Entry(OTHER, title="Recipe"), text, None)
    file.write_text(text, "utf-8")
    assert by_file(folder)["Letter.txt"].unsure
    if renamed:
        file = file.rename(file.with_name("Post.txt"))
        assert by_file(folder)["Post.txt"].unsure
    file.write_text(TEXT, "utf-8")
    assert (by_file(folder)[file.name].private, by_file(folder)[file.name].unsure) == (whole(TEXT), True)


@pytest.mark.parametrize("text", [TEXT, f"{UNRELATED} {SECRET}"], ids=["in its place", "appended"])
def test_private_text_in_the_file_of_another_document_stays_private(folder: DocumentFolder, text: str) -> None:
    file = private_letter(folder)
    other = folder.folder / folder.write(Entry(OTHER, title="Recipe"), UNRELATED, None).file
    if text == TEXT:
        file.replace(other)
    else:
        other.write_text(text, "utf-8")
    assert by_file(folder)["Recipe.txt"].private == (PRIVATE if text == TEXT else whole(text))


@pytest.mark.parametrize("opened", [False, True], ids=["listed first", "opened first"])
def test_an_edited_private_text_that_replaced_another_document_is_private_as_a_whole(
    folder: DocumentFolder, opened: bool
) -> None:
    file = private_letter(folder)
    other = folder.folder / folder.write(Entry(OTHER, title="Recipe"), UNRELATED, None).file
    file.write_text("Other words altogether.", "utf-8")
    file.replace(other)
    if opened:
        assert folder.read(OTHER)[0].private == whole("Other words altogether.")
    entry = only(folder)
    assert (entry.id, entry.private, entry.unsure) == (OTHER, whole("Other words altogether."), True)


def test_a_document_that_comes_back_with_another_text_may_be_the_missing_private_one(folder: DocumentFolder) -> None:
    file = private_letter(folder)
    other = folder.folder / folder.write(Entry(OTHER, title="Recipe"), UNRELATED, None).file
    file.unlink()
    other.unlink()
    folder.entries()
    other.write_text("Other words altogether.", "utf-8")
    assert (only(folder).id, only(folder).private) == (OTHER, whole("Other words altogether."))


def test_other_documents_that_are_changed_while_a_private_one_is_missing_are_private_as_a_whole(
    folder: DocumentFolder,
) -> None:
    other = folder.folder / folder.write(Entry(OTHER, title="Recipe"), UNRELATED, None).file
    private_letter(folder).unlink()
    assert (only(folder).private, only(folder).unsure) == ([], False)
    other.write_text(UNRELATED + " Add salt.", "utf-8")
    assert (only(folder).private, only(folder).unsure) == (whole(UNRELATED + " Add salt."), True)


@pytest.mark.parametrize("text", [TEXT, EDITED], ids=["unchanged", "edited"])
@pytest.mark.parametrize("name", ["Letter.txt", "Post.txt"])
def test_a_file_moved_into_the_bin_by_hand_stays_private(folder: DocumentFolder, name: str, text: str) -> None:
    file = private_letter(folder)
    file.write_text(text, "utf-8")
    file.rename(folder.bin / name)
    entry = only(folder)
    assert entry.binned is not None
    assert entry.private == (PRIVATE if text == TEXT else whole(text))
    assert entry.id == KEEPER or text == EDITED
    (folder.bin / name).rename(file)  # and out of it
    assert (only(folder).binned, only(folder).private) == (None, entry.private)


# ---------------------------------------------------------------- how long, and until when


@pytest.mark.parametrize(("days", "private"), [(89, True), (91, False)])
def test_the_note_of_a_missing_file_is_kept_for_90_days(
    folder: DocumentFolder, monkeypatch: pytest.MonkeyPatch, days: int, private: bool
) -> None:
    file = private_letter(folder)
    file.unlink()
    assert folder.entries() == []
    now = time.time_ns()
    monkeypatch.setattr(documents.time, "time_ns", lambda: now + days * DAY * 1_000_000)
    file.write_text(UNRELATED, "utf-8")
    assert only(folder).private == (whole(UNRELATED) if private else [])


def test_a_document_deleted_in_polydraft_ends_its_note(folder: DocumentFolder) -> None:
    file = private_letter(folder)
    file.write_text("Its passage is gone.", "utf-8")
    folder.entries()
    folder.remove(KEEPER)
    assert sorted(path.name for path in folder.notes.iterdir()) == ["kept", "lock"]
    (folder.folder / "New.txt").write_text(SECRET, "utf-8")
    assert only(folder).private == []


def test_a_missing_private_document_is_a_problem_until_its_note_is_removed(folder: DocumentFolder) -> None:
    private_letter(folder).unlink()
    (problem,) = folder.listing().problems
    assert problem.message.startswith("“Letter” with private text is missing since")
    (folder.folder / "A.txt").write_text("In doubt.", "utf-8")
    assert only(folder).unsure
    folder.set_aside(problem.note)
    assert folder.listing().problems == []
    folder.write(Entry(only(folder).id, title="A"), "In doubt.", only(folder).digest)  # the writer says: not private
    (folder.folder / "B.txt").write_text(UNRELATED, "utf-8")
    found = by_file(folder)
    assert (found["A.txt"].unsure, found["B.txt"].private) == (False, [])


def test_the_note_of_a_document_that_is_there_cannot_be_removed(folder: DocumentFolder) -> None:
    private_letter(folder)
    for note in (f"{KEEPER}.json", "kept", "../Letter.txt", "gone.json"):
        with pytest.raises(documents.InputError, match="list of documents"):
            folder.set_aside(note)
    assert only(folder).private == PRIVATE


def test_the_writer_says_that_a_text_is_not_private(folder: DocumentFolder) -> None:
    private_letter(folder)
    copy = folder.folder / "Copy.txt"
    copy.write_text(EDITED, "utf-8")
    entry = by_file(folder)["Copy.txt"]
    typed = folder.write(Entry(entry.id, title="Copy", private=whole(EDITED)), EDITED + " More.", entry.digest)
    # The writer has typed on, and has said nothing.
    assert (typed.private, typed.unsure) == (whole(EDITED + " More."), True)
    folder.write(Entry(entry.id, title="Copy"), EDITED + " More.", typed.digest)
    copy.rename(folder.folder / "Renamed.txt")
    found = by_file(folder)["Renamed.txt"]
    assert (found.id, found.private, found.unsure) == (entry.id, [], False)


def test_notes_hold_digests_of_private_texts_and_nothing_else_of_them(folder: DocumentFolder) -> None:
    """Beside the opening of a text that is there, as the list shows it."""
    text = f"Open.\n{TEXT}"
    shift = units("Open.\n")
    folder.write(Entry(KEEPER, private=[[start + shift, end + shift] for start, end in PRIVATE]), text, None)
    secret = folder.write(Entry(OTHER, private=whole(SECRET)), SECRET, None)
    (folder.folder / secret.file).unlink()
    folder.entries()
    (folder.folder / "Open.txt").write_text("Open.", "utf-8")
    folder.entries()
    notes = b"".join(path.read_bytes() for path in folder.notes.iterdir()).decode()
    words = [word for word in SECRET.split() if len(word) > 3]
    assert [word for word in words if word in notes] == []
