"""A PostgreSQL table or query as a source: rows above the mark, by a column that grows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from floodmark.errors import ConfigError
from floodmark.probes.cursor_query import Relation
from floodmark.probes.cursor_sql import Postgres as Dialect
from floodmark.probes.postgres import Address, PostgresProbe
from floodmark.probes.postgres_xmin import XMIN
from floodmark.sources.contract import Reading, Request, Session, Sight
from floodmark.sources.table_cursor import Cursor, entity, fingerprint
from floodmark.sources.table_guard import explained
from floodmark.sources.table_jdbc import JdbcTable, require_ordered
from floodmark.sources.table_postgres_types import selected
from floodmark.sources.table_safety_lag import looker_for, repeated_by
from floodmark.sources.table_safety_postgres import postgres_guard

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from floodmark.errors import SourceUnreadable
    from floodmark.hwm import HWM, Span
    from floodmark.sources.table_safety import Guard

DRIVER = "org.postgresql.Driver"
PASSED_ON = ("sslmode", "sslrootcert", "sslcert", "sslkey", "options")
"""Parameters of the URL that the JDBC driver knows by the same name."""


@dataclass(frozen=True)
class Postgres:
    """Rows of a table (`public.orders`) or of a query, read above the mark of `cursor`.

    A query may name `:after` and `:upto`; they become literals, and the query is bounded from outside as well. On a
    first run `:after` lies below every value, or is NULL if the query names `:first_run` to tell. Such a query shows
    only what lies above the mark, so a source that was truncated goes unnoticed; text has to be compared there by its
    bytes (COLLATE "C"), as we do.

    `types` says what a column becomes that Spark has no type for, as in `{"total": "decimal(38,10)"}`. `partitions`
    left out means one per core, at most 8: each is a connection. `key` tells rows apart that share a value of the
    cursor; left out, it is the primary key.
    """

    url: str = field(repr=False)
    table: str | None = None
    query: str | None = None
    cursor: str | Cursor = ""
    key: Sequence[str] = ()
    types: Mapping[str, str] = field(default_factory=dict)
    partitions: int | None = None
    fetch_rows: int = 10_000
    name: str = "postgres"
    _relation: Relation = field(init=False, repr=False, compare=False)
    _cursor: Cursor = field(init=False, repr=False, compare=False)
    _probes: dict[str, PostgresProbe] = field(init=False, repr=False, compare=False, default_factory=dict)
    _guards: dict[str, Guard] = field(init=False, repr=False, compare=False, default_factory=dict)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_relation", Relation(self.table, self.query))
        object.__setattr__(self, "_cursor", Cursor.of(self.cursor))

    def fingerprint(self, session: Session) -> str:
        return fingerprint(self._probe().place(), entity(self._relation), self._probe().cursor())

    def repeats_by(self) -> tuple[str, ...]:
        """Its key and its cursor, where rows are read again."""
        return repeated_by(self._cursor, self.key)

    def restates(self) -> str | None:
        """A row without a cursor comes again once it has one."""
        return self._cursor.restates

    def look(self, mark: HWM[Any] | None, request: Request, session: Session) -> Sight:
        """One round trip on a kept, read-only connection, and another if rows have to wait."""
        probe = self._probe()
        is_whole = not self._relation.is_bounded and not self._is_by_xmin
        what = (self._described(), self.name, entity(self._relation), self._cursor, probe)
        return looker_for(self._cursor)(*what, is_whole=is_whole, guard=self._guard()).look(mark, request)

    def read(self, spark: SparkSession, span: Span) -> Reading:
        """The rows of the span. Raises ColumnUnmapped for a column that Spark would change."""
        partitions = self.partitions or (1 if self._is_by_xmin else None)  # each scans the table
        return self._table().reading(spark, span, partitions)

    def without_rows(self, spark: SparkSession) -> Reading:
        """The columns, as the database describes them."""
        return self._table().without_rows(spark)

    def explain(self, error: Exception, spark: SparkSession, span: Span) -> SourceUnreadable | None:
        """A value that Spark cannot hold, met while reading."""
        return explained(error, self._described())

    def close(self) -> None:
        """Let go of the connection; the next look makes a new one."""
        for probe in self._probes.values():
            probe.close()

    def _table(self) -> JdbcTable:
        probe = self._probe()
        address, cursor = probe.address, probe.cursor()
        require_ordered(cursor, self.types)
        columns = selected(probe.columns(), self.types, self._described())
        properties = jdbc_properties(address, self.fetch_rows, f"floodmark/{self.name}")
        return JdbcTable(jdbc_url(address), properties, Dialect(), self._relation, cursor, columns)

    def _probe(self) -> PostgresProbe:
        if "only" not in self._probes:  # made at the first look: the URL is read with the driver
            address = Address.parse(self.url)
            self._probes["only"] = PostgresProbe(address, self._relation, self._cursor.asked(self.key), self.name)
        return self._probes["only"]

    @property
    def _is_by_xmin(self) -> bool:
        return self._cursor.columns == (XMIN.name,)

    def _guard(self) -> Guard:
        if "only" not in self._guards:  # kept, since it asks once whether it fits this server
            self._guards["only"] = postgres_guard(self._cursor.safety, self._probe(), is_by_xmin=self._is_by_xmin)
        return self._guards["only"]

    def _described(self) -> str:
        return f"{self._probe().place()} {entity(self._relation)}"


def jdbc_url(address: Address) -> str:
    """The address as JDBC writes it, without the login."""
    if address.host.startswith("/"):
        raise ConfigError(
            "Spark reads PostgreSQL over TCP, and the url names a socket.", hint="name a host and a port in the url"
        )
    host = f"[{address.host}]" if ":" in address.host else address.host
    return f"jdbc:postgresql://{host}:{address.port}/{address.database}"


def jdbc_properties(address: Address, fetch_rows: int, application: str) -> dict[str, str]:
    """What the driver is given beside the URL; `readOnly` and UTC hold for every session of Spark's."""
    passed = {name: value for name, value in address.options if name in PASSED_ON}
    return {
        "driver": DRIVER,
        "user": address.user,
        "fetchsize": str(fetch_rows),
        "ApplicationName": application,
        "readOnly": "true",
        "preferTimestampNTZ": "true",
        "sessionInitStatement": "SET TIME ZONE 'UTC'",
        **({"password": address.password} if address.password else {}),
        **passed,
    }
