"""The structure of the code: arrows between packages point one way, and no module imports itself by a detour."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterable, Iterator
from functools import cache
from pathlib import Path

import pytest

from tests.paths import ROOT

PACKAGES = ("app", "core", "ngram_builder", "research", "training")
ALLOWED = {  # package -> the packages that it may import
    "research": {"app", "core", "ngram_builder", "training"},
    "app": {"core", "ngram_builder", "training"},
    "ngram_builder": {"core.errors", "core.files", "core.lazy", "core.memory", "core.models", "core.ngram"},
    "training": {"core", "ngram_builder.readers"},
    "core": set(),
}

# The floors of `app`, from the top: a file imports from its own room and from lower floors.
FLOORS = (
    {"cli"}, {"web"}, {"clients"}, {"service"}, {"learning", "documents", "downloads"},
    {"options"}, {"wire"}, {"machine"},
)  # fmt: skip

Imports = dict[str, set[str]]


def module_name(path: Path) -> str:
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


@cache
def modules() -> dict[str, ast.Module]:
    """Every module of the product, by name. Parsing takes two seconds, so collecting the tests does not."""
    return {
        module_name(path): ast.parse(path.read_text(encoding="utf-8"))
        for package in PACKAGES
        for path in (ROOT / package).rglob("*.py")
    }


def statements(body: Iterable[ast.AST]) -> Iterator[ast.AST]:
    """Statements and those within them. Expressions, which are many more, contain none."""
    for node in body:
        yield node
        for part in ("body", "handlers", "orelse", "finalbody", "cases"):
            yield from statements(getattr(node, part, ()))


@cache
def imports_of_modules() -> Imports:
    """The modules that each module imports: at its head, inside functions and for types alone, which only hide a
    circle."""
    found: Imports = {name: set() for name in modules()}
    for name, tree in modules().items():
        for node in statements(tree.body):
            if isinstance(node, ast.Import):
                found[name] |= {alias.name for alias in node.names}
            elif isinstance(node, ast.ImportFrom) and node.module:
                inner = {alias.name: f"{node.module}.{alias.name}" for alias in node.names}
                found[name] |= {inner[n] if inner[n] in found else node.module for n in inner}
        found[name] -= {name}
    return found


def imports_of_scripts() -> Imports:
    """The scripts of the page that each script loads. `import("./x.js").Name` in a comment names a type."""
    pattern = re.compile(r'from "(\.[\w/.-]+\.js)"|import\("(\.[\w/.-]+\.js)"\)(?!\.)')
    found: Imports = {}
    for path in (ROOT / "app/static").rglob("*.js"):
        imported = {(path.parent / (a or b)).resolve() for a, b in pattern.findall(path.read_text(encoding="utf-8"))}
        found[path.as_posix()] = {other.as_posix() for other in imported - {path}}
    assert len(found) > 40
    return found


def circle(imports: Imports) -> list[str]:
    """The modules of the circles, and those between two circles; [] without a circle."""
    imports = {name: wanted & imports.keys() for name, wanted in imports.items()}
    while True:
        wanted = set().union(*imports.values())
        free = [name for name, its in imports.items() if not its & imports.keys() or name not in wanted]
        if not free:
            return sorted(imports)
        for name in free:
            del imports[name]


@pytest.mark.parametrize("imports", [imports_of_modules, imports_of_scripts], ids=["modules", "scripts"])
def test_no_module_imports_itself_by_a_detour(imports: Callable[[], Imports]) -> None:
    assert circle(imports()) == []


def test_a_circle_is_found() -> None:
    assert circle({"a": {"b"}, "b": {"c"}, "c": {"b"}, "d": set()}) == ["b", "c"]


def test_the_arrows_between_packages_point_one_way() -> None:
    wrong = {
        (name, other)
        for name, wanted in imports_of_modules().items()
        for other in wanted
        if (package := name.split(".")[0]) != other.split(".")[0] in PACKAGES
        and not any(f"{other}.".startswith(f"{allowed}.") for allowed in ALLOWED[package])
    }
    assert wrong == set()


def test_the_tests_of_the_product_do_not_import_research() -> None:
    """Only those of tests/research import `research`, also in code for other processes."""
    files = [path for path in (ROOT / "tests").rglob("*.py") if "research" not in path.relative_to(ROOT).parts]
    assert len(files) > 100
    statement = re.compile(r"^\s*(?:from|import) research\b", re.MULTILINE)
    found = [path.relative_to(ROOT).as_posix() for path in files if statement.search(path.read_text(encoding="utf-8"))]
    assert found == []
    assert statement.search("x = 1\n    from research.report import Report\n")


# In core: each may import those after it, never one before it.
DOWN = ("core.modes", "core.speculative", "core.superposed", "core.drafting", "core.samplers", "core.models")


def test_the_arrows_in_core_point_down() -> None:
    def floor(name: str) -> int | None:
        return next((i for i, part in enumerate(DOWN) if f"{name}.".startswith(f"{part}.")), None)

    upward = {
        (name, other)
        for name, wanted in imports_of_modules().items()
        for other in wanted
        if (own := floor(name)) is not None and (others := floor(other)) is not None and others < own
    }
    assert upward == set()


def defined_names(tree: ast.Module) -> set[str]:
    """Names that a module defines: functions, classes, fields, and attributes that methods set."""
    kinds = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef
    found = {node.name for node in ast.walk(tree) if isinstance(node, kinds)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
            found.add(node.attr)
        elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            found.add(node.target.id)
    return found


def is_private(name: str) -> bool:
    return name.startswith("_") and not name.startswith("__")


def private_names_of_others(tree: ast.Module) -> set[str]:
    """Private names that a module uses and does not define; `self._x` of a class above is the class's own."""
    found, own = set(), defined_names(tree)
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom):
            found |= {alias.name for alias in node.names if is_private(alias.name)}
        elif isinstance(node, ast.Attribute) and is_private(node.attr) and node.attr not in own:
            found |= {ast.unparse(node)} - {f"self.{node.attr}", f"cls.{node.attr}", "os._exit"}  # which is documented
    return found


