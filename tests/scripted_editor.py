"""Other people's Blocks with a `DraftEditor`, over a scripted model."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import gradio as gr
import pytest

import polydraft
from app.service.service import DraftService
from tests.fake_autocomplete import FakeAutocomplete


@contextmanager
def scripted_model() -> Iterator[FakeAutocomplete]:
    """What `attach` loads meanwhile."""
    from app.web import attaching
    from core import autocomplete

    scripted = FakeAutocomplete()
    services: dict[Any, DraftService] = {}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(attaching, "_services", services)
        patch.setattr(autocomplete, "load_autocomplete", lambda *_, **__: scripted.real())
        yield scripted
    for service in services.values():
        service.close()


def blocks(*editors: Any, **options: Any) -> gr.Blocks:
    """Blocks with one editor, or with these."""
    with gr.Blocks(analytics_enabled=False) as made:
        for editor in editors or (polydraft.DraftEditor(options=options, render=False),):
            editor.render()
    return made


@contextmanager
def launched(demo: gr.Blocks) -> Iterator[str]:
    """Launches Blocks as a notebook does; gives their address."""
    _, url, _ = demo.launch(prevent_thread_lock=True, inline=False, quiet=True)
    try:
        yield url.rstrip("/")
    finally:
        demo.close(verbose=False)
