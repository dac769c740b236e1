"""What the page knows about options, rules, methods and presets, as plain data for its scripts."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict

from app.options import labels
from core.controls import (
    CATALOG,
    DEFAULT_DRAFTER,
    DEFAULT_MODE,
    DEFAULT_RULE,
    DEFAULT_SPECULATION,
    DRAFTERS,
    DRAWN,
    MODE_CONTROLS,
    MODES,
    PRESETS,
    SPECULATING,
    SPECULATIONS,
    TIED,
)
from core.options import DRAFTING, SEED, Control


def catalogue() -> dict[str, object]:
    """Every control by its flag; the rules, methods and ways to speculate with the flags of their controls; presets."""
    owned = [*(c for e in CATALOG.values() for c in e.controls), *(c for cs in MODE_CONTROLS.values() for c in cs)]
    owned += [c for _, controls in SPECULATIONS.values() for c in controls]
    return {
        "controls": {control.flag: fields_of(control) for control in [*DRAFTING.values(), SEED, *owned]},
        "drafting": [control.flag for control in DRAFTING.values()],
        "rules": [
            {
                "name": entry.name,
                "title": labels.rule_label(entry.name),
                "description": f"{labels.PLAIN.get(entry.name, '')} {entry.description}".strip(),
                "alone": entry.alone,
                "flags": [control.flag for control in entry.controls],
                "tie": entry.tie and asdict(entry.tie),
            }
            for entry in CATALOG.values()
        ],
        "buttons": [name for name in labels.BUTTONS if name in CATALOG],
        "modes": _owners(MODES, MODE_CONTROLS, labels.MODES),
        "ways": _owners(
            {name: description for name, (description, _) in SPECULATIONS.items()},
            {name: controls for name, (_, controls) in SPECULATIONS.items()},
            labels.WAYS,
        ),
        "drafters": _owners(DRAFTERS, {}, labels.DRAFTERS),
        "speculating": SPECULATING,
        "drawn": DRAWN,
        "tied": TIED,
        "usual": {
            "rule": DEFAULT_RULE,
            "mode": DEFAULT_MODE,
            "speculate": DEFAULT_SPECULATION,
            "drafter": DEFAULT_DRAFTER,
        },
        "styles": labels.STYLES,
        "presets": [preset.as_dict() for preset in PRESETS],
    }


def fields_of(control: Control) -> dict[str, object]:
    """A control for a script."""
    shown = labels.shown(control)
    return {
        **asdict(control),
        "high_alone": control.without_beyond.high,
        "label": shown.label,
        "info": labels.info(control),
        "main": shown.main,
        "most": shown.most or control.high,
        "kind": control.kind,
    }


def _owners(
    described: Mapping[str, str], controls: Mapping[str, tuple[Control, ...]], titles: Mapping[str, str]
) -> list[dict[str, object]]:
    return [
        {
            "name": name,
            "title": title,
            "description": described[name],
            "flags": [control.flag for control in controls.get(name, ())],
        }
        for title, name in labels.choices(described, titles)
    ]
