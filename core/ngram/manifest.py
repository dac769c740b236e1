"""The manifest of an n-gram store, as a strict model: what others wrote is checked before anything uses it."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, StringConstraints, ValidationError

from core.ngram.errors import StoreError

MOST_SOURCES = 10_000
MOST_SEGMENTS = 1 << 16

Count = Annotated[int, Field(ge=0, lt=1 << 63)]
Text = Annotated[str, StringConstraints(max_length=4096)]
Order = Annotated[str, StringConstraints(pattern=r"^\d{1,3}$")]


class _Part(BaseModel):
    model_config = ConfigDict(extra="allow", strict=True)


class _Tokenizer(_Part):
    fingerprint: Text
    name: Text = "another model"
    vocab_size: Count = 0


class _Source(_Part):
    name: Text


class _Keys(_Part):
    one: Count
    two: Count
    tokens: Count


class _Segment(_Part):
    first: Annotated[list[Count], Field(max_length=64)]
    entries: Count
    records: dict[str, Any]


class _Manifest(_Part):
    """The fields that every store has; `Records` checks its own. Version 1 has no segments."""

    tokenizer: _Tokenizer
    orders: Annotated[list[Count], Field(min_length=1, max_length=64)]
    keys: _Keys
    entries: Count
    closed: bool
    records: dict[str, Any]
    segments: Annotated[list[_Segment], Field(max_length=MOST_SEGMENTS)] = []
    documents: Count
    tokens: Count
    ngrams: dict[Order, Count]
    contexts: dict[Order, Count] = {}
    min_count: dict[Order, Count] = {}
    sources: Annotated[list[_Source], Field(max_length=MOST_SOURCES)]


def check_manifest(manifest: dict[str, Any], path: Path) -> None:
    """Raises StoreError, which names the first field that is missing or wrong."""
    try:
        _Manifest.model_validate(manifest)
    except ValidationError as error:
        field = ".".join(map(str, error.errors(include_url=False, include_input=False)[0]["loc"]))[:80]
        raise StoreError(f"{path} is damaged: {field} in its manifest is missing or wrong.") from None
