"""Diagnoses this machine and suggests remedies. `diagnose` runs the checks; `table` and `run` print them."""

from __future__ import annotations

import os
import platform
import sys
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, replace
from importlib import metadata
from pathlib import Path
from typing import Literal

import platformdirs
import psutil
import torch
from rich.console import Console
from rich.table import Table

from app.machine.output import plain, say, say_json
from app.web import browser
from core.errors import ModelFileError, ModelNotFound
from core.models import native, probe
from core.models.load import slower, why_not_torch
from core.models.located import default_model_path
from core.models.memory import free_bytes
from core.models.probe import Backend, ProbeResult
from core.models.processor import cores, cpu

Status = Literal["ok", "warn", "fail"]

MARKS = {"ok": "[green]✓[/]", "warn": "[yellow]![/]", "fail": "[red]✗[/]"}
MEMORY_WANTED = 2.0  # GB free: both backends with the default model, the n-gram store and the page
TIMEOUTS: dict[Backend, float] = {"llama.cpp": 60.0, "torch": 180.0}  # s; torch converts the weights as it loads
CUDA_PACKAGES = ("nvidia-", "nvidia_", "cuda-", "triton")  # by the beginnings of their names
UNNEEDED = 0.1  # GB of them from which they are worth a remark
SLOW = 0.05  # s per token: beyond it, ten tokens of drafts take longer than a pause in typing


@dataclass(frozen=True)
class Check:
    """One line of the report: the check, its result, and a remedy unless `status` is "ok"."""

    name: str
    status: Status
    found: str
    advice: str = ""


@dataclass(frozen=True)
class Diagnosis:
    """All checks, in display order; `works` is true if any backend runs the model."""

    model: str
    checks: tuple[Check, ...]
    works: bool


def diagnose(model: str, progress: Callable[[str], None] = lambda _: None) -> Diagnosis:
    """Checks everything that Polydraft needs; each backend loads the model in a child process.

    Args:
        model: as for `core.models.load_model`.
        progress: called with a sentence before each slow step.
    """
    checks = [_python(), _system(), _cpu(), _memory(), _torch(), _compiled()]
    file = model_file(model)
    checks.append(_model(model, file))
    source = str(file) if file else model
    progress(f"Trying torch with {model} …")
    results: dict[Backend, ProbeResult] = {"torch": probe.probe("torch", source, TIMEOUTS["torch"])}
    checks.append(_backend("torch", results["torch"]))
    checks.append(_llama_package())
    if file and file.is_file():
        progress(f"Trying llama.cpp with {model} …")
        results["llama.cpp"] = probe.probe("llama.cpp", source, TIMEOUTS["llama.cpp"])
        checks.append(_backend("llama.cpp", results["llama.cpp"]))
    else:
        checks.append(Check("llama.cpp, this model", "warn", "not tried", "llama.cpp needs a GGUF file."))
    checks += [_gradio(), _browser(), *_folders()]
    works = any(result.ok for result in results.values())
    if works:  # one backend is enough, so a problem of the other is not a failure
        for at, check in enumerate(checks):
            if check.status == "fail" and check.name.endswith("this model"):
                checks[at] = replace(check, status="warn")
    return Diagnosis(model, tuple(checks), works)


def model_file(model: str) -> Path | None:
    """The file or folder behind a model's name; None for a Hugging Face id, or if it does not exist."""
    if model != "default":
        path = Path(model).expanduser()
        return path if path.exists() else None
    try:
        return default_model_path()
    except ModelNotFound:
        return None


# --- the checks --------------------------------------------------------------------------------------------


def _python() -> Check:
    return Check("Python", "ok", f"{platform.python_version()}, {sys.executable}")


def _system() -> Check:
    return Check("System", "ok", platform.platform(terse=True) + ", " + platform.machine())


def _cpu() -> Check:
    name = next(
        (line.split(":", 1)[1].strip() for line in cpu().splitlines() if line.startswith("model name")),
        platform.processor() or platform.machine(),
    )
    return Check("CPU", "ok", f"{name}, {cores()} cores, {torch.get_num_threads()} used by torch")


def _memory() -> Check:
    total, free = psutil.virtual_memory().total / 1e9, free_bytes(torch.device("cpu")) / 1e9
    amount = f"{total:.1f} GB, {free:.1f} GB of it free"
    if free < MEMORY_WANTED:
        return Check("Memory", "warn", amount, f"Close other programs: {MEMORY_WANTED:g} GB should be free.")
    return Check("Memory", "ok", amount)


def _torch() -> Check:
    if torch.cuda.is_available():
        return Check("torch", "ok", f"{torch.__version__} on {torch.cuda.get_device_name()}")
    installed = f"{torch.__version__} on the CPU (no CUDA device)"
    if (unneeded := cuda_bytes() / 1e9) < UNNEEDED:
        return Check("torch", "ok", installed)
    version = torch.__version__.partition("+")[0]
    advice = (
        "This machine cannot use them. Install torch without them, in a new environment: pip install "
        f"torch=={version} --index-url https://download.pytorch.org/whl/cpu, then Polydraft."
    )
    return Check("torch", "warn", f"{installed}, with {unneeded:.1f} GB of packages for CUDA", advice)


def cuda_bytes() -> int:
    """The size of the installed packages that torch needs on a CUDA device alone."""
    return sum(
        Path(str(file.locate())).stat().st_size
        for package in metadata.distributions()
        if package.name and package.name.lower().startswith(CUDA_PACKAGES)
        for file in package.files or ()
        if Path(str(file.locate())).is_file()
    )


