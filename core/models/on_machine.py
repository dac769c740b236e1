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
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import platformdirs
import torch
from gguf.constants import LlamaFileType

from core.errors import ModelFileError, PolydraftError
from core.files import is_folder, read_json, status, with_timeout
from core.models import gguf_file
from core.models.gguf_file import GGUFFile
from core.models.load import why_not_torch
from core.models.located import locate

MOST_MANIFEST = 1 << 20  # bytes
MOST_FILES = 500  # models of one program; a folder that somebody chose may contain anything
PROJECTOR = "mmproj"  # in the name of a file: it reads images for another one
POLYDRAFT = "Polydraft"


@dataclass(frozen=True)
class ModelFile:
    """A model on this machine.

    Attributes:
        path: loads it, as `--model`.
        name: to show.
        source: the program whose folder it is in; "" for a model in none of them.
        bytes: of its files; 0 if unknown.
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
        compiled: whether "auto" runs it in compiled code here.
        slower: why "auto" runs it in llama.cpp here, as a clause, or "".
        unusable: why it cannot be loaded, in a sentence, or "".
    """

    type: str = ""
    family: str = ""
    compiled: bool = False
    slower: str = ""
    unusable: str = ""

    @property
    def reason(self) -> str:
        """Why it is slow, or cannot be loaded, in a sentence, or ""."""
        return self.unusable or (f"Slower, in llama.cpp, because {self.slower}." if self.slower else "")


def models_folder() -> Path:
    return platformdirs.user_data_path("polydraft", appauthor=False) / "models"


def on_machine(own: Path | None = None) -> list[ModelFile]:
    """All of them, Polydraft's first, each file once. What cannot be read in Polydraft's folder is among them, without
    its bytes: whoever chooses it sees the reason. A folder of another program that cannot be read has none.

    Args:
        own: Polydraft's models folder; None is the one in the user's data folder.
    """
    files: dict[Path, ModelFile] = {}
    for place, each in (*_of_polydraft(own or models_folder()), *_of_others()):
        files.setdefault(place, each)
    return list(files.values())


def named(name: str, shown: str) -> ModelFile:
    """The model that a name or a path means to `load_model`, without its bytes if it is not there."""

    def look() -> tuple[Path, int]:
        source, _ = locate(name)
        return Path(source), _bytes(source) if isinstance(source, Path) else 0

    try:
        path, size = with_timeout(Path(name), look)
    except (PolydraftError, OSError):
        path, size = Path(name), 0
    return ModelFile(path, shown, "", size)


Models = Callable[[Path], Iterator[tuple[Path, str]]]
Placed = tuple[Path, ModelFile]  # with the path without links


def _of_polydraft(folder: Path) -> list[Placed]:
    def look() -> list[Placed]:
        files: list[Placed] = []
        for path in sorted(folder.iterdir()):
            try:
                files += [_placed(*each, POLYDRAFT) for each in _model_at(path)]
            except OSError:
                files.append((path, ModelFile(path, path.stem, POLYDRAFT, 0)))
        return files

    try:
        return with_timeout(folder, look)
    except (FileNotFoundError, NotADirectoryError):
        return []
    except OSError:
        return [(folder, ModelFile(folder, folder.name, POLYDRAFT, 0))]


def _of_others() -> list[Placed]:
    files: list[Placed] = []
    for source, folder, models in _others():
        with suppress(OSError):  # a drive that does not answer, or a folder of another user
            files += with_timeout(folder, partial(_in, source, folder, models))
    return files


def _others() -> list[tuple[str, Path, Models]]:
    return [
        ("Hugging Face", _hub_cache(), _of_hub),
        *(("LM Studio", folder, _below) for folder in _homes(".lmstudio/models", ".cache/lm-studio/models")),
        ("Ollama", _of_environment("OLLAMA_MODELS", Path.home() / ".ollama" / "models"), _of_ollama),
        ("llama.cpp", _of_environment("LLAMA_CACHE", _llama_cpp_cache()), _of_folder),
    ]


def read_about(path: Path) -> About:
    """What the file or folder says. Raises OSError if it cannot be read."""
    if is_folder(status(path)):
        try:
            config = read_json(path / "config.json")
        except ValueError:
            return About(unusable=f"{path / 'config.json'} is not JSON; get a complete copy of the model.")
        return About(family=str(config.get("model_type", "")) if isinstance(config, dict) else "")
    try:
        file = gguf_file.read(path)
        slower = why_not_torch(path)
    except ModelFileError as error:
        return About(unusable=str(error).replace(f"{path} ", "It ", 1))
    finally:
        gguf_file.forget()
    return About(_type_of(file), str(file.architecture or ""), not slower and not torch.cuda.is_available(), slower)


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


def _in(source: str, folder: Path, models: Models) -> list[Placed]:
    """The models in a program's folder."""
    files: list[Placed] = []
    for path, name in models(folder) if folder.is_dir() else ():
        with suppress(OSError):  # a link whose file is gone
            files.append(_placed(path, name, source))
        if len(files) == MOST_FILES:
            break
    return files


def _placed(path: Path, name: str, source: str) -> Placed:
    return path.resolve(), ModelFile(path, name, source, _bytes(path))


def _bytes(path: Path) -> int:
    return sum(file.stat().st_size for file in ([path] if path.is_file() else path.iterdir()) if file.is_file())


def _is_model(path: Path) -> bool:
    return path.suffix.lower() == ".gguf" and PROJECTOR not in path.name.lower() and path.is_file()


def _model_at(path: Path) -> Iterator[tuple[Path, str]]:
    if _is_model(path):
        yield path, path.stem
    elif (path / "config.json").is_file():
        yield path, path.name


def _of_folder(folder: Path) -> Iterator[tuple[Path, str]]:
    for path in sorted(folder.iterdir()):
        yield from _model_at(path)


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
