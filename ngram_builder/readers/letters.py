"""Word documents: the body, including tables, as a reader of the page sees it; headers, footers and comments are left
out.

A .docx file is a ZIP archive. Only the members with the body and its styles are unpacked, and they are parsed as
streams. Pictures cost nothing, nor do damaged or huge members. (python-docx reads text that was moved away, deleted or
hidden, and holds the whole archive.)
"""

from __future__ import annotations

import re
import zipfile
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, BinaryIO

from ngram_builder.readers.archives import archive_of, member, pieces_of
from ngram_builder.readers.base import Document, Source, Unreadable, guarded, sound

_BODY = re.compile(r"word/document\d*\.xml")  # some programs number it
_STYLES = re.compile(r"word/styles\d*\.xml")
_NESTED = 64  # fields in fields
# What is not on the page: text deleted or moved away, copies for old programs, readings above letters.
_UNSEEN = ("Fallback", "del", "moveFrom", "rt", "delText", "delInstrText")
_OFF = ("0", "false", "off")
# What a program writes: placeholders, tables of contents, lists of sources; by the names of styles, which Word keeps in
# English, by their ids, by parts, and by fields.
_GENERATED_STYLE = re.compile(
    r"placeholder text|(?:toc|contents|index) (?:\d|heading)|table of (?:figures|authorities)|toa heading"
)
_GENERATED_ID = re.compile(  # in some languages of Word, for documents without their styles
    r"(?:TOC|TM|TDC|Verzeichnis|Sommario|Inhopg|Sumrio|Spistreci|Innehll|Indholdsfortegnelse|INNH)\d"
    r"|TOCHeading|Inhaltsverzeichnis\w*|TableofFigures|Abbildungsverzeichnis|PlaceholderText|Platzhaltertext"
    r"|Textedelespacerserv|Textodelmarcadordeposicin|Testosegnaposto|Tekstvantijdelijkeaanduiding|TextodoEspaoReservado"
)
_GENERATED_PARTS = ("Table of Contents", "Bibliographies")
GENERATED_FIELD = re.compile(
    r"\s*(?:TOC|INDEX|TOA|BIBLIOGRAPHY|ADDIN\s+(?:ZOTERO_BIBL|EN\.REFLIST|Mendeley Bibliography)|MACROBUTTON)\b",
    re.IGNORECASE,
)


class ParserTarget:
    """Takes the parts of XML, as lxml passes them."""

    def start(self, tag: str, attributes: Any) -> None: ...
    def end(self, tag: str) -> None: ...
    def data(self, data: str) -> None: ...
    def close(self) -> None: ...


class UnseenStyles(ParserTarget):
    """Collects the styles whose text is not the writer's. `start` of a subclass fills them in."""

    def __init__(self) -> None:
        self.unseen: set[str] = set()
        self.shown: set[str] = set()  # styles that say so themselves
        self.based_on: dict[str, str] = {}
        self.id = ""  # of the style that is being read

    def close(self) -> None:
        """Adds the styles that inherit from them."""
        for style in self.based_on:
            chain = list[str]()
            while style and style not in chain and style not in self.unseen | self.shown:
                chain.append(style)
                style = self.based_on.get(style, "")
            if style in self.unseen:
                self.unseen.update(chain)


class Body(ParserTarget):
    """Collects the text of a body as a reader of the page sees it: one line per paragraph; the cells of a row are
    separated by tabs."""

    styles: UnseenStyles

    def __init__(self) -> None:
        self.out: list[str] = []
        self.begun = False
        self._due = ""  # the separator between the collected text and the next text

    def _say(self, text: str) -> None:
        self.out += [self._due, text]
        self._due = ""

    def _end_cell(self) -> None:
        self._due = self._due.removesuffix("\n") + "\t"

    def _end_row(self) -> None:
        self._due = self._due.removesuffix("\t") + "\n"


@dataclass(frozen=True)
class Letter:
    """A kind of document that is a ZIP archive of XML.

    Attributes:
        ending: of its files.
        wrong: what a damaged one is.
        styles, content: names of the members.
        body: makes what collects its text.
    """

    ending: str
    wrong: str
    styles: re.Pattern[str]
    content: re.Pattern[str]
    body: type[Body]

    def documents(
        self, file: BinaryIO, source: Source, consumed: Callable[[int], None], size: int
    ) -> Iterator[Document]:
        """The document, as one text."""
        body = self.body()
        try:
            archive = archive_of(file, self.wrong, f"save it again as {self.ending}, and add it again")
            if styles := member(archive, self.styles):
                with suppress(Unreadable):
                    self._parse(archive, styles, body.styles, source)
            if content := member(archive, self.content):
                self._parse(archive, content, body, source)
            if not body.begun:
                raise Unreadable(f"{self.wrong}: it has no body")
        except Unreadable as error:
            source.damaged(str(error))
            return
        consumed(size)
        if text := sound("".join(body.out)).strip():
            yield Document(text, source.path)

    def _parse(self, archive: zipfile.ZipFile, entry: zipfile.ZipInfo, target: ParserTarget, source: Source) -> None:
        """Passes the XML of a member to `target`. Raises Unreadable."""
        # Imported here, because most readers never need it.
        import lxml.etree

        # No entity is replaced and nothing is fetched; libxml2 limits depth and length.
        parser = lxml.etree.XMLParser(target=target, resolve_entities=False, no_network=True)
        for piece in pieces_of(archive, entry, self.wrong, source):
            guarded(self.wrong, parser.feed, piece)
        guarded(self.wrong, parser.close)


