"""What a job has to know of a PostgreSQL table: whether its cursor is fast and safe, and whether it takes rows."""

from __future__ import annotations

from typing import TYPE_CHECKING

from floodmark.probes.cursor_query import Relation
from floodmark.probes.cursor_sql import Postgres as Dialect
from floodmark.probes.postgres import Address, PostgresProbe
from floodmark.probes.postgres_facts import Table, described, written
from floodmark.sources.table_cursor import Cursor
from floodmark.sources.table_postgres_types import selected

if TYPE_CHECKING:
    from floodmark.jobs.findings import Said
    from floodmark.probes.tables import Cursor as Seen
    from floodmark.sinks import Postgres as PostgresSink
    from floodmark.sources import Postgres

TEXTS = ("text", "character varying", "character")


def source_findings(source: Postgres) -> Said:
    """The cursor, the rights, and the types of all columns."""
    address, relation = Address.parse(source.url), Relation(source.table, source.query)
    cursor = Cursor.of(source.cursor)
    columns = cursor.columns
    probe = PostgresProbe(address, relation, cursor.asked(source.key), source.name)
    try:
        selected(probe.columns(), source.types, f"postgres {address}")
        seen = probe.cursor()
    finally:
        probe.close()
    if source.table is None:
        hint = "read a table where you can, or see to the index yourself"
        yield "FM502", "a query is read: whether an index serves its cursor cannot be told", hint
        return
    found = described(address, relation.sql(Dialect().quote, {}), columns)
    if found is not None:
        yield from index_findings(found, columns, source.table)
        yield from tie_findings(seen)
        yield from value_findings(found, cursor, seen)


def index_findings(table: Table, columns: tuple[str, ...], name: str) -> Said:
    """Whether a look is quick."""
    named, index = ", ".join(columns), table.index_on(columns)
    by_bytes = ' COLLATE "C"' if table.type.split("(")[0] in TEXTS else ""
    create = f"CREATE INDEX ON {name} ({named}{by_bytes})"
    if index is None:
        yield "FM502", f"no index begins with {named}: every look scans {name} (about {table.rows} rows)", create
    elif by_bytes and not index.is_by_bytes:
        yield "FM502", f"the index on {named} is not in the order of bytes, by which text is compared", create
    else:
        yield "", f"an index begins with {named}", ""


def tie_findings(seen: Seen) -> Said:
    """Whether the mark can fall between two rows, as the reader itself judges it."""
    if seen.is_unique:
        yield "", f"{seen.shown} is unique", ""
    else:
        said = f"{seen.shown} is not unique: rows at the mark are read again, and told apart by the key"
        yield "FM503", said, "nothing; or add a unique column, as in cursor: [updated_at, id]"


def value_findings(table: Table, cursor: Cursor, seen: Seen) -> Said:
    """Where values come from, whether there always is one, and whether it may be read."""
    [column, *_] = cursor.columns
    if cursor.safety_way in (None, "fence"):
        for doubt in table.doubts:
            hint = "safety: {delay: 30s} or {lag: 1h}, or cursor: xmin, where rows can commit late"
            yield doubt.rule, f"{column}: {doubt.reason}", hint
    if any(each.is_nullable for each in seen.columns):
        yield "FM504", f"{seen.shown} may be NULL, and no mark reaches such a row", "NOT NULL, or choose on_null"
    if not table.may_read:
        yield "FM507", "this role may not read the table", "GRANT SELECT ON it TO this role"


def target_findings(sink: PostgresSink) -> Said:
    """Whether the target takes what the sink's mode does."""
    address, relation = Address.parse(sink.url), Relation(sink.table)
    table = relation.sql(Dialect().quote, {})
    target = written(address, table)
    if not target.exists:
        made = "the first batch makes it" if sink.create else "it has to be made, `create` is off"
        yield "" if sink.create else "FM507", f"{sink.table} is not there yet: {made}", "make the table"
        return
    changes = sink.mode != "append"
    if not target.may_insert or (changes and not target.may_change):
        rights = "SELECT, INSERT, UPDATE, DELETE" if changes else "SELECT, INSERT"
        yield "FM507", f"this role may not write to {sink.table}", f"GRANT {rights} ON {sink.table} TO …"
    found = described(address, table, sink.key or ("",))
    if sink.mode == "merge" and found is not None and not found.is_unique(sink.key):
        key = ", ".join(sink.key)
        yield (
            "FM507",
            f"no unique index of {sink.table} is on the key {key}",
            f"CREATE UNIQUE INDEX ON {sink.table} ({key})",
        )
