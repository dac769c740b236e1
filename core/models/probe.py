"""Tests whether a backend works here, in a child process, because a crash in native code cannot be caught.

`python -m core.models.probe MODEL` is the child: it loads the model, feeds it a text whose last token goes in
once as a token and once as that token's embedding, times a few steps, and prints one JSON line. Before each
stage it prints the stage's name, so that the parent can report the stage of a crash.
"""

from __future__ import annotations

import hashlib
import json
import logging
import math
import os
import platform
import signal
import statistics
import subprocess
import sys
import time
from argparse import ArgumentParser
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from importlib import metadata
from pathlib import Path
from typing import Any, Literal

import platformdirs

from core.errors import NotFinite, PolydraftError
from core.files import recall, remember
from core.models.base import LanguageModel
from core.models.processor import cpu

Backend = Literal["llama.cpp", "torch"]

PACKAGES: Mapping[Backend, tuple[str, ...]] = {
    "llama.cpp": ("llama-cpp-python",),
    "torch": ("torch", "transformers"),
}
TEXT = "The quick brown fox jumps over the lazy dog and"
STEPS = 9  # timed single tokens; the median is reported
TOLERANCE = 0.01  # of the logits' range, between a token and its own embedding
REMEMBERED = 16  # results in the cache file

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class ProbeResult:
    """The result of a probe.

    Attributes:
        ok: the backend loads this model and computes with it.
        reason: why not, as a clause about the backend ("it crashed with SIGSEGV while …"); "" when ok.
        seconds_per_step: median time of one token of one sequence; None unless ok.
    """

    ok: bool
    reason: str = ""
    seconds_per_step: float | None = None


def probe_llama_cpp(model_path: Path, cache_dir: Path | None = None, timeout: float = 60.0) -> ProbeResult:
    """Whether llama.cpp runs this model here. Successes are cached, so only the first call takes time.

    Args:
        model_path: a GGUF file.
        cache_dir: the folder of probe.json with the successes; the user's cache folder by default.
        timeout: seconds that the child may take.
    """
    try:
        key = _key(model_path)
    except metadata.PackageNotFoundError:
        return ProbeResult(False, "llama-cpp-python is not installed")
    except OSError as error:
        return ProbeResult(False, f"the model file cannot be read: {error}")
    cache = (cache_dir or platformdirs.user_cache_path("polydraft")) / "probe.json"
    known = recall(cache).get(key)
    if isinstance(known, int | float) and 0 < known < math.inf:
        return ProbeResult(True, "", known)
    result = probe("llama.cpp", str(model_path), timeout)
    if result.ok and result.seconds_per_step is not None:
        try:
            remember(cache, {key: result.seconds_per_step}, REMEMBERED)
        except OSError as error:
            log.warning("The result of the llama.cpp probe could not be kept, the next start repeats it: %s", error)
    return result


def probe(backend: Backend, model: str, timeout: float = 60.0) -> ProbeResult:
    """Runs the child for one backend and describes the result in one sentence; nothing is cached."""
    if missing := _missing(backend):
        return ProbeResult(False, f"{missing} is not installed")
    # The child imports this very package, wherever it is started, and no other of the same name (-P).
    root = str(Path(__file__).parents[__name__.count(".")])
    path = os.pathsep.join([root, *filter(None, [os.environ.get("PYTHONPATH")])])
    try:
        done = subprocess.run(
            _command(backend, model),
            env={**os.environ, "PYTHONPATH": path},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=timeout,
        )
    except subprocess.TimeoutExpired as expired:
        output = expired.stdout or b""  # bytes, regardless of `text`
        stage = _stage(output if isinstance(output, str) else output.decode("utf-8", "replace"))
        return ProbeResult(False, f"it did not answer within {timeout:g} s while {stage}")
    except OSError as error:
        return ProbeResult(False, f"it could not be started: {error}")
    return _verdict(done)


def _command(backend: Backend, model: str) -> list[str]:
    return [sys.executable, "-P", "-m", __name__, "--backend", backend, model]


def _verdict(done: subprocess.CompletedProcess[str]) -> ProbeResult:
    if done.returncode < 0:
        try:
            name = signal.Signals(-done.returncode).name
        except ValueError:
            name = f"signal {-done.returncode}"
        return ProbeResult(False, f"it crashed with {name} while {_stage(done.stdout)}")
    messages = _messages(done.stdout)
    if done.returncode == 0 and messages and isinstance(messages[-1].get("ok"), bool):
        answer = messages[-1]
        return ProbeResult(answer["ok"], str(answer.get("reason", "")), answer.get("seconds_per_step"))
    # The last line on stderr is the exception.
    last = (done.stderr.strip().splitlines() or ["no message"])[-1].strip()
    return ProbeResult(False, f"it ended with code {done.returncode} while {_stage(done.stdout)}: {last}")


