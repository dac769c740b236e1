"""A mail's own words: its text without quotations, forwarded mail, signatures, list footers and encoded blocks.

One pass over the lines; every decision looks at a few lines around it, so the time is linear. The phrases of mail
programs stand in tables, in the languages of the large programs.

Nothing of the writer's own is dropped on a mere word: a quotation's attribution names a time or an address, and a
quotation follows it; a block of headers contains those that only mail has; a signature is short.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from itertools import takewhile

# ---------------------------------------------------------------- phrases

# Between "wrote" and its colon there may be a name. Japanese joins the words.
_WROTE = re.compile(
    r"\b(?:wrote|writes|schrieb|schreibt|a écrit|écrit|escribió|escribio|ha scritto|scrive|escreveu|schreef|geschreven"
    r"|skrev|skriver|napisał\b|napisała|napisano|napisana|pisze|napsal|написал|написала|пишет|писал|kirjoitti"
    r"|Quoting|Zitat von|Zitiere|Selon|Citando)(?!\w)"
    r"|さんは書きました|が書きました|のメール|写道|님이 작성",
    re.IGNORECASE,
)
_OPENS = re.compile(
    r"\W*(?:(?:On|Am|Le|El|Il|Em|Op|Den|Dnia|Wiadomość napisana|W dniu|Il giorno|Dne|\d{1,4})\b|\w{2,12}\.?, \d)"
)
_MONTH = (
    r"(?:jan|feb|fév|fev|mar|mär|maa|mrt|apr|avr|abr|may|mai|mag|mei|maj|jun|jui|giu|lip|cze|jul|lug|aug|ago|aoû|sie"
    r"|sep|set|wrz|oct|okt|ott|out|paź|nov|lis|dec|dez|déc|dic|gru|янв|фев|мар|апр|ма|июн|июл|авг|сен|окт|ноя|дек)"
)
_CLOCK = r"\b\d{1,2}[:.h]\d{2}\b"
_TIME = re.compile(
    rf"{_CLOCK}|\b\d{{1,4}}[./-]\d{{1,2}}[./-]\d{{1,4}}|\b(?:19|20)\d\d\b|\d年|\b\d{{1,2}}(?:st|nd|rd|th|\.)? "
    rf"(?:de )?{_MONTH}|{_MONTH}\w*\.? \d{{1,2}}\b",
    re.IGNORECASE,
)
_DATED = re.compile(rf"{_CLOCK}.*\b\d{{4}}\b|\b\d{{4}}\b.*{_CLOCK}|\d[./-]\d{{1,4}}\b.*{_CLOCK}", re.DOTALL)
_ADDRESS = re.compile(r"(?<![\w.+-])[\w.+-]++@[\w-]+\.[\w.-]+")
_ZOHO = re.compile(
    r"-{2,}+ ?[^\s-].*[^\s-] ?-{2,4}"
)  # "---- On Mon, 03 Jun 2024 10:00:00 +0200 Bob <bob@x.org> wrote ----"

# "-------- Forwarded message --------", whatever the number of dashes.
_SEPARATOR = re.compile(r"[-_=]{2,}+ ?([^\s-].{0,60}?) ?[-_=]{2,}+")
_OTHER_MAIL = {
    "original message", "forwarded message", "original email", "forwarded email", "original appointment",
    "ursprüngliche nachricht", "weitergeleitete nachricht", "originalnachricht", "original-nachricht",
    "original nachricht", "ursprünglicher termin", "weitergeleitete mail", "weitergeleitete e-mail",
    "message d'origine", "message original", "message transféré", "message réexpédié", "message initial",
    "mensaje original", "mensaje reenviado", "mensaje enviado",
    "messaggio originale", "messaggio inoltrato", "messaggio originario",
    "mensagem original", "mensagem encaminhada", "mensagem reencaminhada", "mensagem reenviada",
    "oorspronkelijk bericht", "origineel bericht", "oorspronkelijke bericht", "doorgestuurd bericht",
    "wiadomość oryginalna", "oryginalna wiadomość", "przekazana wiadomość", "wiadomość przekazana dalej",
    "treść przekazanej wiadomości", "wiadomość przekazana", "przekazywana wiadomość",
    "исходное сообщение", "оригинальное сообщение", "пересылаемое сообщение", "перенаправленное сообщение",
    "переадресованное сообщение", "пересланное сообщение", "исходное письмо", "пересылаемое письмо",
    "ursprungligt meddelande", "originalmeddelande", "vidarebefordrat meddelande", "vidarebefordrat brev",
    "vidarebefordrat e-postmeddelande", "vidarebefordrad meddelande",
    "元のメッセージ", "転送メッセージ", "転送されたメッセージ", "元のメール", "オリジナルメッセージ",
    "原始邮件", "转发邮件", "forwarded by", "původní zpráva", "přeposlaná zpráva", "oprindelig meddelelse",
}  # fmt: skip
_BEGINS_OTHER_MAIL = {  # Apple Mail, on a line of their own
    "begin forwarded message", "anfang der weitergeleiteten nachricht", "anfang der weitergeleiteten e-mail",
    "début du message transféré", "début du message réexpédié", "inicio del mensaje reenviado",
    "inizio messaggio inoltrato", "inizio del messaggio inoltrato", "início da mensagem reencaminhada",
    "início da mensagem encaminhada", "begin doorgestuurd bericht", "początek przekazywanej wiadomości",
    "początek przekazanej wiadomości", "początek wiadomości przekazanej", "начало переадресованного сообщения",
    "начало пересылаемого сообщения", "начало перенаправленного сообщения", "vidarebefordrat brev",
    "vidarebefordrat meddelande", "början på vidarebefordrat meddelande", "転送されたメッセージ", "転送メッセージ",
}  # fmt: skip
_HEADERS = {
    "from": "from von de da van od от från fra absender expéditeur remitente mittente remetente afzender nadawca "
    "отправитель avsändare 差出人 送信者 发件人",
    "sent": "sent enviado_el enviado_em enviada_em enviada_el envoyé_le inviato_il gesendet_am "
    "gesendet envoyé enviado inviato verzonden wysłano wysłane отправлено skickat 送信日時 送信日 发送",
    "date": "date datum fecha data dato дата 日付 日時 日期",
    "to": "to an à para a aan do кому till til 宛先 收件人",
    "cc": "cc kopie copie копия kopia dw bcc reply-to antwort-an répondre-à responder-a 返信先",
    "subject": "subject betreff objet sujet asunto oggetto assunto onderwerp temat тема ämne emne 件名 主题",
}
_ROLES = {word: role for role, words in _HEADERS.items() for word in words.split()}
_HEADER = re.compile(r"[*_\s]{0,4}([\w-]{1,12}(?: \w{1,3})?)[*_]{0,2} {0,2}[::][*_]{0,2}\s*(.*)", re.DOTALL)

_DEVICES = (
    r"(?:i ?(?:Phone|Pad|Pod)|Mac|Apple|Android|Samsung|Galaxy|BlackBerry|Huawei|Xiaomi|Redmi|Pixel|Nokia|Sony|Xperia"
    r"|HTC|Motorola|OnePlus|Fairphone|Windows|Outlook|Yahoo|Gmail|GMX|WEB\.DE|Proton ?Mail|Proton|Tutanota|Tuta"
    r"|K-9|FairEmail|BlueMail|Blue Mail|Thunderbird|Spark|Zoho|AOL|myMail|Mail\.ru|Яндекс|Handy|Smartphone|smartfon"
    r"|mobile|phone|cell|tablet|Mobiltelefon|Mobilgerät|телефон|móvil|portable|telefon|(?-i:Mail))"
)
_SENT_FROM = (
    r"(?:Sent (?:from|with|via|using)|Gesendet (?:von|mit|über)|Diese Nachricht wurde von"
    r"|Envoyé (?:de|depuis|à partir|avec)|Enviado (?:desde|do|de|a partir|pelo|con)|Inviato (?:da|dal|con)"
    r"|(?:Verstuurd|Verzonden) (?:vanaf|met|via|vanuit)|Wysłan[eoy] (?:z|za)|Отправлено (?:с|из|через)"
    r"|Skicka(?:t|d|des) från)"
)
_SENT = re.compile(
    rf"\W*(?:{_SENT_FROM}\b[^?]{{0,60}}?\b{_DEVICES}[^?]{{0,80}}"
    rf"|(?:Von|Mit) (?:mein\w+ )?(?:\w+ ){{0,2}}{_DEVICES}\S* (?:Gerät |aus )?(?:gesendet|geschickt|verschickt)\W*"
    rf"|.{{0,12}}?{_DEVICES}.{{0,20}}(?:から送信|で送信).{{0,20}}"
    r"|(?:\S+ (?:Sie sich |o )?)?Outlook (?:for|für|pour|para|per|voor|dla|для|til|på) "
    r"(?:iOS|Android|Mac|Windows)(?: beziehen| herunterladen)?\W{0,4}(?:https?:\S{1,120})?"
    r"|(?:Virus-free|Virenfrei)\.? ?\S{0,40}|This e-?mail has been (?:checked|scanned) for viruses by .{1,60})",
    re.IGNORECASE,
)
_DISCLAIMER = re.compile(
    r"confidential|privileged|intended|vertraulich|confidentiel|confidencial|riservat|vertrouwelijk|poufn"
    r"|конфиденциал|konfidentiell|機密",
    re.IGNORECASE,
)
_FOOTER_RULE = re.compile(r"-- ?|[_#*=~-]{10,}|(?:-=|=-){5,}[-=]?")
_FOOTER = re.compile(
    r"unsubscrib|mailman/|listinfo|listserv|groups\.io|googlegroups|Google Groups|majordomo|topicbox|abbestellen"
    r"|abmelden|désabonner|désinscri|cancelarse|darse de baja|disiscri|cancelar (?:a )?inscri|afmelden|wypisa|отписат"
    r"|avprenumerera|配信停止|(?:mailing ?list|liste de diffusion|lista de correo|lista di discussione"
    r"|メーリングリスト)\n.*(?:@|https?:)",
    re.IGNORECASE | re.DOTALL,
)
_UNSUBSCRIBE = re.compile(
    r"To unsubscribe(?: from this \w+\b.{0,40})?[:,]"
    r"|You (?:receive|received|are receiving) this (?:message|e-?mail) because you\b",
    re.IGNORECASE,
)

_ATTRIBUTION_LINES = 4
_HEADER_LINES = 14
_SIGNATURE_LINES = 24
_FOOTER_LINES = 8
_LONG = 400  # characters of a line that the tables are compared with

# ---------------------------------------------------------------- the pass


def own_words(text: str) -> str:
    """A mail's text without what others wrote, its signature and encoded blocks."""
    text = text.replace("\r\n", "\n").replace("\xa0", " ")
    lines = list(without_encoded(text.split("\n")))
    own: list[str] = []
    at, signature = 0, False
    while at < len(lines):
        line = lines[at]
        if _quoted(line):
            if not signature:
                _drop_attribution(own)
            signature = False
            while at < len(lines) and _quoted(lines[at]):
                at += 1
            continue
        if after := _other_mail(lines, at):
            after = _quotation(lines, after)
            if not after:
                break
            at, signature = after, False  # answers may stand between the quoted lines
            continue
        if _begins_footer(lines, at):
            break
        if not signature and _is_signature(lines, at):
            signature = True
        elif not signature and not _is_device(line):
            own.append(line)
            if _unquoted_reply(own, lines, at + 1):
                _drop_attribution(own)
                break
        at += 1
    return re.sub(r"\n{3,}", "\n\n", "\n".join(own)).strip()


