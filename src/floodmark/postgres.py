"""Where a PostgreSQL database is, with which login, and how it is connected to: for probes, sinks and stores alike.

A free leaf, since stores may not import probes. What is read or written over the connection is theirs.
"""

from __future__ import annotations

import atexit
import os
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from getpass import getuser
from typing import TYPE_CHECKING, Any

from floodmark.errors import ConfigError
from floodmark.logs import redact

if TYPE_CHECKING:
    from types import ModuleType

    from psycopg import Connection


EXAMPLE = "postgresql://user:password@host:5432/database"
ESCAPES = "in a password, write @ as %40, / as %2F, ? as %3F, # as %23, % as %25"
SECRETS = ("password", "sslpassword", "passfile", "sslkey", "oauth_client_secret", "scram_client_key")
VARIABLES = {
    "host": "PGHOST",
    "port": "PGPORT",
    "dbname": "PGDATABASE",
    "user": "PGUSER",
    "password": "PGPASSWORD",
}
"""What a URL leaves out comes from where PostgreSQL's own programs look; Spark's driver would not look there."""
CONNECT_SECONDS = 10
IDLE_SECONDS = 60.0
"""How long a connection is kept for the next who needs one; a server may close it sooner, which is noticed."""
MOST_IDLE = 4
"""Of all databases together: servers count connections, and a loop may have hundreds of jobs."""
NAMED = """
SELECT set_config('application_name', %s, false), (
  SELECT coalesce(string_agg(concat(setdatabase, setrole, setconfig), ' ' ORDER BY setdatabase, setrole), '')
  FROM pg_db_role_setting
  WHERE setdatabase IN (0, (SELECT oid FROM pg_database WHERE datname = current_database()))
    AND setrole IN (0, (SELECT oid FROM pg_roles WHERE rolname = session_user)))
"""
"""Names a session; and what sessions of this login begin with now, as a database that is shut to writes."""
DURABLE = "CASE current_setting('synchronous_commit') WHEN 'off' THEN set_config('synchronous_commit', 'on', true) END"
"""Makes the commit of this transaction wait for the disk: where a database's default is not to, a crash of the server
would take back what a mark elsewhere already counts on. Whatever else is set (a standby that is waited for) stays."""


@dataclass(frozen=True)
class Address:
    """A database and a login, by the names that libpq has for them; only the database is ever shown."""

    parameters: Mapping[str, str] = field(repr=False)

    @classmethod
    def parse(cls, url: str, example: str = EXAMPLE) -> Address:
        """From a URL or `host=… dbname=…`. Raises ConfigError, without the text: it may hold a password."""
        require_one_login(url)
        psycopg = driver()
        try:
            parts = psycopg.conninfo.conninfo_to_dict(url.removeprefix("jdbc:"))
        except psycopg.ProgrammingError:  # its message may quote the password
            raise _unreadable(example) from None
        address = cls({name: str(value) for name, value in parts.items() if value is not None})
        if not all(port.isdigit() for port in address.parameters.get("port", "0").split(",")):
            raise _unreadable(example)
        return address

    @property
    def host(self) -> str:
        return self._setting("host") or self.parameters.get("hostaddr") or "localhost"

    @property
    def port(self) -> int:
        """Raises ConfigError if several are named: a look goes to one server, and so does Spark."""
        port = self._setting("port") or "5432"
        if not port.isdigit():
            raise _unreadable(EXAMPLE)
        return int(port)

    @property
    def database(self) -> str:
        return self._setting("dbname") or self.user

    @property
    def user(self) -> str:
        return self._setting("user") or getuser()

    @property
    def password(self) -> str | None:
        return self._setting("password")

    @property
    def options(self) -> dict[str, str]:
        """Everything beside the database and the login."""
        return {name: value for name, value in self.parameters.items() if name not in VARIABLES}

    def resolve(self) -> Address:
        """The same with nothing left to libpq's defaults, so that Spark's driver reaches the very same database."""
        own = {"host": self.host, "port": str(self.port), "dbname": self.database, "user": self.user}
        login = {"password": self.password} if self.password else {}
        return Address({**self.options, **own, **login})

    def without_secrets(self, text: str) -> str:
        """The text of an error as it may be shown."""
        return redact(text, *(self.parameters[name] for name in SECRETS if self.parameters.get(name)))

    def __str__(self) -> str:
        return f"{self.host}:{self.port}/{self.database}"

    def _setting(self, name: str) -> str | None:
        return self.parameters.get(name) or os.environ.get(VARIABLES[name])


