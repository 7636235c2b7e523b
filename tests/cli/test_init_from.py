"""`floodmark init --from`: a first project over files, a database and a topic, which lint accepts as it is."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import psycopg
import pytest
from confluent_kafka import Producer
from deltalake import DeltaTable

from floodmark.testing.servers import Broker
from tests.cli.conftest import CommandResult

Floodmark = Callable[..., CommandResult]
TABLES = """
CREATE TABLE orders (id bigint PRIMARY KEY, amount numeric(10,2), updated_at timestamptz NOT NULL);
CREATE TABLE visits (id serial PRIMARY KEY, page text);
CREATE TABLE notes (body text);
CREATE TABLE prices ("part no" int PRIMARY KEY, "unit price" numeric(10,2));
CREATE SCHEMA crm;
CREATE TABLE crm.parts (a int, b int, PRIMARY KEY (b, a));
"""


def linted(floodmark: Floodmark) -> str:
    """What the last line counts before the notes."""
    return floodmark("lint", "--project", "shop/floodmark.yaml").out.splitlines()[-1].rpartition(", ")[0]


def test_a_project_is_made_of_the_folders_of_a_folder(floodmark: Floodmark, folder: Path) -> None:
    """A job for each that holds files, with the columns that were found there."""
    (folder / "in" / "orders").mkdir(parents=True)
    (folder / "in" / "orders" / "a.jsonl").write_text('{"id": 1, "o": {"a": [1.5]}}\n')
    (folder / "in" / "prices").mkdir()
    (folder / "in" / "prices" / "p.csv").write_text("sku,price\na,1.5\n")
    said = floodmark("init", "shop", "--from", "in")
    assert (said.code, said.out.splitlines()[-1]) == (0, "Next: cd shop && floodmark check")
    assert (folder / "shop" / "jobs" / "orders.yaml").read_text().splitlines()[2:7] == [
        "source:",
        "  type: files",
        "  path: ../in/orders",
        "  format: jsonl",
        '  schema: "id long, o struct<a: array<double>>"',
    ]
    assert linted(floodmark) == "0 errors, 0 warnings"


@pytest.mark.spark
@pytest.mark.usefixtures("spark")
def test_columns_that_delta_does_not_take_are_renamed(floodmark: Floodmark, folder: Path) -> None:
    """As headers of CSV files have them, also within structs; the project runs as it is."""
    (folder / "in" / "orders").mkdir(parents=True)
    row = '{"the day": "x", "the_day": 1, "o": {"unit price": 1.5, "l": [{"a=b": 2}]}, "größe": 3}\n'
    (folder / "in" / "orders" / "a.jsonl").write_text(row)
    assert floodmark("init", "shop", "--from", "in").code == 0
    assert linted(floodmark) == "0 errors, 0 warnings"
    ran = floodmark("run", "--project", "shop/floodmark.yaml")
    assert ran.code == 0, ran.err
    made = DeltaTable(folder / "shop" / "lake" / "orders").to_pyarrow_table().to_pylist()
    assert made == [{"the_day": 1, "größe": 3, "the_day_2": "x", "o": {"unit_price": 1.5, "l": [{"a_b": 2}]}}]


@pytest.mark.server
def test_a_project_is_made_of_the_tables_of_a_database(
    floodmark: Floodmark, folder: Path, database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Read by the column that says what changed, else by the key, else by xmin; the address stays outside."""
    with psycopg.connect(database, autocommit=True) as connection:
        connection.execute(TABLES.encode())
    said = floodmark("init", "shop", "--from", database)
    jobs = {file.stem: file.read_text() for file in (folder / "shop" / "jobs").iterdir()}
    assert said.code == 0, said.err
    cursors = {name: text.partition("cursor: ")[2].partition(" ")[0] for name, text in jobs.items()}
    assert cursors == {
        "orders": "updated_at",
        "visits": "id",
        "notes": "xmin",
        "crm_parts": "xmin",
        "prices": "part",
    }
    assert "mode: merge, key: [id], sequence: [updated_at]" in jobs["orders"]
    assert "key: [b, a]" in jobs["crm_parts"]
    assert "  key: [part no]\n" in jobs["prices"]
    assert "mode: merge, key: [part_no]" in jobs["prices"]
    assert (
        "select * except (`part no`, `unit price`), `part no` as part_no, `unit price` as unit_price" in jobs["prices"]
    )
    assert all(database not in text for text in jobs.values())
    monkeypatch.setenv("PG_URL", database)
    assert linted(floodmark).startswith("0 errors")


@pytest.mark.server
def test_a_project_is_made_of_a_topic(
    floodmark: Floodmark,
    folder: Path,
    kafka: Broker,
    topic: Callable[..., str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The fields of its first messages are the columns."""
    name = topic(partitions=2)
    producer = Producer({"bootstrap.servers": kafka.bootstrap})
    producer.produce(name, json.dumps({"id": 1, "v": "a"}))
    producer.produce(name, json.dumps({"id": 2, "paid": True}))
    producer.flush()
    said = floodmark("init", "shop", "--from", f"kafka://{kafka.bootstrap}/{name}")
    assert said.code == 0, said.err
    [file] = (folder / "shop" / "jobs").iterdir()
    assert "format: json, schema: " in file.read_text()
    assert {"id long", "v string", "paid boolean"} <= set(file.read_text().split('"')[1].split(", "))
    monkeypatch.setenv("KAFKA", kafka.bootstrap)
    assert linted(floodmark).startswith("0 errors")


@pytest.mark.parametrize(
    ("place", "code", "said"),
    [
        ("nowhere", 1, "nowhere cannot be read: there is no such file or folder"),
        ("mysql://h/d", 2, "mysql://h/d is no place that `init` can look into"),
        (".", 2, "there is nothing to read in ."),
    ],
)
def test_a_place_that_gives_nothing_writes_nothing(
    floodmark: Floodmark, folder: Path, place: str, code: int, said: str
) -> None:
    """And says why."""
    answer = floodmark("init", "shop", "--from", place)
    assert (answer.code, said in answer.err, list(folder.iterdir())) == (code, True, [])
