"""Which documents are counted: samples, rules for prose, and text that repeats other text."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import ngram_builder
from core.errors import InputError
from core.ngram import NgramStore
from ngram_builder import inputs, quality, repeats
from ngram_builder.pipeline import BuildReport
from tests.ngram_tools import WordTokenizer, tiny_runs

pytestmark = pytest.mark.usefixtures("small_process")

# Lines of 32 characters and more count as paragraphs.
LINES = [f"{' '.join(str(number) for number in range(start, start + 15))}" for start in range(40)]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "corpus").mkdir()
    return tmp_path / "corpus"


def shard(path: Path, *texts: str) -> None:
    path.write_text("".join(json.dumps({"text": text}) + "\n" for text in texts))


def build(folder: Path, **options: object) -> tuple[BuildReport, bytes]:
    out = folder.with_name("s.ngram")
    report = ngram_builder.build([folder], out, WordTokenizer(), min_count=1, **options)
    return report, out.read_bytes()


# Text that repeats other text


def test_only_the_first_of_equal_documents_is_counted(folder: Path) -> None:
    shard(folder / "a.jsonl", LINES[0], LINES[1], LINES[0])
    shard(folder / "b.jsonl", LINES[1] + "\n", LINES[2])
    report, _ = build(folder, dedup="documents")
    assert (report.documents, report.left_out_by) == (3, {"repeated": 2})
    assert NgramStore.open(folder.with_name("s.ngram")).count([5, 6, 7]) == 3


def test_only_the_first_of_equal_paragraphs_is_counted(folder: Path) -> None:
    shard(folder / "a.jsonl", f"{LINES[0]}\n1 2\n{LINES[1]}", f"{LINES[1]}\n1 2\n {LINES[30]}", LINES[0])
    report, _ = build(folder, dedup="paragraphs")
    assert (report.documents, report.left_out_by) == (2, {"paragraphs": 1, "repeated": 1})
    shard(folder / "a.jsonl", f"{LINES[0]}\n1 2\n{LINES[1]}", f"1 2\n {LINES[30]}")
    assert NgramStore.open(folder.with_name("s.ngram")).count([1, 2]) == 4
    assert build(folder)[0].ngrams == report.ngrams


def test_what_repeats_does_not_depend_on_memory_parts_or_resuming(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(6):
        shard(folder / f"{number}.jsonl", *("\n".join(LINES[i * number % 37 :][:3]) for i in range(1, 8)))
    _, expected = build(folder, dedup="paragraphs")
    monkeypatch.setattr(repeats, "LEAST_UNITS", 5)
    monkeypatch.setattr(repeats, "_PER_UNIT", 1 << 40)
    assert build(folder, dedup="paragraphs")[1] == expected
    monkeypatch.setattr(inputs, "_MOST", 2)
    with tiny_runs(40):
        assert build(folder, dedup="paragraphs", keep=True)[1] == expected
        assert build(folder, dedup="paragraphs", keep=True)[1] == expected


def test_a_removed_shard_gives_back_what_only_repeated_it(folder: Path) -> None:
    shard(folder / "a.jsonl", LINES[0], LINES[1])
    shard(folder / "b.jsonl", LINES[1], LINES[2])
    shard(folder / "c.jsonl", LINES[3])
    build(folder, dedup="documents", keep=True)
    (folder / "a.jsonl").unlink()
    _, changed = build(folder, dedup="documents", keep=True)
    folder.with_name("s.ngram").unlink()
    assert build(folder, work=folder.with_name("other"), dedup="documents")[1] == changed


def test_a_file_that_changed_between_both_readings_is_named(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shard(folder / "a.jsonl", LINES[0])
    find = repeats.find

    def found(*arguments: object) -> None:
        find(*arguments)
        shard(folder / "a.jsonl", LINES[0], LINES[1])

    monkeypatch.setattr(repeats, "find", found)
    with pytest.raises(InputError, match=r"a.jsonl changed while it was read"):
        build(folder, dedup="documents")


# Samples


def test_a_sample_is_the_same_documents_in_any_files(folder: Path) -> None:
    texts = [f"{i % 60} {i // 60} {i * 7 % 61}" for i in range(1000)]
    shard(folder / "a.jsonl", *texts)
    report, _ = build(folder, sample=0.3)
    assert 240 < report.documents < 360
    assert report.left_out_by == {"sample": 1000 - report.documents}
    (folder / "a.jsonl").write_text("")
    for part in range(4):
        shard(folder / f"{part}.jsonl", *texts[part::4])
    again, _ = build(folder, sample=0.3, workers=1)
    assert (again.documents, again.tokens, again.ngrams) == (report.documents, report.tokens, report.ngrams)
    larger, _ = build(folder, sample=0.6)
    assert larger.left_out_by["sample"] < report.left_out_by["sample"]


@pytest.mark.parametrize("sample", [0, -0.1, 1.5])
def test_a_sample_is_a_share(folder: Path, sample: float) -> None:
    shard(folder / "a.jsonl", "1 2")
    with pytest.raises(InputError, match="a share above 0, of at most 1, expected"):
        build(folder, sample=sample)


# Rules

PROSE = """The harbour of our town was built when ships had sails, and its wall is made of grey stone.
A warden keeps the log; she writes down every boat that comes in with the tide.
In winter few of them arrive, so there is time to mend nets and to paint the doors of the sheds.
Children have learned to swim between the two piers for as long as anybody can remember.
When fog hides the light, someone must ring a bell until morning."""


@pytest.mark.parametrize(
    ("rule", "text"),
    [
        ("words", "The words of a text that is too short."),
        ("word-length", "a of to be " * 20),
        ("symbols", PROSE.replace(" t", " #t #")),
        ("symbols", PROSE.replace(" t", " … t")),
        ("bullets", "\n".join(f"- {line}" for line in PROSE.split("\n"))),
        ("ellipses", PROSE.replace(".", "...")),
        ("alphabetic", PROSE + " 2024 -" * 40),
        ("stop-words", "Das Schiff des Kapitäns segelte zum Hafen. " * 10),
        ("repeated-lines", PROSE + "\nThe same line once more, and the same again." * 8),
        ("repeated-paragraphs", PROSE + "\n\nThe same paragraph\nonce more, and the same again." * 8),
        ("repeated-phrases", " ".join(f"Number {i} and then of course" for i in range(30))),
        ("repeated-phrases", " ".join(f"{i} {'and then you may see the ship' if i % 5 else i}" for i in range(60))),
    ],
)
def test_a_text_that_breaks_a_rule_is_found(rule: str, text: str) -> None:
    assert quality.broken(PROSE, list(quality.RULES)) is None
    assert quality.broken(text, [rule]) == rule


def test_rules_are_off_by_default_and_counted(folder: Path) -> None:
    shard(folder / "a.jsonl", "1 2 3", PROSE + " 7 8", "1 2 3 " * 30)
    assert build(folder)[0].left_out_by == {}
    report, _ = build(folder, rules=["gopher"])
    assert (report.documents, report.left_out_by) == (1, {"words": 1, "word-length": 1})
    assert build(folder, rules=["words"])[0].left_out_by == {"words": 1}
    with pytest.raises(InputError, match=r"Rule 'prose' given; gopher \(all\), or some of words, "):
        build(folder, rules=["prose"])


def test_rules_hold_for_empty_texts_and_single_words() -> None:
    for text in ("", " \n", "word", "."):
        assert quality.broken(text, ["words"]) == "words"
        for rule in quality.RULES:
            quality.broken(text, [rule])
