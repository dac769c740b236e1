"""What of a mail is its writer's own: mails as programs write them, each with the words of another, and letters whose
words only look like a program's."""

from __future__ import annotations

import base64
from pathlib import Path

import pytest

from ngram_builder import readers
from ngram_builder.readers import Damage, Senders
from ngram_builder.readers.quotes import own_words

OWN = "Thank you, I shall come on Tuesday."
AGAIN = "And one more thing from me."


def learned(path: Path, wanted: tuple[str, ...] = ()) -> tuple[list[str], list[Damage], list[Damage]]:
    damage, notes = list[Damage](), list[Damage]()
    reading = readers.Reading(damage.append, note=notes.append, senders=Senders.of(wanted))
    found = [document.text for file in readers.expand([path]) for document in readers.read_file(file, reading)]
    return found, damage, notes


def eml(folder: Path, body: str | bytes, kind: str = "text/plain; charset=utf-8", more: str = "") -> Path:
    path = folder / "a.eml"
    head = f"From: Ann Lee <ann@example.org>\nSubject: The plan\nMIME-Version: 1.0\nContent-Type: {kind}\n{more}\n"
    path.write_bytes(head.encode() + (body.encode() if isinstance(body, str) else body))
    return path


def parts(*entries: str, kind: str = "mixed") -> tuple[str, str]:
    """The body and the kind of a mail with these parts, each with its headers."""
    body = "".join(f"--b1\n{entry}\n" for entry in entries)
    return f"{body}--b1--\n", f"multipart/{kind}; boundary=b1"


def plain(text: str) -> str:
    return f"Content-Type: text/plain; charset=utf-8\n\n{text}"


# ---------------------------------------------------------------- HTML

HTML = {
    "apple": "<div>{own}</div><div><br><blockquote type='cite'><div>On 3 Jun 2024, at 10:00, Bob &lt;b@x.org&gt; wrote:"
    "</div><br><div>Shall we?</div></blockquote></div>",
    "apple, ios": "{own}<br><div dir='ltr'>Sent from my iPhone</div><div dir='ltr'><br><blockquote type='cite'>On Jun "
    "3, 2024, at 10:00 AM, Bob &lt;b@x.org&gt; wrote:<br><br></blockquote></div><blockquote type='cite'><div>Shall we?"
    "</div></blockquote>",
    "thunderbird": "<p>{own}</p><div class='moz-cite-prefix'>On 03/06/2024 10:00, Bob wrote:<br></div><blockquote "
    "type='cite' cite='mid:1@x.org'><p>Shall we?</p></blockquote><div class='moz-signature'>-- <br>Ann</div>",
    "thunderbird, signature as pre": "<p>{own}</p><pre class='moz-signature' cols='72'>-- \nAnn\nLtd</pre>",
    "thunderbird, forwarded": "<p>{own}</p><div class='moz-forward-container'><br>-------- Forwarded Message --------"
    "<table class='moz-email-headers-table'><tr><th>From: </th><td>Bob</td></tr></table><p>Shall we?</p></div>",
    "gmail": "<div dir='ltr'>{own}</div><br><div class='gmail_quote'><div dir='ltr' class='gmail_attr'>On Mon, 3 Jun "
    "2024 at 10:00, Bob &lt;<a href='mailto:b@x.org'>b@x.org</a>&gt; wrote:<br></div><blockquote class='gmail_quote' "
    "style='margin:0 0 0 .8ex;border-left:1px #ccc solid'>Shall we?</blockquote></div>",
    "gmail, signature": "<div>{own}<div><br></div><span class='gmail_signature_prefix'>-- </span><br><div dir='ltr' "
    "class='gmail_signature' data-smartmail='gmail_signature'>Ann Lee<br>Ltd</div></div>",
    "gmail, forwarded": "<div>{own}</div><div class='gmail_quote gmail_quote_container'><div dir='ltr' "
    "class='gmail_attr'>---------- Forwarded message ---------<br>Von: <b>Bob</b></div>Shall we?<blockquote>When?"
    "</blockquote></div>",
    "gmail, without its attribution": "{own}<div class='gmail_quote'>Shall we?</div>",
    "gmx": "<div>{own}</div><div name='quote' style='margin:10px; border-left:2px solid #C3D9E5;'><div><b>Gesendet:"
    "</b> Montag, 03. Juni 2024 um 10:00 Uhr<br><b>Von:</b> Bob</div><div name='quoted-content'>Shall we?</div></div>",
    "web.de, mobile": "<div>{own}</div><div>-- <br>Diese Nachricht wurde von meinem Android Mobiltelefon mit WEB.DE "
    "Mail gesendet.</div><div class='x_quote'>Am 03.06.24, 10:00 schrieb Bob:<div>Shall we?</div></div>",
    "yahoo": "<div class='ydp1a yahoo-style-wrap'>{own}</div><div id='ydp2yahoo_quoted_3' class='ydp2yahoo_quoted'>"
    "<div>On Monday, June 3, 2024, 10:00 AM, Bob &lt;b@x.org&gt; wrote:</div><div>Shall we?</div></div>",
    "yahoo, signature": "<div>{own}</div><div class='ydpabsignature'><div>Ann Lee, Ltd</div></div>",
    "zoho": "<div>{own}</div><div id='Zm-_Id_-Sgn'>Ann Lee</div><div class='zmail_extra_hr'></div><div "
    "class='zmail_extra'>---- On Mon, 03 Jun 2024 10:00:00 +0200 <b>Bob</b> wrote ---<blockquote>Shall we?"
    "</blockquote></div>",
    "outlook on the web": "<div>{own}</div><div id='Signature'>Ann Lee</div><div id='appendonsend'></div><hr><div "
    "id='divRplyFwdMsg'><b>From:</b> Bob<br><b>Sent:</b> Monday</div><div>Shall we?</div>",
    "outlook": "<div class='WordSection1'><p class='MsoNormal'>{own}</p><div><div style='border:none;border-top:solid "
    "#E1E1E1 1.0pt;padding:3.0pt 0in 0in 0in'><p><b>Von:</b> Bob</p></div></div><p>Shall we?</p></div>",
    "outlook, telephone": "<div>{own}</div><div id='ms-outlook-mobile-signature'>Get Outlook for iOS</div><div "
    "id='mail-editor-reference-message-container'><div>Shall we?</div></div>",
    "proton": "<div>{own}</div><div class='protonmail_signature_block'>Sent with Proton Mail</div><div class='"
    "protonmail_quote'>On Monday, June 3rd, 2024 at 10:00, Bob &lt;b@x.org&gt; wrote:<br><blockquote class='"
    "protonmail_quote' type='cite'>Shall we?</blockquote></div>",
    "tutanota": "<div>{own}</div>3 Jun 2024, 10:00 by b@x.org:<br><blockquote class='tutanota_quote'>Shall we?"
    "</blockquote>",
    "yandex": '<div>{own}</div><div>03.06.2024, 10:00, "Боб" &lt;b@x.org&gt;:</div><blockquote><p>Shall we?</p>'
    "</blockquote>",
    "yahoo, telephone": "<p>{own}</p><p class='yahoo-quoted-begin'>On Monday, June 3, 2024, 10:00 AM, Bob "
    "&lt;b@x.org&gt; wrote:</p><blockquote class='iosymail'><p>Shall we?</p></blockquote>",
    "outlook, of gmail": "<p>{own}</p><blockquote style='border:none;border-left:solid #CCCCCC 1.0pt'>Shall we?"
    "</blockquote>",
    "outlook, indented": "<p>{own}</p><div style='border:none;border-left:solid blue 1.5pt'>Shall we?</div>",
    "mailspring": "<p>{own}</p><signature id='1'>Ann</signature><div class='gmail_quote_attribution'>On Jun 3 2024, "
    "Bob wrote:</div><blockquote class='gmail_quote'>Shall we?</blockquote>",
    "hey": "<div>{own}</div><div>On June 3, 2024, Bob &lt;b@x.org&gt; wrote:</div><blockquote>Shall we?</blockquote>",
    "roundcube": "<p>{own}</p><p id='reply-intro'>On 2024-06-03 10:00, Bob wrote:</p><blockquote type='cite' "
    "style='padding: 0 0.4em; border-left: #1010ff 2px solid;'>Shall we?</blockquote><div id='_rc_sig'>Ann</div>",
    "zimbra": "<div>{own}</div><hr id='zwchr' data-marker='__DIVIDER__'><div data-marker='__HEADERS__'><b>From: </b>"
    "Bob</div><div data-marker='__QUOTED_TEXT__'>Shall we?</div>",
    "samsung": "<div>{own}</div><!-- originalMessage --><div>-------- Ursprüngliche Nachricht --------</div><div>Von: "
    "Bob</div><div>Shall we?</div>",
    "preheader": "<div style='display:none;max-height:0'>Shall we?</div><p>{own}</p>",
    "preheader, for outlook": "<span style='color:#fff; mso-hide: all; font-size: 1px'>Shall we?</span><p>{own}</p>",
    "preheader, by its class": "<div class='preheader'>Shall we?</div><p>{own}</p>",
    "hidden": "<p>{own}</p><p style='opacity: 0'>Shall we?</p><div hidden>Shall we?</div>",
}


