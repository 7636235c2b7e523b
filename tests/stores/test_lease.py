"""Holding a lease: who waits for whom, and for how long."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import pytest

from floodmark import stores
from floodmark.errors import ConfigError, LeaseHeld, LeaseLost, StoreUnreachable
from floodmark.stores import MemoryMarkStore, this_process
from floodmark.stores.lease import HeldLease, Patience, change_record, default_seconds, hold
from floodmark.testing.doubles import FailingStore
from floodmark.testing.laws.records import ME, NOON, OTHER, record, save, with_open_intent
from tests.stores.processes import child, next_line

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from floodmark.stores.lease import Vitality
    from floodmark.stores.record import Lease, Owner


@dataclass
class Watch:
    """A clock that moves when somebody sleeps, and an owner whose state is told from a list, the last one for ever."""

    states: list[Vitality]
    meanwhile: Callable[[], object] = lambda: None
    slept: list[float] = field(default_factory=list)

    def clock(self) -> float:
        return sum(self.slept)

    def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        self.meanwhile()

    def state(self, owner: Owner) -> Vitality:
        return self.states.pop(0) if len(self.states) > 1 else self.states[0]

    def patience(self) -> Patience:
        return Patience(30, self.clock, self.sleep, self.state)


@pytest.fixture
def store() -> MemoryMarkStore:
    return MemoryMarkStore()


def test_a_free_lease_is_held_during_the_block_and_given_back(store: MemoryMarkStore) -> None:
    """The owner is this process."""
    with hold(store, "orders") as held:
        during = store.lease("orders")
        held.check()
    assert during is not None
    assert (during.owner.pid, during.owner, store.lease("orders")) == (os.getpid(), this_process(), None)


def test_a_lease_is_given_back_when_the_work_fails(store: MemoryMarkStore) -> None:
    """A failed run must not keep the next one waiting."""
    with pytest.raises(ZeroDivisionError), hold(store, "orders"):
        raise ZeroDivisionError
    assert store.lease("orders") is None


def test_a_living_owner_here_refuses_at_once(store: MemoryMarkStore) -> None:
    """With its pid, its host and since when."""
    lease, watch = store.take_lease("orders", ME, over=None), Watch(["alive"])
    with pytest.raises(LeaseHeld) as refused, hold(store, "orders", patience=watch.patience()):
        pass
    assert (refused.value.holder, refused.value.since) == ("pid 1 on here", lease.since.isoformat())
    assert watch.slept == []


def test_another_thread_of_this_process_refuses_at_once(store: MemoryMarkStore) -> None:
    """A process is alive to itself too."""
    with hold(store, "orders"), pytest.raises(LeaseHeld), hold(store, "orders"):
        pass


def test_a_dead_owner_here_is_taken_over_at_once(store: MemoryMarkStore) -> None:
    """Both its Python and its JVM are gone: nothing can be written by it."""
    store.take_lease("orders", ME, over=None)
    watch = Watch(["dead"])
    with hold(store, "orders", OTHER, patience=watch.patience()) as held:
        assert (held.lease.owner, watch.slept) == (OTHER, [])


def test_a_jvm_that_outlives_its_python_is_waited_for(store: MemoryMarkStore) -> None:
    """It may still write; polled every 50 ms."""
    store.take_lease("orders", ME, over=None)
    watch = Watch(["leaving", "leaving", "dead"])
    with hold(store, "orders", OTHER, patience=watch.patience()):
        assert watch.slept == [0.05, 0.05]


def test_a_jvm_that_stays_for_ever_is_waited_for_no_longer_than_a_lease(store: MemoryMarkStore) -> None:
    """Then the numbers of the sinks are what keeps it out."""
    store.take_lease("orders", ME, over=None)
    watch = Watch(["leaving"])
    with hold(store, "orders", OTHER, patience=watch.patience()):
        assert watch.clock() == pytest.approx(30, abs=0.1)


def test_an_owner_elsewhere_that_beats_refuses(store: MemoryMarkStore) -> None:
    """Its counter moved while we watched, whatever its clock says."""
    lease = store.take_lease("orders", ME, over=None)
    watch = Watch(["unsure"], meanwhile=lambda: store.beat(lease))
    with pytest.raises(LeaseHeld), hold(store, "orders", OTHER, patience=watch.patience()):
        pass
    assert len(watch.slept) == 1


def test_an_owner_elsewhere_that_is_silent_for_a_lease_is_taken_over(store: MemoryMarkStore) -> None:
    """30 seconds of our own clock."""
    old = save(store, record(1))
    watch = Watch(["unsure"])
    with hold(store, "orders", OTHER, patience=watch.patience()), pytest.raises(LeaseLost):
        store.commit(record(2), expected=1, lease=old)
    assert watch.clock() == pytest.approx(30)


def test_an_owner_that_lets_go_while_it_is_watched_is_followed(store: MemoryMarkStore) -> None:
    """Nobody waits longer than needed."""
    lease = store.take_lease("orders", ME, over=None)
    watch = Watch(["unsure"], meanwhile=lambda: store.release(lease))
    with hold(store, "orders", OTHER, patience=watch.patience()):
        assert watch.slept == [0.5]


def test_an_owner_that_changes_while_it_is_watched_refuses(store: MemoryMarkStore) -> None:
    """Somebody else was faster."""
    lease = store.take_lease("orders", ME, over=None)
    watch = Watch(["unsure"], meanwhile=lambda: store.take_lease("orders", ME, over=lease))
    with pytest.raises(LeaseHeld), hold(store, "orders", OTHER, patience=watch.patience()):
        pass


def test_a_lease_that_was_taken_over_fails_its_check(store: MemoryMarkStore) -> None:
    """A runner that finds its lease gone stops before it writes, and leaves the new owner's alone."""
    with hold(store, "orders") as held:
        new = store.take_lease("orders", OTHER, over=held.lease)
        with pytest.raises(LeaseLost) as lost:
            held.check()
    assert (lost.value.holder, store.lease("orders")) == ("pid 2 on there", new)


