"""`floodmark import-config`: a configuration of Redpanda Connect is read, reported on, and run."""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psycopg
import pytest
from confluent_kafka import Consumer, TopicPartition

from tests.cli.conftest import CommandResult

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from floodmark.testing.servers import Broker

SEED = Path(__file__).parents[2] / "examples" / "seed_002" / "connect.yaml"
DSN = "postgres://root:secret@localhost:5432/root?sslmode=disable"
BROKERS = "            - localhost:19092\n            - localhost:29092\n            - localhost:39092\n"
TABLE = "create schema cms; create table cms.content_notification_status (seq bigserial primary key, content text)"
Floodmark = Callable[..., CommandResult]


def insert(database: str, *contents: str) -> None:
    with psycopg.connect(database) as connection:
        for content in contents:
            connection.execute("insert into cms.content_notification_status (content) values (%s)", [content])


def arrived(bootstrap: str, topic: str) -> list[dict[str, Any]]:
    settings = {"bootstrap.servers": bootstrap, "group.id": uuid.uuid4().hex, "isolation.level": "read_committed"}
    consumer = Consumer(settings)
    consumer.assign([TopicPartition(topic, 0, 0)])
    messages = consumer.consume(100, timeout=5)
    consumer.close()
    return [json.loads(message.value()) for message in messages]


@pytest.fixture
def pipeline(folder: Path, database: str, kafka: Broker) -> Path:
    """The documented configuration, verbatim but for where the servers are, and its table."""
    dsn = database.replace("postgresql://", "postgres://") + "?sslmode=disable"
    text = SEED.read_text().replace(DSN, dsn).replace(BROKERS, f"            - {kafka.bootstrap}\n")
    (folder / "pipeline.yaml").write_text(text)
    with psycopg.connect(database) as connection:
        connection.execute(TABLE)
    return folder / "pipeline.yaml"


def test_the_documented_configuration_runs(
    floodmark: Floodmark, pipeline: Path, database: str, kafka: Broker, spark: SparkSession
) -> None:
    """Rows arrive in the topic once, and the mark is in the database."""
    insert(database, "one", "two", "three")
    assert floodmark("import-config", str(pipeline)).code == 0
    [first] = json.loads(floodmark("run", "--json").out)["runs"]
    insert(database, "four", "five")
    [second] = json.loads(floodmark("run", "--json").out)["runs"]
    assert (first["rows_written"], second["rows_written"]) == ({"console": 3, "kafka": 3}, {"console": 2, "kafka": 2})
    assert sorted((row["seq"], row["content"]) for row in arrived(kafka.bootstrap, "content_delta")) == [
        (1, "one"),
        (2, "two"),
        (3, "three"),
        (4, "four"),
        (5, "five"),
    ]
    with psycopg.connect(database) as connection:
        [(mark,)] = connection.execute("select val #> '{marks,postgres,value}' from floodmark_marks").fetchall()
    assert mark == 5


def test_the_mark_that_is_there_is_taken_over_by_the_command_of_the_report(
    floodmark: Floodmark, pipeline: Path, database: str
) -> None:
    """The pipeline stood at 41, and so does the job."""
    with psycopg.connect(database) as connection:
        connection.execute("create table rpcn_connect_state (key bytea primary key, val bytea)")
        row = [b"table_cursor", b'{"seq": 41}']
        connection.execute("insert into rpcn_connect_state values (%s, %s)", row)
    report = floodmark("import-config", str(pipeline)).out
    command = report.partition("To go on from the mark that is there: floodmark ")[2].splitlines()[0].split()
    assert floodmark(*command, "--yes").code == 0
    [mark] = json.loads(floodmark("marks", "show", "--json").out)["marks"]
    assert (mark["job"], mark["value"]) == ("table_cursor", 41)


def test_the_report_has_a_line_for_each_thing_that_is_not_the_same(floodmark: Floodmark, folder: Path) -> None:
    """With file and line, and without the password."""
    result = floodmark("import-config", str(SEED), "-o", "made/floodmark.yaml")
    assert result.code == 0
    assert "connect.yaml:16: log: the log tells at every batch" in result.out
    assert "wrote made/floodmark.yaml: 6 things are not the same" in result.out
    assert "secret" not in result.out
    assert floodmark("--project", "made/floodmark.yaml", "lint").code == 0


def test_a_project_that_is_there_is_not_written_over(floodmark: Floodmark, folder: Path) -> None:
    """Unless it is asked for."""
    (folder / "floodmark.yaml").write_text("jobs: []\n")
    refused = floodmark("import-config", str(SEED))
    assert (refused.code, (folder / "floodmark.yaml").read_text()) == (2, "jobs: []\n")
    assert "Try: -o OTHER.yaml, or --force" in refused.err
    assert floodmark("import-config", str(SEED), "--force").code == 0


def test_a_dry_run_prints_the_project_and_writes_nothing(floodmark: Floodmark, folder: Path) -> None:
    """Passwords are hidden on the screen."""
    result = floodmark("import-config", str(SEED), "--dry-run")
    assert "table: cms.content_notification_status" in result.out
    assert "secret" not in result.out
    assert list(folder.iterdir()) == []


def test_json_has_the_notes_and_nothing_else(floodmark: Floodmark, folder: Path) -> None:
    """For whoever makes many projects."""
    document = json.loads(floodmark("import-config", str(SEED), "--json").out)
    assert (document["project"], len(document["notes"])) == ("floodmark.yaml", 6)
    assert document["notes"][1]["where"] == "connect.yaml:16"


def test_a_file_that_is_none_is_an_error_of_two_lines(floodmark: Floodmark, folder: Path) -> None:
    """Exit 2, and the file by its name."""
    result = floodmark("import-config", "nowhere.yaml")
    assert (result.code, result.out) == (2, "")
    assert result.err.startswith("Error: nowhere.yaml cannot be read: ")
    assert len(result.err.splitlines()) == 2
