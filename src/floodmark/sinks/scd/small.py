"""Small batches of a table with history: the events of their keys come to the driver, which rebuilds and commits them.

The rules are those of `events`, over lists instead of Spark's columns. Whatever is not known to be judged alike here is
left to Spark by AnotherWay: other ways to settle ties, logs that were pruned, keys that are many.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import groupby
from typing import TYPE_CHECKING, Any, TypeAlias

from floodmark.locations import quote
from floodmark.sinks.contract import DELETE
from floodmark.sinks.delta import choice
from floodmark.sinks.delta.arrow import (
    MOST_KEYS,
    ArrowWriter,
    all_columns,
    in_columns,
    keys_predicate,
    nullable,
    rank,
)
from floodmark.sinks.delta.choice import AnotherWay
from floodmark.sinks.delta.native import tidy_log
from floodmark.sinks.scd.events import DELETED, INTERVAL, IS_CURRENT, REFUSED, VALID_FROM, VALID_TO, log_rows
from floodmark.sinks.scd.tables import SETTLED
from floodmark.sinks.small import SMALL_ROWS
from floodmark.spark.table_files import table_schema

if TYPE_CHECKING:
    import pyarrow as pa
    from deltalake import DeltaTable
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

    from floodmark.probes.delta import DeltaProbe
    from floodmark.sinks.contract import Batch
    from floodmark.sinks.scd.events import Ordering
    from floodmark.sinks.scd.tables import HistoryTables

MOST_FILES = 500
"""Of a log or table that are looked into for the keys of a batch: each costs a little, however few rows are in it."""
Rank: TypeAlias = "tuple[Any, ...]"


@dataclass(frozen=True)
class SmallBatch:
    """One batch of a table with history on its way through Arrow.

    Every method may raise AnotherWay. `add` has committed nothing then; `rebuild` has not touched the table, which
    Spark can rebuild from the log as after a crash.
    """

    tables: HistoryTables
    events: DataFrame
    batch: Batch

    @property
    def spark(self) -> SparkSession:
        return self.events.sparkSession

    @cached_property
    def log(self) -> ArrowWriter:
        """The way of the events into the log."""
        order, ledger = self.tables.order, self.batch.ledger(self.tables.name)
        rows = log_rows(self.events, order, None, ledger=ledger, number=self.batch.number)
        return ArrowWriter(self.tables.log.sink, rows, self.batch)

    @cached_property
    def table(self) -> RowsWriter:
        """The way of the rebuilt rows into the table; what it is made with has their columns and none of them."""
        sink = replace(self.tables.table.sink, mode="append", key=())
        rows = self.spark.createDataFrame([], self.row_schema())
        return RowsWriter(sink, rows, self.batch, identity=self.tables.table.identity)

    def row_schema(self) -> StructType:
        """The columns of the table, as `versions` and `latest` give them."""
        from pyspark.sql.types import BooleanType, StructField, StructType

        events = self.log.rows.schema
        payload = [events[name] for name in self.tables.order.payload(events.names)]
        if not self.is_versioned:
            return StructType(payload)
        moment = events[self.tables.order.moment].dataType
        ends = [StructField(name, moment) for name in (VALID_FROM, VALID_TO)]
        return StructType([*payload, *ends, StructField(IS_CURRENT, BooleanType())])

    @property
    def is_versioned(self) -> bool:
        """Whether the table has every version of a key, and not only its latest row."""
        return VALID_FROM in self.tables.table.identity

    def add(self) -> AddedEvents:
        """The first commit, once the events are known not to contradict each other."""
        self.require_plain_rules()
        log, table = (self.probe_of(writer) for writer in (self.log, self.table))
        if (log is None) != (table is None):
            raise AnotherWay("only one of log and table is there")
        arrow = self.log.collect(None)
        version, before = (log.latest() if log else None), (table.latest() if table else None)
        arriving = arrow.sort_by([(name, "ascending") for name in (*self.tables.order.key, self.tables.order.moment)])
        every = self.events_of_keys(arriving, log)
        counting = Events(every, self.tables.order).counting()
        held = self.held_rows(every, table)
        new = self.rows_of(every, counting)

        def commit(found: DeltaProbe | None) -> None:
            require_version(found, version)
            self.log.commit(arriving, found)

        self.log.sink.target.write_natively(self.batch, commit, self.log.session)
        return AddedEvents(arriving.num_rows, 0 if version is None else version + 1, before, new, held)

    def rebuild(self, added: AddedEvents) -> bool:
        """The second commit: what the keys' events make of the rows that the table has of them."""
        changes = row_changes(added.new, added.held, self.tables.table.identity)

        def commit(found: DeltaProbe | None) -> None:
            require_version(found, added.table_version)
            require_version(self.log.sink.target.probe(self.log.session), added.log_version)
            self.table.commit(changes, found)

        self.table.sink.target.write_natively(self.batch, commit, self.table.session)
        return True

    def require_plain_rules(self) -> None:
        """Nothing was decided about events, or is to be, that only Spark's way knows."""
        order, session = self.tables.order, lambda: self.spark
        if self.batch.kind == "refresh":
            raise AnotherWay("the whole table is rebuilt")
        if order.ties != "error":
            raise AnotherWay(f"the sink has on_conflict: {order.ties}")
        if self.tables.log.was_pruned(session) or self.tables.table.number(SETTLED, session):
            raise AnotherWay("the log was pruned, or events in it were set aside")
        ledger = self.batch.ledger(self.tables.name)
        if self.tables.log.number(ledger, session) != self.tables.table.number(ledger, session):
            raise AnotherWay("log and table are not at the same batch")
        schema = self.log.rows.schema
        if any("map" in schema[name].dataType.json() for name in order.payload(schema.names)):
            raise AnotherWay("a column has a map, which has no order")
        if order.first_from and schema[order.first_from].dataType != schema[order.moment].dataType:
            raise AnotherWay("the column that says when a key began has another type than its sequence")

    def probe_of(self, writer: ArrowWriter) -> DeltaProbe | None:
        """The look at a table that allows the batch; None where there is no table yet."""
        writer.require_plain_sink()
        probe = writer.sink.target.probe(writer.session)
        if writer.sink.target.has(probe, self.batch):
            raise AnotherWay("the batch was begun before")
        writer.require_small(probe)
        writer.require_fitting(probe)
        columns = table_schema(probe.schema_json()) if probe else writer.columns
        choice.require_types(columns, self.tables.order.key, "is matched by")
        if set(columns.names) != set(writer.columns.names):
            raise AnotherWay("the table has other columns")
        return probe

    def events_of_keys(self, arriving: pa.Table, log: DeltaProbe | None) -> pa.Table:
        """All events that count for the keys which arrive: those of the log, and the new ones."""
        import pyarrow as pa
        import pyarrow.compute as pc

        fresh = nullable(arriving.filter(pc.is_null(arriving[REFUSED])))
        if log is None or not fresh.num_rows:
            return fresh
        stored = rows_of_keys(log, fresh, self.tables.order.key)
        accepted = stored.filter(pc.is_null(stored[REFUSED])).select(fresh.column_names)
        return pa.concat_tables([accepted, fresh.cast(accepted.schema)])

    def held_rows(self, every: pa.Table, table: DeltaProbe | None) -> pa.Table:
        """What the table has of the keys."""
        if table is None or not every.num_rows:
            return self.table_schema(every).empty_table()
        return rows_of_keys(table, every, self.tables.order.key).select(self.table.columns.names)

    def rows_of(self, every: pa.Table, counting: Sequence[int]) -> pa.Table:
        """The table's rows for these events, which are all that their keys have."""
        import pyarrow as pa

        order, events = self.tables.order, Events(every, self.tables.order)
        payload = every.select(order.payload(every.column_names))
        if not self.is_versioned:
            return payload.take(pa.array(latest(events, counting), pa.int64()))  # of none, too
        return with_interval(payload, versions(events, counting), every, order)

    def table_schema(self, every: pa.Table) -> pa.Schema:
        """The columns of the table as Arrow has them."""
        return self.rows_of(every.slice(0, 0), ()).schema


