"""What the page does with personal stores: list, make and delete, add files, search, forget, learn, switch on and off.

Each call opens the store's file and lets go of it again, so that calls may come from any thread, beside the engine's
own open stores and other programs'. What is committed here counts at the engine's next look-up.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any

from core.errors import InputError
from core.ngram.errors import StoreError
from core.ngram.shelf import Shelf

if TYPE_CHECKING:
    from core.models import Tokenizer
    from core.ngram.personal import Forgotten, PersonalStore
    from ngram_builder.personal import Added

FOLLOWING = 8  # next words that a search lists
ENDING = 5  # words of the end of a text that are looked up where nothing follows the whole of it


class PersonalStores:
    """The stores in the user's data folder, or in `folder`."""

    def __init__(self, tokenizer: Tokenizer, folder: Path | None = None) -> None:
        self._shelf = Shelf(tokenizer, folder)

    def list(self) -> list[dict[str, Any]]:
        """One entry per store: name, switches, bytes, last change, tokens, documents; or name and "problem"."""
        self._shelf.active()
        rows = []
        try:
            for name in self._shelf.names():
                problem = self._shelf.problems.get(name)
                rows.append({"store": name, "problem": problem} if problem else self._shelf.named([name])[0].summary())
        finally:
            self._shelf.close()
        return rows

    def create(self, name: str) -> None:
        """A new, empty store; one of that name stays as it is."""
        self._open(name, create=True).close()

    def delete(self, name: str) -> None:
        """Remove a store with all that is in it, also one that cannot be used. Raises StoreError when there is none."""
        from core.ngram.personal import remove_files

        path = self._shelf.path_in(self._shelf.folder, name)
        try:
            store = self._open(name)
        except StoreError:
            if not path.is_file():
                raise
            remove_files(path)  # damaged or of another tokenizer: nothing inside it can be overwritten
        else:
            store.delete()

    def learning(self) -> list[str]:
        """The stores that take in what is written: those that are on and learn."""
        try:
            return [store.name for store in self._shelf.active() if store.learning]
        finally:
            self._shelf.close()

    def take_in(self, text: str, finished: bool) -> list[str]:
        """What was written or picked, into every store that is on and learns; returns their names.

        Args:
            finished: it is a whole paragraph; otherwise a draft that was picked, which counts once: the paragraph that
                it is a part of is still to come.
        """
        from core.ngram.personal import PARAGRAPH

        names, refused = self.learning(), list[InputError]()
        for name in names:
            try:
                self.learn(name, text, PARAGRAPH if finished else 1)
            except InputError as error:
                refused.append(error)  # it is full; the others learn all the same
        if refused:
            raise refused[0]
        return names

    def learn(self, name: str, text: str, times: int | None = None) -> int:
        """Take in what was written or picked; returns its tokens.

        Raises: InputError where the store does not learn: nobody switched it on.
        """
        from core.ngram.personal import PARAGRAPH

        with closing(self._open(name)) as store:
            if not store.learning:
                raise InputError(f"The store {name!r} does not learn from what you write; switch learning on first.")
            return store.learn(text, PARAGRAPH if times is None else times)

    def add_phrase(self, name: str, phrase: str) -> int:
        """Put in a phrase to suggest from now on, learning or not: it is asked for. Returns its tokens."""
        from core.ngram.personal import PHRASE

        with closing(self._open(name)) as store:
            return store.learn(phrase, PHRASE)

    def add_text(self, name: str, origin: str, text: str) -> int:
        """Put in a document, in place of what came from the same origin before. Returns its tokens."""
        with closing(self._open(name)) as store:
            return store.add(origin, [text])

    def add_files(self, name: str, paths: list[str], progress: Callable[[float, str], None]) -> Any:
        """Put in files and folders; see `ngram_builder.personal.add`."""
        from ngram_builder import personal

        with closing(self._open(name)) as store:
            return personal.add(store, paths, progress)

    def add_file(self, name: str, path: Path, origin: str, progress: Callable[[float], None]) -> Added:
        """Put in one file under a name of its own; see `ngram_builder.personal.add_file`.

        Raises: InputError for a file of no kind we read, judged by the name of `path`.
        """
        from ngram_builder import personal
        from ngram_builder.readers import File, expand

        expand([path])  # refuses what it does not know
        with closing(self._open(name)) as store:
            return personal.add_file(store, File.at(path), origin, progress)

    def search(self, text: str) -> list[dict[str, Any]]:
        """What the stores know about some words, one entry for each that has them: "store"; "places", how often they
        stand in what came from each origin; "after", the longest end of them that something follows; "following", the
        commonest next words as {"text", "count", "from": {origin: count}}. Nothing of the tokens: these are the texts.
        """
        rows = []
        self._shelf.active()
        try:
            for name in self._shelf.names():
                if name in self._shelf.problems:
                    continue
                store = self._shelf.named([name])[0]
                after, following = _known_after(store, text)
                places = store.places(text)
                if places or following:
                    rows.append({"store": name, "places": places, "after": after, "following": following})
        finally:
            self._shelf.close()
        return rows

    def forget(self, name: str, what: str) -> Forgotten:
        """Remove a document or a phrase, with its counts."""
        with closing(self._open(name)) as store:
            return store.forget(what)

    def switch(self, name: str, on: bool) -> None:
        """Whether drafts use the store."""
        with closing(self._open(name)) as store:
            store.switch(on)

    def switch_learning(self, name: str, on: bool) -> None:
        """Whether the store learns from what is written and picked; off in a new one."""
        with closing(self._open(name)) as store:
            store.switch_learning(on)

    def _open(self, name: str, create: bool = False) -> PersonalStore:
        return self._shelf.open(name, create)


def _known_after(store: PersonalStore, text: str) -> tuple[str, list[dict[str, Any]]]:
    """The longest end of the text that something follows, and what does, most frequent first."""
    words = text.split()
    for length in [len(words), *range(min(len(words) - 1, ENDING), 0, -1)]:
        after = " ".join(words[len(words) - length :])
        if found := store.following(after):
            rows = [{"text": word, "count": sum(origins.values()), "from": origins} for word, origins in found.items()]
            return after, sorted(rows, key=lambda row: (-row["count"], row["text"]))[:FOLLOWING]
    return "", []