def upward(imports: Imports) -> dict[str, set[str]]:
    """What the modules of `app` import from their own floor in another room, or from a higher floor."""
    floor = {room: number for number, rooms in enumerate(FLOORS) for room in rooms}
    found: dict[str, set[str]] = {}
    for name, imported in imports.items():
        room = name.split(".")[1] if name.startswith("app.") else ""
        wrong = {
            other
            for other in imported
            if room
            and other.startswith("app.")
            and (there := other.split(".")[1]) != room
            and floor[there] <= floor[room]
        }
        if wrong:
            found[name] = wrong
    return found


def test_the_floors_of_the_app_import_downwards() -> None:
    assert upward(imports_of_modules()) == {}
    made = {"app.service.a": {"app.wire.b", "app.web.c", "core.d"}, "app.learning.e": {"app.documents.f"}}
    assert upward(made) == {"app.service.a": {"app.web.c"}, "app.learning.e": {"app.documents.f"}}


def test_no_module_reaches_into_anothers_private_names() -> None:
    found = {name: private_names_of_others(tree) for name, tree in modules().items()}
    assert {name: names for name, names in found.items() if names} == {}
    assert private_names_of_others(ast.parse("from a import _b\nc._d()\nself._e()")) == {"_b", "c._d"}


def test_a_public_class_has_a_name_of_its_own() -> None:
    places: dict[str, list[str]] = {}
    for module, tree in modules().items():
        for node in tree.body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                places.setdefault(node.name, []).append(module)
    assert {name: modules for name, modules in places.items() if len(modules) > 1} == {}


def test_every_file_of_tests_has_a_name_of_its_own() -> None:
    """pytest imports them by their names, and leaves out a second file of a name."""
    names = [path.name for path in (ROOT / "tests").rglob("test_*.py")]
    assert [name for name in names if names.count(name) > 1] == []
