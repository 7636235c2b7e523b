"""Reaching the PostgreSQL server of a sink, from the driver and from the tasks, without a secret in any message."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from floodmark.errors import ConfigError, SinkUnreachable

if TYPE_CHECKING:
    from psycopg import Connection

DEFAULTS = {
    "connect_timeout": 10,
    # A server that is gone without a word fails the task within about a minute, instead of holding it for hours.
    "keepalives_idle": 30,
    "keepalives_interval": 10,
    "keepalives_count": 3,
    "tcp_user_timeout": 60_000,
}
SECRETS = ("password", "sslpassword", "passfile", "sslkey", "oauth_client_secret", "scram_client_key")


@dataclass(frozen=True)
class PostgresServer:
    """A server and a database on it; `application` is what the server's own lists of sessions call us."""

    url: str = field(repr=False)
    application: str = "floodmark"

    def describe(self) -> str:
        """Host, port and database."""
        given = settings(self.url)
        host, port = given.get("host") or given.get("hostaddr") or "local socket", given.get("port") or 5432
        return f"{host}:{port}/{given.get('dbname') or given.get('user') or ''}"

    @contextmanager
    def connect(self) -> Iterator[Connection]:
        """An open connection without a transaction. Raises SinkUnreachable if there is none, or if it breaks."""
        import psycopg

        wanted = {**DEFAULTS, **settings(self.url), "application_name": self.application[:63]}
        connection: Connection | None = None
        try:
            with psycopg.connect(**wanted, autocommit=True) as connection:
                yield connection
        except psycopg.OperationalError as error:
            if connection is not None and not connection.broken:
                raise
            raise SinkUnreachable(f"PostgreSQL at {self.describe()}", reason=self.reason(error)) from None

    def reason(self, error: Exception) -> str:
        """What the server said, in one line."""
        diagnosis = getattr(error, "diag", None)
        said = getattr(diagnosis, "message_primary", None) or str(error) or type(error).__name__
        more = [getattr(diagnosis, part, None) for part in ("message_detail", "context")]
        line = "; ".join(" ".join(text.split()) for text in (said, *more) if text)
        return without_secrets(line, self.url)


def settings(url: str) -> dict[str, Any]:
    """The parts of a URL or of `host=… dbname=…`. Raises ConfigError, which does not repeat what was given."""
    psycopg_or_hint()
    from psycopg import ProgrammingError
    from psycopg.conninfo import conninfo_to_dict

    try:
        return dict(conninfo_to_dict(url.removeprefix("jdbc:")))
    except ProgrammingError:
        raise ConfigError(
            "the url of the PostgreSQL sink cannot be read.", hint="postgresql://user:password@host:5432/database"
        ) from None


def psycopg_or_hint() -> None:
    """Raises ConfigError if the driver is not installed."""
    try:
        import psycopg  # noqa: F401
    except ImportError as error:
        raise ConfigError("PostgreSQL needs the driver psycopg.", hint="pip install 'floodmark[postgres]'") from error


def without_secrets(text: str, url: str) -> str:
    """The text, with whatever is secret in the URL blacked out."""
    given = settings(url)
    for secret in (str(given[name]) for name in SECRETS if given.get(name)):
        text = text.replace(secret, "***")
    return text
