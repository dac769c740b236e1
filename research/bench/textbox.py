"""The peer of `bench keystroke`: the same drafts with a plain `gr.Textbox` and a streaming input event.

    python -m research.bench.textbox PORT MODEL BACKEND

Each response contains the length of its text, so that the page can match it to a key.
"""

from __future__ import annotations

import html
import sys
import threading
from collections.abc import Iterator
from typing import cast

import gradio as gr

from core.ask import Ask
from core.autocomplete import Autocomplete, load_autocomplete
from core.options import Backend


def build(autocomplete: Autocomplete) -> gr.Blocks:
    """The page. As in the app, a newer text stops the older response at its next step."""
    session, turn, newest = autocomplete.open(), threading.Lock(), 0

    def answer(before: str) -> Iterator[str]:
        nonlocal newest
        newest += 1
        mine = newest
        with turn:
            driven = session.complete(Ask(before=before, k=3, length=10))
            try:
                while mine == newest:
                    if driven.latest.drafts:
                        rows = "".join(f"<p>{html.escape(draft.text)}</p>" for draft in driven.latest.drafts)
                        yield f"<div data-length='{len(before)}' data-done='{driven.done}'>{rows}</div>"
                    if driven.done:
                        return
                    driven.advance(autocomplete.model.forward(driven.rows()))
            finally:
                driven.close()

    with gr.Blocks(analytics_enabled=False) as page:
        box = gr.Textbox(elem_id="peer-text", label="Your text", lines=8)
        out = gr.HTML(elem_id="peer-drafts")
        box.input(answer, box, out, show_progress="hidden", concurrency_limit=None, trigger_mode="always_last")
    return page


if __name__ == "__main__":
    port, model, backend = sys.argv[1:]
    build(load_autocomplete(model, cast("Backend", backend))).launch(
        server_name="127.0.0.1", server_port=int(port), quiet=True, share=False
    )
