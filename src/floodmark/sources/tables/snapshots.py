"""A table that tells neither a version nor a time of change: all of it is looked at, and compared with what is known.

A look sums up the whole table in one pass; a table that adds up to what it did is not read. What is read is held
against the rows that a sink has, key by key, so the memory is the sink's own and nothing has to be kept beside it. A
table that changes between look and reading is read as it is then, and found to be another one by the next look.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta, timezone
from functools import cached_property, reduce
from operator import and_
from typing import TYPE_CHECKING, Any

from floodmark.errors import ConfigError, SourceUnreadable
from floodmark.hwm import ColumnDateTimeHWM, Span
from floodmark.locations import quote
from floodmark.sources.contract import Reading, Sight, StoredRows
from floodmark.spark.schemas import EXACT_JSON, align, comparable, digest_of

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame
    from pyspark.sql.types import DataType

    from floodmark.hwm import HWM, Json
    from floodmark.sources.contract import Request


SNAPSHOT_AT, DELETED = "snapshot_at", "_deleted"
"""What a snapshot adds to a row: the moment it was taken, and where that was said, whether its key is gone."""
DIGEST, COMPARED = "snapshot", "compared"
ROW, KNOWN = "_fm_row", "_fm_known"


@dataclass(frozen=True)
class SnapshotReader:
    """Looks at one table as a whole, and reads what differs from the stored rows."""

    entity: str
    name: str
    rows: DataFrame
    key: tuple[str, ...]
    stored: StoredRows | None
    tells_deletes: bool = False
    allow_empty: bool = False

    def look(self, mark: HWM[Any] | None, request: Request) -> Sight:
        """Nothing new if the table adds up to what it did. Raises SourceUnreadable for a key that two rows have."""
        self._require_columns()
        if request.start is not None:
            raise ConfigError(f"a snapshot of {self.entity} has no beginning.", hint="leave --from out")
        count, digest = self._sum()
        after = None if mark is None or mark.value is None or request.whole else mark
        if after is not None and request.extras.get(DIGEST) == digest:
            return Sight(None, expected_rows=0)
        if not count and not self._takes_empty(after):
            return Sight(None, expected_rows=0)
        upto = ColumnDateTimeHWM(self.name, self._moment(after), entity=self.entity, expression=SNAPSHOT_AT)
        is_compared = self.stored is not None and not request.whole
        return Sight(Span(after, upto, {"rows": count, COMPARED: is_compared}), extras={DIGEST: digest})

    def read(self, span: Span) -> Reading:
        """The rows that are new or another, and if that was asked for, those of keys that are gone."""
        spark, moment = self.rows.sparkSession, span.upto.value
        stored = self.stored.read(lambda: spark) if self.stored is not None and span.detail.get(COMPARED) else None
        if stored is None:
            return Reading(self.every_row(moment))
        self._require_stored(stored)
        return Reading(self._changes(self._newest(stored), moment))

    def every_row(self, moment: datetime | None) -> DataFrame:
        """The table with the columns that a snapshot adds."""
        from pyspark.sql import functions as F

        at = F.lit(moment.isoformat() if moment else None).cast("timestamp")
        rows = self.rows.withColumn(SNAPSHOT_AT, at)
        return rows.withColumn(DELETED, F.lit(False)) if self.tells_deletes else rows

    def _sum(self) -> tuple[int, Json]:
        """The number of rows, and what they add up to in any order."""
        from pyspark.sql import functions as F

        digests = digest_of([(F.col(quote(name)), kind) for name, kind in self._types.items()])
        keys = F.count_distinct(F.to_json(F.struct(*map(quote, self.key)), EXACT_JSON))
        sums = (F.count(F.lit(1)), keys, F.sum(digests.cast("decimal(38,0)")), F.bit_xor(digests))
        count, distinct, total, mixed = self.rows.agg(*sums).collect()[0]
        if distinct != count:
            raise SourceUnreadable(
                f"table {self.entity}",
                reason=f"{count - distinct} of {count} rows have a key that another row has ({', '.join(self.key)})",
                hint="name columns that are unique together in `key`",
            )
        return int(count), [str(count), str(total), str(mixed)]

    def _takes_empty(self, after: HWM[Any] | None) -> bool:
        """A table without rows has nothing to give, and is no proof that everything was deleted."""
        if after is None or not self.tells_deletes:
            return False
        if not self.allow_empty:
            raise SourceUnreadable(
                f"table {self.entity}",
                reason="it has no row at all, and `absent: delete` would delete everything that was read from it",
                hint="look why it is empty; `allow_empty: true` takes that for the deletion of all",
            )
        return True

    def _moment(self, after: HWM[Any] | None) -> datetime:
        """Now, and later than the snapshot before it, whatever the clock does."""
        now = datetime.now(timezone.utc)
        return now if after is None else max(now, after.value + timedelta(microseconds=1))

    def _newest(self, stored: DataFrame) -> DataFrame:
        """One stored row of each key, in the types that the table has today; without keys that are known to be gone."""
        from pyspark.sql import functions as F

        types = {each.name: each.dataType for each in stored.schema.fields}
        columns = [
            align(F.col(quote(n)), types[n], self._types[n]) if n in types else F.lit(None).cast(self._types[n])
            for n in self.rows.columns
        ]
        row = F.struct(*(each.alias(n) for each, n in zip(columns, self.rows.columns, strict=True)))
        is_gone = F.coalesce(F.col(DELETED), F.lit(False)) if DELETED in types else F.lit(False)
        every = stored.select(*map(quote, self.key), row.alias(ROW), is_gone.alias(DELETED), *self._order(stored))
        if self.stored is not None and self.stored.is_log:
            newest = F.max_by(F.struct(ROW, DELETED), F.col(SNAPSHOT_AT)).alias("_fm_newest")
            every = every.groupBy(*map(quote, self.key)).agg(newest).select(*map(quote, self.key), "_fm_newest.*")
        return every.where(f"NOT {DELETED}").select(F.col(ROW).alias(KNOWN))

    def _order(self, stored: DataFrame) -> list[str]:
        return [SNAPSHOT_AT] if SNAPSHOT_AT in stored.columns else []

    def _changes(self, known: DataFrame, moment: datetime) -> DataFrame:
        """What the table has and the sink has not, by one join over the keys."""
        from pyspark.sql import functions as F

        now = self.rows.select(F.struct(*map(quote, self.rows.columns)).alias(ROW))
        of_key = reduce(and_, (F.col(ROW)[n].eqNullSafe(F.col(KNOWN)[n]) for n in self.key))
        pairs = now.join(known, of_key, "full_outer" if self.tells_deletes else "left_outer")
        same = reduce(and_, (self._is_same(n) for n in self.rows.columns))
        changed = pairs.where(F.col(KNOWN).isNull() | F.col(ROW).isNull() | ~same)
        row = F.coalesce(F.col(ROW), F.col(KNOWN))
        added = {SNAPSHOT_AT: F.lit(moment.isoformat()).cast("timestamp")}
        if self.tells_deletes:
            added[DELETED] = F.col(ROW).isNull()
        return changed.select(row.alias(ROW), *(column.alias(n) for n, column in added.items())).select(
            f"{ROW}.*", *added
        )

    def _is_same(self, name: str) -> Column:
        from pyspark.sql import functions as F

        kind = self._types[name]
        return comparable(F.col(ROW)[name], kind).eqNullSafe(comparable(F.col(KNOWN)[name], kind))

    @cached_property
    def _types(self) -> Mapping[str, DataType]:
        return {each.name: each.dataType for each in self.rows.schema.fields}

    def _require_columns(self) -> None:
        missing = [name for name in self.key if name not in self.rows.columns]
        if missing:
            known = ", ".join(self.rows.columns)
            raise ConfigError(f"table {self.entity} has no column {missing[0]!r}.", hint=f"its columns are: {known}")
        own = [name for name in (SNAPSHOT_AT, DELETED) if name in self.rows.columns]
        if own:
            raise ConfigError(
                f"table {self.entity} has a column {own[0]!r}, which a snapshot adds itself.",
                hint="read a view of it that calls the column otherwise",
            )

    def _require_stored(self, stored: DataFrame) -> None:
        """What the comparison needs has to have passed the transform."""
        is_log = self.stored is not None and self.stored.is_log
        wanted = [
            *self.key,
            *((SNAPSHOT_AT,) if is_log else ()),
            *((DELETED,) if is_log and self.tells_deletes else ()),
        ]
        missing = [name for name in wanted if name not in stored.columns]
        if missing:
            raise ConfigError(
                f"snapshots of {self.entity} are compared with the job's first sink, which has no {missing[0]}.",
                hint=f"let the transform keep {', '.join(wanted)}",
            )