@dataclass(frozen=True)
class AddedEvents:
    """What the first commit of a batch leaves for the second: rows as they have to be, and as the table has them."""

    count: int
    log_version: int
    table_version: int | None
    new: pa.Table
    held: pa.Table


@dataclass(frozen=True)
class RowsWriter(ArrowWriter):
    """Rows of a table with history: they say themselves whether they delete, and `identity` tells them apart."""

    identity: tuple[str, ...] = ()

    def change(self, table: DeltaTable, arrow: pa.Table, probe: DeltaProbe) -> None:
        schema = table_schema(probe.schema_json())
        rows = in_columns(arrow, schema)
        if rows.num_rows:
            choice.require_few_bytes(probe.files(), rows, self.identity)
            self.merge_rows(table, rows, schema)
        else:
            self.save(table, all_columns(rows.drop_columns([DELETE]), table), schema)  # the number is recorded
        tidy_log(table, probe.properties())

    def merge_rows(self, table: DeltaTable, rows: pa.Table, schema: StructType) -> None:
        """One merge. Files are chosen by the key alone, as the log has times without their microseconds."""
        equal = [f"t.{quote(name)} = s.{quote(name)}" for name in self.identity if name not in INTERVAL]
        begun = [f"t.{name} IS NOT DISTINCT FROM s.{name}" for name in self.identity if name in INTERVAL]
        matched = " AND ".join([*equal, *begun])
        values = {quote(name): f"s.{quote(name)}" for name in rows.column_names if name != DELETE}
        merger = table.merge(rows, matched, "s", "t", streamed_exec=False, **self.options(schema, is_append=False))
        merger = merger.when_matched_delete(f"s.{DELETE}").when_matched_update(values, f"NOT s.{DELETE}")
        merger.when_not_matched_insert(values, f"NOT s.{DELETE}").execute()


