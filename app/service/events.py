"""The events of a stream: drafts, and the statistics at its end."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from app.service.showing import chances_of, decided

if TYPE_CHECKING:
    from app.service.jobs import Event, Job
    from app.service.requests import DraftRequest
    from core.completion import Completion, Explained
    from core.models import LanguageModel
    from core.present import TextDraft


def drafts_of(completion: Completion, request: DraftRequest) -> list[Event]:
    """The drafts that the request wants to see."""
    rows = [_row(draft, request.detailed) for draft in completion.drafts if _is_shown(draft, request)]
    if request.show is None:
        return rows
    chances = chances_of(completion.paths, request.show)
    return [row | {"chance": chances[row["id"]]} for row in rows]


def drafts_event(job: Job, completion: Completion, drafts: list[Event]) -> Event:
    """The event with these rows."""
    event: Event = {
        "type": "drafts",
        "n": job.request.n,
        "step": completion.step,
        "settled": completion.settled,
        "done": completion.done,
        "best": completion.best,
        "hidden": len(completion.drafts) - len(drafts),
        "drafts": drafts,
    }
    if completion.foreign:
        event["foreign"] = True
    if job.request.explain and completion.explained is not None:
        event["explained"] = explained_of(completion.explained)
    if completion.done and job.request.show is not None:
        chances = {row["id"]: row["chance"] for row in drafts}
        paths = [path for path in completion.paths if path.id in chances]
        event |= decided(paths, chances, job.request.show, job.request.settings.end_below)
    figures = job.figures if completion.figures is None else asdict(completion.figures)
    return event if figures is None else event | {"speculation": figures}


def explained_of(explained: Explained) -> Event:
    """What the drafts took."""
    return {name: _rounded(value) for name, value in asdict(explained).items()}


def made_of(draft: TextDraft) -> list[Event]:
    """How each token of a complete draft was made, with its range in the text; see `core.drafting.record.Made`. Only a
    token of a store names the store."""
    tokens = [
        {"from": a, "to": b} | {name: _rounded(value) for name, value in asdict(made).items()}
        for a, b, made in draft.made
    ]
    return [{name: value for name, value in token.items() if name != "store" or value} for token in tokens]


def _rounded(value: Any) -> Any:
    return round(value, 4) if isinstance(value, float) else value


def stats_event(job: Job, completion: Completion, model: LanguageModel, window: int, now: float) -> Event:
    """The last event: times, how much of the text was in the cache, and how much of it the model does not read because
    it reads at most `window` tokens."""
    first_at, first_step = job.first or (now, completion.step)
    first_ms = 1000 * (first_at - job.arrived)
    later = completion.step - first_step
    return {
        "type": "stats",
        "n": job.request.n,
        "model": model.name,
        "backend": model.backend,
        "first_ms": round(first_ms, 2),
        "all_ms": round(1000 * (now - job.arrived), 2),
        "per_token_ms": round(1000 * (now - first_at) / later if later else first_ms, 2),
        "reused": completion.reused,
        "fed": completion.fed,
        "skipped": completion.skipped,
        "background_skipped": completion.background_skipped,
        "window": window,
    }


def _is_shown(draft: TextDraft, request: DraftRequest) -> bool:
    chosen = any(row.chosen and row.id == draft.id for row in request.kept)
    return chosen or draft.probability >= request.settings.min_confidence


def _row(draft: TextDraft, detailed: bool) -> Event:
    row: Event = {
        "id": draft.id,
        "text": draft.text,
        "probability": round(draft.probability, 4),
        "whole": float(f"{draft.p_joint:.3g}"),
        "finished": draft.finished,
        "personal": [list(span) for span in draft.personal],
        "tail": draft.tail,
    }
    if draft.replace:
        row["replace"] = draft.replace
    if draft.gain is not None:
        row["gain"] = round(draft.gain, 3)
    if draft.how:
        row["how"] = [list(came) for came in draft.how]
    if draft.made:
        row["made"] = made_of(draft)
    if detailed:
        row["tokens"] = [list(token) for token in draft.path]
    if draft.model_logprobs:
        row["chances"] = [asdict(token) for token in draft.model_logprobs]
    return row
