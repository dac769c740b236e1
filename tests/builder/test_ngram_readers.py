"""Readers of mail, pages, letters, Parquet, quality signals and remote files."""

from __future__ import annotations

import gzip
import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import docx
import pyarrow
import pyarrow.parquet
import pytest
import zstandard

import ngram_builder
from core.errors import InputError
from core.ngram import NgramStore
from ngram_builder import readers
from ngram_builder.readers import Damage, Document, Signals, files, pages
from tests.ngram_tools import WordTokenizer


def read(*sources: Path | str) -> tuple[list[Document], list[Damage]]:
    damage: list[Damage] = []
    reading = readers.Reading(damage.append)
    return [one for file in readers.expand(sources) for one in readers.read_file(file, reading)], damage


def texts(*sources: Path | str) -> list[str]:
    found, damage = read(*sources)
    assert damage == []
    return [document.text for document in found]


def test_documents_say_where_they_are_from(tmp_path):
    (tmp_path / "a.jsonl").write_text('{"text": "one"}\n\nbroken\n{"text": "two"}\n')
    (tmp_path / "b.txt").write_text("three")
    found, damage = read(tmp_path)
    a, b = str(tmp_path / "a.jsonl"), str(tmp_path / "b.txt")
    assert [(document.text, document.origin) for document in found] == [
        ("one", f"{a}:1"),
        ("two", f"{a}:4"),
        ("three", b),
    ]
    assert [(place.path, place.line) for place in damage] == [(a, 3)]


# Mail


def test_a_mailbox_is_read_mail_by_mail(tmp_path):
    head = "From: ann@example.org\nContent-Type: text/plain; charset=utf-8\nContent-Transfer-Encoding: quoted-printable"
    box = f"From ann@example.org Mon Jun  3 10:00:00 2024\n{head}\n\nOne.\n\n>From the start.\n\n".encode()
    box += f"From bob@example.org\n{head}\n\nGr=C3=BC=C3=9Fe.\n".encode()
    (tmp_path / "all.mbox").write_bytes(box)
    (tmp_path / "all.mbox.gz").write_bytes(gzip.compress(box.replace(b"\n", b"\r\n")))
    for path in (tmp_path / "all.mbox", tmp_path / "all.mbox.gz"):
        found, damage = read(path)
        assert [(each.text, each.line) for each in found] == [("One.\n\nFrom the start.", 1), ("Grüße.", 10)]
        assert damage == []


def test_damaged_mail_is_reported(tmp_path):
    (tmp_path / "a.eml").write_bytes(b"\n\nno header at all")
    (tmp_path / "b.mbox").write_text("Dear diary,\n")
    unknown = "From a\nContent-Type: text/plain; charset=klingon\n\nwords\n\n"
    (tmp_path / "c.mbox").write_text(f"{unknown}From b\nSubject: x\n\nfine\n")
    found, damage = read(tmp_path)
    assert [document.text for document in found] == ["fine"]
    assert [(Path(place.path).name, place.line, place.reason.split(":")[0]) for place in damage] == [
        ("a.eml", 0, "not a mail"), ("b.mbox", 1, "not a mailbox"), ("c.mbox", 1, "a part of it cannot be decoded")
    ]  # fmt: skip


# Pages and letters


def test_a_page_is_what_it_shows(tmp_path):
    (tmp_path / "a.html").write_text(
        "<!doctype html><html><head><title>T</title><style>p{}</style></head><body><!-- hidden --><h1>Title</h1>"
        "<p>One <b>bo</b>ld\n   word,\n a caf&eacute; &amp; a&nbsp;<a href=x>link</a>.</p><p>Next<br>line</p>"
        "<script>var x = '<p>no</p>'</script><ul><li>first<li>second</ul>"
        "<table><tr><td>a</td><td>b</td></tr></table><pre>def f():\n    pass</pre>"
    )
    assert texts(tmp_path) == [
        "Title\n\nOne bold word, a café & a link.\n\nNext\nline\n\nfirst\nsecond\n\na\tb\n\ndef f():\n    pass"
    ]


