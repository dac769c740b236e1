"""The installed package `polydraft`: in a wheel it contains `app`, `core`, `ngram_builder` and the rest, so that the
wheel has one top-level package. In the repository these folders are beside it; `setup.py` moves them.

It offers an editor with drafts for Gradio, which docs/embedding.md describes:

    polydraft.DraftEditor    the component
    polydraft.attach         gives it drafts

They import Gradio when they are first used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from app.web.attaching import attach
    from app.web.draft_editor import DraftEditor

__all__ = ["DraftEditor", "attach"]


def __getattr__(name: str) -> object:
    if name == "DraftEditor":
        from app.web.draft_editor import DraftEditor

        return DraftEditor
    if name == "attach":
        from app.web.attaching import attach

        return attach
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
