"""Small batches into a Delta table: their rows leave Spark as Arrow, and `deltalake` commits them with their number.

Which batches and tables that is for, `choice` says. The rules of a merge are those of `merge`; what would be refused
there is left to Spark's writer here, which has the words for it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date
from typing import TYPE_CHECKING, Any

from floodmark.locations import local_path, quote
from floodmark.logs import get_logger
from floodmark.sinks.contract import DELETE, OWN, POSITION, without_own
from floodmark.sinks.delta import choice
from floodmark.sinks.delta.choice import AnotherWay
from floodmark.sinks.delta.merge import ROW, not_older
from floodmark.sinks.delta.native import NativeWriter, tidy_log
from floodmark.sinks.modes import with_deletes
from floodmark.sinks.small import rows_as_arrow, why_not_small
from floodmark.spark.table_files import table_schema

if TYPE_CHECKING:
    import pyarrow as pa
    from deltalake import DeltaTable
    from pyspark.sql.types import StructType

    from floodmark.probes.delta import Commit, DeltaProbe

log = get_logger(__name__)
MOST_KEYS = 1_000
"""Of a batch that are looked up in the table before they are merged."""


@dataclass(frozen=True)
class ArrowWriter(NativeWriter):
    """One batch of one sink on its way through Arrow."""

    condition: str | None = None
    """Of the rows whose place a replacement takes; None: of all."""
    named_by: tuple[str, ...] = ()
    """Rows that share a key and differ in these columns stop a merge."""
    known_by: tuple[str, ...] = ()
    """An append leaves out the rows that the table has, as these columns tell."""

    def write_new(self, probe: DeltaProbe | None) -> Commit | None:
        self.require_small(probe)
        self.require_fitting(probe)
        compared = probe.latest() if probe and self.known_by else None
        arrow = self.collect(compared)
        chosen = newest_rows(arrow, self.sink.key, self.sink.sequence) if self.sink.mode == "merge" else arrow

        def commit(found: DeltaProbe | None) -> None:
            if self.known_by and (found.latest() if found else None) != compared:
                raise AnotherWay("the table has changed since the rows were compared with it")
            self.commit(chosen, found)

        return self.sink.target.write_natively(self.batch, commit, self.session)

    def require_small(self, probe: DeltaProbe | None) -> None:
        """The batch is known to be small, and not known to touch large files: else its rows would come here in vain."""

        def rows_before() -> int | None:
            before = probe.last_batch(self.ledger) if probe else None
            return before.rows_written if before else None

        reason = why_not_small(self.batch.size, rows_before)
        if reason is not None:
            raise AnotherWay(reason)
        if probe is not None and (self.sink.key or self.sink.by):
            choice.require_few_bytes_before(probe.file_sizes(), probe.last_batch(self.ledger))

    def collect(self, compared: int | None) -> pa.Table:
        """The rows, with what a merge chooses by; without those that the table had at the version `compared`."""
        rows = self.rows if compared is None else self.sink.without_known(self.rows, compared)
        wanted = with_deletes(rows, self.sink.delete_when) if self.sink.mode == "merge" else without_own(rows)
        try:
            arrow = rows_as_arrow(wanted, self.batch)
        except Exception as error:
            self.sink.target.explain(error, self.batch, self.session)
            raise
        if arrow is None:
            raise AnotherWay("it has more rows than are small, or such that Arrow does not take")
        return arrow

    def commit(self, arrow: pa.Table, probe: DeltaProbe | None) -> None:
        """Commit on top of the very look that found the number free."""
        from deltalake.exceptions import DeltaError
        from pyarrow import ArrowException

        self.require_fitting(probe)
        choice.require_partition_values(arrow, probe.partitions() if probe else self.sink.partition_by)
        try:
            if probe is None:
                self.make_table(arrow)
            else:
                probe.commit(lambda table: self.change(table, arrow, probe))
        except (DeltaError, ArrowException) as error:
            raise AnotherWay(f"deltalake refused it: {error}") from error

    def make_table(self, arrow: pa.Table) -> None:
        """The first rows make the table, in one commit."""
        from deltalake import write_deltalake

        location = local_path(str(self.sink.target.location(self.session())))
        write_deltalake(
            str(location),
            nullable(without_deletes(arrow)),
            mode="error",  # one that came since is another's, and nobody has asked it for our number
            partition_by=list(self.sink.partition_by) or None,
            configuration=dict(self.sink.target.properties) or None,
            **self.options(self.columns, is_append=True),
        )

    def change(self, table: DeltaTable, arrow: pa.Table, probe: DeltaProbe) -> None:
        """Append, overwrite or merge."""
        before, schema = table.version(), table_schema(probe.schema_json())
        if self.is_refresh:
            self.save_all(table, nullable(without_deletes(arrow)))
        elif self.sink.mode == "merge":
            self.merge(table, in_columns(arrow, schema), schema, probe)
        elif self.sink.by:
            self.exchange(table, in_columns(arrow, schema), schema, probe)
        else:
            self.require_few_changes(probe)
            self.save(table, in_columns(arrow, schema), schema)
        if table.version() == before:  # a merge that changes nothing makes no commit, and the number has to be recorded
            self.save(table, in_columns(arrow.slice(0, 0), schema), schema)
        tidy_log(table, probe.properties())

    def save(self, table: DeltaTable, arrow: pa.Table, schema: StructType) -> None:
        """All rows at the end of the table, or in the place of those that the sink's condition, or none, names."""
        from deltalake import write_deltalake

        is_append = self.sink.mode != "replace" or bool(self.sink.by)
        options, rows = self.options(schema, is_append=is_append), all_columns(arrow, table)
        if is_append:
            write_deltalake(table, rows, mode="append", **options)
        else:
            write_deltalake(table, rows, mode="overwrite", predicate=self.condition, **options)

    def save_all(self, table: DeltaTable, arrow: pa.Table) -> None:
        """The rows and their columns in the place of all that the table has."""
        from deltalake import write_deltalake

        options = self.options(self.columns, is_append=False)
        write_deltalake(table, arrow, mode="overwrite", schema_mode="overwrite", **options)

    def require_few_changes(self, probe: DeltaProbe) -> None:
        """A change feed has every row that an overwrite takes away: they are read for it."""
        if self.sink.mode == "replace" and probe.feed_is_on() and sum(probe.file_sizes()) > choice.REWRITTEN_BYTES:
            raise AnotherWay("the table is large, and its feed has to tell every row that goes")

    def merge(self, table: DeltaTable, arrow: pa.Table, schema: StructType, probe: DeltaProbe) -> None:
        """As `merge_statement`."""
        choice.require_few_bytes(probe.files(), arrow, self.sink.key)
        stored = {column.name.lower() for column in schema.fields}
        sequence, named_by = (
            names if all(name.lower() in stored for name in names) else ()
            for names in (self.sink.sequence, self.named_by)
        )
        if named_by:
            require_same_names(table, arrow, self.sink.key, named_by)
        newer = f" AND {not_older(sequence)}" if sequence else ""
        matched = " AND ".join(f"t.{quote(name)} = s.{quote(name)}" for name in self.sink.key)
        values = {quote(name): f"s.{quote(name)}" for name in arrow.column_names if not name.startswith(OWN)}
        merger = table.merge(arrow, matched, "s", "t", streamed_exec=False, **self.options(schema, is_append=False))
        merger = merger.when_matched_delete(f"s.{DELETE}{newer}")
        merger = merger.when_matched_update(values, f"NOT s.{DELETE}{newer}")
        merger.when_not_matched_insert(values, f"NOT s.{DELETE}").execute()

    def exchange(self, table: DeltaTable, arrow: pa.Table, schema: StructType, probe: DeltaProbe) -> None:
        """As `replace_statement`."""
        choice.require_few_bytes(probe.files(), arrow, self.sink.by)
        values = {quote(name): f"s.{quote(name)}" for name in arrow.column_names}
        equal = " AND ".join(f"t.{quote(name)} IS NOT DISTINCT FROM s.{quote(name)}" for name in self.sink.by)
        options = self.options(schema, is_append=False)
        source = with_deleting_rows(arrow, self.sink.by)
        merger = table.merge(source, f"NOT s.{ROW} AND {equal}", "s", "t", streamed_exec=False, **options)
        merger.when_matched_delete().when_not_matched_insert(values, f"s.{ROW}").execute()

    def options(self, schema: StructType, *, is_append: bool) -> dict[str, Any]:
        """How the rows are written, and what the commit is made with."""
        from deltalake import ColumnProperties, WriterProperties

        bare = {name: ColumnProperties(statistics_enabled="NONE") for name in choice.without_statistics(schema)}
        written = WriterProperties(compression="SNAPPY", column_properties=bare or None)
        return {"writer_properties": written, **self.commit_options(is_append=is_append)}


