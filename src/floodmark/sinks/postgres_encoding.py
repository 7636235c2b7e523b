"""How rows travel: in PostgreSQL's binary format where every column has a form in it, else as CSV, which it parses."""

from __future__ import annotations

import io
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from floodmark.sinks.postgres_binary import BinaryRows, form_of
from floodmark.sinks.postgres_types import binary_column, held_as, text_column

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import Column
    from pyspark.sql.types import StructField

    from floodmark.sinks.postgres_target import TargetColumn


class Encoding(Protocol):
    """A format of COPY; a stream is `opening`, the rows of any number of batches, and `closing`."""

    @property
    def options(self) -> str:
        """The options of the COPY statement."""

    @property
    def opening(self) -> bytes:
        """What a stream begins with."""

    @property
    def closing(self) -> bytes:
        """What a stream ends with."""

    def encoded(self, batch: pa.RecordBatch) -> memoryview:
        """The rows, as they may stand in a stream behind others. Called in a task."""


@dataclass(frozen=True)
class CsvRows:
    """Text: every string is quoted, so that an empty one is not taken for NULL."""

    types: tuple[str, ...]

    options = "FORMAT csv, ENCODING 'UTF8'"
    opening = b""
    closing = b""

    def encoded(self, batch: pa.RecordBatch) -> memoryview:
        import pyarrow as pa
        from pyarrow import csv

        columns = [as_text(column, kind) for column, kind in zip(batch.columns, self.types, strict=True)]
        text = io.BytesIO()
        options = csv.WriteOptions(include_header=False, quoting_style="needed", batch_size=10_000)
        csv.write_csv(pa.RecordBatch.from_arrays(columns, list(map(str, range(len(columns))))), text, options)
        return text.getbuffer()


def as_text(column: pa.Array, postgres: str) -> pa.Array:
    """Moments say that they are in UTC, whatever zone the server has; Arrow would write that at ten times the cost."""
    import pyarrow as pa
    import pyarrow.compute as pc

    if not pa.types.is_timestamp(column.type):
        return column
    in_utc = column.cast(pa.timestamp("us", column.type.tz and "UTC")).cast(pa.timestamp("us"))
    return (
        pc.binary_join_element_wise(in_utc.cast(pa.string()), "Z", "") if postgres.startswith("timestamp") else in_utc
    )


def encoding_of(fields: Sequence[StructField], columns: Sequence[TargetColumn]) -> tuple[Encoding, list[Column]]:
    """The format for these columns of the rows, and the columns as it takes them."""
    forms = [form_of(held_as(field), column.type) for field, column in zip(fields, columns, strict=True)]
    known = tuple(form for form in forms if form is not None)
    if len(known) == len(forms):
        return BinaryRows(known), list(map(binary_column, fields))
    return CsvRows(tuple(column.type for column in columns)), list(map(text_column, fields))
