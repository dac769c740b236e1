"""Learning of a running service: adapters are trained beside the drafts."""

from __future__ import annotations

from contextlib import suppress

from app.learning.child import Order
from app.learning.learner import Learner
from app.service.service import DraftService
from core.errors import PolydraftError


def learner_for(service: DraftService) -> Learner:
    """Trains adapters for the service's model, and pauses while it has requests."""

    def order(store: str) -> tuple[Order, int]:
        path, removals = service.stores().to_train(store)
        ngrams = service.loaded.ngrams if service.loaded else None
        return Order(str(path), service.model_name, str(ngrams.path) if ngrams else None), removals

    def gave_up(store: str) -> None:
        with suppress(PolydraftError), service.stores().at(store) as opened:  # it may have been deleted
            opened.stop_relearning()

    def clean(store: str) -> None:
        with suppress(PolydraftError), service.stores().at(store) as opened:
            opened.remove_unfinished()

    learner = Learner(order, gave_up, clean=clean)
    service.typed = learner.typed
    return learner


def resume_learning(learner: Learner, service: DraftService) -> None:
    """Trains adapters anew that were removed together with text while no server ran, or too shortly before its end; and
    removes what trainings left that were killed with the server."""
    from core.ngram.shelf import stores_folder

    if any(stores_folder().glob("*.sqlite")):
        with suppress(PolydraftError):  # the server is closing
            rows = service.stores().list()
            for row in rows:
                learner.clean(row["store"])
            learner.follow(rows)
