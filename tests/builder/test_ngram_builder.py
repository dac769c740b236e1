"""Readers and the command line: shards of every kind in, also damaged ones, a store out."""

from __future__ import annotations

import gzip
import json
import re
from pathlib import Path

import pytest
import zstandard
from typer.testing import CliRunner

from app.cli import ngram as ngram_cli
from app.cli.main import app
from core.errors import InputError
from core.ngram import NgramStore
from ngram_builder import DocumentSelection, readers, survey
from tests.ngram_tools import WordTokenizer

pytestmark = pytest.mark.usefixtures("small_process")

RUNNER = CliRunner()


def read(path: Path) -> tuple[list[str], list[readers.Damage]]:
    damage: list[readers.Damage] = []
    return list(readers.documents(path, damage.append)), damage


def shard(*texts: str, field: str = "text") -> bytes:
    return "".join(json.dumps({field: text, "meta": {}}) + "\n" for text in texts).encode()


TEXTS = ["one", "two\nlines", "drei ü 🙂"]


PACKS = {"": bytes, ".gz": gzip.compress, ".zst": zstandard.ZstdCompressor().compress}


@pytest.mark.parametrize("packing", PACKS)
def test_shards_of_every_packing_and_form_are_read_whole_wherever_a_piece_ends(tmp_path, monkeypatch, packing):
    path, pack = tmp_path / f"s.json{packing}", PACKS[packing]
    frames = b"".join(
        pack(shard(text, field=field)) for text, field in zip(TEXTS, ("text", "raw_content", "text"), strict=False)
    )
    windows = pack(b"\xef\xbb\xbf" + shard(*TEXTS).replace(b"}\n", b"}\r\n"))
    for piece in (1 << 20, 64, 16, 1):
        monkeypatch.setattr(readers.base, "PIECE", max(piece, 16) if packing else piece)
        for data, texts in ((frames, TEXTS), (windows, TEXTS), (pack(b""), [])):
            path.write_bytes(data)
            assert read(path) == (texts, [])


