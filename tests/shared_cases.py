"""The cases of `tests/cases`: what Python and the page's scripts both decide. The scripts' tests read them, too."""

from __future__ import annotations

import json
from typing import Any

from tests.paths import TESTS


def cases(name: str) -> list[dict[str, Any]]:
    """The cases of `tests/cases/NAME.json`."""
    return json.loads((TESTS / f"cases/{name}.json").read_text("utf-8"))["cases"]
