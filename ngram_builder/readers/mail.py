"""Mail: what its writer wrote. Only text parts; quoted replies, forwarded mail and signatures are dropped."""

from __future__ import annotations

import email
import email.errors
import email.policy
import re
from collections.abc import Iterable, Iterator
from email.message import EmailMessage
from typing import cast

from ngram_builder.readers import base
from ngram_builder.readers.base import Damage, Document, Report
from ngram_builder.readers.packed import lines, whole
from ngram_builder.readers.pages import text_of_html

# "On Monday, 3 June 2024 at 10:00, Ann Lee <ann@x.org> wrote:" in the languages of the large mail programs; mail
# programs break it over two or three lines.
_ATTRIBUTION = re.compile(
    r"^[ \t]*(?:On|Am|Le|El|Il|Em|Op|Den|W dniu|Dnia)\b[^\n]{0,200}(?:\n[^\n]{0,200}){0,2}?"
    r"\b(?:wrote|schrieb|a écrit|escribió|ha scritto|escreveu|schreef|skrev|napisał\(?a?\)?)\b[^\n]{0,80}:[ \t]*$",
    re.MULTILINE,
)
# From here on it is somebody else's mail.
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


def eml_documents(pieces: Iterable[bytes], path: str, report: Report) -> Iterator[Document]:
    data = whole(pieces, path, report)
    if data:
        yield from _documents(data, path, 0, report)


def mbox_documents(pieces: Iterable[bytes], path: str, report: Report) -> Iterator[Document]:
    """`line` of a document is that of its "From " line."""
    held: list[bytes] = []
    start, size, blank = 0, 0, True
    for number, line in lines(pieces, path, report):
        line = line.removesuffix(b"\r")
        if blank and line.startswith(b"From "):
            if held:
                yield from _documents(b"\n".join(held), path, start, report)
            held, size, start = [], 0, number
        elif start:
            held.append(line[1:] if re.match(rb">+From ", line) else line)
            size += len(line) + 1
            if size > base.LONGEST:
                report(Damage(path, start, f"a mail longer than {base.LONGEST >> 20} MiB"))
                held, start = [], 0
        elif line and number == 1:
            report(Damage(path, 1, 'no mailbox: it does not begin with "From "'))
            return
        blank = not line
    if held:
        yield from _documents(b"\n".join(held), path, start, report)


def _documents(data: bytes, path: str, line: int, report: Report) -> Iterator[Document]:
    message = cast(EmailMessage, email.message_from_bytes(data, policy=email.policy.default))
    if not message.keys():
        report(Damage(path, line, "no mail: it has no header"))
        return
    texts = []
    for part in _text_parts(message):
        try:
            text = part.get_content()
        except (LookupError, ValueError, KeyError, email.errors.MessageError) as error:
            report(Damage(path, line, f"a part of it cannot be decoded: {error}"))
            continue
        texts.append(text_of_html(text) if part.get_content_subtype() == "html" else text)
    text = own_words("\n\n".join(texts))
    if text:
        yield Document(text, path, line)


def _text_parts(message: EmailMessage) -> Iterator[EmailMessage]:
    """Parts that the writer meant to be read as the mail, each alternative once, plain text before HTML."""
    if message.is_attachment():
        return
    kind = message.get_content_type()
    if kind == "multipart/alternative":
        body = message.get_body(("plain", "html"))
        if body is not None:
            yield cast(EmailMessage, body)
    elif message.is_multipart() and kind != "message/rfc822":
        for part in message.iter_parts():
            yield from _text_parts(cast(EmailMessage, part))
    elif kind in ("text/plain", "text/html"):
        yield message


def own_words(text: str) -> str:
    """A mail's text without what it quotes, and without its signature."""
    text = text.replace("\r\n", "\n").replace("\xa0", " ")
    for end in (_FORWARDED, _SIGNATURE):
        if found := end.search(text):
            text = text[: found.start()]
    text = _DEVICE.sub("", _ATTRIBUTION.sub("", text))
    kept = [line for line in text.split("\n") if not line.lstrip().startswith(">")]
    return re.sub(r"\n{3,}", "\n\n", "\n".join(kept)).strip()
