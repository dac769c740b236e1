"""docs/samplers.md names every mode; its table of rules is made from the catalogue."""

from __future__ import annotations

from core.controls import MODE_CONTROLS, MODES
from tests.paths import ROOT

DOCS = (ROOT / "docs" / "samplers.md").read_text()


def test_the_documentation_names_every_mode_and_its_flags():
    for mode in MODES:
        assert f"| {mode} |" in DOCS
        for control in MODE_CONTROLS.get(mode, ()):
            assert f"`--{control.flag}`" in DOCS
