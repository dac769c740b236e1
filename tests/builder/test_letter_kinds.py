"""Documents of LibreOffice and rich text: what a reader of the page sees, once, and nothing else."""

from __future__ import annotations

import zipfile
from pathlib import Path

import pytest

from tests.builder.test_document_kinds import read, text_of

SPACES = " ".join(
    f'xmlns:{name}="urn:oasis:names:tc:opendocument:xmlns:{name}:1.0"'
    for name in ("office", "text", "style", "table", "draw")
)
HIDDEN = (
    '<style:style style:name="H"><style:text-properties text:display="none"/></style:style>'
    '<style:style style:name="C" style:parent-style-name="H"/>'
    '<style:style style:name="S" style:parent-style-name="H"><style:text-properties text:display="true"/></style:style>'
)


def odt(path: Path, body: str, styles: str = "", named: str = "") -> Path:
    begin = f"<office:document-content {SPACES}><office:automatic-styles>{styles}</office:automatic-styles>"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("mimetype", "application/vnd.oasis.opendocument.text")
        archive.writestr("styles.xml", f"<office:document-styles {SPACES}>{named}</office:document-styles>")
        archive.writestr(
            "content.xml",
            f"{begin}<office:body><office:text>{body}</office:text></office:body></office:document-content>",
        )
    return path


P = "<text:p>{}</text:p>"
ODT = {
    "paragraphs": (
        "<text:h>Title</text:h><text:p/>\n <text:p>Dear <text:span>B</text:span>ob,</text:p>",
        "Title\n\nDear Bob,",
    ),
    "spaces": (P.format('a\n   b<text:s text:c="2"/>c<text:s/>d<text:tab/>e<text:line-break/>f'), "a b  c d\te\nf"),
    "too many spaces": (P.format('a<text:s text:c="99999999999"/>b'), "a" + " " * 1000 + "b"),
    "deleted": (
        "<text:tracked-changes><text:changed-region><text:deletion><text:p>gone</text:p></text:deletion>"
        "</text:changed-region></text:tracked-changes>" + P.format('a<text:change text:change-id="1"/>b'),
        "ab",
    ),
    "comment": (P.format("a<office:annotation><text:p>no</text:p></office:annotation>b"), "ab"),
    "note": (P.format("a<text:note><text:note-citation>1</text:note-citation><text:p>no</text:p></text:note>b"), "ab"),
    "ruby": (
        P.format("<text:ruby><text:ruby-base>字</text:ruby-base><text:ruby-text>zi</text:ruby-text></text:ruby>"),
        "字",
    ),
    "contents": ("<text:table-of-content><text:p>One 1</text:p></text:table-of-content>" + P.format("One"), "One"),
    "sources": (P.format("a") + "<text:bibliography><text:p>Knuth</text:p></text:bibliography>", "a"),
    "placeholder": (P.format("a<text:placeholder>&lt;name&gt;</text:placeholder>"), "a"),
    "hidden letters": (P.format('a<text:span text:style-name="H">no</text:span>b'), "ab"),
    "hidden by a style below": (P.format("a") + '<text:p text:style-name="C">no</text:p>' + P.format("b"), "a\nb"),
    "shown again": ('<text:p text:style-name="S">yes</text:p>', "yes"),
    "hidden field": (P.format('a<text:hidden-text text:is-hidden="true">no</text:hidden-text>b'), "ab"),
    "hidden section": ('<text:section text:display="none"><text:p>no</text:p></text:section>' + P.format("b"), "b"),
    "table": (
        "<table:table><table:table-row><table:table-cell><text:p>a</text:p></table:table-cell><table:table-cell>"
        "<text:p>b</text:p></table:table-cell></table:table-row></table:table>" + P.format("c"),
        "a\tb\nc",
    ),
    "frame": (
        P.format(
            "a<draw:frame><draw:text-box><text:p>box</text:p></draw:text-box><draw:desc>no</draw:desc></draw:frame>b"
        ),
        "abox\nb",
    ),
    "entities": (P.format("a &amp; b &#8220;c&#8221;"), "a & b “c”"),
}


