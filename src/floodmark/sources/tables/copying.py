"""Reading ranges of a PostgreSQL table by COPY, straight into Arrow: large ones inside Spark's tasks, small ones here.

A row that comes through JDBC is made of objects, one for each value; COPY's text is parsed a column at a time. It is
taken where every column arrives exactly, which their types tell, and where tasks run in this very Python: elsewhere
nobody knows whether the driver is installed. A few rows come over the connection of the look, without a task that has
to connect. What COPY cannot read, JDBC does.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from io import BytesIO
from typing import TYPE_CHECKING

from floodmark.postgres import Address
from floodmark.probes.postgres import connect_read_only
from floodmark.probes.tables.dialects import Postgres as Dialect
from floodmark.spark.session import runs_here

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import DataType, StructType


BLOCK_BYTES = 4 * 2**20
"""As much is read at a time, and at most so much by this process itself."""
EXACT_FLOATS = "SET extra_float_digits = 1"
"""Old servers would otherwise leave out the last digits of a double."""
QUOTE = Dialect().quote


@dataclass(frozen=True)
class CopyReader:
    """Reads statements of one database by COPY, a task for each."""

    address: Address
    application: str
    copy_few: Callable[[str, int], bytes | None]
    """Runs a COPY over a connection that is open; None where there is more than so many bytes, or an error."""

    def few_rows(self, spark: SparkSession, schema: StructType, statement: str) -> DataFrame | None:
        """What this select gives, read now; None where it takes JDBC, which also says best what is wrong."""
        if not all(_is_exact(field.dataType) for field in schema.fields):
            return None
        from pyspark.sql.pandas.types import to_arrow_schema

        text = self.copy_few(_copy(schema, statement), BLOCK_BYTES)
        if text is None:
            return None
        as_arrow = to_arrow_schema(schema)
        return spark.createDataFrame(parse(text, as_arrow) if text else as_arrow.empty_table(), schema)

    def rows(self, spark: SparkSession, schema: StructType, statements: Sequence[str]) -> DataFrame | None:
        """What these selects give, in this schema; None where it takes JDBC."""
        if not runs_here(spark) or not all(_is_exact(field.dataType) for field in schema.fields):
            return None
        from pyspark.sql.pandas.types import to_arrow_schema

        copies = tuple(_copy(schema, statement) for statement in statements)
        task = CopyTask(self.address.resolve(), self.application, copies, to_arrow_schema(schema))
        return spark.range(0, len(copies), 1, len(copies)).mapInArrow(task.run, schema)


def _is_exact(kind: DataType) -> bool:
    """Whether the text of such a value, parsed by Arrow, is the value again."""
    from pyspark.sql import types as T

    exact = (T.ShortType, T.IntegerType, T.LongType, T.BooleanType, T.FloatType, T.DoubleType, T.DecimalType)
    return isinstance(kind, (*exact, T.DateType, T.StringType))


def _copy(schema: StructType, statement: str) -> str:
    from pyspark.sql.types import DateType

    # Days are counted: the text of a day before the year 1 is none that Arrow reads.
    days = {field.name for field in schema.fields if isinstance(field.dataType, DateType)}
    columns = [f"{QUOTE(n)} - DATE '1970-01-01'" if n in days else QUOTE(n) for n in schema.names]
    return f"COPY (SELECT {', '.join(columns)} FROM {statement}) TO STDOUT (FORMAT csv, ENCODING 'UTF8')"


@dataclass(frozen=True)
class CopyTask:
    """What a task does: it runs its statement and gives the rows as Arrow, a block at a time."""

    address: Address
    application: str
    copies: tuple[str, ...]
    schema: pa.Schema

    def run(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """The rows of the statements whose numbers are in the batches."""
        for batch in batches:
            for number in batch.column(0).to_pylist():
                for block in self._blocks(self.copies[number]):
                    yield from parse(block, self.schema).to_batches()

    def _blocks(self, copy: str) -> Iterator[bytes]:
        """What the server sends, some MB at a time; each piece that the driver gives is a whole row."""
        with connect_read_only(self.address, self.application) as connection, connection.cursor() as cursor:
            connection.execute(EXACT_FLOATS)
            rows: list[bytes | bytearray | memoryview] = []
            size = 0
            with cursor.copy(copy.encode()) as answer:
                for row in answer:
                    rows.append(row)
                    size += len(row)
                    if size >= BLOCK_BYTES:
                        yield b"".join(rows)
                        rows, size = [], 0
            if rows:
                yield b"".join(rows)


def parse(block: bytes, schema: pa.Schema) -> pa.Table:
    """Whole lines of PostgreSQL's CSV in this schema; an empty field without quotation marks is a null, with them not.

    Raises ArrowInvalid for a value that is none of its column's type.
    """
    import pyarrow as pa
    from pyarrow import csv

    as_read = pa.schema([pa.field(f.name, pa.int32() if f.type == pa.date32() else f.type) for f in schema])
    table = csv.read_csv(
        BytesIO(block),
        read_options=csv.ReadOptions(column_names=as_read.names, use_threads=False, block_size=len(block) + 1),
        parse_options=csv.ParseOptions(newlines_in_values=True, ignore_empty_lines=False),
        convert_options=csv.ConvertOptions(
            column_types=as_read,
            null_values=[""],
            strings_can_be_null=True,
            quoted_strings_can_be_null=False,
            true_values=["t"],
            false_values=["f"],
        ),
    )
    return table.cast(schema)
