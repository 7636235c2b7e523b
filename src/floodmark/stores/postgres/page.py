"""What the PostgreSQL store is made of: its address, its tables, and the rows of one job in them."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias
from urllib.parse import parse_qsl, urlencode, urlsplit, urlunsplit
from urllib.parse import quote as percent_encode

from floodmark.errors import ConfigError
from floodmark.locations import quote
from floodmark.postgres import Address, connect
from floodmark.stores.wire import Entry, ItemRow

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from psycopg import Connection, Cursor

    Rows: TypeAlias = Cursor[tuple[Any, ...]]


EXAMPLE = "postgresql://user:${PASSWORD}@host:5432/database?table=schema.name, with special letters as %40"
PATIENT = {
    "client_encoding": "UTF8",
    # A server that vanished without a word must not hold a run, or its heartbeat, for the hours TCP would wait.
    "keepalives_idle": "10",
    "keepalives_interval": "5",
    "keepalives_count": "3",
    "tcp_user_timeout": "25000",
}
DEFAULT = "floodmark_marks"
FORMAT = 1
COMMENT = "Floodmark marks, format "
LONGEST_BYTES = 63
OURS = "namespace text not null, job text not null"
MINE = "namespace = %(namespace)s and job = %(job)s"
MARK = "namespace = %(namespace)s and key = %(job)s"
NEVER = "\\u0000"


@dataclass(frozen=True)
class StoreAddress:
    """Where the marks are: a database, and the tables in it. Only `describe` may be shown."""

    database: Address
    tables: Tables

    @classmethod
    def of(cls, url: str) -> StoreAddress:
        """From the text of a store. Raises ConfigError, which never repeats the text."""
        parts = urlsplit(url)
        query = parse_qsl(parts.query, keep_blank_values=True)
        tables = Tables.from_text(next((value for name, value in query if name == "table"), DEFAULT))
        rest = urlencode([(name, value) for name, value in query if name != "table"], quote_via=percent_encode)
        return cls(Address.parse(urlunsplit(parts._replace(query=rest)), EXAMPLE), tables)

    def connect(self) -> Connection[Any]:
        """Prepared statements would not survive a pooler that shares connections between transactions."""
        application = self.database.parameters.get("application_name", "floodmark")
        return connect(self.database, application, PATIENT, prepare_threshold=None)

    def describe(self) -> str:
        """The address without a secret."""
        known = self.database.parameters
        user, host = known.get("user"), known.get("host", "localhost")
        port = f":{known['port']}" if "port" in known else ""
        table = "" if str(self.tables) == DEFAULT else f"?table={self.tables}"
        return f"postgresql://{f'{user}@' if user else ''}{host}{port}/{known.get('dbname', user or '')}{table}"


@dataclass(frozen=True)
class Tables:
    """The table of the marks, as the user named it, and those beside it: `floodmark_marks`, `floodmark_items`, …"""

    schema: str | None
    name: str

    @classmethod
    def from_text(cls, text: str) -> Tables:
        """From `table` or `schema.table`. Raises ConfigError if PostgreSQL would cut a name short."""
        schema, _, name = text.rpartition(".")
        tables = cls(schema or None, name)
        longest = f"{tables._stem}_runs_of_job"
        if not name or "." in schema or "\0" in text or max(len(part.encode()) for part in (schema, longest)) > 63:
            raise ConfigError(
                f"'{text}' cannot name the table of the marks.",
                hint=f"table=name or table=schema.name, at most {LONGEST_BYTES - len('_runs_of_job')} letters",
            )
        return tables

    @property
    def _stem(self) -> str:
        return self.name.removesuffix("_marks")

    def __str__(self) -> str:
        return f"{self.schema}.{self.name}" if self.schema else self.name

    @property
    def marks(self) -> str:
        """The quoted name of the table of the records."""
        return self._quoted(self.name)

    def beside(self, part: str) -> str:
        """The quoted name of a table beside it."""
        return self._quoted(f"{self._stem}_{part}")

    def _quoted(self, name: str) -> str:
        return sql_name(self.schema, name)

    def _index(self, name: str) -> str:
        return sql_name(f"{self._stem}_{name}")

    def make_schema(self) -> str:
        """The statement for the schema; empty if none was named."""
        return f"create schema if not exists {sql_name(self.schema)};\n" if self.schema else ""

    def make_tables(self) -> str:
        """The statements for the tables."""
        items, history, runs = self.beside("items"), self.beside("history"), self.beside("runs")
        return f"""create table {self.marks} (
    namespace text not null, key text not null, val jsonb not null, number bigint not null,
    modified_time timestamptz not null, stamp text not null, primary key (namespace, key));
