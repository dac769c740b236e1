"""The models that the page offers: the default one, and the files and folders in the models folder."""

from __future__ import annotations

from pathlib import Path

import platformdirs

DEFAULT = "default"


def models_folder() -> Path:
    return platformdirs.user_data_path("polydraft", appauthor=False) / "models"


def offered(serving: str, folder: Path | None = None) -> list[dict[str, object]]:
    """One entry per model: the name or path that loads it, a name to show, bytes (0 if unknown), and whether it is the
    one that drafts.

    Args:
        serving: the name or path of the model that drafts; "" for none. It is listed wherever its file lies.
        folder: None is the one in the user's data folder.
    """
    found = [(DEFAULT, "Default model", 0)]
    folder = folder or models_folder()
    for path in sorted(folder.iterdir()) if folder.is_dir() else []:
        if path.suffix.lower() == ".gguf" and path.is_file():
            found.append((str(path), path.stem, path.stat().st_size))
        elif (path / "config.json").is_file():
            found.append((str(path), path.name, sum(f.stat().st_size for f in path.iterdir() if f.is_file())))
    if serving and serving not in [model for model, _, _ in found]:
        found.append((serving, Path(serving).stem if serving.endswith(".gguf") else serving, 0))
    return [{"model": model, "name": name, "bytes": size, "serving": model == serving} for model, name, size in found]
