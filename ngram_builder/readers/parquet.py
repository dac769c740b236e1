"""Parquet with a column of text, row group by row group."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, BinaryIO

from core.errors import InputError
from ngram_builder.readers import base
from ngram_builder.readers.base import Document, Source, Unreadable, guarded, sound

COLUMNS = ("text", "raw_content", "content")
_ROWS = 256  # at a time


def parquet_documents(file: BinaryIO, source: Source, consumed: Callable[[int], None], size: int) -> Iterator[Document]:
    """The `line` of a document is the number of its row. A damaged row group is reported and skipped.

    Raises InputError when pyarrow is not installed.
    """
    try:
        import pyarrow.parquet
    except ImportError as error:
        raise InputError(f"{source.path}: reading Parquet needs pyarrow: pip install 'polydraft[parquet]'.") from error
    try:
        shard = guarded("not an intact Parquet file", pyarrow.parquet.ParquetFile, file)
        column = guarded("not an intact Parquet file", _column_of_text, shard)
        # Keep a dictionary column as a dictionary: a long text that is repeated in every row is stored once.
        again = partial(pyarrow.parquet.ParquetFile, metadata=shard.metadata, read_dictionary=[column])
        shard = guarded("not an intact Parquet file", again, file)
    except Unreadable as error:
        source.damaged(str(error))
        return
    row = 0
    for group in range(shard.num_row_groups):
        first = row
        rows = max(shard.metadata.row_group(group).num_rows, 0)
        try:
            guarded("", _check_size, shard.metadata.row_group(group))
            batches: Any = shard.iter_batches(_ROWS, row_groups=[group], columns=[column], use_threads=False)
            while (batch := guarded("", _next, batches)) is not None:
                source.check_cancelled()
                for value in batch.column(0):
                    row += 1
                    yield from _document(value, column, row, source)
        except Unreadable as error:
            source.damaged(f"rows up to {first + rows} cannot be read{error}", row + 1)
        row = first + rows
        consumed(size // shard.num_row_groups)


def _next(batches: Iterator[Any]) -> Any:
    return next(batches, None)


def _column_of_text(shard: Any) -> str:
    """The column to read. Raises Unreadable if there is none."""
    schema = shard.schema_arrow
    for name in COLUMNS:
        if name in schema.names and _is_text(schema.field(name).type):
            return name
    known = ", ".join(map(sound, schema.names)) or "none"
    raise Unreadable(f"no column of text called {' or '.join(COLUMNS)}; it has {known}")


def _check_size(group: Any) -> None:
    """Raises Unreadable for a row group that declares to unpack to more than text can."""
    packed = unpacked = 0
    for i in range(group.num_columns):
        column = group.column(i)
        if column.path_in_schema in COLUMNS:
            packed, unpacked = packed + column.total_compressed_size, unpacked + column.total_uncompressed_size
    if unpacked > max(base.FREE, base.RATIO * packed):
        raise Unreadable(f": they unpack to {unpacked >> 20} MiB, more than {base.RATIO} times their size")


def _document(value: Any, column: str, row: int, source: Source) -> Iterator[Document]:
    try:
        text = guarded(f'"{column}" is not text', value.as_py)
    except Unreadable as error:
        source.damaged(str(error), row)
        return
    if text is None:
        source.damaged(f'"{column}" is empty, not text', row)
    elif len(text) > base.LONGEST:
        source.damaged(f"longer than {base.LONGEST >> 20} Mi characters", row)
    elif text:
        yield Document(text, source.path, row)


def _is_text(kind: Any) -> bool:
    import pyarrow.types

    if pyarrow.types.is_dictionary(kind):
        kind = kind.value_type
    return pyarrow.types.is_string(kind) or pyarrow.types.is_large_string(kind) or pyarrow.types.is_string_view(kind)
