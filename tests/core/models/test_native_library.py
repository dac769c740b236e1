"""The compiled library in the user's cache: only code that this user compiled for this machine is loaded."""

from __future__ import annotations

import os
import stat
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import torch
from tiny_models import save_model, tiny

from core.models import hf, native, native_library
from core.models.native_library import CannotCompile, CppSource

SOURCE = 'extern "C" int answer() { return 42; }\n'
OPTIONS = ("-shared", "-fPIC")


class Kept:
    """An empty cache, a small source, and a compiler that records its arguments."""

    def __init__(self, folder: Path) -> None:
        self.root, self.source, self.asked = folder, folder / "answer.cpp", folder / "asked"
        self.folder = folder / "cache" / "polydraft" / "native"
        self.source.write_text(SOURCE)

    def answer(self) -> int:
        """As a new process would find it."""
        native_library.forget()
        return native_library.load(CppSource(self.source, OPTIONS)).answer()

    @property
    def library(self) -> Path:
        (found,) = self.folder.glob("*.so")
        return found

    @property
    def compiled(self) -> int:
        return len(self.asked.read_text().splitlines()) if self.asked.exists() else 0


@pytest.fixture
def kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Kept]:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    compiler = tmp_path / "compiler"
    compiler.write_text(f'#!/bin/sh\necho "$@" >>{tmp_path}/asked\nexec c++ "$@"\n')
    compiler.chmod(0o755)
    monkeypatch.setenv("CXX", str(compiler))
    native_library.forget()
    native.library.cache_clear()
    yield Kept(tmp_path)
    native_library.forget()
    native.library.cache_clear()


def test_it_is_compiled_once_and_works_after_the_compiler_is_gone(kept: Kept, monkeypatch: pytest.MonkeyPatch) -> None:
    assert kept.answer() == 42
    monkeypatch.setenv("CXX", "")
    monkeypatch.setenv("PATH", "/nowhere")
    assert kept.answer() == 42
    assert kept.compiled == 1
    assert {path.suffix for path in kept.folder.iterdir()} == {".so", ".sha256"}


def test_it_is_on_disk_before_it_has_its_name(kept: Kept, monkeypatch: pytest.MonkeyPatch) -> None:
    done: list[tuple[str, str]] = []
    fsync, replace = os.fsync, Path.replace

    def to_disk(handle: int) -> None:
        done.append(("disk", Path(f"/proc/self/fd/{handle}").readlink().name))
        fsync(handle)

    def named(path: Path, to: Path) -> Path:
        done.append(("named", path.name))
        return replace(path, to)

    monkeypatch.setattr(os, "fsync", to_disk)
    monkeypatch.setattr(Path, "replace", named)
    kept.answer()
    assert [" ".join(each) for each in done] == [
        "disk library",
        "named library",
        "disk digest",
        "named digest",
        "disk native",
    ]


def changed(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)


