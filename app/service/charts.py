"""Computes the data of the page's charts for a tab's position; a slider recomputes only what it affects.

Runs in the engine thread, between two passes of the model. Results for a position are cached, by rule, values and
temperature, until the position changes.
"""

from __future__ import annotations

import json
from collections import OrderedDict
from dataclasses import asdict

from app.service.jobs import Position
from core.options import SelectAt
from core.samplers.view import Point, RuleView, Settings, View, look, top_w_map

TABS = 12  # tabs whose positions are cached
KEPT = 400  # cached choices of one position: a slider moved from end to end and back


class Charts:
    """The views of all tabs."""

    def __init__(self) -> None:
        self._known: OrderedDict[str, _Known] = OrderedDict()

    def view(
        self,
        tab: str,
        position: Position,
        temperature: float,
        settings: Settings,
        plane: bool,
        select_at: SelectAt = "temperature",
    ) -> dict[str, object]:
        """All rules on one position, and Top-W's candidates on a plane if `plane` is set; plain data for JSON."""
        known = self._known.get(tab)
        # Equal logits mean the same text; settings alone do not change them.
        if known is None or not known.fits(position):
            known = self._known[tab] = _Known(position)
        self._known.move_to_end(tab)
        if len(self._known) > TABS:
            self._known.popitem(last=False)
        return known.view(position, temperature, settings, plane, select_at)


class _Known:
    """One position and its cached results."""

    def __init__(self, position: Position) -> None:
        self._logits, self._whole = position.logits, position.whole
        self._views: OrderedDict[float, View] = OrderedDict()  # without choices, by temperature
        self._choices: OrderedDict[str, tuple[RuleView, dict[str, int] | None]] = OrderedDict()

    def fits(self, position: Position) -> bool:
        return bool((self._logits == position.logits).all() and (self._whole == position.whole).all())

    def view(
        self, position: Position, temperature: float, settings: Settings, plane: bool, select_at: SelectAt
    ) -> dict[str, object]:
        tokenizer, geometries = position.autocomplete.model.tokenizer, position.autocomplete.geometries
        keys = {
            name: json.dumps([temperature, select_at, name, dict(values)], sort_keys=True)
            for name, values in settings.items()
        }
        missing = {name: settings[name] for name, key in keys.items() if key not in self._choices}
        seen = self._views.get(temperature)
        if missing or seen is None:
            seen = look(
                self._logits, tokenizer, temperature, missing, geometries, whole=self._whole, select_at=select_at
            )
            self._views[temperature] = seen
            for choice in seen.choices:
                moved = None
                if choice.rule == "top-w" and seen.top_w is not None:
                    with_, without = set(seen.top_w.ids), set(seen.top_w.without_geometry)
                    moved = {"gained": len(with_ - without), "lost": len(without - with_), "rounds": seen.top_w.rounds}
                self._choices[keys[choice.rule]] = choice, moved
            while len(self._choices) > KEPT:
                self._choices.popitem(last=False)
            while len(self._views) > KEPT:
                self._views.popitem(last=False)
        choices = {name: self._choices[key] for name, key in keys.items()}
        return {
            "temperature": temperature,
            "entropy": seen.entropy,
            "possible": seen.possible,
            "tokens": [asdict(token) for token in seen.tokens],
            "choices": [asdict(choice) for choice, _ in choices.values()],
            "top_w": choices["top-w"][1] if "top-w" in choices else None,
            "map": [
                _point(p)
                for p in top_w_map(
                    self._logits, tokenizer, temperature, settings["top-w"], geometries, select_at=select_at
                )
            ]
            if plane and "top-w" in settings
            else None,
        }


def _point(point: Point) -> dict[str, object]:
    return {
        "text": point.token.text,
        "probability": point.token.probability,
        "x": round(point.x, 5),
        "y": round(point.y, 5),
        "kept": point.kept,
        "plain": point.kept_without_geometry,
    }
