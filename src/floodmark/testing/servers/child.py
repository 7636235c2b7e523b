"""A server process that ends with its parent, and a port for it to listen on."""

from __future__ import annotations

import random
import signal
import socket
import subprocess
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO, TYPE_CHECKING

from floodmark.errors import FloodmarkError
from floodmark.machine import start_of_process

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence


HOST = "127.0.0.1"
PORTS = range(20_000, 32_000)
"""Below those that outgoing connections get: a client that retries against a stopped server must not take its port."""
WATCH = 'read -r _ || { kill -s "$1" "$0" 2>/dev/null; sleep 1; [ -z "$2" ] || rm -rf -- "$2"; }'
"""The line comes when the server was stopped; the pipe ends without one when the parent died."""


class ServerFailed(FloodmarkError):
    """A test server ended or did not answer."""

    def __init__(self, server: str, *, log: Path) -> None:
        super().__init__(f"{server} did not start:\n{_last_lines(log)}", hint=f"read {log}")
        self.server, self.log = server, log


@dataclass
class Child:
    """A running server; a shell beside it waits for the end of the parent, which no signal handler could see."""

    process: subprocess.Popen[bytes]
    watch: subprocess.Popen[bytes]

    def end(self, how: signal.Signals, patience_seconds: float = 30) -> None:
        """Send the signal and wait, also for processes of the server's own; a server that does not go is killed."""
        own = children_of(self.process.pid)
        if self.process.poll() is None:
            self.process.send_signal(how)
        try:
            self.process.wait(patience_seconds)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        self.watch.communicate(b"stopped\n")
        deadline = time.monotonic() + patience_seconds
        while any(map(start_of_process, own)) and time.monotonic() < deadline:
            time.sleep(0.02)


def children_of(pid: int) -> list[int]:
    """The processes that it has started, where the system tells (Linux): after a kill they may live on for a while."""
    with suppress(OSError):
        return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text(encoding="ascii").split()]
    return []


def start(
    command: Sequence[str | Path],
    log: Path,
    *,
    orphaned: signal.Signals = signal.SIGKILL,
    user: int | None = None,
    environment: Mapping[str, str] | None = None,
    leavings: Path | None = None,
) -> Child:
    """Start the command in a session of its own, so that Ctrl-C reaches the parent alone.

    If the parent dies, the signal `orphaned` ends the server, and the folder of `leavings` is removed.
    """
    with log.open("ab") as output:
        process = _begin(command, output, user, environment)
    watch = subprocess.Popen(
        ["/bin/sh", "-c", WATCH, str(process.pid), orphaned.name.removeprefix("SIG"), str(leavings or "")],
        stdin=subprocess.PIPE,
        start_new_session=True,
    )
    return Child(process, watch)


def _begin(
    command: Sequence[str | Path], output: IO[bytes], user: int | None, environment: Mapping[str, str] | None
) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        stdout=output,
        stderr=output,
        start_new_session=True,
        env=environment,
        user=user,
        group=user,
        extra_groups=[] if user is not None else None,
    )


def await_ready(server: str, child: Child, log: Path, ready: Callable[[], bool], patience_seconds: float = 60) -> None:
    """Ask until the server answers. Raises ServerFailed, with the end of its log, if it ended or never does."""
    deadline = time.monotonic() + patience_seconds
    while not ready():
        if child.process.poll() is not None or time.monotonic() > deadline:
            child.end(signal.SIGKILL)
            raise ServerFailed(server, log=log)
        time.sleep(0.05)


def listens(port: int) -> bool:
    """Whether somebody takes connections there."""
    try:
        socket.create_connection((HOST, port), timeout=1).close()
    except OSError:
        return False
    return True


def free_port() -> int:
    """A port that nobody listens on now."""
    for port in random.sample(PORTS, 100):
        with socket.socket() as probe:
            try:
                probe.bind((HOST, port))
            except OSError:
                continue
            return port
    raise OSError(f"no free port between {PORTS.start} and {PORTS.stop}")


def _last_lines(log: Path) -> str:
    text = log.read_text(errors="replace") if log.exists() else ""
    return "\n".join(text.splitlines()[-15:])
