"""The commands of research: each measurement runs once, on a tiny model and a little text, and takes its own flags."""

from __future__ import annotations

import inspect
import json
import random
import re
import sys
from collections.abc import Callable, Iterator
from contextlib import closing
from functools import partial
from importlib import import_module
from itertools import product
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from app.cli.main import app
from core.models import load_model
from core.models.adapter import save
from core.speculative import ModelDrafter
from research.bench import BENCHES, typists
from research.cli import options_class
from research.evals import EVALS
from research.evals.tune_adapter import settings
from tests.core.models.test_prose_adapter import some_adapter
from tests.research.loopback_judge import serving
from training.adapter import AdapterRecipe

pytestmark = pytest.mark.usefixtures("one_thread")

COMMANDS = [*product(("bench",), BENCHES), *product(("eval",), EVALS)]
MODEL, BYTES, FOLDER = ("--model {model}", "--model {bytes}", "--model {folder}")  # see `places`
OF_WRITER = f"{FOLDER} --text {{text}} --past {{past}}"
FEW = f"{MODEL} --prefixes 2"
SHORT = f"{FEW} --context 12"
QUICK = AdapterRecipe(length=64, batch=1, epochs=1, rate=1e-2)

# The flags of each run, and what is made smaller for it, by the names in the measurement's module or its package.
RUNS: dict[str, tuple[str, dict[str, Any]]] = {
    "bench drafts": (f"{MODEL} --backend torch --repetitions 1", {}),
    "bench keystroke": (f"{BYTES} --repetitions 1", {"KEYS": 8, "SETTLE": 300}),
    "bench stillness": (f"{BYTES} --repetitions 1", {"KEYS_MS": (157.0,), "SETTLE": 300, "keystroke.KEYS": 10}),
    "bench startup": (f"{BYTES} --repetitions 1", {"IDLE": 0.1}),
    "bench healing": (f"{MODEL} --repetitions 2", {}),
    "bench samplers": (f"{MODEL} --repetitions 1", {"VOCABULARIES": (500,), "ROUNDS": 1}),
    "bench per-token": (f"{MODEL} --repetitions 1", {"TOKENS": 3}),
    "bench batches": (f"{MODEL} --repetitions 1", {"BATCHES": (1, 2), "PROPOSALS": (2,), "LENGTH": 4}),
    "bench panel": (f"{MODEL} --repetitions 1", {"MOVES": 2, "keystroke.SETTLE": 300, "keystroke.KEYS": 8}),
    "bench cpu-torch": ("--repetitions 1", {"default_model_path": "{model}", "STEPS": 1}),
    "bench models": ("--tiny --repetitions 1", {"READ": 50}),
    "bench gpu": ("--tiny --repetitions 1", {}),
    "bench ngram": (f"{MODEL} --text {{text}} --repetitions 1 --lmplz {{lmplz}}", {"lookups.PREFIXES": 2}),
    "bench speculative": (f"{MODEL} --prompts 1 --tree-size 4 --methods n-gram", {"LENGTH": 8}),
    "bench serve": (
        f"{BYTES} --minutes 0.05 --typists 1 --vllm {{vllm}}",
        {"WARM": 0.3, "TARGET_CLIENTS": 1, "_as_folder": lambda options, _: options.model},
    ),
    "bench lsp": ("--repetitions 1", {"LINES": 2000}),
    "bench soak": (f"{BYTES} --minutes 0.05 --typists 4", {"ALONE": 6, "FEW": 2, "typists.KEYS": (4, 8)}),
    "eval drafts": (f"{SHORT} --timed 1 --k 2 --length 4", {}),
    "eval typing": (f"{MODEL} --count 4", {}),
    "eval beginnings": (f"{FEW} --text {{folder_of_text}} --k 2", {}),
    "eval rewording": (f"{FEW} --text {{text}}", {"FIRST": 0}),
    "eval background": (f"{FEW} --text {{talk}}", {}),
    "eval time": (f"{FEW} --k 1,3", {}),
    "eval keytype": (f"{FEW} --k 1,3", {}),
    "eval personal": (SHORT, {}),
    "eval weights": (f"{MODEL} --text {{text}} --prefixes 40", {}),
    "eval store-sizes": (
        f"{MODEL} --text {{halves}} --source {{text}} --prefixes 12",
        {"PARTS": (1.2,), "TRIES": 1, "predicted.CONTEXT": 12, "predicted.PREDICTED": 6},
    ),
    "eval kneser-ney": (
        f"{MODEL} --text {{halves}} --source {{text}} --prefixes 12",
        {"predicted.CONTEXT": 12, "predicted.PREDICTED": 6},
    ),
    "eval adapter": (f"{OF_WRITER} --prefixes 2 --k 2 --minutes 1", {"TYPED": 1, "PASSES": 1}),
    "eval prose": (f"{FOLDER} --adapter {{adapter}} --text {{text}} --prefixes 4 --k 2 --base-store none", {}),
    "eval verified": (SHORT, {}),
    "eval lossless": (FEW, {"LENGTH": 4}),
    "eval dice": (FEW, {"eagle3": lambda model, _: ModelDrafter(model, model), "PLACES": 1, "DRAWS": 2}),
    "eval arc-risk": (FEW, {}),
    "eval arc-agreement": (FEW, {}),
    "eval arc-answers": (FEW, {}),
    "eval tune": (f"{MODEL} --context 12 --prefixes 5", {}),
    "eval tune-base": (f"{MODEL} --text {{halves}} --prefixes 4 --context 12", {"CHANGES": {"forks": (1,)}}),
    "eval tune-adapter": (f"{OF_WRITER} --base-store none --prefixes 200", {"settings": lambda n: settings(n)[:2]}),
    "eval tune-paper": (SHORT, {"ALPHAS": (0.3, 0.54), "TAUS": (0.06, 0.5)}),
    "eval samplers": (f"{FEW} --temperatures 1", {}),
    "eval coverage": (f"{MODEL} --text {{questions}}", {"BUDGETS": (1, 2)}),
    "eval perplexity": (SHORT, {}),
    "eval repetition": (SHORT, {"at_each_length.__defaults__": ((5, 10),), "LENGTHS": (5, 10)}),
    "eval linearity": (SHORT, {"STEPS": 3}),
    "eval tails": (f"{SHORT} --k 3 --length 4", {}),
    "eval answers": (f"{MODEL} --text {{questions}} --votes 2 --length 3 --rules top-p --temperatures 1", {}),
    "eval judge": (f"{SHORT} --length 3 --base-store none --learned {{kept}}", {}),
    "eval rubric": (
        f"{MODEL} --learned {{kept}} --server {{judge}} --rules min-p --length 4 --repetitions 2 --temperatures 1",
        {},
    ),
    "eval top-w": (f"{FEW} --warm-starts 0.5 --temperatures 1", {}),
    "eval top-w-beta": (f"{FEW} --temperatures 1", {}),
    "eval top-w-grid": (FEW, {"GRID": (0.0, 1.0, 2.5)}),
    "eval top-w-objective": (f"{FEW} --pool 8", {}),
    "eval top-n-sigma": (FEW, {}),
}  # fmt: skip

