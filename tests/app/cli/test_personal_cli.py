"""`polydraft ngram` for personal stores, end to end, with a tokenizer of plain numbers."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from app.cli import personal as personal_cli
from app.cli.main import app
from core.ngram import NgramStore
from tests.ngram_tools import WordTokenizer

pytestmark = pytest.mark.usefixtures("one_reader")
runner = CliRunner()
TOKENIZER = WordTokenizer(64)


@pytest.fixture(autouse=True)
def data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(personal_cli, "load_tokenizer", lambda name: TOKENIZER)
    folder = tmp_path / "data"
    monkeypatch.setattr(personal_cli, "stores_folder", lambda: folder)
    return folder


def ngram(*arguments: str, status: int = 0) -> str:
    result = runner.invoke(app, ["ngram", *arguments])
    assert result.exit_code == status, result.output
    return result.stdout if status == 0 else result.stderr


def rows(*arguments: str) -> list[dict[str, Any]]:
    return json.loads(ngram(*arguments, "--json"))["rows"]


def test_add_query_and_stats(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("1 2 3 4")
    (tmp_path / "b.md").write_text("1 2 5")
    assert rows("add", str(tmp_path / "a.txt"), str(tmp_path / "b.md"), "--store", "me", "--phrase", "7 8")[0] == {
        "store": "me",
        "files": 2,
        "tokens": 9,
        "damaged": 0,
    }
    found = rows("query", "1 2", "--store", "me")
    assert [row["order"] for row in found] == [3, 2]
    following = {entry["text"]: (entry["count"], list(entry["from"])) for entry in found[0]["continuations"]}
    assert following == {"3": (8, [str(tmp_path / "a.txt")]), "5": (8, [str(tmp_path / "b.md")])}
    assert "a.txt" in ngram("query", "1 2", "--store", "me")
    listed = rows("stats", "--store", "me")[0]
    assert [document["tokens"] for document in listed["documents"]] == [4, 3, 2]
    assert listed["enabled"]
    assert not listed["learning"]
    assert listed["languages"] == {}, "numbers are in no language"
    assert "9 tokens" in ngram("stats", "--store", "me")


def test_forget_a_document_or_a_phrase(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "a.txt").write_text("1 2 3 4")
    monkeypatch.chdir(tmp_path)
    ngram("add", "a.txt", "--store", "me", "--phrase", "7 8 9")

    def forget(*what: str) -> tuple[int, int, int, int]:
        row = rows("forget", *what, "--store", "me")[0]
        return row["documents"], row["passages"], row["occurrences"], row["characters"]

    assert forget("--phrase", "8") == (0, 1, 1, 1)
    assert forget("--phrase", "a.txt") == (0, 0, 0, 0)
    assert "has no document '1 2'" in ngram("forget", "--document", "1 2", "--store", "me", status=1)
    assert forget("--document", "a.txt", "--dry-run") == (1, 1, 0, 7)
    assert "would be forgotten" in ngram("forget", "--phrase", "1 2", "--dry-run", "--store", "me")
    assert "me does not contain the phrase '2 1': nothing was" in ngram("forget", "--phrase", "2 1", "--store", "me")
    assert forget("--document", "a.txt") == (1, 1, 0, 7)  # as it was named, from the same folder
    assert "has no document 'a.txt'" in ngram("forget", "--document", "a.txt", "--store", "me", status=1)
    assert rows("query", "1 2", "--store", "me") == []


@pytest.mark.parametrize(
    "given", [["8"], ["old words"], [], ["--document", "8", "--phrase", "8"], ["8", "--phrase", "8"]]
)
def test_what_is_called_neither_document_nor_phrase_is_not_forgotten(given: list[str]) -> None:
    ngram("add", "--store", "me", "--phrase", "7 8 9")
    said = ngram("forget", *given, "--store", "me", status=1)
    assert "forget --document NAME" in said
    assert "forget --phrase TEXT" in said
    assert rows("stats", "--store", "me")[0]["tokens"] == 3


def test_delete_needs_confirmation_and_works_for_a_damaged_store(data: Path) -> None:
    ngram("add", "--store", "me", "--phrase", "7 8 9")
    assert runner.invoke(app, ["ngram", "delete", "me"], input="n\n").exit_code == 1
    assert rows("query", "7", "--store", "me")
    assert "3 tokens" in runner.invoke(app, ["ngram", "delete", "me"], input="y\n").output
    assert list(data.iterdir()) == []
    (data / "broken.sqlite").write_bytes(b"no database at all")
    assert "broken is deleted" in ngram("delete", "broken", "--yes")
    assert list(data.iterdir()) == []
    assert "no personal store called 'me'" in ngram("delete", "me", "--yes", status=1)


def test_a_command_that_adds_nothing_leaves_no_new_store(tmp_path: Path, data: Path) -> None:
    (tmp_path / "bad.jsonl.zst").write_bytes(b"no export at all")
    assert "Nothing was added" in ngram("import", str(tmp_path / "bad.jsonl.zst"), "--store", "me", status=1)
    ngram("add", str(tmp_path / "missing.txt"), "--store", "me", status=1)
    assert list(data.iterdir()) == []
    ngram("add", "--store", "me", "--phrase", "7 8 9")
    ngram("import", str(tmp_path / "bad.jsonl.zst"), "--store", "me", status=1)
    assert rows("stats", "--store", "me")[0]["tokens"] == 3


def test_a_store_travels(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("1 2 3 4 " * 200)
    ngram("add", str(tmp_path / "a.txt"), "--store", "me", "--phrase", "7 8 9")
    ngram("forget", "--phrase", "7 8", "--store", "me")
    out = tmp_path / "me.jsonl.zst"
    assert rows("export", "--store", "me", "-o", str(out))[0]["documents"] == 2
    for _ in range(2):  # a second time changes nothing
        ngram("import", str(out), "--store", "you")
        assert rows("query", "1 2", "--store", "you") == rows("query", "1 2", "--store", "me")
    assert rows("stats", "--store", "you")[0]["tokens"] == rows("stats", "--store", "me")[0]["tokens"]
    ngram("add", "--store", "third", "--phrase", "30 31")
    ngram("merge", "me", "third", "-o", "all")
    assert rows("stats", "--store", "all")[0]["tokens"] == 803
    assert rows("query", "30", "--store", "all")


def test_a_damaged_export_changes_nothing(tmp_path: Path) -> None:
    ngram("add", "--store", "me", "--phrase", "7 8 9")
    out = tmp_path / "me.jsonl.zst"
    ngram("export", "--store", "me", "-o", str(out))
    whole = out.read_bytes()
    for damaged in (whole[: len(whole) // 2], whole[:-20], b"junk", b"", whole[:20] + b"x" + whole[21:]):
        out.write_bytes(damaged)
        assert "Error" in ngram("import", str(out), "--store", "you", status=1)
        assert "no personal store called 'you'" in ngram("stats", "--store", "you", status=1)


def test_compile_writes_the_same_counts(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("1 2 3 1 2 3 1 2 4 " * 60)
    ngram("add", str(tmp_path / "a.txt"), "--store", "me")
    ngram("compile", "--store", "me", "-o", str(tmp_path / "me.ngram"))
    compiled = NgramStore.open(tmp_path / "me.ngram", TOKENIZER.fingerprint, verify=True)
    assert compiled.count([1, 2, 3]) == 120
    assert compiled.count([2, 4]) == 60
    assert compiled.total([1, 2]) == 180
    ngram("add", "--store", "empty", "--phrase", "1")
    ngram("forget", "--phrase", "1", "--store", "empty")
    assert "empty" in ngram("compile", "--store", "empty", "-o", str(tmp_path / "no.ngram"), status=1)


def test_switches() -> None:
    ngram("add", "--store", "me", "--phrase", "1 2")
    ngram("switch", "off", "--store", "me")
    ngram("switch", "on", "--store", "me", "--learning")
    listed = rows("stats", "--store", "me")[0]
    assert (listed["enabled"], listed["learning"]) == (False, True)
    assert "on or off" in ngram("switch", "maybe", "--store", "me", status=1)


def mailbox(path: Path, *mails: tuple[str, str]) -> str:
    path.write_text(
        "".join(f"From - Mon Jun  3 10:00:00 2024\nFrom: {who}\nSubject: x\n\n{text}\n\n" for who, text in mails)
    )
    return str(path)


def test_of_mail_only_the_given_senders_are_learned(tmp_path: Path) -> None:
    box = mailbox(tmp_path / "All", ("Ann <ann@x.org>", "1 2 3"), ("bob@x.org", "4 5"), ("Ann@X.org", "6 7"))
    result = runner.invoke(app, ["ngram", "add", box, "--store", "me"])
    said = " ".join(result.stderr.split())
    assert "2 of 3 from ann@x.org" in said
    assert "--from ann@x.org" in said
    assert rows("query", "4", "--store", "me")
    result = runner.invoke(app, ["ngram", "add", box, "--store", "me", "--from", "Ann@x.org"])
    assert "senders" not in result.stderr
    assert rows("query", "4", "--store", "me") == []
    assert rows("query", "6", "--store", "me")
    result = runner.invoke(app, ["ngram", "add", box, "--store", "you", "--from", "carl@x.org"])
    assert "None of the 3 mails is from carl@x.org; most are from ann@x.org" in " ".join(result.stderr.split())
    assert "Added 0 files (0 tokens)" in result.stdout


def test_mails_of_others_that_were_added_before_go_when_only_ones_own_are_added(tmp_path: Path) -> None:
    for name, who, text in (
        ("a.eml", "ann@x.org", "1 2"),
        ("b.eml", "bob@x.org", "4 5"),
        ("c.eml", "ann@x.org", "6 7"),
    ):
        (tmp_path / name).write_text(f"From: {who}\nSubject: x\n\n{text}\n")
    assert rows("add", str(tmp_path), "--store", "me")[0]["files"] == 3
    added = rows("add", str(tmp_path), "--store", "me", "--from", "ann@x.org", "--from", "ann@work.example")[0]
    assert (added["files"], added["tokens"]) == (2, 4)
    assert rows("query", "4", "--store", "me") == []
    assert {Path(each["origin"]).name for each in rows("stats", "--store", "me")[0]["documents"]} == {"a.eml", "c.eml"}


def test_a_mailbox_that_is_damaged_and_has_less_of_the_senders_replaces_nothing(tmp_path: Path) -> None:
    sound, other = ("ann@x.org", "6 7"), ("bob@x.org", "4 5")
    box = mailbox(tmp_path / "All", ("ann@x.org", "1 2 3"), other, sound)
    ngram("add", box, "--store", "me", "--from", "ann@x.org")
    mailbox(tmp_path / "All", ("ann@x.org\nContent-Type: text/plain; charset=klingon", "1 2 3"), other, sound)
    result = runner.invoke(app, ["ngram", "add", box, "--store", "me", "--from", "ann@x.org"])
    assert "the store keeps what it has" in " ".join(result.stderr.split())
    assert rows("query", "1", "--store", "me")


def test_a_sender_that_is_empty_is_refused(tmp_path: Path) -> None:
    box = mailbox(tmp_path / "All", ("bob@x.org", "4 5"))
    result = runner.invoke(app, ["ngram", "add", box, "--store", "me", "--from", " "])
    assert result.exit_code != 0
    assert "A sender is empty" in " ".join(result.stderr.split())


def test_a_mail_of_which_nothing_is_learned_is_said_and_replaces_nothing(tmp_path: Path) -> None:
    (tmp_path / "a.eml").write_text("From: ann@x.org\nSubject: x\n\n1 2 3\n")
    ngram("add", str(tmp_path / "a.eml"), "--store", "me")
    (tmp_path / "a.eml").write_text("From: ann@x.org\nContent-Type: application/pkcs7-mime\n\nAAAA\n")
    result = runner.invoke(app, ["ngram", "add", str(tmp_path / "a.eml"), "--store", "me"])
    assert "encrypted" in " ".join(result.stderr.split())
    assert "Added 0 files" in result.stdout
    assert rows("query", "1", "--store", "me")


# ---------------------------------------------------------------- a folder that stays in step


def documents(store: str = "me") -> dict[str, int]:
    """The tokens of each source, by the end of its name."""
    found = dict[str, int]()
    for document in rows("stats", "--store", store)[0]["documents"]:
        name = Path(document["origin"]).name
        found[name] = found.get(name, 0) + document["tokens"]
    return found


@pytest.fixture
def letters(tmp_path: Path) -> Path:
    folder = tmp_path / "letters"
    (folder / "old").mkdir(parents=True)
    (folder / "a.txt").write_text("1 2 3 4")
    (folder / "b.md").write_text("5 6 7")
    (folder / "old" / "c.txt").write_text("8 9")
    return folder


def test_a_folder_that_is_added_again_is_read_where_it_changed_and_what_is_gone_is_forgotten_if_wanted(
    letters: Path,
) -> None:
    first = rows("add", str(letters), "--store", "me")[0]
    assert (first["files"], first["unchanged"], first["gone"]) == (3, 0, 0)
    assert rows("add", str(letters), "--store", "me")[0] == first | {"files": 0, "tokens": 0, "unchanged": 3}

    (letters / "a.txt").write_text("1 2 3 4 5 6")
    (letters / "b.md").unlink()
    (letters / "new.txt").write_text("3 4")
    kept = runner.invoke(app, ["ngram", "add", str(letters), "--store", "me", "--json"])
    assert "1 file is gone or left out (b.md), and the store keeps the text; --yes forgets it." in kept.stderr
    row = json.loads(kept.stdout)["rows"][0]
    assert (row["files"], row["tokens"], row["unchanged"], row["gone"]) == (2, 8, 1, 0)
    assert documents() == {"a.txt": 6, "b.md": 3, "c.txt": 2, "new.txt": 2}

    assert rows("add", str(letters), "--store", "me", "--yes")[0]["gone"] == 1
    assert documents() == {"a.txt": 6, "c.txt": 2, "new.txt": 2}
    assert rows("add", str(letters), "--store", "me", "--yes")[0]["gone"] == 0


def test_what_was_forgotten_is_not_learned_again_with_its_folder(letters: Path) -> None:
    ngram("add", str(letters), "--store", "me")
    ngram("forget", "--document", "a.txt", "--store", "me")  # by the end of its name
    (letters / "a.txt").write_text("1 2 3 4 5")
    assert "1 that you had forgotten left out" in ngram("add", str(letters), "--store", "me")
    assert documents() == {"b.md": 3, "c.txt": 2}
    ngram("add", str(letters / "a.txt"), "--store", "me")  # as asked
    assert documents() == {"b.md": 3, "c.txt": 2, "a.txt": 5}


def test_patterns_and_the_folders_own_lists_leave_files_out_and_are_remembered(letters: Path) -> None:
    (letters / ".gitignore").write_text("*.md\n")
    (letters / "old" / ".gitignore").write_text("!x.md\n")
    (letters / "old" / "x.md").write_text("7 7 7 7")
    (letters / ".git").mkdir()
    (letters / ".git" / "secret.txt").write_text("1")
    (letters / "song.mp3").write_bytes(b"\xff\xfb\x90")
    (letters / "table.ods").write_bytes(b"PK")
    added = runner.invoke(app, ["ngram", "add", str(letters), "--store", "me", "--exclude", "c.*"])
    assert "Note: 2 files of kinds that are not read: .mp3, .ods." in added.stderr
    assert documents() == {"a.txt": 4, "x.md": 4}
    (letters / "old" / "c.txt").write_text("8 8 8 8")
    assert rows("add", str(letters), "--store", "me")[0]["files"] == 0
    (folder,) = rows("stats", "--store", "me")[0]["folders"]
    assert folder == {"path": str(letters), "excluded": ["c.*"], "files": 2, "forgotten": 0, "problems": {}}
    assert "without c.*: 2 files" in ngram("stats", "--store", "me")


def test_a_dry_run_lists_what_would_be_learned_and_writes_nothing(letters: Path, data: Path) -> None:
    listed = ngram("add", str(letters), "--store", "me", "--dry-run")
    assert f"{letters / 'a.txt'}: 7 characters · 1 2 3 4" in listed
    assert "3 files with 15 characters would be learned. Nothing was written." in listed
    assert not [*data.glob("*")]
    ngram("add", str(letters), "--store", "me")
    (letters / "a.txt").unlink()
    assert "0 files" in (again := ngram("add", str(letters), "--store", "me", "--dry-run"))
    assert f"{letters / 'a.txt'}: gone" in again
    assert documents() == {"a.txt": 4, "b.md": 3, "c.txt": 2}


@pytest.mark.parametrize(
    ("command", "flags"),
    [("add --store me", "--watch"), ("add --store me", "--yes"), ("add --store me", "--phrase 1")]
    + [("build -o x.ngram", flags) for flags in ("--fit 1MB", "--memory 2G", "--max-bad 1%")],
)
def test_what_a_dry_run_would_ignore_is_refused(letters: Path, command: str, flags: str) -> None:
    said = ngram(*command.split(), str(letters), "--dry-run", *flags.split(), status=1)
    assert f"{flags.split()[0]} changes nothing with --dry-run" in " ".join(said.split())


def test_a_folder_that_is_watched_is_learned_while_it_changes(letters: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def writes(_: float) -> None:
        if (letters / "later.txt").exists():
            raise KeyboardInterrupt
        (letters / "later.txt").write_text("2 3")
        (letters / "b.md").unlink()

    monkeypatch.setattr("app.cli.adding.time.sleep", writes)
    said = ngram("add", str(letters), "--store", "me", "--watch")
    assert "later.txt: 2 tokens." in said
    assert "Gone:" in said
    assert documents() == {"a.txt": 4, "b.md": 3, "c.txt": 2, "later.txt": 2}


@pytest.mark.parametrize(
    ("name", "left"),
    [
        ("{letters}", {}),
        ("{letters}/old", {"a.txt": 4, "b.md": 3}),
        ("*.txt", {"b.md": 3}),
        ("b.md", {"a.txt": 4, "c.txt": 2}),
    ],
)
def test_a_folder_or_a_pattern_is_forgotten_at_once(letters: Path, name: str, left: dict[str, int]) -> None:
    ngram("add", str(letters), "--store", "me")
    ngram("forget", "--document", name.format(letters=letters), "--yes", "--store", "me")
    assert documents() == left


def test_several_documents_are_not_forgotten_unasked_and_a_name_that_is_not_there_is_an_error(letters: Path) -> None:
    ngram("add", str(letters), "--store", "me")
    assert "add --yes" in ngram("forget", "--document", "*.txt", "--store", "me", status=1)
    assert "has no document 'c.tx'. Similar names: c.txt" in " ".join(
        ngram("forget", "--document", "c.tx", "--store", "me", status=1).split()
    )
    assert len(documents()) == 3


def test_a_folder_that_moved_also_to_another_machine_is_known_by_its_files(letters: Path, tmp_path: Path) -> None:
    ngram("add", str(letters), "--store", "me")
    here = letters.rename(tmp_path / "writing")
    (here / "a.txt").write_text("1 2")
    moved = runner.invoke(app, ["ngram", "add", str(here), "--store", "me", "--json"])
    assert f"{letters} is now {here}." in moved.stderr
    row = json.loads(moved.stdout)["rows"][0]
    assert (row["files"], row["unchanged"], row["gone"]) == (1, 2, 0)
    assert documents() == {"a.txt": 2, "b.md": 3, "c.txt": 2}
    assert [folder["path"] for folder in rows("stats", "--store", "me")[0]["folders"]] == [str(here)]

    ngram("export", "--store", "me", "-o", str(tmp_path / "me.jsonl.zst"))
    there = here.rename(tmp_path / "elsewhere")
    ngram("import", str(tmp_path / "me.jsonl.zst"), "--store", "new")
    ngram("add", str(there), "--store", "new")
    assert documents("new") == {"a.txt": 2, "b.md": 3, "c.txt": 2}


def test_the_senders_are_remembered(tmp_path: Path) -> None:
    mail = "From: {}@example.org\nSubject: x\n\n{}\n"
    (tmp_path / "1.eml").write_text(mail.format("ann", "1 2 3"))
    ngram("add", str(tmp_path / "1.eml"), "--from", "ann@example.org", "--store", "me")
    (tmp_path / "2.eml").write_text(mail.format("bob", "4 5"))
    ngram("add", str(tmp_path / "2.eml"), "--store", "me")
    assert documents() == {"1.eml": 3}
    assert "ann@example.org wrote" in ngram("stats", "--store", "me")
    ngram("add", str(tmp_path / "2.eml"), "--from", "*", "--store", "me")
    assert documents() == {"1.eml": 3, "2.eml": 2}


def test_without_a_name_all_stores_are_listed(letters: Path, data: Path) -> None:
    assert "There is no personal store" in ngram("stats")
    ngram("add", str(letters), "--store", "me")
    (data / "broken.sqlite").write_bytes(b"not a database" * 100)
    broken, me = rows("stats")
    assert (me["store"], me["tokens"], me["sources"]) == ("me", 9, 3)
    assert "broken" in broken["problem"]
    assert "me" in ngram("stats")
