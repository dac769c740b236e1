"""Names of a package that are imported at their first use, so that a process pays only for the parts that it uses."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from typing import Any


def imported_at_first_use(package: str, names_by_module: Mapping[str, Sequence[str]]) -> Callable[[str], Any]:
    """Returns the package's `__getattr__` (PEP 562), which Python calls for a name that the package does not have.

    Args:
        names_by_module: the names of each module of the package, which a wheel moves into another one.
    """
    module_of = {name: module for module, names in names_by_module.items() for name in names}

    def attribute(name: str) -> Any:
        if name not in module_of:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        return getattr(import_module(f".{module_of[name]}", package), name)

    return attribute
