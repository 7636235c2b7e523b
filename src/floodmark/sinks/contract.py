"""The contract of a sink: a batch that is written twice changes nothing the second time.

What only some sinks can do is a protocol of its own behind it. The modes of a table mean the same in Delta and
PostgreSQL, so their options are judged here.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING, Any, Literal, Protocol, TypeAlias, runtime_checkable

from floodmark.errors import Overtaken, SinkBehind, SinkDisagrees
from floodmark.hwm import is_same_batch, owner_in

if TYPE_CHECKING:
    from psycopg import Connection
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

    from floodmark.hwm import Json
    from floodmark.sinks.delta import Delta

Session: TypeAlias = "Callable[[], SparkSession]"
OWN = "_fm_"
"""Every column whose name begins so is ours: the step adds it for the sinks, and it never reaches a target."""
POSITION = f"{OWN}position"
"""A column that orders rows as the source did; sinks that need it find it here if the transform kept it."""
DELETE = f"{OWN}delete"
"""True on a row that deletes its key, on its way through a sink."""


Way = Literal["arrow", "parquet", "spark"]
"""How rows got into a target: by Spark's writer, from the driver, where they had come as Arrow, or in Parquet files
that Spark wrote and the driver committed."""


@dataclass(frozen=True)
class BatchSize:
    """What a look knows of the rows that a batch reads, and of the bytes of its files; None where it cannot tell."""

    rows: int | None = None
    file_bytes: int | None = None
    is_bound: bool = False
    """Whether a sink cannot get more rows than are read, since each of them becomes one or none."""


@dataclass
class WriteNotes:
    """How a batch was written, noted by its sinks as they do it."""

    ways: dict[str, Way] = field(default_factory=dict)
    """By sink name."""
    is_partly_observed: bool = False
    """Whether some of the rows were read to see if they are few, and all of them again later: what was observed the
    first time is not the whole batch."""
    restated: dict[str, tuple[int, ...] | None] = field(default_factory=dict)
    """By sink name, the dates that were written anew; None: all."""


@dataclass(frozen=True)
class Batch:
    """One batch on its way to the sinks. `number` is the fence, `digest` says which rows it stands for."""

    namespace: str
    job: str
    number: int
    attempt: str
    digest: str
    kind: Literal["batch", "refresh"]
    batch_time: datetime
    marks: Mapping[str, Json] = field(default_factory=dict)
    frozen: Mapping[str, Mapping[str, Json]] = field(default_factory=dict)
    """By sink name: what a Freezing sink answered when this batch was intended, the same at every attempt."""
    confirmed: Mapping[str, int] = field(default_factory=dict)
    """By sink name: the last number that it confirmed to the store, so that its ledger cannot have less."""
    size: BatchSize = BatchSize()
    notes: WriteNotes = field(default_factory=WriteNotes, repr=False, compare=False)

    def ledger(self, sink: str) -> str:
        return ledger_id(self.namespace, self.job, sink)


def ledger_id(namespace: str, job: str, sink: str) -> str:
    """The name under which a sink remembers the numbers of a job.

    A dot within a part is escaped, so that no two jobs share a ledger: prod with eu.orders is not prod.eu with orders.
    """
    return ".".join(("floodmark", *(part.replace("%", "%25").replace(".", "%2E") for part in (namespace, job, sink))))


def is_ledger(stored: str, ledger: str) -> bool:
    """Whether a stored id is that of this ledger; dots within names were not escaped once."""
    return stored in (ledger, ledger.replace("%2E", ".").replace("%25", "%"))


@dataclass(frozen=True)
class Recorded:
    """The highest batch number a sink has recorded for a ledger; the digest where the sink still knows it.

    A fence took the number and wrote nothing: no row of the target stands for it. `before` is the batch below a fence,
    0 if there was none, None where the sink does not know: a fence must not hide that a batch was lost.
    """

    number: int
    digest: str | None = None
    is_fence: bool = False
    before: int | None = field(default=None, compare=False)

    @property
    def last_batch(self) -> int | None:
        """The number of the last batch itself, whatever was fenced since; None where that is not known."""
        return self.before if self.is_fence else self.number

    @property
    def owner(self) -> str | None:
        """The identity of the record whose batch it is, as far as that is known."""
        return owner_in(self.digest)


def is_written(recorded: Recorded | None, batch: Batch, sink: str, target: str) -> bool:
    """Whether this very batch is in the target; asked under the guard of the write, with what is recorded there.

    Raises SinkBehind, Overtaken or SinkDisagrees where it is not to be written either.
    """
    require_confirmed(recorded, batch, sink, target)
    if recorded is None or recorded.number < batch.number:
        return False
    require_own_number(recorded, batch, sink)
    return True


def require_confirmed(recorded: Recorded | None, batch: Batch, sink: str, target: str) -> None:
    """The ledger has at least what it had when the batch was planned. Raises SinkBehind.

    Judged under the guard of the write: a target that was restored while the run stood still would get a batch on top
    of those that it lost, and nobody could see any more that they are missing.
    """
    confirmed, number = batch.confirmed.get(sink, 0), recorded.number if recorded else None
    if (number or 0) < confirmed:
        raise SinkBehind(batch.job, sink=sink, target=target, recorded=number, confirmed=confirmed)


def require_own_number(recorded: Recorded, batch: Batch, sink: str) -> None:
    """What is recorded, at this number or above, has to be this very batch.

    Raises Overtaken if a fence took the number, or a later batch is there: whoever did that has decided about this
    batch, so its run must not go on to the next sink. Raises SinkDisagrees if the number stands for another digest.
    """
    if recorded.is_fence or recorded.number > batch.number:
        raise Overtaken(batch.job, sink=sink, number=batch.number)
    if not is_same_batch(recorded.digest, batch.digest):
        found = str(recorded.digest)
        raise SinkDisagrees(batch.job, sink=sink, number=batch.number, recorded=found, intended=batch.digest)


class Sink(Protocol):
    """Somewhere rows go."""

    @property
    def name(self) -> str:
        """What its ledger is known by; stable and unique within the job."""

    def describe(self) -> str:
        """The target, for logs and errors; never with a secret in it."""

    def fingerprint(self) -> str:
        """Target and mode: what must not change between a crash and its rerun."""

    def recorded(self, ledger: str, session: Session) -> Recorded | None:
        """What this sink has recorded for the ledger, read without a Spark job where that is possible."""

    def holds_rows(self, session: Session) -> bool:
        """Whether the target holds rows that a delivery from the beginning would double: asked when there is no mark.

        A sink that merges by key, or replaces, doubles nothing and says no.
        """

    def write(self, rows: DataFrame, batch: Batch) -> int | None:
        """Write the batch once, together with its number and digest; return the rows written (None: not known).

        A batch whose number and digest are recorded writes nothing and returns what was written then, if it is known.
        `is_written` tells, and refuses any other number that is not above the recorded one, and a target that lost what
        it had; it is asked under the guard that the write itself takes.
        A batch of kind "refresh" replaces the whole target in one commit.
        """

    def fence(self, ledger: str, number: int, session: Session) -> None:
        """Record the number without rows, so that a run that is paused with it or a lower one cannot write.

        Also where the ledger has no entry, and where the target is not there yet. Changes nothing if the number or a
        higher one is recorded: whoever needs to know which of the two came first asks `recorded` afterwards, which
        tells the batch below the fence too, where the sink keeps it.
        """


class Atomic:
    """Marks a sink whose write is all or nothing, so that one batch can run straight into it."""


@runtime_checkable
class Twofold(Protocol):
    """An atomic sink that may have something to commit beside its target, once the target has the batch."""

    def commits_twice(self) -> bool:
        """Whether it has: then a repeat must find the same rows, for the first commit may be out and the second not."""


def is_atomic(sink: object) -> bool:
    """Whether this very sink takes a batch in one commit, so that nobody compares two attempts at it."""
    return isinstance(sink, Atomic) and not (isinstance(sink, Twofold) and sink.commits_twice())


class AtLeastOnce:
    """Marks a sink that cannot tell a repeat: it has no ledger, and the guarantee table says so."""


@runtime_checkable
class Ordered(Protocol):
    """A sink that may have to choose between two rows of one key."""

    def needs_position(self) -> bool:
        """Whether it wants the POSITION column (it has no sequence of its own)."""


@runtime_checkable
class Discerning(Protocol):
    """A sink that may know a row again which an earlier batch has written."""

    def without_repeats(self, by: tuple[str, ...]) -> Sink | None:
        """The sink as it leaves out what it has, by these columns; None if it would write such a row twice.

        Called when a job is put together whose source reads some rows again.
        """


@runtime_checkable
class Readable(Protocol):
    """A sink whose rows can be read back, so that a source without marks knows what is new."""

    def read(self, session: Session) -> DataFrame | None:
        """The rows as they are now; None if there is no table yet."""


@runtime_checkable
class Shaped(Protocol):
    """A sink whose target has a schema that rows must fit."""

    def schema(self, session: Session) -> StructType | None:
        """The target's schema, or None if the target does not exist yet."""


