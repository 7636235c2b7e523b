"""A PostgreSQL table as a sink: rows, batch number and digest are committed in one transaction."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from typing import TYPE_CHECKING, Literal

from floodmark.errors import ConfigError, SchemaChanged, SinkFailed, SinkUnreachable
from floodmark.fields import ColumnNames
from floodmark.postgres import Address
from floodmark.sinks.contract import Atomic, Batch, Recorded, Session
from floodmark.sinks.modes import check_modes, mode_fingerprint
from floodmark.sinks.postgres.deleted_keys import NOT_KEPT, DeletedKeysTable
from floodmark.sinks.postgres.server import LedgerEntry, PostgresLedger, PostgresServer
from floodmark.sinks.postgres.statements import Load, load_of, merge_load_of, require_unique
from floodmark.sinks.postgres.target import Target, spark_type, split_name
from floodmark.sinks.postgres.transport import UNREACHABLE, BatchRefused, CopyChunks, CopyIn, Staging
from floodmark.sinks.restatement import Restatement, restatement_of
from floodmark.spark.faults import fault_in

if TYPE_CHECKING:
    from psycopg import Connection
    from pyspark.sql import DataFrame
    from pyspark.sql.types import StructType

    from floodmark.sinks.postgres.write import InTransaction


FENCE_SECONDS = 60
"""How long a fence waits for the entry: a writer holds it for moments, unless it was stopped by a signal just then."""
HELD = (
    f"another session has held the ledger's entry for {FENCE_SECONDS} s, as a run does that was stopped in its commit: "
    "let it go on or end it; pg_stat_activity shows it as floodmark-sink/JOB"
)


@dataclass(frozen=True)
class Postgres(Atomic):
    """Rows in a PostgreSQL table; the first batch makes it, unless `create` is off.

    `merge` keeps the newest row per `key`: by `sequence`, else by the source's position; with `delete_when`, a row for
    which it holds deletes its key. With both, deleted keys are kept in `<table>__deleted`, so that an older row that
    comes later does not bring one back: for the time `keep_deleted`, by default for ever; zero keeps none. Without
    `create` they are kept if that table is there. `replace` exchanges the rows with the batch's values of `by`, or
    without `by` all.
    Where the tasks run on this machine, rows stream into the transaction while they are read; with `staged` they wait
    in a staging table first, as they do on a cluster: twice the work for the server, and a shorter transaction.

    >>> Postgres("postgresql://host/shop", table="mart.orders", mode="merge", key="id").table
    'mart.orders'
    """

    url: str = field(repr=False)
    table: str
    mode: Literal["append", "merge", "replace"] = "append"
    key: ColumnNames = ColumnNames()
    by: ColumnNames = ColumnNames()
    sequence: ColumnNames = ColumnNames()
    delete_when: str | None = None
    name: str = "postgres"
    evolve: bool = False
    create: bool = True
    staged: bool = False
    keep_deleted: timedelta | None = None
    _deleted_by: tuple[str, ...] = field(default=(), repr=False, compare=False)
    """The sequence by which a repair remembers what it deletes: it believes its rows, so it has none of its own."""

    def __post_init__(self) -> None:
        split_name(self.table)
        Address.parse(self.url)
        check_modes(self)

    def without_repeats(self, by: tuple[str, ...]) -> Postgres | None:
        """A merge takes a row again without harm."""
        return self if self.mode == "merge" else None

    def restatement(self, rows: Callable[[], DataFrame], expected_rows: int | None) -> Restatement | None:
        return restatement_of(self, expected_rows)

    def describe(self) -> str:
        return f"PostgreSQL table {self.table} at {self._server().describe()}"

    def fingerprint(self) -> str:
        return f"postgres {self._server().describe()} {self.table} {mode_fingerprint(self)}"

    def recorded(self, ledger: str, session: Session) -> Recorded | None:
        with self._connect() as connection:
            entry = self._ledger(connection, ledger).entry(connection)
        return entry.recorded if entry else None

    def holds_rows(self, session: Session) -> bool:
        """Only of an append: written again, a merge or a replacement leaves what it left before."""
        from psycopg.sql import SQL

        if self.mode != "append":
            return False
        with self._connect() as connection:
            target = Target.read(connection, self.table)
            first = SQL("SELECT 1 FROM {} LIMIT 1").format(target.sql)
            return target.exists and connection.execute(first).fetchone() is not None

    def schema(self, session: Session) -> StructType | None:
        from pyspark.sql.types import StructField, StructType

        with self._connect() as connection:
            target = Target.read(connection, self.table)
        fields = [StructField(column.name, spark_type(column.type, column.note)) for column in target.columns]
        return StructType(fields) if target.exists else None

    def needs_position(self) -> bool:
        return self.mode == "merge" and not self.sequence

    def fence(self, ledger: str, number: int, session: Session) -> None:
        """Raises SinkUnreachable also where somebody holds the entry for a minute: nothing is decided then."""
        with self._connect() as connection:
            own = self._ledger(connection, ledger)
            own.ensure(connection)
            with connection.transaction():
                connection.execute(f"SET LOCAL lock_timeout = '{FENCE_SECONDS}s'".encode())
                entry = own.lock(connection)
                if entry is None or entry.number < number:
                    own.record(connection, LedgerEntry.fence(number, entry))

    def counts_every_row(self) -> bool:
        """Rows are counted as they are moved, in the transaction."""
        return self.mode == "append"

    def write(self, rows: DataFrame, batch: Batch) -> int | None:
        return self.write_joined(rows, batch, lambda _connection, _rows: None)

    def write_joined(self, rows: DataFrame, batch: Batch, in_transaction: InTransaction) -> int | None:
        """The same as write, with something of the caller's in the transaction; if that raises, nothing is written.

        It is called once, also if the number was recorded before: then with the rows of then (0 if they are not known).
        """
        from floodmark.sinks.postgres.write import Write  # sockets: tasks import this module for the transport alone

        server = self._server(f"floodmark-sink/{batch.job}")  # a fence leaves floodmark/… out: those only read
        with self._driver_errors(batch.job, server):
            with server.connect() as connection:
                ledger = self._ledger(connection, batch.ledger(self.name))
                ledger.ensure(connection)
                load = self._prepare(connection, rows, batch, ledger)
                staging = Staging.new(connection, ledger, batch.attempt)
            write = Write(server, self.name, batch, ledger, staging, self._write_rows, in_transaction)
            return write.run(load, staged=self.staged)

    def _prepare(self, connection: Connection, rows: DataFrame, batch: Batch, ledger: PostgresLedger) -> Load | None:
        """Everything that can be refused before a row is read is refused here; None if the number is taken already."""
        entry = ledger.entry(connection)
        if entry is not None and entry.number >= batch.number:
            return None
        target = Target.read(connection, self.table)
        if self.mode == "merge":
            load = merge_load_of(rows, target, self.key, self.delete_when)
            require_unique(connection, load)
            if deleted := self._deleted_keys(load):
                deleted.require_name()
        else:
            load = load_of(rows, target)
        self._require_columns(load, batch, connection)
        return load

    def _write_rows(self, connection: Connection, load: Load, chunks: CopyChunks, kind: str) -> int:
        copy = CopyIn(load.encoding, load.copied_columns, chunks)
        for statement in load.target.ddl(load.columns, load.key):
            connection.execute(statement)
        if self.mode == "merge":
            merge, deleted = load.merge(copy, self.sequence), self._deleted_keys(load)
            return merge.refresh(connection, deleted) if kind == "refresh" else merge.apply(connection, deleted)
        move = load.move(copy)
        if kind == "refresh" or (self.mode == "replace" and not self.by):
            return move.replace_all(connection)
        return move.replace_by(connection, load.spell(self.by, "by")) if self.by else move.append(connection)

    def _deleted_keys(self, load: Load) -> DeletedKeysTable | None:
        """Where deleted keys are kept; None if none are."""
        sequence = self.sequence or self._deleted_by
        if not (sequence and self.delete_when) or self.keep_deleted == NOT_KEPT:
            return None
        return load.deleted_keys(load.spell(sequence, "sequence"), self.keep_deleted, may_create=self.create)

    def _require_columns(self, load: Load, batch: Batch, connection: Connection) -> None:
        load.spell(self.by, "by")
        load.spell(self.sequence, "sequence")
        new = [f"new column {column.name} {column.type}" for column in load.columns if column.is_new]
        if load.target.exists and new and not self.evolve and batch.kind != "refresh":
            raise SchemaChanged(batch.job, sink=self.name, differences=new)
        if not load.target.exists and not self.create:
            wanted = "; ".join(each.as_string(connection) for each in load.target.ddl(load.columns, load.key))
            raise ConfigError(f"table {self.table} does not exist and `create` is off.", hint=wanted)

    @contextmanager
    def _driver_errors(self, job: str, server: PostgresServer) -> Iterator[None]:
        """Whatever goes wrong, as an error of ours."""
        import psycopg

        try:
            yield
        except (BatchRefused, psycopg.Error) as error:
            reason = str(error) if isinstance(error, BatchRefused) else server.reason(error)
            raise SinkFailed(job, sink=self.name, reason=reason) from None
        except Exception as error:
            refusal = fault_in(error, "sink")
            if refusal is None:
                raise
            if refusal.startswith(UNREACHABLE):
                raise SinkUnreachable(self.describe(), reason=refusal.removeprefix(UNREACHABLE)) from error
            raise SinkFailed(job, sink=self.name, reason=refusal) from error

    @contextmanager
    def _connect(self) -> Iterator[Connection]:
        """For questions outside a write, where no job is named."""
        import psycopg

        server = self._server()
        try:
            with server.connect() as connection:
                yield connection
        except psycopg.Error as error:
            is_held = isinstance(error, psycopg.errors.LockNotAvailable)
            raise SinkUnreachable(self.describe(), reason=HELD if is_held else server.reason(error)) from None

    def _server(self, application: str = "floodmark") -> PostgresServer:
        return PostgresServer(self.url, application, keeps=True)

    def _ledger(self, connection: Connection, ledger: str) -> PostgresLedger:
        target = Target.read(connection, self.table)
        return PostgresLedger(target.schema, target.table, ledger)
