"""What the page does with personal stores: list, learn, forget, add files, switch on and off.

Each call opens the store's file and lets go of it again, so that calls may come from any thread, beside the engine's
own open stores and other programs'. What is committed here counts at the engine's next look-up.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any

from core.errors import InputError
from core.ngram.shelf import Shelf

if TYPE_CHECKING:
    from core.models import Tokenizer
    from core.ngram.personal import Forgotten, PersonalStore


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
