"""The page's operations on personal stores: list, create and delete, add files, search, forget, learn, switch on and
off.

Each call opens and closes the store's file, so calls may come from any thread, while the engine and other programs
have the same stores open. The engine's next look-up uses data committed here.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, TypedDict

from app.wire.refused import without_surrogates
from core.errors import InputError, PolydraftError
from core.files import check_answers
from core.ngram import shelf
from core.ngram.errors import StoreError
from core.ngram.learned import LEAST
from core.ngram.shelf import Shelf
from core.ngram.summaries import StoreSummary

if TYPE_CHECKING:
    from core.models import Tokenizer
    from core.models.adapter import Result
    from core.ngram.personal import PersonalStore
    from ngram_builder.personal import Added

FOLLOWING = 8  # next words that a search lists
WORDS = 0.75  # of a token: the same number as in wording.js
ENDING = 5  # length of the suffix that is looked up if the store has no continuation of the whole text


class AdapterRow(TypedDict):
    """The adapter of a store.

    Attributes:
        description: its effect, in a sentence.
        finished: whether its training was completed.
        better, on: whether drafts may use it, and whether they do.
        strength, usual: the share of its change that drafts use, and the one found in training.
    """

    description: str
    finished: bool
    better: bool
    on: bool
    strength: float
    usual: float


class StoreState(TypedDict):
    """What decides on a training: how often text was removed, and whether an adapter was removed with it."""

    store: str
    removals: int
    relearning: bool


class StoreRow(StoreSummary, StoreState):
    """A store in the page's list."""

    adapter: AdapterRow | None


class UnusableStore(TypedDict):
    """A store in the page's list that cannot be opened, and why."""

    store: str
    problem: str


NextWord = TypedDict("NextWord", {"text": str, "count": int, "from": dict[str, int]})  # "from": how often, by origin


class FoundInStore(TypedDict):
    """The result of a search in one store, in texts, not tokens.

    Attributes:
        occurrences: their number by origin.
        after: the longest suffix of the searched words with a continuation.
        following: the most frequent next words.
    """

    store: str
    occurrences: dict[str, int]
    after: str
    following: list[NextWord]


class PersonalStores:
    """The stores in the user's data folder, or in `folder`. Raises InputError if its drive does not answer."""

    def __init__(self, tokenizer: Tokenizer, folder: Path | None = None) -> None:
        self._shelf = Shelf(tokenizer, folder)
        check_answers(self._shelf.folder)

    def list(self) -> list[StoreRow | UnusableStore]:
        """One entry per store."""
        self._shelf.active()
        rows: list[StoreRow | UnusableStore] = []
        try:
            for name in self._shelf.names():
                problem = self._shelf.problems.get(name)
                if problem:
                    rows.append({"store": name, "problem": problem})
                    continue
                try:
                    store = self._shelf.named([name])[0]
                    rows.append({**store.summary(), **_state(store), "adapter": about_adapter(store)})
                except (StoreError, InputError) as error:
                    rows.append({"store": name, "problem": str(error)})
        finally:
            self._shelf.close()
        return rows

    def at(self, name: str) -> closing[PersonalStore]:
        """One store, open until the end of a `with` block."""
        return closing(self._shelf.open(name))

    def state(self, name: str) -> StoreState:
        with self.at(name) as store:
            return _state(store)

    def create(self, name: str) -> None:
        """Creates an empty store; an existing one of that name is not changed."""
        self._shelf.open(name, create=True).close()

    def delete(self, name: str) -> None:
        """Deletes a store with its contents, even an unusable one. Raises StoreError when it does not exist."""
        from core.ngram.personal import remove_files

        try:
            store = self._shelf.open(name)
        except (StoreError, InputError):
            name = next((stored for stored in self._shelf.names() if without_surrogates(stored) == name), "")
            if not name:
                raise
            # Damaged or of another tokenizer, so its contents cannot be overwritten first.
            remove_files(self._shelf.folder / (name + shelf.ENDING))
        else:
            store.delete()

    def followed(self) -> dict[str, object]:
        """What a page follows while its user writes: the stores that learn, and a mark that differs after text was
        removed from any store."""
        try:
            learning = [store.name for store in self._shelf.active() if store.learning]
            return {"learning": learning, "removed": self._shelf.removed}
        finally:
            self._shelf.close()

    def take_in(self, text: str, finished: bool) -> list[str]:
        """Adds written or picked text to every store that is on and learns; returns their names.

        Args:
            finished: the text is a whole paragraph; otherwise it is a picked draft, which counts once, because the
                paragraph that contains it follows later.
        """
        from core.ngram.personal import PARAGRAPH

        names, refused = list[str](), list[PolydraftError]()
        try:
            for store in self._shelf.active():
                if store.learning:
                    names.append(store.name)
                    try:
                        store.learn(text, PARAGRAPH if finished else 1)
                    except (InputError, StoreError) as error:
                        refused.append(error)  # this store is full or damaged; the others still learn
        finally:
            self._shelf.close()
        if refused:
            raise refused[0]
        return names

    def add_file(self, name: str, path: Path, origin: str, progress: Callable[[float], None]) -> Added:
        """Adds one file as a document and replaces the one of the same origin; see `ngram_builder.personal.add_file`.

        Raises: InputError for a file of an unsupported kind, by the name of `path`.
        """
        from ngram_builder import personal
        from ngram_builder.readers import File, ReaderProcess, Senders, expand

        expand([path])  # raises for an unsupported kind
        with self.at(name) as store, ReaderProcess() as reader:
            return personal.add_file(store, File.at(path), origin, reader, progress, Senders.of(store.senders))

    def search(self, text: str) -> list[FoundInStore]:
        """Searches words in the stores; returns an entry for each store that contains them."""
        rows: list[FoundInStore] = []
        self._shelf.active()
        try:
            for name in self._shelf.names():
                if name in self._shelf.problems:
                    continue
                try:
                    store = self._shelf.named([name])[0]
                    after, following = _known_after(store, text)
                    occurrences = store.occurrences(text)
                except StoreError:
                    continue  # `list` says why
                if occurrences or following:
                    rows.append({"store": name, "occurrences": occurrences, "after": after, "following": following})
        finally:
            self._shelf.close()
        return rows

    def to_train(self, name: str) -> tuple[Path, int]:
        """The file of a store whose adapter is to be trained, and its number of removals. Raises InputError if it has
        too little text."""
        with self.at(name) as store:
            tokens = store.summary()["tokens"]
            if tokens < LEAST:
                raise InputError(
                    f"The collection {name} has {about_words(tokens)}; learning needs {about_words(LEAST)}. "
                    "Add text to it first."
                )
            return store.path, store.removals


