"""Tables that follow from all events that came, whatever their order: the latest row per key, or every version."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from datetime import timedelta
from functools import cached_property
from typing import TYPE_CHECKING, ClassVar, Literal, TypeAlias, TypeVar, get_args

from floodmark.errors import ConfigError
from floodmark.failpoints import reach
from floodmark.fields import ColumnNames
from floodmark.logs import get_logger
from floodmark.sinks.contract import Batch, Recorded, Session
from floodmark.sinks.delta import PATIENCE_SECONDS, Delta
from floodmark.sinks.delta.choice import AnotherWay
from floodmark.sinks.modes import with_deletes
from floodmark.sinks.restatement import Restatement
from floodmark.sinks.scd.arrival import Changes, EventReader
from floodmark.sinks.scd.events import INTERVAL, IS_CURRENT, VALID_FROM, Ordering, Ties, latest, versions
from floodmark.sinks.scd.small import SmallBatch
from floodmark.sinks.scd.tables import EventLog, FenceBatch, HistoryTables, RebuiltTable

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

    from floodmark.sinks.scd.maintenance import Moment

log = get_logger(__name__)
T = TypeVar("T")
TIES: tuple[str, ...] = get_args(Ties)
CHANGES: tuple[str, ...] = get_args(Changes)
Events = Literal["own", "source"]
EVENTS: tuple[str, ...] = get_args(Events)
EventsOfBatch: TypeAlias = "Callable[[SparkSession, Batch], DataFrame]"


@dataclass(frozen=True)
class Scd1:
    """The latest row of each key by `sequence`, in a Delta table; deletes are remembered, so nothing late comes back.

    `<table>__events` holds what came. A batch is added there, then its keys are rebuilt from all their events: two
    commits, each once per batch number.
    `changes`: "log" (rows are upserts, or deletes where `delete_when` holds), "feed" (of a Delta source with
    `changes="feed"`), "snapshot" (each batch holds all rows of a moment; what is absent was deleted).
    `events`: "own" keeps the log; "source" takes the job's Delta source, which only ever gets rows added, for it, so
    that no event is stored twice: its rows have to stay there. `keep_events` is the age to which `prune_events` goes.
    With `deletion_vectors` a change of few keys costs less in a large table, and readers have to know that feature.

    >>> Scd1("silver/customers", key="id", sequence="changed_at").sequence
    ('changed_at',)
    """

    path: str | None = None
    table: str | None = None
    key: ColumnNames = ColumnNames()
    sequence: ColumnNames = ColumnNames()
    track: ColumnNames = ColumnNames()
    delete_when: str | None = None
    untracked: ColumnNames = ColumnNames()
    on_conflict: Ties = "error"
    changes: Changes = "log"
    allow_empty: bool = False
    name: str = "scd1"
    evolve: bool = False
    patience_seconds: float = PATIENCE_SECONDS
    partition_by: ColumnNames = ColumnNames()
    cluster_by: ColumnNames = ColumnNames()
    deletion_vectors: bool = False
    events: Events = "own"
    keep_events: timedelta | None = None
    _read_events: EventsOfBatch | None = field(default=None, repr=False, compare=False)
    """All rows of the job up to a batch, where its source is the log."""
    own_columns: ClassVar[tuple[str, ...]] = ()

    def __post_init__(self) -> None:
        check_options(self)
        self._tables  # noqa: B018 (now: it may be refused, and a relative path is of today's folder)

    @cached_property
    def reader(self) -> EventReader:
        """How rows become events."""
        return EventReader(self.name, self.changes, self.key, self.sequence, self.delete_when, self.allow_empty)

    @cached_property
    def order(self) -> Ordering:
        """How events are told apart, put in order and compared."""
        first_from = self._first_from()
        return Ordering(self.key, self.reader.sequence, self.track, first_from, self.on_conflict, self.untracked)

    @cached_property
    def _tables(self) -> HistoryTables:
        table = Delta(
            self.path,
            self.table,
            partition_by=self.partition_by,
            cluster_by=self.cluster_by,
            name=self.name,
            evolve=self.evolve,
            patience_seconds=self.patience_seconds,
        )
        log = EventLog.beside(table, self.order)
        rows = RebuiltTable.of(table, self._identity(), deletion_vectors=self.deletion_vectors)
        return HistoryTables(self.name, self.order, log, rows, self._shape, has_floors=self.events == "own")

    def describe(self) -> str:
        return self._tables.table.sink.describe()

    def fingerprint(self) -> str:
        order = self.order
        parts: dict[str, object] = {"key": order.key, "sequence": order.sequence, "track": order.track}
        parts |= {"first_valid_from": order.first_from, "delete_when": self.delete_when, "changes": self.changes}
        parts |= {"untracked": order.untracked, "on_conflict": order.ties}
        parts |= {"events": self.events if self.events != "own" else None}
        options = ", ".join(f"{name} {value}" for name, value in parts.items() if value)
        return f"{type(self).__name__.lower()} {self.describe()} ({options})"

    def recorded(self, ledger: str, session: Session) -> Recorded | None:
        if self.events == "own":
            self._tables.log.sink.target.place.location_now(session)
        return self._tables.table.sink.recorded(ledger, session)

    def tables(self) -> tuple[Delta, ...]:
        log = (self._tables.log.sink,) if self.events == "own" else ()
        return (*log, self._tables.table.sink)

    def borrows_events(self) -> bool:
        """Whether the source of the job is the log."""
        return self.events == "source"

    def reading_events(self, read: EventsOfBatch) -> Scd1:
        """The sink as part of a job, whose rows up to any batch can be read so."""
        return replace(self, _read_events=read)

    def partial_batch(self, ledger: str, session: Session) -> int | None:
        """A batch whose events are in the log and not yet in the table."""
        batch = self._begun_batch(ledger, session)
        return batch.number if batch else None

    def _begun_batch(self, ledger: str, session: Session) -> FenceBatch | None:
        """A log that is fenced and a table that is not yet may be all that a killed fence has left."""
        number = self._tables.table.number(ledger, session)
        if self.events == "source" or self._tables.log.number(ledger, session) <= number:
            return None
        batch = self._tables.log.last_batch(ledger, session)
        return batch if batch and batch.number > number else None

    def holds_rows(self, session: Session) -> bool:
        """Events that come a second time are the same events: nothing is doubled."""
        return False

    def schema(self, session: Session) -> StructType | None:
        stored = (self._tables.log if self.events == "own" else self._tables.table).sink.schema(session)
        return self.reader.expected_schema(stored, self.own_columns) if stored is not None else None

    def needs_position(self) -> bool:
        return self.on_conflict == "last_arrival"

    def restatement(self, rows: Callable[[], DataFrame], expected_rows: int | None) -> Restatement | None:
        """The keys of the batch are rebuilt from all their events; of a snapshot, any key may be."""
        if self.changes == "snapshot":
            return Restatement(self.name, "keys", whole=True)
        return Restatement(self.name, "keys", expected_rows, at_most=True)

    def write(self, rows: DataFrame, batch: Batch) -> int | None:
        """Add the events, then rebuild the keys they touch. Returns the events that came, refused ones included."""
        self.reader.require_columns(rows, self._required_columns(), self.own_columns)
        if self.events == "source":
            return self._write_borrowed(rows, batch)
        events = self.reader.events(rows, self._current(rows.sparkSession, batch), batch)
        small = SmallBatch(self._tables, events, batch)
        added = self._by_arrow(small.add, batch)
        written = added.count if added else self._tables.add(events, batch)
        reach("after_events")
        rebuilt = self._by_arrow(lambda: small.rebuild(added), batch) if added else None
        if rebuilt is None:
            self._tables.rebuild(rows.sparkSession, batch, written)
        return written

    def _by_arrow(self, act: Callable[[], T], batch: Batch) -> T | None:
        """What the way of small batches gives; None if the batch does not take it."""
        try:
            return act()
        except AnotherWay as reason:
            log.debug("the batch goes through Spark's writer", job=batch.job, sink=self.name, reason=str(reason))
            return None

    def _write_borrowed(self, rows: DataFrame, batch: Batch) -> int:
        """One commit: the keys of the batch, from all the events that the source has of them."""
        if self._read_events is None:
            raise ConfigError(
                f"sink '{self.name}' has `events: source`, and nobody told it which source that is.",
                hint="it belongs to a job that reads one Delta table",
            )
        every = with_deletes(self._read_events(rows.sparkSession, batch), self.delete_when)
        return self._tables.rebuild_from(with_deletes(rows, self.delete_when), every, batch)

    def fence(self, ledger: str, number: int, session: Session) -> None:
        """Events that are in the log belong to the table, so they are brought there before the table is fenced.

        The log comes first: who asked it before the fence would not see the events that a paused run adds meanwhile.
        """
        if self.events == "own":
            self._tables.log.sink.fence(ledger, number, session)
        begun = self._begun_batch(ledger, session)
        if begun is not None:
            self._tables.rebuild(session(), begun)
        self._tables.table.sink.fence(ledger, number, session)

    def required_values(self) -> Mapping[str, str]:
        """A row that has them all has a place, or contradicts another one; the moment of a feed is its commit's."""
        declared = self.sequence if self.changes != "feed" else ()
        return {**dict.fromkeys(declared, "sequence"), **dict.fromkeys(self.key, "key")}

    def may_refuse(self, session: Session) -> bool:
        return self.events == "own" and self._tables.may_refuse(session)

    def refused_rows(self, spark: SparkSession, batch: Batch) -> DataFrame | None:
        return self._tables.refused_since(spark, batch)

    def refused(self, spark: SparkSession) -> DataFrame | None:
        """Events that have no place in the table, each with its reason in `_event_refused`; None before the first."""
        return self._tables.refused_events(spark) if self.events == "own" else None

    def prune(self, spark: SparkSession, before: Moment) -> int:
        """Drop events below a moment from the log; the table stays as it is. Returns how many were dropped.

        What is open at the moment becomes a key's first event; what arrives below it later is refused. No run of the
        job may be under way.
        """
        from floodmark.sinks.scd.maintenance import prune_log

        self._require_log()
        return prune_log(self._tables, spark, before)

    def settle(self, spark: SparkSession, keep: str) -> int:
        """Decide between events that contradict each other: those for which the SQL holds count from now on.

        Returns how many were set aside. No run of the job may be under way.
        """
        from floodmark.sinks.scd.maintenance import settle_log

        self._require_log()
        return settle_log(self._tables, spark, keep)

    def contradictions(self, spark: SparkSession) -> tuple[DataFrame, DataFrame] | None:
        """Ids of events in the quarantine: those that contradict each other still, and those that were set aside."""
        return self._tables.ids(spark)

    def _require_log(self) -> None:
        if self.events == "source":
            raise ConfigError(
                f"sink '{self.name}' has no log of its own: its events are in the job's source.",
                hint="`events: own` keeps one that can be pruned",
            )

    def _identity(self) -> tuple[str, ...]:
        return self.key

    def _first_from(self) -> str | None:
        return None

    def _required_columns(self) -> tuple[str, ...]:
        first = self._first_from()
        return (*self.key, *self.order.sequence, *self.track, *self.untracked, *((first,) if first else ()))

    def _shape(self, events: DataFrame) -> DataFrame:
        return latest(events, self.order)

    def _current(self, spark: SparkSession, batch: Batch) -> DataFrame | None:
        """What the table shows, where a snapshot has to be held against it."""
        is_compared = self.changes == "snapshot" and batch.kind != "refresh"
        return self._tables.table.read(spark) if is_compared else None


