"""Several stores as one, nearest first: the last level is the truth, the others spare reading it again.

Every read asks the truth for the stamp of the record, one small query, and takes the record itself from the nearest
level that holds it under that stamp. So nothing is ever older than the truth, a change made from outside is seen by
the next read, and a truth that cannot be reached stops the run. Lease, intent, commit, history and receipts are the
truth's alone; after a save the levels above it are filled. A level above the truth that fails is passed over.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from floodmark.errors import ConfigError, StoreError
from floodmark.stores.contract import ClockedStore, FolderStore, JoiningStore, PreparableStore, RunIndex
from floodmark.stores.hwm_access import HwmAccess

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import datetime

    from floodmark.stores.contract import LevelStore
    from floodmark.stores.paged import PruneCounts
    from floodmark.stores.record import JobRecord, Lease, Owner, Receipt


log = logging.getLogger(__name__)


class LayeredMarkStore(HwmAccess):
    """A cache of any number of levels above one truth.

    >>> store = LayeredMarkStore([fm.stores.open("memory"), fm.stores.FileMarkStore(folder)])
    >>> store.namespace, store.jobs()
    ('default', [])
    """

    def __init__(self, levels: Sequence[LevelStore]) -> None:
        if not levels:
            raise ConfigError("a layered store has no levels.", hint="give at least one store")
        *self._above, self._truth = levels
        self.namespace = self._truth.namespace
        self._served: dict[str, str] = {}
        if isinstance(self._truth, FolderStore):
            self.folder = self._truth.folder
        if isinstance(self._truth, ClockedStore):
            self.seconds_since_beat = self._truth.seconds_since_beat
        if isinstance(self._truth, RunIndex):
            self.names, self.run_ends, self.runs_named = (
                self._truth.names,
                self._truth.run_ends,
                self._truth.runs_named,
            )
        if isinstance(self._truth, JoiningStore):  # the levels above see the new stamp at their next read
            self.commit_within, self.is_reached_by = self._truth.commit_within, self._truth.is_reached_by
        if isinstance(self._truth, PreparableStore):
            self.ddl, self.prepare = self._truth.ddl, self._truth.prepare

    def describe(self) -> str:
        """All levels, nearest first."""
        return " over ".join(level.describe() for level in [*self._above, self._truth])

    def served_by(self, job: str) -> str:
        """The level of the last read, and what it is a level of."""
        level = self._served.get(job, self._truth.describe())
        return f"{level} (of {self.describe()})"

    def read(self, job: str, known: JobRecord | None = None) -> JobRecord | None:
        """The record that the truth holds now, from the nearest level that has it."""
        stamp = self._truth.stamp(job)
        if stamp is None:
            return None
        for level in self._above:
            record = _read_level(level, job, stamp, known)
            if record is not None:
                self._served[job] = level.describe()
                return record
        record = self._truth.read(job, known)
        self._served[job] = self._truth.describe()
        if record is not None:
            self._fill(record, stamp)
        return record

    def intend(self, record: JobRecord, *, expected: int, lease: Lease) -> None:
        """Save the intent in the truth."""
        self._truth.intend(record, expected=expected, lease=lease)
        self._refill(record)

    def commit(self, record: JobRecord, *, expected: int, lease: Lease, receipt: Receipt | None = None) -> None:
        """Save record and receipt in the truth."""
        self._truth.commit(record, expected=expected, lease=lease, receipt=receipt)
        self._refill(record)

    def jobs(self) -> Sequence[str]:
        """Jobs of the truth."""
        return self._truth.jobs()

    def history(self, job: str, limit: int = 20) -> Sequence[JobRecord]:
        """History of the truth."""
        return self._truth.history(job, limit)

    def runs(self, job: str | None = None, limit: int = 20) -> Sequence[Receipt]:
        """Receipts of the truth."""
        return self._truth.runs(job, limit)

    def add_run(self, receipt: Receipt) -> None:
        """Keep a receipt in the truth."""
        self._truth.add_run(receipt)

    def lease(self, job: str) -> Lease | None:
        """The lease in the truth."""
        return self._truth.lease(job)

    def take_lease(self, job: str, owner: Owner, *, over: Lease | None) -> Lease:
        """Take the lease in the truth."""
        return self._truth.take_lease(job, owner, over=over)

    def beat(self, lease: Lease, owner: Owner | None = None) -> None:
        """Beat in the truth."""
        self._truth.beat(lease, owner)

    def release(self, lease: Lease) -> None:
        """Give the truth's lease back."""
        self._truth.release(lease)

    def looked(self, job: str, at: datetime) -> None:
        """Note it in the truth: health asks there."""
        self._truth.looked(job, at)

    def last_looked(self, job: str) -> datetime | None:
        """As the truth says."""
        return self._truth.last_looked(job)

    def prune(
        self, job: str, *, history_before: datetime | None, keep_at_least: int, runs_before: datetime | None
    ) -> PruneCounts:
        """Prune the truth, where history and receipts are."""
        limits = {"history_before": history_before, "runs_before": runs_before}
        return self._truth.prune(job, keep_at_least=keep_at_least, **limits)

    def forget(self, job: str, *, lease: Lease) -> None:
        """Forget it in the truth: a level above holds it under a stamp that the truth never gives again."""
        self._truth.forget(job, lease=lease)

    def close(self) -> None:
        """Close every level."""
        for level in [*self._above, self._truth]:
            level.close()

    def _refill(self, record: JobRecord) -> None:
        """After a save: under the lease the truth's stamp is the one of this record."""
        try:
            stamp = self._truth.stamp(record.job)
        except StoreError as error:  # the save is durable, and the next read asks again
            log.warning("job %s: %s", record.job, error.message)
            return
        if stamp is not None:
            self._fill(record, stamp)

    def _fill(self, record: JobRecord, stamp: str) -> None:
        for level in reversed(self._above):
            try:
                level.fill(record, stamp)
            except StoreError as error:
                log.warning("level %s could not be filled: %s", level.describe(), error.message)


def _read_level(level: LevelStore, job: str, stamp: str, known: JobRecord | None) -> JobRecord | None:
    try:
        return level.read(job, known) if level.stamp(job) == stamp else None
    except StoreError as error:
        log.warning("level %s is passed over: %s", level.describe(), error.message)
        return None
