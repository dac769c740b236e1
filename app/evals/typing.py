"""`eval typing`: a simulated typist writes a text by the page's rules, and takes a draft whenever that saves keys.

The typist uses the rows of the page: after every key, the rows that still agree keep their places, and the others are
filled again. One key takes a whole draft of any row; one key takes the first word of a draft of any row; one key types
a character. The typist takes only text that is correct to its last letter, and never corrects any.

The same passages are also measured as in ChaI-TeA (arXiv 2412.18377): at the beginning of each word, the typist takes
the longest correct beginning of a draft that ends at a word, with one key at any rank. If there is none, the typist
types the whole word.

    saved@k = (accepted characters - acceptances) / (characters - 1)
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from statistics import fmean
from typing import Any

from app.bench.report import Progress, Report, ReportRow, counted
from app.evals.options import EvalOptions, texts
from app.evals.scores import half_interval
from app.settings import DraftSettings
from core.autocomplete import Autocomplete, Session, load_autocomplete
from core.modes import Mode
from core.present import KeptRow, TextDraft

CHARACTERS = 1500  # written per kind of text
PASSAGE = 250  # characters written in one place
BEFORE = 400  # characters of the text before the passage
KS = (1, 3, 5, 9)
PEERS_K = 3  # drafts of the peers that have several

# The part of a draft that one key takes: a word with the spaces before it, or punctuation.
_PIECE = re.compile(r"""\s*(?:["“‘'«(\[{]*[^\W_]+(?:['’_.-][^\W_]+)*|[^\w\s]+|_+)""")
_WORD = re.compile(r"\s*\S+")  # for ChaI-TeA: up to the next space


@dataclass(frozen=True)
class Passage:
    kind: str
    before: str
    rest: str


@dataclass(frozen=True, eq=False)
class Way:
    """How the typist's drafts are made.

    Attributes:
        mode: None is superposed.
        refill: whether rows that agree stay while the others are filled; otherwise every key makes all drafts again.
    """

    name: str
    settings: DraftSettings
    mode: str | None = None
    refill: bool = True


@dataclass
class Typed:
    """The keys that writing a passage took, by their effect, and its characters."""

    characters: int
    keys: Counter[str] = field(default_factory=Counter)

    @property
    def saved(self) -> float:
        """Percent of the keys."""
        return 100 * (1 - self.keys.total() / self.characters)


def ways(ngrams: bool) -> list[Way]:
    """Returns the page's drafts for each k, then their peers."""

    def settings(k: int, **changes: Any) -> DraftSettings:
        return DraftSettings(k=k, ngrams=ngrams, **changes)

    return [
        *(Way("as shipped", settings(k)) for k in KS),
        *(Way("distinct beginnings", settings(k, forks=0)) for k in KS[1:]),
        Way("one greedy draft", settings(1, end_below=0), "greedy", refill=False),
        Way("branching greedy", settings(PEERS_K, end_below=0), "branching", refill=False),
        Way("beam", settings(PEERS_K, end_below=0), "beam", refill=False),
    ]


def measure(options: EvalOptions, progress: Progress) -> Report:
    autocomplete = load_autocomplete(options.model, options.backend, options.store, personal=False)
    written = passages(texts(options.text), options.repetitions or CHARACTERS)
    compared = ways(autocomplete.ngrams is not None)
    results: dict[Way, list[tuple[str, Typed, float]]] = {way: [] for way in compared}
    for passage in counted(written, "passage", progress):
        for way in compared:
            saved_at_k = 100 * chai_tea(autocomplete, passage, way)
            results[way].append((passage.kind, typed(autocomplete, passage, way), saved_at_k))
    autocomplete.model.close()
    return judged(results)


def judged(results: dict[Way, list[tuple[str, Typed, float]]]) -> Report:
    """Makes rows for every kind of text and for all, and the targets over all."""
    report = Report("eval typing")
    kinds = sorted({kind for found in results.values() for kind, _, _ in found})
    for kind in [*kinds, "all"] if len(kinds) > 1 else kinds:
        for way, found in results.items():
            report.rows.append(_row(kind, way, [one for one in found if kind in (one[0], "all")]))
    saved = {(way.name, way.settings.k): fmean(t.saved for _, t, _ in found) for way, found in results.items()}
    greedy = saved["one greedy draft", 1]
    for k, least in ((3, 60), (5, 63), (9, 67)):
        report.target(f"keys saved in percent, k={k}", saved["as shipped", k], f">= {least}")
    ratio = saved["as shipped", 3] / greedy if greedy > 0 else float("nan")
    report.target("keys saved, k=3 / one greedy draft", ratio, ">= 1.42")
    return report


def _row(kind: str, way: Way, found: list[tuple[str, Typed, float]]) -> ReportRow:
    saved = [t.saved for _, t, _ in found]
    keys = sum((t.keys for _, t, _ in found), Counter[str]())
    return {
        "kind": kind,
        "drafts": way.name,
        "k": way.settings.k,
        "passages": len(found),
        "keys_saved_percent": fmean(saved),
        "ci": half_interval(saved),
        "saved_at_k_percent": fmean(at_k for _, _, at_k in found),
        "at_k_ci": half_interval([at_k for _, _, at_k in found]),
        **{f"{name}_keys": keys[name] / keys.total() for name in ("character", "word", "draft")},
    }


def passages(by_kind: dict[str, list[str]], characters: int) -> list[Passage]:
    """Returns passages from the middle of documents, alternating between the kinds. Each begins before a word."""
    turns, length = [], min(PASSAGE, characters)
    for kind, documents in by_kind.items():
        usable = [text for text in documents if len(text) >= 2 * PASSAGE]
        found = []
        for number in range(max(characters // PASSAGE, 1)):
            text = usable[number % len(usable)] if usable else documents[0]
            # Later rounds begin later in the same document.
            share = (1 + number // max(len(usable), 1)) / (2 + characters // PASSAGE // max(len(usable), 1))
            at = text.find(" ", min(int(len(text) * share), max(len(text) - length, 0)))
            found.append(Passage(kind, text[max(at - BEFORE, 0) : at], text[at : at + length]))
        turns.append([passage for passage in found if passage.rest])
    return [turn[i] for i in range(max(map(len, turns))) for turn in turns if i < len(turn)]


def typed(autocomplete: Autocomplete, passage: Passage, way: Way, going: Callable[[], None] = lambda: None) -> Typed:
    """Writes the passage with as few keys as the drafts allow. `going` is called before every key; it may wait."""
    session = autocomplete.open()
    written, at = Typed(len(passage.rest)), 0
    rows: list[KeptRow] = []
    while at < len(passage.rest):
        going()
        rest = passage.rest[at:]
        drafts = drafted(autocomplete, session, passage.before + passage.rest[:at], way, rest, rows)
        key, length = best_move([draft.text for draft in drafts], rest)
        written.keys[key] += 1
        at += length
        taken = rest[:length]
        rows = [KeptRow(d.id, d.text[length:]) for d in drafts if d.text.startswith(taken) and len(d.text) > length]
    session.close()
    return written


def best_move(shown: list[str], rest: str) -> tuple[str, int]:
    """Returns the key that writes most of `rest`, and the number of characters: a draft, its first word or a
    character."""
    moves = [("character", 1)]
    moves += [("draft", len(draft)) for draft in shown if draft and rest.startswith(draft)]
    words = [word[0] for draft in shown if (word := _PIECE.match(draft))]
    moves += [("word", len(word)) for word in words if rest.startswith(word)]
    return max(moves, key=lambda move: move[1])


def chai_tea(autocomplete: Autocomplete, passage: Passage, way: Way) -> float:
    """Returns saved@k of a passage, from 0 to 1."""
    session = autocomplete.open()
    at, accepted, acceptances = 0, 0, 0
    while at < len(passage.rest):
        rest = passage.rest[at:]
        drafts = drafted(autocomplete, session, passage.before + passage.rest[:at], way, rest)
        length = max((right_words(draft.text, rest) for draft in drafts), default=0)
        if length:
            accepted, acceptances = accepted + length, acceptances + 1
        else:
            word = _WORD.match(rest)
            length = len(word[0]) if word else len(rest)
        at += length
    session.close()
    return (accepted - acceptances) / (len(passage.rest) - 1)


def right_words(draft: str, rest: str) -> int:
    """Returns the length of the longest beginning of a draft that ends at a word and agrees with the writer's text."""
    ends = [word.end() for word in _WORD.finditer(draft)]
    return max((end for end in ends if rest.startswith(draft[:end]) and not rest[end : end + 1].isalnum()), default=0)


def drafted(
    autocomplete: Autocomplete, session: Session, before: str, way: Way, rest: str, rows: list[KeptRow] | None = None
) -> list[TextDraft]:
    """Returns the drafts after `before`, computed only as far as they affect writing `rest`: they stop growing when
    none agrees with it."""
    options = way.settings.drafting()
    if way.mode is not None:
        options["mode"] = Mode(way.mode)
    completion = session.complete(before, kept=rows if way.refill and rows else [], **options)
    while not completion.done:
        completion.advance(autocomplete.model.forward(completion.rows()))
        # Beam search may still drop a draft in favour of another one's continuation.
        if completion.settled and way.mode != "beam" and not any(rest.startswith(d.text) for d in completion.drafts):
            completion.close()
    return [draft for draft in completion.drafts if draft.probability >= way.settings.min_confidence]
