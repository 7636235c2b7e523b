"""Who a lease belongs to, and whether that process is still there; only ever asked on the owner's own machine."""

from __future__ import annotations

import os
import platform
import subprocess
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Literal

from floodmark.stores.record import Owner

PROC = Path("/proc")
Vitality = Literal["alive", "leaving", "dead", "unsure"]


@dataclass(frozen=True)
class Process:
    """What the system says about a process; a zombie has no more than its number left and is not reported."""

    started: str
    state: str


def this_process(jvm_pid: int | None = None) -> Owner:
    """This process as the owner of a lease, with the JVM that writes for it."""
    boot, namespace = _machine()
    return Owner(
        host=platform.node(),
        boot=boot,
        namespace=namespace,
        pid=os.getpid(),
        started=started(os.getpid()) or "",
        jvm_pid=jvm_pid,
        jvm_started=started(jvm_pid) if jvm_pid else None,
    )


def vitality(owner: Owner) -> Vitality:
    """alive; leaving (Python is gone, its JVM still writes); dead; unsure (another machine, or stopped by a signal)."""
    if not same_machine(owner):
        return "unsure"
    if python_alive(owner):
        return "unsure" if stopped(owner.pid) else "alive"
    return "leaving" if jvm_alive(owner) else "dead"


def alive(owner: Owner) -> bool:
    """Whether Python or its JVM is still there; only with both gone nothing can be written any more."""
    return python_alive(owner) or jvm_alive(owner)


def python_alive(owner: Owner) -> bool:
    """Whether the process itself is there, and is not another one that was given its number."""
    return started(owner.pid) == owner.started


def jvm_alive(owner: Owner) -> bool:
    """Whether the JVM that was started for it is there."""
    return owner.jvm_pid is not None and owner.jvm_started is not None and started(owner.jvm_pid) == owner.jvm_started


def same_machine(owner: Owner) -> bool:
    """Whether the owner's process numbers mean anything here: the same boot and the same container."""
    return (owner.boot, owner.namespace) == _machine()


def stopped(pid: int) -> bool:
    """Whether the process was stopped by a signal: it is there, but may stay silent for ever."""
    found = process(pid)
    return found is not None and found.state.upper().startswith("T")


def started(pid: int) -> str | None:
    """When the process was started, as the system writes it; None if it is gone."""
    found = process(pid)
    return found.started if found else None


def process(pid: int) -> Process | None:
    """The process of that number; None if there is none or only its zombie."""
    found = _from_proc(pid) if (PROC / "self" / "stat").exists() else _from_ps(pid)
    return None if found is None or found.state.startswith(("Z", "X", "x")) else found


def _from_proc(pid: int) -> Process | None:
    try:
        stat = (PROC / str(pid) / "stat").read_text(encoding="utf-8", errors="replace")
    except (FileNotFoundError, ProcessLookupError):
        return None
    # the program's name stands in parentheses and may hold spaces and parentheses of its own
    fields = stat.rpartition(")")[2].split()
    return Process(started=fields[19], state=fields[0])


def _from_ps(pid: int) -> Process | None:
    shown = _output("ps", "-o", "stat=,lstart=", "-p", str(pid)).split(maxsplit=1)
    return Process(started=shown[1].strip(), state=shown[0]) if len(shown) == 2 else None


@lru_cache(maxsize=1)
def _machine() -> tuple[str, str]:
    boot = PROC / "sys" / "kernel" / "random" / "boot_id"
    if boot.exists():
        return boot.read_text(encoding="ascii").strip(), os.readlink(PROC / "self" / "ns" / "pid")  # noqa: PTH115
    return _output("sysctl", "-n", "kern.bootsessionuuid").strip(), ""


def _output(*command: str) -> str:
    return subprocess.run(
        command, capture_output=True, text=True, check=False, env={**os.environ, "LC_ALL": "C"}
    ).stdout