create table {items} ({OURS}, source text not null, number bigint not null, item bytea not null, value text not null);
create index {self._index("items_of_job")} on {items} (namespace, job, source, number);
create table {history} (
    namespace text not null, key text not null, number bigint not null, val jsonb not null,
    primary key (namespace, key, number));
create table {runs} (id bigint generated always as identity primary key, {OURS}, val jsonb not null);
create index {self._index("runs_of_job")} on {runs} (namespace, job, id);
create table {self.beside("leases")} (
    {OURS}, val jsonb not null, beat_at timestamptz not null, primary key (namespace, job));
create table {self.beside("looked")} ({OURS}, at timestamptz not null, primary key (namespace, job));
comment on table {self.marks} is '{COMMENT}{FORMAT}';
"""

    def ddl(self) -> str:
        """Everything that somebody with the right to create has to run once."""
        return self.make_schema() + self.make_tables()


def sql_name(*parts: str | None) -> str:
    """A name as SQL takes it, of a schema (if there is one) and what is in it."""
    return ".".join(quote(part, '"') for part in parts if part)


class PostgresPage:
    """The rows of one job, inside a transaction.

    `begin` is called before the first query that has to agree with a later one.
    """

    def __init__(
        self, cursor: Rows, tables: Tables, namespace: str, job: str, begin: Callable[[], None] = lambda: None
    ) -> None:
        self._cursor, self._tables, self._begin = cursor, tables, begin
        self._me = {"namespace": namespace, "job": job}

    def stamp(self) -> str | None:
        return self._text(f"select stamp from {self._tables.marks} where {MARK}")

    def entry(self) -> Entry | None:
        self._begin()
        query = f"select stamp, number, modified_time, val::text from {self._tables.marks} where {MARK}"
        row = self._do(query).fetchone()
        return Entry(row[0], row[1], row[2].isoformat(), from_jsonb(row[3])) if row else None

    def save(self, entry: Entry) -> None:
        columns = "val, number, modified_time, stamp"
        self._do(
            f"insert into {self._tables.marks} (namespace, key, {columns}) values (%(namespace)s, %(job)s, "
            "%(val)s, %(number)s, %(modified_time)s, %(stamp)s) on conflict (namespace, key) do update set "
            f"({columns}) = (excluded.val, excluded.number, excluded.modified_time, excluded.stamp)",
            val=to_jsonb(entry.val),
            number=entry.number,
            modified_time=entry.modified_time,
            stamp=entry.stamp,
        )

    def items(self, source: str, base: int, after: int, upto: int) -> Iterator[tuple[str, str]]:
        # a later base has higher numbers than all rows of an earlier one, so the numbers alone tell them apart
        self._begin()
        rows = self._do(
            f"select item, value from {self._tables.beside('items')} where {MINE} and source = %(source)s "
            "and number > %(after)s and number <= %(upto)s order by number",
            source=source,
            after=max(after, base - 1),
            upto=upto,
        ).fetchall()
        return ((bytes(item).decode("utf-8", "surrogateescape"), value) for item, value in rows)

    def add_items(self, rows: Sequence[ItemRow]) -> None:
        if not rows:
            return
        columns, me = "namespace, job, source, number, item, value", tuple(self._me.values())
        with self._cursor.copy(f"copy {self._tables.beside('items')} ({columns}) from stdin") as copy:
            for row in rows:
                item = row.item.encode("utf-8", "surrogateescape")  # a file's name may be any bytes
                copy.write_row((*me, row.source, row.number, item, row.value))

    def keep_bases(self, used: frozenset[tuple[str, int]]) -> None:
        items = self._tables.beside("items")
        for (source,) in self._do(f"select distinct source from {items} where {MINE}").fetchall():
            lowest = min((base for name, base in used if name == source), default=None)
            older = f"delete from {items} where {MINE} and source = %(source)s"
            self._do(older if lowest is None else f"{older} and number < %(lowest)s", source=source, lowest=lowest or 0)

    def history(self, limit: int) -> Sequence[str]:
        self._begin()
        newest = f"select val::text from {self._history} where {MARK} order by number desc limit %(limit)s"
        return [from_jsonb(val) for (val,) in self._do(newest, limit=limit).fetchall()]

    def add_history(self, number: int, val: str, keep: int) -> None:
        self._do(
            f"insert into {self._history} values (%(namespace)s, %(job)s, %(number)s, %(val)s) "
            "on conflict (namespace, key, number) do update set val = excluded.val",
            number=number,
            val=to_jsonb(val),
        )
        self.trim_history(keep)

    def trim_history(self, keep: int) -> None:
        surplus = f"select number from {self._history} where {MARK} order by number desc limit 1 offset %(keep)s"
        self._do(f"delete from {self._history} where {MARK} and number <= ({surplus})", keep=keep)

    def runs(self, limit: int) -> Sequence[str]:
        newest = f"select val::text from {self._runs} where {MINE} order by id desc limit %(limit)s"
        return [from_jsonb(val) for (val,) in self._do(newest, limit=limit).fetchall()]

    def count_runs(self) -> int:
        return int(self._do(f"select count(*) from {self._runs} where {MINE}").fetchall()[0][0])

    def run_ends(self, limit: int) -> Sequence[Sequence[object]]:
        facts = "val->>'status', (val->>'recovered')::boolean, val->>'started'"
        facts += ", (val->>'seconds')::float8, (val->>'rows_read')::bigint"
        newest = f"select {facts} from {self._runs} where {MINE} order by id desc limit %(limit)s"
        return self._do(newest, limit=limit).fetchall()

    def runs_named(self, begin: str, limit: int) -> Sequence[str]:
        newest = f"select val from {self._runs} where {MINE} order by id desc limit %(limit)s"
        named = f"select val::text from ({newest}) as newest where starts_with(val->>'run', %(begin)s)"
        return [from_jsonb(val) for (val,) in self._do(named, limit=limit, begin=begin).fetchall()]

    def add_run(self, text: str, keep: int) -> None:
        self._do(f"insert into {self._runs} (namespace, job, val) values (%(namespace)s, %(job)s, %(val)s)",
                 val=to_jsonb(text))  # fmt: skip
        self.trim_runs(keep)

    def trim_runs(self, keep: int) -> None:
        surplus = f"select id from {self._runs} where {MINE} order by id desc limit 1 offset %(keep)s"
        self._do(f"delete from {self._runs} where {MINE} and id <= ({surplus})", keep=keep)

    def lease(self) -> str | None:
        return self._text(f"select val::text from {self._tables.beside('leases')} where {MINE}")

    def put_lease(self, text: str | None) -> None:
        leases = self._tables.beside("leases")
        if text is None:
            self._do(f"delete from {leases} where {MINE}")
            return
        self._do(
            f"insert into {leases} values (%(namespace)s, %(job)s, %(val)s, clock_timestamp()) "
            "on conflict (namespace, job) do update set (val, beat_at) = (excluded.val, excluded.beat_at)",
            val=text,
        )

    def seconds_since_beat(self, token: str) -> float | None:
        """How long ago the lease of that token was beaten, by the clock that beat it."""
        age, leases = "extract(epoch from clock_timestamp() - beat_at)::float8", self._tables.beside("leases")
        row = self._do(
            f"select {age} from {leases} where {MINE} and val ->> 'token' = %(token)s", token=token
        ).fetchone()
        return float(row[0]) if row else None

    def looked(self) -> str | None:
        row = self._do(f"select at from {self._tables.beside('looked')} where {MINE}").fetchone()
        return str(row[0].isoformat()) if row else None

    def put_looked(self, text: str) -> None:
        self._do(
            f"insert into {self._tables.beside('looked')} values (%(namespace)s, %(job)s, %(at)s) "
            "on conflict (namespace, job) do update set at = excluded.at",
            at=text,
        )

    def forget(self) -> None:
        for part in ("items", "runs", "leases", "looked"):
            self._do(f"delete from {self._tables.beside(part)} where {MINE}")
        self._do(f"delete from {self._history} where {MARK}")
        self._do(f"delete from {self._tables.marks} where {MARK}")

    @property
    def _history(self) -> str:
        return self._tables.beside("history")

    @property
    def _runs(self) -> str:
        return self._tables.beside("runs")

    def _do(self, statement: str, **values: str | int) -> Rows:
        return self._cursor.execute(statement, {**self._me, **values})

    def _text(self, query: str) -> str | None:
        row = self._do(query).fetchone()
        return str(row[0]) if row else None


def to_jsonb(text: str) -> str:
    """The JSON for a column of type jsonb, which knows neither NUL nor half a character: then as a text within."""
    if NEVER in text or ("\\ud" in text and not _is_unicode(json.loads(text))):
        return json.dumps(text)
    return text


def _is_unicode(value: object) -> bool:
    try:
        json.dumps(value, ensure_ascii=False).encode()
    except UnicodeEncodeError:
        return False
    return True


def from_jsonb(stored: str) -> str:
    """The JSON that `to_jsonb` was given."""
    return str(json.loads(stored)) if stored.startswith('"') else stored