class _WordStyles(UnseenStyles):
    """Those that vanish, of placeholders, of tables of contents."""

    def start(self, tag: str, attributes: Any) -> None:
        name, value = local(tag), attribute(attributes, "val")
        if name == "style":
            self.id = attribute(attributes, "styleId")
        elif name == "basedOn":
            self.based_on[self.id] = value
        elif name == "vanish":
            (self.shown if value in _OFF else self.unseen).add(self.id)
        elif name == "name" and _GENERATED_STYLE.fullmatch(value.lower()):
            self.unseen.add(self.id)


@dataclass
class _Frame:
    """An open element: its name, and whether its text is not on the page."""

    name: str
    unseen: bool = False


@dataclass
class _Field:
    """A field of Word: its instruction, and whether that is over and its result follows."""

    instruction: str = ""
    result: bool = False

    @property
    def unseen(self) -> bool:
        return not self.result or bool(GENERATED_FIELD.match(self.instruction))


class _Body(Body):
    def __init__(self) -> None:
        super().__init__()
        self.styles = _WordStyles()
        self._open = [_Frame("")]
        self._fields: list[_Field] = []
        self._joined = False  # whether the paragraph's mark is deleted or not shown: the next one goes on with it

    def start(self, tag: str, attributes: Any) -> None:
        name, value = local(tag), attribute(attributes, "val")
        self._open.append(_Frame(name, self._open[-1].unseen or name in _UNSEEN or name.endswith("Change")))
        if name == "body":
            self.begun = True
        if name == "vanish" and value in _OFF and [frame.name for frame in self._open[-3:-1]] == ["r", "rPr"]:
            self._show("r")
        if self._open[-1].unseen and name not in ("del", "moveFrom"):
            return
        match name:
            case "vanish" | "specVanish":
                if self._within("pPr"):
                    self._joined |= value not in _OFF
                elif value not in _OFF:
                    self._hide("r")
            case "del" | "moveFrom" if self._open[-2].name == "rPr":
                self._joined |= self._within("pPr")
            case "del" if self._open[-2].name == "trPr":
                self._hide("tr")
            case "cellDel":
                self._hide("tc")
            case "rStyle" | "pStyle" if value in self.styles.unseen or _GENERATED_ID.fullmatch(value):
                if name == "pStyle":
                    self._hide("p")
                elif not self._within("pPr"):
                    self._hide("r")
            case "showingPlcHdr" if value not in _OFF:
                self._hide("sdt")
            case "docPartGallery" if value in _GENERATED_PARTS:
                self._hide("sdt")
            case "fldChar":
                self._field(attribute(attributes, "fldCharType"))
            case "fldSimple":
                instruction = attribute(attributes, "instr")
                self._open[-1].unseen = bool(GENERATED_FIELD.match(instruction))
            case "tab" if self._open[-2].name != "tabs":
                self._say("\t")
            case "ptab":
                self._say("\t")
            case "br" | "cr":
                self._say("\n")
            case "noBreakHyphen":
                self._say("-")

    def end(self, tag: str) -> None:
        frame = self._open.pop()
        if frame.name == "p":
            self._due += "" if self._joined or frame.unseen else "\n"
            self._joined = False
            # A field that has shown nothing by the end of its paragraph is broken; the text after it is text.
            while self._fields and not self._fields[-1].result:
                self._fields.pop()
        elif frame.unseen:
            return
        elif frame.name == "tc":
            self._end_cell()
        elif frame.name == "tr":
            self._end_row()

    def data(self, data: str) -> None:
        frame = self._open[-1]
        if frame.name == "instrText" and self._fields and not self._fields[-1].result:
            self._fields[-1].instruction += data
        elif frame.name == "t" and not frame.unseen:
            self._say(data)

    def _say(self, text: str) -> None:
        if self.begun and not any(field.unseen for field in self._fields[-_NESTED:]):
            super()._say(text)

    def _field(self, mark: str) -> None:
        if mark == "begin":
            self._fields.append(_Field())
        elif mark == "separate" and self._fields:
            self._fields[-1].result = True
        elif mark == "end" and self._fields:
            self._fields.pop()

    def _within(self, name: str) -> bool:
        return any(frame.name == name for frame in self._open[-4:])

    def _hide(self, name: str) -> None:
        """Hides the innermost open element of this name, and those open within it."""
        self._mark(name, True)

    def _show(self, name: str) -> None:
        """Shows a run again whose style is hidden, unless an element around it is."""
        at = self._innermost(name)
        if at and not self._open[at - 1].unseen:
            self._mark(name, False)

    def _mark(self, name: str, unseen: bool) -> None:
        if at := self._innermost(name):
            for frame in self._open[at:]:
                frame.unseen = unseen

    def _innermost(self, name: str) -> int:
        return next((at for at in reversed(range(len(self._open))) if self._open[at].name == name), 0)


DOCX = Letter(".docx", "not an intact Word document", _STYLES, _BODY, _Body)


def local(tag: str) -> str:
    """A tag's name without its namespace, of which Word has two."""
    return tag.rpartition("}")[2]


def attribute(attributes: Any, name: str) -> str:
    """An attribute by its name without a namespace; "" if there is none."""
    return next((attributes[key] for key in attributes if local(key) == name), "")