def _messages(output: str) -> list[dict[str, Any]]:
    """The JSON objects among the lines of `output`; native code may have printed others."""
    messages = []
    for line in output.splitlines():
        try:
            message = json.loads(line)
        except ValueError:
            continue
        if isinstance(message, dict):
            messages.append(message)
    return messages


def _stage(output: str) -> str:
    stages = [message["stage"] for message in _messages(output) if "stage" in message]
    return stages[-1] if stages else "starting"


def _missing(backend: Backend) -> str:
    """The first of the backend's packages that is not installed, or ""."""
    for package in PACKAGES[backend]:
        try:
            metadata.version(package)
        except metadata.PackageNotFoundError:
            return package
    return ""


# --- the cache ----------------------------------------------------------------------------------------------


def _key(model_path: Path) -> str:
    """A key of everything that the result depends on: versions, our own code, compiled libraries, file and CPU.

    Raises: PackageNotFoundError without llama-cpp-python; OSError when the model file cannot be read.
    """
    stat = model_path.stat()
    package = metadata.distribution("llama-cpp-python")
    libraries = Path(str(package.locate_file("llama_cpp/lib")))
    parts = [
        package.version,
        platform.python_version(),
        str(model_path.resolve()),
        stat.st_size,
        stat.st_mtime_ns,
        cpu(),
        # A new build, or another version of our code, may crash where the old one did not.
        [(file.name, file.stat().st_mtime_ns) for file in sorted(libraries.glob("*"))],
        hashlib.sha256(Path(__file__).with_name("llamacpp.py").read_bytes()).hexdigest(),
    ]
    return hashlib.sha256(json.dumps(parts).encode()).hexdigest()


# --- the child ----------------------------------------------------------------------------------------------


def _say(message: dict[str, Any]) -> None:
    sys.stdout.write(json.dumps(message) + "\n")
    sys.stdout.flush()  # the next stage may crash this process


def _load(backend: Backend, model: str) -> LanguageModel:
    if backend == "torch":
        from core.models import hf  # takes seconds to import, which a llama.cpp probe does not need

        return hf.load(Path(model) if Path(model).exists() else model, model)
    from core.models import llamacpp

    return llamacpp.load(Path(model), model)


NONSENSE = "it computes logits that are not numbers, or all the same"


def measure(model: LanguageModel) -> ProbeResult:
    """Feeds a text with its last token as a token and as an embedding, compares the logits, times single tokens."""
    _say({"stage": "evaluating the model"})
    ids = (model.tokenizer.start_ids or [model.tokenizer.document_start]) + model.tokenizer.encode(TEXT)
    sequence = model.open()
    try:
        sequence.feed(ids[:-1])
        by_token = sequence.feed(ids[-1:])  # (V,)
        sequence.rewind(len(ids) - 1)
        _say({"stage": "evaluating an embedding"})
        by_embedding = sequence.feed_embedding(model.embedded(ids[-1:])[0])  # (V,)
        apart = float((by_token - by_embedding).abs().max())
        span = float(by_token.max() - by_token.min())
        if not span > 0:
            return ProbeResult(False, NONSENSE)
        if not apart <= TOLERANCE * span:  # false for NaN, as intended
            return ProbeResult(
                False,
                f"a token and its own embedding give logits that differ by up to {apart:.2g}: the model scales "
                "or changes its embeddings, and this backend cannot do the same to mixed ones",
            )
        _say({"stage": "timing steps"})
        token, seconds = int(by_token.argmax()), []
        for _ in range(STEPS):
            start = time.perf_counter()
            logits = sequence.feed([token])
            seconds.append(time.perf_counter() - start)
            token = int(logits.argmax())
        return ProbeResult(True, "", statistics.median(seconds))
    except NotFinite:
        return ProbeResult(False, NONSENSE)
    finally:
        sequence.close()


def _child() -> None:
    parser = ArgumentParser(prog="python -m core.models.probe", description="Try one backend; prints JSON.")
    parser.add_argument("model", help="a GGUF file; for torch also a folder or a Hugging Face id")
    parser.add_argument("--backend", choices=list(PACKAGES), default="llama.cpp")
    args = parser.parse_args()
    try:
        _say({"stage": "loading the model"})
        model = _load(args.backend, args.model)
        result = measure(model)
        _say({"stage": "closing the model"})
        model.close()
    except PolydraftError as error:
        result = ProbeResult(False, str(error))
    _say(asdict(result))


if __name__ == "__main__":
    _child()
