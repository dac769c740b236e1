"""The imports of a start: modules that cost seconds and megabytes are loaded only if needed."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from app.machine import running
from core.models import load

SLOW = ("transformers", "accelerate", "llama_cpp")  # seconds of imports that only other models need


def loaded(*steps: tuple[str, tuple[str, ...]]) -> list[dict[str, bool]]:
    """Which of the modules that belong to each step a fresh process has imported after the step's code."""
    code = "import json, sys\n"
    for step, names in steps:
        code += f"{step}\nprint(json.dumps({{name: name in sys.modules for name in {names!r}}}))\n"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=240)
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()[-len(steps) :]]


def test_the_first_draft_of_the_default_model_needs_no_transformers_no_llama_cpp_and_one_pool_of_threads(
    default_gguf: Path,
) -> None:
    """Two pools that wait busily for work of their own would take the processor from each other."""
    if load.why_not_compiled(default_gguf):
        pytest.skip("the compiled code is not the default on this machine")
    code = """
from pathlib import Path
from core.ask import Ask
from core.autocomplete import load_autocomplete
autocomplete = load_autocomplete()
drafting = autocomplete.open().complete(Ask(before="Thank you for your "))
assert drafting.finish(autocomplete.model).drafts
if (maps := Path("/proc/self/maps")).exists():
    files = {line.split()[-1] for line in maps.read_text().splitlines()}
    pools = [path for path in files if Path(path).name.startswith(("libgomp", "libomp", "libiomp"))]
    assert len(pools) == 1, pools
"""
    assert loaded((code, SLOW)) == [dict.fromkeys(SLOW, False)]


def test_commands_need_no_builder_the_language_server_no_web_framework_the_page_no_torch_and_rules_no_transformers(
    tmp_path: Path,
) -> None:
    """In one process, in this order: no step imports what an earlier or the same one must not."""
    (tmp_path / "own.py").write_text("import gradio\nclass Own(gradio.Textbox):\n    EVENTS = []\n")
    page = f"""
from app.web.site import create_app
from app.service.service import DraftService
create_app(DraftService(lambda _: None))
sys.path.insert(0, {str(tmp_path)!r})
import own
"""
    not_for_commands = ("ngram_builder", "research.options", "torch", "gradio", *SLOW)
    assert loaded(
        ("import app.cli.main", not_for_commands),
        ("import app.clients.lsp.server", ("fastapi", "torch")),
        (page, ("gradio", "torch", "core.models")),
        ("import core.models.llamacpp, core.samplers, torch", ("transformers",)),
        ("core.samplers.TopP(0.5)(None, torch.randn(1, 9))", ("transformers",)),
    ) == [
        dict.fromkeys(not_for_commands, False),
        {"fastapi": False, "torch": False},
        {"gradio": True, "torch": False, "core.models": False},
        {"transformers": False},
        {"transformers": False},
    ]
    assert not (tmp_path / "own.pyi").exists(), "gradio writes stubs of its components"


def test_a_command_beside_the_app_starts_on_request_and_ends_with_it(tmp_path: Path) -> None:
    left = tmp_path / "pid"
    with running.beside(f"sh -c 'sleep 60 & echo $! > {left}; wait'") as start:
        time.sleep(0.05)
        assert not left.exists()
        start()
        start()
        while not (left.exists() and left.read_text().strip()):
            time.sleep(0.01)
        sleeper = psutil.Process(int(left.read_text()))
        assert sleeper.is_running()
    psutil.wait_procs([sleeper], timeout=10)
    assert not sleeper.is_running() or sleeper.status() == psutil.STATUS_ZOMBIE