def _quoted(line: str) -> bool:
    start = line[:12].lstrip()
    return start.startswith(">") or bool(re.match(r"[A-ZА-Я]{1,3}>+ ", start))  # The Bat! quotes as "BL> "


def _next(lines: Sequence[str], at: int) -> str:
    """The next line that is not blank, of a few."""
    return next((line for line in lines[at : at + 4] if line.strip()), "")


def _quotation(lines: Sequence[str], at: int) -> int:
    """The first of the quoted lines that follow, perhaps after an attribution; 0 if none do."""
    said = list[str]()
    for number in range(at, min(at + 2 * _ATTRIBUTION_LINES, len(lines))):
        if _quoted(lines[number]):
            return number if not said or _attribution(said) == len(said) else 0
        if lines[number].strip():
            said.append(lines[number])
    return 0


# ---------------------------------------------------------------- attributions


def attributed(text: str) -> bool:
    """Whether a text ends with the attribution of a quotation."""
    return _attribution([line for line in text[-_LONG:].split("\n") if line.strip()][-_ATTRIBUTION_LINES:]) > 0


def _drop_attribution(own: list[str]) -> None:
    """Removes the attribution that ends the text so far, if one does: "On Monday, 3 June 2024 at 10:00, Ann Lee
    <ann@x.org> wrote:". Mail programs break it over two to four lines."""
    end = len(own)
    while end and not own[end - 1].strip() and len(own) - end < 3:
        end -= 1
    if count := _attribution(own[max(end - _ATTRIBUTION_LINES, 0) : end]):
        del own[end - count :]


