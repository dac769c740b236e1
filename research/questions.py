"""Questions with known answers: from a .jsonl file, for evaluations of correctness with any model.

Each line is an object with an answer and one of two kinds of question:

    {"prompt": "12 + 30 =", "answer": 42}                          a text that the answer continues
    {"question": "Who wrote Emma?", "answer": ["Austen", "Jane"]}  a question, asked in the model's chat template

`"turns": ["Who wrote Emma?"]` is another form of `question`. `answer` is a text, a number, or a list of answers that
are right; of a worked answer in the form of GSM8K ("… #### 42") the number after #### counts. `kind` is optional:
the table's rows are by kind, and by default it is the file's name.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from core.errors import InputError

if TYPE_CHECKING:
    from core.models import Tokenizer
    from research.chat import ChatTemplate

FORMS = '{"prompt": "…", "answer": "…"} or {"question": "…", "answer": "…"} expected'
NUMBER = re.compile(r"-?\d[\d,]*(?:\.\d+)?")
CHOICE = re.compile(r"[A-H]")  # the right answer of a question with several to choose from
STATED = re.compile(r"(?i:answer is)\W{0,3}(?-i:([A-H]))(?!\w)")
ALONE = re.compile(r"(?<![\w'’])([A-H])(?![\w'’-]| [a-z])")  # "A" before a small letter is the article


@dataclass(frozen=True)
class Question:
    """
    Attributes:
        answer: the right one; `others` are also right.
        asked: whether the answer is a reply to the prompt. Otherwise the answer is the beginning of its continuation.
    """

    kind: str
    prompt: str
    answer: str
    others: tuple[str, ...] = ()
    asked: bool = False

    def is_answered_by(self, text: str) -> bool:
        """Whether a continuation of the prompt begins with an answer, as whole words or a whole number."""
        return self._begins(r"\s*", text)

    def answer_in(self, text: str) -> str:
        """Returns the answer that a text gives, as votes are counted: `answer` if it gives any of the right ones.

        Of a continuation it is the first words or the first word. Of a reply it is the last number if the right answer
        is a number; the last letter that is stated as the answer, or that stands alone, if it is a capital letter from
        A to H; or else a right answer anywhere in the first line with text, or this line in lower case.
        """
        if not self.asked:
            if self.is_answered_by(text):
                return self.answer
            match = re.match(r"\s*(\w+)", text)
            return match[1] if match else ""
        reply = text.split("\nQuestion:")[0].strip()
        if NUMBER.fullmatch(self.answer):
            right = {number(answer) for answer in (self.answer, *self.others)}
            numbers = [number(each) for each in NUMBER.findall(reply.rsplit("####", 1)[-1])]
            return self.answer if numbers and numbers[-1] in right else "".join(numbers[-1:])
        if CHOICE.fullmatch(self.answer):
            letters = STATED.findall(reply) or ALONE.findall(reply)
            return self.answer if letters and letters[-1] in (self.answer, *self.others) else "".join(letters[-1:])
        line = reply.split("\n")[0]
        return self.answer if self._begins(r".*?(?<!\w)", line) else line.lower()

    def ids(self, tokenizer: Tokenizer, chat: ChatTemplate | None = None) -> list[int]:
        """Returns the tokens after which the answer comes.

        Args:
            chat: the model's chat template, for questions that are asked; None for "Question: … Answer:".
        """
        if not self.asked:
            return tokenizer.start_ids + tokenizer.encode(self.prompt)
        if chat is None:
            return tokenizer.start_ids + tokenizer.encode(f"Question: {self.prompt}\nAnswer:")
        from research.prompts import messages

        return chat.ids(tokenizer, messages(self.kind, self.prompt))

    def _begins(self, before: str, text: str) -> bool:
        answers = "|".join(map(re.escape, (self.answer, *self.others)))
        return re.match(rf"{before}(?:{answers})(?!\w)", text, re.IGNORECASE) is not None


def number(text: str) -> str:
    """Returns a number without commas between thousands and without zeros after a decimal point."""
    plain = text.replace(",", "")
    return plain.rstrip("0").rstrip(".") if "." in plain else plain


def read(path: Path, count: int | None = None) -> dict[str, list[Question]]:
    """Returns the first `count` questions of each kind, by kind. Raises InputError that names the file and the line."""
    by_kind: dict[str, list[Question]] = {}
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"{path} cannot be read ({error}); a .jsonl file of questions expected.") from error
    for at, line in enumerate(lines, 1):
        if line.strip():
            question = _question(line, f"Line {at} of {path}", path.stem)
            by_kind.setdefault(question.kind, []).append(question)
    if not by_kind:
        raise InputError(f"{path} has no questions; lines of {FORMS}.")
    return {kind: questions[:count] for kind, questions in by_kind.items()}


def _question(line: str, where: str, kind: str) -> Question:
    try:
        parsed = json.loads(line)
    except ValueError as error:
        raise InputError(f"{where} is not JSON ({error}); {FORMS}.") from error
    if not isinstance(parsed, dict):
        raise InputError(f"{where} is not an object; {FORMS}.")
    turns = parsed.get("turns")
    first = turns[0] if isinstance(turns, list) and turns else None
    texts = {"prompt": parsed.get("prompt"), "question": parsed.get("question"), "turns": first}
    given = [name for name, text in texts.items() if isinstance(text, str) and text.strip()]
    if len(given) != 1:
        what = f"has {' and '.join(given)}" if given else "has no prompt and no question"
        raise InputError(f"{where} {what}; {FORMS}.")
    answers = parsed.get("answer")
    answers = answers if isinstance(answers, list) else [answers]
    plain = [_answer(answer) for answer in answers]
    if not plain or "" in plain:
        what = "has no answer" if parsed.get("answer") in (None, "", []) else f"has the answer {parsed['answer']!r}"
        raise InputError(f"{where} {what}; a text, a number or a list of them expected.")
    kind = parsed.get("kind", kind)
    if not isinstance(kind, str):
        raise InputError(f"{where} has the kind {kind!r}; a text expected.")
    return Question(kind, str(texts[given[0]]), plain[0], tuple(plain[1:]), asked=given[0] != "prompt")


def _answer(value: object) -> str:
    """Returns an answer as text; "" for anything that is none."""
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        return ""
    return str(value).rsplit("####", 1)[-1].strip()
