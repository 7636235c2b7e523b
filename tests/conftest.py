"""What all tests share: one local Spark session with Delta, one Kafka broker, one PostgreSQL server."""

from __future__ import annotations

import logging
import os
import shutil
import uuid
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import settings

from floodmark.spark.session import spark_session
from floodmark.testing.servers import Broker, Server, kafka_broker, postgres_server
from floodmark.testing.servers.mariadb import MariaDb, has_programs, mariadb_server
from tests.proofs import PROOFS, prove, summarise

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from pyspark.sql import SparkSession

SHORT_LIVED = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -XX:ReservedCodeCacheSize=240m"
"""Options of a JVM that is over before its code is worth optimising.

Without the last one it has 48 MB for compiled code, which a workflow outgrows: then it interprets everything, or ends.
"""


LONG_LIVED = {"spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=4"}
"""The suite's own JVM lives for a quarter of an hour, in which Spark plans thousands of queries: there the second
compiler pays, and takes a quarter off the suite's time."""
INTERPRETED = {"spark.sql.codegen.wholeStage": "false", "spark.sql.codegen.factoryMode": "NO_CODEGEN"}
"""Spark compiles Java for every new query, and a test rarely asks the same one twice: without it, tests with Spark cost
a quarter less CPU. `make crash`, and every process that a test starts, work as they are shipped."""
FORGETFUL = {"spark.databricks.delta.delta.log.cacheSize": "50"}
"""Tables whose state Delta keeps, for an hour each: the suite makes thousands, and asks for few of them again."""
DRIVERS = "com.h2database:h2:2.3.232, org.mariadb.jdbc:mariadb-java-client:3.5.3"
"""Fetched once, as the connectors are."""
MEMORY = Path("/dev/shm")  # noqa: S108 - pytest makes a folder in it that is its user's alone
TEMPORARY = "PYTEST_DEBUG_TEMPROOT"
ROOM_BYTES = 4 * 1024**3
SERVERS = frozenset({"kafka", "postgres", "mariadb"})
__all__ = ["prove"]
SLOW = frozenset({"browser", "built"})
"""A browser, and the wheel in an environment of its own."""


def pytest_configure() -> None:
    """Tests write into memory where it has room: else half of those without Spark is waiting for a disk to sync.

    What is killed here are processes, and never the machine. Another folder is chosen by the variable itself.
    """
    if MEMORY.is_dir() and shutil.disk_usage(MEMORY).free > ROOM_BYTES and os.access(MEMORY, os.W_OK):
        os.environ.setdefault(TEMPORARY, str(MEMORY))
    settings.register_profile("any machine", deadline=None)  # a busy one is no reason for a property to fail
    settings.load_profile("any machine")


def pytest_report_header() -> list[str]:
    """What is claimed and cannot be tried on this machine is said, not skipped."""
    return [
        f"MariaDB: {'tested' if has_programs() else 'not tested, its programs are not on this machine'}",
        f"temporary files: {os.environ.get(TEMPORARY, 'on the disk')}",
    ]


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    """What the tests of faults and of clusters have proved, a line each."""
    if PROOFS in config.stash:
        terminalreporter.section("proved")
        summarise(config, terminalreporter.write_line)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """A test that asks for Spark, a server or a browser says so by its fixtures: `make test-fast` leaves it out."""
    for item in items:
        fixtures = frozenset(getattr(item, "fixturenames", ()))
        if "spark" in fixtures:
            item.add_marker(pytest.mark.spark)
        if fixtures & SERVERS:
            item.add_marker(pytest.mark.server)
        if fixtures & SLOW:
            item.add_marker(pytest.mark.slow)


@pytest.fixture(scope="session", autouse=True)
def quick_processes() -> None:
    """Every JVM that a test starts, itself or through processes of its own, is over after some small batches."""
    os.environ["JDK_JAVA_OPTIONS"] = SHORT_LIVED


@pytest.fixture(autouse=True)
def loggers_of_a_fresh_interpreter() -> Iterator[None]:
    """The command line, called in this process, takes the log to its own handler: the next test hears it again."""
    yield
    logger = logging.getLogger("floodmark")
    logger.handlers, logger.propagate = [], True
    logger.setLevel(logging.NOTSET)


@pytest.fixture(scope="session")
def spark(request: pytest.FixtureRequest) -> Iterator[SparkSession]:
    """The suite's session: small, local, started by the first test that asks for it."""
    settings = {"spark.master": "local[2]", "spark.driver.memory": "3g", "spark.jars.packages": DRIVERS}
    settings |= FORGETFUL | LONG_LIVED
    is_crash = any(item.get_closest_marker("crash") for item in request.session.items)
    session = spark_session(settings if is_crash else settings | INTERPRETED, app_name="floodmark-tests")
    yield session
    session.stop()


@pytest.fixture(scope="session")
def kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    """The suite's broker; a test that stops it starts it again."""
    with kafka_broker(tmp_path_factory.mktemp("kafka")) as broker:
        yield broker
        broker.kill()  # a shutdown in order takes half a minute, for data that nobody wants any more


@pytest.fixture(scope="session")
def postgres(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """The suite's database server; a test that stops it starts it again."""
    with postgres_server(tmp_path_factory.mktemp("postgres")) as server:
        yield server


@pytest.fixture(scope="session")
def mariadb(tmp_path_factory: pytest.TempPathFactory) -> Iterator[MariaDb]:
    """The suite's MariaDB server; asked for only where its programs are."""
    with mariadb_server(tmp_path_factory.mktemp("mariadb")) as server:
        yield server


@pytest.fixture
def topic(kafka: Broker) -> Callable[..., str]:
    """Makes a topic of this test alone: `topic(partitions=3)` returns its name; settings of the topic are allowed."""

    def create(partitions: int = 1, **config: str) -> str:
        name = f"test-{uuid.uuid4().hex[:12]}"
        kafka.create_topic(name, partitions, **config)
        return name

    return create


@pytest.fixture
def database(postgres: Server) -> str:
    """The URL of an empty database of this test alone."""
    return postgres.create_database()
