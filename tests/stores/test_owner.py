"""Telling whether a process is the one it was."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import replace

from floodmark.machine import is_stopped, process
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


def test_a_zombie_is_gone() -> None:
    """It has ended, and only its parent has not asked yet."""
    ended = subprocess.Popen([sys.executable, "-c", "print()"], stdout=subprocess.PIPE)
    os.waitid(os.P_PID, ended.pid, os.WEXITED | os.WNOWAIT)
    found = process(ended.pid)
    ended.communicate()
    assert found is None


def test_a_program_with_parentheses_in_its_name_is_read_right() -> None:
    """The name stands in the middle of what the system says."""
    rename = "import ctypes, sys; ctypes.CDLL(None).prctl(15, b'a) Z (b', 0, 0, 0); print(flush=True); sys.stdin.read()"
    with subprocess.Popen([sys.executable, "-c", rename], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as odd:
        assert odd.stdout is not None
        odd.stdout.readline()
        found = process(odd.pid)
        odd.kill()
    assert found is not None
    assert (found.started.isdigit(), found.state in {"S", "R", "D"}) == (True, True)
