"""Databases behind JDBC that a test fills by SQL and reads by the source: H2 in Spark's own JVM, and MariaDB."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import pytest

from floodmark.sources import Jdbc
from floodmark.testing.servers.mariadb import has_programs

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from floodmark.testing.servers.mariadb import MariaDb

MISSING = "MariaDB is not on this machine (Debian: apt-get install mariadb-server-core mariadb-client-core)"
DATABASES = ["h2", pytest.param("mariadb", marks=pytest.mark.skipif(not has_programs(), reason=MISSING))]
"""What is claimed; a machine that lacks one of them counts its laws as skipped."""
LOWER_CASE = "DB_CLOSE_DELAY=-1;DATABASE_TO_LOWER=TRUE"
"""H2 keeps a database in memory while its JVM lives, and names as the statements spell them."""


@dataclass(frozen=True)
class Database:
    """One empty database."""

    url: str
    execute: Callable[[str], None] = field(repr=False)
    login: dict[str, str] = field(default_factory=dict, repr=False)
    order_letters: str = "select 1"
    """What makes it order a before B, if it does not by itself."""

    def run(self, *statements: str) -> None:
        for statement in statements:
            self.execute(statement)

    def source(self, **options: Any) -> Jdbc:  # noqa: ANN401 - the source's own
        return Jdbc(self.url, options=self.login, **options)


def h2(spark: SparkSession) -> Database:
    url = f"jdbc:h2:mem:test_{uuid.uuid4().hex[:12]};{LOWER_CASE}"
    jvm: Any = spark.sparkContext._jvm

    def execute(statement: str) -> None:
        connection = jvm.java.sql.DriverManager.getConnection(url)
        try:
            connection.createStatement().execute(statement)
        finally:
            connection.close()

    return Database(url, execute, order_letters="set collation english strength secondary")


def maria(server: MariaDb) -> Database:
    name = server.create_database()
    return Database(
        server.jdbc_url(name), lambda statement: _ignored(server.run(statement, database=name)), server.login
    )


def _ignored(_: str) -> None:
    """What the client printed."""
