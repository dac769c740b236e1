"""The text to continue, out of prompts that were written for other models.

Programs wrap a text in what their models were trained on: marks around a gap, or an instruction in a chat. Polydraft
continues the text itself.
"""

from __future__ import annotations

import re

# Marks of prompts with a gap: the one before the text before the caret, the one before the text after it, and the last.
# Where the second mark stands first, the text after the caret comes first.
MARKS = (
    ("<|fim_prefix|>", "<|fim_suffix|>", "<|fim_middle|>"),  # Qwen, CodeGemma, Granite 4
    ("<fim_prefix>", "<fim_suffix>", "<fim_middle>"),  # StarCoder, Stable Code
    ("<fim-prefix>", "<fim-suffix>", "<fim-middle>"),  # SantaCoder
    ("<[fim-prefix]>", "<[fim-suffix]>", "<[fim-middle]>"),  # Seed-Coder
    ("<｜fim▁begin｜>", "<｜fim▁hole｜>", "<｜fim▁end｜>"),  # DeepSeek
    ("<PRE> ", " <SUF>", " <MID>"),  # Code Llama
    ("<|code_prefix|>", "<|code_suffix|>", "<|code_middle|>"),  # CodeGeeX
    ("[PREFIX]", "[SUFFIX]", ""),  # Codestral: the text after the caret first
)
HOLES = ("{{FILL_HERE}}", "<mask/>", "<|cursor|>", "<cursor>", "<CURSOR>")  # in chats, for the caret

_TAGGED = re.compile(r"^<(\w{1,40})>\n?", re.MULTILINE)
_FENCE = re.compile(r"^```[^\n`]{0,40}\n", re.MULTILINE)
_VERBS = "continue|complete|finish|extend|autocomplete|predict"
_ASKED = re.compile(rf"\s*(?:\w{{1,20}}[ ,]+){{0,3}}(?:{_VERBS})\b[^\n:]{{0,300}}:\s+(?=\S)", re.IGNORECASE)


def around_gap(prompt: str) -> tuple[str, str] | None:
    """The texts before and after the gap of a prompt with `MARKS`; None for a prompt without. Other files before the
    first mark are left out, because their marks are no text."""
    for before, after, last in MARKS:
        if not prompt.endswith(last):
            continue
        body = prompt[: len(prompt) - len(last)]
        second = body.rfind(after)
        first = body.find(before)
        if second < 0 or first < 0:
            continue
        if first < second:
            return body[first + len(before) : second], body[second + len(after) :]
        first = body.rfind(before)
        return body[first + len(before) :], body[second + len(after) : first]
    return None


def asked_for(message: str) -> tuple[str, str]:
    """The texts before and after the caret in a message that may contain an instruction. In order: a prompt with
    `MARKS`; a hole for the caret, within the tags around it if there are any; a block in tags or in a fence that ends
    the message; what follows "Continue this text:". Else the whole message is the text."""
    if parts := around_gap(message):
        return parts
    tags = list(_TAGGED.finditer(message))
    for hole in HOLES:
        if hole in message:
            for tag in reversed(tags):
                end = message.find(f"</{tag[1]}>", tag.end())
                at = message.find(hole, tag.end())
                if tag.end() <= at < end:
                    return message[tag.end() : at], message[at + len(hole) : end].removesuffix("\n")
            at = message.rfind(hole)
            return _after_instruction(message[:at]), message[at + len(hole) :]
    whole = message.rstrip()
    for tag in tags:
        if whole.endswith(f"</{tag[1]}>"):
            return whole[tag.end() : len(whole) - len(tag[1]) - 3].removesuffix("\n"), ""
    if whole.endswith("\n```") and (fences := list(_FENCE.finditer(whole))):
        return whole[fences[-1].end() : -4], ""
    return _after_instruction(message), ""


def _after_instruction(text: str) -> str:
    asked = _ASKED.match(text)
    return text[asked.end() :] if asked else text
