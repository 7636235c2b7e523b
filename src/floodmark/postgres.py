"""Where a PostgreSQL database is, with which login, and how it is connected to: for probes, sinks and stores alike.

A free leaf, since stores may not import probes. What is read or written over the connection is theirs.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from getpass import getuser
from typing import TYPE_CHECKING, Any

from floodmark.errors import ConfigError
from floodmark.logs import redact

if TYPE_CHECKING:
    from types import ModuleType

    from psycopg import Connection


EXAMPLE = "postgresql://user:password@host:5432/database"
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


def driver() -> ModuleType:
    """psycopg. Raises ConfigError with the command that installs it, if it is not there."""
    try:
        import psycopg
        import psycopg.conninfo
    except ImportError as error:
        raise ConfigError("PostgreSQL needs the driver psycopg.", hint="pip install 'floodmark[postgres]'") from error
    return psycopg


def _unreadable(example: str) -> ConfigError:
    return ConfigError("the url of the PostgreSQL database cannot be read.", hint=f"write it like {example}")