@pytest.mark.parametrize("packing", [".gz", ".zst"])
def test_a_cut_off_shard_is_read_up_to_the_cut(tmp_path, packing):
    whole = [f"text number {i} {i * i}" for i in range(10_000)]
    packed = PACKS[packing](shard(*whole))
    (tmp_path / f"s.jsonl{packing}").write_bytes(packed[: len(packed) * 2 // 3])
    texts, (place,) = read(tmp_path / f"s.jsonl{packing}")  # the line with the cut is not reported separately
    assert texts and texts == whole[: len(texts)]
    assert "truncated" in place.reason


def test_a_huge_line_is_read_and_a_boundless_one_refused(tmp_path, monkeypatch):
    (tmp_path / "s.jsonl").write_bytes(shard("x" * 2_000_000, "small"))
    assert [len(text) for text in read(tmp_path / "s.jsonl")[0]] == [2_000_000, 5]
    monkeypatch.setattr(readers.base, "LONGEST", 1 << 20)
    texts, (place,) = read(tmp_path / "s.jsonl")
    assert texts == ["small"]
    assert (place.line, place.reason) == (1, "longer than 1 MiB")


def test_a_plain_file_is_one_document_and_a_long_one_several(tmp_path, monkeypatch):
    (tmp_path / "s.txt").write_bytes(b"\xef\xbb\xbfA line.\r\n\r\nAnother.")
    assert read(tmp_path / "s.txt") == (["A line.\n\nAnother."], [])
    monkeypatch.setattr(readers.base, "LONGEST_TEXT", 20)
    (tmp_path / "s.md").write_text("First part.\n\nSecond one.\n\nThird.")
    assert read(tmp_path / "s.md")[0] == ["First part.\n\n", "Second one.\n\nThird."]


def test_sources_that_lead_nowhere_are_refused(tmp_path):
    (tmp_path / "notes.pdf").write_bytes(b"")
    for source, reason in (
        (tmp_path / "gone", "does not exist"),
        (tmp_path / "notes.pdf", "not of a supported kind"),
        (tmp_path / "*.jsonl", "Nothing to read"),
        (tmp_path, "Nothing to read"),
    ):
        with pytest.raises(InputError, match=reason):
            readers.expand([source])


# Building from damaged input


def test_each_damaged_place_is_named_once_and_the_rest_is_counted(cli, tmp_path):
    good = shard("1 2 3").strip()
    (tmp_path / "bad-lines.jsonl").write_bytes(
        b"\n".join([good, b'{"text": "open', b'{"meta": {}}', b"[1]", b"null", b"", b'{"text": 5}', b"  ", good])
    )
    (tmp_path / "bom.jsonl").write_bytes(b"\xef\xbb\xbf" + good + b"\r\n")
    (tmp_path / "empty.jsonl").write_bytes(b"")
    (tmp_path / "latin1.jsonl").write_bytes(good + b'\n{"text": "caf\xe9"}\n')
    (tmp_path / "no.jsonl.zst").write_bytes(good)
    (tmp_path / "cut.jsonl.gz").write_bytes(gzip.compress(good + b"\n" + good)[:-20])
    (tmp_path / "odd.jsonl").write_bytes(rb'{"text": "1 2 3 \u0000 \ud83d \u202e"}')
    done = cli("build", tmp_path, "-o", tmp_path / "s.ngram", "--json")
    assert (done.exit_code, done.stdout) == (1, "")
    places = [
        "bad-lines.jsonl:2: not JSON",
        "bad-lines.jsonl:3: no field",
        "bad-lines.jsonl:4: a JSON object expected, list found",
        "bad-lines.jsonl:5: a JSON object expected, NoneType found",
        'bad-lines.jsonl:7: "text" is int, not text',
        "cut.jsonl.gz: the gz stream is truncated",
        "latin1.jsonl:2: not UTF-8",
        "no.jsonl.zst: not an intact zst stream",
    ]
    for line, place in zip(done.stderr.splitlines(), places, strict=False):
        assert line.startswith(f"Warning: {tmp_path / place}")
    assert "8 damaged places" in done.stderr.splitlines()[8]
    assert not (tmp_path / "s.ngram").exists()
    done = cli("build", tmp_path, "-o", tmp_path / "s.ngram", "--json", "--max-bad", "99%")
    assert done.exit_code == 0
    (row,) = json.loads(done.stdout)["rows"]
    assert row["damaged"] == len(row["damage"]) == 8
    assert row["damage"][0] == {
        "path": str(tmp_path / "bad-lines.jsonl"),
        "line": 2,
        "reason": row["damage"][0]["reason"],
    }
    assert NgramStore.open(tmp_path / "s.ngram").count([1, 2, 3]) >= 4


# The command line


@pytest.fixture
def cli(monkeypatch):
    monkeypatch.setattr(ngram_cli, "_tokenizer", lambda name: (WordTokenizer(), name))
    monkeypatch.setattr(ngram_cli, "load_tokenizer", lambda name: WordTokenizer())

    def run(*arguments: object):
        return RUNNER.invoke(app, ["ngram", *map(str, arguments)])

    return run


def test_build_stats_query_and_merge_from_the_command_line(cli, tmp_path):
    (tmp_path / "a.jsonl").write_bytes(shard(*["1 2 3 4"] * 5))
    (tmp_path / "b.txt").write_text("1 2 9 " * 4)
    stores = [tmp_path / "a.ngram", tmp_path / "b.ngram"]
    for source, store in zip(("a.jsonl", "b.txt"), stores, strict=True):
        done = cli("build", tmp_path / source, "-o", store, "--orders", "2-3", "--min-count", "2,2", "--json")
        assert done.exit_code == 0, done.output
    row = json.loads(done.stdout)["rows"][0]
    assert (row["documents"], row["tokens"], row["damaged"]) == (1, 12, 0)

    done = cli("merge", *stores, "-o", tmp_path / "both.ngram", "--json")
    assert done.exit_code == 0, done.output
    done = cli("query", "1 2", "--store", tmp_path / "both.ngram", "--json")
    assert [row["order"] for row in json.loads(done.stdout)["rows"]] == [3, 2]
    following = json.loads(done.stdout)["rows"][0]["continuations"]
    assert [(entry["text"], entry["count"]) for entry in following] == [("3", 5), ("9", 4)]
    assert "'3'" in cli("query", "1 2", "--store", tmp_path / "both.ngram").stdout
    assert "has no continuation" in cli("query", "7", "--store", tmp_path / "both.ngram").stdout

    done = cli("stats", "--store", tmp_path / "both.ngram", "--verify", "--json")
    row = json.loads(done.stdout)["rows"][0]
    assert row["per_order"]["2"] == 5
    assert row["verified"] is True
    assert "Checksums agree" in cli("stats", "--store", tmp_path / "both.ngram", "--verify").stdout


@pytest.mark.parametrize(
    "arguments",
    [
        ["--orders", "6-2"],
        ["--orders", "0-3"],
        ["--orders", "x"],
        ["--min-count", "2,2"],
        ["--min-count", "0"],
        ["--min-count", "few"],
        ["--memory", "lots"],
        ["--max-bad", "200%"],
    ],
)
def test_wrong_options_are_explained(cli, tmp_path, arguments):
    (tmp_path / "s.txt").write_text("1 2 3")
    done = cli("build", tmp_path / "s.txt", "-o", tmp_path / "s.ngram", *arguments)
    assert done.exit_code == 1
    assert done.stderr.startswith("Error: ")
    assert "expected" in done.stderr or "given" in done.stderr


def test_options_that_select_reach_the_build(cli, tmp_path):
    (tmp_path / "a.jsonl").write_bytes(shard(*[f"{i % 50} 2 3" for i in range(100)]))
    select = ["--dedup", "documents", "--sample", "50%", "--rules", "alphabetic"]
    done = cli("build", tmp_path / "a.jsonl", "-o", tmp_path / "s.ngram", *select)
    assert done.exit_code == 1
    assert "No text found" in done.stderr
    done = cli("build", tmp_path / "a.jsonl", "-o", tmp_path / "s.ngram", *select[:4], "--json", "--keep")
    (row,) = json.loads(done.stdout)["rows"]
    assert row["left_out"] == sum(row["left_out_by"].values()) == 100 - row["documents"]
    assert row["left_out_by"].keys() == {"sample", "repeated"}
    assert (tmp_path / ".s.ngram.work").exists()
    done = cli("build", tmp_path / "a.jsonl", "-o", tmp_path / "s.ngram", "--yes", *select[:4])
    assert "Left out: repeated " in done.stdout


def test_a_dry_run_writes_nothing_and_is_exact_where_it_reads_all(cli, tmp_path):
    (tmp_path / "a.jsonl").write_bytes(shard(*["1 2 3 4"] * 50))
    (tmp_path / "b.txt").write_text("1 2 9 " * 40)
    out = tmp_path / "s.ngram"
    done = cli("build", tmp_path, "-o", out, "--dry-run", "--json")
    assert [path.name for path in tmp_path.iterdir()] == ["a.jsonl", "b.txt"]
    (expected,) = json.loads(done.stdout)["rows"]
    (row,) = json.loads(cli("build", tmp_path, "-o", out, "--json").stdout)["rows"]
    ngrams = sum(number for n, number in row["ngrams"].items() if int(n) > 1)
    figures = (expected["documents"], expected["tokens"], expected["ngrams"])
    assert figures == (row["documents"], row["tokens"], ngrams)
    assert "Nothing was written." in cli("build", tmp_path, "-o", out, "--dry-run").stdout


def test_a_dry_run_estimates_from_the_beginnings_of_files(tmp_path, monkeypatch):
    monkeypatch.setattr(survey, "_LEAST", 1 << 16)
    monkeypatch.setattr(readers.base, "PIECE", 1 << 12)
    for name in "abcd":
        (tmp_path / f"{name}.jsonl").write_bytes(shard(*[f"{i % 60} {i // 60 % 60} 3 4" for i in range(20_000)]))
    orders = range(2, 5)
    found = survey.survey([tmp_path], WordTokenizer(), orders, dict.fromkeys(orders, 2), DocumentSelection(), 1)
    assert 0.01 < found.read < 0.05
    assert found.documents == pytest.approx(80_000, rel=0.05)
    assert found.tokens == pytest.approx(320_000, rel=0.05)


def test_without_a_terminal_lines_say_how_far_the_build_is(cli, tmp_path, monkeypatch):
    (tmp_path / "a.jsonl").write_bytes(shard(*["1 2 3 4"] * 50))
    assert "of the build" not in cli("build", tmp_path / "a.jsonl", "-o", tmp_path / "a.ngram").stderr
    monkeypatch.setattr(ngram_cli, "_EVERY", 0.0)
    lines = cli("build", tmp_path / "a.jsonl", "-o", tmp_path / "b.ngram").stderr.splitlines()
    shares = [int(re.fullmatch(r"\w+: +(\d+)% of the build.*", line)[1]) for line in lines]
    assert shares == sorted(shares)
    assert re.search(r"Reading: \d+% of the build, 0.0 M tokens, [\d,]+ k/s, about \d+ s left", "\n".join(lines))
    assert lines[-1].startswith("Writing: 100%")