def test_a_lease_that_a_beat_found_lost_stays_lost(store: MemoryMarkStore) -> None:
    """Somebody had it in between, and what they did is not known here: it does not matter who has it now."""
    held = HeldLease(LosingStore(store), store.take_lease("orders", ME, over=None))  # type: ignore[arg-type]
    held.check()
    held.beat_until(threading.Event(), 0.0)
    with pytest.raises(LeaseLost):
        held.check()


def test_no_heart_beats_once_the_work_is_done(store: MemoryMarkStore) -> None:
    """A beat that comes after the lease was given back would be one of nobody's."""
    with hold(store, "orders"):
        assert "lease of orders" in [thread.name for thread in threading.enumerate()]
    assert "lease of orders" not in [thread.name for thread in threading.enumerate()]


def test_the_heart_beats_by_itself(store: MemoryMarkStore) -> None:
    """Every third of a short lease."""
    with hold(store, "orders", patience=Patience(0.03)):
        time.sleep(0.2)
        stored = store.lease("orders")
    assert stored is not None
    assert stored.beat >= 3


def test_a_heart_that_misses_a_beat_goes_on() -> None:
    """A store that was away for a moment costs nothing."""
    store = FailingStore(MemoryMarkStore(), {"beat": 1})
    with hold(store, "orders", patience=Patience(0.03)) as held:
        time.sleep(0.2)
        held.check()
        stored = store.lease("orders")
    assert stored is not None
    assert stored.beat >= 2


def test_the_jvm_is_recorded_when_it_is_known(store: MemoryMarkStore) -> None:
    """Spark starts after the lease is taken; its pid is stored before it writes."""
    with hold(store, "orders") as held:
        held.with_jvm(os.getpid())
        stored = store.lease("orders")
    assert stored is not None
    assert (stored.owner.jvm_pid, stored.owner.jvm_started) == (os.getpid(), this_process().started)


def test_a_lease_that_could_not_be_given_back_is_no_obstacle_to_its_own_process() -> None:
    """A loop that lost the store for a moment goes on at its next tick."""
    store = FailingStore(MemoryMarkStore(), {"release": 1})
    with hold(store, "orders"):
        pass
    with hold(store, "orders") as held:
        held.check()
    assert store.lease("orders") is None


def test_a_taking_whose_answer_was_lost_is_no_obstacle_to_its_own_process() -> None:
    """The lease is stored, and nobody knows its token."""
    store = FailingStore(MemoryMarkStore(), {"take_lease": 1}, when="after")
    with pytest.raises(StoreUnreachable), hold(store, "orders"):
        pass
    with hold(store, "orders") as held:
        held.check()


@pytest.fixture
def sleeper() -> Iterator[subprocess.Popen[bytes]]:
    """A process that stands for a JVM."""
    with subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"]) as process:
        yield process
        process.kill()


@pytest.mark.parametrize("text", ["sqlite:///{}/m.db", "file:{}/m"])
def test_a_killed_process_is_taken_over_at_once(text: str, tmp_path: Path) -> None:
    """A real one, by kill -9."""
    place = text.format(tmp_path)
    with child("hold", place, 0) as process:
        assert next_line(process) == "held"
        with pytest.raises(LeaseHeld), hold(stores.open(place), "orders"):
            pass
        process.kill()
        process.wait()
        before = time.monotonic()
        with hold(stores.open(place), "orders", patience=Patience(30)) as held:
            held.check()
    assert time.monotonic() - before < 1


