"""The adapter to general prose, for a model that was tuned to something else, for example to chat.

`polydraft train prose` makes one. The user's is in the data folder, the app's, if there is one, in `assets`. It changes
the model under the adapters of personal stores: those are trained on top of it, and fit only where they were trained.
"""

from __future__ import annotations

from pathlib import Path

import platformdirs

from core.models.adapter import WEIGHTS, Adapter, load
from core.models.base import LanguageModel

PROSE = Path(__file__).resolve().parents[2] / "assets" / "prose"


def own_folder() -> Path:
    """The folder of the user's own adapter to prose; it need not exist."""
    return platformdirs.user_data_path("polydraft", appauthor=False) / "prose"


def prose_of(model: LanguageModel) -> Adapter | None:
    """The user's adapter to prose if it was trained for this model, else the app's if that was; None if there is none.
    Raises AdapterError for a damaged one."""
    for folder in (own_folder(), PROSE):
        if (folder / WEIGHTS).exists() and (adapter := load(folder)).model == model.fingerprint:
            return adapter
    return None