@pytest.mark.parametrize("kind", ODT)
def test_a_document_of_libreoffice_is_what_its_reader_sees(tmp_path: Path, kind: str) -> None:
    body, wanted = ODT[kind]
    for number, styles in enumerate([(HIDDEN, ""), ("", HIDDEN)]):  # of this document, or named
        text, damage = read(odt(tmp_path / f"{number}.odt", body, *styles))
        assert (text, damage) == (wanted, [])


@pytest.mark.parametrize(
    ("ending", "content", "wrong"),
    [
        ("odt", "content.xml", "not an intact document of LibreOffice, or one with a password: "),
        ("docx", "word/document.xml", "not an intact Word document: "),
    ],
)
def test_a_document_that_is_damaged_is_reported(tmp_path: Path, ending: str, content: str, wrong: str) -> None:
    path, damaged = tmp_path / f"a.{ending}", [b"words"]
    for members in ({}, {content: "<a/>"}, {content: "<a>"}, {content: b"\x07\x91\x00garbage of a password"}):
        with zipfile.ZipFile(path, "w") as archive:
            for name, data in members.items():
                archive.writestr(name, data)
        damaged.append(path.read_bytes())
    for data in (*damaged, damaged[-1][:40]):
        path.write_bytes(data)
        text, (damage,) = read(path)
        assert text == ""
        assert damage.reason.startswith(wrong)


RTF = {
    "windows": (r"\ansi Caf\'e9\par\par \ldblquote so\rdblquote  it\rquote s \emdash  x", "Café\n\n“so” it’s — x"),
    "mac": (r"\mac\ansicpg10000 caf\'8e\uc0\u8217 s" + "\\\nnext", "café’s\nnext"),
    "fonts": (r"{\fonttbl{\f0 A;}{\f1\fcharset204 B;}{\f2\fcharset128 C;}}\f1 \'cf\'f0\f2 \'93\'fa\f0 \'e9", "Пр日é"),
    "unicode": (r"na\u239\'efve \u-10179?\u-8704? {\uc2\u8364 EU}x \u8212-y", "naïve 😀 €x —y"),
    "hidden": (r"a{\v no}b\v no\v0 c\v no\plain d", "abcd"),
    "deleted": (r"a{\deleted no}b {\revised new}", "ab new"),
    "parts": (r"{\header no}{\footnote no}{\*\annotation no}{\info{\title no}}{\*\new no}{\stylesheet{no;}}a", "a"),
    "link": (r'{\field{\*\fldinst{HYPERLINK "http://no"}}{\fldrslt{\ul the link}}}', "the link"),
    "contents": (r"{\field{\*\fldinst {TOC \\o}}{\fldrslt {One\tab 1\par}}}{\field{\fldinst PAGE}{\fldrslt 2}}", "2"),
    "list": (r"{\pntext 1.\tab}one\par{\listtext 2.\tab}two", "one\ntwo"),
    "table": (r"\trowd a\cell b\par\cell\row\trowd c\cell d\cell\row e", "a\tb\nc\td\ne"),
    "picture": (r"a{\pict\pngblip 89504e47}{\pict\bin5 }}}}}}b", "ab"),
    "marks": (r"\{a\}\\ b\~c\-d\_e", "{a}\\ b c" + "d‑e"),
    "lines of the file": ("one \r\nword", "one word"),
    "after the end": ("a}no{no}", "a"),
}  # fmt: skip


@pytest.mark.parametrize("kind", RTF)
def test_rich_text_is_what_its_reader_sees(tmp_path: Path, kind: str) -> None:
    body, wanted = RTF[kind]
    assert text_of(tmp_path / "a.rtf", "{\\rtf1" + body + "}") == wanted


def test_rich_text_that_is_damaged_is_reported(tmp_path: Path) -> None:
    def damage_of(data: str) -> tuple[str, str]:
        (tmp_path / "a.rtf").write_text(data)
        text, (damage,) = read(tmp_path / "a.rtf")
        return text, damage.reason

    assert damage_of("words") == ("", "no rich text: it does not begin with {\\rtf")
    assert damage_of("{\\rtf1 one {two") == ("one two", "cut off; the part before was read")
    assert "code page 99 is not known" in damage_of("{\\rtf1\\ansicpg99 one}")[1]
    assert damage_of("{\\rtf1 one l\\u55357?st two}") == (
        "one two",
        "1 words with characters that cannot be read were left out",
    )
