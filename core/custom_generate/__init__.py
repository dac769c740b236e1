"""Superposed Decoding in transformers: `model.generate` returns k drafts of any causal language model.

    from core.custom_generate import FOLDER

    model.generate(**inputs, custom_generate=FOLDER, trust_remote_code=True, num_return_sequences=3, max_new_tokens=10)

transformers requires `trust_remote_code` before it runs code from a folder. It can also be given the function; then it
accepts `num_return_sequences` only together with as many beams:

    model.generate(**inputs, custom_generate=superposed_drafts, num_return_sequences=3, num_beams=3, max_new_tokens=10)
"""

from __future__ import annotations

from pathlib import Path

from core.custom_generate.drafts import superposed_drafts

__all__ = ["FOLDER", "superposed_drafts"]

FOLDER = str(Path(__file__).parent.parent)
