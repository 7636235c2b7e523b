"""Holding the lease of a job: taking it, showing that its owner lives, taking it over from the dead."""

from __future__ import annotations

import logging
import math
import os
import platform
import threading
import time
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import datetime, timezone
from typing import TYPE_CHECKING, Literal

from floodmark.errors import ConfigError, LeaseHeld, LeaseLost, StoreError
from floodmark.machine import Machine, is_hidden, is_stopped, start_of_process, this_machine
from floodmark.stores.contract import ClockedStore
from floodmark.stores.record import JobRecord, Owner

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from floodmark.stores.contract import MarkStore
    from floodmark.stores.record import Lease


Vitality = Literal["alive", "leaving", "dead", "unsure"]


def this_process(jvm_pid: int | None = None) -> Owner:
    """This process as the owner of a lease, with the JVM that writes for it.

    >>> import os
    >>> this_process().pid == os.getpid()
    True
    """
    machine = this_machine()
    return Owner(
        host=platform.node(),
        boot=machine.boot,
        namespace=machine.namespace,
        pid=os.getpid(),
        started=start_of_process(os.getpid()) or "",
        jvm_pid=jvm_pid,
        jvm_started=start_of_process(jvm_pid) if jvm_pid else None,
    )


def vitality(owner: Owner) -> Vitality:
    """alive; leaving (Python is gone, its JVM still writes); dead; unsure.

    Unsure is an owner of another machine, one that was stopped by a signal, and one whose processes this user may not
    see: only its heartbeat tells whether it lives.
    """
    if not same_machine(owner):
        return "unsure"
    if python_alive(owner):
        return "unsure" if is_stopped(owner.pid) else "alive"
    if jvm_alive(owner):
        return "leaving"
    return "unsure" if any(is_hidden(pid) for pid in (owner.pid, owner.jvm_pid) if pid) else "dead"


def alive(owner: Owner) -> bool:
    """Whether Python or its JVM is still there; only with both gone nothing can be written any more."""
    return python_alive(owner) or jvm_alive(owner)


def python_alive(owner: Owner) -> bool:
    """Whether the process itself is there, and is not another one that was given its number."""
    return start_of_process(owner.pid) == owner.started


def jvm_alive(owner: Owner) -> bool:
    """Whether the JVM that was started for it is there."""
    return (
        owner.jvm_pid is not None
        and owner.jvm_started is not None
        and start_of_process(owner.jvm_pid) == owner.jvm_started
    )


def same_machine(owner: Owner) -> bool:
    """Whether the owner's process numbers mean anything here: the same boot and the same container."""
    return Machine(owner.boot, owner.namespace) == this_machine()


log = logging.getLogger(__name__)
VARIABLE = "FLOODMARK_LEASE_SECONDS"
POLL_SECONDS = {"leaving": 0.05, "unsure": 0.5}

_guard = threading.Lock()
_mine: set[str] = set()
"""Tokens that this process holds: a lease of this process that is not among them was left by a failed release."""


@dataclass(frozen=True)
class Patience:
    """How long to watch an owner that may be dead, by this process's own clock.

    >>> with hold(fm.stores.open("memory"), "orders", patience=Patience(seconds=30)) as lease:
    ...     lease.check()
    """

    seconds: float
    clock: Callable[[], float] = time.monotonic
    sleep: Callable[[float], None] = time.sleep
    vitality: Callable[[Owner], Vitality] = vitality


def default_seconds() -> float:
    """30, or FLOODMARK_LEASE_SECONDS."""
    text = os.environ.get(VARIABLE) or "30"
    try:
        seconds = float(text)
    except ValueError:
        seconds = 0.0
    if not 0 < seconds < math.inf:
        raise ConfigError(f"{VARIABLE} is '{text}'.", hint="a number of seconds above 0")
    return seconds


