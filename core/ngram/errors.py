"""What can be wrong with a store."""

from core.errors import PolydraftError


class StoreError(PolydraftError):
    """No n-gram store we can use: damaged, of another tokenizer, or written by a later version."""
