"""What a start imports, and when: seconds and megabytes that the default way does not need."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from core.models import load

SLOW = ("transformers", "accelerate", "llama_cpp")  # seconds of imports that only other models need


def loaded(code: str, *names: str) -> dict[str, bool]:
    """Which of these modules a fresh process has imported after the code."""
    code += f"\nimport json, sys\nprint(json.dumps({{name: name in sys.modules for name in {names!r}}}))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=240)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


def test_the_first_draft_of_the_default_model_needs_no_transformers_and_no_llama_cpp(default_gguf: Path) -> None:
    if not load._faster_compiled(default_gguf):
        pytest.skip("the compiled code is not the default on this machine")
    code = """
from core.autocomplete import load_autocomplete
autocomplete = load_autocomplete()
completion = autocomplete.open().complete("Thank you for your ")
while not completion.done:
    completion.advance(autocomplete.model.forward(completion.rows()))
assert completion.drafts
"""
    assert loaded(code, *SLOW) == dict.fromkeys(SLOW, False)


def test_the_page_needs_no_torch_and_gradio_writes_no_stubs(tmp_path: Path) -> None:
    (tmp_path / "own.py").write_text("import gradio\nclass Own(gradio.Textbox):\n    EVENTS = []\n")
    code = f"""
import sys
from app.server import create_app
from app.service import DraftService
create_app(DraftService(lambda: None))
sys.path.insert(0, {str(tmp_path)!r})
import own
"""
    assert loaded(code, "gradio", "torch", "core.models") == {"gradio": True, "torch": False, "core.models": False}
    assert not (tmp_path / "own.pyi").exists()
