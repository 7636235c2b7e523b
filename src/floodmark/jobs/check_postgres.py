"""What a job has to know of a PostgreSQL table: whether its cursor is fast and safe, and whether it takes rows."""

from __future__ import annotations

from typing import TYPE_CHECKING

from floodmark.jobs.ranges import columns_of
from floodmark.probes.cursor_query import Relation
from floodmark.probes.cursor_sql import Postgres as Dialect
from floodmark.probes.postgres import Address, PostgresProbe
from floodmark.probes.postgres_facts import Server, Table, described, written
from floodmark.sources.table_cursor import Cursor
from floodmark.sources.table_postgres_types import selected

if TYPE_CHECKING:
    from floodmark.jobs.findings import Said
    from floodmark.sinks import Postgres as PostgresSink
    from floodmark.sources import Postgres

MADE_WITHIN = ("nextval(", "now()", "clock_timestamp()", "CURRENT_TIMESTAMP", "statement_timestamp()", "transaction_ti")
"""Defaults whose value is taken inside the transaction that inserts."""
TEXTS = ("text", "character varying", "character")


def source_findings(source: Postgres) -> Said:
    """The cursor, the rights, and the types of all columns."""
    address, relation = Address.parse(source.url), Relation(source.table, source.query)
    columns = columns_of(Cursor.of(source.cursor))
    probe = PostgresProbe(address, relation, columns[0], source.name)
    try:
        selected(probe.columns(), source.types, f"postgres {address}")
    finally:
        probe.close()
    if source.table is None:
        hint = "read a table where you can, or see to the index yourself"
        yield "FM502", "a query is read: whether an index serves its cursor cannot be told", hint
        return
    table = relation.sql(Dialect().quote, {})
    server, found = described(address, table, columns)
    yield from server_findings(server, source.table)
    if found is not None:
        yield from index_findings(found, columns, source.table)
        yield from value_findings(found, columns[0])


def server_findings(server: Server, table: str) -> Said:
    """Whether a fence can work here."""
    fence = "use safety: lag or delay, or cursor: xmin"
    if not server.may_read:
        yield "FM510", f"this role may not read {table}", f"GRANT SELECT ON {table} TO …"
    if server.is_standby:
        yield "FM506", "the server is a standby: it does not know who still writes", f"read the primary, or {fence}"
    if server.is_subscribed:
        yield "FM506", f"{table} is filled by a subscription, whose transactions commit elsewhere", fence
    if not server.sees_others:
        grant = "GRANT pg_read_all_stats TO …"
        yield "FM506", "this role does not see the transactions of others", f"{grant}, or {fence}"


def index_findings(table: Table, columns: tuple[str, ...], name: str) -> Said:
    """Whether a look is quick, and whether the mark can fall between two rows."""
    named, index = ", ".join(columns), table.index_on(columns)
    by_bytes = ' COLLATE "C"' if table.type.split("(")[0] in TEXTS else ""
    create = f"CREATE INDEX ON {name} ({named}{by_bytes})"
    if index is None:
        yield "FM502", f"no index begins with {named}: every look scans {name} (about {table.rows} rows)", create
    elif by_bytes and not index.is_by_bytes:
        yield "FM502", f"the index on {named} is not in the order of bytes, by which text is compared", create
    else:
        yield "", f"an index begins with {named}", ""
    if table.is_unique(columns):
        yield "", f"{named} is unique", ""
    else:
        hint = "add a unique column to the cursor, as in cursor: {column: [updated_at, id]}"
        yield "FM503", f"{named} is not unique: rows may come later with the value of the mark", hint


def value_findings(table: Table, column: str) -> Said:
    """Where values come from, and whether there always is one."""
    if table.cache is not None and table.cache > 1:
        said = f"the sequence of {column} hands out {table.cache} values at a time: a session may use old ones late"
        yield "FM504", said, "ALTER SEQUENCE … CACHE 1, or safety: lag"
    made_within = any(sign in table.default for sign in MADE_WITHIN) or (table.has_default and not table.default)
    if not made_within:
        said = f"{column} has no default that the database makes: clients may write a value long after they chose it"
        yield "FM505", said, "safety: lag or delay where rows can commit late, or a default"
    if not table.is_required:
        yield "FM507", f"{column} may be NULL, and no mark reaches such a row", "NOT NULL, or choose on_null"


def target_findings(sink: PostgresSink) -> Said:
    """Whether the target takes what the sink's mode does."""
    address, relation = Address.parse(sink.url), Relation(sink.table)
    table = relation.sql(Dialect().quote, {})
    target = written(address, table)
    if not target.exists:
        made = "the first batch makes it" if sink.create else "it has to be made, `create` is off"
        yield "" if sink.create else "FM510", f"{sink.table} is not there yet: {made}", "make the table"
        return
    changes = sink.mode != "append"
    if not target.may_insert or (changes and not target.may_change):
        rights = "SELECT, INSERT, UPDATE, DELETE" if changes else "SELECT, INSERT"
        yield "FM510", f"this role may not write to {sink.table}", f"GRANT {rights} ON {sink.table} TO …"
    _, found = described(address, table, sink.key or ("",))
    if sink.mode == "merge" and found is not None and not found.is_unique(sink.key):
        key = ", ".join(sink.key)
        yield (
            "FM510",
            f"no unique index of {sink.table} is on the key {key}",
            f"CREATE UNIQUE INDEX ON {sink.table} ({key})",
        )