def require_same_names(table: DeltaTable, rows: pa.Table, key: Sequence[str], named_by: Sequence[str]) -> None:
    """No key of the rows is in the table for another value of `named_by`. Raises AnotherWay: Spark says which."""
    import pyarrow as pa

    if rows.num_rows > MOST_KEYS:
        raise AnotherWay(f"more than {MOST_KEYS} keys are looked up in the table")
    found = pa.table(table.scan([*key, *named_by], predicate=keys_predicate(rows, key))) if rows.num_rows else None
    names = dict(named_rows(found, key, named_by)) if found is not None else {}
    if any(names.get(own, name) != name for own, name in named_rows(rows, key, named_by)):
        raise AnotherWay("a key is in the table for another member")


def named_rows(rows: pa.Table, key: Sequence[str], named_by: Sequence[str]) -> list[tuple[Any, Any]]:
    """Of each row its key, and what it is named by."""
    keys, names = (zip(*(rows[name].to_pylist() for name in columns), strict=True) for columns in (key, named_by))
    return list(zip(keys, names, strict=True))


def keys_predicate(rows: pa.Table, key: Sequence[str]) -> str:
    """SQL that holds for every row with a key of these, and perhaps for more."""
    lists = (", ".join(sorted(map(literal, set(rows[name].to_pylist())))) for name in key)
    return " AND ".join(f"{quote(name)} IN ({values})" for name, values in zip(key, lists, strict=True))