def test_the_quotations_and_signatures_of_html_mail_are_not_learned(tmp_path: Path) -> None:
    for name, page in HTML.items():
        found, damage, _ = learned(eml(tmp_path, f"<html><body>{page.format(own=OWN)}</body></html>", "text/html"))
        assert (found, damage) == ([OWN], []), name


@pytest.mark.parametrize(
    "page",
    [
        "<p>{own}</p><blockquote style='margin:0 0 0 40px;border:none;padding:0px'>{again}</blockquote>",
        "<p>{own}</p><blockquote>{again}</blockquote>",
        "<div class='gmail_quote'><blockquote class='gmail_quote'>Shall we?</blockquote><div>{own}</div><blockquote "
        "class='gmail_quote'>When?</blockquote></div><p>{again}</p>",
        "<blockquote type='cite'>Shall we?</blockquote>{own}<blockquote type=cite>When?</blockquote>{again}",
        "<p style='font-size:12px;max-height:9px;line-height:0;opacity:0.9'>{own}</p><p class='designated'>{again}</p>",
        "<p>{own}</p><p>Your quote:</p><div style='display:block'>{again}</div>",
    ],
)
def test_own_words_in_html_are_learned(tmp_path: Path, page: str) -> None:
    (found,), _, _ = learned(eml(tmp_path, page.format(own=OWN, again=AGAIN), "text/html"))
    assert OWN in found
    assert AGAIN in found
    assert "Shall" not in found


@pytest.mark.parametrize(
    ("written", "page", "text"),
    [
        (OWN, f"<p>{OWN}</p>", OWN),
        (f"{OWN}\n\n  On Monday, Bob wrote\n  Shall we?", HTML["yahoo"].format(own=OWN), OWN),
        ("", f"<p>{OWN}</p>", OWN),
        (" \n", f"<p>{OWN}</p>", OWN),
        (f"{OWN}\n\n> Shall we?", HTML["gmail"].format(own=OWN), OWN),
    ],
)
def test_of_alternatives_one_is_learned(tmp_path: Path, written: str, page: str, text: str) -> None:
    body, kind = parts(plain(written), f"Content-Type: text/html; charset=utf-8\n\n{page}", kind="alternative")
    assert learned(eml(tmp_path, body, kind))[0] == [text]