def _attribution(lines: Sequence[str]) -> int:
    """The number of these last lines that are an attribution, 0 if none are."""
    if not lines:
        return 0
    last = lines[-1].strip()
    zoho = _ZOHO.fullmatch(last[:_LONG])
    if not last.endswith((":", ":")) and not zoho:
        return 0
    found = 0
    for count in range(1, len(lines) + 1):
        group = lines[-count:]
        if not group[0].strip() or len(said := " ".join(line.strip() for line in group)) > _LONG:
            break
        time, address, wrote = _TIME.search(said), _ADDRESS.search(said), _WROTE.search(said)
        if time and (wrote or address):
            found = count
            break
        if wrote and address:
            found = found or count
    while 0 < found < len(lines) and not _is_opening(lines[-found]):
        above = lines[-found - 1].strip()
        if not _is_opening(above) or not _TIME.search(above) or above.endswith((".", "!", "?", ":")):
            break
        found += 1
    return found


def _is_opening(line: str) -> bool:
    return _OPENS.match(line) is not None and not re.match(rf"\W*{_CLOCK}", line)


def _unquoted_reply(own: Sequence[str], lines: Sequence[str], at: int) -> bool:
    """Whether the text so far ends with an attribution that only a program writes, with the date, the time and the
    address, and the other's mail follows without quotation marks: Yahoo and some telephones do so."""
    if not own[-1].rstrip().endswith((":", ":", "--")) or _quoted(_next(lines, at)):
        return False
    count = _attribution(own[-_ATTRIBUTION_LINES:])
    said = " ".join(own[-count:]) if count else ""
    return bool(
        count
        and _ADDRESS.search(said)
        and _WROTE.search(said)
        and _DATED.search(said)
        and _OPENS.match(said.lstrip(" -"))
    )


