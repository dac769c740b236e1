"""Files made to break a reader, or to use unlimited time or memory: each loses only its own document."""

from __future__ import annotations

import gzip
import io
import json
import os
import random
import struct
import sys
import time
import tracemalloc
import zipfile
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import docx
import pyarrow
import pyarrow.parquet
import pytest
import zstandard
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from ngram_tools import WordTokenizer

from core.errors import InputError
from core.ngram.personal import PersonalStore
from ngram_builder import personal, readers
from ngram_builder.readers import Damage, Document, File, Reading, archives, pages

ENDINGS = [
    ".txt", ".md", ".json", ".jsonl", ".html", ".eml", ".mbox", ".docx", ".parquet",
    ".txt.gz", ".jsonl.zst", ".html.zst", ".mbox.gz", ".eml.gz",
]  # fmt: skip


def read(path: Path, check_cancelled: Callable[[int], None] = lambda _: None) -> tuple[list[Document], list[Damage]]:
    damage: list[Damage] = []
    return list(readers.read_file(File.at(path), Reading(damage.append, check_cancelled))), damage


def only(path: Path) -> str:
    """The reason of the one damage in a file with nothing to read."""
    found, damage = read(path)
    assert found == []
    assert len(damage) == 1
    return damage[0].reason


# ---------------------------------------------------------------- whatever the bytes


def magic(ending: str) -> bytes:
    """How a file of this kind begins, so that random bytes get past the first check."""
    return {
        ".jsonl": b'{"text": ',
        ".json": b'{"messages": [{"from": "a", "text":',
        ".md": b"---\na: b\n",
        ".html": b"<p><a x=",
        ".eml": b"Content-Type: text/plain; charset=utf-7\nContent-Transfer-Encoding: base64\n\n",
        ".mbox": b"From a\nContent-Type: multipart/mixed; boundary=b\n\n--b\nSubject: x\n\n",
        ".docx": b"PK\x03\x04",
        ".parquet": b"PAR1",
        ".gz": gzip.compress(b"some words ")[:-4],
        ".zst": zstandard.compress(b"some words ")[:-2],
    }.get("." + ending.rsplit(".", 1)[-1], b"")


@given(ending=st.sampled_from(ENDINGS), begins=st.booleans(), data=st.binary(max_size=400))
@settings(max_examples=200, suppress_health_check=[HealthCheck.function_scoped_fixture])
@example(ending=".html", begins=False, data=b"&#" + b"9" * 5000 + b";")
@example(ending=".eml", begins=False, data=b"Content-Type: text/plain; charset=\xff\x00\n\nx")
@example(ending=".eml", begins=False, data=b"Content-Type: text/plain; charset*0*=utf-8''%ff\n\nx")
@example(ending=".eml", begins=False, data=b"Content-Transfer-Encoding: x-uuencode\n\nbegin 666 \xff\nM\n")
def test_a_reader_ends_with_documents_and_damage_whatever_it_reads(
    tmp_path: Path, ending: str, begins: bool, data: bytes
) -> None:
    path = tmp_path / f"file{ending}"
    path.write_bytes((magic(ending) if begins else b"") + data)
    for document in read(path)[0]:
        document.text.encode()  # no halves of surrogate pairs


@given(flips=st.lists(st.tuples(st.integers(0, 10**6), st.integers(0, 255)), min_size=1, max_size=8), at=st.data())
@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_a_sound_file_with_wrong_bytes_is_read_or_reported(
    tmp_path_factory: pytest.TempPathFactory, sound_files: dict[str, bytes], flips: list[tuple[int, int]], at
) -> None:
    ending = at.draw(st.sampled_from(sorted(sound_files)))
    data = bytearray(sound_files[ending])
    for place, byte in flips:
        data[place % len(data)] = byte
    path = tmp_path_factory.getbasetemp() / f"flipped{ending}"
    path.write_bytes(data)
    read(path)