# ---------------------------------------------------------------- attributions and forwarded mail

ATTRIBUTIONS = {
    "english, gmail": "On Mon, 3 Jun 2024 at 10:00, Bob Lee <bob@example.org> wrote:",
    "english, gmail, broken": "On Mon, 3 Jun 2024 at 10:00, Bob Lee of the long name\n<bob@example.org>\nwrote:",
    "english, broken within": "On Mon, Jun 3, 2024 at\n10:00 AM Bob Lee <bob@example.org> wrote:",
    "english, apple": "On 3 Jun 2024, at 10:00, Bob Lee <bob@example.org> wrote:",
    "english, thunderbird": "On 03/06/2024 10:00, Bob Lee wrote:",
    "english, address": "Bob Lee <bob@example.org> writes:",
    "german, gmail": "Am Mo., 3. Juni 2024 um 10:00 Uhr schrieb Bob Lee <bob@example.org>:",
    "german, thunderbird": "Am 03.06.24 um 10:00 schrieb Bob Lee:",
    "german, name first": "Bob Lee <bob@example.org> schrieb am Mo., 3. Juni 2024, 10:00:",
    "french, gmail": "Le lun. 3 juin 2024 à 10:00, Bob Lee <bob@example.org> a écrit :",
    "french, thunderbird": "Le 03/06/2024 à 10:00, Bob Lee a écrit :",
    "spanish, gmail": "El lun, 3 jun 2024 a las 10:00, Bob Lee (<bob@example.org>) escribió:",
    "spanish, thunderbird": "El 3/6/24 a las 10:00, Bob Lee escribió:",
    "italian, gmail": "Il giorno lun 3 giu 2024 alle ore 10:00 Bob Lee <bob@example.org> ha scritto:",
    "italian, thunderbird": "Il 03/06/2024 10:00, Bob Lee ha scritto:",
    "portuguese, gmail": "Em seg., 3 de jun. de 2024 às 10:00, Bob Lee <bob@example.org> escreveu:",
    "portuguese, thunderbird": "Em 03/06/2024 10:00, Bob Lee escreveu:",
    "dutch, gmail": "Op ma 3 jun 2024 om 10:00 schreef Bob Lee <bob@example.org>:",
    "dutch, apple": "Op 3 jun. 2024, om 10:00 heeft Bob Lee <bob@example.org> het volgende geschreven:",
    "polish, gmail": "pon., 3 cze 2024 o 10:00 Bob Lee <bob@example.org> napisał(a):",
    "polish, apple": "Wiadomość napisana przez Bob Lee <bob@example.org> w dniu 3 cze 2024, o godz. 10:00:",
    "polish, thunderbird": "W dniu 3.06.2024 o 10:00, Bob Lee pisze:",
    "russian, gmail": "пн, 3 июн. 2024 г. в 10:00, Bob Lee <bob@example.org>:",
    "russian, apple": "3 июня 2024 г., в 10:00, Bob Lee <bob@example.org> написал(а):",
    "russian, thunderbird": "03.06.2024 10:00, Bob Lee пишет:",
    "swedish, gmail": "Den mån 3 juni 2024 kl 10:00 skrev Bob Lee <bob@example.org>:",
    "swedish, apple": "3 juni 2024 kl. 10:00 skrev Bob Lee <bob@example.org>:",
    "swedish, thunderbird": "Den 2024-06-03 kl. 10:00, skrev Bob Lee:",
    "japanese, gmail": "2024年6月3日(月) 10:00 Bob Lee <bob@example.org>:",
    "japanese, apple": "2024/06/03 10:00、Bob Lee <bob@example.org>のメール:",
    "japanese, thunderbird": "2024/06/03 10:00, Bob Lee さんは書きました:",
    "zoho": "---- On Mon, 03 Jun 2024 10:00:00 +0200 Bob Lee <bob@example.org> wrote ----",
}


def test_an_attribution_goes_with_the_quotation_below_it() -> None:
    for name, attribution in ATTRIBUTIONS.items():
        found = own_words(f"{OWN}\n\n{attribution}\n\n> Shall we?\n>> When?\n\n{AGAIN}\n")
        assert found == f"{OWN}\n\n{AGAIN}", name
        assert own_words(f"{OWN}\n{attribution}\n> Shall we?") == OWN, name


def test_a_reply_without_quotation_marks_ends_at_what_only_a_program_writes() -> None:
    for attribution in (ATTRIBUTIONS["english, gmail"], ATTRIBUTIONS["german, gmail"], ATTRIBUTIONS["zoho"]):
        assert own_words(f"{OWN}\n\n{attribution}\n\n  Shall we?\n  Bob") == OWN


