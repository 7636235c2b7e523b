"""A MariaDB server for tests, of the programs that are on this machine: loopback and a socket, its data in a folder."""

from __future__ import annotations

import os
import pwd
import secrets
import shutil
import signal
import subprocess
import tempfile
import uuid
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from floodmark.errors import ConfigError
from floodmark.testing.servers.child import HOST, Child, ServerFailed, await_ready, free_port, start

if TYPE_CHECKING:
    from collections.abc import Iterator

USER = "floodmark"
FOLDERS = ("/usr/sbin", "/usr/local/sbin")
"""Where Debian puts servers, which a plain user's PATH may lack."""
SETTINGS = ("--no-defaults", "--skip-log-bin", "--innodb-buffer-pool-size=32M", "--innodb-flush-log-at-trx-commit=0")


@dataclass
class MariaDb:
    """A server that runs; `run` sends it SQL through its own client."""

    folder: Path
    port: int
    password: str = field(default_factory=lambda: secrets.token_urlsafe(12), repr=False)
    child: Child | None = None

    @cached_property
    def home(self) -> Path:
        """A folder with a short name for socket and data, which the server's account may enter."""
        return Path(tempfile.mkdtemp(prefix="floodmark-my-"))

    @property
    def log(self) -> Path:
        """What the server says."""
        return self.folder / "mariadb.log"

    def jdbc_url(self, database: str) -> str:
        """A database of this server, as JDBC names it."""
        return f"jdbc:mariadb://{HOST}:{self.port}/{database}"

    @property
    def login(self) -> dict[str, str]:
        """What a JDBC driver needs beside the URL."""
        return {"user": USER, "password": self.password}

    def start(self) -> None:
        """Make the data, start the server and wait until it answers. Raises ConfigError, ServerFailed."""
        self.folder.mkdir(parents=True, exist_ok=True)
        account = _account()
        if account is not None:
            os.chown(self.home, account, account)
        where = [f"--datadir={self.home / 'data'}", *([f"--user={pwd.getpwuid(account).pw_name}"] if account else [])]
        made = [_program("mariadb-install-db"), "--no-defaults", "--auth-root-authentication-method=normal", *where]
        done = subprocess.run([*made, "--skip-test-db"], capture_output=True, check=False, cwd="/")
        if done.returncode:
            self.log.write_bytes(done.stdout + done.stderr)
            raise ServerFailed("MariaDB", log=self.log)
        places = [f"--socket={self._socket}", f"--pid-file={self.home / 'pid'}", f"--bind-address={HOST}"]
        command = [_program("mariadbd"), *SETTINGS, *where, *places, f"--port={self.port}"]
        self.child = start(command, self.log, leavings=self.home)
        await_ready("MariaDB", self.child, self.log, self._answers)
        self.run(f"CREATE USER '{USER}'@'%' IDENTIFIED BY '{self.password}'", f"GRANT ALL ON *.* TO '{USER}'@'%'")

    def stop(self) -> None:
        """Shut down."""
        if self.child:
            self.child.end(signal.SIGTERM)
        self.child = None

    def create_database(self) -> str:
        """A fresh, empty database; returns its name."""
        name = f"test_{uuid.uuid4().hex[:12]}"
        self.run(f"CREATE DATABASE {name} CHARACTER SET utf8mb4")
        return name

    def run(self, *statements: str, database: str = "") -> str:
        """What the client prints for the statements. Raises CalledProcessError."""
        done = self._client("; ".join(statements), database)
        done.check_returncode()
        return done.stdout

    def _answers(self) -> bool:
        return self._client("SELECT 1", "").returncode == 0

    def _client(self, sql: str, database: str) -> subprocess.CompletedProcess[str]:
        options = ["--no-defaults", f"--socket={self._socket}", "--user=root", "--batch", "--skip-column-names"]
        command = [_program("mariadb"), *options, *([f"--database={database}"] if database else []), "-e", sql]
        return subprocess.run(command, capture_output=True, text=True, check=False)

    @property
    def _socket(self) -> Path:
        return self.home / "s"


def has_programs() -> bool:
    """Whether this machine has a MariaDB server and its client."""
    return all(_find(name) for name in ("mariadbd", "mariadb-install-db", "mariadb"))


@contextmanager
def mariadb_server(folder: Path) -> Iterator[MariaDb]:
    """A server during the block."""
    server = MariaDb(folder.absolute(), free_port())
    try:
        server.start()
        yield server
    finally:
        server.stop()
        shutil.rmtree(server.home, ignore_errors=True)


def _program(name: str) -> str:
    found = _find(name)
    if found is None:
        raise ConfigError(
            f"{name} was not found on this machine.",
            hint="Debian: sudo apt-get install mariadb-server-core mariadb-client-core",
        )
    return found


def _find(name: str) -> str | None:
    return shutil.which(name) or shutil.which(name, path=os.pathsep.join(FOLDERS))


def _account() -> int | None:
    """The account to run as if this is root, which MariaDB refuses; None: our own."""
    return pwd.getpwnam("nobody").pw_uid if os.geteuid() == 0 else None
