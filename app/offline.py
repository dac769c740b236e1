"""Nothing that Polydraft uses may call home, and Polydraft itself goes to no network."""

from __future__ import annotations

import os

_SWITCHES = {
    "GRADIO_ANALYTICS_ENABLED": "False",
    "HF_HUB_DISABLE_TELEMETRY": "1",
    "HF_HUB_OFFLINE": "1",
    "TRANSFORMERS_OFFLINE": "1",
}


def stay_offline() -> None:
    """Switch off every network use of the packages underneath; they read this when they are imported."""
    os.environ.update(_SWITCHES)