HEADS = {
    "english, outlook": "From: Bob Lee <bob@example.org>\nSent: Monday, June 3, 2024 10:00\nTo: Ann\nSubject: The plan",
    "english, outlook, plain": "-----Original Message-----\nFrom: Bob Lee\nSent: Monday",
    "english, gmail": "---------- Forwarded message ---------\nFrom: Bob Lee <bob@example.org>\nDate: Mon, 3 Jun 2024",
    "english, apple": "Begin forwarded message:\n\nFrom: Bob Lee <bob@example.org>\nSubject: The plan",
    "english, thunderbird": "-------- Forwarded Message --------\nSubject: \tThe plan\nDate: \t3 Jun 2024\nFrom: \tBob",
    "english, bold": "*From:* Bob Lee <bob@example.org>\n*Sent:* Monday, June 3, 2024\n*To:* Ann\n*Subject:* The plan",
    "english, notes": "----- Forwarded by Ann Lee/Ltd on 03/06/2024 10:00 -----",
    "german, outlook": "Von: Bob Lee <bob@example.org>\nGesendet: Montag, 3. Juni 2024\nAn: Ann\nBetreff: Der Plan",
    "german, gmx": "Gesendet: Montag, 03. Juni 2024 um 10:00 Uhr\nVon: Bob Lee\nAn: Ann\nBetreff: Der Plan",
    "german, apple": "Anfang der weitergeleiteten Nachricht:\n\nVon: Bob\nBetreff: Der Plan",
    "german, thunderbird": "-------- Weitergeleitete Nachricht --------\nBetreff: \tDer Plan\nVon: \tBob",
    "french, outlook": "De : Bob Lee <bob@example.org>\nEnvoyé : lundi 3 juin 2024 10:00\nÀ : Ann\nObjet : Le plan",
    "french, apple": "Début du message transféré :\n\nDe: Bob\nObjet: Le plan",
    "french, thunderbird": "-------- Message transféré --------\nSujet : Le plan\nDe : Bob",
    "spanish, outlook": "De: Bob Lee\nEnviado: lunes, 3 de junio de 2024 10:00\nPara: Ann\nAsunto: El plan",
    "spanish, outlook of a desk": "De: Bob Lee\nEnviado el: lunes, 3 de junio\nPara: Ann\nAsunto: El plan",
    "portuguese, outlook of a desk": "De: Bob Lee\nEnviada em: segunda-feira, 3 de junho\nPara: Ann\nAssunto: O plano",
    "spanish, apple": "Inicio del mensaje reenviado:\n\nDe: Bob\nAsunto: El plan",
    "spanish, thunderbird": "-------- Mensaje reenviado --------\nAsunto: El plan\nDe: Bob",
    "italian, outlook": "Da: Bob Lee\nInviato: lunedì 3 giugno 2024 10:00\nA: Ann\nOggetto: Il piano",
    "italian, apple": "Inizio messaggio inoltrato:\n\nDa: Bob\nOggetto: Il piano",
    "italian, thunderbird": "-------- Messaggio Inoltrato --------\nOggetto: Il piano\nMittente: Bob",
    "portuguese, outlook": "De: Bob Lee\nEnviado: segunda-feira, 3 de junho de 2024 10:00\nPara: Ann\nAssunto: O plano",
    "portuguese, apple": "Início da mensagem reencaminhada:\n\nDe: Bob\nAssunto: O plano",
    "portuguese, gmail": "---------- Mensagem encaminhada ---------\nDe: Bob\nDate: seg.",
    "dutch, outlook": "Van: Bob Lee\nVerzonden: maandag 3 juni 2024 10:00\nAan: Ann\nOnderwerp: Het plan",
    "dutch, apple": "Begin doorgestuurd bericht:\n\nVan: Bob\nOnderwerp: Het plan",
    "dutch, thunderbird": "-------- Doorgestuurd bericht --------\nOnderwerp: Het plan\nVan: Bob",
    "polish, outlook": "Od: Bob Lee\nWysłano: poniedziałek, 3 czerwca 2024 10:00\nDo: Ann\nTemat: Plan",
    "polish, apple": "Początek przekazywanej wiadomości:\n\nOd: Bob\nTemat: Plan",
    "polish, thunderbird": "-------- Treść przekazanej wiadomości --------\nTemat: Plan\nNadawca: Bob",
    "russian, outlook": "От: Bob Lee\nОтправлено: 3 июня 2024 г. 10:00\nКому: Ann\nТема: План",
    "russian, apple": "Начало переадресованного сообщения:\n\nОт: Bob\nТема: План",
    "russian, thunderbird": "-------- Перенаправленное сообщение --------\nТема: План\nОт: Bob",
    "swedish, outlook": "Från: Bob Lee\nSkickat: den 3 juni 2024 10:00\nTill: Ann\nÄmne: Planen",
    "swedish, apple": "Vidarebefordrat brev:\n\nFrån: Bob\nÄmne: Planen",
    "swedish, thunderbird": "-------- Vidarebefordrat meddelande --------\nÄmne: Planen\nFrån: Bob",
    "japanese, outlook": "差出人: Bob Lee\n送信日時: 2024年6月3日 10:00\n宛先: Ann\n件名: 計画",
    "japanese, apple": "転送されたメッセージ:\n\n差出人: Bob\n件名: 計画",
    "japanese, thunderbird": "-------- 転送メッセージ --------\n件名: 計画\n差出人: Bob",
    "unknown words": "------ Beskjed sendt videre ------\nFrom: Bob Lee\nDate: 3 Jun",
    "rule": "________________________________\nFrom: Bob Lee\nSent: Monday\nTo: Ann\nSubject: The plan",
}


def test_another_mail_below_its_head_is_not_learned() -> None:
    found = {name: own_words(f"{OWN}\n\n{head}\n\nShall we?\n\nBob") for name, head in HEADS.items()}
    assert found == dict.fromkeys(HEADS, OWN)


@pytest.mark.parametrize("head", ["-----Original Message-----\nFrom: Bob\nSent: Monday", HEADS["german, outlook"]])
def test_answers_between_the_quoted_lines_below_a_head_are_learned(head: str) -> None:
    assert own_words(f"{OWN}\n\n{head}\n\n> Shall we?\n\n{AGAIN}\n\n> When?") == f"{OWN}\n\n{AGAIN}"