@runtime_checkable
class Secluded(Protocol):
    """A sink that may write in a session of its own, where what is observed on the way is lost."""

    def is_secluded(self, batch: Batch, session: Session) -> bool:
        """Whether the write of this batch, which comes next, does."""


@runtime_checkable
class Freezing(Protocol):
    """A sink that settles something when a batch is intended, and must find it unchanged at every attempt."""

    def freeze(self, session: Session) -> Mapping[str, Json]:
        """Called once per batch, before its intent is stored; the answer comes back as `Batch.frozen[name]`.

        Nothing of the batch has been written yet. If it fails, the batch was not begun.
        """


@runtime_checkable
class AtOnce(Protocol):
    """A sink that takes batches piece by piece, and one that is known to be small in one transaction."""

    def freeze_at_once(self, session: Session, size: BatchSize) -> Mapping[str, Json] | None:
        """As `freeze`, for a batch that is to be all or nothing, as nobody keeps its rows for another attempt.

        None where it is not known to be small: then `freeze` is asked, and rows that may change are kept.
        """


@runtime_checkable
class OnDelta(Protocol):
    """A sink whose whole target is Delta tables, which can be put back to how a batch left them."""

    def tables(self) -> Sequence[Delta]:
        """Every table that a batch writes to, in the order of the commits."""


