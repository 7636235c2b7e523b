"""A PostgreSQL table as its own driver sees it: column types, and how far the cursor reaches above a mark.

One connection is kept, read-only and named after the source, so that an idle tick costs one round trip.
"""

from __future__ import annotations

import os
import weakref
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field
from getpass import getuser
from typing import TYPE_CHECKING, Any

from floodmark.errors import ConfigError, SourceUnreadable
from floodmark.probes.cursor_asking import Asking
from floodmark.probes.cursor_columns import Catalog, Finder, kind_by_type
from floodmark.probes.cursor_query import Relation
from floodmark.probes.cursor_sql import Postgres
from floodmark.probes.postgres_catalog import catalog_sql, catalog_told
from floodmark.probes.postgres_xmin import XMIN, xmin_cursor
from floodmark.probes.tables import Asked, Column, Cursor, Kind

if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import ModuleType

    from psycopg import Column as DriverColumn
    from psycopg import Connection

KINDS: dict[str, Kind] = {
    "smallint": "int",
    "integer": "int",
    "bigint": "int",
    "numeric": "decimal",
    "date": "date",
    "timestamp without time zone": "timestamp",
    "timestamp with time zone": "timestamptz",
    "text": "text",
    "character varying": "text",
    "uuid": "uuid",
}
FINDER = Finder(kind_by_type(KINDS), ", ".join(KINDS))
SETTINGS = (
    "SELECT set_config('default_transaction_read_only', 'on', false), set_config('TimeZone', 'UTC', false),"
    " set_config('DateStyle', 'ISO, YMD', false)"
)
VARIABLES = {
    "host": "PGHOST",
    "port": "PGPORT",
    "dbname": "PGDATABASE",
    "user": "PGUSER",
    "password": "PGPASSWORD",
}
"""What a URL leaves out comes from where PostgreSQL's own programs look; Spark's driver would not look there."""
CONNECT_SECONDS = 10
SQL = Postgres()


@dataclass(frozen=True)
class Address:
    """Where a database is, and with which login; only the first is ever shown."""

    url: str = field(repr=False)
    host: str
    port: int
    database: str
    user: str = field(default="", repr=False)
    password: str | None = field(default=None, repr=False)
    options: tuple[tuple[str, str], ...] = field(default=(), repr=False)

    @classmethod
    def parse(cls, url: str) -> Address:
        """What the URL says. Raises ConfigError, without the URL: it may hold a password."""
        found = _parameters(url)
        known = {name: found.pop(name, None) or os.environ.get(variable) for name, variable in VARIABLES.items()}
        port, user = known["port"] or "5432", known["user"] or getuser()
        if not port.isdigit():
            raise _unreadable_url()
        host, database = known["host"] or "localhost", known["dbname"] or user
        return cls(url, host, int(port), database, user, known["password"], tuple(sorted(found.items())))

    def __str__(self) -> str:
        return f"{self.host}:{self.port}/{self.database}"


def _parameters(url: str) -> dict[str, str]:
    from psycopg.conninfo import conninfo_to_dict

    psycopg = driver()
    try:
        return {name: str(value) for name, value in conninfo_to_dict(url).items() if value is not None}
    except psycopg.Error:  # its message may quote the password
        raise _unreadable_url() from None


def _unreadable_url() -> ConfigError:
    return ConfigError(
        "the url of the database cannot be read.", hint="write it like postgresql://user:password@host:5432/database"
    )