KEPT = {
    "a rule within a letter": "The first part of my letter.\n--\nsecond part",
    "a rule before a new paragraph": "The first part.\n\n--\n\nThe second part of it begins here.\n\nAnd it goes on.",
    "a rule with its space": "The first part.\n-- \nThe second part of it begins here.\n\nAnd it goes on, and on.",
    "a rule with its space, and little": "The first part of my letter.\n-- \nThe second part of my letter.",
    "a heading below a rule": "The end of it.\n--\nPart Two\n\nIt was a dark night, as ever.\n\nThe wind blew from "
    "the west.\n\nNobody slept in that old house.",
    "dashes": "The first part. -- second part\n\n-----\n\nThe third part.",
    "from here on": "From here on the road is bad.\n\nFrom there on it is worse.",
    "trains": "A list of trains wrote itself:\n8:15 to Rome\n9:30 to Paris",
    "somebody wrote": "On Monday I wrote you a letter:\n\nDear Bob, I shall come.",
    "at ten": "Yesterday at 10:00 she wrote to me:\n\nand I was glad, of course.",
    "a journey": "From: Rome\nTo: Paris\n\nThe train leaves at ten.",
    "a dated journey": "From: Rome\nTo: Paris\nDate: 3 June\n\nThe train leaves at ten.",
    "things to do": "To: do\nFrom: now on\nSubject: to change",
    "a reason": "You received this message because I like you.",
    "the subject of a talk": "Subject: trains\nDate: 3 June\n\nWho comes?",
    "a title between dashes": "------ Part two ------\n\nIt was a dark night.",
    "an address": "Write to bob@example.org, please, at this address:\n\nhe will answer.",
    "an appeal": "Sent from my window seat on the train.\nFrom my heart, thank you.",
    "uuencode in words": "begin 644 pages of prose\nand then end it",
    "a lists of lists": "__________\nI like the mailing of lists, you know.",
    "a telephone": "Von meinem Handy aus habe ich das Bild gesendet.\nScarica l'app per Android quando puoi.",
    "a programme": "Sent from my phone? No, I am at home.\nGet Outlook for a week.\nSent via mail.",
    "a heading": "Agenda\n----------\nPlease join our mailing list on Tuesday.",
    "a complaint": "To unsubscribe from your newsletter took me an hour.",
    "a list in prose": "==========\nA word on mailing lists, and then on others.",
    "an arrow": "-> first\n=> second\na > b",
}


def test_a_letter_that_only_looks_like_a_reply_is_learned_whole() -> None:
    letters = {name: f"Dear Bob,\n\n{text}\n\nYours, Ann" for name, text in KEPT.items()}
    assert {name: own_words(letter) for name, letter in letters.items()} == letters


def test_own_words_before_a_quotation_are_learned() -> None:
    for said in ("You asked at 10:30 about two things:", "Bob wrote:", "In your letter you said:"):
        assert own_words(f"{said}\n> Shall we?\n{OWN}") == f"{said}\n{OWN}"


# ---------------------------------------------------------------- signatures and footers

ENDS = {
    "signature": "-- \nAnn Lee\nExample Ltd\n+44 1632 960000\n\nThis mail is secret. If you do not read it, stop.",
    "signature without its space": "--\nAnn",
    "signature with a motto": '-- \n"The best way to predict the future is to invent it." (Alan Kay)',
    "signature with a disclaimer": "-- \nAnn\n\nThis mail is confidential, as you know.\n\nIf you got it by "
    "mistake, write to us.\n\nAny use of it is not allowed here.",
    "signature in lower case": "-- \nann\nann@example.org",
    "signature above a quotation": "-- \nAnn\n\nOn Mon, 3 Jun 2024 at 10:00, Bob <b@x.org> wrote:\n> Shall we?",
    "english": "Sent from my iPhone",
    "english, android": "Sent from my Android device with K-9 Mail. Please excuse my brevity.",
    "english, outlook": "Get Outlook for iOS<https://aka.ms/o0ukef>",
    "english, yahoo": "Sent from Yahoo Mail on Android",
    "english, samsung": "Sent from my Galaxy",
    "german": "Von meinem iPhone gesendet",
    "german, k-9": "Diese Nachricht wurde von meinem Android-Gerät mit K-9 Mail gesendet.",
    "german, gmx": "Gesendet mit der GMX Mail App",
    "french": "Envoyé de mon iPhone",
    "spanish": "Enviado desde mi iPhone",
    "italian": "Inviato da iPhone",
    "portuguese": "Enviado do meu iPhone",
    "dutch": "Verstuurd vanaf mijn iPhone",
    "polish": "Wysłane z iPhone'a",
    "russian": "Отправлено с iPhone",
    "swedish": "Skickat från min iPhone",
    "japanese": "iPhoneから送信",
    "mailman": "_______________________________________________\nTalk mailing list\nTalk@lists.x.org\n"
    "https://lists.x.org/mailman/listinfo/talk",
    "google groups": '-- \nYou received this message because you are subscribed to the Google Groups "x" group.\nTo '
    "unsubscribe from this group, write.",
    "groups.io": "-=-=-=-=-=-=-=-=-=-=-=-\nGroups.io Links: You receive all messages sent to this group.",
    "listserv": "########################################################################\n\nTo unsubscribe from the X "
    "list, click the following link:\nhttp://x.org",
    "majordomo": 'To unsubscribe from this list: send the line "unsubscribe x" in\nthe body of a message',
    "debian": "-- \nTo UNSUBSCRIBE, email to debian-user-REQUEST@lists.debian.org",
    "german list": "--------------------\nDiese Liste abbestellen: https://lists.x.org",
    "horde": "Quoting Bob Lee <b@x.org>:\n\n> Shall we?",
    "french, outlook": "Télécharger Outlook pour iOS",
    "swedish, outlook": "Skickat från Outlook för Android",
    "german, samsung": "Von meinem Samsung Gerät gesendet.\n\n-------- Ursprüngliche Nachricht --------\nVon: Bob",
    "swedish, windows": "Skickades från E-post för Windows",
    "antivirus below a rule": "---\nThis email has been checked for viruses by AVG.\nhttps://www.avg.com",
    "antivirus": "Virus-free. www.avast.com",
}


