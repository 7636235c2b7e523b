"""Telling whether a process is the one it was."""

from __future__ import annotations

import os
from dataclasses import replace

from floodmark.machine import is_stopped
from floodmark.stores.lease import alive, same_machine, this_process, vitality


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
