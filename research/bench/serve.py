"""`bench serve`: editors that request completions at every key, 1 to 64 at once, beside the servers of other programs.

An editor sends Polydraft one request with n = 3, and vLLM too, which computes the three in one batch. The server of
llama-cpp-python returns one text per request, so an editor sends it three, with three seeds. All have the same model
and stream; the same key traces are replayed on each in turn.

Goodput is the number of keys per second that have a draft within 100 ms; in the target, a peer without any such key
counts as if it had one. Tokens computed in vain are Polydraft's own counts of inputs, including prompts; for the peers
they are the chunks with text that reached an editor, which are fewer.
"""

from __future__ import annotations

import asyncio
import json
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated

import psutil
import typer

from core.errors import InputError, PolydraftError, last_line
from core.models.located import default_model_path, locate
from research import texts as text
from research.bench.child import Child, free_port, running, running_app
from research.bench.editors import Answered, Bodies, Editor
from research.bench.typists import Server
from research.options import BackendOptions, TextOptions
from research.report import Progress, Report, ReportRow, number_in, percentile

CLIENTS = (1, 4, 16, 64)
SECONDS = 20.0
WARM = 3.0  # seconds of typing that are not measured
N, TOKENS = 3, 10
TARGET_CLIENTS = 16  # clients of the target
NEEDED = ("pydantic_settings", "sse_starlette", "starlette_context")  # of the peer's server
MISSING = 'not installed: pip install "llama-cpp-python[server]"'
VLLM_STARTS = 900.0  # seconds; it compiles its code at the first start
VLLM_ENVIRONMENT = {"VLLM_CPU_KVCACHE_SPACE": "1", "VLLM_NO_USAGE_STATS": "1", "HF_HUB_OFFLINE": "1"}  # space in GiB


@dataclass
class Contestant:
    """A running server, and the requests of editors to it."""

    name: str
    child: Child
    bodies: Bodies
    counts: Callable[[], dict[str, int]] | None = None  # inputs computed and dropped so far, if the server reports them


@dataclass(frozen=True)
class ServeOptions(BackendOptions, TextOptions):
    minutes: Annotated[
        float | None,
        typer.Option(min=0.05, max=240, help="Duration of each number of clients; by default a third of a minute."),
    ] = None
    typists: Annotated[
        int | None, typer.Option(min=1, max=512, help="Typists at once; by default 1, 4, 16 and 64.")
    ] = None
    vllm: Annotated[
        str | None,
        typer.Option(help="The Python of an environment with vLLM, which is measured too.", metavar="PYTHON"),
    ] = None


def measure(options: ServeOptions, progress: Progress) -> Report:
    words = " ".join(" ".join(document.split()) for file in text.load(options.text) for document in file)
    seconds = 60 * options.minutes if options.minutes else SECONDS
    report, goodput = Report("serve"), dict[tuple[str, int], float]()
    with ExitStack() as stack:
        progress("starting the servers")
        ours = stack.enter_context(polydraft(options))
        servers = [ours]
        if missing := why_no_peer(options):
            report.rows.append({"server": "llama-cpp-python", "note": missing})
        else:
            servers.append(stack.enter_context(llama_server()))
        if options.vllm:
            progress("starting vLLM, which may compile for minutes")
            servers.append(stack.enter_context(vllm_server(options)))
        progress("warming up")
        for server in servers:
            measured(server, words, 1, WARM)
        for clients in (options.typists,) if options.typists else CLIENTS:
            for server in servers:
                progress(f"{server.name}, {clients} clients")
                row = measured(server, words, clients, seconds)
                report.rows.append(row)
                goodput[server.name, clients] = number_in(row, "goodput_per_s")
    for peer in servers[1:]:
        if (ours.name, TARGET_CLIENTS) in goodput:
            least = 1 / seconds  # the goodput of one key in the whole run, if the peer has none in time
            ratio = goodput[ours.name, TARGET_CLIENTS] / max(goodput[peer.name, TARGET_CLIENTS], least)
            report.target(f"goodput at {TARGET_CLIENTS} clients / that of {peer.name}", ratio, ">= 5")
    return report