def test_the_end_that_a_program_added_is_not_learned() -> None:
    assert {name: own_words(f"{OWN}\n\n{end}\n") for name, end in ENDS.items()} == dict.fromkeys(ENDS, OWN)


def test_a_footer_in_a_part_of_its_own_is_not_learned(tmp_path: Path) -> None:
    assert learned(eml(tmp_path, *parts(plain(OWN), plain(ENDS["mailman"]))))[0] == [OWN]


# ---------------------------------------------------------------- flowed and encoded text


@pytest.mark.parametrize(
    ("body", "kind", "text"),
    [
        ("Thank you, I \nshall come on \nTuesday.", "format=flowed", OWN),
        ("今日は \nいい天気 \nです。", "format=flowed; delsp=yes", "今日はいい天気です。"),
        ("Thank you, I  \nshall come on Tues \nday.", 'Format="Flowed"; DelSp=Yes', OWN),
        ("Thank you, I \r\nshall come on \r\nTuesday.\r\n\r\n> Shall \r\n> we?", "format=flowed", OWN),
        ("One \ntwo", "format=fixed", "One \ntwo"),
        ("One.\n\nTwo \nthree.", "format=flowed", "One.\n\nTwo three."),
        (" From here on.\n >no quote", "format=flowed", "From here on."),
        ("own \nwords\n> quoted \n> text\n>> two \nand \nmore", "format=flowed", "own words\nand more"),
        ("One. \n-- \nAnn", "format=flowed", "One."),
    ],
)
def test_flowed_mail_is_joined(tmp_path: Path, body: str, kind: str, text: str) -> None:
    assert learned(eml(tmp_path, body, f"text/plain; charset=utf-8; {kind}"))[0] == [text]


UU = "begin 644 notes.txt\n-<V]M92!W;W)D<R!O9@``\n`\nend"
ARMOUR = "iQEzBAEBCAAdFiEEq1w2e3r4t5y6u7i8o9p0a1s2d3f4g5h6j7k8l9z0x1c2v3b4\nn5m6q7w8e9r0t1y2\n=abcd"
ENCODED = {
    "uuencode": UU,
    "uuencode, cut off": "begin 600 a b.txt\n-<V]M92!W;W)D<R!O9@``",
    "base64": "begin-base64 644 notes.txt\nc29tZSB3b3Jkcw==\n====",
    "yEnc": "=ybegin line=128 size=9 name=a.bin\n\x81\x82\x83\n=yend size=9",
    "key": f"-----BEGIN PGP PUBLIC KEY BLOCK-----\nVersion: GnuPG v2\n\n{ARMOUR}\n-----END PGP PUBLIC KEY BLOCK-----",
    "encrypted": f"-----BEGIN PGP MESSAGE-----\n\n{ARMOUR}\n-----END PGP MESSAGE-----",
    "certificate": f"-----BEGIN CERTIFICATE-----\n{ARMOUR[:-6]}\n-----END CERTIFICATE-----",
    "cut off": f"-----BEGIN PGP SIGNATURE-----\n\n{ARMOUR}",
    "a run of base64": "\n".join(["A" * 76] * 5) + "\nQUJD=",
}


def test_encoded_blocks_are_not_learned() -> None:
    for name, block in ENCODED.items():
        assert own_words(f"{OWN}\n\n{block}\n\n{AGAIN} Yes?") == f"{OWN}\n\n{AGAIN} Yes?", name


def test_of_signed_text_the_text_is_learned_once() -> None:
    head = "-----BEGIN PGP SIGNED MESSAGE-----\nHash: SHA256\n\n"
    tail = f"\n-----BEGIN PGP SIGNATURE-----\n\n{ARMOUR}\n-----END PGP SIGNATURE-----\n"
    assert own_words(head + OWN + tail) == OWN
    assert own_words(f"{head}- - one\n- From Rome\n\n- -- \nAnn{tail}") == "- one\nFrom Rome"
    assert own_words(f"{head}{OWN}\n\n> Shall we?\n\n{AGAIN}{tail}") == f"{OWN}\n\n{AGAIN}"


PARTS = {
    "signed": (parts(plain(OWN), "Content-Type: application/pgp-signature\n\n" + ARMOUR, kind="signed"), OWN),
    "signed by S/MIME": (parts(plain(OWN), "Content-Type: application/pkcs7-signature\n\nAAAA", kind="signed"), OWN),
    "a key attached": (parts(plain(OWN), "Content-Type: application/pgp-keys; name=a.asc\n\n" + ARMOUR), OWN),
    "text attached inline": (
        parts(plain(OWN), "Content-Type: text/plain\nContent-Disposition: inline; filename=n.txt\n\nShall we?"),
        OWN,
    ),
    "text with a name": (parts(plain(OWN), 'Content-Type: text/html; name="page.html"\n\nShall we?'), OWN),
    "a picture between": (parts(plain(OWN), "Content-Type: image/png\n\nAAAA", plain(AGAIN)), f"{OWN}\n\n{AGAIN}"),
    "twice": (parts(plain(f"{OWN}\n"), f"Content-Type: text/html; charset=utf-8\n\n<p>{OWN}</p>"), OWN),
    "another mail": (parts(plain(OWN), "Content-Type: message/rfc822\n\nSubject: x\n\nShall we?"), OWN),
    "calendar": (parts(plain(OWN), "Content-Type: text/calendar\n\nShall we?", kind="alternative"), OWN),
}


def test_the_parts_of_a_mail_that_are_its_text_are_learned(tmp_path: Path) -> None:
    for name, (mail, text) in PARTS.items():
        assert learned(eml(tmp_path, *mail)) == ([text], [], []), name


