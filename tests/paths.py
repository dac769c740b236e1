"""Folders of the checkout that tests read."""

from pathlib import Path

TESTS = Path(__file__).parent
ROOT = TESTS.parent
DATA = TESTS / "data"


def with_compiled_code(folder: Path) -> None:
    """Makes a cache folder that has the compiled code, which takes 20 s to compile."""
    from platformdirs import user_cache_path

    compiled = user_cache_path("polydraft") / "native"
    compiled.mkdir(parents=True, mode=0o700, exist_ok=True)
    (folder / "polydraft").mkdir(parents=True)
    (folder / "polydraft" / "native").symlink_to(compiled)
