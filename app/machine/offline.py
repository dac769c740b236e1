"""Disables telemetry and network access of all packages that Polydraft uses."""

from __future__ import annotations

import os
import sys
from typing import Any

_NO_TELEMETRY = {"GRADIO_ANALYTICS_ENABLED": "False", "HF_HUB_DISABLE_TELEMETRY": "1"}
_NO_NETWORK = ("HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE")

_switched: dict[str, str | None] = {}  # the network's variables as the user had set them


def stay_offline() -> None:
    """Switches off every network use of the packages; they read these variables when they are imported."""
    for name in _NO_NETWORK:
        _switched.setdefault(name, os.environ.get(name))
        os.environ[name] = "1"
    without_telemetry()


def allow_network() -> None:
    """Gives the user's own variables back, for a command that reads addresses which the user named. Telemetry stays
    off."""
    for name in _NO_NETWORK:
        if (given := _switched.get(name)) is None:
            os.environ.pop(name, None)
        else:
            os.environ[name] = given
    constants: Any = sys.modules.get("huggingface_hub.constants")
    if constants:  # it has read them
        values = (os.environ.get(name, "").upper() for name in _NO_NETWORK)
        constants.HF_HUB_OFFLINE = any(value in constants.ENV_VARS_TRUE_VALUES for value in values)


def without_telemetry() -> None:
    """The same for telemetry alone, for a command that downloads what the user named."""
    os.environ.update(_NO_TELEMETRY)


def online() -> dict[str, str]:
    """The environment of a process that downloads what the user clicked for: the user's own, without telemetry."""
    given = {name: os.environ.get(name) for name in _NO_NETWORK} | _switched
    rest = {name: value for name, value in os.environ.items() if name not in given}
    return rest | {name: value for name, value in given.items() if value is not None} | _NO_TELEMETRY
