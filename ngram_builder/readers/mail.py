"""Mail: the text that its sender wrote, and nothing else: no attachment, quotation, forwarded mail or signature
(quotes.py, mail_html.py). Text in a wrong encoding is decoded or left out."""

from __future__ import annotations

import codecs
import email.header
import email.parser
import email.policy
import email.utils
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from email.message import Message
from typing import cast

from ngram_builder.readers import base
from ngram_builder.readers.base import Damage, Document, Source, Unreadable, guarded, sound
from ngram_builder.readers.charsets import charset, decoded
from ngram_builder.readers.mail_html import own_html
from ngram_builder.readers.packed import whole
from ngram_builder.readers.pages import text_of_html
from ngram_builder.readers.quotes import is_footer, own_words, unflowed

_PIECE = 1 << 16  # bytes parsed at a time
_MULTIPART = re.compile(rb"multipart/", re.IGNORECASE)
_MOST_PARTS = 50
_LONGEST_HEADER = 1000  # characters of it that are read
_ENCRYPTED = ("multipart/encrypted", "application/pkcs7-mime", "application/x-pkcs7-mime", "application/pgp-encrypted")

_NO_NAMES = ("unknown-8bit", "unknown", "x-unknown", "8bit", "binary", "default", "none")
_UTF16 = (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)
_LOOK = 64  # bytes of a mail by which UTF-16 is told


def eml_documents(pieces: Iterable[bytes], source: Source) -> Iterator[Document]:
    data = whole(pieces, source)
    if data:
        yield from mail_documents(data, 0, source)


def emlx_documents(pieces: Iterable[bytes], source: Source) -> Iterator[Document]:
    """A mail of Apple Mail: a line with the number of its bytes, the mail, and a property list."""
    data = whole(pieces, source) or b""
    length, _, rest = data.partition(b"\n")
    if not length.strip().isdigit() or len(length) > 20:
        source.damaged("not a mail of Apple Mail: it does not begin with its length")
        return
    yield from mail_documents(rest[: int(length)], 0, source)


def mail_documents(data: bytes, line: int, source: Source) -> Iterator[Document]:
    """The own words of the sender of one mail, as one document or none."""
    if not data:
        return
    mail = _Mail(source)
    try:
        text = mail.own_words(data)
    except Unreadable as error:
        source.damaged(str(error), line)
        return
    for reason in mail.damage:
        source.damaged(reason, line)
    if text:
        yield Document(text, source.path, line)
    elif mail.without_words and not mail.damage:
        source.note(Damage(source.path, line, f"{mail.without_words}, so nothing of it was learned"))


@dataclass(frozen=True)
class _Text:
    """The text of a part. `marked`: it is from HTML that says which of it is quoted."""

    text: str = ""
    marked: bool = False