def test_a_killed_process_whose_jvm_lives_is_waited_for(tmp_path: Path, sleeper: subprocess.Popen[bytes]) -> None:
    """It is taken over as soon as the JVM is gone too; a zombie is gone."""
    place = f"sqlite:///{tmp_path}/m.db"
    with child("hold", place, sleeper.pid) as process:
        assert next_line(process) == "held"
        process.kill()
        process.wait()
    slept: list[float] = []

    def end_the_jvm_later(seconds: float) -> None:
        slept.append(seconds)
        time.sleep(seconds)
        os.kill(sleeper.pid, signal.SIGKILL if len(slept) == 3 else 0)

    patience = replace(Patience(30), sleep=end_the_jvm_later)
    with hold(stores.open(place), "orders", patience=patience) as held:
        held.check()
    assert 3 <= len(slept) <= 10


def test_a_stopped_process_is_watched_and_not_believed(tmp_path: Path) -> None:
    """SIGSTOP: it is there, but it does not beat; after a lease it is taken over."""
    place = f"file:{tmp_path}/m"
    with child("hold", place, 0) as process:
        assert next_line(process) == "held"
        process.send_signal(signal.SIGSTOP)
        os.waitpid(process.pid, os.WUNTRACED)
        with hold(stores.open(place), "orders", patience=Patience(0.8)) as held:
            held.check()


def test_the_length_of_a_lease_comes_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """30 seconds, or what FLOODMARK_LEASE_SECONDS says."""
    monkeypatch.delenv("FLOODMARK_LEASE_SECONDS", raising=False)
    assert default_seconds() == 30
    monkeypatch.setenv("FLOODMARK_LEASE_SECONDS", "2.5")
    assert default_seconds() == 2.5


@pytest.mark.parametrize("text", ["soon", "0", "-1", "nan"])
def test_a_length_that_is_no_time_is_refused(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """By name, as a mistake of configuration."""
    monkeypatch.setenv("FLOODMARK_LEASE_SECONDS", text)
    with pytest.raises(ConfigError, match="FLOODMARK_LEASE_SECONDS"):
        default_seconds()


def test_a_saved_decision_is_numbered_above_everything_that_is_known(store: MemoryMarkStore) -> None:
    """Above the open batch, which is given up, and above what a sink has recorded: both may still be written."""
    store.release(save(store, record(3)))
    with hold(store, "orders") as held:
        begun = with_open_intent(record(3))
        store.intend(begun, expected=3, lease=held.lease)
        first = held.save(begun, after=begun)
        second = held.save(first, after=first, above=9, modified_time=NOON)
    assert (first.number, first.intent, second.number, second.modified_time) == (5, None, 10, NOON)
    assert store.read("orders") == second


def test_a_decision_under_a_lost_lease_saves_nothing(store: MemoryMarkStore) -> None:
    """Another run works by now, and knows better."""
    lease = save(store, record(1))
    store.release(lease)
    with hold(store, "orders") as held:
        store.take_lease("orders", OTHER, over=held.lease)
        with pytest.raises(LeaseLost):
            held.save(record(1), after=record(1))
    assert store.read("orders") == record(1)


def test_a_change_that_changes_nothing_writes_nothing(store: MemoryMarkStore) -> None:
    """Else every look of a page would use up a number."""
    store.release(save(store, record(2)))
    assert change_record(store, "orders", lambda known: known).number == 2
    assert change_record(store, "orders", lambda known: replace(known, origin="set")).number == 3
    assert change_record(store, "unheard_of", lambda known: replace(known, origin="set")).number == 1
    assert [each.number for each in store.history("orders")] == [3, 2]


def test_a_living_owner_here_is_not_excused_by_a_silent_clock(store: MemoryMarkStore) -> None:
    """A process of this machine that lives and has not beaten for a while is busy, and not gone."""
    store.take_lease("orders", ME, over=None)
    with pytest.raises(LeaseHeld), hold(SilentStore(store), "orders", patience=Watch(["alive"]).patience()):
        pass


class SilentStore:
    """A store whose clock says that the owner has been silent for an hour."""

    def __init__(self, store: MemoryMarkStore) -> None:
        self.store = store

    def seconds_since_beat(self, lease: object) -> float:
        return 3600.0

    def __getattr__(self, name: str) -> object:
        return getattr(self.store, name)


class LosingStore(SilentStore):
    """A store that says at a beat that the lease is another's, and afterwards has it as it was."""

    def beat(self, lease: Lease, owner: object = None) -> None:
        raise LeaseLost(lease.job, holder="another run")
