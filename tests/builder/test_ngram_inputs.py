"""Input that changes between two builds: each file that changed, came or went costs itself, and the bytes are those of
a build from scratch."""

from __future__ import annotations

import json
import os
import random
from collections.abc import Callable
from pathlib import Path

import pytest

import ngram_builder
from core.errors import InputError
from ngram_builder import inputs, readers
from ngram_builder.pipeline import BuildReport
from tests.ngram_tools import Noting, WordTokenizer

pytestmark = pytest.mark.usefixtures("small_process")


@pytest.fixture
def corpus(tmp_path: Path) -> Path:
    folder = tmp_path / "corpus"
    folder.mkdir()
    for name in "abcde":
        (folder / f"{name}.jsonl").write_text(shard(name))
    return folder


def shard(seed: str) -> str:
    rng = random.Random(seed)
    words = [str(min(int(rng.expovariate(0.2)), 63)) for _ in range(400)]
    lines = [json.dumps({"text": " ".join(words[i : i + 20])}) for i in range(0, 400, 20)]
    return "\n".join([*lines, "broken\n"])


def build(corpus: Path, **options: object) -> tuple[BuildReport, list[str]]:
    """Builds beside the corpus and keeps the work. Returns the report, and the shards whose texts were encoded."""
    tokenizer = Noting()
    options = {"max_bad": 0.5, "keep": True} | options
    report = ngram_builder.build([corpus], corpus.with_name("s.ngram"), tokenizer, **options)
    encoded = set(tokenizer.texts)
    return report, [path.stem for path in sorted(corpus.iterdir()) if set(texts(path)) & encoded]


def texts(path: Path) -> list[str]:
    return list(readers.documents(path, lambda _: None))


def assert_as_from_scratch(corpus: Path, report: BuildReport) -> None:
    whole = corpus.with_name("whole.ngram")
    expected = ngram_builder.build([corpus], whole, WordTokenizer(), max_bad=0.5)
    assert corpus.with_name("s.ngram").read_bytes() == whole.read_bytes()
    assert (report.documents, report.tokens, report.damage) == (expected.documents, expected.tokens, expected.damage)


def change(corpus: Path) -> None:
    (corpus / "b.jsonl").write_text((corpus / "b.jsonl").read_text().replace(" 1 ", " 2 "))  # of the same size


def touch(corpus: Path) -> None:
    os.utime(corpus / "b.jsonl", ns=(1, 1))


def add(corpus: Path) -> None:
    (corpus / "bb.jsonl").write_text(shard("new"))


def remove(corpus: Path) -> None:
    (corpus / "b.jsonl").unlink()


def move(corpus: Path) -> None:
    (corpus / "folder").mkdir()
    (corpus / "b.jsonl").rename(corpus / "folder" / "b.jsonl")


def copy(corpus: Path) -> None:
    (corpus / "copy.jsonl").write_bytes((corpus / "b.jsonl").read_bytes())


@pytest.mark.parametrize(
    ("changed", "read"), [(change, ["b"]), (touch, []), (add, ["bb"]), (remove, []), (move, []), (copy, ["b", "copy"])]
)
def test_only_what_changed_is_read_again(corpus: Path, changed: Callable[[Path], None], read: list[str]) -> None:
    assert build(corpus)[1] == list("abcde")
    assert build(corpus)[1] == []
    changed(corpus)
    report, encoded = build(corpus)
    assert encoded == read
    assert_as_from_scratch(corpus, report)


def test_a_touched_file_is_known_by_its_stamp_from_then_on(corpus: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    build(corpus)
    touch(corpus)
    build(corpus)
    monkeypatch.setattr(inputs, "digest", lambda *_: "")
    assert build(corpus)[1] == []


def test_work_is_removed_unless_it_is_to_be_kept(corpus: Path) -> None:
    work = corpus.with_name(".s.ngram.work")
    build(corpus)
    remove(corpus)
    build(corpus)
    assert len(list(work.glob("part-*"))) == 4
    assert not (work / "ranges").exists()
    build(corpus, keep=False)
    assert not work.exists()


def test_small_files_share_parts_and_a_changed_one_costs_its_part(
    corpus: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(inputs, "_MOST", 3)
    build(corpus)
    assert len(list(corpus.with_name(".s.ngram.work").glob("part-*"))) == 3
    (corpus / "a.jsonl").write_text(shard("other"))
    report, encoded = build(corpus)
    assert encoded == ["a", "b"]
    assert_as_from_scratch(corpus, report)


def test_a_build_that_ended_in_the_middle_keeps_its_parts_when_the_input_changes(corpus: Path) -> None:
    class Ending(Noting):
        def encode(self, text: str) -> list[int]:
            if len(self.texts) == 50:
                raise InputError("Stop.")
            return super().encode(text)

    with pytest.raises(InputError, match=r"Stop\."):
        ngram_builder.build([corpus], corpus.with_name("s.ngram"), Ending(), max_bad=0.5, workers=1)
    (corpus / "a.jsonl").write_text(shard("other"))
    report, encoded = build(corpus)
    assert encoded == ["a", "c", "d", "e"]
    assert_as_from_scratch(corpus, report)


def test_a_file_that_changes_while_it_is_read_is_read_again(corpus: Path) -> None:
    class Changing(WordTokenizer):
        def encode(self, text: str) -> list[int]:
            os.utime(corpus / "b.jsonl")
            return super().encode(text)

    ngram_builder.build([corpus], corpus.with_name("s.ngram"), Changing(), max_bad=0.5, keep=True)
    assert build(corpus)[1] == ["b"]