class _Mail:
    """Reads one mail.

    Attributes:
        damage: reasons why parts of it cannot be read.
        without_words: why a mail without own words has none; "" if it is not to be learned.
    """

    def __init__(self, source: Source) -> None:
        self._source = source
        self._left_out = "it contains no text"
        self.damage: list[str] = []
        self.without_words = ""

    def own_words(self, data: bytes) -> str:
        """The words of the mail's sender. Raises Unreadable when it is no mail, or a part that is too long."""
        if data.startswith(_UTF16) or data[:_LOOK].count(0) * 3 > len(data[:_LOOK]):
            data = (decoded(data) or "").encode()
        message = self._parsed(data.removeprefix(codecs.BOM_UTF8))
        if not message.keys():
            raise Unreadable("not a mail: it has no header")
        if _is_no_letter(message) or not self._source.senders.takes(guarded("no mail", _senders, message)):
            return ""
        text = self._text(message).text
        if "-----BEGIN PGP MESSAGE-----" in text:
            self.without_words = "it is encrypted"
        elif text.strip():
            self.without_words = "it contains only quotations, forwarded mail or a signature"
        else:
            self.without_words = self._left_out
        if len(text) > base.LONGEST_TEXT:
            raise Unreadable(f"a mail with more than {base.LONGEST_TEXT:,} characters of text")
        return own_words(text)

    def _parsed(self, data: bytes) -> Message:
        # The parser compares every line with the end markers of all parts around it.
        if (parts := len(_MULTIPART.findall(data))) > _MOST_PARTS:
            raise Unreadable(f"{parts} nested parts; at most {_MOST_PARTS} are read")
        # The newer policies parse every header by a grammar, and never finish some of them.
        parser = email.parser.BytesFeedParser(policy=email.policy.compat32)
        for piece in base.portions(data, _PIECE):
            guarded("no mail", parser.feed, data[piece])
            self._source.check_cancelled()
        return guarded("no mail", parser.close)

    def _text(self, part: Message, within: str = "") -> _Text:
        """The text of a part; of alternatives the one that tells best what its writer wrote."""
        self._source.check_cancelled()
        kind = guarded("no mail", part.get_content_type)
        if kind in _ENCRYPTED:
            self._left_out = "it is encrypted, or signed as a whole"
            return _Text()
        if part.is_multipart() and kind.startswith("multipart/"):
            children = cast("list[Message]", part.get_payload())
            if kind == "multipart/alternative":
                return self._best(children)
            own: dict[str, _Text] = {}  # some programs send a text twice, and lists add a footer
            for child in children:
                text = self._text(child, kind)
                if text.text.strip() and not (own and is_footer(text.text)):
                    own.setdefault(" ".join(text.text.split()), text)
            return _Text("\n\n".join(text.text for text in own.values()), any(text.marked for text in own.values()))
        if guarded("no mail", _is_attached, part, within):
            self._left_out = "it contains only attachments"
            return _Text()
        if kind not in ("text/plain", "text/html"):
            return _Text()
        try:
            text = guarded("a part of it cannot be decoded", self._decoded, part)
        except Unreadable as error:
            self.damage.append(str(error))
            return _Text()
        if kind == "text/html":
            page, marked = own_html(text, self._source.check_cancelled)
            return _Text(text_of_html(page, self._source.check_cancelled), marked)
        if str(guarded("no mail", part.get_param, "format")).lower() == "flowed":
            text = unflowed(text, str(guarded("no mail", part.get_param, "delsp")).lower() == "yes")
        return _Text(text)

    def _best(self, alternatives: list[Message]) -> _Text:
        """HTML where it marks quotations, otherwise the plainest; what cannot be read of the others does no harm."""
        before = len(self.damage)
        texts = [text for part in alternatives if (text := self._text(part, "multipart/alternative")).text.strip()]
        if texts:
            del self.damage[before:]
        return next((text for text in texts if text.marked), texts[0] if texts else _Text())

    def _decoded(self, part: Message) -> str:
        data = part.get_payload(decode=True)
        named = part.get_content_charset()
        codec = charset(named) if named else None
        if named and codec is None and named not in _NO_NAMES:
            raise Unreadable(f"a part of it cannot be decoded: {named[:40]!r} is not an encoding of text")
        text = decoded(data if isinstance(data, bytes) else b"", codec or "ascii")
        if text is None:
            raise Unreadable("a part of it cannot be decoded: it is no text")
        text = sound(text).replace("\r\n", "\n")
        if "\ufffd" not in text:
            return text
        lines = text.split("\n")
        whole = [line for line in lines if "\ufffd" not in line]
        wrong = len(lines) - len(whole)
        self.damage.append(f"{wrong} line{'' if wrong == 1 else 's'} left out, which cannot be decoded")
        return "\n".join(whole)


def _is_no_letter(message: Message) -> bool:
    """Whether a mail is deleted, though still in its mailbox, or written by a program."""
    flags = str(message.get("X-Mozilla-Status", "")).strip()
    deleted = bool(re.fullmatch(r"[0-9a-fA-F]{4}", flags)) and int(flags, 16) & 8
    return bool(
        deleted
        or "D" in str(message.get("X-Status", ""))
        or "FOLDER INTERNAL DATA" in str(message.get("Subject", ""))
        or guarded("no mail", message.get_content_type) == "multipart/report"
    )


def _senders(message: Message) -> list[tuple[str, str]]:
    """Names and addresses in From."""
    said = [_value(header) for header in message.get_all("From", [])]
    said = [re.sub(r"^(\S+) at (\S+\.\w+)", r"\1@\2", each) for each in said]  # as archives of lists write it
    return [
        (str(email.header.make_header(email.header.decode_header(name))), address)
        for name, address in email.utils.getaddresses(said)
        if address
    ]


def _value(header: object) -> str:
    """The first part of a header's value; the parser gives one that is not in ASCII as an object."""
    if not isinstance(header, email.header.Header):
        return str(header)[:_LONGEST_HEADER]
    raw = b"".join(part for part, _ in email.header.decode_header(header))
    return decoded(raw[:_LONGEST_HEADER]) or ""


def _is_attached(part: Message, within: str) -> bool:
    named = within and within != "multipart/alternative" and part.get_filename()
    return part.get_content_disposition() == "attachment" or bool(named)
