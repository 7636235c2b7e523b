"""`floodmark marks import --from`: marks of Redpanda Connect, of a consumer group, and of onETL."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from urllib.parse import urlsplit

import psycopg
import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from floodmark.testing.servers import Broker
from tests.cli.conftest import Said

Floodmark = Callable[..., Said]
# As onETL 0.17.0 with etl-entities 3.0.4 wrote them.
ORDERS = """\
- description: ''
  entity: public.orders
  expression: id
  modified_time: '2026-11-15T21:07:14.021546'
  name: orders
  type: column_int
  value: 1000
- description: ''
  entity: public.orders
  expression: id
  modified_time: '2026-11-15T21:07:14.021555'
  name: orders
  type: column_int
  value: 1500
"""
OFFSETS = """\
- description: ''
  entity: events
  expression: offset
  modified_time: '2026-11-15T21:07:14.021587'
  name: events_offsets
  type: key_value_int
  value:
    0: 1
    1: 2
"""
FILES = """\
- description: ''
  entity: {0}
  expression: null
  modified_time: '2026-11-15T21:07:14.021709'
  name: landing
  type: file_list
  value:
  - {0}/a.jsonl
"""


@pytest.fixture
def tables(folder: Path, database: str) -> str:
    """A database with a table of orders and Redpanda Connect's cache, and a job that reads it."""
    with psycopg.connect(database) as connection:
        connection.execute("create table orders as select id::bigint, now() as at from generate_series(1, 2000) id")
        connection.execute("create table rpcn_connect_state (key bytea primary key, val bytea)")
    write_project(folder, database, "sqlite:///marks.db")
    return database


def write_project(folder: Path, database: str, store: str, cursor: str = "id") -> None:
    options = f"{{url: '{database}', table: orders, cursor: {cursor}}}"
    source = f"{{type: python, object: 'floodmark.sources:Postgres', options: {options}}}"
    text = f"store: '{store}'\njobs:\n  - {{name: orders, source: {source}, sinks: [{{type: files, path: out}}]}}\n"
    (folder / "floodmark.yaml").write_text(text)


def cached(database: str, key: str, value: str) -> None:
    with psycopg.connect(database) as connection:
        connection.execute("insert into rpcn_connect_state values (%s, %s)", [key.encode(), value.encode()])


def kafka_project(folder: Path, kafka: Broker, name: str) -> None:
    options = f"{{bootstrap: '{kafka.bootstrap}', topic: {name}, value: text}}"
    source = f"{{type: python, object: 'floodmark.sources:Kafka', options: {options}}}"
    (folder / "floodmark.yaml").write_text(
        f"jobs:\n  - {{name: events, source: {source}, sinks: [{{type: files, path: out}}]}}\n"
    )


def consumed(kafka: Broker, topic: str, group: str, offsets: dict[int, int]) -> None:
    """A group that has committed these offsets of a topic with three messages in each partition."""
    producer = Producer({"bootstrap.servers": kafka.bootstrap})
    for partition in range(2):
        for number in range(3):
            producer.produce(topic, str(number), partition=partition)
    producer.flush(30)
    consumer = Consumer({"bootstrap.servers": kafka.bootstrap, "group.id": group})
    places = [TopicPartition(topic, partition, offset) for partition, offset in offsets.items()]
    consumer.commit(offsets=places, asynchronous=False)
    consumer.close()


def shown(floodmark: Floodmark) -> list[tuple[object, object]]:
    return [(mark["type"], mark["value"]) for mark in json.loads(floodmark("marks", "show", "--json").out)["marks"]]


def test_the_cursor_of_a_redpanda_connect_pipeline_is_taken_over(floodmark: Floodmark, tables: str) -> None:
    """The next run reads what lies above it."""
    cached(tables, "table_cursor", '{"seq": 1500}')
    said = floodmark("marks", "import", "--from", "rpcn:rpcn_connect_state/table_cursor", "--select", "orders",
                     "--url", tables, "--yes")  # fmt: skip
    assert (said.code, said.out, said.err) == (0, "orders: mark none becomes 1500\n", "")
    assert shown(floodmark) == [("column_int", 1500)]
    [plan] = json.loads(floodmark("plan", "--json").out)["plans"]
    assert plan["expected_rows"] == 500


