"""The function that transformers runs for `custom_generate=FOLDER`; it copies this file to its own folder."""

from __future__ import annotations

from typing import Any

from core.custom_generate import superposed_drafts


def generate(model: Any, generation_config: Any = None, num_return_sequences: int | None = None, **options: Any) -> Any:
    """Returns the drafts of each prompt, the best first; see `superposed_drafts`."""
    k = num_return_sequences
    for config in (generation_config, model.generation_config):
        k = k or getattr(config, "num_return_sequences", None)
    return model.generate(
        generation_config=generation_config,
        num_return_sequences=k or 1,
        num_beams=k or 1,
        custom_generate=superposed_drafts,
        **options,
    )