class HeldLease:
    """A lease that this process holds.

    >>> store = fm.stores.open("memory")
    >>> with hold(store, "orders") as lease:
    ...     lease.check()  # raises LeaseLost once another run has taken over
    """

    def __init__(self, store: MarkStore, lease: Lease) -> None:
        self.lease = lease
        self.left_over = lease.owner.remote
        """Sessions of Spark Connect servers that may still work for the owner before us."""
        self._store, self._gone = store, threading.Event()

    def check(self) -> None:
        """Raise LeaseLost if the lease is not ours any more; called before every write."""
        stored = self._store.lease(self.lease.job)
        if self._gone.is_set() or stored is None or stored.token != self.lease.token:
            raise LeaseLost(self.lease.job, holder=str(stored.owner) if stored else None)

    def with_jvm(self, pid: int | None) -> None:
        """Record the JVM that will write for us, before it writes; None: it is not of this machine (Spark Connect)."""
        if pid is None:
            return
        self._know(replace(self.lease.owner, jvm_pid=pid, jvm_started=start_of_process(pid)))

    def with_session(self, address: str) -> None:
        """Record a session of a Spark Connect server that will work for us, before it does."""
        remote = tuple(dict.fromkeys((*self.lease.owner.remote, address)))
        self._know(replace(self.lease.owner, remote=remote))

    def end_left_over(self) -> None:
        """Record that what was left over has come to its end."""
        remote = tuple(each for each in self.lease.owner.remote if each not in self.left_over)
        self._know(replace(self.lease.owner, remote=remote))
        self.left_over = ()

    def _know(self, owner: Owner) -> None:
        if owner == self.lease.owner:
            return
        self._store.beat(self.lease, owner)
        self.lease = replace(self.lease, owner=owner)

    def save(
        self, changed: JobRecord, *, after: JobRecord, above: int = 0, modified_time: datetime | None = None
    ) -> JobRecord:
        """Commit what somebody changed in the record `after`, and return it as it is stored.

        Its number is the next one, also above that of an open batch (which is given up) and above `above`.
        Raises MarkMoved or LeaseLost: nothing was saved.
        """
        number, moment = max(after.highest_number, above) + 1, modified_time or datetime.now(timezone.utc)
        later = replace(changed, number=number, intent=None, modified_time=moment)
        self._store.commit(later, expected=after.number, lease=self.lease)
        return later

    def beat_until(self, done: threading.Event, interval_seconds: float) -> None:
        """Beat until the work is done; a store that cannot be reached is tried again, a lost lease is not."""
        while not done.wait(interval_seconds):
            try:
                self._store.beat(self.lease)
            except LeaseLost:
                self._gone.set()
                return
            except StoreError as error:
                log.warning("job %s: no heartbeat: %s", self.lease.job, error.message)


@contextmanager
def hold(
    store: MarkStore, job: str, owner: Owner | None = None, *, patience: Patience | None = None
) -> Iterator[HeldLease]:
    """Hold the job's lease during the block, for this process. Raises LeaseHeld if another run works on the job.

    >>> store = fm.stores.open("memory")
    >>> with hold(store, "orders") as lease:
    ...     store.lease("orders").token == lease.lease.token
    True
    >>> store.lease("orders") is None
    True
    """
    patience = patience or Patience(default_seconds())
    over = claimable(store, job, patience)
    with _guard:
        successor = replace(owner or this_process(), remote=over.owner.remote if over else ())
        lease = store.take_lease(job, successor, over=over)
        _mine.add(lease.token)
    held, done = HeldLease(store, lease), threading.Event()
    beats = (done, min(2.0, patience.seconds / 3))
    heart = threading.Thread(target=held.beat_until, args=beats, name=f"lease of {job}", daemon=True)
    heart.start()
    try:
        yield held
    finally:
        done.set()
        heart.join()
        _mine.discard(lease.token)
        _let_go(store, lease)


def change_record(store: MarkStore, job: str, change: Callable[[JobRecord], JobRecord]) -> JobRecord:
    """Change the record of a job (a blank one if there is none) under its lease and the next number.

    A change that gives back the very record it was given writes nothing. Raises LeaseHeld while a run works on the job.
    """
    with hold(store, job) as held:
        record = store.read(job) or JobRecord(job)
        changed = change(record)
        return record if changed is record else held.save(changed, after=record)


def claimable(store: MarkStore, job: str, patience: Patience) -> Lease | None:
    """The lease that may be taken over (None: there is none), after watching its owner where that is needed."""
    first = store.lease(job)
    if first is None or _is_left_over(first):
        return first
    deadline = patience.clock() + patience.seconds - _silent_seconds(store, first, patience)
    while (state := patience.vitality(first.owner)) != "dead" and patience.clock() < deadline:
        if state == "alive":
            raise _held_error(first)
        patience.sleep(min(POLL_SECONDS[state], patience.seconds / 10))
        now = store.lease(job)
        if now is None:
            return None
        if (now.token, now.beat) != (first.token, first.beat):
            raise _held_error(now)
    log.info("job %s: taking over the lease of %s", job, first.owner)
    return first


def _silent_seconds(store: MarkStore, lease: Lease, patience: Patience) -> float:
    """How long an owner of another host has been silent already, where the store has a clock that both share."""
    if not isinstance(store, ClockedStore) or patience.vitality(lease.owner) != "unsure":
        return 0.0
    return store.seconds_since_beat(lease) or 0.0


def _is_left_over(lease: Lease) -> bool:
    me, owner = this_process(), lease.owner
    same = (owner.boot, owner.namespace, owner.pid, owner.started) == (me.boot, me.namespace, me.pid, me.started)
    with _guard:
        return same and lease.token not in _mine


def _held_error(lease: Lease) -> LeaseHeld:
    return LeaseHeld(lease.job, holder=str(lease.owner), since=lease.since.isoformat())


def _let_go(store: MarkStore, lease: Lease) -> None:
    """The work is committed or not, whatever happens here: a lease that stays behind is taken over by the next run."""
    try:
        store.release(lease)
    except StoreError as error:
        log.warning("job %s: the lease could not be released: %s", lease.job, error.message)
