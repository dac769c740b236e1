"""The plugin of `make test-arm`: tests of compiled code run it for aarch64, under an emulator."""

from __future__ import annotations

from functools import cache

import pytest

from core.models import native
from tests.arm.remote import Remote


@pytest.fixture(scope="session", autouse=True)
def compiled_for_arm(tmp_path_factory: pytest.TempPathFactory) -> None:
    remote = Remote(tmp_path_factory.mktemp("arm"))
    setattr(native, "library", cache(lambda: remote))  # noqa: B010 a function of another type
