"""Chats: the messages of their writer alone.

    WhatsApp, of Android and of iOS        .txt    a stamp before each message, in the form of the phone's language
    ChatGPT, Claude                        .json   conversations.json; the writer is the one who is no assistant
    Telegram, Instagram, Messenger, Discord, Slack, Google Chat   .json   lists of messages with a sender

A chat contains the words of others. So its reader is told the writer's names (`Source.senders`), and without them it
reads nothing and says which names there are. A chat is one document.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import PurePath
from typing import Any

from ngram_builder.readers.base import Document, Source, sound
from ngram_builder.readers.charsets import undoubled
from ngram_builder.readers.senders import DIRECTIONS, undirected

_SHOWN = 8  # names in a sentence

# ---------------------------------------------------------------- WhatsApp

# "12/31/20, 11:59 PM - ", "[31.12.2020, 23:59:59] ", "2020년 12월 31일 오후 11:59, ", "31.12.2020 klo 23.59 - "
_STAMP = re.compile(
    rf"^[{DIRECTIONS}\ufeff]*+(?:"
    r"(?P<open>\[)?\d{1,4}[./\-\u200f]{1,2} ?\d{1,2}[./\-\u200f]{1,2} ?\d{1,4}\.?"
    r"[^\d\n\[\]]{1,14}?\d{1,2}[:.]\d{2}(?:[:.]\d{2})?[^\d\n\[\]]{0,14}?(?(open)\] ?| [-–] )"
    r"|\d{4}년 \d{1,2}월 \d{1,2}일 \w+ \d{1,2}:\d{2}, )",
    re.MULTILINE,
)
_NAMED = re.compile(r"whatsapp|^_?chat\b", re.IGNORECASE)
# The program's own words in the first message, and its marks.
_ENCRYPTED = re.compile(
    r"\u200e|whatsapp|end-to-end|ende-zu-ende|bout en bout|extremo a extremo|de ponta a ponta|end-to-end-versleuteld"
    r"|сквозн|端到端|エンドツーエンド|종단간|uçtan uca|koniec końcami|end-till-end|päästä päähän",
    re.IGNORECASE,
)
_SENDER = re.compile(r"([^\n:]{1,80}?) ?: ?(?=[^\s/]|\n|$| )")
# What the program writes in the place of a message, or in it.
_OMITTED = re.compile(
    r"<[^<>\n]{3,80}>"
    r"|[^\n]{1,120}\.\w{2,5} \([^()\n]{3,40}\)"
    r"|[^\n]{0,120} • .{0,40}"
    r"|(?:\w+ ){1,3}(?:omitted|weggelassen|ausgeschlossen|omise?s?|absente?s?|omitid[oa]s?|ocultad[oa]s?|ocult[oa]s?"
    r"|omess[oaie]|weggelaten|utelämnade?s?|utelat[ets]*|udeladt|utelatt|jätetty pois|pominięt[oaey]|опущен[оаы]?"
    r"|пропущен[оаы]?|dahil edilmedi|atlandı|vynechán[oay]?|kihagyva|omis[ăe])"
    r"|(?:图片|图像|圖片|视频|影片|音频|语音|贴图|文档|文件|檔案)(?:已忽略|已略去|略去)"
    r"|\S{1,8}は省略され(?:ました|ています)|\S{1,8} 생략됨"
    r"|(?:You deleted this message|This message was deleted"
    r"|Du hast diese Nachricht gelöscht|Diese Nachricht wurde gelöscht"
    r"|Vous avez supprimé ce message|Ce message a été supprimé|Eliminaste este mensaje|Se eliminó este mensaje"
    r"|(?:Você apagou esta m|M)ensagem(?: apagada)?|Hai eliminato questo messaggio|Questo messaggio è stato eliminato"
    r"|(?:Je hebt dit|Dit) bericht (?:is )?verwijderd"
    r"|(?:Вы удалили это сообщение|(?:Данное|Это) сообщение удалено)"
    r"|Missed (?:group )?(?:voice|video) call|Verpasster? (?:Sprach|Video)anruf|Appel (?:vocal|vidéo) manqué"
    r"|Llamada perdida|Chamada de (?:voz|vídeo) perdida|Chiamata persa|Waiting for this message[^\n]*|null)\.?"
    r"|(?:location|Standort|position|ubicación|localização|posizione|locatie): https?://\S*",
    re.IGNORECASE,
)
_EDITED = re.compile(r" ?<(?=[^<>\n]* )[^<>\n/]{1,100}>\Z")  # "<This message was edited>"
_ATTACHED = re.compile(r"<[^<>\n:]{2,20}: [^<>\n]*\.\w{2,5}>")


@dataclass(frozen=True)
class Said:
    """A message and its sender; `own` if the format itself says that the writer sent it."""

    sender: str
    text: str
    own: bool = False


def is_whatsapp(text: str, path: str = "") -> bool:
    """Whether a text begins as an export of WhatsApp: a stamp first, and its own words or name, or few people that sent
    much. A diary with a stamp on each entry has neither."""
    head = text[: 1 << 14].lstrip("\ufeff\n")
    if not _STAMP.match(head):
        return False
    senders = Counter(message.sender for message in of_whatsapp(head))
    if senders and (_NAMED.search(PurePath(path).name) or _ENCRYPTED.search(head)):
        return True
    return 0 < len(senders) <= max(2, sum(senders.values()) / 2)


def of_whatsapp(text: str) -> Iterator[Said]:
    """The messages of people; a line that names no sender is the program's."""
    stamps = _STAMP.finditer(text)
    last = next(stamps, None)
    while last is not None:
        following = next(stamps, None)
        body = text[last.end() : following.start() if following else len(text)]
        if sender := _SENDER.match(undirected(body)):
            said = body.partition(":")[2]
            yield Said(sender[1].strip(" ~\u202f\xa0"), _said(said))
        last = following