# ---------------------------------------------------------------- forwarded mail


def _other_mail(lines: Sequence[str], at: int) -> int:
    """The line after the head of another mail that begins here; 0 if none does."""
    line = lines[at].strip()[:_LONG]
    if not line:
        return 0
    if line[:2] in ("--", "__", "==") and (match := _SEPARATOR.fullmatch(line)):
        after = at + 1
        while after < len(lines) and not lines[after].strip() and after - at < 3:
            after += 1
        roles, end = _headers(lines, after)
        words = match[1].strip(" *").casefold().replace("’", "'")
        if words in _OTHER_MAIL or words.startswith("forwarded by"):
            return end if roles else after
        return end if "from" in roles and len(roles) > 1 else 0
    if line.endswith((":", ":")) and line[:-1].strip(" *").casefold() in _BEGINS_OTHER_MAIL:
        return at + 1
    if re.fullmatch(r"_{20,}|-{20,}", line):
        roles, end = _headers(lines, at + 1)
        return end if "from" in roles and len(roles) > 1 else 0
    return _head_of_mail(lines, at)


def _head_of_mail(lines: Sequence[str], at: int) -> int:
    """The line after a block of headers such as Outlook's; 0 if none begins here. "From: Rome" and "To: Paris" are no
    mail: there is an address, the time when it was sent, or a subject among others."""
    if _header(lines[at])[0] not in ("from", "sent", "date", "subject"):
        return 0
    roles, end = _headers(lines, at)
    if "from" not in roles or len(roles) < 2:
        return 0
    told = "sent" in roles or "@" in roles["from"] or {"subject", "to", "date"} <= roles.keys()
    return end if told else 0


