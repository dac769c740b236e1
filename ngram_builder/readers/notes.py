"""Notes: what a person wrote in a file of text, without what programs put there.

Front matter, the data of drawings, queries whose results a program shows, comments of HTML, and bytes written as
letters (base64) are not learned. Each rule reads the text once.
"""

from __future__ import annotations

import re
from pathlib import PurePosixPath

_MARKDOWN = (".md", ".markdown")
_YAML_LINE = re.compile(r"[ \t#-]|[^\s:][^\n:]*+:(?:\s|$)|\s*$|[\]}]")
_YAML_KEY = re.compile(r"[^\s:#-][^\n:]*+:(?:\s|$)")
_TOML_LINE = re.compile(r"\s*(?:[\w.\"'-]+\s*=|\[|#|$|[\]}\"'])|[ \t]")
_TOML_KEY = re.compile(r"[\w.\"'-]+\s*=")
# Blocks of Markdown whose text a program makes, or reads: queries, drawings, settings.
_BLOCK = re.compile(r"[ \t>]*(`{3,}|~{3,})[ \t]*\{?\.?([\w-]*)")
_GENERATED = {
    "dataview", "dataviewjs", "tasks", "query", "excalidraw", "compressed-json", "kanban", "base", "tracker", "chart",
    "leaflet", "button", "meta-bind", "meta-bind-button", "meta-bind-embed", "drawing", "ink", "handwritten-ink",
    "handdrawn-ink", "calendar-nav", "todoist", "toc", "table-of-contents", "zotero", "datacorejsx", "datacore",
    "datacoretsx", "jsonl", "base64",
}  # fmt: skip
_BASE64 = re.compile(  # lines of it, and a shorter last one
    r"(?:(?<![A-Za-z0-9+/_-])[A-Za-z0-9+/_-]{60,}+={0,2}[ \t]*(?:\n|(?=[^A-Za-z0-9+/_-])|\Z))+"
    r"(?:(?<=\n)[A-Za-z0-9+/_-]{1,75}={0,2}(?=[ \t]*(?:\n|\Z|[)\"'>`])))?"
)
_DATA_URL = re.compile(r"data:[\w/+.-]{1,60};base64,\S*+")
_DATA = re.compile(r"!?\[[^\]\n]{0,200}\]\(<?data:[^)\s]*+\s*\)?|^\[[^\]\n]{1,200}\]:[ \t]*<?data:\S*+", re.MULTILINE)
_INLINE_QUERY = re.compile(r"`(?:\$?=|dv:)[^`\n]*`")
# Lines of Logseq, and the properties that Joplin writes at the end of a note.
_PROPERTY = re.compile(
    r"^[ \t]*(?:- )?(?:id|collapsed|created-at|updated-at|heading|background-color|ls-type|hl-[\w-]+|logseq\.[\w.-]+)::"
    r"[ \t][^\n]*\n?|^[ \t]*(?:- )?\{\{(?:query|embed|renderer)\b[^\n]*\}\}[ \t]*\n?",
    re.MULTILINE,
)
_JOPLIN = re.compile(r"\n\nid: [0-9a-f]{32}\n(?:[a-z_]+:[^\n]*\n)*type_: \d+\s*\Z")
_BLOCK_ID = re.compile(r"[ \t]\^(?:[0-9a-f]{6}|[A-Za-z0-9]{8})$", re.MULTILINE)
_ENCLOSED = (
    ("<!--", "-->"), ("<svg", "</svg>"), ("<style", "</style>"), ("<script", "</script>"),
    ("%% kanban:settings", "%%"), (":LOGBOOK:", ":END:"),
)  # fmt: skip
_EXCALIDRAW = "Switch to EXCALIDRAW VIEW"
_DRAWING = re.compile(r"^(?:%%\n+)?#{1,2} (?:Embedded [Ff]iles|Element Links|Drawing)[ \t]*$", re.MULTILINE)
_DRAWING_MARKS = re.compile(
    r"^(?:#{1,2} (?:Excalidraw Data|Text Elements)[ \t]*|==[^\n]*EXCALIDRAW VIEW[^\n]*|%%)$", re.MULTILINE
)


def written(text: str, path: str, begins: bool = True) -> str:
    """The part of a text that a person wrote, from a file of this name; `begins`: whether the file begins with it."""
    if begins:
        text = _without_front_matter(text)
    if _is_markdown(path):
        text = _without_drawing(text)
        for start, end in _ENCLOSED:
            text = _without(text, start, end)
        text = _without_blocks(text)
        for pattern in (_DATA, _INLINE_QUERY, _PROPERTY, _BLOCK_ID, _JOPLIN):
            text = pattern.sub("", text)
    return _BASE64.sub(_unless_words, _DATA_URL.sub("", text))


def _is_markdown(path: str) -> bool:
    return any(suffix.lower() in _MARKDOWN for suffix in PurePosixPath(path).suffixes[-2:])


def _without_front_matter(text: str) -> str:
    for fence, ends, line_of, key in (
        ("---", ("---", "..."), _YAML_LINE, _YAML_KEY),
        ("+++", ("+++",), _TOML_LINE, _TOML_KEY),
    ):
        if not text.startswith(fence):
            continue
        at, keys, lines = 0, False, text.splitlines(keepends=True)
        if lines[0].rstrip() != fence:
            continue
        for line in lines[1:]:
            at += len(line)
            if line.rstrip() in ends:
                return text[len(lines[0]) + at :] if keys else text
            if not line_of.match(line):
                return text  # a line of dashes, and prose
            keys = keys or bool(key.match(line))
    return text


def _without_drawing(text: str) -> str:
    """A note of Excalidraw without its drawing; the words in the drawing stay."""
    if _EXCALIDRAW not in text:
        return text
    if match := _DRAWING.search(text):
        text = text[: match.start()]
    return _DRAWING_MARKS.sub("", text)


def _without(text: str, start: str, end: str) -> str:
    """A text without what stands between these marks; one that is not closed stays."""
    kept, at = list[str](), 0
    while (begins := text.find(start, at)) >= 0 and (ends := text.find(end, begins + len(start))) >= 0:
        kept.append(text[at:begins])
        at = ends + len(end)
    return "".join([*kept, text[at:]])


def _without_blocks(text: str) -> str:
    """A text without fenced blocks that a program makes or reads."""
    if "```" not in text and "~~~" not in text:
        return text
    kept, fence, generated = list[str](), "", False
    for line in text.splitlines(keepends=True):
        opening = _BLOCK.match(line)
        if fence:
            stays = not generated
            if opening and opening[1].startswith(fence) and not line[opening.end() :].strip() and not opening[2]:
                fence = ""
        else:
            generated = bool(opening) and opening[2].lower() in _GENERATED
            stays = not generated
            fence = opening[1] if opening else ""
        if stays:
            kept.append(line)
    return "".join(kept)


def _unless_words(match: re.Match[str]) -> str:
    """Nothing in place of base64, which has capitals, small letters and digits; long words and paths stay."""
    run = match[0]
    mixed = any(map(str.isdigit, run)) and any(map(str.islower, run)) and any(map(str.isupper, run))
    return "" if mixed else run
