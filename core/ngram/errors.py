"""The errors of a store."""

from core.errors import PolydraftError


class StoreError(PolydraftError):
    """The file is not a usable n-gram store: damaged, of another tokenizer, or written by a later version."""