EMPTY = {
    "encrypted": (
        parts("Content-Type: application/pgp-encrypted\n\nVersion: 1", plain(ARMOUR), kind="encrypted"),
        "encrypted",
    ),
    "encrypted by S/MIME": (("AAAA", "application/pkcs7-mime; smime-type=enveloped-data; name=smime.p7m"), "encrypted"),
    "encrypted inline": ((ENCODED["encrypted"], "text/plain"), "encrypted"),
    "attachment": (parts("Content-Type: text/plain; name=n.txt\n\nShall we?"), "attachments"),
    "forwarded": ((HEADS["german, outlook"], "text/plain; charset=utf-8"), "only quotations, forwarded mail"),
}


def test_a_mail_of_which_nothing_is_learned_is_said(tmp_path: Path) -> None:
    for name, (mail, says) in EMPTY.items():
        found, damage, (note,) = learned(eml(tmp_path, *mail))
        assert (found, damage) == ([], []), name
        assert says in note.reason, name


# ---------------------------------------------------------------- encodings

WORDS = "Grüße aus Köln, schöne Tage und bis bald; wir freuen uns."
RUSSIAN = "Привет, как дела? Мы встретимся на следующей неделе, если будет время."
POLISH = "Zażółć gęślą jaźń, spotkamy się w przyszłym tygodniu. Dziękuję bardzo!"
KOREAN = "안녕하세요, 다음 주에 만나요."
CHINESE = "你好，我们下周见。"
JAPANESE = "こんにちは、来週お会いしましょう。"
ENCODINGS = {
    "utf-8 as ascii": ("us-ascii", WORDS.encode(), WORDS),
    "cp1252 as ascii": ("us-ascii", WORDS.encode("cp1252"), WORDS),
    "signs": ("us-ascii", "½ cup, 3 µm, 20 °C – fine".encode("cp1252"), "½ cup, 3 µm, 20 °C – fine"),
    "polish as ascii": ("us-ascii", POLISH.encode("cp1250"), POLISH),
    "a word": ("us-ascii", "café crème".encode("cp1252"), "café crème"),
    "cp1252 as utf-8": ("utf-8", WORDS.encode("cp1252"), WORDS),
    "utf-8 as latin-1": ("iso-8859-1", WORDS.encode(), WORDS),
    "cp1252 as latin-1": ("iso-8859-1", "“Yes” – it’s 5 €".encode("cp1252"), "“Yes” – it’s 5 €"),
    "cp1251 as ascii": ("us-ascii", RUSSIAN.encode("cp1251"), RUSSIAN),
    "koi8-r as utf-8": ("utf-8", RUSSIAN.encode("koi8-r"), RUSSIAN),
    "japanese as ascii": (
        "us-ascii",
        "こんにちは、来週お会いしましょう。".encode("euc-jp"),
        "こんにちは、来週お会いしましょう。",
    ),
    "japanese": ("iso-2022-jp", JAPANESE.encode("iso-2022-jp"), JAPANESE),
    "utf-16 as utf-8": ("utf-8", OWN.encode("utf-16-le"), OWN),
    "utf-16, big": ("us-ascii", OWN.encode("utf-16-be"), OWN),
    "utf-16 with its mark": ("us-ascii", OWN.encode("utf-16"), OWN),
    "korean, in ascii": ("iso-2022-kr", KOREAN.encode("iso-2022-kr"), KOREAN),
    "chinese, in ascii": ("hz-gb-2312", CHINESE.encode("hz"), CHINESE),
    "chinese, utf-16 without a mark": ("utf-16-be", CHINESE.encode("utf-16-be"), CHINESE),
    "utf-7": ("utf-7", b"Hi Mom +Jjo-!", "Hi Mom ☺!"),
    "unknown-8bit": ("unknown-8bit", WORDS.encode("cp1252"), WORDS),
}


def in_base64(folder: Path, charset: str, body: bytes) -> Path:
    more = "Content-Transfer-Encoding: base64\n"
    return eml(folder, base64.encodebytes(body), f"text/plain; charset={charset}", more)


def test_text_in_an_encoding_that_its_mail_does_not_name_is_decoded(tmp_path: Path) -> None:
    for name, (charset, body, text) in ENCODINGS.items():
        assert learned(in_base64(tmp_path, charset, body)) == ([text], [], []), name


@pytest.mark.parametrize(
    ("named", "body", "text"),
    [
        ("utf-7", b"half +2D0- pair", []),
        ("utf-8", f"{WORDS}\nwrong ".encode() + b"\xff\n" + AGAIN.encode(), [f"{WORDS}\n{AGAIN}"]),
        ("utf-8", "grüße \ud83d".encode("utf-8", "surrogatepass"), []),
        ("utf-16", b"\xff\xfeh\0i\0\x3d\xd8", []),
        ("utf-8", "fine\nfrom a broken program: caf\ufffd".encode(), ["fine"]),
        ("us-ascii", bytes(range(128, 256)) * 3, []),
        ("us-ascii", b"fine\n" + bytes(range(128, 256)) * 3 + b"\nfine too", ["fine\nfine too"]),
        ("utf-8", b"fine\n" + bytes(range(128, 256)) * 3 + b"\nfine too", ["fine\nfine too"]),
    ],
)
def test_lines_that_cannot_be_decoded_are_left_out_and_reported(
    tmp_path: Path, named: str, body: bytes, text: list[str]
) -> None:
    found, (place,), _ = learned(in_base64(tmp_path, named, body))
    assert found == text
    assert "decoded" in place.reason


# ---------------------------------------------------------------- mailboxes

