"""A Delta table in partitions by date, of which a batch exchanges exactly those that it names."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from floodmark.errors import ConfigError
from floodmark.locations import quote
from floodmark.sinks.contract import Atomic, Batch, Recorded, Session
from floodmark.sinks.delta import PATIENCE_SECONDS, Delta

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.types import StructType


DATES = "floodmark.dates"
"""Under this name the column of the dates carries, in its metadata, the dates that a batch exchanges."""
ALL = "all"


def naming(rows: DataFrame, column: str, dates: Sequence[int] | None) -> DataFrame:
    """Rows that take the place of everything at these dates, also of those that have no rows; None: of all dates.

    The dates travel with the schema: rows that named them would be judged by rules, and cost a job to be found.
    """
    from pyspark.sql import functions as F

    numbered = rows.withColumn(column, F.col(quote(column)).cast("int"))
    return numbered.withMetadata(column, {DATES: ALL if dates is None else list(dates)})


@dataclass(frozen=True)
class DeltaDates(Atomic):
    """Facts by date. The rows of a batch take the place of all rows with its dates; other dates' files are not touched.

    A batch says by `naming` which dates it has.
    """

    path: str | None = None
    table: str | None = None
    date: str = "date_sk"
    name: str = "facts"
    evolve: bool = False
    patience_seconds: float = PATIENCE_SECONDS
    change_feed: bool = False
    _sink: Delta = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        sink = Delta(
            self.path,
            self.table,
            mode="replace",
            partition_by=(self.date,),
            name=self.name,
            evolve=self.evolve,
            patience_seconds=self.patience_seconds,
            change_feed=self.change_feed,
        )
        object.__setattr__(self, "_sink", sink)

    def describe(self) -> str:
        return self._sink.describe()

    def fingerprint(self) -> str:
        return f"delta dates {self.describe()} by {self.date}"

    def recorded(self, ledger: str, session: Session) -> Recorded | None:
        return self._sink.recorded(ledger, session)

    def holds_rows(self, session: Session) -> bool:
        """Dates are exchanged, so nothing is doubled."""
        return False

    def tables(self) -> tuple[Delta, ...]:
        return (self._sink,)

    def schema(self, session: Session) -> StructType | None:
        return self._sink.schema(session)

    def fence(self, ledger: str, number: int, session: Session) -> None:
        self._sink.fence(ledger, number, session)

    def write(self, rows: DataFrame, batch: Batch) -> int | None:
        dates = self._dates(rows)
        plain = rows.withMetadata(self.date, {})  # else it would become a part of the table's schema
        if batch.kind == "refresh" or dates == ALL or self.schema(lambda: rows.sparkSession) is None:
            return self._sink.write(plain, batch)
        if not dates:
            return replace(self._sink, mode="append").write(plain.limit(0), batch)  # only the number is recorded
        listed = ", ".join(map(str, sorted(dates)))
        return self._sink.write_where(plain, batch, f"{quote(self.date)} IN ({listed})")

    def _dates(self, rows: DataFrame) -> Sequence[int] | str:
        told = rows.schema[self.date].metadata.get(DATES) if self.date in rows.columns else None
        if told is None:
            raise ConfigError(
                f"sink '{self.name}' was given rows that do not name their dates.",
                hint="it belongs to a fact of floodmark.medallion",
            )
        return told  # type: ignore[no-any-return]