def _said(text: str) -> str:
    """The words of a message, which may have several lines, without what the program wrote."""
    text = _EDITED.sub("", _ATTACHED.sub("", text.rstrip()))
    lines = []
    for line in text.split("\n"):
        plain = undirected(line).strip()
        of_program = line.lstrip(" ").startswith("\u200e")  # iOS marks its own words so
        if not of_program and not _OMITTED.fullmatch(plain):
            lines.append(plain)
    return "\n".join(lines).strip()


# ---------------------------------------------------------------- JSON


def of_json(data: Any) -> list[Said] | None:
    """The messages of a parsed file; None if it is no chat that is known."""
    if isinstance(data, dict):
        if isinstance(chats := data.get("chats"), dict) and isinstance(chats.get("list"), list):
            data = chats["list"]  # the whole account of Telegram
        elif "mapping" in data or "chat_messages" in data or "messages" in data:
            data = [data]
        else:
            return None
    if not isinstance(data, list):
        return None
    data = [each for each in data if isinstance(each, dict)]
    if any("user" in each and each.get("type") == "message" for each in data):
        data = [{"messages": data}]  # a day of Slack
    messages, known = list[Said](), False
    for chat in data:
        for field, read in (("mapping", _of_chatgpt), ("chat_messages", _of_claude), ("messages", _of_people)):
            if isinstance(chat.get(field), dict if field == "mapping" else list):
                known = True
                messages += read(chat)
                break
    return messages if known else None


def _of_chatgpt(chat: dict[str, Any]) -> Iterator[Said]:
    """The messages of the branch that the page shows; the tree has those that were replaced, too."""
    nodes, path, seen = chat["mapping"], list[dict[str, Any]](), set[str]()
    at = chat.get("current_node")
    if not isinstance(at, str) or not isinstance(nodes.get(at), dict):
        path = [node for node in nodes.values() if isinstance(node, dict)]
    while isinstance(at, str) and at not in seen and isinstance(node := nodes.get(at), dict):
        seen.add(at)
        path.append(node)
        at = node.get("parent")
    for node in reversed(path) if seen else path:
        match node.get("message"):
            case {"author": {"role": str(role)}, "content": {"content_type": str(kind), "parts": [*parts]}, **rest} if (
                kind in ("text", "multimodal_text")
            ):
                about = rest.get("metadata")
                hidden = isinstance(about, dict) and about.get("is_visually_hidden_from_conversation")
                if not hidden:
                    yield Said(role, "\n".join(part for part in parts if isinstance(part, str)), role == "user")


def _of_claude(chat: dict[str, Any]) -> Iterator[Said]:
    for message in chat["chat_messages"]:
        match message:
            case {"sender": str(sender), "text": str(text)}:
                yield Said(sender, text, sender == "human")


def _of_people(chat: dict[str, Any]) -> Iterator[Said]:
    """Messages of Telegram, Instagram, Messenger, Discord, Slack, Google Chat: their names for sender and text."""
    doubled = any(isinstance(each, dict) and "sender_name" in each for each in chat["messages"])  # encoded twice
    for message in chat["messages"]:
        if not isinstance(message, dict) or message.get("type") == "service" or message.get("forwarded_from"):
            continue
        sender = _first(message, "from", "sender_name", "author", "creator", "sender", "user")
        if isinstance(sender, dict):
            sender = _first(sender, "nickname", "name", "global_name", "email")
        text = _first(message, "text", "content", "body") or ""
        if isinstance(text, list):  # Telegram: words, and links or marks as objects
            text = "".join(
                part if isinstance(part, str) else str(part.get("text", ""))
                for part in text
                if isinstance(part, str | dict)
            )
        if isinstance(sender, str) and isinstance(text, str):
            yield Said(undoubled(sender) if doubled else sender, undoubled(text) if doubled else text)


def _first(values: dict[str, Any], *names: str) -> Any:
    """The first of these values that is there."""
    return next((values[name] for name in names if values.get(name)), None)


# ---------------------------------------------------------------- own messages


def documents(messages: Iterable[Said], source: Source) -> Iterator[Document]:
    """The writer's own messages as one document. Reports who takes part if the writer's name is not known."""
    own, senders, any_own = list[str](), Counter[str](), False
    for message in messages:
        senders[message.sender] += 1
        mine = message.own or source.senders.has(message.sender)
        any_own |= mine
        if mine and (text := sound(message.text).strip()):
            own.append(text)
    if own:
        yield Document("\n".join(own), source.path)
    elif senders and not any_own:
        names = [name for name, _ in senders.most_common(_SHOWN)]
        more = f" and {len(senders) - _SHOWN} more" if len(senders) > _SHOWN else ""
        asked = "; none of these is in --from" if source.senders.wanted else ""
        source.damaged(
            f"a chat, of which only your own messages are learned: say which of these you are with --from NAME: "
            f"{', '.join(names)}{more}{asked}"
        )