def require_one_login(url: str) -> None:
    """Raises ConfigError for a URL in which an `@` or `/` of the password ends the login too early.

    Whatever follows would be taken for the host or the database, and so be shown. Asks no driver.
    """
    rest = url.partition("://")[2]
    login, _, place = rest.partition("@")
    if "@" in (rest if "/" in login else place).partition("?")[0]:
        said = "the url of the PostgreSQL database has an @ behind the login: the password seems to have an @ or a /."
        raise ConfigError(said, hint=ESCAPES)


def connect(
    address: Address,
    application: str,
    defaults: Mapping[str, object] | None = None,
    **session: Any,  # noqa: ANN401 (psycopg's own)
) -> Connection[tuple[Any, ...]]:
    """A connection without a transaction; the address wins over `defaults`, `session` is psycopg's own.

    Its transactions are read committed, whatever the database's default is: what is read under a lock has to be what is
    there once the lock is got, and a snapshot of the transaction's beginning is older.
    """
    parameters = {"connect_timeout": CONNECT_SECONDS, **(defaults or {}), **address.parameters}
    parameters["application_name"] = application[:63]
    psycopg = driver()
    connection: Connection[tuple[Any, ...]] = psycopg.connect(**parameters, **session, autocommit=True)
    connection.isolation_level = psycopg.IsolationLevel.READ_COMMITTED
    return connection


@dataclass(frozen=True)
class IdleConnection:
    """A connection that nobody uses just now, what it was made with, and what a session began with then."""

    connection: Connection[tuple[Any, ...]]
    parameters: Mapping[str, object]
    defaults: str
    since: float = field(default_factory=time.monotonic)


class IdleConnections:
    """To connect takes far longer than to ask, and a small batch asks often: so connections are kept for a while."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._idle: list[IdleConnection] = []
        atexit.register(self.close)

    @contextmanager
    def lend(
        self, address: Address, application: str, defaults: Mapping[str, object]
    ) -> Iterator[Connection[tuple[Any, ...]]]:
        """One without a transaction. It is kept afterwards, unless it is left with an error or a transaction open.

        Whoever borrows it sets nothing in it but for a transaction.
        """
        parameters = {**defaults, **address.resolve().parameters}
        lent = self._take(parameters, application) or self._make(address, application, defaults, parameters)
        try:
            yield lent.connection
        except BaseException:
            lent.connection.close()
            raise
        self._keep(replace(lent, since=time.monotonic()))

    def close(self) -> None:
        """Close all that are idle."""
        with self._lock:
            idle, self._idle = self._idle, []
        for each in idle:
            each.connection.close()

    def _make(
        self, address: Address, application: str, defaults: Mapping[str, object], parameters: Mapping[str, object]
    ) -> IdleConnection:
        # What is prepared stays with the server: a proxy that mixes sessions, or a table that changes, breaks it.
        connection = connect(address, application, defaults, prepare_threshold=None)
        return IdleConnection(connection, parameters, self._begin(connection, application) or "")

    def _take(self, parameters: Mapping[str, object], application: str) -> IdleConnection | None:
        """The one that was used last, if it still answers as a new one would; those that waited long are closed."""
        now = time.monotonic()
        with self._lock:
            late = [each for each in self._idle if now - each.since > IDLE_SECONDS]
            fitting = [each for each in self._idle if each not in late and each.parameters == parameters][-1:]
            self._idle = [each for each in self._idle if each not in late and each not in fitting]
        for each in late:
            each.connection.close()
        for each in fitting:
            if self._begin(each.connection, application) == each.defaults:
                return each
            each.connection.close()
        return None

    def _begin(self, connection: Connection[tuple[Any, ...]], application: str) -> str | None:
        """Name the session; what others would begin with now, or None where that is not known."""
        try:
            row = connection.execute(NAMED, [application[:63]]).fetchone()
        except driver().Error:
            return None
        return str(row[1]) if row else None

    def _keep(self, lent: IdleConnection) -> None:
        connection = lent.connection
        if connection.closed or connection.info.transaction_status != driver().pq.TransactionStatus.IDLE:
            connection.close()
            return
        with self._lock:
            self._idle.append(lent)
            surplus, self._idle = self._idle[:-MOST_IDLE], self._idle[-MOST_IDLE:]
        for oldest in surplus:
            oldest.connection.close()


IDLE_CONNECTIONS = IdleConnections()
"""Those of this process."""


def driver() -> ModuleType:
    """psycopg. Raises ConfigError with the command that installs it, if it is not there."""
    try:
        import psycopg
        import psycopg.conninfo
    except ImportError as error:
        raise ConfigError("PostgreSQL needs the driver psycopg.", hint="pip install 'floodmark[postgres]'") from error
    return psycopg


def _unreadable(example: str) -> ConfigError:
    return ConfigError("the url of the PostgreSQL database cannot be read.", hint=f"write it like {example}; {ESCAPES}")