def require_version(probe: DeltaProbe | None, version: int | None) -> None:
    """The table is as it was read. Raises AnotherWay."""
    if (probe.latest() if probe else None) != version:
        raise AnotherWay("another one has written to the table since it was read")


def rows_of_keys(probe: DeltaProbe, keys: pa.Table, key: Sequence[str]) -> pa.Table:
    """The rows of a table whose key is among these. Raises AnotherWay where too much would be read for them."""
    import pyarrow as pa
    import pyarrow.compute as pc

    own = keys.select(list(key)).group_by(list(key)).aggregate([])
    if own.num_rows > MOST_KEYS:
        raise AnotherWay(f"it has more than {MOST_KEYS} keys")
    files = probe.files()
    if files.num_rows > MOST_FILES:
        raise AnotherWay(f"a table of {files.num_rows} files is read for its keys")
    choice.require_few_bytes(files, own, key)
    found = probe.scan(keys_predicate(own, key))
    wanted = set(zip(*(own[name].to_pylist() for name in key), strict=True))
    mask = [each in wanted for each in zip(*(found[name].to_pylist() for name in key), strict=True)]
    rows = nullable(found.filter(pa.array(mask, pa.bool_())))
    if rows.num_rows > SMALL_ROWS:
        raise AnotherWay(f"its keys have {pc.sum(pa.array(mask, pa.int64())).as_py():,} rows")
    return rows


class Events:
    """Events as lists of values that compare as Spark compares them."""

    def __init__(self, rows: pa.Table, order: Ordering) -> None:
        self.rows, self.order = rows, order
        payload = order.payload(rows.column_names)
        self.key, self.sequence = ranks(rows, order.key), ranks(rows, order.sequence)
        self.state, self.whole = ranks(rows, order.tracked_columns(rows.column_names)), ranks(rows, payload)
        self.deleted: list[bool] = rows[DELETED].to_pylist()
        self.first = ranks(rows, [order.first_from or order.moment])

    def counting(self) -> list[int]:
        """As `winners` and `last_of_each_moment`: the places of those that count, by key and moment.

        Raises AnotherWay where two contradict each other: Spark has the words for it.
        """
        by_sequence = sorted(range(len(self.key)), key=lambda n: (self.key[n], self.sequence[n]))
        best = [self.best(list(alike)) for _, alike in groupby(by_sequence, lambda n: (self.key[n], self.sequence[n]))]
        return [list(alike)[-1] for _, alike in groupby(best, lambda n: (self.key[n], self.sequence[n][0]))]

    def best(self, alike: Sequence[int]) -> int:
        """Of events that share key and sequence: a delete, or the highest by value."""
        chosen = max(alike, key=lambda n: (self.deleted[n], self.whole[n]))
        if not self.deleted[chosen] and len({self.state[n] for n in alike}) > 1:
            raise AnotherWay("two events of one key and sequence contradict each other")
        return chosen

    def meaning(self, place: int) -> Rank:
        """What an event makes of its key: a deleted one has no values."""
        return (True,) if self.deleted[place] else (False, self.state[place])


