"""The wheel on a machine without the repository, and the entry in the desktop's menu."""

from __future__ import annotations

import json
import os
import shlex
import shutil
import subprocess
import sys
import sysconfig
import venv
import zipfile
from configparser import ConfigParser
from pathlib import Path

import pytest

from app.cli import desktop
from core.errors import InputError
from tests.paths import ROOT

PARTS = sorted({"assets", *(path.parent.name for path in ROOT.glob("*/__init__.py"))})
FILES = ("pyproject.toml", "setup.py", "README.md", "LICENSE")


def pip(*arguments: str | Path) -> None:
    command = [sys.executable, "-m", "pip", "--disable-pip-version-check", "--quiet", "--no-input"]
    done = subprocess.run([*command, *map(str, arguments)], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.fixture(scope="module")
def wheels(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """The wheels of the product and of its measurements."""
    source, out = tmp_path_factory.mktemp("source"), tmp_path_factory.mktemp("wheel")
    for name in PARTS:
        shutil.copytree(ROOT / name, source / name, ignore=shutil.ignore_patterns("__pycache__"))
    for name in FILES:
        shutil.copy(ROOT / name, source / name)
    flags = ["--no-deps", "--no-build-isolation", "--config-settings=--build-option=--compression=stored"]  # takes half
    pip("wheel", source, source / "measure", *flags, "--wheel-dir", out)
    (product,), (measure,) = out.glob("polydraft-*.whl"), out.glob("polydraft_measure-*.whl")
    return product, measure


@pytest.fixture(scope="module")
def wheel(wheels: tuple[Path, Path]) -> Path:
    return wheels[0]


@pytest.fixture(scope="module")
def installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of the programs of a fresh environment, with Polydraft's dependencies from this one, but without the
    folder from which this project was installed."""
    folder = tmp_path_factory.mktemp("clean")
    venv.create(folder, with_pip=False)
    (libraries,) = folder.glob("lib/python*/site-packages")
    (libraries / "depends.pth").write_text(sysconfig.get_path("purelib") + "\n")
    pip("--python", folder / "bin" / "python", "install", "--no-deps", "--no-index", wheel)
    return folder / "bin"


def run(command: list[str | Path], folder: Path) -> subprocess.CompletedProcess[str]:
    env = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    # The cache may already contain the compiled code.
    cache = os.environ.get("XDG_CACHE_HOME", str(Path.home() / ".cache"))
    env |= {"XDG_DATA_HOME": str(folder / "data"), "HOME": str(folder), "XDG_CACHE_HOME": cache}
    return subprocess.run(list(map(str, command)), cwd=folder, env=env, capture_output=True, text=True, timeout=200)


def test_the_wheel_brings_one_package_with_all_its_data(wheel: Path) -> None:
    archive = zipfile.ZipFile(wheel)
    names = archive.namelist()
    assert {name.split("/")[0] for name in names} == {"polydraft", f"polydraft-{wheel.name.split('-')[1]}.dist-info"}
    assert {
        "polydraft/app/static/editor/main.js",
        "polydraft/training/instructions.json",
        "polydraft/core/models/native/weights.h",
        "polydraft/assets/base.ngram",
        "polydraft/assets/eagle3-default/model.safetensors",
        "polydraft/assets/prose/adapter_model.safetensors",
        "polydraft/assets/prose/eagle3/model.safetensors",
        "polydraft/training/heads.py",
    } <= set(names)
    sources = [archive.read(name).decode() for name in names if name.endswith(".py")]
    lines = [line.split() for source in sources for line in source.splitlines()]
    outside = {line[1].split(".")[0] for line in lines if len(line) > 2 and line[0] == "from" and line[2] == "import"}
    assert not outside & set(PARTS) - {"polydraft"}
    assert not [name for name in names if name.startswith("polydraft/measure")]


def test_it_drafts_from_anywhere_without_the_repository(installed: Path, tmp_path: Path) -> None:
    done = run([installed / "polydraft", "complete", "The weather is beauti", "--json"], tmp_path)
    assert (done.stderr, done.returncode) == ("", 0), "also with its n-grams"
    found = json.loads(done.stdout)
    texts = [draft["text"] for draft in found["drafts"]]
    assert texts[0].startswith("ful")
    assert len(texts) == len(set(texts)) == 3
    assert all(0 < draft["probability"] <= 1 for draft in found["drafts"])
    assert found["backend"] in ("torch", "llama.cpp")


def test_measurements_come_with_a_wheel_of_their_own_and_programs_import_both_by_their_own_names(
    installed: Path, wheels: tuple[Path, Path], tmp_path: Path
) -> None:
    done = run([installed / "polydraft", "bench", "drafts", "--json"], tmp_path)
    assert (done.stdout, done.returncode) == ("", 1)
    assert "`pip install polydraft-measure` adds it" in done.stderr
    pip("--python", installed / "python", "install", "--no-deps", "--no-index", wheels[1])
    done = run([installed / "polydraft", "eval", "tune-paper", "--k", "3"], tmp_path)
    assert "--k changes nothing in tune-paper" in done.stderr, "the evaluation's own check of its options"
    code = """
from polydraft.core.ngram.store import NgramStore
from polydraft.app.cli.desktop import STATIC
import polydraft.measure.bench.startup as startup
print(startup.ROUNDS)
import app
"""
    done = run([installed / "python", "-c", code], tmp_path)
    assert done.stdout == "3\n"
    assert done.stderr.splitlines()[-1] == "ModuleNotFoundError: No module named 'app'"


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="a Linux desktop")
def test_the_menu_entry_starts_this_polydraft_and_goes_again(installed: Path, tmp_path: Path) -> None:
    done = run([installed / "polydraft", "desktop", "install"], tmp_path)
    files = [Path(line) for line in done.stdout.splitlines()]
    assert len(files) == 4
    assert all(path.is_relative_to(tmp_path / "data") and path.stat().st_size for path in files)
    entry = ConfigParser(interpolation=None)
    entry.optionxform = str  # pyright: ignore[reportAttributeAccessIssue]
    entry.read(files[0])
    assert entry["Desktop Entry"]["Name"] == "Polydraft"
    assert shlex.split(entry["Desktop Entry"]["Exec"]) == [str(installed / "polydraft")]
    assert {path.name for path in files[1:]} == {"polydraft.png", "polydraft.svg"}
    assert run([installed / "python", "-m", "polydraft", "desktop", "uninstall"], tmp_path).stdout == done.stdout
    assert not any(path.exists() for path in files)
    again = run([installed / "polydraft", "desktop", "uninstall"], tmp_path)
    assert (again.stdout, again.stderr) == ("", "Polydraft was not in the menu.\n")


def test_other_systems_have_no_such_menu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "platform", "darwin")
    with pytest.raises(InputError, match="for Linux desktops"):
        desktop.install()