@dataclass(frozen=True)
class Scd2(Scd1):
    """Every version of each key: `valid_from`, `valid_to` (NULL: still open), `is_current`, beside the rows' columns.

    A version ends where a tracked column changes or the key is deleted; other columns show their last value in it. The
    first version of a key begins at the value of the column `first_valid_from`, if one is named.

    >>> Scd2("silver/customers", key="id", sequence="changed_at", track=["tier"]).track
    ('tier',)
    """

    first_valid_from: str | None = None
    name: str = "scd2"
    own_columns: ClassVar[tuple[str, ...]] = INTERVAL

    def _identity(self) -> tuple[str, ...]:
        return (*self.key, VALID_FROM)

    def _first_from(self) -> str | None:
        return self.first_valid_from

    def _shape(self, events: DataFrame) -> DataFrame:
        return versions(events, self.order)

    def _current(self, spark: SparkSession, batch: Batch) -> DataFrame | None:
        rows = super()._current(spark, batch)
        return rows.where(IS_CURRENT).drop(*INTERVAL) if rows is not None else None


def check_options(sink: Scd1) -> None:
    """Raise ConfigError for what is missing, not known, or belongs to another kind of changes."""
    options = (
        ("on_conflict", sink.on_conflict, TIES),
        ("changes", sink.changes, CHANGES),
        ("events", sink.events, EVENTS),
    )
    for option, given, known in options:
        if given not in known:
            raise ConfigError(f"{option}: {given!r} is not known.", hint=f"one of: {', '.join(known)}")
    if not sink.key:
        raise ConfigError(f"sink '{sink.name}' has no key.", hint="name the columns in `key: [...]`")
    if sink.changes == "log" and not sink.sequence:
        raise ConfigError(
            f"sink '{sink.name}' has no sequence.", hint="name the column that says since when a row holds"
        )
    if sink.delete_when and sink.changes != "log":
        raise ConfigError(f"sink '{sink.name}' has `delete_when` for a {sink.changes}.", hint="leave it out")
    if sink.allow_empty and sink.changes != "snapshot":
        raise ConfigError(f"sink '{sink.name}' has `allow_empty` for a {sink.changes}.", hint="leave it out")
    if sink.track and sink.untracked:
        raise ConfigError(f"sink '{sink.name}' has `track` and `untracked`.", hint="give one of the two")
    if sink.events == "source":
        check_borrowing(sink)
    both = [name for name in sink.track if name in (*sink.key, *sink.sequence)]
    if both:
        raise ConfigError(f"sink '{sink.name}' tracks '{both[0]}', its key or sequence.", hint="leave it out of track")


def check_borrowing(sink: Scd1) -> None:
    """What needs a log of its own: it keeps when an event came, and what was decided about it."""
    needs = {
        f"changes: {sink.changes}": sink.changes != "log",
        f"on_conflict: {sink.on_conflict}": sink.on_conflict != "error",
        "keep_events": sink.keep_events is not None,
    }
    for option in (name for name, is_given in needs.items() if is_given):
        raise ConfigError(
            f"sink '{sink.name}' has `events: source`, and `{option}` needs a log of its own.",
            hint="leave one of the two out",
        )