def _headers(lines: Sequence[str], at: int) -> tuple[dict[str, str], int]:
    """The headers of a block that begins here, by their role, and the line after it."""
    roles: dict[str, str] = {}
    end = at
    for number in range(at, min(at + _HEADER_LINES, len(lines))):
        role, value = _header(lines[number])
        if role:
            roles[role] = value
            end = number + 1
        elif lines[number].strip() and (not roles or not lines[number][:1].isspace()):
            break
    return roles, end


def _header(line: str) -> tuple[str, str]:
    match = _HEADER.match(line[:_LONG])
    role = _ROLES.get(match[1].casefold().replace(" ", "_"), "") if match else ""
    return (role, match[2]) if match and role else ("", "")


# ---------------------------------------------------------------- signatures and footers


def _is_signature(lines: Sequence[str], at: int) -> bool:
    """Whether a signature begins with this line: RFC 3676, section 4.3, asks for "-- "; some programs lose the space,
    and some writers divide a letter by the same line."""
    if re.fullmatch(r"[-_]{2,40} ?", lines[at]) and _is_device(_next(lines, at + 1)):
        return True
    if lines[at] not in ("-- ", "--"):
        return False
    first = _next(lines, at + 1).strip()
    if not first or _quoted(first):
        return True
    address = _ADDRESS.match(first) or first.startswith(("http", "www."))
    lower = first[0].islower() and len(first.split()) > 1 and not address
    if lower or (_is_sentence(first) and first[0] not in "\"'“„«‘»"):  # mottos are quoted
        return False
    block = takewhile(lambda line: not _quoted(line), lines[at + 1 : at + 1 + _SIGNATURE_LINES])
    prose = [line for line in block if _is_sentence(line[:_LONG])]
    return len(prose) < 3 or any(_DISCLAIMER.search(line[:_LONG]) for line in prose)


def _is_sentence(line: str) -> bool:
    """Whether a line is prose, not a name, an office or an address."""
    words = [word for word in line.split() if word.strip(".,;:!?").isalpha()]
    ends = line.rstrip().endswith((".", "!", "?", ",", ":", "…")) or len(line) > 60
    return len(words) > 6 or (ends and len(words) > 3)


def _is_device(line: str) -> bool:
    return len(line) < 200 and _SENT.fullmatch(line.strip()) is not None


def _begins_footer(lines: Sequence[str], at: int) -> bool:
    """Whether the footer of a mailing list begins here."""
    line = lines[at].strip()[:_LONG]
    rule = _FOOTER_RULE.fullmatch(line)
    if not rule and not _UNSUBSCRIBE.match(line):
        return False
    rest = list[str]()
    for following in lines[at + 1 : at + 3 * _FOOTER_LINES]:
        if _quoted(following):
            break
        if following.strip():
            rest.append(following[:_LONG])
    if len(rest) > (2 if rule else 1) * _FOOTER_LINES:
        return False
    return not rule or _FOOTER.search("\n".join(rest)) is not None


def is_footer(text: str) -> bool:
    """Whether a part of a mail is the footer that a mailing list added."""
    lines = text.strip().split("\n")
    return len(lines) <= 2 * _FOOTER_LINES and _begins_footer(lines, 0)


