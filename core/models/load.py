"""Loads models by name: "default", a GGUF file, a directory or a hub id; and chooses the backend."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import os
import platform
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, get_args

import torch

from core.errors import BackendUnavailable, InputError, Mention, ModelFileError, ModelNotFound, OptionError
from core.files import open_regular
from core.models import gguf_check, gguf_file
from core.models.base import LanguageModel
from core.models.located import locate
from core.models.recurrent import refuse_recurrent
from core.options import Backend, Precision

if TYPE_CHECKING:
    from core.models.torch_model import TorchModel

MACHINES = ("x86_64", "amd64", "aarch64", "arm64")  # for whose vectors compiled code is written
TOUCHED = 120  # seconds in which a compilation touches its file


def load_model(name: str = "default", backend: Backend = "auto", precision: Precision = "file") -> LanguageModel:
    """Loads a model.

    Args:
        name: "default", the path of a .gguf file, the path of a Hugging Face directory, or a hub id.
        backend: "auto" takes torch with CUDA, or if it runs the file in compiled code on this CPU; else llama.cpp if
            it works, else torch. GGUF files of families that compiled code does not know run in llama.cpp alone.
        precision: of the weights on a CPU with torch, for models that run compiled: "file" keeps a GGUF
            file's format of a few bits, and uses "float32" for all others, with the same results; "bfloat16" rounds
            them. "int8" keeps a GGUF file's weights, and rounds the inputs of products to 8 bits; "auto" does so for
            the files that run so, and is "file" for others. llama.cpp keeps the file's format, and refuses a precision
            that changes it.

    The model's attribute `notice` reports, in one sentence, why "auto" does not use compiled code or llama.cpp.

    Raises: ModelNotFound, ModelFileError, BackendUnavailable, InputError; each message contains a remedy.
    """
    if backend not in get_args(Backend):
        raise InputError(f"Unknown backend {backend!r}; use one of {', '.join(get_args(Backend))}.")
    source, label = locate(name)
    file = source if isinstance(source, Path) and source.is_file() else None
    if file:
        gguf_check.check(gguf_file.read(file))  # before native code reads it
    if precision not in get_args(Precision):
        raise InputError(f"Unknown precision {precision!r}; use one of {', '.join(get_args(Precision))}.")
    if backend == "llama.cpp":
        if not file:
            raise BackendUnavailable(
                f"llama.cpp reads GGUF files, {name!r} is not one; use --backend torch or a .gguf file."
            )
        _refuse_other_precision(precision)
        why_not = _llama_cpp_problem(file)
        if why_not:
            raise BackendUnavailable(
                f"llama.cpp cannot run here: {why_not.rstrip('.')}; {_todo()}, or use --backend torch."
            )
        return _with_llama_cpp(file, label)
    notice = None
    if backend == "auto" and file and (reason := why_not_torch(file)):
        why_not = _llama_cpp_problem(file)
        if not why_not:
            _refuse_other_precision(precision)
            model = _with_llama_cpp(file, label)
            model.notice = " ".join(filter(None, [slower(reason), model.notice]))
            return model
        if alone := _why_llama_cpp_alone(file):
            raise ModelFileError(
                f"{file} can run in llama.cpp alone ({alone}), which does not run it here: {why_not.rstrip('.')}; "
                f"{_todo()}, or choose another model."
            )
        notice = f"llama.cpp is not available ({why_not}); running on torch, which is slower."
    model = _with_torch(source, label, precision)
    model.notice = model.notice or notice  # a missing compiler costs more than llama.cpp would save
    return model


def find_model(name: str) -> None:
    """Checks quickly whether the model is on this machine and its file is complete, without loading it.

    Raises: ModelNotFound, ModelFileError.
    """
    source, _ = locate(name)
    if isinstance(source, str):
        from huggingface_hub import try_to_load_from_cache

        if not isinstance(try_to_load_from_cache(source, "config.json"), str):
            raise ModelNotFound(
                f"There is no model {name!r} on this machine; check the name, or fetch it: `hf download {name}`."
            )
        return
    if source.is_dir():
        try:
            open_regular(source / "config.json").close()
        except OSError as error:
            raise ModelFileError(f"{source / 'config.json'} cannot be read: {error.strerror or error}.") from error
        return
    gguf_check.check(gguf_file.read(source))


def load_module(name: str = "default") -> TorchModel:
    """The model on torch with transformers' own layers, which provide hidden states, in float32, for training: on the
    GPU if there is one.

    Raises: ModelNotFound, ModelFileError.
    """
    from core.models import hf

    source, label = locate(name)
    return hf.load(source, label, torch.float32, plain=True)


def why_not_compiled(path: Path) -> str:
    """Why "auto" does not run this file in compiled code on a CPU, as a clause, or "". Raises ModelFileError."""
    if platform.machine().lower() not in MACHINES:
        return f"there is no compiled code for {platform.machine()}"
    from core.models import native_gguf

    return native_gguf.why_not(gguf_file.read(path))


def why_not_torch(path: Path) -> str:
    """Why "auto" prefers llama.cpp for this file, as a clause, or "". Raises ModelFileError."""
    return _why_llama_cpp_alone(path) if torch.cuda.is_available() else why_not_compiled(path)


def _why_llama_cpp_alone(path: Path) -> str:
    """Why torch cannot run this file, on a CPU or a GPU, as a clause, or "". Raises ModelFileError."""
    from core.models import native_gguf

    return native_gguf.why_not_read(gguf_file.read(path))


def slower(reason: str) -> str:
    """The sentence for the user about a file that compiled code does not run."""
    return f"The model runs in llama.cpp, where several drafts take longer than in compiled code: {reason}."


def _llama_cpp_problem(path: Path) -> str:
    """Why llama.cpp cannot run this model here, or ""; tried in a child process, because native code can crash."""
    if importlib.util.find_spec("llama_cpp") is None:
        if _being_compiled():
            return f"it is being compiled for this machine (log: {Path(sys.prefix) / 'llama.log'})"
        return "llama-cpp-python is not installed"
    from core.models.probe import probe_llama_cpp

    result = probe_llama_cpp(path)
    return "" if result.ok else result.reason


def _todo() -> str:
    """What to do without llama.cpp."""
    return "wait until that is done" if _being_compiled() else "run `make setup-llama`"


def _being_compiled() -> bool:
    """Whether make is compiling llama.cpp for this environment: it writes its process's number into a file, and touches
    the file. Without that, the number may belong to another process by now."""
    file = Path(sys.prefix) / "llama.building"
    try:
        os.kill(int(file.read_text()), 0)
        return time.time() - file.stat().st_mtime < TOUCHED
    except (OSError, ValueError, OverflowError):
        return False


def _refuse_other_precision(precision: Precision) -> None:
    if precision not in ("auto", "file"):
        sentence = "{0} given for llama.cpp, which keeps the file's format; add {1}."
        raise OptionError(sentence, Mention("precision", precision), Mention("backend", "torch"))


def _with_llama_cpp(path: Path, label: str) -> LanguageModel:
    from core.models import llamacpp

    model = llamacpp.load(path, label)
    gguf_file.forget()
    return model


def _with_torch(source: Path | str, label: str, precision: Precision) -> LanguageModel:
    if isinstance(source, Path) and source.is_file():
        refuse_recurrent(gguf_file.read(source).architecture, source)
    from core.models import hf

    dtype = None if precision in ("auto", "file", "int8") else getattr(torch, precision)
    model = hf.load(source, label, dtype, rounded=None if precision == "auto" else precision == "int8")
    if not model.device.startswith("cuda"):
        return model
    from core.models.static import on_static_cache

    return on_static_cache(model)
