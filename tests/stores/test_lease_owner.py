"""Telling whether a process is the one it was."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from floodmark import machine
from floodmark.errors import LeaseHeld
from floodmark.machine import is_stopped
from floodmark.stores import MemoryMarkStore
from floodmark.stores.lease import Patience, alive, claimable, hold, same_machine, this_process, vitality
from floodmark.stores.record import Owner

if TYPE_CHECKING:
    from pathlib import Path


def test_this_process_is_alive_and_here() -> None:
    """The simplest case."""
    me = this_process()
    assert (me.pid, same_machine(me), alive(me), is_stopped(me.pid), vitality(me)) == (
        os.getpid(),
        True,
        True,
        False,
        "alive",
    )


def test_another_process_with_the_same_number_is_not_the_owner() -> None:
    """Numbers are given again; the start time tells them apart."""
    assert vitality(replace(this_process(), started="1")) == "dead"


def test_an_owner_is_not_dead_while_its_jvm_lives() -> None:
    """Killing Python leaves the JVM writing for a while."""
    me = this_process(jvm_pid=os.getpid())
    orphaned = replace(me, started="1")
    assert (alive(orphaned), vitality(orphaned)) == (True, "leaving")
    assert vitality(replace(orphaned, jvm_started="2")) == "dead"


def test_an_owner_after_a_reboot_or_in_another_container_is_elsewhere() -> None:
    """Its numbers mean nothing here."""
    assert vitality(replace(this_process(), boot="another")) == "unsure"
    assert vitality(replace(this_process(), namespace="pid:[1]")) == "unsure"


@pytest.fixture
def hiding(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A /proc that shows this process and no other one, as one that is mounted with hidepid=2 shows to its users."""
    (tmp_path / "self").mkdir()
    (tmp_path / "self" / "stat").write_text((machine.PROC / "self" / "stat").read_text())
    (tmp_path / str(os.getpid())).symlink_to("self")
    me = machine.this_machine()
    monkeypatch.setattr(machine, "PROC", tmp_path)
    monkeypatch.setattr("floodmark.stores.lease.this_machine", lambda: me)


@pytest.mark.usefixtures("hiding")
def test_an_owner_whose_processes_are_hidden_is_not_dead() -> None:
    """Another user's process is not shown, which does not mean that it has ended; nor does a JVM that is left of it."""
    me, ended = this_process(), subprocess.Popen([sys.executable, "-c", ""])
    ended.wait()
    assert vitality(me) == "alive"
    assert vitality(replace(me, pid=1)) == "unsure"
    assert vitality(replace(me, pid=ended.pid, jvm_pid=1, jvm_started="2")) == "unsure"
    assert vitality(replace(me, pid=ended.pid, jvm_pid=ended.pid, jvm_started="2")) == "dead"


@pytest.mark.usefixtures("hiding")
def test_a_hidden_owner_that_beats_keeps_its_lease() -> None:
    """It is watched as one of another machine is, and never taken over at once."""
    store = MemoryMarkStore()
    lease = store.take_lease("orders", replace(this_process(), pid=1), over=None)
    with pytest.raises(LeaseHeld):
        claimable(store, "orders", Patience(30, sleep=lambda _: store.beat(lease)))


def test_a_process_that_may_not_be_looked_at_is_hidden(monkeypatch: pytest.MonkeyPatch) -> None:
    """With hidepid=1 its folder is there, and reading it is refused."""

    def refused(*_args: object, **_options: object) -> bytes:
        raise PermissionError

    me = this_process()
    monkeypatch.setattr("pathlib.Path.read_bytes", refused)
    monkeypatch.setattr("pathlib.Path.read_text", refused)
    assert (machine.process(1), machine.is_hidden(1)) == (None, True)
    assert vitality(replace(me, pid=1)) == "unsure"


def test_sessions_of_a_dead_owner_go_with_the_lease_until_their_work_is_ended() -> None:
    """A server may still work for it; a run that dies before it could end that hands them on."""
    store, dead = MemoryMarkStore(), replace(this_process(), started="1")
    store.take_lease("orders", replace(dead, remote=("sc://a/;session_id=1",)), over=None)
    with hold(store, "orders") as second:
        assert second.left_over == ("sc://a/;session_id=1",)
        taken = store.lease("orders")
        assert taken is not None
        left = replace(taken, owner=replace(dead, remote=taken.owner.remote))
    store.take_lease("orders", left.owner, over=None)
    with hold(store, "orders") as third:
        third.end_left_over()
        third.with_session("sc://a/;session_id=3")
        third.with_session("sc://a/;session_id=3")
        stored = store.lease("orders")
        assert stored is not None
        assert (third.left_over, stored.owner.remote, stored.beat) == ((), ("sc://a/;session_id=3",), 2)


def test_an_owner_is_read_by_programs_before_and_after_this_one() -> None:
    """The sessions are written only where there are some; what a later one adds is passed over."""
    me = this_process()
    assert "remote" not in me.serialize()
    remote = replace(me, remote=("sc://a/;session_id=1",))
    assert Owner.deserialize({**remote.serialize(), "of a later version": 1}) == remote
