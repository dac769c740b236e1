"""HTTP routes for samplers: the available rules and modes, their effect at a position, and presets.

    GET  /api/presets            the user's presets, and those that cannot be read
    GET  /api/speculation        why this model lacks ways to speculate
    POST /api/chain              {"rule"}: notes on a chain of rules
    POST /api/view               {"tab", "temperature", "select_at", "rules", "map"}: all rules on the tab's next token
    POST /api/sweep              {"tab", "select_at", "rules"}: the number of tokens each keeps, by temperature
    POST /api/presets/save       a preset
    POST /api/presets/delete     {"name"}
    GET  /api/presets/export     the user's presets as a file
    POST /api/presets/import     {"text", "name"}: an exported file, ours or another program's

Errors are returned as {"message", "fix"}, with status 409.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping
from functools import cache
from typing import TYPE_CHECKING, Annotated, Any

from fastapi import FastAPI, Request
from fastapi.responses import Response
from pydantic import Field, field_validator
from starlette.concurrency import run_in_threadpool

from app.clients import other_presets
from app.options import presets, speculation
from app.options.presets import OwnPresets
from app.options.settings import Strict
from app.service.jobs import Position
from app.service.service import DraftService
from app.wire.bounds import MOST_NAMES, Id, Label, Name, Real, Text, Values, Whole
from app.wire.refusals import post, taking
from core.chains import notes
from core.controls import Preset, checked_rule, entries_of
from core.errors import InputError
from core.options import DRAFTING, SelectAt, Value

if TYPE_CHECKING:
    from app.service.charts import Charts

_TEMPERATURE = DRAFTING["temperature"]
# The temperatures of the sweep, up to the greatest that the option allows
SWEPT = (0.5, 0.75, 1.0, 1.25, 1.5, 2.0, 2.5, 3.0, 4.0, 5.0, 7.0, float(_TEMPERATURE.high))
SWEEPS = 200  # cached


class SweepRequest(Strict):
    tab: Id
    rules: Annotated[dict[Label, Values], Field(max_length=MOST_NAMES)]  # by name, with values of its controls
    select_at: SelectAt = "temperature"

    @field_validator("rules")
    @classmethod
    def _known(cls, rules: dict[str, dict[str, Value]]) -> dict[str, dict[str, Value]]:
        try:
            return {name: checked_rule(name, values) for name, values in rules.items()}
        except InputError as error:
            raise ValueError(str(error)) from None


class ViewRequest(SweepRequest):
    temperature: float = Field(float(_TEMPERATURE.default), ge=_TEMPERATURE.low, le=_TEMPERATURE.high)
    map: bool = False


class ChainRequest(Strict):
    rule: Label


class SavedPreset(Strict):
    name: Label
    rule: Label
    values: Values = Field(default={})
    temperature: Real = float(_TEMPERATURE.default)
    mode: Name = ""
    mode_values: Values = Field(default={})
    k: Whole | None = None
    length: Whole | None = None
    seed: Whole | None = None
    drafting: Values = Field(default={})


class NamedPreset(Strict):
    name: Label


class Imported(Strict):
    """A file of presets.

    Attributes:
        name: of its preset, where the file is another program's and has none.
    """

    text: Text
    name: Label = "Imported"


def add_routes(app: FastAPI, service: DraftService) -> None:
    own = OwnPresets()

    @cache
    def charts() -> Charts:
        from app.service.charts import Charts  # imports torch, and the page must not wait for that

        return Charts()

    sweeps: OrderedDict[Any, list[int]] = OrderedDict()

    @app.get("/api/presets")
    def listed() -> dict[str, object]:
        return _listed(own)

    @app.get("/api/speculation")
    def missing() -> dict[str, object]:
        return speculation.missing(service.loaded)

    @post(app, "/api/chain", ChainRequest)
    def chain(body: ChainRequest) -> dict[str, object]:
        return {"notes": notes([entry.title for entry in entries_of(body.rule)])}

    @app.post("/api/view")
    @taking(ViewRequest)
    async def view(_: Request, body: ViewRequest) -> dict[str, object]:
        def seen_at(position: Position) -> dict[str, object]:
            seen = charts().view(body.tab, position, body.temperature, body.rules, body.map, body.select_at)
            return {"n": position.n, **seen}

        return await service.query(body.tab, seen_at)

    @app.post("/api/sweep")
    @taking(SweepRequest)
    async def sweep(_: Request, body: SweepRequest) -> dict[str, object]:
        position = await service.query(body.tab, lambda position: position)
        # This is slow enough to delay a key press, so it runs beside the engine, one rule after the other.
        where, counts = hash(position.logits.numpy().tobytes()), {}  # a slider does not change the position
        for name, values in body.rules.items():
            key = (where, name, body.select_at, tuple(values.items()))
            if key not in sweeps:
                sweeps[key] = await run_in_threadpool(_sweep, position, name, values, body.select_at)
                while len(sweeps) > SWEEPS:
                    sweeps.popitem(last=False)
            counts[name] = sweeps[key]
        return {"n": position.n, "temperatures": SWEPT, "counts": counts}

    @post(app, "/api/presets/save", SavedPreset)
    def save(body: SavedPreset) -> dict[str, object]:
        own.save(Preset(**body.model_dump()))
        return _listed(own)

    @post(app, "/api/presets/delete", NamedPreset)
    def delete(body: NamedPreset) -> dict[str, object]:
        own.delete(body.name)
        return _listed(own)

    @app.get("/api/presets/export")
    def export() -> Response:
        headers = {"Content-Disposition": 'attachment; filename="polydraft-presets.json"'}
        return Response(own.exported(), media_type="application/json", headers=headers)

    @post(app, "/api/presets/import", Imported)
    def import_(body: Imported) -> dict[str, object]:
        if presets.is_ours(body.text):
            return {"names": own.imported(body.text), "left_out": [], **_listed(own)}
        preset, left_out = other_presets.read(body.text, body.name)
        own.save(preset)
        return {"names": [preset.name], "left_out": left_out, **_listed(own)}


def _listed(own: OwnPresets) -> dict[str, object]:
    """The user's presets, and those that cannot be read."""
    presets, unreadable = own.listed()
    return {"own": [preset.as_dict() for preset in presets], "unreadable": unreadable}


def _sweep(position: Position, name: str, values: Mapping[str, Value], select_at: SelectAt) -> list[int]:
    from core.samplers.view import sweep

    ends = position.autocomplete.model.tokenizer.ends
    counts = sweep(
        position.logits, {name: values}, position.autocomplete.geometries, SWEPT, ends, position.whole, select_at
    )
    return counts[name]
