"""The contract of a mark store; one file per backend stands beside it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import datetime
    from pathlib import Path

    from psycopg import Connection

    from floodmark.hwm import HWM
    from floodmark.stores.paged import PruneCounts
    from floodmark.stores.record import JobRecord, Lease, Owner, Receipt
    from floodmark.stores.run_index import RunEnd


class MarkStore(Protocol):
    """Remembers how far each job has read.

    Every method raises StoreUnreachable if the store cannot be used, and then nothing was changed.

    >>> store: MarkStore = fm.stores.open("memory")
    >>> store.read("orders") is None, list(store.history("orders"))
    (True, [])
    """

    namespace: str

    def describe(self) -> str:
        """Where the marks are, for logs and errors; never with a secret in it."""

    def read(self, job: str, known: JobRecord | None = None) -> JobRecord | None:
        """The job's record, or None if it never had one. If it still is `known`, that very object is returned.

        Called at every look. Raises MarkUnreadable if a record is there but cannot be parsed.
        """

    def intend(self, record: JobRecord, *, expected: int, lease: Lease) -> None:
        """Save the record with its open intent (or with the intent dropped); marks and number stay as they were.

        Called before the first write of a batch. Raises MarkMoved if the stored number is not `expected`, LeaseLost
        if the lease is no longer the stored one, MarkInvalid if a mark or the number would change: nothing was saved.
        """

    def commit(self, record: JobRecord, *, expected: int, lease: Lease, receipt: Receipt | None = None) -> None:
        """Save the record and its receipt only if the stored number is still `expected` and the lease still held.

        Durable on return, or the old record is untouched. Called once per batch, after every sink has confirmed; also
        by `marks set` and `reset`, whose record has another `origin`; a reset also replaces a record that cannot be
        read. Raises MarkMoved, LeaseLost, or MarkInvalid if the number is not above `expected`: nothing was saved.
        """

    def jobs(self) -> Sequence[str]:
        """The names of all jobs with a record in this namespace, sorted."""

    def history(self, job: str, limit: int = 20) -> Sequence[JobRecord]:
        """Committed records, newest first, without intents; bounded by the store's `keep_history`."""

    def runs(self, job: str | None = None, limit: int = 20) -> Sequence[Receipt]:
        """Receipts, newest first."""

    def add_run(self, receipt: Receipt) -> None:
        """Keep the receipt of a run that committed nothing (failed, skipped)."""

    def lease(self, job: str) -> Lease | None:
        """The lease as stored, whether its owner lives or not."""

    def take_lease(self, job: str, owner: Owner, *, over: Lease | None) -> Lease:
        """Take the lease if the stored one still has the token of `over` (None: if there is none).

        Raises LeaseHeld if somebody else was faster.
        """

    def beat(self, lease: Lease, owner: Owner | None = None) -> None:
        """Show that the owner lives, and say so if it is known better now (its JVM was started meanwhile).

        Raises LeaseLost if the stored lease has another token.
        """

    def release(self, lease: Lease) -> None:
        """Give the lease back; one that was lost already is left alone."""

    def looked(self, job: str, at: datetime) -> None:
        """Note that a loop looked and found nothing: one entry of fixed size beside the record."""

    def last_looked(self, job: str) -> datetime | None:
        """When a loop last looked, if ever."""

    def prune(
        self, job: str, *, history_before: datetime | None, keep_at_least: int, runs_before: datetime | None
    ) -> PruneCounts:
        """Drop history and receipts that are older, but never the newest `keep_at_least` of each; None drops nothing.

        The current record and its open intent are never touched.
        """

    def forget(self, job: str, *, lease: Lease) -> None:
        """Drop everything that is kept for the job, its lease too. Raises LeaseLost: nothing was dropped."""

    def get_hwm(self, name: str) -> HWM[Any] | None:
        """The mark of that name, for users of etl-entities; None if there is none."""

    def set_hwm(self, mark: HWM[Any]) -> None:
        """Save a mark under its own name and a new number. Raises LeaseHeld while a run works with it."""

    def close(self) -> None:
        """Let go of files and connections; the store may not be used afterwards."""


@runtime_checkable
class LevelStore(MarkStore, Protocol):
    """A store that can be one level of several.

    >>> isinstance(fm.stores.SqliteMarkStore(f"{folder}/marks.db"), LevelStore)
    True
    """

    def stamp(self, job: str) -> str | None:
        """A text that is new with every save of the record; None if there is no record. Much cheaper than read."""

    def fill(self, record: JobRecord, stamp: str) -> None:
        """Take over the record that another level holds under this stamp; no lease is asked for."""


@runtime_checkable
class LevelledStore(Protocol):
    """A store of several levels, which can say which of them served a record."""

    def served_by(self, job: str) -> str:
        """The level that the job's record was last read from; never with a secret in it."""


@runtime_checkable
class RunIndex(Protocol):
    """A store that finds and counts runs without parsing every receipt; `run_index` asks it, or any other store."""

    def names(self) -> Sequence[str]:
        """Every job that has a record or a receipt, sorted."""

    def run_ends(self, job: str, limit: int) -> Sequence[RunEnd]:
        """How the last runs of a job ended, newest first. Raises MarkUnreadable if a receipt does not tell."""

    def runs_named(self, begin: str, job: str | None = None) -> Sequence[Receipt]:
        """Receipts whose run id begins so, newest first."""


@runtime_checkable
class FolderStore(Protocol):
    """A store that lives in a folder of this machine; what belongs to its jobs (the spool) is kept beside it."""

    @property
    def folder(self) -> Path:
        """The folder that the store is in."""


@runtime_checkable
class ClockedStore(Protocol):
    """A store with a clock of its own, which every host that uses it shares."""

    def seconds_since_beat(self, lease: Lease) -> float | None:
        """How long its owner has been silent, by the store's clock; None if this lease is no longer there."""


@runtime_checkable
class JoiningStore(Protocol):
    """A store whose commit can be part of a transaction that the caller owns, with the rows of its sink."""

    def commit_within(
        self,
        connection: Connection[Any],
        record: JobRecord,
        *,
        expected: int,
        lease: Lease,
        receipt: Receipt | None = None,
    ) -> None:
        """Do what `commit` does as part of the transaction that is open on the caller's connection; call it last."""

    def is_reached_by(self, connection: Connection[Any], lease: Lease) -> bool:
        """Whether the connection leads to the database of this store."""


@runtime_checkable
class PreparableStore(Protocol):
    """A store whose tables can be made beforehand, by somebody with more rights than its users."""

    def ddl(self) -> str:
        """The statements that make the tables."""

    def prepare(self) -> None:
        """Make the tables, if they are not there."""
