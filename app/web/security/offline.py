"""Disables telemetry and network access of all packages that Polydraft uses."""

from __future__ import annotations

import os

_SWITCHES = {
    "GRADIO_ANALYTICS_ENABLED": "False",
    "HF_HUB_DISABLE_TELEMETRY": "1",
    "HF_HUB_OFFLINE": "1",
    "TRANSFORMERS_OFFLINE": "1",
}


def stay_offline() -> None:
    """Switches off every network use of the packages; they read these variables when they are imported."""
    os.environ.update(_SWITCHES)


def without_telemetry() -> None:
    """The same for telemetry alone, for a command that downloads what the user named."""
    os.environ["HF_HUB_DISABLE_TELEMETRY"] = "1"
