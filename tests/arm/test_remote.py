"""The emulated library, as far as no emulator is needed."""

import re
from pathlib import Path

from core.models import native
from tests.arm.remote import Remote


def test_it_has_every_function_of_the_compiled_code() -> None:
    assert {*re.findall(r"\b(polydraft_\w+)", Path(native.__file__).read_text("utf-8"))} == {
        name for name in vars(Remote) if name.startswith("polydraft_")
    }