# ---------------------------------------------------------------- flowed and encoded text


def unflowed(text: str, delete_space: bool = False) -> str:
    """Joins the lines of format=flowed (RFC 3676): a line that ends with a space goes on in the next line of the same
    quotation. `delete_space` is DelSp=yes, for scripts without spaces between words."""
    out: list[str] = []
    depth, open_line = 0, False
    for line in text.replace("\r\n", "\n").split("\n"):
        bare = line.lstrip(">")
        quotes = len(line) - len(bare)
        bare = bare.removeprefix(" ")
        fixed = bare in ("-- ", "- -- ")
        if open_line and quotes == depth and not fixed:
            out.append(bare)
        else:
            out.append(("\n" if out else "") + (">" * quotes + " " if quotes else "") + bare)
        open_line, depth = bare.endswith(" ") and not fixed, quotes
        if open_line and delete_space:
            out[-1] = out[-1][:-1]
    return "".join(out)


_ARMOUR = re.compile(r"-----BEGIN ([A-Z0-9][A-Z0-9 ]{2,40})-----")
_ARMOURED = re.compile(r"[A-Za-z0-9+/=]*|[A-Z][A-Za-z-]{2,20}: .*")
_BASE64_LINE = re.compile(r"(?:[A-Za-z0-9+/]{4})*[A-Za-z0-9+/]{2,4}={0,2}")
_BASE64 = re.compile(r"[A-Za-z0-9+/]{56,}={0,2}")
_UUENCODED = re.compile(r"begin(?:-base64)? [0-7]{3,4} \S.*")


def without_encoded(lines: Iterable[str]) -> Iterator[str]:
    """The lines without PGP's and other armour, keys, uuencoded and yEnc files, and runs of base64. Of a signed
    text, the text remains."""
    inside, signed, begin, run = "", False, "", list[str]()
    for line in lines:
        bare = line.strip()
        if inside and _continues(inside, line, bare):
            begin = ""
            inside = "" if _ends(inside, bare) else inside
            continue
        if begin:  # "begin 644 pages", and then no uuencoded line
            yield begin
        inside, begin = "", ""
        if match := _ARMOUR.fullmatch(bare):
            signed = match[1] == "PGP SIGNED MESSAGE"
            inside = "headers" if signed else "armour"
            continue
        if _UUENCODED.fullmatch(bare):
            inside, begin = "uuencode", line
            continue
        if bare.startswith("=ybegin "):
            inside = "yEnc"
            continue
        if _BASE64.fullmatch(bare):
            run.append(line)
            continue
        if len(run) < 3:
            yield from run
        elif bare.endswith("=") and _ARMOURED.fullmatch(bare):  # the last line is shorter
            bare = line = ""
        run.clear()
        yield line.removeprefix("- ") if signed and line.startswith(("- -", "- From ")) else line
    if begin:
        yield begin
    if len(run) < 3:
        yield from run


def _continues(block: str, line: str, bare: str) -> bool:
    """Whether this line belongs to the block; one that was cut off ends with its last line of that form."""
    if block == "armour":
        return bare.startswith("-----END ") or _ARMOURED.fullmatch(bare) is not None
    if block == "uuencode":
        return bare in ("end", "====", "`") or _is_uuencoded(line) or _BASE64_LINE.fullmatch(bare) is not None
    return True


def _ends(block: str, bare: str) -> bool:
    ends = {"headers": not bare, "armour": bare.startswith("-----END "), "uuencode": bare in ("end", "====")}
    return ends.get(block, bare.startswith("=yend"))


def _is_uuencoded(line: str) -> bool:
    """Whether a line has the length that its first character states."""
    line = line.rstrip("\r")
    if not line or not " " <= line[0] <= "`" or max(line) > "`":
        return False
    wanted = -(-((ord(line[0]) - 32) & 63) // 3) * 4
    return -4 <= len(line) - 1 - wanted <= 2
