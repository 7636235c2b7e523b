"""A Delta table in partitions by date, of which a batch exchanges exactly those that it names."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from floodmark.errors import ConfigError
from floodmark.sinks.contract import Batch, Recorded, Session
from floodmark.sinks.delta import PATIENCE_SECONDS, Delta
from floodmark.spark.delta_tables import quoted

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.types import StructType

NAMES_A_DATE = "_fm_date"
"""True on rows that only name a date of the batch: a date without other rows is emptied."""


@dataclass(frozen=True)
class DeltaDates:
    """Facts by date. The rows of a batch take the place of all rows with its dates; other dates' files are not touched.

    A batch names its dates by rows with NAMES_A_DATE, of which only the date counts.
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

    def schema(self, session: Session) -> StructType | None:
        return self._sink.schema(session)

    def fence(self, ledger: str, number: int, session: Session) -> None:
        self._sink.fence(ledger, number, session)

    def write(self, rows: DataFrame, batch: Batch) -> int | None:
        from pyspark.sql import functions as F

        if NAMES_A_DATE not in rows.columns:
            raise ConfigError(
                f"sink '{self.name}' was given rows that do not name their dates.",
                hint="it belongs to a floodmark.medallion.Fact",
            )
        if batch.kind == "refresh" or self.schema(lambda: rows.sparkSession) is None:
            return self._sink.write(rows.where(~F.col(NAMES_A_DATE)), batch)
        named = rows.where(NAMES_A_DATE).select(quoted(self.date)).distinct().collect()
        if not named:
            return replace(self._sink, mode="append").write(rows.limit(0), batch)  # only the number is recorded
        dates = ", ".join(str(row[0]) for row in sorted(named))
        return self._sink.write_where(rows.where(~F.col(NAMES_A_DATE)), batch, f"{quoted(self.date)} IN ({dates})")
