"""The settings of the extension of editors/vscode; `make test-clients` runs the extension itself."""

from __future__ import annotations

import json

from app.clients.lsp.settings import SECTION, EditorSettings
from tests.paths import ROOT


def test_the_extension_offers_every_setting() -> None:
    package = json.loads((ROOT / "editors/vscode/package.json").read_text())
    offered = package["contributes"]["configuration"]["properties"]
    ours = {f"{SECTION}.{name}" for name in EditorSettings.model_fields}
    assert ours == {name for name in offered if name.startswith(f"{SECTION}.")}
