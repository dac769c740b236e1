"""A simulated typist, who writes a text with as few keys as the page's drafts allow; and the keys that drafts save on a
person's own held-out text, without and with the adapter.

The typist uses the rows of the page: after every key, the rows that still agree keep their places, and the others are
filled again. One key takes a whole draft of any row; one key takes the first word of a draft of any row; one key types
a character. The typist takes only text that is correct to its last letter, and never corrects any.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from statistics import fmean
from types import SimpleNamespace
from typing import Any, cast

import numpy as np

from app.options.sampling import drafting
from app.options.settings import DraftSettings
from core.ask import KeptRow
from core.autocomplete import Autocomplete
from core.models import load_model
from core.models.adapter import Adapter
from core.modes.start import Mode
from core.ngram.counts import Counts
from core.ngram.interpolation import Store
from core.ngram.shelf import Shelf
from core.ngram.store import NgramStore
from core.present import TextDraft
from core.session import Session
from training.texts import in_turn

CHARACTERS = 2000  # of a person's own text, at most
PASSAGE = 250  # characters written in one place
BEFORE = 400  # characters of the text before the passage
TURN = 6  # passages: a letter of a page has 1,500 characters

# The part of a draft that one key takes: a word with the spaces before it, or punctuation.
PIECE = re.compile(r"""\s*(?:["“‘'«(\[{]*[^\W_]+(?:['’_.-][^\W_]+)*|[^\w\s]+|_+)""")


@dataclass(frozen=True)
class Passage:
    """A text that is written: what precedes it in its document, and the background that the model reads."""

    kind: str
    before: str
    rest: str
    background: str = ""


@dataclass(frozen=True, eq=False)
class Way:
    """How the typist's drafts are made.

    Attributes:
        settings: with `refill`, rows that agree stay while the others are filled; otherwise every key makes all drafts
            again.
        mode: None is superposed.
        rejects: after so many keys in a row at which no shown draft is right, one more key asks for other drafts, which
            begin differently; 0: the typist never asks.
    """

    name: str
    settings: DraftSettings
    mode: str | None = None
    rejects: int = 0


@dataclass
class Typed:
    """The keys that writing a passage took, by their effect, and its characters."""

    characters: int
    keys: Counter[str] = field(default_factory=Counter)

    @property
    def saved(self) -> float:
        """Percent of the keys."""
        return 100 * (1 - self.keys.total() / self.characters)


def passages(by_kind: dict[str, list[str]], characters: int) -> list[Passage]:
    """Returns passages of documents, alternating between the kinds. Of `TURN` passages of a kind, the last begins where
    its document does, as in texts of so many passages, and one in their middle begins where a line does; the others
    begin before a word inside. So places where a person begins count as in a text of a page."""
    turns, length = [], min(PASSAGE, characters)
    for kind, documents in by_kind.items():
        usable = [text for text in documents if len(text) >= 2 * PASSAGE]
        chosen = []
        for number in range(max(characters // PASSAGE, 1)):
            text = usable[number % len(usable)] if usable else documents[0]
            # Later rounds begin later in the same document.
            share = (1 + number // max(len(usable), 1)) / (2 + characters // PASSAGE // max(len(usable), 1))
            at = _start(text, min(int(len(text) * share), max(len(text) - length, 0)), number % TURN)
            chosen.append(Passage(kind, text[max(at - BEFORE, 0) : at], text[at : at + length]))
        turns.append([passage for passage in chosen if passage.rest])
    return in_turn(turns)


def _start(text: str, near: int, turn: int) -> int:
    """Where a passage begins, near a place of its document."""
    if turn == TURN - 1:
        return 0
    if turn == TURN // 2 - 1:
        while text[near] == "\n":  # of an empty line
            near += 1
        return text.rfind("\n", 0, near) + 1
    return text.find(" ", near)


def typed(
    autocomplete: Autocomplete, passage: Passage, way: Way, check_cancelled: Callable[[], None] = lambda: None
) -> Typed:
    """Writes the passage with as few keys as the drafts allow. `check_cancelled` is called before every key; it may
    wait."""
    session = autocomplete.open()
    written, at, rejected = Typed(len(passage.rest)), 0, 0
    rows: list[KeptRow] = []
    while at < len(passage.rest):
        check_cancelled()
        rest = passage.rest[at:]
        before = passage.before + passage.rest[:at]
        drafts = drafted(autocomplete, session, before, way, rest, rows, passage.background)
        key, length = best_move(shown := [draft.text for draft in drafts], rest)
        rejected = rejected + 1 if key == "character" and shown else 0
        if way.rejects and rejected == way.rejects:
            drafts = drafted(autocomplete, session, before, way, rest, None, passage.background, avoid=shown)
            written.keys["others"] += 1
            rejected = 0
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
    words = [word[0] for draft in shown if (word := PIECE.match(draft))]
    moves += [("word", len(word)) for word in words if rest.startswith(word)]
    return max(moves, key=lambda move: move[1])


def drafted(
    autocomplete: Autocomplete,
    session: Session,
    before: str,
    way: Way,
    rest: str,
    rows: list[KeptRow] | None = None,
    background: str = "",
    avoid: Sequence[str] = (),
) -> list[TextDraft]:
    """Returns the drafts after `before`, computed only as far as they affect writing `rest`: they stop growing when
    none agrees with it. None of them begins as those of `avoid`."""
    more: dict[str, Any] = {} if way.mode is None else {"mode": Mode(way.mode)}
    more |= {"kept": rows if way.settings.refill and rows else [], "background": background, "avoid": avoid}
    driven = session.complete(drafting(way.settings, before=before, **more))
    while not driven.done:
        now = driven.advance(autocomplete.model.forward(driven.rows()))
        # Beam search may still drop a draft in favour of another one's continuation.
        if now.settled and way.mode != "beam" and not any(rest.startswith(draft.text) for draft in now.drafts):
            driven.close()
    return [draft for draft in driven.latest.drafts if draft.probability >= way.settings.min_confidence]


def shelf_of(store: Store) -> Shelf:
    """Returns a shelf with these n-grams only."""
    return cast(Shelf, SimpleNamespace(active=lambda: [store]))


def keys_saved(
    model: str,
    base: NgramStore | None,
    adapter: Adapter,
    prose: Adapter | None,
    known: Sequence[np.ndarray],
    held: Sequence[np.ndarray],
    seconds: float,
    clock: Callable[[], float],
    check_cancelled: Callable[[], None],
) -> tuple[int, float, float]:
    """Types at least one passage each way, and more until the time is over. Returns the number of characters, and the
    percentages of keys saved without and with the adapter.

    Args:
        model: by name.
        prose: the adapter to general prose on top of which the adapter was trained; None for none.
        known, held: documents of ids: learned, and held out.
        clock, check_cancelled: see `training.personal.learn`.
    """
    loaded = load_model(model, "torch")
    learned = Counts.of(loaded.vocab_size, [(ids, 1) for ids in known])  # the store also has the held-out text
    autocomplete = Autocomplete(loaded, base, shelf=shelf_of(learned))
    way = Way("as shipped", DraftSettings(k=3))
    written = passages({"own": [loaded.tokenizer.decode(ids.tolist()) for ids in held]}, CHARACTERS)
    below = [] if prose is None else [(prose, 1.0)]
    began, characters = clock(), 0
    saved: list[tuple[float, float]] = []
    for passage in written:
        both = []
        for adapters in ([], [(adapter, adapter.result.strength)]):
            loaded.adapt([*below, *adapters])
            both.append(typed(autocomplete, passage, way, check_cancelled).saved)
        saved.append((both[0], both[1]))
        characters += len(passage.rest)
        if clock() - began > seconds:
            break
    loaded.close()
    return characters, fmean(plain for plain, _ in saved), fmean(adapted for _, adapted in saved)