def measured(server: Contestant, words: str, clients: int, seconds: float) -> ReportRow:
    """Returns the row of one server with so many clients."""
    before = server.counts() if server.counts else {}
    typed = Answered()

    async def crowd() -> None:
        reached = Server(server.child.url, server.child.headers)
        editors = [Editor(number, reached, words, server.bodies, typed) for number in range(clients)]
        await asyncio.gather(*(editor.type(seconds) for editor in editors))

    asyncio.run(crowd())
    if server.counts:
        computed, dropped = (server.counts()[name] - before[name] for name in ("computed", "dropped"))
    else:
        computed, dropped = typed.received, typed.late
    first = [key for key in typed.keys if key is not None]
    row: ReportRow = {"server": server.name, "clients": clients, "keys": len(typed.keys)}
    row |= {"goodput_per_s": typed.good / seconds, "keys_in_time": typed.good / max(len(typed.keys), 1)}
    row |= {"keys_with_a_draft": len(first) / max(len(typed.keys), 1)}
    row |= {f"wait_p{p}_ms": 1000 * percentile(typed.waits, p) for p in (50, 95, 99)}
    row |= {"tokens": computed, "thrown_away": dropped / computed if computed else float("nan")}
    failed = {end: count for end, count in typed.ends.items() if end not in ("done", "superseded")}
    return row | (
        {"note": f"{sum(failed.values())} failed: {max(failed, key=lambda end: failed[end])}"} if failed else {}
    )


@contextmanager
def polydraft(options: ServeOptions) -> Iterator[Contestant]:
    with running_app(options, "serve") as child:
        child.wait(lambda: child.get("/health") is not None)
        yield Contestant(
            "Polydraft",
            child,
            lambda prompt: [{"prompt": prompt, "n": N, "max_tokens": TOKENS, "stream": True}],
            lambda: json.loads(child.get("/health") or b"{}")["inputs"],
        )


def why_no_peer(options: ServeOptions) -> str:
    """Returns the reason why the peer cannot run; "" if it can."""
    if options.model != "default":
        return "measured only with the default model"
    return MISSING if find_spec("llama_cpp") is None or not all(map(find_spec, NEEDED)) else ""


@contextmanager
def llama_server() -> Iterator[Contestant]:
    port = free_port()
    command = [sys.executable, "-m", f"{__package__}.llama_server", "--model", str(default_model_path())]
    # A request of another client must not end the running ones.
    command += ["--n_ctx", "2048", "--interrupt_requests", "False", "--verbose", "False"]
    command += ["--host", "127.0.0.1", "--port", str(port)]
    with running(command, port) as child:
        child.wait(lambda: child.get("/v1/models") is not None)

        def bodies(prompt: str) -> list[dict[str, object]]:
            body: dict[str, object] = {"prompt": prompt, "max_tokens": TOKENS, "stream": True, "temperature": 0.8}
            return [body | {"seed": seed} for seed in range(N)]

        yield Contestant("llama-cpp-python", child, bodies)


@contextmanager
def vllm_server(options: ServeOptions) -> Iterator[Contestant]:
    """vLLM's server in its own environment, as it is installed: it compiles the model and keeps prefixes."""
    python = shutil.which(options.vllm or "")
    if python is None:
        raise InputError(
            f"--vllm {options.vllm} given; the Python of an environment with vLLM expected. "
            "See research/docs/performance.md, Editors, for how to install it."
        )
    with tempfile.TemporaryDirectory() as folder:
        port = free_port()
        command = [python, "-m", "vllm.entrypoints.openai.api_server", "--model", str(_as_folder(options, folder))]
        command += ["--served-model-name", "default", "--dtype", "bfloat16", "--max-model-len", "2048"]
        command += ["--host", "127.0.0.1", "--port", str(port)]
        family: list[psutil.Process] = []
        try:
            with running(command, port, environment=VLLM_ENVIRONMENT) as child:
                try:
                    child.wait(lambda: child.get("/v1/models") is not None, VLLM_STARTS)
                    body = {"model": "default", "n": N, "max_tokens": TOKENS, "stream": True, "temperature": 0.8}
                    yield Contestant("vLLM", child, lambda prompt: [body | {"prompt": prompt}])
                finally:
                    if child.process.poll() is None:
                        family = psutil.Process(child.process.pid).children(recursive=True)
        finally:
            for process in family:  # its engine may survive it
                if process.is_running():
                    process.kill()


def _as_folder(options: ServeOptions, folder: str) -> Path | str:
    """Returns the model as vLLM loads it; that of a GGUF file, which vLLM does not read, is written to `folder`."""
    source, _ = locate(options.model)
    if not isinstance(source, Path) or source.is_dir():
        return source
    command = [sys.executable, "-m", f"{__package__}.vllm_model", str(source), folder]
    done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
    if done.returncode:
        raise PolydraftError(f"The model cannot be written for vLLM: {last_line(done.stderr)[:200]}")
    return Path(folder)
