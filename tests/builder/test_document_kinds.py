"""What a person has in a folder, as programs write it: the writer's own words are read, once, and nothing else."""

from __future__ import annotations

import json
import os
import zipfile
from itertools import product
from pathlib import Path
from typing import Any

import pyarrow
import pyarrow.parquet
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from core.errors import InputError
from core.ngram.personal import PersonalStore
from core.ngram.plain import plain
from ngram_builder import personal, readers
from ngram_builder.readers import Damage, Reading, Senders, Signals, archives, charsets, pages
from tests.builder.test_ngram_readers import shard_of_v2, signals_of
from tests.ngram_tools import WordTokenizer


def read(path: Path, own: str = "") -> tuple[str, list[Damage]]:
    """The text of a file, and its damage."""
    damage: list[Damage] = []
    reading = Reading(damage.append, senders=Senders.of(own.split(";") if own else ()))
    texts = [each.text for file in readers.expand([path]) for each in readers.read_file(file, reading)]
    return "\n".join(texts), damage


def text_of(path: Path, data: str | bytes, own: str = "") -> str:
    path.write_bytes(data.encode() if isinstance(data, str) else data)
    text, damage = read(path, own)
    assert damage == []
    return text.strip()


# ---------------------------------------------------------------- a vault

LEFT_OUT = [
    ".trash/a.md", ".obsidian/plugins/x/README.md", ".git/description.txt", "a/.hidden/b.md", ".secret.md",
    "~$letter.docx", ".~lock.letter.odt#", "#a.md#", ".#a.md", "node_modules/x/README.md", "$RECYCLE.BIN/a.txt",
    "__MACOSX/._a.txt", ".Trash-1000/files/a.md", ".stversions/a.md", "Trash/a.txt",
    "Maildir/.Trash/cur/a.eml", "Maildir/.Deleted Messages/new/a.eml", ".stversions/new/a.md",
]  # fmt: skip


@pytest.mark.parametrize("pattern", ["", "**/*", "**/*.*"])
def test_hidden_files_trash_and_locks_are_left_out(tmp_path: Path, pattern: str) -> None:
    for path in (tmp_path / "vault" / name for name in [*LEFT_OUT, "note.md"]):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("my secret password is")
    found = readers.expand([tmp_path / "vault" / pattern])
    assert [file.name for file in found] == ["note.md"]


def test_a_hidden_place_that_is_named_is_read(tmp_path: Path) -> None:
    path = tmp_path / ".config" / "notes" / ".diary.md"
    path.parent.mkdir(parents=True)
    path.write_text("dear diary")
    for source in (path, tmp_path / ".config" / "notes" / ".d*.md"):
        assert [file.name for file in readers.expand([source])] == [".diary.md"]
    assert [file.name for file in readers.expand([tmp_path / ".config", path])] == [".diary.md"]


def test_a_second_look_opens_no_file_of_an_unknown_kind_and_no_look_a_hidden_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    mail = "From: ann@example.org\nTo: b@example.org\nSubject: x\n\nHello.\n"
    for name, data in {"a.raw": "x", ".git/a/b.md": "no", ".Sent/cur/17.host:2,S": mail, "b/.x/a.md": "no"}.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(data)
    listed, opened = list[str](), list[str]()
    scandir, open_ = os.scandir, Path.open

    def noting(noted: list[str], call: Any) -> Any:
        return lambda path, *rest, **more: (noted.append(Path(path).name), call(path, *rest, **more))[1]

    monkeypatch.setattr(os, "scandir", noting(listed, scandir))
    monkeypatch.setattr(Path, "open", noting(opened, open_))
    found = [readers.walk(tmp_path), readers.walk(tmp_path)]
    assert [file.name for each in found for file in each.files] == 2 * ["17.host:2,S"]
    assert [each.unread for each in found] == 2 * [{".raw": 1}]
    assert not {".git", "a", ".x"} & {*listed} and ".Sent" in listed
    assert sorted(opened) == ["17.host:2,S", "a.raw"], "each once"
    (tmp_path / "a.raw").write_text(mail)
    assert len(readers.walk(tmp_path).files) == 2, "it has changed"