@pytest.mark.parametrize(
    ("data", "shown"),
    [
        ("<meta charset=iso-8859-1><p>Übung</p>".encode(), "Übung"),
        (b"<p>unclosed <b>tags <p>everywhere", "unclosed tags\n\neverywhere"),
        (b"<div>" * 5000 + b"deep" + b"</div>" * 5000, "deep"),
        (b"<!-- nothing -->", ""),
        (b"   ", ""),
    ],
)
def test_badly_written_pages_are_read(data, shown):
    assert pages.text_of_html(data) == shown


def test_a_letter_is_its_body(tmp_path):
    letter = docx.Document()
    letter.add_heading("A letter")
    letter.add_paragraph("Dear ").add_run("Bob,").bold = True
    table = letter.add_table(rows=1, cols=2)
    table.cell(0, 0).text, table.cell(0, 1).text = "left", "right"
    letter.add_paragraph("Yours")
    letter.sections[0].header.paragraphs[0].text = "page header"
    letter.save(str(tmp_path / "a.docx"))
    assert texts(tmp_path) == ["A letter\nDear Bob,\nleft\tright\nYours"]


# Parquet


def write_parquet(path: Path, column: str, values: list[str | None], **options) -> None:
    table = pyarrow.table({"id": list(range(len(values))), column: values})
    pyarrow.parquet.write_table(table, path, **options)


@pytest.mark.parametrize("column", ["text", "raw_content", "content"])
def test_a_column_of_text_is_read(tmp_path, column):
    write_parquet(tmp_path / "a.parquet", column, ["one", "zwei ü", "", "three"], row_group_size=2)
    found, damage = read(tmp_path)
    assert [(document.text, document.line) for document in found] == [("one", 1), ("zwei ü", 2), ("three", 4)]
    assert damage == []