# A server that loses a request, or keeps anything of it, is at fault whatever the machine.
MUST_BE_MET = {"soak": ("requests without a response", "threads left", "descriptors left")}

# Answers as vLLM's server does: `n` choices in one stream. It has a child, as vLLM has an engine.
VLLM = """#!{python}
import http.server, json, subprocess, sys
assert sys.argv[1:4] == ["-m", "vllm.entrypoints.openai.api_server", "--model"], sys.argv
engine = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])

class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200)
        self.end_headers()

    def do_POST(self):
        asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        assert (asked["n"], asked["stream"]) == (3, True)
        self.send_response(200)
        self.end_headers()
        for index in range(3):
            chunk = json.dumps({{"choices": [{{"index": index, "text": " one"}}]}})
            self.wfile.write(f"data: {{chunk}}\\n\\n".encode())
        self.wfile.write(b"data: [DONE]\\n\\n")

port = int(sys.argv[sys.argv.index("--port") + 1])
http.server.ThreadingHTTPServer(("127.0.0.1", port), Handler).serve_forever()
"""


# Reads words as KenLM's program does.
LMPLZ = """#!{python}
import sys
assert sys.argv[1:4] == ["--order", "6", "--prune"], sys.argv
assert sum(word.isdigit() for line in sys.stdin for word in line.split()) > 400
"""


def called(*arguments: str, typed: str = "") -> Any:
    return CliRunner().invoke(app, arguments, input=typed, env={"COLUMNS": "400"})


def letters(count: int, alphabet: str = "abcd ") -> str:
    return "".join(random.Random(alphabet).choices(alphabet, k=count))


@pytest.fixture(scope="module")
def judge() -> Iterator[str]:
    with serving(lambda _: "Response 1: 5, 5, 5, 5, 5\nWinner: 1") as (url, _):
        yield url


