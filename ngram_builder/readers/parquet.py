"""Parquet with a column of text, row group by row group."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import BinaryIO

from core.errors import InputError
from ngram_builder.readers.base import Damage, Document, Report

COLUMNS = ("text", "raw_content", "content")
_ROWS = 256  # at a time


def parquet_documents(
    file: BinaryIO, path: str, size: int, report: Report, consumed: Callable[[int], None]
) -> Iterator[Document]:
    """`line` of a document is the number of its row. A row group that is damaged is reported and passed over.

    Raises InputError when pyarrow is not installed.
    """
    try:
        import pyarrow
        import pyarrow.parquet
    except ImportError as error:
        raise InputError(f"{path}: reading Parquet needs pyarrow: pip install 'polydraft[parquet]'.") from error
    try:
        shard = pyarrow.parquet.ParquetFile(file)
    except (pyarrow.ArrowException, OSError) as error:
        report(Damage(path, 0, f"no intact Parquet file: {_first_line(error)}"))
        return
    schema = shard.schema_arrow
    texts = [name for name in COLUMNS if name in schema.names and _is_text(schema.field(name).type)]
    if not texts:
        report(
            Damage(
                path, 0, f"no column of text called {' or '.join(COLUMNS)}; it has {', '.join(schema.names) or 'none'}"
            )
        )
        return
    row = 0
    for group in range(shard.num_row_groups):
        first, rows = row, shard.metadata.row_group(group).num_rows
        try:
            for batch in shard.iter_batches(_ROWS, row_groups=[group], columns=texts[:1], use_threads=False):
                for text in batch.column(0).to_pylist():
                    row += 1
                    if text is None:
                        report(Damage(path, row, f'"{texts[0]}" is empty, not text'))
                    elif text:
                        yield Document(text, path, row)
        except (pyarrow.ArrowException, OSError, UnicodeDecodeError) as error:
            report(Damage(path, row + 1, f"rows up to {first + rows} cannot be read: {_first_line(error)}"))
        row = first + rows
        consumed(size // shard.num_row_groups)


def _is_text(kind: object) -> bool:
    import pyarrow.types

    return pyarrow.types.is_string(kind) or pyarrow.types.is_large_string(kind) or pyarrow.types.is_string_view(kind)


def _first_line(error: Exception) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0].rstrip(".")