def test_damaged_parquet_is_read_where_it_can_be(tmp_path):
    values = [f"document {i} " + "x" * 500 for i in range(60)]
    write_parquet(tmp_path / "a.parquet", "text", values, row_group_size=20, use_dictionary=False, compression="snappy")
    data = bytearray((tmp_path / "a.parquet").read_bytes())
    at = pyarrow.parquet.ParquetFile(tmp_path / "a.parquet").metadata.row_group(1).column(1).data_page_offset
    data[at : at + 300] = bytes(300)
    (tmp_path / "a.parquet").write_bytes(data)
    found, damage = read(tmp_path / "a.parquet")
    assert [document.text for document in found if document.line > 40] == values[40:]
    assert [document.text for document in found if document.line <= 20] == values[:20]
    assert len(damage) == 1
    assert "rows up to 40 cannot be read" in damage[0].reason
    (tmp_path / "cut.parquet").write_bytes(data[: len(data) // 2])
    found, (place,) = read(tmp_path / "cut.parquet")
    assert found == []
    assert place.reason.startswith("not an intact Parquet file")
    write_parquet(tmp_path / "other.parquet", "words", ["one"])
    _, (place,) = read(tmp_path / "other.parquet")
    assert place.reason == "no column of text called text or raw_content or content; it has id, words"
    write_parquet(tmp_path / "null.parquet", "text", ["one", None])
    found, (place,) = read(tmp_path / "null.parquet")
    assert (len(found), place.line) == (1, 2)


# Quality signals


def shard_of_v2(folder: Path, signals: list[dict | bytes], name: str = "en_head") -> Path:
    documents = folder / "documents" / "2023-06" / "0000" / f"{name}.json.gz"
    beside = folder / "quality_signals" / "2023-06" / "0000" / f"{name}.signals.json.gz"
    for path in (documents, beside):
        path.parent.mkdir(parents=True, exist_ok=True)
    lines = [json.dumps({"raw_content": f"{i} {i}"}) for i in range(len(signals))]
    documents.write_bytes(gzip.compress("\n".join(lines).encode()))
    rows = [line if isinstance(line, bytes) else json.dumps(line).encode() for line in signals]
    beside.write_bytes(gzip.compress(b"\n".join(rows)))
    return documents


def signals_of(i: int, language: str = "en", bucket: float = 0.0, perplexity: float = 300.0, words: int = 100) -> dict:
    spans = {"ccnet_bucket": bucket, "ccnet_perplexity": perplexity, "rps_doc_word_count": words}
    return {
        "id": f"2023-06/0000/en_head.json.gz/{i}",
        "metadata": {"language": language},
        "quality_signals": {name: [[0, 99, value]] for name, value in spans.items()} | {"rps_lines_x": [[0, 5, 1.0]]},
    }


LINES = [
    signals_of(0),
    signals_of(1, language="de"),
    signals_of(2, bucket=2.0),
    signals_of(3, perplexity=900.5),
    signals_of(4, words=7),
]


def test_signals_that_do_not_fit_their_documents_are_reported(tmp_path):
    path = shard_of_v2(tmp_path, [signals_of(0), signals_of(2), b"broken", signals_of(3)])
    beside = tmp_path / "quality_signals" / "2023-06" / "0000" / "en_head.signals.json.gz"
    damage: list[Damage] = []
    reading = readers.Reading(damage.append, signals=Signals.parse(["language=en"]))
    assert [d.text for d in readers.read_file(readers.File.at(path), reading)] == ["0 0", "3 3"]
    assert [(place.path, place.line) for place in damage] == [(str(beside), 2), (str(beside), 3)]
    beside.write_bytes(gzip.compress(json.dumps(signals_of(0)).encode()))
    damage.clear()
    assert [d.text for d in readers.read_file(readers.File.at(path), reading)] == ["0 0"]
    assert [place.reason for place in damage] == ["ends before document 2; this and all later documents were left out"]


def test_signals_beside_documents_are_not_documents(tmp_path):
    path = shard_of_v2(tmp_path, LINES)
    beside = tmp_path / "quality_signals" / "2023-06" / "0000" / "en_head.signals.json.gz"
    beside.rename(path.with_name("en_head.signals.json.gz"))
    assert [file.name for file in readers.expand([tmp_path])] == ["en_head.json.gz"]
    signals = Signals.parse(["language=de"])
    report = ngram_builder.build([tmp_path], tmp_path / "s.ngram", WordTokenizer(), min_count=1, signals=signals)
    assert (report.documents, report.left_out) == (1, 4)
    assert NgramStore.open(tmp_path / "s.ngram").count([1, 1]) == 1


def test_documents_without_signals_are_refused_when_signals_are_requested(tmp_path):
    (tmp_path / "a.jsonl").write_text('{"text": "1 2"}\n')
    with pytest.raises(InputError, match="has no quality signals"):
        ngram_builder.build([tmp_path], tmp_path / "s.ngram", WordTokenizer(), signals=Signals.parse(["words=5-"]))
    assert [path.name for path in tmp_path.iterdir()] == ["a.jsonl"]


# Remote files


class Server(ThreadingHTTPServer):
    """Serves files from memory, and breaks connections."""

    files: dict[str, bytes]
    ranges = True  # whether it can send parts of a file
    drops = 0  # how many more answers it breaks off half-way
    asked: list[str]

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: Server

    def do_HEAD(self) -> None:
        self.answer(False)

    def do_GET(self) -> None:
        self.answer(True)

    def answer(self, body: bool) -> None:
        data = self.server.files.get(self.path)
        if data is None:
            self.send_error(404)
            return
        asked = self.headers.get("Range") if self.server.ranges else None
        start, end = 0, len(data)
        if asked:
            first, last = asked.removeprefix("bytes=").split("-")
            start, end = int(first), min(int(last or len(data) - 1) + 1, len(data))
        self.send_response(206 if asked else 200)
        if self.server.ranges:
            self.send_header("Accept-Ranges", "bytes")
        if asked:
            self.send_header("Content-Range", f"bytes {start}-{end - 1}/{len(data)}")
        self.send_header("Content-Length", str(end - start))
        self.end_headers()
        if not body:
            return
        self.server.asked.append(f"{start}-{end}")
        if self.server.drops:
            self.server.drops -= 1
            self.wfile.write(data[start : (start + end) // 2])
            self.close_connection = True
        else:
            self.wfile.write(data[start:end])

    def log_message(self, format: str, *args: object) -> None:
        pass


@pytest.fixture
def server(monkeypatch) -> Iterator[Server]:
    monkeypatch.setattr(files, "_PAUSE", 0.01)
    with Server(("127.0.0.1", 0), Handler) as found:
        found.files, found.asked = {}, []
        thread = threading.Thread(target=found.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
        thread.start()
        yield found
        found.shutdown()


LONG = [f"text number {i} {i * 7919 % 10007}" for i in range(4_000)]


def shard(documents: list[str]) -> bytes:
    return "".join(json.dumps({"text": text}) + "\n" for text in documents).encode()


@pytest.mark.parametrize(("name", "ranges"), [("s.jsonl", True), ("s.jsonl.gz", False), ("s.jsonl.zst", True)])
def test_a_connection_that_breaks_is_taken_up_again(server, name, ranges):
    pack = {".gz": gzip.compress, ".zst": zstandard.ZstdCompressor().compress}.get(Path(name).suffix, bytes)
    server.files[f"/data/{name}"] = pack(shard(LONG))
    server.ranges, server.drops = ranges, 3
    assert texts(f"{server.url}/data/{name}") == LONG
    assert server.drops == 0


def test_a_server_that_always_breaks_off_is_reported_with_what_could_be_read(server, tmp_path):
    server.files["/s.jsonl"] = shard(LONG)
    server.files["/t.jsonl"] = shard(["fine"])
    server.ranges, server.drops = False, 4
    found, (place,) = read(f"{server.url}/s.jsonl", f"{server.url}/t.jsonl")
    assert found[-1].text == "fine"
    assert [document.text for document in found[:-1]] == LONG[: len(found) - 1]
    assert place.path == f"{server.url}/s.jsonl"
    assert place.reason.startswith("cannot be read: gave up after")


def test_parquet_is_read_from_a_server(server, tmp_path):
    write_parquet(tmp_path / "s.parquet", "text", LONG, row_group_size=800)
    server.files["/s.parquet"] = (tmp_path / "s.parquet").read_bytes()
    server.drops = 2
    assert texts(f"{server.url}/s.parquet") == LONG


def test_addresses_that_lead_nowhere_are_refused(server):
    for url, reason in (
        (f"{server.url}/gone.jsonl", "cannot be read"),
        (f"{server.url}/s.pdf", "not of a supported kind"),
        ("http://127.0.0.1:1/s.jsonl", "cannot be read"),
        ("nowhere://x/s.jsonl", "cannot be read"),
        ("memory://empty/*.jsonl", "Nothing to read"),
    ):
        with pytest.raises(InputError, match=reason):
            readers.expand([url])


def test_folders_and_patterns_of_other_file_systems_are_read():
    import fsspec

    memory = fsspec.filesystem("memory")
    memory.pipe(
        {"/corpus/a.jsonl": shard(["one"]), "/corpus/b/c.jsonl.gz": gzip.compress(shard(["two"])), "/corpus/x.pdf": b""}
    )
    assert texts("memory://corpus") == ["one", "two"]
    assert texts("memory://corpus/*.jsonl") == ["one"]
    memory.rm("/corpus", recursive=True)
