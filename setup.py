"""Builds the wheel: moves the packages of the product into one, `polydraft`, and changes their imports accordingly.

Packages called `app` and `core` could collide with others in a site-packages folder. `research/setup.py` builds a
second wheel, which adds `polydraft.research`. An editable install changes nothing.
"""

from __future__ import annotations

import re
import shutil
from pathlib import Path

from setuptools import setup
from setuptools.command.build_py import build_py

ROOT = Path(__file__).parent
INTO = "polydraft"
DATA = "assets"  # the code finds it beside `core`
RESEARCH = "research"
TOPS = ("app", "core", RESEARCH, "ngram_builder", "training")


class BuildInside(build_py):
    def run(self) -> None:
        if self.editable_mode:
            super().run()
            return
        built = Path(self.build_lib)
        for name in (*TOPS, INTO):  # left by an earlier build
            shutil.rmtree(built / name, ignore_errors=True)
        super().run()
        shutil.rmtree(built / RESEARCH)
        for name in set(TOPS) - {RESEARCH}:
            shutil.move(built / name, built / INTO / name)
        rewrite(built / INTO)
        shutil.copytree(ROOT / DATA, built / INTO / DATA)


def rewrite(folder: Path) -> None:
    """Rewrites the imports of every module below a folder."""
    for path in folder.rglob("*.py"):
        path.write_text(inside(path.read_text(encoding="utf-8"), TOPS), encoding="utf-8")


def inside(source: str, packages: tuple[str, ...]) -> str:
    """The source with imports of these packages rewritten as imports from within `polydraft`."""
    names = "|".join(packages)
    if found := re.search(rf"^\s*import (?:{names})\.\S+$", source, re.M):
        raise SystemExit(f"{found[0].strip()!r} cannot be moved; write `from package import module`.")
    source = re.sub(rf"^(\s*)from ({names})(?=[. ])", rf"\1from {INTO}.\2", source, flags=re.M)
    source = re.sub(rf"^(\s*)import ({names})(?=[ \t]*(?:#.*)?$)", rf"\1import {INTO}.\2 as \2", source, flags=re.M)
    return re.sub(rf"^(\s*)import ({names})(?=\.\S+ as )", rf"\1import {INTO}.\2", source, flags=re.M)


if __name__ == "__main__":
    setup(cmdclass={"build_py": BuildInside})
