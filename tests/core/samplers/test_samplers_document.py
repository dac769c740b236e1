"""docs/samplers.md names every rule, flag and mode."""

from __future__ import annotations

from app.options.labels import shown
from core.controls import CATALOG, MODE_CONTROLS, MODES
from tests.paths import ROOT

DOCS = (ROOT / "docs" / "samplers.md").read_text()


def test_the_documentation_names_every_rule_flag_and_mode():
    for entry in CATALOG.values():
        if entry.name != "none":
            assert f"`{entry.name}`" in DOCS or f"`{entry.name}`," in DOCS, entry.name
        for control in entry.controls:
            if shown(control).main:
                assert f"--{control.flag}" in DOCS, control.flag
    for mode in MODES:
        assert f"| {mode} |" in DOCS
        for control in MODE_CONTROLS.get(mode, ()):
            assert f"`--{control.flag}`" in DOCS
