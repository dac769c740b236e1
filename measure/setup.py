"""Builds the wheel `polydraft-measure`: the package `polydraft.measure`, which adds `bench` and `eval` to Polydraft."""

from __future__ import annotations

import sys
from pathlib import Path

from setuptools import setup
from setuptools.command.build_py import build_py

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from setup import INTO, rewrite

NAME = f"{INTO}.measure"


class BuildMeasure(build_py):
    def run(self) -> None:
        super().run()
        built = Path(self.build_lib)
        (built / INTO / "measure" / "setup.py").unlink()
        rewrite(built)


setup(
    packages=[NAME, f"{NAME}.bench", f"{NAME}.evals"],
    package_dir={NAME: ".", f"{NAME}.bench": "bench", f"{NAME}.evals": "evals"},
    package_data={NAME: ["*.json*"]},
    cmdclass={"build_py": BuildMeasure},
)