def test_the_cache_is_looked_for_in_the_store_if_no_url_is_given(
    floodmark: Floodmark, folder: Path, tables: str
) -> None:
    """A number beyond 2^53 keeps all its digits."""
    write_project(folder, tables, tables)
    cached(tables, "table_cursor", '{"seq": 9007199254740993}')
    place = "rpcn:rpcn_connect_state/table_cursor"
    assert floodmark("marks", "import", "--from", place, "--select", "orders", "--yes").code == 0
    assert shown(floodmark) == [("column_int", "9007199254740993")]


def test_a_time_becomes_a_mark_of_the_columns_own_kind(floodmark: Floodmark, folder: Path, tables: str) -> None:
    """The source says what its marks are; the field is named if there are several."""
    write_project(folder, tables, "sqlite:///marks.db", cursor="at")
    cached(tables, "k", '{"at": "2024-05-01T12:00:00.123456Z", "n": 1}')
    act = ("marks", "import", "--from", "rpcn:public.rpcn_connect_state/k", "--select", "orders", "--url", tables)
    assert floodmark(*act, "--yes").err.splitlines()[1] == "Try: name the one that is the mark with --field"
    assert floodmark(*act, "--yes", "--field", "at").code == 0
    assert shown(floodmark) == [("column_datetime", "2024-05-01 12:00:00.123456+00")]


@pytest.mark.parametrize(
    ("place", "stored", "says"),
    [
        ("rpcn:rpcn_connect_state/other", '{"seq": 1}', "rpcn_connect_state has no key 'other'"),
        ("rpcn:rpcn_connect_state/k", "[1]", "holds no JSON object"),
        ("rpcn:rpcn_connect_state/k", '{"seq": "x"}', "column_int refuses 'x'"),
        ("rpcn:nowhere/k", '{"seq": 1}', 'relation "nowhere" does not exist'),
        ("rpcn:nowhere", '{"seq": 1}', "names no table and key"),
        ("redis:x", '{"seq": 1}', "unknown system 'redis'"),
    ],
)
def test_a_cache_without_a_usable_mark_is_refused(
    floodmark: Floodmark, tables: str, place: str, stored: str, says: str
) -> None:
    """And no mark is set, nor is the password shown."""
    cached(tables, "k", stored)
    said = floodmark("marks", "import", "--from", place, "--select", "orders", "--url", tables, "--yes")
    assert (said.code != 0, says in said.err, shown(floodmark)) == (True, True, [])
    assert str(urlsplit(tables).password) not in said.err


def test_the_offsets_of_a_consumer_group_are_taken_over(
    floodmark: Floodmark, folder: Path, kafka: Broker, topic: Callable[..., str]
) -> None:
    """They are the next ones to read, as ours are."""
    name = topic(partitions=2)
    consumed(kafka, name, f"group-{name}", {0: 1, 1: 3})
    kafka_project(folder, kafka, name)
    said = floodmark("marks", "import", "--from", f"kafka-group:group-{name}", "--select", "events", "--yes")
    assert (said.code, said.out, said.err) == (0, 'events: mark none becomes {"0": 1, "1": 3}\n', "")
    assert shown(floodmark) == [("key_value_int", {"0": 1, "1": 3})]
    [plan] = json.loads(floodmark("plan", "--json").out)["plans"]
    assert (plan["mark_before"], plan["mark_after"]) == ({"0": 1, "1": 3}, {"0": 3, "1": 3})


