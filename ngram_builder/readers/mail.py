"""Mail: the text that its sender wrote. Only text parts; quoted replies, forwarded mail and signatures are dropped."""

from __future__ import annotations

import email.parser
import email.policy
import re
from collections.abc import Iterable, Iterator
from email.message import Message
from typing import cast

from ngram_builder.readers import base
from ngram_builder.readers.base import Document, Source, Unreadable, guarded, sound
from ngram_builder.readers.packed import lines, whole
from ngram_builder.readers.pages import charset, decoded, text_of_html

_PIECE = 1 << 16  # bytes parsed at a time
_MULTIPART = re.compile(rb"multipart/", re.IGNORECASE)
_MOST_PARTS = 50

# "On Monday, 3 June 2024 at 10:00, Ann Lee <ann@x.org> wrote:" in the languages of the large mail programs; mail
# programs break it over two or three lines.
_ATTRIBUTION = re.compile(
    r"^[ \t]*(?:On|Am|Le|El|Il|Em|Op|Den|W dniu|Dnia)\b[^\n]{0,200}(?:\n[^\n]{0,200}){0,2}?"
    r"\b(?:wrote|schrieb|a écrit|escribió|ha scritto|escreveu|schreef|skrev|napisał\(?a?\)?)\b[^\n]{0,80}:[ \t]*$",
    re.MULTILINE,
)
# From here on the text is another sender's mail.
_FORWARDED = re.compile(
    r"^(?:[ \t]*-{2,}[ \t]*(?:Original Message|Forwarded message|Ursprüngliche Nachricht|Weitergeleitete Nachricht"
    r"|Message d'origine|Message transféré|Mensaje original|Messaggio originale)[ \t]*-{2,}"
    r"|[ \t]*Begin forwarded message:"
    r"|_{20,}[ \t]*\n+[ \t]*(?:From|Von|De|Da):"
    r"|[ \t]*\*?(?:From|Von|De|Da):\*?[ \t][^\n]+\n[ \t]*\*?(?:Sent|Date|Gesendet|Datum|Envoyé|Enviado|Inviato|Data):)",
    re.MULTILINE | re.IGNORECASE,
)
_SIGNATURE = re.compile(r"^-- ?$", re.MULTILINE)  # RFC 3676, section 4.3; some programs lose the space
_DEVICE = re.compile(r"^(?:Sent from my |Von meinem |Get Outlook for |Envoyé de mon )[^\n]{1,60}$", re.MULTILINE)


def eml_documents(pieces: Iterable[bytes], source: Source) -> Iterator[Document]:
    data = whole(pieces, source)
    if data:
        yield from _documents(data, 0, source)


def mbox_documents(pieces: Iterable[bytes], source: Source) -> Iterator[Document]:
    """The `line` of a document is that of its "From " line."""
    held = bytearray()
    start, blank = 0, True
    for number, line in lines(pieces, source):
        line = line.removesuffix(b"\r")
        if blank and line.startswith(b"From "):
            yield from _documents(bytes(held), start, source)
            held.clear()
            start = number
        elif start:
            held += line[line.startswith(b">") and line.lstrip(b">").startswith(b"From ") :] + b"\n"
            if len(held) > base.LONGEST:
                source.damaged(f"a mail longer than {base.LONGEST >> 20} MiB", start)
                held.clear()
                start = 0
        elif line and number == 1:
            source.damaged('not a mailbox: it does not begin with "From "', 1)
            return
        blank = not line
    yield from _documents(bytes(held), start, source)


def _documents(data: bytes, line: int, source: Source) -> Iterator[Document]:
    if not data:
        return
    try:
        texts = _texts(data, line, source)
    except Unreadable as error:
        source.damaged(str(error), line)
        return
    if text := own_words("\n\n".join(texts)):
        yield Document(text, source.path, line)


def _texts(data: bytes, line: int, source: Source) -> list[str]:
    """The parts of a mail that are its text. Raises Unreadable when there are none."""
    # The parser compares every line with the end markers of all parts around it.
    if (parts := len(_MULTIPART.findall(data))) > _MOST_PARTS:
        raise Unreadable(f"{parts} nested parts; at most {_MOST_PARTS} are read")
    # The newer policies parse every header by a grammar, and never finish some of them.
    parser = email.parser.BytesFeedParser(policy=email.policy.compat32)
    for piece in base.portions(data, _PIECE):
        guarded("no mail", parser.feed, data[piece])
        source.check_cancelled()
    message = guarded("no mail", parser.close)
    if not message.keys():
        raise Unreadable("not a mail: it has no header")
    texts, size = [], 0
    for part in guarded("no mail", _text_parts, message):
        source.check_cancelled()
        try:
            text = guarded("a part of it cannot be decoded", _decoded, part)
        except Unreadable as error:
            source.damaged(str(error), line)
            continue
        if guarded("no mail", part.get_content_type) == "text/html":
            text = text_of_html(text, source.check_cancelled)
        size += len(text)
        if size > base.LONGEST_TEXT:
            raise Unreadable(f"a mail with more than {base.LONGEST_TEXT:,} characters of text")
        texts.append(text)
    return texts


def _text_parts(message: Message) -> list[Message]:
    """The text parts of the mail itself, each alternative once, plain text before HTML."""
    kind = message.get_content_type()
    if message.get_content_disposition() == "attachment":
        return []
    if message.is_multipart() and kind != "message/rfc822":
        alternatives = [_text_parts(part) for part in cast("list[Message]", message.get_payload())]
        if kind == "multipart/alternative":
            return min(filter(None, alternatives), key=_how_plain, default=[])
        return [part for parts in alternatives for part in parts]
    return [message] if kind in ("text/plain", "text/html") else []


def _how_plain(parts: list[Message]) -> bool:
    return any(part.get_content_type() == "text/html" for part in parts)


def _decoded(part: Message) -> str:
    data = part.get_payload(decode=True)
    named = part.get_content_charset()
    if not isinstance(data, bytes) or not named:
        return sound(decoded(data if isinstance(data, bytes) else b""))
    if (codec := charset(named)) is None:
        raise Unreadable(f"a part of it cannot be decoded: {named[:40]!r} is not an encoding of text")
    return sound(data.decode(codec, "replace"))


def own_words(text: str) -> str:
    """A mail's text without quotations and signature."""
    text = text.replace("\r\n", "\n").replace("\xa0", " ")
    for end in (_FORWARDED, _SIGNATURE):
        if match := end.search(text):
            text = text[: match.start()]
    text = _DEVICE.sub("", _ATTRIBUTION.sub("", text))
    kept = [line for line in text.split("\n") if not line.lstrip().startswith(">")]
    return re.sub(r"\n{3,}", "\n\n", "\n".join(kept)).strip()