def about_words(tokens: int) -> str:
    """Says about how many words a number of tokens is."""
    words = round(tokens * WORDS)
    if words < 10:
        return f"{words} word{'' if words == 1 else 's'}"
    scale = 10 ** (len(str(words)) - 2)  # two digits that count
    return f"about {round(words / scale) * scale:,} words"


def about_adapter(store: PersonalStore) -> AdapterRow | None:
    """Returns the effect of the adapter that was trained on a store's text; None without an adapter."""
    from core.models.adapter import WEIGHTS, AdapterError, load

    if not store.learned.is_dir():
        return None
    about = AdapterRow(description="", finished=True, better=False, on=store.adapting, strength=0.0, usual=0.0)
    if not (store.learned / WEIGHTS).exists():
        unfinished = "The model has begun to learn this text, and has not finished."
        return {**about, "finished": False, "description": unfinished}
    try:
        result = load(store.learned).result
    except AdapterError as error:
        return {**about, "description": f"What the model has learned cannot be used: {error}"}
    if not result.better:
        return {**about, "description": what_it_brought(result)}
    strength = result.strength if store.strength is None else store.strength
    description = what_it_brought(result, strength)
    return {**about, "description": description, "better": True, "strength": strength, "usual": result.strength}


def what_it_brought(result: Result, strength: float | None = None) -> str:
    """The effect of an adapter in a sentence: measured at the strength of the result, and used at this one."""
    learned = f"The model has learned {about_words(result.tokens)}"
    if not result.better:
        return f"{learned}; that is not enough yet to help, so drafts do not use it."
    newest = "your newest text, which it has not read,"
    if result.characters:
        keys = f"drafts save {result.keys:.0f}% of the keys instead of {result.keys_alone:.0f}%"
        description = f"{learned}: in {result.characters:,} characters of {newest} {keys}"
    else:
        description = (
            f"{learned}: each word or part of a word of {newest} became {math.expm1(result.gain):.0%} more probable"
        )
    if result.loss is not None:
        loss = max(result.loss, 0.0)
        description += f", and its loss on text by others {f'grew by {loss:.1%}' if loss >= 0.0005 else 'did not grow'}"
    if strength not in (None, result.strength):
        description += f" (measured at the strength {result.strength:g})"
    return f"{description}."


def _state(store: PersonalStore) -> StoreState:
    return {"store": store.name, "removals": store.removals, "relearning": store.relearning}


def _known_after(store: PersonalStore, text: str) -> tuple[str, list[NextWord]]:
    """The longest suffix of the text with a continuation, and its continuations, most frequent first."""
    words = text.split()
    for length in [len(words), *range(min(len(words) - 1, ENDING), 0, -1)]:
        after = " ".join(words[len(words) - length :])
        if following := store.following(after):
            rows: list[NextWord] = [
                {"text": word, "count": sum(origins.values()), "from": origins} for word, origins in following.items()
            ]
            return after, sorted(rows, key=lambda row: (-row["count"], row["text"]))[:FOLLOWING]
    return "", []
