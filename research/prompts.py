"""Reads prompts: from a folder of .jsonl files, one for each kind, with the prompt as the first of "turns"; or the
app's own prompts. In other text, such as prose in .txt or .jsonl.zst, the model continues places inside documents.

If the model has a chat template, each prompt is rendered in it, with the system prompts of appendix A.4 of the
ARC-Decode paper, and four worked examples before a sum. The examples are ours and have the form of GSM8K's, because its
training set is not included.
"""

from __future__ import annotations

import json
from pathlib import Path

from core.errors import InputError
from core.models import Tokenizer
from research import texts
from research.chat import ChatTemplate, Message

OURS = Path(__file__).with_name("prompts.jsonl")
SHOTS = Path(__file__).with_name("shots.json")
MOST = 700  # tokens of a prompt; the beginning of a longer one is removed
PLACES = 80  # places of each kind of prose
HELPFUL = "You are a helpful, respectful and honest assistant."
CODE = "You are a helpful, honest assistant. You write Python function bodies only (no `def` line and no comments)."
SUMS = "sums"
# The system prompt of each kind, or SUMS for sums with worked examples. Other kinds have no system prompt.
KINDS = {
    "mt_bench": HELPFUL,
    "alpaca": HELPFUL,
    "chat": HELPFUL,
    "tasks": HELPFUL,
    "humaneval": CODE,
    "code": CODE,
    "gsm8k": SUMS,
    "maths": SUMS,
}


def prompts(
    path: Path | None, tokenizer: Tokenizer, count: int | None = None, chat: ChatTemplate | None = None
) -> dict[str, list[list[int]]]:
    """Returns the token ids of the first `count` prompts of each file, by the file's name, up to the position of the
    answer.

    Args:
        chat: the model's chat template; None for the prompt as plain text, with an empty line after it.
    Raises: InputError if there is no file with prompts or text, or a line is not a prompt.
    """
    files = [OURS] if path is None else sorted(path.glob("*.jsonl")) if path.is_dir() else [path]
    if path is not None and all(file.suffix != ".jsonl" for file in files):
        return _prose(path, tokenizer, PLACES if count is None else count)
    by_kind: dict[str, list[list[int]]] = {}
    for file in files:
        number = 0
        try:
            for text in file.read_text(encoding="utf-8").splitlines():
                number += 1
                line = json.loads(text)
                if not isinstance(line, dict) or not isinstance(line["turns"][0], str):
                    raise ValueError("no object with a list of texts")
                kind = line.get("kind", file.stem) if path is None else file.stem
                of_kind = by_kind.setdefault(kind, [])
                if count is None or len(of_kind) < count:
                    of_kind.append(_ids(kind, line["turns"][0], tokenizer, chat))
        except OSError as error:
            raise InputError(f"{file} cannot be read ({error.strerror}); give a folder of .jsonl prompts.") from error
        except (ValueError, KeyError, IndexError, TypeError) as error:
            raise InputError(f'Line {number} of {file} is not a prompt; {{"turns": ["…"]}} expected.') from error
    if not by_kind:
        raise InputError(f"No prompts in {path}; give a folder of .jsonl files.")
    return by_kind


def _prose(path: Path, tokenizer: Tokenizer, count: int) -> dict[str, list[list[int]]]:
    """Returns the end of the text before each of `count` random words of each kind."""
    documents = texts.named([path])
    by_kind = {
        kind: texts.words([[each.text for each in documents if each.kind == kind]], count)
        for kind in dict.fromkeys(each.kind for each in documents)
    }
    return {
        kind: [
            tokenizer.start_ids + tokenizer.encode(place.document[: place.at].rstrip(" ")[-8 * MOST :])[-MOST:]
            for place in places
        ]
        for kind, places in by_kind.items()
    }


def messages(kind: str, prompt: str) -> list[Message]:
    """Returns the conversation before the answer to one prompt."""
    system = KINDS.get(kind.lower().replace("-", "_"))
    if system != SUMS:
        return [{"role": "system", "content": system}] * (system is not None) + [{"role": "user", "content": prompt}]
    chat: list[Message] = []
    for shot in json.loads(SHOTS.read_text(encoding="utf-8")):
        chat.append({"role": "user", "content": _sum(shot["question"])})
        chat.append({"role": "assistant", "content": shot["answer"]})
    return [*chat, {"role": "user", "content": _sum(prompt)}]


def _sum(question: str) -> str:
    return f"Question: {question}\nLet's think step by step\nAnswer:"


def _ids(kind: str, text: str, tokenizer: Tokenizer, chat: ChatTemplate | None) -> list[int]:
    text = text.rstrip()
    if chat is None:
        return tokenizer.start_ids + tokenizer.encode(text + "\n\n")[-MOST:]
    if len(ids := tokenizer.encode(text)) > MOST:
        text = tokenizer.decode(ids[-MOST:])
    return chat.ids(tokenizer, messages(kind, text))