MAIL = "From: Ann Lee <ann@example.org>\nTo: Bob <bob@example.org>\nSubject: {}\n\n{}\n\n"
FIRST = f"From ann@example.org Mon Jun  3 10:00:00 2024\n{MAIL.format('One', OWN)}"
BOTH = FIRST + f"From - Tue Jun  4 10:00:00 2024\nX-Mozilla-Status: 0001\n{MAIL.format('Two', AGAIN)}"
BOXES = {
    "thunderbird": "Profiles/x.default/Mail/Local Folders/Sent",
    "thunderbird, subfolder": "Sent.sbd/Letters",
    "apple": "Sent Messages.mbox/mbox",
    "archive of a list": "2024-June.txt",
    "a point in its name": "Sent.2024",
    "its ending": "all.mbox",
}


def test_a_mailbox_is_known_by_its_first_bytes(tmp_path: Path) -> None:
    for who, name in BOXES.items():
        path = tmp_path / who / name
        path.parent.mkdir(parents=True)
        path.write_text(BOTH)
        (tmp_path / who / "panacea.dat").write_bytes(b"\0\1 no mail")
        assert learned(tmp_path / who) == learned(path) == ([OWN, AGAIN], [], []), who


MAILDIR = (
    "cur/1717400000.M1P2.host,S=9:2,S",
    "new/1717400000.M1P2.host",
    ".Sent/cur/1717400000.1_0.x:2,RS",
    "inbox/17",
)


def test_a_mail_in_a_folder_of_mails_is_known_by_its_first_bytes(tmp_path: Path) -> None:
    for path in (tmp_path / "Maildir" / name for name in MAILDIR):
        path.parent.mkdir(parents=True)
        path.write_text(MAIL.format("One", OWN))
    assert learned(tmp_path) == ([OWN] * len(MAILDIR), [], [])


def test_a_mail_of_apple_mail_ends_before_its_list_of_properties(tmp_path: Path) -> None:
    mail = MAIL.format("One", OWN)
    (tmp_path / "1.emlx").write_text(f"{len(mail)}\n{mail}<?xml version='1.0'?><plist>no</plist>")
    (tmp_path / "2.partial.emlx").write_text(f"{len(mail)}   \n{mail}<plist>no</plist>")
    (tmp_path / "3.emlx").write_text("no number\n")
    found, (place,), _ = learned(tmp_path)
    assert found == [OWN, OWN]
    assert place.path.endswith("3.emlx")


@pytest.mark.parametrize(
    "content",
    [
        "From here on it is a diary.\n\nMonday: rain.",
        "From: Rome\nhome again, at last",
        "Title: x\nAuthor: y\n\nwords",
        f"From {'0a' * 20} Mon Sep 17 00:00:00 2001\nFrom: A <a@x.org>\nSubject: [PATCH] x\n\nwords",
        "[Desktop Entry]\nName=x",
    ],
)
def test_other_files_without_an_ending_are_no_mail(tmp_path: Path, content: str) -> None:
    (tmp_path / "file").write_text(content)
    (tmp_path / "a.txt").write_text("words")
    assert learned(tmp_path)[0] == ["words"]


@pytest.mark.parametrize(
    "line",
    [
        "From here on the road is bad.",
        "From here on: 3 miles.\nNote: it rains.",
        "From all of us,\nTo: everybody at home",
        "From 10:00 to 12:30 in 2024 I wrote.",
        "From my heart,\n\nFrom all of us",
        "From",
    ],
)
def test_a_line_that_begins_with_from_divides_no_mail(tmp_path: Path, line: str) -> None:
    path = tmp_path / "Sent"
    path.write_text(FIRST + f"{line}\n{AGAIN}\n\n" + BOTH)
    assert learned(path) == ([f"{OWN}\n\n{line}\n{AGAIN}", OWN, AGAIN], [], [])


@pytest.mark.parametrize(
    "headers",
    ["X-Mozilla-Status: 0009\n", "X-Status: D\n", "Subject: DON'T DELETE THIS MESSAGE -- FOLDER INTERNAL DATA\n"],
)
def test_deleted_mails_of_a_mailbox_are_not_learned(tmp_path: Path, headers: str) -> None:
    path = tmp_path / "Sent"
    path.write_text(f"From - Mon Jun  3 10:00:00 2024\n{headers}From: ann@example.org\n\nShall we?\n\n" + FIRST)
    assert learned(path) == ([OWN], [], [])


# ---------------------------------------------------------------- senders


@pytest.mark.parametrize(
    ("sender", "taken"),
    [
        ("Ann Lee <ann@example.org>", True),
        ("<ANN@Example.org>", True),
        ("ann@example.org (Ann)", True),
        ("ann at example.org (Ann)", True),
        ("=?utf-8?q?Ann?= <a.lee@work.example>", True),
        ("bob@example.org, ann@example.org", True),
        ("Bob <bob@example.org>", False),
        ("ann@example.org.evil.example", False),
        ('"ann@example.org via list" <list@example.org>', False),
        ("", False),
    ],
)
def test_only_mails_of_the_given_senders_are_learned(tmp_path: Path, sender: str, taken: bool) -> None:
    path = tmp_path / "a.eml"
    path.write_text(f"From: {sender}\nSubject: x\n\n{OWN}\n")
    assert learned(path, ("Ann@example.org", "a.lee@work.example"))[0] == [OWN] * taken


@pytest.mark.parametrize("name", ["zoë lee", " Zoe\u0308  LEE ", "\u200eZoë Lee\u200e", "~Zoë Lee"])
def test_a_sender_has_one_name_in_every_form_of_it(tmp_path: Path, name: str) -> None:
    path = tmp_path / "a.eml"
    path.write_text(f"From: Zoë Lee <z@example.org>\nSubject: x\n\n{OWN}\n")
    assert learned(path, (name,))[0] == [OWN]
    path.write_text(f"From: z@example.org\nSubject: x\n\n{OWN}\n")
    assert learned(path, (name,))[0] == []
