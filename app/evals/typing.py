"""`eval typing`: a simulated typist writes a text by the page's rules and takes a draft whenever that saves keys.

The typist sees what the page shows: drafts after every key, trimmed while the typed text agrees with one of them, asked
for anew when it does not. A draft is taken whole with one key, or the shown first one word by word with one key a word,
after one key for every draft it stands below the first. What is taken is right to its last letter: the typist never
corrects.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from statistics import fmean
from typing import Any

from app.bench.report import Report
from app.evals.options import Options, texts
from app.evals.scores import half_interval
from app.settings import DraftSettings
from core.autocomplete import Autocomplete, Session, load_autocomplete

CHARACTERS = 1500  # written per kind of text
PASSAGE = 250  # characters written in one place
BEFORE = 400  # characters of the text that stand there already
KS = (1, 3, 5, 9)

# One press of Ctrl+→: a word with the spaces before it and what sticks to it.
_WORD = re.compile(r"\s*\S+")


@dataclass(frozen=True)
class Passage:
    kind: str
    before: str
    rest: str


def measure(options: Options, progress: Callable[[str], None]) -> Report:
    progress("loading the model")
    autocomplete = load_autocomplete(options.model, options.backend, personal=False)
    written = passages(texts(options.text), options.repetitions or CHARACTERS)
    report = Report("eval typing")
    saved: dict[tuple[str, bool, int], list[float]] = {}
    for number, passage in enumerate(written):
        for with_stores in (False, True) if autocomplete.ngrams is not None else (False,):
            for k in KS:
                progress(f"passage {number + 1} of {len(written)}, k={k}")
                keys = typed(autocomplete, passage, k, with_stores)
                percent = 100 * (1 - keys / len(passage.rest))
                saved.setdefault((passage.kind, with_stores, k), []).append(percent)
    autocomplete.model.close()
    kinds = sorted({kind for kind, _, _ in saved})
    for kind in [*kinds, "all"] if len(kinds) > 1 else kinds:
        for with_stores in (False, True):
            for k in KS:
                values = _of(saved, kind, with_stores, k)
                if values:
                    report.rows.append(_row(kind, with_stores, k, values))
    best = autocomplete.ngrams is not None
    one, three = (fmean(_of(saved, "all", best, k)) for k in (1, 3))
    report.target("keys saved, three drafts / one", three / one if one > 0 else float("nan"), ">= 1.25")
    return report


def _of(saved: dict[tuple[str, bool, int], list[float]], kind: str, with_stores: bool, k: int) -> list[float]:
    return [
        v for key, values in saved.items() if key[1:] == (with_stores, k) and kind in (key[0], "all") for v in values
    ]


def _row(kind: str, with_stores: bool, k: int, values: list[float]) -> dict[str, Any]:
    return {
        "kind": kind,
        "k": k,
        "ngrams": "yes" if with_stores else "no",
        "passages": len(values),
        "keys_saved_percent": fmean(values),
        "ci": half_interval(values),
    }


def passages(by_kind: dict[str, list[str]], characters: int) -> list[Passage]:
    """Passages from the middle of as many documents as needed, in turns of the kinds; each begins before a word."""
    turns, length = [], min(PASSAGE, characters)
    for kind, documents in by_kind.items():
        usable = [text for text in documents if len(text) >= 2 * PASSAGE]
        found = []
        for number in range(max(characters // PASSAGE, 1)):
            text = usable[number % len(usable)] if usable else documents[0]
            # Further round, further on in the same document.
            share = (1 + number // max(len(usable), 1)) / (2 + characters // PASSAGE // max(len(usable), 1))
            at = text.find(" ", min(int(len(text) * share), max(len(text) - length, 0)))
            found.append(Passage(kind, text[max(at - BEFORE, 0) : at], text[at : at + length]))
        turns.append([passage for passage in found if passage.rest])
    return [turn[i] for i in range(max(map(len, turns))) for turn in turns if i < len(turn)]


def typed(autocomplete: Autocomplete, passage: Passage, k: int, with_stores: bool) -> int:
    """Keys it takes to write the passage."""
    options = DraftSettings(k=k, ngrams=with_stores)
    session = autocomplete.open()
    at, keys = 0, 0
    shown: list[str] = []
    while at < len(passage.rest):
        rest = passage.rest[at:]
        if not shown:
            shown = drafted(autocomplete, session, passage.before + passage.rest[:at], options, rest)
        cost, length = best_move(shown, rest)
        keys, at = keys + cost, at + length
        written = rest[:length]
        shown = [draft[length:] for draft in shown if draft.startswith(written) and len(draft) > length]
    session.close()
    return keys


def best_move(shown: list[str], rest: str) -> tuple[int, int]:
    """(keys, characters) of what saves most: a draft, some words of one, or one typed character."""
    best = (1, 1)
    for number, draft in enumerate(shown):
        options = [(1, len(draft))] if draft and rest.startswith(draft) else []
        taken = 0
        for keys, word in enumerate(_WORD.finditer(draft), start=1):
            if not rest.startswith(word[0], taken):
                break
            taken = word.end()
            options.append((number + keys, taken))
        best = max([best, *options], key=lambda move: (move[1] - move[0], -move[0]))
    return best


def drafted(
    autocomplete: Autocomplete, session: Session, before: str, settings: DraftSettings, rest: str | None = None
) -> list[str]:
    """The drafts after `before`, as far as they matter to who writes `rest` next: they are not grown any further once
    none agrees with it. None: to their end."""
    completion = session.complete(before, **settings.drafting())
    while not completion.done:
        completion.advance(autocomplete.model.forward(completion.rows()))
        if rest is not None and completion.step and not any(rest.startswith(d.text) for d in completion.drafts):
            completion.close()
    return [draft.text for draft in completion.drafts if draft.probability >= settings.min_confidence]