@dataclass
class PostgresProbe(Asking):
    """One table or query, over one kept connection."""

    address: Address
    relation: Relation
    asked: Asked
    name: str = "postgres"
    _connection: Connection[tuple[Any, ...]] | None = field(default=None, repr=False)
    _cursor: Cursor | None = None

    @property
    def dialect(self) -> Postgres:
        return SQL

    def place(self) -> str:
        return f"postgres {self.address}"

    def columns(self) -> tuple[Column, ...]:
        nothing = {"after": "NULL", "upto": "NULL", "first_run": "TRUE"}
        return self._described(f"SELECT * FROM {self.relation.sql(SQL.quote, nothing)} AS fm LIMIT 0")

    def cursor(self) -> Cursor:
        """Kept with the connection, as is what the catalog said."""
        if self._cursor is None and self.asked.columns == ((XMIN.name,),):
            self._cursor = xmin_cursor(self.place(), self.relation.table)
        if self._cursor is None:
            self._cursor = FINDER.cursor(self.asked, self.columns(), self._catalog(), self.place())
        return self._cursor

    def close(self) -> None:
        """Let go of the connection and of what was known by it; the next look begins anew."""
        if self._connection is not None:
            self._connection.close()
        self._connection, self._cursor = None, None

    def _described(self, sql: str) -> tuple[Column, ...]:
        """The columns of a statement; the full names of their types are known to the server alone."""
        with self._failing_as_unreadable():
            connection = self._connected()
            told = connection.execute(sql.encode()).description or ()
            oids = [each.type_code for each in told]
            rows = connection.execute("SELECT o, format_type(o, NULL) FROM unnest(%s::oid[]) AS o", [oids]).fetchall()
        types = {oid: str(name) for oid, name in rows}
        return tuple(_column(each, types[each.type_code]) for each in told)

    def _catalog(self) -> Catalog:
        rows = self._rows(catalog_sql(self.relation)) if self.relation.table is not None else []
        return catalog_told(rows[0][0]) if rows else Catalog()

    def at_once(self, *statements: str) -> list[list[tuple[Any, ...]]]:
        """The rows of each statement, in one round trip; each is a transaction of its own."""
        with self._failing_as_unreadable():
            connection, answers = self._connected(), []
            together = connection.pipeline() if driver().Pipeline.is_supported() else nullcontext()  # libpq 14
            with together as pipeline:
                for statement in statements:
                    answers.append(connection.execute(statement.encode()))
                    if pipeline:
                        pipeline.sync()  # without it they would all be one transaction
            return [answer.fetchall() for answer in answers]

    def _rows(self, sql: str) -> list[tuple[Any, ...]]:
        with self._failing_as_unreadable():
            return self._connected().execute(sql.encode()).fetchall()

    def _connected(self) -> Connection[tuple[Any, ...]]:
        if self._connection is None:
            self._connection = connect(self.address, f"floodmark/{self.name}")
            weakref.finalize(self, self._connection.close)  # one that is only forgotten complains
        return self._connection

    @contextmanager
    def _failing_as_unreadable(self) -> Iterator[None]:
        try:
            with failing_as_unreadable(self.place()):
                yield
        except SourceUnreadable:
            self.close()
            raise


@contextmanager
def failing_as_unreadable(place: str) -> Iterator[None]:
    """What the driver raises becomes SourceUnreadable, with the first line of what it says: the rest may be the URL."""
    psycopg = driver()
    try:
        yield
    except psycopg.Error as error:
        reason = (str(error).strip().splitlines() or [type(error).__name__])[0]
        raise SourceUnreadable(place, reason=reason) from None


def _column(told: DriverColumn, type_name: str) -> Column:
    is_numeric = type_name in ("numeric", "numeric[]")  # a timestamp has a precision too, of another sense
    return Column(told.name, type_name, *((told.precision, told.scale) if is_numeric else ()))


def connect(address: Address, application: str) -> Connection[tuple[Any, ...]]:
    """A read-only connection that answers in UTC and ISO, whatever the zone of the server or of this process."""
    options = {"connect_timeout": CONNECT_SECONDS, **dict(address.options)}
    psycopg = driver()
    connection: Connection[tuple[Any, ...]] = psycopg.connect(
        autocommit=True,
        application_name=application,
        host=address.host,
        port=address.port,
        dbname=address.database,
        user=address.user,
        password=address.password,
        **{name: value for name, value in options.items() if name != "application_name"},
    )
    connection.execute(SETTINGS)
    return connection


def driver() -> ModuleType:
    """psycopg, if it is installed."""
    try:
        import psycopg
    except ImportError as error:
        raise ConfigError("PostgreSQL needs its driver.", hint="pip install 'floodmark[postgres]'") from error
    return psycopg
