"""Rules that need the batch as a whole, or another table: the batch is frozen and judged before it is written."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import reduce
from operator import and_
from typing import TYPE_CHECKING

from floodmark.errors import ConfigError
from floodmark.fields import ColumnNames, NameOrDefault
from floodmark.locations import absolute
from floodmark.rules.contract import FOR_WHOLE_BATCHES, Action, check_action, require_columns

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

POSITION = "_fm_position"
"""Where the step puts a row's place in its source; the name is fixed by the contract of the sinks."""
KEY_FOUND, PLACE = "_fm_found", "_fm_place"


@dataclass(frozen=True)
class Unique:
    """No two rows of the batch have the same values here; with `path` or `table`, nor has a row of that Delta table.

    Of several rows with one key the first in the source's order is good. A key with a NULL in it is not.

    >>> Unique("id").describe()
    'id unique'
    """

    columns: ColumnNames = ColumnNames()
    path: str | None = None
    table: str | None = None
    action: Action = "fail"
    name: NameOrDefault = NameOrDefault()

    def __post_init__(self) -> None:
        require_columns(self.columns, rule="unique")
        check_action(self.name, self.action)
        if self.path is not None and self.table is not None:
            raise ConfigError(f"rule '{self.name}' has a path and a table.", hint="give one of the two, or none")

    def default_name(self) -> str:
        return f"unique_{'_'.join(self.columns)}"

    def describe(self) -> str:
        against = self.path or self.table
        return f"{', '.join(self.columns)} unique{f', also against {against}' if against else ''}"

    def compared(self, rows: DataFrame, column: str) -> DataFrame:
        from pyspark.sql import Window
        from pyspark.sql import functions as F

        order = F.col(POSITION) if POSITION in rows.columns else F.monotonically_increasing_id()
        placed = rows.withColumn(PLACE, order)
        window = Window.partitionBy(*map(F.col, self.columns)).orderBy(PLACE)
        whole = reduce(and_, (F.col(name).isNotNull() for name in self.columns))
        first = placed.withColumn(column, whole & (F.row_number().over(window) == 1)).drop(PLACE)
        known = self._known_keys()
        if known is None:
            return first
        found = known.look_up(first, KEY_FOUND)
        return found.withColumn(column, F.col(column) & F.col(KEY_FOUND).isNull()).drop(KEY_FOUND)

    def _known_keys(self) -> KnownKeys | None:
        if self.path is None and self.table is None:
            return None
        return KnownKeys(self.name, self.columns, self.columns, self.path, self.table, must_exist=False)


@dataclass(frozen=True)
class References:
    """The values of `columns` are a `key` of the Delta table at `path`, or called `table`.

    >>> References("customer_id", key="id", path="silver/customers").describe()
    'customer_id in silver/customers (id)'
    """

    columns: ColumnNames = ColumnNames()
    key: ColumnNames = ColumnNames()
    path: str | None = None
    table: str | None = None
    action: Action = "fail"
    name: NameOrDefault = NameOrDefault()

    def __post_init__(self) -> None:
        require_columns(self.columns, rule="references")
        require_columns(self.key, rule="references")
        check_action(self.name, self.action)
        if (self.path is None) == (self.table is None):
            raise ConfigError(f"rule '{self.name}' needs a table to look into.", hint="give either path or table")
        if len(self.columns) != len(self.key):
            raise ConfigError(f"rule '{self.name}' compares {len(self.columns)} columns with {len(self.key)}.", hint="")

    def default_name(self) -> str:
        return f"references_{'_'.join(self.columns)}"

    def describe(self) -> str:
        return f"{', '.join(self.columns)} in {self.path or self.table} ({', '.join(self.key)})"

    def compared(self, rows: DataFrame, column: str) -> DataFrame:
        from pyspark.sql import functions as F

        known = KnownKeys(self.name, self.columns, self.key, self.path, self.table, must_exist=True)
        return known.look_up(rows, KEY_FOUND).withColumn(column, F.col(KEY_FOUND)).drop(KEY_FOUND)


@dataclass(frozen=True)
class KnownKeys:
    """The keys that a Delta table holds when a batch is judged, and the columns that are compared with them."""

    rule: str
    columns: tuple[str, ...]
    key: tuple[str, ...]
    path: str | None
    table: str | None
    must_exist: bool

    def look_up(self, rows: DataFrame, found: str) -> DataFrame:
        """The rows with one more column: true where the table has the key, NULL where it has not."""
        from pyspark.sql import functions as F

        table = self._read(rows.sparkSession)
        if table is None:
            return rows.withColumn(found, F.lit(None).cast("boolean"))
        names = [f"_fm_key_{place}" for place in range(len(self.key))]
        keys = table.select(*(F.col(name).alias(to) for name, to in zip(self.key, names, strict=True))).distinct()
        same = reduce(and_, (F.col(own) == F.col(name) for own, name in zip(self.columns, names, strict=True)))
        return rows.join(keys.withColumn(found, F.lit(True)), same, "left").drop(*names)

    def _read(self, spark: SparkSession) -> DataFrame | None:
        """The table, or None if it is not there and need not be."""
        from pyspark.errors import AnalysisException

        try:
            delta = spark.read.format("delta")
            table = spark.table(self.table) if self.table else delta.load(absolute(self.path or ""))
            table.schema  # noqa: B018  (under Connect nothing is looked up before somebody asks)
        except AnalysisException as error:
            if not self.must_exist:
                return None
            raise ConfigError(
                f"rule '{self.rule}' looks into {self.path or self.table}, which cannot be read: "
                f"{str(error).splitlines()[0]}",
                hint="fill that table first, or correct the rule",
            ) from error
        return table


@dataclass(frozen=True)
class RowCount:
    """The batch has at least `min` and at most `max` rows, before any is dropped or quarantined.

    >>> RowCount(min=1).describe()
    '1 <= rows'
    """

    min: int = 1
    max: int | None = None
    action: Action = "fail"
    name: str = "row_count"

    def __post_init__(self) -> None:
        check_action(self.name, self.action, FOR_WHOLE_BATCHES)

    def describe(self) -> str:
        return f"{self.min} <= rows{f' <= {self.max}' if self.max is not None else ''}"

    def sums(self, at: datetime) -> Column:
        from pyspark.sql import functions as F

        rows = F.count(F.lit(1))
        return rows >= self.min if self.max is None else (rows >= self.min) & (rows <= self.max)

    def sample(self) -> Column:
        from pyspark.sql import functions as F

        return F.concat(F.count(F.lit(1)).cast("string"), F.lit(" rows"))


@dataclass(frozen=True)
class Fresh:
    """The newest value of the column is at most `within` older than the batch.

    >>> Fresh("ordered_at", within=timedelta(hours=24)).describe()
    'newest ordered_at within 1 day, 0:00:00'
    """

    column: str
    within: timedelta
    action: Action = "fail"
    name: NameOrDefault = NameOrDefault()

    def __post_init__(self) -> None:
        check_action(self.name, self.action, FOR_WHOLE_BATCHES)

    def default_name(self) -> str:
        return f"fresh_{self.column}"

    def describe(self) -> str:
        return f"newest {self.column} within {self.within}"

    def sums(self, at: datetime) -> Column:
        from pyspark.sql import functions as F

        return F.max(F.col(self.column).cast("timestamp")) >= F.lit(at - self.within)

    def sample(self) -> Column:
        from pyspark.sql import functions as F

        newest = F.max(F.col(self.column).cast("timestamp")).cast("string")
        return F.concat(F.lit("newest "), F.coalesce(newest, F.lit("none")))
