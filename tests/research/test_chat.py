"""The chat template of a model."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from research.chat import chat_template


def test_an_instruction_model_has_a_chat_template_and_another_has_none(tiny_folder: Callable[[str], Path]) -> None:
    assert chat_template(str(tiny_folder("compiled llama"))) is None
    chat = chat_template("default")
    assert chat is not None and "<|im_end|>" in chat.names