DAMAGES: dict[str, Callable[[Path], object]] = {
    "cut short": lambda path: os.truncate(path, path.stat().st_size // 2),
    "emptied": lambda path: path.write_bytes(b""),
    "changed": changed,
    "without digest": lambda path: path.with_suffix(".sha256").unlink(),
    "with a digest that is no text": lambda path: path.with_suffix(".sha256").write_bytes(b"\xff\xfe"),
    "writable for others": lambda path: path.chmod(0o777),
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_library_is_compiled_anew_once_and_never_loaded(kept: Kept, damage: str) -> None:
    kept.answer()
    path, whole = kept.library, kept.library.read_bytes()
    path.unlink()  # the library that this process has loaded is unaffected
    path.write_bytes(whole)
    path.chmod(0o700)
    DAMAGES[damage](path)
    assert [kept.answer(), kept.answer()] == [42, 42]
    assert kept.compiled == 2
    assert path.read_bytes() == whole


def test_the_folder_is_the_users_alone_whatever_it_was_before(kept: Kept) -> None:
    kept.folder.mkdir(parents=True)
    kept.folder.chmod(0o777)
    kept.answer()
    assert stat.S_IMODE(kept.folder.stat().st_mode) == 0o700


def test_another_users_folder_is_refused_in_words(kept: Kept, monkeypatch: pytest.MonkeyPatch) -> None:
    kept.answer()
    monkeypatch.setattr(os, "getuid", lambda: kept.folder.stat().st_uid + 1)
    with pytest.raises(CannotCompile, match=r"belongs to another user \(uid \d+\); remove that folder, or set XDG"):
        kept.answer()
    assert kept.compiled == 1


def test_another_users_file_in_the_folder_is_not_loaded(kept: Kept) -> None:
    if os.getuid():
        pytest.skip("Only root can give a file away.")
    kept.answer()
    os.chown(kept.library, 12345, 12345)
    kept.answer()
    assert (kept.compiled, kept.library.stat().st_uid) == (2, os.getuid())


def test_another_source_other_options_and_another_processor_have_libraries_of_their_own(
    kept: Kept, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept.answer()
    kept.source.write_text(SOURCE.replace("42", "43"))
    assert kept.answer() == 43
    assert native_library.load(CppSource(kept.source, (*OPTIONS, "-O3"))).answer() == 43
    monkeypatch.setattr(native_library, "cpu", lambda: "another")
    kept.answer()
    assert kept.compiled == 4


def test_a_compile_that_failed_is_not_tried_again_by_this_process(kept: Kept) -> None:
    kept.source.write_text("This is no C++.\n")
    for _ in range(3):
        with pytest.raises(CannotCompile, match="cannot compile it"):
            native_library.load(CppSource(kept.source, OPTIONS))
    assert kept.compiled == 1
    assert list(kept.folder.iterdir()) == []


def test_the_first_options_for_threads_that_compile_are_used(kept: Kept) -> None:
    kept.source.write_text("#ifdef _OPENMP\n" + SOURCE + "#else\n" + SOURCE.replace("42", "1") + "#endif\n")
    refused, ways = ("-no-such-option",), (("-fopenmp",), ())
    assert [
        native_library.load(CppSource(kept.source, OPTIONS, threads)).answer()
        for threads in (ways, (refused, *ways), (refused, ()))
    ] == [42, 42, 1]
    with pytest.raises(CannotCompile, match="no-such-option"):
        native_library.load(CppSource(kept.source, OPTIONS, (refused,)))


def test_the_code_compiles_without_openmp_and_a_mac_takes_torchs() -> None:
    command = ["c++", "-std=c++17", native.TUNED, "-fsyntax-only", "-Wall", "-Wno-unknown-pragmas", "-Werror"]
    subprocess.run([*command, native.SOURCE.path], check=True)
    first, last = native.openmp("darwin")
    assert f"-L{Path(torch.__file__).parent / 'lib'}" in first
    assert last == ()


@pytest.mark.parametrize(
    ("compiler", "said"),
    [
        ("", "no C++ compiler was found"),
        ("/nowhere/c++", "does not work"),
        ("g++ 'x", "which no shell could read (no closing quotation); correct it"),
        ("{folder}/broken", "cannot compile it (error: Sorry.)"),
        ("{folder}/liar", "or loaded from it"),
    ],
)
def test_without_a_working_compiler_the_model_runs_on_transformers_layers_with_a_notice(
    kept: Kept, monkeypatch: pytest.MonkeyPatch, compiler: str, said: str
) -> None:
    broken, liar = kept.root / "broken", kept.root / "liar"
    broken.write_text("#!/bin/sh\necho In a function: >&2\necho error: Sorry. >&2\nexit 1\n")
    liar.write_text('#!/bin/sh\nfor last; do :; done\necho no >"$last"\n')
    for script in (broken, liar):
        script.chmod(0o755)
    monkeypatch.setenv("CXX", compiler.format(folder=kept.root))
    monkeypatch.setattr(native_library, "COMPILERS", ())
    with pytest.raises(CannotCompile):
        native.library()
    model = hf.load(save_model(kept.root / "model", tiny("compiled llama")), "tiny")
    assert not model.layers.compiled
    assert said in (model.notice or "")
    assert (model.notice or "").startswith("Drafts take about six times as long as with compiled code on this CPU: ")
