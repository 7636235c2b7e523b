"""The address of a PostgreSQL store: `postgresql://…?table=schema.name`, where the rest is libpq's own."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING
from urllib.parse import parse_qsl, quote, urlencode, urlsplit, urlunsplit

from floodmark.errors import ConfigError
from floodmark.stores.postgres_tables import DEFAULT, Tables

if TYPE_CHECKING:
    from collections.abc import Mapping

EXAMPLE = "postgresql://user:${PASSWORD}@host:5432/database?table=schema.name, with special letters as %40"
PATIENT = {
    "client_encoding": "UTF8",
    "application_name": "floodmark",
    "connect_timeout": "10",
    # A server that vanished without a word must not hold a run, or its heartbeat, for the hours TCP would wait.
    "keepalives_idle": "10",
    "keepalives_interval": "5",
    "keepalives_count": "3",
    "tcp_user_timeout": "25000",
}


@dataclass(frozen=True)
class Address:
    """Where the marks are. Only `describe` may be shown: the settings hold the password."""

    settings: Mapping[str, str] = field(repr=False)
    tables: Tables

    @classmethod
    def of(cls, url: str) -> Address:
        """From the text of a store. Raises ConfigError, which never repeats the text."""
        parts = urlsplit(url)
        query = parse_qsl(parts.query, keep_blank_values=True)
        tables = Tables.named(next((value for name, value in query if name == "table"), DEFAULT))
        rest = urlencode([(name, value) for name, value in query if name != "table"], quote_via=quote)
        given = _parsed(urlunsplit(parts._replace(query=rest)))
        if not all(port.isdigit() for port in given.get("port", "0").split(",")):
            raise ConfigError("the port in the store's URL is no number.", hint=EXAMPLE)
        return cls({**PATIENT, **given}, tables)

    def describe(self) -> str:
        """The address without a secret."""
        user, host = self.settings.get("user"), self.settings.get("host", "localhost")
        port = f":{self.settings['port']}" if "port" in self.settings else ""
        database = self.settings.get("dbname", user or "")
        table = "" if str(self.tables) == DEFAULT else f"?table={self.tables}"
        return f"postgresql://{f'{user}@' if user else ''}{host}{port}/{database}{table}"


def _parsed(url: str) -> dict[str, str]:
    try:
        from psycopg import ProgrammingError
        from psycopg.conninfo import conninfo_to_dict
    except ImportError as error:
        raise ConfigError("psycopg is not installed.", hint="pip install 'floodmark[postgres]'") from error
    try:
        return {name: str(value) for name, value in conninfo_to_dict(url).items()}
    except ProgrammingError:
        pass
    raise ConfigError("the store's URL cannot be read.", hint=EXAMPLE)  # libpq's own words would repeat the password
