"""Private text in documents kept as files: whatever other programs do to the files, no private text becomes public."""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from app.documents import folder as documents
from app.documents.folder import DocumentFolder, Entry
from app.documents.private_text import BLOCK, PrivateText, traces, units
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


@pytest.mark.parametrize(
    "text",
    [EDITED, f"One more thing. {SECRET[: 2 * BLOCK]}", SECRET.upper() + SECRET],
    ids=["edited", "a part", "more"],
)
def test_a_new_file_with_a_part_of_a_private_passage_is_private_as_a_whole(folder: DocumentFolder, text: str) -> None:
    private_letter(folder)
    (folder.folder / "Copy.txt").write_text(text, "utf-8")
    (folder.folder / "Recipe.txt").write_text(UNRELATED, "utf-8")
    found = by_file(folder)
    assert (found["Copy.txt"].private, found["Copy.txt"].unsure) == (whole(text), True)
    assert (found["Recipe.txt"].private, found["Recipe.txt"].unsure) == ([], False)
    assert found["Letter.txt"].private == PRIVATE


def test_a_passage_that_was_cut_elsewhere_is_private_in_the_file_to_which_it_was_moved(folder: DocumentFolder) -> None:
    file = private_letter(folder)
    file.write_text("Dear 🦊,\nYours.", "utf-8")
    assert only(folder).private == whole("Dear 🦊,\nYours.")
    folder.write(Entry(KEEPER, title="Letter"), "Dear 🦊,\nYours ever.", only(folder).digest)  # the writer goes on
    (folder.folder / "New.txt").write_text(f"PS {SECRET}", "utf-8")
    (folder.folder / "Recipe.txt").write_text(UNRELATED, "utf-8")
    found = by_file(folder)
    assert found["New.txt"].private == whole(f"PS {SECRET}")
    assert found["Recipe.txt"].private == []


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


def test_other_documents_may_be_changed_while_a_private_one_is_missing(folder: DocumentFolder) -> None:
    other = folder.folder / folder.write(Entry(OTHER, title="Recipe"), UNRELATED, None).file
    private_letter(folder).unlink()
    folder.entries()
    other.write_text(UNRELATED + " Add salt.", "utf-8")
    assert (only(folder).private, only(folder).unsure) == ([], False)


@pytest.mark.parametrize("change", [lambda text: text.replace("\n", "\r\n"), lambda text: " ".join(text.split())])
@pytest.mark.parametrize("cut", [False, True], ids=["its document is there", "it was cut from its document"])
def test_other_line_ends_and_wrapping_do_not_hide_private_text(
    folder: DocumentFolder, change: Callable[[str], str], cut: bool
) -> None:
    poem = "The key\nis under\nthe mat\nand the\ndog is out.\nNobody  may\nknow that\nwe are in."
    text = f"Dear 🦊,\n{poem}\nYours."
    start = units(text[: text.index(poem)])
    entry = folder.write(Entry(KEEPER, title="Letter", private=[[start, start + units(poem)]]), text, None)
    if cut:
        (folder.folder / entry.file).write_text("Yours.", "utf-8")
        folder.entries()
    copied = f"A copy: {change(poem)}"
    (folder.folder / "Copy.txt").write_text(copied, "utf-8", newline="")
    assert by_file(folder)["Copy.txt"].private == whole(copied.replace("\r\n", "\n"))


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


def test_a_document_deleted_in_polydraft_ends_its_note_and_its_digests(folder: DocumentFolder) -> None:
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
    (folder.folder / "B.txt").write_text(UNRELATED, "utf-8")
    found = by_file(folder)
    assert (found["A.txt"].unsure, found["B.txt"].private) == (True, [])


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
    assert typed.unsure  # the writer has typed on, and has said nothing
    folder.write(Entry(entry.id, title="Copy"), EDITED + " More.", typed.digest)
    copy.rename(folder.folder / "Renamed.txt")
    found = by_file(folder)["Renamed.txt"]
    assert (found.id, found.private, found.unsure) == (entry.id, [], False)


def test_notes_hold_digests_of_private_text_and_nothing_else_of_it(folder: DocumentFolder) -> None:
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


# ---------------------------------------------------------------- a thousand documents


def test_many_new_files_are_compared_with_many_private_ones_in_one_reading(
    folder: DocumentFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(20):
        text = f"Secret number {number}, which nobody knows but me."
        folder.write(Entry(f"3fa9c2d1-{number:08}", private=whole(text)), text, None)
    for number in range(100):
        (folder.folder / f"New {number}.txt").write_text(f"Not secret {number}. {UNRELATED}", "utf-8")
    read: list[Path] = []
    read_regular = documents.read_regular
    monkeypatch.setattr(documents, "read_regular", lambda path, most: read.append(path) or read_regular(path, most))
    assert sum(bool(entry.private) for entry in folder.entries()) == 20
    assert len(read) == 120
    folder.entries()
    assert len(read) == 120


# ---------------------------------------------------------------- the search

letters = st.text(st.sampled_from("ab \n🦊."), max_size=80)
words = st.lists(st.integers(0, 9999), min_size=BLOCK).map(lambda numbers: " ".join(map("🦊{}".format, numbers)))


@settings(max_examples=100)
@given(words, letters, letters, st.integers(0, 10_000))
def test_any_part_of_two_blocks_is_found_wherever_it_stands(text: str, before: str, after: str, at: int) -> None:
    known = PrivateText()
    known.add_text(f"Open. {text}", [[6, 6 + units(text)]])
    data, length = text.encode("utf-16-le"), 2 * (2 * BLOCK - 1)
    at = 2 * (at % ((len(data) - length) // 2 + 1))
    part = data[at : at + length].decode("utf-16-le", "surrogatepass")
    assert known.within(before + part + after)
    assert not known.within(before + after)


@settings(max_examples=100)
@given(st.lists(st.text(st.characters(codec="utf-16"), min_size=1, max_size=40), min_size=1, max_size=5), letters)
def test_traces_find_each_whole_sentence(sentences: list[str], around: str) -> None:
    text = "\n".join(sentences)
    known = PrivateText()
    found = traces(text, whole(text))
    known.add_traces(found)
    assert known.within(around + text + around) == bool(found)
    assert not known.within("c" * 100)


def test_one_character_and_empty_ranges_are_no_passages() -> None:
    known = PrivateText()
    known.add_text("a - aaaa", [[0, 1], [2, 3], [4, 8], [5, 5], [90, 99]])
    known.add_traces(traces("a - aaaa", [[0, 1], [2, 3], [4, 8], [5, 5], [90, 99]]))
    assert not known.within("a - aaaa")
    known.add_text("ab", [[0, 2]])
    assert known.within("cab")
