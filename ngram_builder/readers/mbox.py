"""Mailboxes: many mails in one file, each after a line "From ADDRESS DATE"; and how files of mail are recognised that
have no ending: Thunderbird's `Sent`, Apple's `X.mbox/mbox`, the mails of a Maildir."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from ngram_builder.readers import base
from ngram_builder.readers.base import Document, Source
from ngram_builder.readers.mail import mail_documents
from ngram_builder.readers.packed import lines

FIRST = 1 << 12  # bytes by which a file of mail is recognised

# "From ann@example.org Mon Jun  3 10:00:00 2024"; the address may be "-" and the time zone may be anywhere.
_ENVELOPE = re.compile(rb"From \S.{0,200}?\b\d{1,2}:\d{2}(?::\d{2})?\b.{0,40}")
_PATCH = re.compile(rb"From [0-9a-f]{40} ")  # of git
_HEADER = re.compile(rb"[A-Za-z][A-Za-z0-9-]{0,60}:(?:[ \t]|$)")
_OF_MAIL = re.compile(
    rb"(?:From|To|Cc|Bcc|Subject|Date|Sender|Received|Return-Path|Reply-To|Message-ID|In-Reply-To|References|MIME-Version"
    rb"|Content-[a-z-]+|X-[a-z0-9-]+|Delivered-To|Envelope-To|Status|DKIM-Signature|ARC-[a-z-]+|User-Agent"
    rb"|Authentication-Results|Resent-[a-z-]+|List-[a-z-]+):",
    re.IGNORECASE,
)
_MAIL_ALONE = re.compile(rb"(?:From|To|Subject|Date|Received|Return-Path|Message-ID|MIME-Version|Delivered-To):", re.I)


def kind_of_mail(first: bytes) -> str:
    """The kind of a file that begins with these bytes: "mbox", "eml", or "" if it is no mail."""
    first = first.removeprefix(b"\xef\xbb\xbf").lstrip(b"\r\n").replace(b"\r\n", b"\n")
    head = first.split(b"\n\n", 1)[0].split(b"\n")
    if head[0].startswith(b"From ") and len(head) > 1 and _begins_mail(head[0], head[1]):
        return "mbox"
    if len(first) >= FIRST // 2 and len(head) > 1:
        head.pop()  # it may be cut off
    if not all(line[:1] in (b" ", b"\t") or _HEADER.match(line) for line in head) or head[0][:1].isspace():
        return ""
    return "eml" if len({match[0].lower() for line in head if (match := _MAIL_ALONE.match(line))}) > 1 else ""


def mbox_documents(pieces: Iterable[bytes], source: Source) -> Iterator[Document]:
    """The `line` of a document is that of its "From " line."""
    held = bytearray()
    start, blank, envelope, begun = 0, True, b"", False  # `envelope`: a line that may begin a mail
    for number, line in lines(pieces, source):
        line = line.removesuffix(b"\r")
        if number == 1:
            line = line.removeprefix(b"\xef\xbb\xbf")
        if envelope:
            if _begins_mail(envelope, line):
                yield from mail_documents(bytes(held), start, source)
                held.clear()
                start = number - 1
            elif start:
                held += envelope + b"\n"
            begun, envelope = begun or start > 0, b""
        if line.startswith(b"From ") and (blank or _ENVELOPE.match(line)):
            envelope = line
        elif start:
            held += line[line.startswith(b">") and line.lstrip(b">").startswith(b"From ") :] + b"\n"
            if len(held) > base.LONGEST:
                source.damaged(f"a mail longer than {base.LONGEST >> 20} MiB", start)
                held.clear()
                start = 0
        elif line and not begun:
            source.damaged('not a mailbox: it does not begin with "From "', number)
            return
        blank = not line
    if envelope and start:
        held += envelope
    yield from mail_documents(bytes(held), start, source)


def _begins_mail(envelope: bytes, following: bytes) -> bool:
    """Whether a line "From …" begins a mail, and is not of one: writers begin lines with that word, and some programs
    do not mark these. It has a date, or nothing but an address, and a header follows."""
    if _PATCH.match(envelope):
        return False
    if _ENVELOPE.match(envelope):
        return bool(_HEADER.match(following)) or following.startswith(b">From ")
    return len(envelope.split()) == 2 and _OF_MAIL.match(following) is not None