@pytest.fixture
def places(
    tmp_path: Path,
    judge: str,
    own_folders: Path,
    tiny_default: Path,
    tiny_file: Path,
    tiny_folder: Callable[[str], Path],
    monkeypatch: pytest.MonkeyPatch,
) -> dict[str, str]:
    """The files that the flags of RUNS name."""
    monkeypatch.setattr(typists, "REST", (0.2, 0.4))
    monkeypatch.setattr(typists, "STAY", (0.5, 2.0))
    folder = tiny_folder("long compiled llama")
    with closing(load_model(str(folder), "torch")) as model:
        save(some_adapter(model, model.fingerprint, seed=1), tmp_path / "adapter")
    (tmp_path / "notes").mkdir()
    written = {
        "text.txt": "The boat has been in the shed since the last autumn. It needs new paint. " * 40,
        "past.txt": letters(5000),
        "halves.jsonl": (json.dumps({"text": "The boat needs new paint before the spring. " * 12}) + "\n") * 2,
        "talk.txt": "\n".join(f"This is turn number {n} of a long conversation." for n in range(6)),
        "questions.jsonl": json.dumps({"prompt": "1 + 1 =", "answer": 2}),
        "notes/note.md": "# Title\n\n" + "A paragraph of this text has many words. " * 4 + "\n\n- an item",
    }  # fmt: skip
    for name, text in written.items():
        (tmp_path / name).write_text(text)
    for name, program in (("vllm", VLLM), ("lmplz", LMPLZ)):
        (tmp_path / name).write_text(program.format(python=sys.executable))
        (tmp_path / name).chmod(0o755)
    named = {"model": tiny_default, "bytes": tiny_file, "folder": folder, "folder_of_text": tmp_path / "notes"}
    named |= {Path(name).stem: tmp_path / name for name in (*written, "adapter", "kept", "vllm", "lmplz")}
    return {"judge": judge, **{name: str(path) for name, path in named.items()}}


def module_of(command: str, name: str) -> Any:
    return import_module(f"research.{'evals' if command == 'eval' else command}.{name.replace('-', '_')}")


@pytest.mark.parametrize(("command", "name"), COMMANDS, ids=[" ".join(each) for each in COMMANDS])
def test_each_measurement_runs(
    command: str, name: str, places: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    flags, smaller = RUNS[f"{command} {name}"]
    module = module_of(command, name)
    for attribute, value in smaller.items():
        if isinstance(value, str):
            value = partial(Path, value.format(**places))
        owner = "research.bench" if attribute.startswith(("keystroke", "lookups", "typists")) else module.__name__
        owner = "research" if attribute.startswith("predicted") else owner
        monkeypatch.setattr(f"{owner}.{attribute}", value)
    drawn = "plot" in options_class(module).__dataclass_fields__
    if drawn:
        flags += " --plot {kept}.svg"
    done = called(command, name, "--json", *flags.format(**places).split(), typed="q\n")
    assert done.exit_code == 0, done.output
    found = json.loads(done.stdout)
    assert found["name"] in (name, f"{command} {name}")
    assert found["rows"]
    met = {target["name"]: target["met"] for target in found["targets"]}
    assert all(met[name] for name in MUST_BE_MET.get(name, ())), found
    if drawn:
        assert Path(f"{places['kept']}.svg").read_text().startswith("<svg")


def test_the_help_lists_all_measurements_and_that_of_each_its_own_flags() -> None:
    for command, known in (("bench", BENCHES), ("eval", EVALS)):
        shown = called(command, "--help").stdout
        for name, what in known.items():
            assert re.search(rf"{name} +{re.escape(what)}\.", shown)
    shown = called("eval", "dice", "--help").stdout
    assert re.search(r"--prefixes,--count,--repetitions .* Prompts of each kind. +\[default: 10\]", shown)
    assert "--slips" not in shown and "--plot" not in shown


@pytest.mark.parametrize(("command", "name"), COMMANDS, ids=[" ".join(each) for each in COMMANDS])
def test_a_measurement_reads_its_own_flags_and_takes_no_other(command: str, name: str) -> None:
    """The flags of shared blocks of options are read where these blocks are; its own in its module."""
    module = module_of(command, name)
    source = inspect.getsource(module)
    own = options_class(module).__annotations__.keys() - {"k"}  # read as `ks`
    assert [field for field in own if f".{field}" not in source] == []
    refused = called(command, name, "--no-such-flag", "1")
    assert refused.exit_code == 2 and "No such option: --no-such-flag" in refused.stderr


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ("eval drafts --k 3;8", "k '3;8' given; numbers from 1 to 16 with commas between them expected"),
        ("eval answers --rules top-q", "rules: 'top-q' given; none, top-p"),
        ("eval answers --temperatures 0,x", "temperatures '0,x' given; numbers from 0.05 to 10"),
        ("eval answers --exact --votes 8", "--votes and --length change nothing with --exact"),
        ("eval judge", "give --learned FOLDER"),
        ("eval tune-base", "both halves of a text; give one with --text"),
        ("bench speculative --plots x.svg", "--plots changes nothing without --sweep"),
        ("bench speculative --temperatures 1", "--temperatures changes nothing without --sweep"),
        ("bench speculative --sweep --methods n-gram", "--methods changes nothing with --sweep"),
        ("bench ngram --lmplz lmplz", "--lmplz given without a text to count"),
        ("eval kneser-ney", "give it with --source"),
        ("bench gpu --tiny --shapes Llama-9", "--shapes: 'Llama-9' given; tiny are known"),
    ],
)
def test_a_value_that_cannot_be_is_refused_in_a_sentence(arguments: str, said: str) -> None:
    refused = called(*arguments.split())
    assert refused.exit_code == 1 and said in refused.stderr