def _compiled() -> Check:
    try:
        library = native.library()
    except native.CannotCompile as error:
        return Check("Compiled code", "warn", str(error), "Without it drafts take about six times as long.")
    description = f"for this processor, {library.polydraft_lanes()} numbers at a time"
    if library.polydraft_threads() or cores() == 1:
        return Check("Compiled code", "ok", description)
    kept = native.library_path()
    advice = f"Install g++, or clang's OpenMP (Debian: apt-get install libomp-dev), and remove {kept}."
    return Check("Compiled code", "warn", f"{description}, in one thread: the compiler had no OpenMP", advice)


def _model(model: str, file: Path | None) -> Check:
    if file is None and model == "default":
        advice = "Install the package polydraft-model again; in a checkout: rm .venv/runtime.stamp; make setup"
        return Check("Model", "fail", "the default model is missing", advice)
    if file is None:
        return Check("Model", "ok", f"{model}, not a file, so treated as a Hugging Face id")
    if not file.is_file():
        return Check("Model", "ok", str(file))
    described = f"{file}, {file.stat().st_size / 1e6:.0f} MB"
    try:
        reason = why_not_torch(file)
    except ModelFileError as error:
        return Check("Model", "fail", str(error), "Choose another model.")
    return Check("Model", "warn", described, slower(reason)) if reason else Check("Model", "ok", described)


def _llama_package() -> Check:
    try:
        return Check("llama-cpp-python", "ok", metadata.version("llama-cpp-python"))
    except metadata.PackageNotFoundError:
        return Check("llama-cpp-python", "warn", "not installed", "make setup-llama compiles it.")


def _backend(backend: Backend, result: ProbeResult) -> Check:
    name = f"{backend}, this model"
    if result.ok and result.seconds_per_step is not None:
        speed = f"works, {result.seconds_per_step * 1000:.1f} ms a token"
        if result.seconds_per_step > SLOW:
            return Check(name, "warn", speed, "Drafts will lag behind typing: use a smaller model or fewer tokens.")
        return Check(name, "ok", speed)
    if "SIGILL" in result.reason:
        advice = "It was compiled for another CPU: make setup-llama compiles it for this one."
    elif "not installed" in result.reason:
        advice = "make setup-llama compiles it." if backend == "llama.cpp" else "rm .venv/runtime.stamp; make setup"
    elif "in llama.cpp alone" in result.reason:
        advice = "Nothing, if llama.cpp works below."
    elif "did not answer" in result.reason:
        advice = "The machine is very busy, or the model is too large: try again, or use a smaller model."
    elif "crashed" in result.reason and backend == "llama.cpp":
        advice = "make setup-llama compiles it again; until then the torch backend is used."
    else:
        advice = "Try the default model; if that fails too, run make clean, then make setup."
    return Check(name, "fail", result.reason, advice)


def _gradio() -> Check:
    try:
        return Check("Gradio", "ok", metadata.version("gradio"))
    except metadata.PackageNotFoundError:
        return Check("Gradio", "fail", "not installed", "The page needs it: rm .venv/runtime.stamp; make setup")


def _browser() -> Check:
    path = browser.find_browser()
    if path is None:
        missing = "none on PATH; any browser can open the page, but the browser tests need Chromium"
        return Check("Chromium", "warn", missing, browser.ADVICE)
    return Check("Chromium", "ok", str(path))


def _folders() -> Iterator[Check]:
    folders = {
        "Data folder": platformdirs.user_data_path("polydraft"),
        "Cache folder": platformdirs.user_cache_path("polydraft"),
    }
    for name, folder in folders.items():
        nearest = next(path for path in (folder, *folder.parents) if path.exists())
        if nearest.is_dir() and os.access(nearest, os.W_OK):
            yield Check(name, "ok", str(folder) + ("" if folder.exists() else " (made when needed)"))
        else:
            yield Check(name, "fail", f"{folder} cannot be written", f"Make {nearest} writable for your user.")


# --- showing it --------------------------------------------------------------------------------------------


def table(report: Diagnosis) -> Table:
    """The report for a terminal."""
    shown = Table(title=plain(f"Polydraft on this machine, model {report.model}"), title_justify="left")
    shown.add_column("")
    shown.add_column("Check")
    shown.add_column("Found", overflow="fold")
    shown.add_column("What to do", overflow="fold")
    for check in report.checks:
        shown.add_row(MARKS[check.status], check.name, plain(check.found), plain(check.advice))
    return shown


def verdict(report: Diagnosis) -> str:
    """One sentence: whether Polydraft works here."""
    if not report.works:
        return f"No backend runs {report.model} on this machine: follow the remedies above, from the first ✗ on."
    wanting = sum(check.status != "ok" for check in report.checks)
    return "Polydraft works here." + (f" Checks with a warning: {wanting}." if wanting else "")


def run(model: str, json: bool) -> int:
    """`polydraft doctor`. Returns the exit code: 0, or 1 when no backend runs the model."""
    if json:
        report = diagnose(model)
        rows = [asdict(check) for check in report.checks]
        target = {"name": "a backend runs the model", "value": int(report.works), "target": ">= 1"}
        output = {"name": "doctor", "model": model, "rows": rows, "targets": [{**target, "met": report.works}]}
        say_json(output)
    else:
        console = Console()
        with Console(stderr=True).status("Looking …") as status:
            report = diagnose(model, lambda text: status.update(plain(text)))
        console.print(table(report))
        say(verdict(report))
    return 0 if report.works else 1