@dataclass(frozen=True)
class Version:
    """A version by the places of events: whose row it shows, whose moment begins it, whose moment ends it."""

    row: int
    begin: int
    end: int | None
    begins_early: bool
    """Whether it begins at what the first event says of its key's beginning."""


def versions(events: Events, counting: Iterable[int]) -> list[Version]:
    """As `versions` of `events`."""
    found: list[Version] = []
    for _, of_key in groupby(counting, lambda n: events.key[n]):
        runs = [list(alike) for _, alike in groupby(of_key, events.meaning)]
        for place, run in enumerate(runs):
            end = runs[place + 1][0] if place + 1 < len(runs) else None
            if not events.deleted[run[-1]]:
                first, moment = events.first[run[0]][0], events.sequence[run[0]][0]
                early = place == 0 and first[0] and first < moment
                found.append(Version(run[-1], run[0], end, early))
    return found


def latest(events: Events, counting: Iterable[int]) -> list[int]:
    """As `latest` of `events`: the places of the last event of each key that does not delete it."""
    last = (list(of_key)[-1] for _, of_key in groupby(counting, lambda n: events.key[n]))
    return [place for place in last if not events.deleted[place]]


def with_interval(payload: pa.Table, found: Sequence[Version], every: pa.Table, order: Ordering) -> pa.Table:
    """The rows of versions, with the moments between which they hold."""
    import pyarrow as pa

    moments = every[order.moment].combine_chunks()
    firsts = every[order.first_from or order.moment].combine_chunks()
    both = pa.chunked_array([moments, firsts], moments.type)
    begins = [each.begin + (len(moments) if each.begins_early else 0) for each in found]
    rows = payload.take(pa.array([each.row for each in found], pa.int64()))
    rows = rows.append_column(VALID_FROM, both.take(pa.array(begins, pa.int64())))
    rows = rows.append_column(VALID_TO, both.take(pa.array([each.end for each in found], pa.int64())))
    return rows.append_column(IS_CURRENT, pa.array([each.end is None for each in found], pa.bool_()))


def row_changes(new: pa.Table, held: pa.Table, identity: Sequence[str]) -> pa.Table:
    """As `row_changes` of `events`: rows to put, and with DELETE, rows to take out."""
    import pyarrow as pa

    held = held.cast(new.schema)
    columns = new.column_names
    wanted, stored = (dict(zip(ranks(rows, identity), ranks(rows, columns), strict=True)) for rows in (new, held))
    if len(stored) < held.num_rows:
        raise AnotherWay("the table has a version twice")
    put = [n for n, own in enumerate(ranks(new, identity)) if stored.get(own) != wanted[own]]
    gone = [n for n, own in enumerate(ranks(held, identity)) if own not in wanted]
    parts = [new.take(pa.array(put, pa.int64())), held.take(pa.array(gone, pa.int64()))]
    flags = pa.array([False] * len(put) + [True] * len(gone), pa.bool_())
    return pa.concat_tables(parts).append_column(DELETE, flags)


def ranks(rows: pa.Table, names: Sequence[str]) -> list[Rank]:
    """For each row the values of these columns, as something that compares as Spark compares them."""
    columns = [[rank(value) for value in plain_values(rows[name])] for name in names]
    return list(zip(*columns, strict=True)) if columns else [()] * rows.num_rows


def plain_values(column: pa.ChunkedArray) -> list[Any]:
    """The values of a column; days and moments as numbers, since Python has not all of Spark's."""
    import pyarrow as pa

    if pa.types.is_timestamp(column.type):
        return column.cast(pa.int64()).to_pylist()  # type: ignore[no-any-return]
    if pa.types.is_date(column.type):
        return column.cast(pa.int32()).to_pylist()  # type: ignore[no-any-return]
    try:
        return column.to_pylist()  # type: ignore[no-any-return]
    except (ValueError, OverflowError) as error:
        raise AnotherWay(f"Python cannot hold a value of it: {error}") from error