@runtime_checkable
class Piecemeal(Protocol):
    """A sink that takes a batch in several transactions, so that part of one may be out."""

    def partial_batch(self, ledger: str, session: Session) -> int | None:
        """The number of a batch of which part is out and the rest is not, if there is one."""


@runtime_checkable
class EndsTransactions(Protocol):
    """A sink whose ledger cannot be read while a run that is gone has something open in it."""

    def end_transactions(self, ledger: str, session: Session) -> None:
        """Give up what another run left open, so that the ledger can be read at once.

        Called where a batch is open, before its ledger is read, and only by who holds the lease: a run that still
        lives has to begin anew what it was writing.
        """


@runtime_checkable
class Patient(Protocol):
    """A sink that waits for minutes where another run has something open in it."""

    def without_waiting(self) -> Sink:
        """The sink as it answers within seconds, or raises SinkUnreachable and says what hides its ledger.

        Called by those who only look and hold no lease, so that they may not end what is open either.
        """


def answering_at_once(sink: Sink) -> Sink:
    """The sink for somebody who only looks."""
    return sink.without_waiting() if isinstance(sink, Patient) else sink


@runtime_checkable
class Forgetting(Protocol):
    """A sink whose server forgets a ledger that was not written to for long."""

    def may_have_forgotten(self, ledger: str) -> bool:
        """Whether a ledger without an entry means no more than that; where the target was made anew, it means a loss.

        Called where the sink had confirmed a batch and its ledger has no entry.
        """

    def make_good(self, batch: Batch, session: Session) -> None:
        """Record again what is out of this batch, if the ledger has forgotten it.

        Called under the lease, before it is decided whether the open batch is finished or dropped. Raises
        SinkUndecided if the target does not tell either.
        """


@runtime_checkable
class Expressing(Protocol):
    """A sink that makes what it writes by SQL, and may write the rest of a batch in another attempt."""

    def expressions(self) -> Mapping[str, str]:
        """The SQL by option. Asked when a job is put together: one that answers otherwise each time is refused."""


@runtime_checkable
class Counting(Protocol):
    """A sink that may keep every row that it is handed, and counts exactly what it has committed."""

    def counts_every_row(self) -> bool:
        """Whether each row becomes one row of the target, so that `write` returns as many as it was handed.

        Not where rows are merged, or left out; nor where the count is only that of the tasks.
        """


@runtime_checkable
class Transactional(Protocol):
    """A sink that writes in a transaction in which the caller may do one thing more."""

    def write_joined(
        self, rows: DataFrame, batch: Batch, in_transaction: Callable[[Connection[Any], int], None]
    ) -> int | None:
        """As `write`, and just before the commit `in_transaction` is called with the connection and the rows written.

        If that raises, nothing is written.
        """


def written_columns(rows: DataFrame) -> list[str]:
    """The columns that a target gets."""
    return [name for name in rows.columns if not name.startswith(OWN)]


def without_own(rows: DataFrame) -> DataFrame:
    """The rows as a target gets them."""
    return rows.drop(*(name for name in rows.columns if name.startswith(OWN)))
