"""Packs the extension: one zip for Chromium and one for Firefox, into the folder that is given."""

from __future__ import annotations

import json
import sys
import zipfile
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
# What belongs to the extension. The rest of the folder belongs to its tests.
FILES = ("worker.js", "fields.js", "text.js", "view.js", "content.js", "options.html", "options.css", "options.js")
ICONS = ("icon-32.png", "icon-128.png")
FIREFOX_ID = "polydraft@polydraft.invalid"  # add-ons need an id of this form; the domain belongs to nobody
WHEN = (2026, 1, 1, 0, 0, 0)  # the same files make the same bytes


def chromium() -> dict[str, Any]:
    """The manifest for Chromium, which can load this folder as it is, too."""
    return json.loads((HERE / "manifest.json").read_text(encoding="utf-8"))


def firefox() -> dict[str, Any]:
    """The manifest for Firefox: it runs the worker as an event page, and has no list of extensions that may connect:
    the worker does not listen to any."""
    manifest = chromium()
    del manifest["minimum_chrome_version"], manifest["externally_connectable"]
    manifest["background"] = {"scripts": ["worker.js"], "type": "module"}
    collected = {"required": ["none"]}  # nothing leaves the machine
    gecko = {"id": FIREFOX_ID, "strict_min_version": "140.0", "data_collection_permissions": collected}
    manifest["browser_specific_settings"] = {"gecko": gecko}
    return manifest


def pack(path: Path, manifest: dict[str, Any]) -> None:
    contents = {name: (HERE / name).read_bytes() for name in (*FILES, *ICONS)}
    contents["manifest.json"] = json.dumps(manifest, indent=2).encode()
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as packed:
        for name in sorted(contents):
            packed.writestr(zipfile.ZipInfo(name, WHEN), contents[name], zipfile.ZIP_DEFLATED)


def build(folder: Path) -> list[Path]:
    folder.mkdir(parents=True, exist_ok=True)
    version = chromium()["version"]
    made = []
    for browser, manifest in (("chromium", chromium()), ("firefox", firefox())):
        made.append(folder / f"polydraft-{browser}-{version}.zip")
        pack(made[-1], manifest)
    return made


if __name__ == "__main__":
    for one in build(Path(sys.argv[1])):
        sys.stdout.write(f"{one}\n")