@pytest.fixture(scope="module")
def sound_files() -> dict[str, bytes]:
    letter, table = docx.Document(), pyarrow.table({"text": ["one", "two", "three"] * 20})
    letter.add_paragraph("Dear Bob")
    words, columns = io.BytesIO(), io.BytesIO()
    letter.save(words)
    pyarrow.parquet.write_table(table, columns, row_group_size=20)
    text = b"a line of text\n" * 200
    return {
        ".docx": words.getvalue(),
        ".parquet": columns.getvalue(),
        ".txt.gz": gzip.compress(text),
        ".txt.zst": zstandard.compress(text),
    }


# ---------------------------------------------------------------- pages


def test_markup_that_is_not_closed_hides_only_what_a_browser_hides() -> None:
    assert pages.text_of_html("a < b, c<3 <b x='>'>bold</b> <i y=it's>end</i> <a x=") == "a < b, c<3 bold end"
    assert pages.text_of_html("before<!-- comment") == "before"
    assert pages.text_of_html("before<script>if (a < b) '</p>'</script>after<title>no</title>") == "beforeafter"
    assert pages.text_of_html("<svg><svg></svg>no</svg>yes &#99999999999; &eacute;") == "yes \ufffd é"


# ---------------------------------------------------------------- time

# By how a file begins: what is repeated in it, and in some what as often after it.
REPEATED: dict[tuple[str, str], list[str | tuple[str, str]]] = {
    ("a.html", ""): [
        "<a x=", '<a x="', "<!--", "<![CDATA[", "<", "&amp", "<div>", "<svg></math>", "<script>", "<tr><td></td>",
        "<a ='=\"", ("<b>", "</i>"), "<p hidden>", "<i hidden><b>", "<i hidden></b>", "<a style=display:none ",
        "<li hidden><p>",
    ],
    ("a.html", "<style>"): ["a{", "display ", "/*"],
    ("a.eml", "From: a@example.org\nContent-Type: text/plain\n\n"): [
        "On 3 Jun 2024 at 10:00 Bob <b@x.org>\n", "On 3 Jun 2024 at 10:00 Bob wrote:\n> x\n",
        "--\nand so on, and on, and on\n", "______________________________\n", "Subject: x\n", "-" * 300 + " x\n",
        "-----BEGIN PGP MESSAGE-----\n", "begin 644 a\n", "A" * 64 + "\n", "On 3 Jun 2024 <b@x.org> wrote ",
    ],
    ("a.eml", "From: a@example.org\nContent-Type: text/plain; format=flowed\n\n"): ["> x \n"],
    ("a.eml", "From: a@example.org\nContent-Type: text/html\n\n"): [
        "<blockquote type=cite>", "On 3 Jun 2024 Bob wrote:<blockquote>", "<div class=gmail_quote>",
        "<p style='display:none'>", "<p a=b style='",
    ],
    ("a.md", "---\n"): [
        "---\n", "<!--", "data:a;base64,", "```a\n", "![](data:", "A" * 59 + "-", "a: b\n", "`="
    ],
    ("_chat.txt", "1/1/20, 1:00 - a: b\n"): [
        "1/1/20, 1:00 - ", "[1/1/20, 1:00] a: ", "<", "< ", "<a: .b", "1.", "\u200e", ": ", "a "
    ],
    ("a.rtf", "{\\rtf1 "): ["{", "\\", "\\'", "{\\*", "\\u1?", "\\v", "}{", "{\\field{\\fldinst TOC}{\\fldrslt a}}"],
    ("a.docx", ""): [
        '<w:p><w:r><w:fldChar w:fldCharType="begin"/></w:r></w:p>',
        '<w:p><w:r><w:fldChar w:fldCharType="begin"/><w:fldChar w:fldCharType="separate"/><w:t>x</w:t></w:r></w:p>',
    ],
}  # fmt: skip


def seconds(work: Callable[[], object]) -> float:
    best = 9e9
    for _ in range(3):
        start = time.thread_time()
        work()
        best = min(best, time.thread_time() - start)
    return best


