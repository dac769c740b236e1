"""The n texts of one response, updated by the events of its request: their order, their ends, and the parts that may be
sent already.

Rows of the page may still change: until the choice of drafts is settled a row may be replaced, and at its end a
draft loses words like "and the". Sent text cannot be revoked, so a text is held back up to its last whole word.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from app.options.settings import DraftSettings
from app.service.jobs import Event
from core.text import spaced, without_dangling

Finish = Literal["stop", "length"]


@dataclass
class Choice:
    """One text.

    Attributes:
        index: its position in the response, which is constant.
        text: so far; the final text is read when the response ends.
        sure: the number of its characters that can no longer change.
        finish: the reason of its end, once it has ended.
        tokens: their number.
        logprobs: of its tokens by the model alone, if requested.
        sent: the number of its characters that were sent.
        ended: whether its end was sent.
    """

    index: int
    text: str = ""
    sure: int = 0
    finish: Finish | None = None
    tokens: int = 0
    logprobs: list[dict[str, Any]] = field(default_factory=list)
    sent: int = 0
    ended: bool = False


class Choices:
    """The texts of one request.

    Args:
        n: number of texts in the response; those for which the model has no draft stay empty.
        length: tokens of a draft at most; with 0 all texts stay empty.
        stops: texts before which a draft ends.
        growing: texts are sent while they grow, so their order is that of the first settled drafts.
        after: the text after the caret; a text ends with a space where they would otherwise join.
    """

    def __init__(self, n: int, length: int, stops: Sequence[str] = (), growing: bool = False, after: str = "") -> None:
        self.all = [Choice(index) for index in range(n)]
        self.done = False
        self._length, self._stops, self.growing, self._after = length, stops, growing, after
        self._rows: dict[int, Choice] = {}  # by the number of the row

    def take(self, event: Event) -> None:
        """The drafts of one event; the best one comes first."""
        if event["done"] or not self.growing:
            self.done = event["done"]
        elif not event["settled"]:
            return
        if not self.growing:
            self._rows = {}
        best = event["best"]
        drafts = event["drafts"] if self._length else []
        drafts = sorted(drafts, key=lambda draft: (draft["id"] != best, -draft["probability"]))
        if "pays" in event:  # only drafts that save time, each up to where it does
            by_id = {draft["id"]: draft for draft in drafts}
            drafts = [by_id[row["id"]] | {"text": row["text"]} for row in event["pays"] if row["id"] in by_id]
        for draft in drafts:
            if draft["id"] not in self._rows and len(self._rows) < len(self.all):
                self._rows[draft["id"]] = self.all[len(self._rows)]
        shown = set()
        for draft in drafts:
            if draft["id"] in self._rows:
                self._fill(self._rows[draft["id"]], draft)
                shown.add(self._rows[draft["id"]].index)
        for choice in self.all:
            if choice.index not in shown and not self.growing:
                choice.text, choice.sure, choice.finish, choice.tokens, choice.logprobs = "", 0, None, 0, []
            if self.done:
                choice.finish = choice.finish or ("stop" if self._length else "length")
                choice.sure = len(choice.text)

    def news(self) -> Iterator[tuple[Choice, str, Finish | None]]:
        """The parts that may be sent and were not, each with the reason of the text's end if it is the last part."""
        for choice in self.all:
            part = choice.text[choice.sent : choice.sure]
            finish = choice.finish if self.done or choice.finish == "stop" else None
            if choice.ended or not (part or finish):
                continue
            choice.sent, choice.ended = max(choice.sent, choice.sure), finish is not None
            yield choice, part, finish

    def _fill(self, choice: Choice, draft: dict[str, Any]) -> None:
        if self.growing and choice.finish:
            return
        text = draft["text"]
        stop = min((at for at in (text.find(stop) for stop in self._stops) if at >= 0), default=-1)
        choice.text = spaced(text, self._after) if stop < 0 else text[:stop]
        choice.tokens = sum(end <= len(choice.text) for end, _ in draft["tokens"])
        choice.logprobs = _within(draft.get("chances", []), len(choice.text))
        if stop >= 0:
            choice.finish = "stop"
        elif self.done:
            whole = len(draft["tokens"]) >= self._length and not draft["finished"]
            choice.finish = "length" if whole else "stop"
        choice.sure = len(choice.text) if choice.finish else len(self._held_back(choice.text))

    def _held_back(self, text: str) -> str:
        text = without_dangling(whole_words(text))
        begun = max((begun_at_the_end(text, stop) for stop in self._stops), default=0)
        return text[: len(text) - begun].rstrip() if begun else text


def only_grows(settings: DraftSettings) -> bool:
    """Whether settled drafts only grow. In the other modes they may be replaced or corrected."""
    if settings.sampling.mode == "superposed":
        return settings.distinct and not settings.verify and not settings.reset_every
    return settings.sampling.mode in ("greedy", "branching", "sampled")


def whole_words(text: str) -> str:
    """The text without its last word, which may continue."""
    if not text or text[-1].isspace():
        return text.rstrip()
    return text[: -len(text.split()[-1])].rstrip()


def begun_at_the_end(text: str, stop: str) -> int:
    """The length of the longest beginning of a stop, but not all of it, with which a text ends. A stop is short."""
    return next((n for n in range(len(stop) - 1, 0, -1) if text.endswith(stop[:n])), 0)


def _within(tokens: list[dict[str, Any]], end: int) -> list[dict[str, Any]]:
    """The tokens that lie before the end of a text."""
    inside, at = [], 0
    for token in tokens:
        at += len(token["text"])
        if at > end:
            break
        inside.append(token)
    return inside
