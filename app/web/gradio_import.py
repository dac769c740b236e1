"""Imports Gradio without the stub files that it writes for code editors.

For each of its components Gradio parses the component's source twice at every import, renders a template and writes a
`.pyi` file beside it, in the folder of installed packages. That takes a third of the import, and only programmers who
write Gradio code in an editor use the files.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder
from types import ModuleType

_WRITER, _FUNCTION = "gradio.component_meta", "create_or_modify_pyi"


class _WithoutStubs(MetaPathFinder, Loader):
    """Loads the module that writes the stubs, then replaces its function by one that does nothing."""

    def __init__(self) -> None:
        self._loader: Loader | None = None

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        spec = PathFinder.find_spec(fullname, path, target) if fullname == _WRITER else None
        if spec is not None:
            self._loader, spec.loader = spec.loader, self
        return spec

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        return None  # as usual

    def exec_module(self, module: ModuleType) -> None:
        assert self._loader is not None
        self._loader.exec_module(module)
        if hasattr(module, _FUNCTION):
            setattr(module, _FUNCTION, lambda *_: None)


def import_gradio() -> None:
    """Imports Gradio. Its environment variables must be set before."""
    finder = _WithoutStubs()
    sys.meta_path.insert(0, finder)
    try:
        importlib.import_module("gradio")
    finally:
        sys.meta_path.remove(finder)


@contextmanager
def without_stubs() -> Iterator[None]:
    """Defines a component without a stub file of its own, where another program has imported Gradio."""
    writer = importlib.import_module(_WRITER)
    written = getattr(writer, _FUNCTION, None)
    setattr(writer, _FUNCTION, lambda *_: None)
    try:
        yield
    finally:
        setattr(writer, _FUNCTION, written)
