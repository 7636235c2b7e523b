"""Delta tables as tests look at them: without Spark, which takes five jobs for a table of two rows."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from deltalake import DeltaTable, QueryBuilder
from pyspark.sql.conversion import ArrowTableToRowsConversion
from pyspark.sql.types import StructType

if TYPE_CHECKING:
    from pyspark.sql import Row


def rows_of(path: Path | str, *columns: str) -> list[Row]:
    """What `spark.read.format("delta").load(path).select(*columns).collect()` gives; all columns if none is named."""
    table = DeltaTable(str(path))
    stored = StructType.fromJson(json.loads(table.schema().to_json()))
    schema = StructType([stored[name] for name in columns or stored.names])
    # Not to_pyarrow_table: it knows no deletion vectors, and gives NULL for columns that have other names in the files.
    found = QueryBuilder().register("t", table).execute(f"SELECT {', '.join(map(quoted, schema.names))} FROM t")
    return ArrowTableToRowsConversion.convert(pa.table(found.read_all()), schema)


def sorted_rows(path: Path | str, *columns: str) -> list[tuple[Any, ...]]:
    """The same as plain tuples, in their own order."""
    return sorted(map(tuple, rows_of(path, *columns)))


def columns_of(path: Path | str) -> list[str]:
    return [field.name for field in DeltaTable(str(path)).schema().fields]


def quoted(name: str) -> str:
    """Else DataFusion would look for it in lower case."""
    doubled = name.replace('"', '""')
    return f'"{doubled}"'