@pytest.mark.parametrize(("name", "begins"), REPEATED)
def test_the_time_for_a_file_grows_with_its_length(tmp_path: Path, name: str, begins: str) -> None:
    for piece in REPEATED[name, begins]:
        each, then = piece if isinstance(piece, tuple) else (piece, "")
        times = []
        for n in (300, 2_400):
            path, text = tmp_path / name, begins + each * n + then * n
            if name == "a.docx":
                archive(path, {"word/document.xml": BODY.format(f"<w:body>{text}</w:body>")})
            else:
                path.write_text(text)
            times.append(seconds(lambda path=path: read(path)))
        assert times[1] < 8 * 4 * times[0] + 0.05, piece


# ---------------------------------------------------------------- packed files


def zst_bomb(size: int) -> bytes:
    return zstandard.ZstdCompressor(level=19).compress(b"x" * size)


def rle_bomb(blocks: int) -> bytes:
    """A frame of .zst in which four bytes unpack to 128 KiB."""
    header = struct.pack("<IBB", 0xFD2FB528, 0, 0x38)
    block = ((128 << 10) << 3 | 1 << 1).to_bytes(3, "little") + b"x"
    last = (1 << 3 | 1 << 1 | 1).to_bytes(3, "little") + b"\n"
    return header + block * blocks + last


BOMBS = {
    "zst": (".txt.zst", lambda: rle_bomb(2000)),
    "zst at once": (".jsonl.zst", lambda: zst_bomb(64 << 20)),
    "gz": (".txt.gz", lambda: gzip.compress(b"x" * (64 << 20), 9)),
    "many frames": (".jsonl.zst", lambda: rle_bomb(40) * 100),
}


@pytest.mark.parametrize(("ending", "made"), BOMBS.values(), ids=BOMBS)
def test_a_bomb_is_reported_and_takes_little_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ending: str, made: Callable[[], bytes]
) -> None:
    monkeypatch.setattr(readers.base, "FREE", 1 << 23)
    path = tmp_path / f"bomb{ending}"
    path.write_bytes(made())
    damage: list[Damage] = []
    tracemalloc.start()
    for _ in readers.read_file(File.at(path), Reading(damage.append)):
        pass
    most = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert any("unpacks to more than 100 times its size" in place.reason for place in damage)
    assert most < 80 << 20


# ---------------------------------------------------------------- letters


BODY = '<w:document xmlns:w="http://schemas.openxmlformats.org/wordprocessingml/2006/main">{}</w:document>'
PARAGRAPH = "<w:body><w:p><w:r><w:t>Dear Bob</w:t></w:r></w:p></w:body>"


def archive(path: Path, members: dict[str, str | bytes]) -> Path:
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as file:
        for name, content in members.items():
            file.writestr(name, content)
    return path


def test_only_the_body_of_a_letter_is_unpacked(tmp_path: Path) -> None:
    path = archive(
        tmp_path / "a.docx", {"word/media/image1.png": b"x" * 1000, "word/document.xml": BODY.format(PARAGRAPH)}
    )
    data = path.read_bytes()
    at = data.index(b"word/media/image1.png") + len("word/media/image1.png")
    path.write_bytes(data[:at] + b"\xff" * 8 + data[at + 8 :])  # a picture with a broken stream
    assert [document.text for document in read(path)[0]] == ["Dear Bob"]


