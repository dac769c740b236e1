"""The models on this machine: in Polydraft's models folder, and in the caches of other programs, which are only read.

| program | where | layout |
| --- | --- | --- |
| Polydraft | `models` in the user's data folder | GGUF files, and folders with a config.json |
| Hugging Face's | `HF_HUB_CACHE`, `HF_HOME` | `models--OWNER--NAME/snapshots/REVISION/`, the newest counts |
| LM Studio | `~/.lmstudio/models`, earlier `~/.cache/lm-studio/models` | `OWNER/NAME/FILE.gguf` |
| Ollama | `OLLAMA_MODELS`, `~/.ollama/models` | `manifests/HOST/OWNER/NAME/TAG`, with digests of files in `blobs` |
| llama.cpp | `LLAMA_CACHE`, `llama.cpp` in the user's cache folder | GGUF files |
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import platformdirs
from gguf.constants import LlamaFileType

from core.errors import ModelFileError
from core.files import answered, read_json
from core.models import gguf_file
from core.models.gguf_file import GGUFFile

MOST_MANIFEST = 1 << 20  # bytes
MOST_FOUND = 500  # models of one program; a folder that somebody chose may contain anything
PROJECTOR = "mmproj"  # in the name of a file: it reads images for another one


@dataclass(frozen=True)
class Found:
    """A model on this machine.

    Attributes:
        path: loads it, as `--model`.
        name: to show.
        source: the program whose folder it is in.
        bytes: of its files.
    """

    path: Path
    name: str
    source: str
    bytes: int


@dataclass(frozen=True)
class About:
    """What a model's file says about it.

    Attributes:
        type: of its weights, such as Q4_K_M; "" if unknown.
        family: its architecture, such as qwen3; "" if unknown.
        slower: why compiled code does not run it on a CPU, as a clause, or "".
        unusable: why it cannot be loaded, in a sentence, or "".
    """

    type: str = ""
    family: str = ""
    slower: str = ""
    unusable: str = ""


def models_folder() -> Path:
    return platformdirs.user_data_path("polydraft", appauthor=False) / "models"


def on_machine(own: Path | None = None) -> list[Found]:
    """All of them, Polydraft's first, each file once.

    Args:
        own: Polydraft's models folder; None is the one in the user's data folder.
    """
    return _once([("Polydraft", own or models_folder(), _of_folder), *_others()])


def elsewhere() -> list[Found]:
    """The models of other programs."""
    return _once(_others())


Models = Callable[[Path], Iterator[tuple[Path, str]]]


def _others() -> list[tuple[str, Path, Models]]:
    return [
        ("Hugging Face", _hub_cache(), _of_hub),
        *(("LM Studio", folder, _below) for folder in _homes(".lmstudio/models", ".cache/lm-studio/models")),
        ("Ollama", _of_environment("OLLAMA_MODELS", Path.home() / ".ollama" / "models"), _of_ollama),
        ("llama.cpp", _of_environment("LLAMA_CACHE", _llama_cpp_cache()), _of_folder),
    ]


def _once(programs: list[tuple[str, Path, Models]]) -> list[Found]:
    """The models of these programs, each file once. A folder that cannot be read has none."""
    found: dict[Path, Found] = {}
    for source, folder, models in programs:
        try:
            listed = answered(folder, lambda folder=folder, models=models: _listed(folder, models))
        except OSError:
            continue  # a drive that does not answer, or a folder of another user
        for path, name, size in listed:
            found.setdefault(path.resolve(), Found(path, name, source, size))
    return list(found.values())


def read_about(path: Path) -> About:
    """What the file or folder says. Raises OSError if it cannot be read."""
    if path.is_dir():
        config = read_json(path / "config.json")
        return About(family=str(config.get("model_type", "")) if isinstance(config, dict) else "")
    from core.models.load import why_not_compiled  # imports torch

    try:
        file = gguf_file.read(path)
        slower = why_not_compiled(path)
    except ModelFileError as error:
        return About(unusable=str(error))
    finally:
        gguf_file.forget()
    return About(_type_of(file), str(file.architecture or ""), slower)


def _type_of(file: GGUFFile) -> str:
    """The type in which llama.cpp's tools say that they wrote the file; else that of most weights."""
    try:
        return LlamaFileType(file.fields.get("general.file_type")).name.removeprefix("MOSTLY_").removeprefix("ALL_")
    except ValueError:
        sizes: dict[str, int] = {}
        for tensor in file.tensors.values():
            sizes[tensor.kind.name] = sizes.get(tensor.kind.name, 0) + tensor.bytes
        return max(sizes, key=sizes.__getitem__, default="")


# --- the programs' folders


def _listed(folder: Path, models: Models) -> list[tuple[Path, str, int]]:
    """Path, name and bytes of each model in a folder."""
    found = []
    for path, name in models(folder) if folder.is_dir() else ():
        try:
            found.append((path, name, _bytes(path)))
        except OSError:
            continue  # a link whose file is gone
        if len(found) == MOST_FOUND:
            break
    return found


def _bytes(path: Path) -> int:
    return path.stat().st_size if path.is_file() else sum(file.stat().st_size for file in path.iterdir())


def _is_model(path: Path) -> bool:
    return path.suffix.lower() == ".gguf" and PROJECTOR not in path.name.lower() and path.is_file()


def _of_folder(folder: Path) -> Iterator[tuple[Path, str]]:
    for path in sorted(folder.iterdir()):
        if _is_model(path):
            yield path, path.stem
        elif (path / "config.json").is_file():
            yield path, path.name


def _below(folder: Path) -> Iterator[tuple[Path, str]]:
    for path in sorted(folder.glob("*/*/*")):
        if _is_model(path):
            yield path, path.stem


def _of_hub(folder: Path) -> Iterator[tuple[Path, str]]:
    for repo in sorted(folder.glob("models--*")):
        snapshots = sorted(repo.glob("snapshots/*"), key=lambda path: path.stat().st_mtime)
        for snapshot in snapshots[-1:]:
            for path in sorted(snapshot.rglob("*.gguf")):
                if _is_model(path):
                    yield path, path.stem
            if (snapshot / "config.json").is_file() and any(snapshot.glob("*.safetensors")):
                yield snapshot, repo.name.removeprefix("models--").replace("--", "/")


def _of_ollama(folder: Path) -> Iterator[tuple[Path, str]]:
    for manifest in sorted(folder.glob("manifests/*/*/*/*")):
        try:
            layers = read_json(manifest, MOST_MANIFEST)["layers"]
            digests = [each["digest"] for each in layers if each["mediaType"].endswith(".image.model")]
        except (OSError, ValueError, KeyError, TypeError, AttributeError):
            continue  # no manifest
        for digest in digests:
            name = str(digest).replace(":", "-")
            blob = folder / "blobs" / name
            if Path(name).name == name and blob.is_file():
                yield blob, f"{manifest.parent.name}:{manifest.name}"


def _hub_cache() -> Path:
    from huggingface_hub import constants

    return Path(constants.HF_HUB_CACHE)


def _llama_cpp_cache() -> Path:
    if sys.platform == "darwin":
        return Path.home() / "Library" / "Caches" / "llama.cpp"
    return platformdirs.user_cache_path("llama.cpp", appauthor=False)


def _of_environment(name: str, otherwise: Path) -> Path:
    return Path(os.environ[name]) if os.environ.get(name) else otherwise


def _homes(*below: str) -> list[Path]:
    return [Path.home() / path for path in below]