def literal(value: object) -> str:
    """A value of one of the KEY_TYPES as SQL."""
    if isinstance(value, str):
        return quote(value, "'")
    return f"CAST('{value}' AS DATE)" if isinstance(value, date) else str(value)


def newest_rows(arrow: pa.Table, key: Sequence[str], sequence: Sequence[str]) -> pa.Table:
    """As `newest_per_key`. Raises AnotherWay for a key that is NULL, and for rows that nothing tells apart."""
    import pyarrow as pa

    order = (*sequence, *((POSITION,) if POSITION in arrow.column_names else ()))
    keys = list(zip(*(arrow[name].to_pylist() for name in key), strict=True))
    ranks = list(zip(*(map(rank, arrow[name].to_pylist()) for name in order), strict=True)) or [()] * arrow.num_rows
    chosen: dict[tuple[Any, ...], list[int]] = {}
    for place, own in enumerate(keys):
        rivals = chosen.setdefault(own, [place])
        if ranks[place] > ranks[rivals[0]]:
            chosen[own] = [place]
        elif ranks[place] == ranks[rivals[0]] and place != rivals[0]:
            rivals.append(place)
    if any(None in own for own in chosen):
        raise AnotherWay("a key is NULL")
    shown = [name for name in arrow.column_names if not name.startswith(OWN)]
    first = pa.array([rivals[0] for rivals in chosen.values()], pa.int64())
    for rivals in chosen.values():
        if len(rivals) > 1 and len({repr(row) for row in arrow.select(shown).take(rivals).to_pylist()}) > 1:
            raise AnotherWay("two different rows have one key, and nothing says which is newer")
    return arrow.take(first).select([*shown, DELETE])


def rank(value: object) -> tuple[Any, ...]:
    """A value as something that compares as Spark does: NULL is the lowest, a struct or array goes field by field,
    NaN is the highest number and equal to itself."""
    if value is None:
        return (False,)
    if isinstance(value, dict):
        return (True, tuple(map(rank, value.values())))
    if isinstance(value, list):
        return (True, tuple(map(rank, value)))
    if isinstance(value, float):
        return (True, math.isnan(value), 0.0 if math.isnan(value) else value)
    return (True, value)


def without_deletes(arrow: pa.Table) -> pa.Table:
    """The rows that make a table: those of a merge that delete have nothing to delete."""
    import pyarrow.compute as pc

    if DELETE not in arrow.column_names:
        return arrow
    return arrow.filter(pc.invert(arrow[DELETE])).drop_columns([DELETE])


def with_deleting_rows(arrow: pa.Table, by: Sequence[str]) -> pa.Table:
    """The rows, and each of their values of `by` once more in a row that only deletes."""
    import pyarrow as pa

    values = arrow.group_by(list(by)).aggregate([]).select(list(by))
    rows = arrow.append_column(ROW, pa.array([True] * arrow.num_rows, pa.bool_()))
    deleting = values.append_column(ROW, pa.array([False] * values.num_rows, pa.bool_()))
    return pa.concat_tables([rows, deleting], promote_options="default")


def in_columns(arrow: pa.Table, schema: StructType) -> pa.Table:
    """The rows with their columns named as the table has them: Spark does not tell `Id` from `id`, `deltalake` does."""
    names = {column.name.lower(): column.name for column in schema.fields}
    return nullable(arrow.rename_columns([names.get(name.lower(), name) for name in arrow.column_names]))


def all_columns(arrow: pa.Table, table: DeltaTable) -> pa.Table:
    """The rows with every column of the table, in its order; those that they lack are NULL."""
    import pyarrow as pa

    target = pa.schema(table.schema().to_arrow())
    lacking = [each for each in target if each.name not in arrow.column_names]
    for each in lacking:
        arrow = arrow.append_column(each, pa.nulls(arrow.num_rows, each.type))
    return arrow.select(target.names)


def nullable(arrow: pa.Table) -> pa.Table:
    """The rows, with columns that may be NULL, and nothing noted of them.

    Spark knows of some that they never are, and Arrow brings what Spark notes of a column: neither is the table's.
    """
    import pyarrow as pa

    plain = [each.with_nullable(True).remove_metadata() for each in arrow.schema]
    return arrow.cast(pa.schema(plain))