def test_a_list_of_members_that_is_too_long_is_not_held(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(archives, "_LISTED", 4096)
    members: dict[str, str | bytes] = {f"../../{i:04}": b"" for i in range(100)}
    path = archive(tmp_path / "a.docx", members | {"word/document.xml": BODY.format(PARAGRAPH)})
    assert "list of members is longer" in only(path)


def test_entities_are_not_replaced_nor_files_read(tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("secret")
    laughs = "".join(f'<!ENTITY l{i} "{f"&l{i - 1};" * 10}">' for i in range(1, 12))
    for entity in (f'<!ENTITY l0 "ha">{laughs}', f'<!ENTITY l11 SYSTEM "file://{tmp_path}/secret">'):
        body = BODY.format("<w:body><w:p><w:r><w:t>Dear &l11; Bob</w:t></w:r></w:p></w:body>")
        path = archive(tmp_path / "a.docx", {"word/document.xml": f"<!DOCTYPE d [{entity}]>{body}"})
        found, _ = read(path)
        assert all(len(document.text) < 20 and "secret" not in document.text for document in found)


# ---------------------------------------------------------------- mail


def mail(charset: str, body: bytes) -> bytes:
    return b"From: a@example.org\nContent-Type: text/plain; charset=" + charset.encode() + b"\n\n" + body


@pytest.mark.parametrize("charset", ["unicode_escape", "raw_unicode_escape", "idna", "punycode", "hex", "undefined"])
def test_mail_in_what_is_no_charset_is_reported(tmp_path: Path, charset: str) -> None:
    box = b"From a\n" + mail(charset, b"\\ud83d xn--a..b " + b"a" * 5000) + b"\n\nFrom b\n" + mail("utf-8", b"fine")
    (tmp_path / "a.mbox").write_bytes(box)
    found, damage = read(tmp_path / "a.mbox")
    assert [document.text for document in found] == ["fine"]
    assert "not an encoding of text" in damage[0].reason
    assert damage[0].line == 1


def test_mail_nested_without_end_is_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # At the greatest depth, what pytest does with a generator that cannot be closed there would fail too.
    monkeypatch.setattr(sys, "unraisablehook", lambda unraisable: None)
    nested = "".join(f"Content-Type: multipart/mixed; boundary={i}\n\n--{i}\n" for i in range(2000))
    (tmp_path / "a.eml").write_text(nested + "\nwords")
    assert "nested parts" in only(tmp_path / "a.eml")
    deep = "".join(f"Content-Type: message/rfc822\n\nSubject: {i}\n" for i in range(3000))
    (tmp_path / "b.eml").write_text(deep + "\n\nwords")
    assert only(tmp_path / "b.eml").startswith("no mail") or read(tmp_path / "b.eml")[0]


def test_a_mailbox_of_tiny_lines_takes_memory_for_its_bytes_alone(tmp_path: Path) -> None:
    (tmp_path / "a.mbox").write_bytes(b"From a\nSubject: x\n\n" + b"ab\n" * 30_000)
    tracemalloc.start()
    read(tmp_path / "a.mbox")
    most = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert most < 4 << 20


# ---------------------------------------------------------------- lines, names, Parquet


def test_a_line_of_json_that_is_mostly_structure_is_not_unfolded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(readers.shards, "_PLAIN", 1000)
    text = 'an apple, [a pear], {a plum}, \\"quoted\\" ' * 100
    lines = [
        '{"text": "x", "more": [' + "[]," * 1000 + "[]]}",
        f'{{"text": "{text}"}}',
        "[" * 100_000,
        '{"text": ' + "9" * 900 + "}",
    ]
    (tmp_path / "a.jsonl").write_text("\n".join(lines))
    found, damage = read(tmp_path / "a.jsonl")
    assert [document.text for document in found] == [json.loads(lines[1])["text"]]
    assert [place.line for place in damage] == [1, 3, 4]


@pytest.mark.skipif(sys.platform != "linux", reason="other systems allow no such names")
def test_a_file_whose_name_is_not_utf8_is_read_and_named(tmp_path: Path) -> None:
    path = Path(os.fsdecode(os.fsencode(tmp_path) + b"/caf\xe9.jsonl"))
    path.write_text('{"text": "words"}\nbroken\n')
    damage: list[Damage] = []
    (document,) = readers.read_file(readers.expand([tmp_path])[0], Reading(damage.append))
    for said in (document.origin, document.path, str(damage[0]), str(File.at(path))):
        assert "caf\\xe9.jsonl" in said.encode().decode()


def test_a_row_that_is_no_text_costs_that_row(tmp_path: Path) -> None:
    bad = pyarrow.array([b"one", b"\xff\xfe", b"three"]).view(pyarrow.string())
    pyarrow.parquet.write_table(pyarrow.table({"text": bad}), tmp_path / "a.parquet")
    found, damage = read(tmp_path / "a.parquet")
    assert [(document.text, document.line) for document in found] == [("one", 1), ("three", 3)]
    assert [place.line for place in damage] == [2]


def test_a_long_text_in_every_row_is_held_once(tmp_path: Path) -> None:
    table = pyarrow.table({"text": ["x" * (1 << 18)] * 200})
    pyarrow.parquet.write_table(table, tmp_path / "a.parquet")
    del table
    before, most = pyarrow.total_allocated_bytes(), 0
    for _ in readers.read_file(File.at(tmp_path / "a.parquet"), Reading(lambda _: None)):
        most = max(most, pyarrow.total_allocated_bytes() - before)
    assert most < 24 << 20


def test_a_parquet_file_that_unpacks_without_end_is_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(readers.base, "FREE", 1 << 20)
    values = [chr(97 + i) * (1 << 20) for i in range(8)]
    pyarrow.parquet.write_table(pyarrow.table({"text": values}), tmp_path / "a.parquet", compression="zstd")
    assert "unpack to" in only(tmp_path / "a.parquet")


# ---------------------------------------------------------------- stopping


class Stop(Exception):
    pass


@pytest.mark.parametrize("ending", [".html", ".eml", ".docx", ".mbox", ".txt.gz"])
def test_a_reading_ends_at_any_moment_also_within_a_document(tmp_path: Path, ending: str) -> None:
    page, path = b"<p>words</p>" * 5_000, tmp_path / f"a{ending}"
    mail = b"From a\nSubject: x\nContent-Type: text/html\n\n" + page
    data = {".html": page, ".eml": mail, ".mbox": mail, ".txt.gz": gzip.compress(os.urandom(1 << 18).hex().encode())}
    if ending == ".docx":
        paragraphs = "<w:p><w:r><w:t>words</w:t></w:r></w:p>" * 10_000
        archive(path, {"word/document.xml": BODY.format(f"<w:body>{paragraphs}</w:body>")})
    else:
        path.write_bytes(data[ending])
    calls = list[int]()
    read(path, calls.append)
    assert len(calls) > 3
    for moment in {1, len(calls) // 2, len(calls)}:
        left = iter(range(moment - 1))

        def stopping(_: int, left: Iterator[int] = left) -> None:
            if next(left, None) is None:
                raise Stop

        with pytest.raises(Stop):
            read(path, stopping)


# ---------------------------------------------------------------- exported personal stores

HEAD = b'{"format": "polydraft personal store", "version": 2}\n'


def entry(passages: bytes = b'["1 2 3"]', **changes: object) -> bytes:
    fields = {"origin": "a.txt", "added": "2026-01-01T00:00:00+00:00", "times": 1} | changes
    return json.dumps(fields).encode()[:-1] + b', "passages": ' + passages + b"}\n"


def exported(*lines: bytes) -> bytes:
    return zstandard.compress(HEAD + b"".join(lines) + b'{"end": %d}\n' % len(lines))


SIZE = 64 << 20
EXPORTS: dict[str, tuple[Callable[[], bytes], str]] = {
    "a text": (lambda: exported(entry(b'["' + b"x" * SIZE + b'"]')), "100 times its size"),
    "texts": (lambda: exported(entry(b'["ab"' + b', "ab"' * (SIZE // 10) + b"]")), "100 times its size"),
    "texts of no length": (lambda: exported(entry(b'[""' + b',""' * 150_000 + b"]")), "100 times its size"),
    "documents that differ": (lambda: exported(*[entry(times=i % 9 + 1) for i in range(20_000)]), "100 times"),
    "frames": (lambda: zstandard.compress(HEAD) + zstandard.compress(entry(b"[]") * 1000) * 100, "100 times its size"),
    "an adapter": (lambda: exported(b'{"adapter": {"x": "' + b"A" * SIZE + b'"}}\n'), "100 times its size"),
    "a line": (lambda: exported(b" " * SIZE), "100 times its size"),
    "nothing but structure": (lambda: exported(entry(b"[" + b"[]," * (1 << 19) + b"[]]")), "1 MiB of JSON outside"),
    "depth": (lambda: exported(b"[" * 100_000 + b"\n"), "line 2 is unreadable JSON"),
    "a long number": (lambda: exported(entry().replace(b": 1,", b": " + b"1" * 5000 + b",")), "line 2 is unreadable"),
    "a large number": (lambda: exported(entry(times=10**30)), "line 2 is not a document"),
    "a long name": (lambda: exported(entry(origin="x" * (1 << 20))), "line 2 is not a document"),
    "a long time": (lambda: exported(entry(added="x" * 1000)), "line 2 is not a document"),
    "a long passage": (lambda: exported(entry(b'["' + b"x " * ((1 << 20) + 1) + b'"]')), "line 2 is not a document"),
    "a document after the end": (lambda: exported(entry()) + zstandard.compress(entry()), "line 4 is not a document"),
}


@pytest.mark.parametrize(("made", "says"), EXPORTS.values(), ids=EXPORTS)
def test_a_small_import_that_unpacks_to_much_is_refused_in_little_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, made: Callable[[], bytes], says: str
) -> None:
    monkeypatch.setattr(readers.base, "FREE", 3 << 20)
    path, tokenizer = tmp_path / "me.jsonl.zst", WordTokenizer()
    path.write_bytes(made())
    assert path.stat().st_size < 100_000
    with PersonalStore.open(tmp_path / "me.sqlite", tokenizer, create=True) as store:  # pyright: ignore[reportArgumentType]
        tracemalloc.start()
        with pytest.raises(InputError, match=says) as caught:
            personal.restore(store, path)
        most = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        assert store.summary()["documents"] == []
    assert str(caught.value).endswith("Nothing was added.")
    assert len(str(caught.value)) < 300
    assert most < 32 << 20


def test_an_import_of_much_is_not_bounded_by_less_than_what_people_write(tmp_path: Path) -> None:
    """Short phrases that take the least room in the file, and a text at the limit of one passage."""
    path = tmp_path / "me.jsonl.zst"
    lines = [entry(json.dumps([f"{i % 64} {i * 7 % 64}"]).encode(), origin="typed") for i in range(1000)]
    path.write_bytes(exported(*lines, entry(json.dumps(["7 " * (readers.base.LONGEST_TEXT // 2)]).encode())))
    with PersonalStore.open(tmp_path / "me.sqlite", WordTokenizer(), create=True) as store:  # pyright: ignore[reportArgumentType]
        assert personal.restore(store, path).tokens == 2000 + (1 << 20)
        assert len(store.documents()) == 1001


def test_an_import_ends_with_documents_or_a_sentence_whatever_its_bytes(tmp_path: Path) -> None:
    sound, path = exported(entry(), entry(origin="b\ud800.txt")), tmp_path / "me.jsonl.zst"
    plain = zstandard.decompress(sound)
    chance = random.Random(3)
    with PersonalStore.open(tmp_path / "me.sqlite", WordTokenizer(), create=True) as store:  # pyright: ignore[reportArgumentType]
        for n in range(150):
            data = bytearray(sound if n % 2 else plain)
            for _ in range(chance.randint(0, 3)):
                data[chance.randrange(len(data))] = chance.randrange(256)
            path.write_bytes(data if n % 2 else zstandard.compress(bytes(data)))
            with suppress(InputError):
                personal.restore(store, path)
        os.mkfifo(tmp_path / "pipe")
        with pytest.raises(InputError, match="is not a file"):
            personal.restore(store, tmp_path / "pipe")
        assert store.check() == []
        assert {"a.txt", "b\ufffd.txt"} <= {document["origin"] for document in store.documents()}