def test_an_empty_folder_among_several_fails_nothing(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    (tmp_path / "note.md").write_text("words")
    assert len(readers.expand([tmp_path / "empty", tmp_path / "note.md", tmp_path / "*.rst"])) == 1
    with pytest.raises(InputError, match=r"Nothing to read in .*empty"):
        readers.expand([tmp_path / "empty"])


IMAGE = (
    "iVBORw0KGgoAAAANSUhEUgAAAAUAAAAFCAYAAACNbyblAAAAHElEQVQI12P4//8/w38GIAXDIBKE0DHxgljNBAAO9TXL0Y4OHwAAAABJRU5ErkJg"
    "gg=="
)
WRAPPED = "\n".join(IMAGE[i : i + 76] for i in range(0, len(IMAGE), 76))
DRAWING = f"""---
excalidraw-plugin: parsed
---
==⚠  Switch to EXCALIDRAW VIEW in the MORE OPTIONS menu of this document. ⚠== You can decompress it

# Excalidraw Data

## Text Elements
Words. ^abcd1234

%%
## Drawing
```compressed-json
{IMAGE}

short
```
%%"""
NOTES = {
    "YAML": "---\ntitle: A\ntags:\n  - b\n- c\n---\nWords.",
    "YAML with dots": "---\ntitle: A\nempty:\n\n# comment\n...\nWords.",
    "YAML with Windows ends": "---\r\ntitle: A\r\nurl: http://x.org\r\n---\r\nWords.",
    "YAML after a mark": "\ufeff---\naliases: [a, b]\n---\nWords.",
    "TOML": '+++\ntitle = "A"\n[extra]\nx = 1\n+++\nWords.',
    "an image": f"Words.\n\n![](data:image/png;base64,{IMAGE})",
    "an image by reference": f"Words.\n\n[image1]: <data:image/png;base64,{IMAGE}>",
    "an image in HTML": f'Words.<!-- <img src="data:image/png;base64,{IMAGE}"> -->',
    "base64 in lines": f"Words.\n\n{WRAPPED}\n",
    "Excalidraw": DRAWING,
    "dataview": 'Words.\n\n```dataview\nTABLE file.ctime FROM "a"\n```\n',
    "dataviewjs": "```dataviewjs\ndv.list([1])\n```\nWords.",
    "tasks in a quote": "Words.\n> ```tasks\nnot done\n> ```\n",
    "tildes": "~~~~query\npath:a\n~~~\n~~~~\nWords.",
    "an inline query": "Words.`= this.file.name`",
    "Kanban": 'Words.\n\n%% kanban:settings\n```\n{"kanban-plugin":"basic"}\n```\n%%',
    "repetition": "Words.<!--SR:!2024-01-01,3,250-->",
    "a block id": "Words. ^1a2b3c",
    "Logseq": "id:: 64f1\ncollapsed:: true\nWords.\n:LOGBOOK:\nCLOCK: [2024]\n:END:\n{{query (todo)}}",
    "Joplin": f"Words.\n\nid: {'0a' * 16}\nparent_id: {'0b' * 16}\ncreated_time: 2024\nis_todo: 0\ntype_: 1",
    "SVG": "<svg width='1'>\n<path d='M0 0'/></svg>Words.",
}


def test_what_programs_put_into_a_note_is_not_read(tmp_path: Path) -> None:
    read = {name: text_of(tmp_path / "a.md", note) for name, note in NOTES.items()}
    assert read == dict.fromkeys(NOTES, "Words.")


KEPT = {
    "a line of dashes and prose": "---\nWe went home.\n---\nIt rained.",
    "dashes alone": "---\n- milk\n- eggs\n---\nBuy it.",
    "front matter without an end": "---\ntitle: A\n\nWe went home.",
    "code of one's own": "Run it:\n\n```python\nprint(1)\n```",
    "a long word": "Donaudampfschifffahrtselektrizitätenhauptbetriebswerkbauunterbeamtengesellschaft " + "a" * 90,
    "a comment that is not closed": "a <!-- b",
    "an address": "See https://example.org/a/path/of/some/length/and/then/some/more/of/it/until/it/is/long.",
    "percent signs": "From 10 %% to 20 %% of it.",
    "three pluses": "+++\nWe went home.\n+++",
}


def test_what_a_person_put_into_a_note_is_read(tmp_path: Path) -> None:
    assert {name: text_of(tmp_path / "a.md", note) for name, note in KEPT.items()} == KEPT


# ---------------------------------------------------------------- encodings

ENCODED = {
    "UTF-16 with a mark": ("The café is open. Zoë wrote.", "utf-16"),
    "UTF-16 BE with a mark": ("\ufeffThe café is open.", "utf-16-be"),
    "UTF-16 LE": ("The café is open.\n", "utf-16-le"),
    "UTF-16 BE": ("Привет, мир. Я пишу письмо.", "utf-16-be"),
    "UTF-16 LE, Chinese": ("你好，我给你写信。\n", "utf-16-le"),
    "UTF-32": ("The café is open.", "utf-32-le"),
    "UTF-8 with a mark": ("The café is open.", "utf-8-sig"),
    "cp1252": ("He said “hello” – it’s €5… café", "cp1252"),
    "one word": ("café", "cp1252"),
    "Latin-1": ("Mañana iré al médico. ¿Vienes tú?", "latin-1"),
    "German": ("Grüße aus Köln, Straße 5, ÜBER ALLES", "latin-1"),
    "ISO with the euro": ("Das kostet 5 € für die Straße.", "iso8859-15"),
    "Finnish": ("Hyvää päivää, näkemiin šakki", "cp1252"),
    "Icelandic": ("Það er gott veður í dag, þú ættir að koma.", "cp1252"),
    "Mac": ("Un café crème. Déjà vu à l’hôtel.", "mac_roman"),
    "DOS": ("Die Straße ist schön, und die Häuser sind groß.", "cp850"),
    "Polish": ("Zażółć gęślą jaźń. Dziękuję za wiadomość.", "cp1250"),
    "Polish, ISO": ("Zażółć gęślą jaźń. Dziękuję za wiadomość.", "iso8859-2"),
    "Czech": ("Příliš žluťoučký kůň úpěl ďábelské ódy.", "cp1250"),
    "Hungarian": ("Köszönöm a levelet, később írok. Őszintén örülök a hű barátnak.", "cp1250"),
    "Turkish": ("Günaydın, nasılsın? Sana bir mektup yazıyorum. Şimdi", "cp1254"),
    "Lithuanian": ("Ačiū už laišką, šiandien rašau tau atsakymą.", "cp1257"),
    "Russian": ("Привет, как дела? Я пишу тебе письмо.", "cp1251"),
    "Russian, KOI8": ("Привет, как дела? Я пишу тебе письмо.", "koi8-r"),
    "Greek": ("Καλημέρα, τι κάνεις; Σου γράφω ένα γράμμα.", "cp1253"),
    "Japanese": ("こんにちは。今日は手紙を書いています。", "shift_jis"),
    "Japanese, EUC": ("こんにちは。今日は手紙を書いています。", "euc_jp"),
    "Japanese, JIS": ("こんにちは。今日は手紙を書いています。", "iso2022_jp"),
    "Chinese": ("你好，我今天给你写一封信。天气很好。", "gb18030"),
}


@pytest.mark.parametrize("times", [1, 9])
def test_text_of_every_encoding_is_read(tmp_path: Path, times: int) -> None:
    for name, (text, encoding) in ENCODED.items():
        whole = "\n".join([text.strip("\ufeff\n")] * times)
        data = (text.strip("\n") + "\n" + whole if text.startswith("\ufeff") else "\n" + whole + "\n").encode(encoding)
        assert set(text_of(tmp_path / "a.txt", data).split("\n")) == {whole.split("\n")[0]}, name


NO_TEXT = {
    "a picture": b"\xff\xd8\xff\xe0\x00\x10JFIF\x00\x01\x01" * 40,
    "all bytes": bytes(range(256)) * 4,
    "UTF-16 read as UTF-8": "\ufffd\ufffdT\0h\0e\0 \0e\0n\0d\0".encode(),
    "UTF-16 read as Latin-1": "The end".encode("utf-16").decode("latin-1").encode(),
    "a program": b"\x7fELF\x02\x01\x01" + bytes(60),
}


def test_what_is_no_text_is_refused_in_one_sentence(tmp_path: Path) -> None:
    for name, ending in product(NO_TEXT, ("txt", "md", "html")):
        (tmp_path / f"{name}.{ending}").write_bytes(NO_TEXT[name])
    text, places = read(tmp_path)
    assert (text, [place.reason for place in places]) == ("", [charsets.NO_TEXT] * len(NO_TEXT) * 3)


@pytest.mark.parametrize(
    ("data", "text"),
    [
        ("I like caf\ufffd very much.", "I like very much."),
        ("\ufffd\ufffd first", "first"),
        ("a\0b \0c\x07" + "d" * 80 + "\0" * 99, "ab c" + "d" * 80),
        ("Dear Zoë, ".encode() * 20 + b"caf\xe9 now", "Dear Zoë, " * 20 + "now"),
        ("Dear Zoë, ".encode() * 20 + b"cut \xc3", "Dear Zoë, " * 20 + "cut"),
    ],
    ids=["a lost letter", "at the start", "controls", "a wrong byte", "a cut character"],
)
def test_a_character_that_is_lost_is_not_learned(tmp_path: Path, data: str | bytes, text: str) -> None:
    (tmp_path / "a.txt").write_bytes(data.encode() if isinstance(data, str) else data)
    found, damage = read(tmp_path)
    assert found.strip() == text
    assert all("cannot be read were left out" in place.reason for place in damage)
    assert bool(damage) == ("d" * 80 not in found)


def test_text_that_was_encoded_twice_is_decoded_twice(tmp_path: Path) -> None:
    for text in ("café crème", "“quoted” – and so on…", "à la carte", "Привет", "Zoë 😀"):
        twice = "".join(bytes((byte,)).decode("cp1252", "ignore") or chr(byte) for byte in text.encode())
        assert text_of(tmp_path / "a.txt", f"Ein schönes Wort: é\n{twice}\n") == f"Ein schönes Wort: é\n{text}"


def test_text_whose_first_letters_beyond_ascii_come_late_is_decoded(tmp_path: Path) -> None:
    text = "plain words\n" * 200_000 + "café\n"
    assert text_of(tmp_path / "a.txt", text.encode("cp1252"))[-5:].strip() == "café"


# ---------------------------------------------------------------- the same file again


WORSE = {
    "a lost word": b"1 2 3 4 \xef\xbf\xbd",
    "UTF-16 in UTF-8": "\ufffd\ufffd1\0 \0".encode() + "2 3".encode("utf-16-le"),
    "bytes": bytes(range(256)),
    "nothing": b"",
    "a mark alone": b"\xff\xfe",
}


def test_a_worse_reading_replaces_nothing(tmp_path: Path) -> None:
    paths = {tmp_path / f"{name}.txt": worse for name, worse in WORSE.items()}
    with PersonalStore.open(tmp_path / "me.sqlite", WordTokenizer(), create=True) as store:  # pyright: ignore[reportArgumentType]

        def added(texts: dict[Path, bytes]) -> personal.Added:
            for path, text in texts.items():
                path.write_bytes(text)
            return personal.add(store, [*texts])

        for better in (b"1 2 3 4 5", "1 2 3 4 5 6".encode("utf-16")):
            assert added(dict.fromkeys(paths, better)).damage == []
        assert added(paths).files == 0
        assert [text.passages for text in store.texts()] == [("1 2 3 4 5 6",)] * len(paths)
        assert added(dict.fromkeys(paths, b"7 8")).files == len(paths)  # shorter, and sound
        assert [text.passages for text in store.texts()] == [("7 8",)] * len(paths)


# ---------------------------------------------------------------- Word

W = 'xmlns:w="http://schemas.openxmlformats.org/wordprocessingml/2006/main"'


def run(text: str, about: str = "", tag: str = "t") -> str:
    return f'<w:r><w:rPr>{about}</w:rPr><w:{tag} xml:space="preserve">{text}</w:{tag}></w:r>'


def par(*runs: str, about: str = "") -> str:
    return f"<w:p><w:pPr>{about}</w:pPr>{''.join(runs)}</w:p>"


def field(instruction: str, result: str) -> str:
    mark = '<w:r><w:fldChar w:fldCharType="{}"/></w:r>'.format
    return mark("begin") + run(instruction, tag="instrText") + mark("separate") + result + mark("end")


def sdt(about: str, content: str) -> str:
    return f"<w:sdt><w:sdtPr>{about}</w:sdtPr><w:sdtContent>{content}</w:sdtContent></w:sdt>"


YES = run("Yes.")
BODIES = {
    "moved": par(f"<w:moveFrom>{YES}</w:moveFrom>") + par(f"<w:moveTo>{YES}</w:moveTo>"),
    "deleted": par(YES, f"<w:del>{run('no', tag='delText')}</w:del>"),
    "deleted in w:t": par(YES, f"<w:del>{run('no')}</w:del>"),
    "inserted and deleted": par(YES, f"<w:ins><w:del>{run('no')}</w:del></w:ins>"),
    "a deleted row": par(YES) + f"<w:tbl><w:tr><w:trPr><w:del/></w:trPr><w:tc>{par(run('no'))}</w:tc></w:tr></w:tbl>",
    "vanished": par(YES, run("no", "<w:vanish/>")),
    "not vanished": par(run("Yes.", '<w:vanish w:val="false"/>')),
    "vanished before": par(run("Yes.", "<w:rPrChange><w:rPr><w:vanish/></w:rPr></w:rPrChange>")),
    "vanished by style": par(YES, run("no", '<w:rStyle w:val="Secret"/>')),
    "vanished by inheritance": par(YES) + par(run("no"), about='<w:pStyle w:val="Child"/>'),
    "shown in spite of its style": par(run("Yes.", '<w:rStyle w:val="Secret"/><w:vanish w:val="0"/>')),
    "ruby": par(f"<w:ruby><w:rt>{run('no')}</w:rt><w:rubyBase>{YES}</w:rubyBase></w:ruby>"),
    "a placeholder": par(YES, sdt("<w:showingPlcHdr/>", run("Click here"))),
    "a placeholder block": par(YES) + sdt("<w:showingPlcHdr/>", par(run("Click here"))),
    "a placeholder by style": par(YES, run("Klicken", '<w:rStyle w:val="Platzhaltertext"/>')),
    "a filled control": par(sdt("<w:text/>", YES)),
    "contents": sdt('<w:docPartObj><w:docPartGallery w:val="Table of Contents"/></w:docPartObj>', par(run("no")))
    + par(YES),
    "contents as a field": par(field(' TOC \\o "1-3" ', run("no") + field("PAGEREF a", run("3")))) + par(YES),
    "contents of several paragraphs": par(field(" TOC ", run("no") + "</w:p><w:p>" + run("no"))) + par(YES),
    "contents by style": par(run("no"), about='<w:pStyle w:val="Verzeichnis1"/>') + par(YES),
    "contents without their styles": par(run("no"), about='<w:pStyle w:val="TM2"/>') + par(YES),
    "an index": par(f'<w:fldSimple w:instr=" INDEX \\c 2">{run("no")}</w:fldSimple>') + par(YES),
    "sources": par(field("ADDIN ZOTERO_BIBL {}", run("no"))) + par(YES),
    "a link": par(field('HYPERLINK "http://no"', YES)),
    "an instruction in w:t": par('<w:r><w:fldChar w:fldCharType="begin"/></w:r>', run("no"),
                                 '<w:r><w:fldChar w:fldCharType="separate"/></w:r>', YES,
                                 '<w:r><w:fldChar w:fldCharType="end"/></w:r>'),
    "a broken field": par('<w:r><w:fldChar w:fldCharType="begin"/></w:r>') + par(YES),
    "a prompt": par(field("MACROBUTTON NoMacro [no]", run("no")), YES),
    "a copy for old programs": par(
        f'<m:AlternateContent xmlns:m="urn:m"><m:Choice>{YES}</m:Choice><m:Fallback>{run("no")}</m:Fallback>'
        "</m:AlternateContent>"),
    "joined paragraphs": par(run("Ye"), about="<w:rPr><w:del/></w:rPr>") + par(run("s.")),
}  # fmt: skip
STYLES = f"""<w:styles {W}><w:style w:styleId="Secret"><w:name w:val="Secret"/><w:rPr><w:vanish/></w:rPr></w:style>
<w:style w:styleId="Child"><w:basedOn w:val="Secret"/></w:style>
<w:style w:styleId="Platzhaltertext"><w:name w:val="Placeholder Text"/></w:style>
<w:style w:styleId="Verzeichnis1"><w:name w:val="toc 1"/></w:style></w:styles>"""


def test_a_letter_is_read_as_its_page_is_seen(tmp_path: Path) -> None:
    path = tmp_path / "a.docx"
    for name, body in BODIES.items():
        with zipfile.ZipFile(path, "w") as archive:
            archive.writestr("word/document2.xml", f"<w:document {W}><w:body>{body}</w:body></w:document>")
            archive.writestr("word/styles.xml", STYLES)
        assert read(path) == ("Yes.", []), name


# ---------------------------------------------------------------- pages

PAGES = {
    "hidden": "<p hidden>no<p>Yes.",
    "hidden, nested": "<div hidden><div>no</div><br><img><p>no</div>Yes.",
    "hidden until found": '<section HIDDEN="until-found">no</section>Yes.',
    "display": '<span style="color: red; DISPLAY : none !important">no</span>Yes.',
    "visibility": "<p style=visibility:hidden>no</p>Yes.",
    "a preview line": '<div style="max-height:0px;overflow:hidden;mso-hide:all">no</div>Yes.',
    "an item": "<ul><li style='display:none'>no<ul><li>no</ul><li>Yes.</ul>",
    "a cell": "<table><tr><td hidden>no<td>Yes.</table>",
    "a row": "<table><tr hidden><td>no<td>no<tr><td>Yes.</table>",
    "left open": "<div><span hidden>no</div>Yes.",
    "a stray end": "<div hidden>no</section>no</div>Yes.",
    "by class": "<style>/* x */ .a, p.b {display:none}</style><i class='c a'>no</i><p class=b>no</p>Yes.",
    "by id": "<style>#a{visibility:hidden}</style><i id=a>no</i>Yes.",
    "shown again": "<style>.a{display:none}.a{display:block}</style><p class=a>Yes.",
    "on paper": "<style>@media print{.a{display:none}}</style><p class=a>Yes.",
    "a word of it": "<div class=hidden data-hidden style='overflow:hidden'>Yes.</div>",
    "ruby": "<ruby>Ye<rp>(</rp><rt>no</rt><rp>)</rp>s<rt>no</ruby>.",
    "templates": "<template><p>no</p></template><noscript>no</noscript><dialog>no</dialog>Yes.",
    "comments": "<!-- no --><!--[if mso]>no<![endif]-->Yes.",
    "for screen readers": "<span aria-hidden=true>Yes.</span>",
    "an empty picture": "<svg/>Yes.",
}


def test_a_page_is_read_as_it_is_seen() -> None:
    assert {name: pages.text_of_html(page) for name, page in PAGES.items()} == dict.fromkeys(PAGES, "Yes.")


# ---------------------------------------------------------------- chats

LRM = "\u200e"
STAMPS = {
    "Android, US": "12/31/23, 11:59\u202fPM - ",
    "Android, UK": "31/12/2023, 23:59 - ",
    "Android, German": "31.12.23, 23:59 - ",
    "Android, French": "31/12/2023 à 23:59 - ",
    "Android, Spanish": "31/12/23 11:59 p. m. - ",
    "Android, Dutch": "31-12-2023 23:59 - ",
    "Android, Finnish": "31.12.2023 klo 23.59 - ",
    "Android, Swedish": "2023-12-31 23:59 - ",
    "Android, Chinese": "2023/12/31 下午11:59 - ",
    "Android, Hungarian": "2023. 12. 31. 23:59 - ",
    "Android, Arabic": "\u200f٣١\u200f/١٢\u200f/٢٠٢٣، ١١:٥٩ م - ",
    "Android, Korean": "2023년 12월 31일 오후 11:59, ",
    "iOS, US": "[12/31/23, 11:59:58\u202fPM] ",
    "iOS, German": "[31.12.23, 23:59:58] ",
    "iOS, UK": f"{LRM}[31/12/2023, 23:59:58] ",
    "iOS, Swedish": "[2023-12-31 23:59:58] ",
}


def test_own_messages_of_whatsapp_are_read_in_every_form_of_the_date(tmp_path: Path) -> None:
    for name, stamp in STAMPS.items():
        colon = " : " if "Korean" in name else ": "
        lines = ["Messages and calls are end-to-end encrypted.", f"Bob Lee{colon}Are you there?",
                 f"Zoë{colon}Yes: at 5.", f"Bob Lee{colon}Good", f"Zoë{colon}See you"]  # fmt: skip
        chat = "\n".join(stamp + line for line in lines) + "\nand bring\n\nthe book\n"
        found = text_of(tmp_path / "a.txt", chat, "zoë")
        assert found == "Yes: at 5.\nSee you\nand bring\n\nthe book", name
        text, (place,) = read(tmp_path / "a.txt")
        assert text == "" and all(part in place.reason for part in ("--from NAME: ", "Bob Lee", "Zoë")), name
    _, (place,) = read(tmp_path / "a.txt", "Ann")
    assert "none of these" in place.reason


OMITTED = [
    "<Media omitted>", "<Medien ausgeschlossen>", "<Médias omis>", "<Multimedia omitido>", "<Mídia oculta>",
    "<Без медиафайлов>", "<Media omessi>", f"{LRM}image omitted", f"{LRM}Bild weggelassen", f"{LRM}Sticker omitted",
    "video omitted", "image absente", "imagen omitida", "immagine omessa", "afbeelding weggelaten", "图片已忽略",
    "画像は省略されました", f"{LRM}<attached: 00000012-PHOTO-2023.jpg>", "IMG-2023.jpg (file attached)",
    f"{LRM}IMG-2023.jpg (Datei angehängt)", "This message was deleted", "Du hast diese Nachricht gelöscht.", "null",
    f"Report.pdf • {LRM}12 pages {LRM}document omitted", "Missed voice call",
]  # fmt: skip


@pytest.mark.parametrize("name", ["_chat.txt", "WhatsApp Chat with Bob/WhatsApp Chat with Bob.txt"])
def test_a_chat_that_was_exported_with_its_pictures_is_read_from_the_archive(tmp_path: Path, name: str) -> None:
    chat = "[02.03.24, 10:11:12] Ann: I come at six\n[02.03.24, 10:12:12] Bob: not this\n"
    path = tmp_path / "WhatsApp Chat.zip"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("00000001-PHOTO.jpg", b"\xff\xd8\xff")
        archive.writestr(name, chat)
    assert read(path, "Ann") == ("I come at six", [])


def test_an_archive_of_conversations_is_read_and_one_without_a_chat_or_too_large_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(archives, "_MOST", 1 << 20)
    path = tmp_path / "export.zip"
    message = {"author": {"role": "user"}, "content": {"content_type": "text", "parts": ["How do I bake bread?"]}}
    made = {"title": "t", "mapping": {"a": {"message": message, "parent": None, "children": []}}}
    for name, contents, expected, reason in (
        ("conversations.json", json.dumps([made]), "How do I bake bread?", None),
        ("notes.txt", "private", "", "an archive without a chat; unpack it, and add the files in it"),
        ("_chat.txt", "ab " * 1_000_000, "", "unpacks to more than"),
    ):
        with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
            archive.writestr(name, contents)
        text, damage = read(path)
        assert text.startswith(expected)
        assert len(damage) == (reason is not None)
        assert not reason or reason in damage[0].reason
    path.write_bytes(path.read_bytes()[:200])
    assert "cut off or damaged" in read(path)[1][0].reason


def test_what_whatsapp_writes_in_place_of_a_message_is_not_read(tmp_path: Path) -> None:
    lines = [
        "Zoë: Hello",
        *(f"Zoë: {line}" for line in OMITTED),
        "Bob: Hi",
        "Zoë: Bye <Diese Nachricht wurde bearbeitet.>",
    ]
    chat = "".join(f"[31.12.23, 23:59:58] {line}\n" for line in lines)
    assert text_of(tmp_path / "_chat.txt", chat, "Zoë") == "Hello\nBye"


@pytest.mark.parametrize("name", ["WhatsApp Chat with Friends.txt", "_chat.txt", "a.txt"])
def test_a_chat_in_which_each_person_wrote_once_is_a_chat(tmp_path: Path, name: str) -> None:
    first = "Nachrichten sind Ende-zu-Ende-verschlüsselt.\n" if name == "a.txt" else "Ann joined\n"
    lines = "".join(f"31.12.23, 23:59 - {who}\n" for who in ("Ann: a", "Bob: b", "Zoë: One.", "Eve: c"))
    assert text_of(tmp_path / name, f"31.12.23, 23:58 - {first}{lines}", "Zoë") == "One."


DATED = {
    "a diary": "31.12.2023, 23:59 - slept badly\nand woke late",
    "a log": "[2023-12-31, 10:00] Mood: good\n[2024-01-01, 10:00] Food: bad\n[2024-01-02, 10:00] Walk: long",
    "a sentence": "Meeting on 31/12/2023 at 10:00 - Bob: fine",
    "times alone": "10:00 - Bob: hello",
}


def test_text_with_dates_is_no_chat(tmp_path: Path) -> None:
    assert {name: text_of(tmp_path / "a.txt", text) for name, text in DATED.items()} == DATED


def turn(role: str, text: str, parent: str | None, **more: object) -> dict:
    content = {"content_type": "text", "parts": [text]}
    return {"message": {"author": {"role": role}, "content": content, **more}, "parent": parent}


CHATGPT = [{
    "title": "x", "current_node": "e",
    "mapping": {
        "a": {"message": None, "parent": None},
        "s": turn("user", "no", "a", metadata={"is_visually_hidden_from_conversation": True}),
        "b": turn("user", "One.", "s"), "x": turn("user", "no", "s"), "c": turn("assistant", "no", "b"),
        "d": {"message": {"author": {"role": "user"}, "content": {
            "content_type": "multimodal_text", "parts": [{"asset_pointer": "no"}, "Two."]}}, "parent": "c"},
        "e": {"message": {"author": {"role": "user"}, "content": {
            "content_type": "user_editable_context", "user_profile": "no"}}, "parent": "d"},
    },
}]  # fmt: skip
PEOPLE = [("Bob", "no"), ("Zoë", "One."), ("Zoë", "Two.")]
CHATS = {
    "ChatGPT": CHATGPT,
    "ChatGPT, one conversation": CHATGPT[0],
    "Claude": [{"chat_messages": [
        {"sender": s, "text": t} for s, t in (("human", "One."), ("assistant", "no"), ("human", "Two."))]}],
    "Telegram": {"name": "Bob", "messages": [
        {"type": "service", "actor": "Zoë", "text": "no"}, {"type": "message", "from": "Bob", "text": "no"},
        {"type": "message", "from": "Zoë", "text": ["On", {"type": "bold", "text": "e"}, "."]},
        {"type": "message", "from": "Zoë", "forwarded_from": "Bob", "text": "no"},
        {"type": "message", "from": "Zoë", "text": "Two."}]},
    "Telegram, all": {"chats": {"list": [
        {"messages": [{"type": "message", "from": s, "text": t}]} for s, t in PEOPLE]}},
    "Instagram": {"participants": [], "messages": [
        {"sender_name": s.encode().decode("latin-1"), "content": t} for s, t in PEOPLE]},
    "Discord": {"guild": {}, "messages": [{"type": "Default", "author": {"name": s}, "content": t} for s, t in PEOPLE]},
    "Slack": [{"type": "message", "user": s, "text": t} for s, t in PEOPLE],
    "Google": {"messages": [{"creator": {"name": s, "email": "x"}, "text": t} for s, t in PEOPLE]},
}  # fmt: skip


@pytest.mark.parametrize("indent", [None, 1], ids=["in a line", "indented"])
def test_own_messages_of_exported_chats_are_read(tmp_path: Path, indent: int | None) -> None:
    written = {name: json.dumps(chat, indent=indent) for name, chat in CHATS.items()}
    read = {name: text_of(tmp_path / "a.json", text, "Zoë;Someone") for name, text in written.items()}
    assert read == dict.fromkeys(CHATS, "One.\nTwo.")


NAMES = [
    "chats", "list", "mapping", "current_node", "a", "message", "author", "role", "content", "content_type", "parts",
    "metadata", "chat_messages", "messages", "sender", "sender_name", "from", "text", "type", "user", "name",
]  # fmt: skip
VALUES = st.recursive(
    st.none() | st.integers() | st.sampled_from(["a", "user", "text", "message", "", "\ud800"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(NAMES), inner, max_size=5),
    max_leaves=30,
)


@given(value=VALUES)
@settings(max_examples=150, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_a_chat_of_any_shape_is_read_or_refused(tmp_path: Path, value: object) -> None:
    (tmp_path / "a.json").write_text(json.dumps(value, indent=1))
    text, damage = read(tmp_path / "a.json", "a")
    text.encode()
    assert len(damage) <= 2


def test_the_marks_of_names_do_not_count(tmp_path: Path) -> None:
    names = ("~\u202fZoe\u0308", "One."), ("\u202a+49 170 123-45\u202c", "Two."), ("Bob", "no"), ("Bob", "no")
    chat = "".join(f"31.12.23, 23:59 - {name}: {text}\n" for name, text in names * 2)
    assert text_of(tmp_path / "a.txt", chat, " ZOË;+4917012345") == "One.\nTwo.\nOne.\nTwo."


OTHER_JSON = {
    "settings": {"editor": {"font": "x"}, "list": [1, 2, {"a": None}]},
    "numbers": [1, 2, 3],
    "a canvas": {"nodes": [{"id": "1", "type": "text", "x": 0}], "edges": []},
    "a word": "word",
}


def test_other_json_is_refused_in_one_sentence(tmp_path: Path) -> None:
    for name, value in OTHER_JSON.items():
        (tmp_path / f"{name}.json").write_text(json.dumps(value, indent=2))
    text, places = read(tmp_path)
    assert (text, sorted(Path(place.path).stem for place in places)) == ("", sorted(OTHER_JSON))


@pytest.mark.parametrize(
    "data",
    ['[\n{"text": "one"},\n{"text": "two"}\n]', '[{"text": "one"}, {"text": "two"}]',
     '\n\n{"text": "one"}\n{"text": "two"}',
     'broken\n{"text": "one"}\n{"text": "two"}'],
    ids=["a list", "a list in a line", "lines after empty ones", "lines after a broken one"],
)  # fmt: skip
def test_documents_in_json_are_read(tmp_path: Path, data: str) -> None:
    (tmp_path / "a.json").write_text(data)
    text, damage = read(tmp_path)
    assert (text, len(damage)) == ("one\ntwo", int("broken" in data))


# ---------------------------------------------------------------- shards with files beside them


def sidecars(folder: Path, listed: list[int]) -> Path:
    about: list[dict[str, Any]] = [{}, {"language": "de"}, {"bucket": 2.0}, {}, {"words": 7}]
    path = shard_of_v2(folder, [signals_of(i, perplexity=-500.0 * i, **each) for i, each in enumerate(about)])
    ids = [f"2023-06/0000/en_head.json.gz/{i}" for i in listed]
    for kind, table in (("duplicates", {"doc_id": ids}), ("minhash", {"id": ids, "text": ids})):
        beside = folder / kind / "2023-06" / "0000" / f"en_head.{kind}.parquet"
        beside.parent.mkdir(parents=True)
        pyarrow.parquet.write_table(pyarrow.table(table), beside)
    plain_name = folder / "minhash" / "2023-06" / "0000" / "more.parquet"
    pyarrow.parquet.write_table(pyarrow.table({"text": ["no"]}), plain_name)
    return path


def test_files_beside_shards_are_no_documents(tmp_path: Path) -> None:
    path = sidecars(tmp_path, [1])
    for source in (tmp_path, tmp_path / "**" / "*"):
        assert [file.address for file in readers.expand([source])] == [str(path)]
    (tmp_path / "mine" / "duplicates").mkdir(parents=True)
    (tmp_path / "mine" / "duplicates" / "letter.txt").write_text("a folder of one's own")
    assert len(readers.expand([tmp_path])) == 2


@pytest.mark.parametrize(
    ("wanted", "taken"),
    [
        ("language=en", [0, 2, 3, 4]),
        ("language=en,de", [0, 1, 2, 3, 4]),
        ("bucket=head,middle", [0, 1, 3, 4]),
        ("perplexity=-500", [0, 1, 2, 3, 4]),
        ("words=50-1000", [0, 1, 2, 3]),
        ("rps_doc_word_count=-50", [4]),
        ("language=en bucket=head perplexity=-9999-500 words=50-", [0, 3]),
        ("rps_doc_unknown=0-1", []),
        ("duplicates=no", [0, 2, 4]),
        ("perplexity=-1000-", [0, 1, 2]),
        ("perplexity=-1500--500", [1, 2, 3]),
        ("perplexity=--1500", [3, 4]),
        ("perplexity=-1000- duplicates=no", [0, 2]),
        ("perplexity=-1e3-0.5", [0, 1, 2]),
    ],
)
def test_documents_are_taken_by_their_signals(tmp_path: Path, wanted: str, taken: list[int]) -> None:
    path, damage = sidecars(tmp_path, [1, 3]), list[Damage]()
    reading = Reading(damage.append, signals=Signals.parse(wanted.split()))
    found = [document.text for document in readers.read_file(readers.File.at(path), reading)]
    assert (found, reading.left_out, damage) == ([f"{i} {i}" for i in taken], 5 - len(taken), [])


WRONG = "duplicates=yes words=- words=10-5 perplexity=-- words=1-2-3-4 words words= words=many bucket=best colour=red"


@pytest.mark.parametrize("wrong", WRONG.split())
def test_wrong_signals_are_refused(wrong: str) -> None:
    with pytest.raises(InputError, match="given"):
        Signals.parse([wrong])


def test_a_list_of_duplicates_that_is_missing_is_refused(tmp_path: Path) -> None:
    path = shard_of_v2(tmp_path, [signals_of(0)])
    with pytest.raises(InputError, match="has no list of duplicates"):
        Signals.parse(["duplicates=no"]).files_for(readers.File.at(path))


@pytest.mark.parametrize("damage", ["bytes", "columns"])
def test_a_damaged_list_of_duplicates_is_refused(tmp_path: Path, damage: str) -> None:
    path = sidecars(tmp_path, [1])
    listed = tmp_path / "duplicates" / "2023-06" / "0000" / "en_head.duplicates.parquet"
    if damage == "bytes":
        listed.write_bytes(listed.read_bytes()[:40])
    else:
        pyarrow.parquet.write_table(pyarrow.table({"other": [1]}), listed)
    with pytest.raises(InputError, match="Omit duplicates=no"):
        list(readers.read_file(readers.File.at(path), Reading(print, signals=Signals.parse(["duplicates=no"]))))


# ---------------------------------------------------------------- forms of letters

FORMS = {
    "decomposed": "cafe\u0301 cre\u0300me",
    "no-break space": "café\u00a0crème",
    "narrow space": "café\u202fcrème",
    "no width": "ca\u200bfé crè\u2060me",
    "soft hyphens": "ca\u00adfé crè\u00adme",
    "a mark inside": "\ufeffcafé crème",
}


def test_a_store_has_one_form_of_a_text(tmp_path: Path) -> None:
    for name, form in FORMS.items():
        assert plain(form) == text_of(tmp_path / "a.txt", form) == "café crème", name


def test_joiners_stay_and_many_marks_cost_little() -> None:
    assert plain("می\u200cخواهم क्\u200dष 👩\u200d💻") == "می\u200cخواهم क्\u200dष 👩\u200d💻"
    assert len(plain("a" + "\u0301\u0323" * 200_000)) == 400_001
