"""Builds the wheel `polydraft-research`: `polydraft.research`, which adds `bench`, `eval` and `train` to Polydraft."""

from __future__ import annotations

import sys
import tomllib
from pathlib import Path

from setuptools import setup
from setuptools.command.build_py import build_py

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from setup import INTO, rewrite

NAME = f"{INTO}.research"
PARTS = ("bench", "evals", "training")


class BuildResearch(build_py):
    def run(self) -> None:
        super().run()
        built = Path(self.build_lib)
        (built / INTO / "research" / "setup.py").unlink()
        rewrite(built)


VERSION = tomllib.loads((Path(__file__).resolve().parents[1] / "pyproject.toml").read_text())["project"]["version"]

setup(
    version=VERSION,
    install_requires=[
        f"polydraft=={VERSION}",
        "playwright>=1.60",
    ],  # what is measured; Chromium, for measurements of the page
    packages=[NAME, *(f"{NAME}.{part}" for part in PARTS)],
    package_dir={NAME: ".", **{f"{NAME}.{part}": part for part in PARTS}},
    package_data={NAME: ["*.json*"], f"{NAME}.training": ["*.json"]},
    cmdclass={"build_py": BuildResearch},
)