def test_offsets_that_were_the_last_ones_read_are_raised_by_one(
    floodmark: Floodmark, folder: Path, kafka: Broker, topic: Callable[..., str]
) -> None:
    """Some programs commit what they have seen, not what comes; and a dry run only shows it."""
    name = topic(partitions=2)
    consumed(kafka, name, f"group-{name}", {0: 1})
    kafka_project(folder, kafka, name)
    act = ("marks", "import", "--from", f"kafka-group:group-{name}", "--select", "events", "--offsets", "last")
    assert floodmark(*act, "--dry-run").out == 'events: mark none becomes {"0": 2}\n'
    assert shown(floodmark) == []


def test_a_group_that_never_read_the_topic_is_refused(
    floodmark: Floodmark, folder: Path, kafka: Broker, topic: Callable[..., str]
) -> None:
    """An empty mark would read everything again."""
    kafka_project(folder, kafka, topic())
    said = floodmark("marks", "import", "--from", "kafka-group:nobody", "--select", "events", "--yes")
    assert (said.code, "group 'nobody' has no offsets" in said.err) == (2, True)


def test_the_newest_mark_of_an_onetl_file_is_taken_over(floodmark: Floodmark, folder: Path, tables: str) -> None:
    """By the name of the job, or by the name that is given."""
    (folder / "yml").mkdir()
    (folder / "yml" / "orders.yml").write_text(ORDERS)
    assert tables
    assert floodmark("marks", "import", "--from", "hwm-yaml:yml", "--yes").out == "orders: mark none becomes 1500\n"
    named = ("--select", "orders", "--mark", "orders")
    assert floodmark("marks", "import", "--from", "hwm-yaml:yml", *named, "--yes").code == 0
    assert shown(floodmark) == [("column_int", 1500)]


def test_offsets_of_onetl_are_taken_over(
    floodmark: Floodmark, folder: Path, kafka: Broker, topic: Callable[..., str]
) -> None:
    """For the topic that the job reads."""
    name = topic(partitions=2)
    consumed(kafka, name, f"group-{name}", {0: 1})
    kafka_project(folder, kafka, name)
    (folder / "events_offsets.yml").write_text(OFFSETS)
    act = ("marks", "import", "--from", "hwm-yaml:.", "--select", "events", "--mark", "events_offsets", "--yes")
    assert floodmark(*act).code == 0
    assert shown(floodmark) == [("key_value_int", {"0": 1, "1": 2})]


def test_files_that_onetl_has_read_are_not_read_again(floodmark: Floodmark, folder: Path) -> None:
    """Its list knows paths alone; ours takes their size and time when it sees them."""
    (folder / "in").mkdir()
    (folder / "in" / "a.jsonl").write_text('{"id": 1}\n')
    (folder / "landing.yml").write_text(FILES.format(folder / "in"))
    source = "{type: files, path: in, settle: 0s}"
    (folder / "floodmark.yaml").write_text(
        f"jobs:\n  - {{name: landing, source: {source}, sinks: [{{type: files, path: out}}]}}\n"
    )
    assert floodmark("marks", "import", "--from", "hwm-yaml:.", "--yes").code == 0
    assert shown(floodmark)[0][0] == "file_list"
    assert floodmark("plan").out.startswith("landing: nothing new")


def test_a_folder_without_a_fitting_mark_names_those_that_are_there(
    floodmark: Floodmark, folder: Path, tables: str
) -> None:
    """So that --mark can be given."""
    (folder / "x.yml").write_text(OFFSETS)
    assert tables
    said = floodmark("marks", "import", "--from", "hwm-yaml:.", "--yes")
    assert (said.code, said.err.splitlines()[1]) == (2, "Try: --select JOB --mark NAME, with one of: events_offsets")


@pytest.mark.parametrize("arguments", [(), ("x.json", "--from", "hwm-yaml:.")])
def test_a_file_or_a_system_is_named_and_not_both(
    floodmark: Floodmark, tables: str, arguments: tuple[str, ...]
) -> None:
    """Exit 2."""
    assert tables
    assert floodmark("marks", "import", *arguments).code == 2
