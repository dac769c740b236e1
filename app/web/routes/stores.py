"""HTTP routes for personal stores. Every route calls one method of `app.learning.personal`.

    GET  /api/stores                           every store, with the origins of its text
    GET  /api/stores/learning                  the names of the stores that learn; a mark of what was removed from any
    POST /api/stores/create, delete            {"store"}
    POST /api/stores/switch, switch-learning   {"store", "on"}
    POST /api/stores/add-phrase                {"store", "text"}
    POST /api/stores/forget-document           {"store", "document", "tab", "dry"}: all documents of this origin
    POST /api/stores/forget-phrase             {"store", "phrase", "tab", "dry"}: every place of it; with "dry" the
                                               response says what would be removed
    POST /api/stores/undo-forget               {"ticket"}: of the response to a request with "tab"
    POST /api/stores/search                    {"text"}
    POST /api/stores/learn                     {"text", "finished"}: written text, for every store that learns
    GET  /api/stores/trainings                 the trainings of adapters
    POST /api/stores/train, stop-training      {"store"}: its adapter
    POST /api/stores/switch-adapter            {"store", "on"}
    POST /api/stores/strength                  {"store", "strength"}: of its adapter; null is the one found in training
    POST /api/stores/add?store=…&name=…&ticket=…   a file as the body; the response is one line of JSON per step
    POST /api/stores/stop                      {"ticket"}: of an upload; its last line shows whether it was stopped

Errors are returned as {"message", "fix"}, with status 409.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any, TypedDict

from fastapi import FastAPI
from pydantic import Field

from app.learning.forgotten import HeldTexts
from app.learning.learner import Learner
from app.learning.personal import PersonalStores
from app.options.settings import Strict
from app.web.routes.uploads import Stop, Uploads
from app.wire.bounds import Id, Line, Name
from app.wire.refusals import post
from app.wire.refused import without_surrogates

if TYPE_CHECKING:  # sqlite-utils takes a while to import
    from app.learning.personal import StoreRow
    from core.ngram.personal import PersonalStore
    from core.ngram.removed import Extent, Forgotten, Removed, Undone

LISTED = 200  # the number of listed origins of a store, newest first


class NamedStore(Strict):
    store: Name


class Switched(NamedStore):
    on: bool


class OwnNames(NamedStore):
    senders: list[Line] = Field(max_length=50)


class Strength(NamedStore):
    strength: float | None = Field(ge=0, le=1)


class Forget(NamedStore):
    """What is forgotten can be undone by the page of this `tab`, until that is closed."""

    tab: Name = ""
    dry: bool = False


class ForgetDocument(Forget):
    document: Line


class ForgetPhrase(Forget):
    phrase: Line


class Undo(Strict):
    ticket: Id


class Search(Strict):
    text: str = Field(min_length=1, max_length=400)


class Phrase(NamedStore):
    text: Line


class Learn(Strict):
    text: str = Field(min_length=1, max_length=65536)
    finished: bool


# Routes that set something of a store: the last part of the address, the body, and what is done.
CHANGES: tuple[tuple[str, type[NamedStore], Callable[[PersonalStore, Any], None]], ...] = (
    ("switch", Switched, lambda store, body: store.switch(body.on)),
    ("switch-learning", Switched, lambda store, body: store.switch_learning(body.on)),
    ("switch-adapter", Switched, lambda store, body: store.switch_adapter(body.on)),
    ("strength", Strength, lambda store, body: store.set_strength(body.strength)),
    ("senders", OwnNames, lambda store, body: store.remember_senders([each for each in body.senders if each.strip()])),
)


def add_routes(
    app: FastAPI,
    stores: Callable[[], PersonalStores],
    learner: Learner,
    ending: Callable[[], bool] = lambda: False,
    held: HeldTexts | None = None,
) -> None:
    """Adds these routes to the app.

    Args:
        stores: the stores, for one call; raises InputError while there are none yet.
        learner: trains adapters.
        ending: whether the server is shutting down; uploads then stop, and are rolled back.
        held: what can be undone; the caller drops what belongs to a tab that is closed. None: a new one.
    """
    add_learning_routes(app, stores)
    routes = _Routes(stores, learner, held or HeldTexts())
    app.get("/api/stores")(routes.listed)
    app.get("/api/stores/trainings")(routes.trainings)
    post(app, "/api/stores/create", NamedStore)(routes.create)
    post(app, "/api/stores/delete", NamedStore)(routes.delete)
    for name, kind, change in CHANGES:
        post(app, f"/api/stores/{name}", kind)(partial(routes.change, change))
    post(app, "/api/stores/add-phrase", Phrase)(routes.add_phrase)
    post(app, "/api/stores/forget-document", ForgetDocument)(routes.forget_document)
    post(app, "/api/stores/forget-phrase", ForgetPhrase)(routes.forget_phrase)
    post(app, "/api/stores/undo-forget", Undo)(routes.undo_forget)
    post(app, "/api/stores/search", Search)(routes.search)
    post(app, "/api/stores/train", NamedStore)(routes.train)
    post(app, "/api/stores/stop-training", NamedStore)(routes.stop_training)
    uploads = Uploads(stores, routes.follow, ending)
    app.post("/api/stores/add")(uploads.add)
    post(app, "/api/stores/stop", Stop)(uploads.stop)


def add_learning_routes(app: FastAPI, stores: Callable[[], PersonalStores]) -> None:
    """Adds the routes by which stores learn, for the page and for editors; for the arguments see `add_routes`."""

    @app.get("/api/stores/learning")
    def learning() -> dict[str, object]:
        return stores().followed()

    @post(app, "/api/stores/learn", Learn)
    def learn(body: Learn) -> dict[str, object]:
        return {"stores": stores().take_in(body.text, body.finished)}


class _Routes:
    """Each public method is a route, but `follow` and `change`; for the arguments see `add_routes`."""

    def __init__(self, stores: Callable[[], PersonalStores], learner: Learner, held: HeldTexts) -> None:
        self._stores, self._learner, self._held = stores, learner, held

    def follow(self, store: str) -> None:
        """Trains the store's adapter anew if text was removed with it."""
        self._learner.follow([self._stores().state(store)])

    def listed(self) -> dict[str, object]:
        states = self._stores().list()
        self._learner.follow(states)
        rows = [row if "problem" in row else _by_origin(row) for row in states]
        return {"stores": without_surrogates(rows), "trainings": self._learner.trainings()}

    def create(self, body: NamedStore) -> None:
        self._stores().create(body.store)

    def delete(self, body: NamedStore) -> None:
        self._learner.drop(body.store)
        self._stores().delete(body.store)
        self._held.drop_store(body.store)

    def change(self, change: Callable[[PersonalStore, Any], None], body: NamedStore) -> None:
        """Each of `CHANGES`."""
        with self._stores().at(body.store) as store:
            change(store, body)

    def add_phrase(self, body: Phrase) -> dict[str, object]:
        from core.ngram.personal import PHRASE

        with self._stores().at(body.store) as store:
            return {"tokens": store.learn(body.text, PHRASE)}

    def forget_document(self, body: ForgetDocument) -> dict[str, object]:
        name = body.document
        return self._forget(
            body, lambda store: store.document_extent(name), lambda store, keep: store.forget_document(name, keep=keep)
        )

    def forget_phrase(self, body: ForgetPhrase) -> dict[str, object]:
        phrase = body.phrase
        return self._forget(
            body, lambda store: store.phrase_extent(phrase), lambda store, keep: store.forget_phrase(phrase, keep)
        )

    def _forget(
        self, body: Forget, extent: Callable[[PersonalStore], Extent], forget: Callable[[PersonalStore, int], Forgotten]
    ) -> dict[str, object]:
        room = self._held.room if body.tab else 0
        with self._stores().at(body.store) as store:
            if body.dry:
                extent_of = extent(store)
                return {**_counts(extent_of), "undo": 0 < extent_of.bytes <= room}
            done = forget(store, room)
        self.follow(body.store)
        ticket = self._held.keep(body.tab, body.store, done.removed) if done.removed else ""
        return {**_counts(done), "complete": done.complete, "adapter": done.adapter, "ticket": ticket}

    def undo_forget(self, body: Undo) -> dict[str, object]:
        def put_back(name: str, removed: Removed) -> Undone:
            with self._stores().at(name) as store:
                return store.undo(removed)

        name, restored = self._held.undo(body.ticket, put_back)
        if restored.adapter:
            self._learner.drop(name)  # it learns again from what was left
        self.follow(name)
        return {"store": name, "tokens": restored.tokens, "adapter": restored.adapter}

    def search(self, body: Search) -> dict[str, object]:
        return {"found": self._stores().search(body.text)}

    async def trainings(self) -> dict[str, object]:
        return {"trainings": self._learner.trainings()}

    def train(self, body: NamedStore) -> dict[str, object]:
        self._learner.start(body.store)
        return {"trainings": self._learner.trainings()}

    def stop_training(self, body: NamedStore) -> dict[str, object]:
        self._learner.stop(body.store)
        return {"trainings": self._learner.trainings()}


def _counts(extent: Extent) -> dict[str, int]:
    return {name: getattr(extent, name) for name in ("documents", "passages", "occurrences", "characters")}


class OriginRow(TypedDict):
    """The documents of one origin: their number, their tokens, and when the last was added (UTC, ISO 8601)."""

    origin: str
    documents: int
    tokens: int
    added: str


def _by_origin(row: StoreRow) -> dict[str, object]:
    """A store with its documents grouped by origin, the last added first."""
    origins: OrderedDict[str, OriginRow] = OrderedDict()
    for document in row["documents"]:
        none = OriginRow(origin=document["origin"], documents=0, tokens=0, added="")
        sums = origins.setdefault(document["origin"], none)
        sums["documents"] += 1
        sums["tokens"] += document["tokens"]
        sums["added"] = document["added"]
        origins.move_to_end(document["origin"])
    newest = list(reversed(origins.values()))
    others = {key: value for key, value in row.items() if key != "documents"}
    return {**others, "origins": newest[:LISTED], "unlisted": max(len(newest) - LISTED, 0)}
