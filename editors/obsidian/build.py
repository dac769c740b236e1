"""Bundles the plugin with esbuild, as Obsidian loads it, into the folder that is given."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).parent


def build(folder: Path) -> None:
    program, provided = HERE / "node_modules/.bin/esbuild", ("obsidian", "@codemirror/*")
    external = [f"--external:{name}" for name in provided]  # Obsidian has them
    options = ["--bundle", "--format=cjs", "--target=es2022", *external, f"--outfile={folder / 'main.js'}"]
    subprocess.run([str(program), "--log-level=warning", str(HERE / "plugin.js"), *options], check=True)
    for name in ("manifest.json", "styles.css"):
        shutil.copy(HERE / name, folder)


if __name__ == "__main__":
    build(Path(sys.argv[1]))
