"""One project on a cluster: every source, history, a fact and a mill; its lake on a shared disk, or in a bucket."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

import psycopg
import pytest
from deltalake import DeltaTable, QueryBuilder

from floodmark.testing.servers import Broker
from tests.cluster.objects import Bucket
from tests.cluster.standalone import Cluster, run_floodmark
from tests.faults.orders import ids_in_topic
from tests.proofs import Prove

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(600)]

PROJECT = """\
store: sqlite:///marks.db
spark:
  master: {master}
  executor.memory: 512m
  cores.max: 2
  sql.shuffle.partitions: 2
  databricks.delta.snapshotPartitions: 2
{settings}
defaults: {{spool: "{lake}/spool"}}
jobs:
  - name: bronze
    source:
      type: files
      path: "{lake}/in"
      format: jsonl
      schema: "k int, date_sk int, at int, v string"
      settle: 0s
    sinks: [{{type: delta, path: "{lake}/bronze", change_feed: true}}]
  - name: history
    source: {{type: delta, path: "{lake}/bronze"}}
    sinks: [{{type: delta, mode: scd2, path: "{lake}/history", key: k, sequence: at, track: [v]}}]
    quarantine: {{path: "{lake}/quarantine"}}
  - name: gold
    source: {{type: fact, rows: {{name: history, path: "{lake}/history"}}}}
    transform: {{sql: "SELECT date_sk, CAST(count(*) AS int) AS n FROM source GROUP BY date_sk"}}
    sinks: [{{type: delta, mode: dates, path: "{lake}/gold"}}]
  - name: shop
    source: {{type: postgres, url: "{database}", table: src, cursor: id}}
    sinks: [{{type: delta, path: "{lake}/shop", change_feed: true}}]
  - name: onwards
    source: {{type: delta, path: "{lake}/shop"}}
    sinks:
      - {{type: kafka, bootstrap: "{bootstrap}", topic: {topic}, key: id}}
      - {{type: postgres, url: "{database}", table: copy}}
  - name: events
    source:
      type: kafka
      bootstrap: "{bootstrap}"
      topic: {topic}
      value: {{format: json, schema: "id long"}}
    sinks: [{{type: delta, path: "{lake}/events", mode: merge, key: [id]}}]
mills:
  - {{name: doubling, python: "doubling:mill", spool: "{lake}/spool"}}
"""
MILL = """\
from dataclasses import dataclass

from floodmark.mill import KafkaMessageBroker, WaterMill


@dataclass
class Sale:
    id: int


@dataclass
class Double:
    id: int


def double(sale: Sale) -> Double:
    return Double(2 * sale.id)


mill = WaterMill(KafkaMessageBroker({{Sale: "{topic}", Double: "{topic}-twice"}}, "{bootstrap}"), double)
"""
EVENTS = [
    {"k": 1, "date_sk": 20240101, "at": 1, "v": "a"},
    {"k": 1, "date_sk": 20240102, "at": 2, "v": "b"},
    {"k": 2, "date_sk": 20240101, "at": 1, "v": "a"},
]
S3 = """\
  hadoop.fs.s3a.endpoint: ${S3_ENDPOINT}
  hadoop.fs.s3a.endpoint.region: us-east-1
  hadoop.fs.s3a.path.style.access: "true"
  hadoop.fs.s3a.access.key: ${AWS_ACCESS_KEY_ID}
  hadoop.fs.s3a.secret.key: ${AWS_SECRET_ACCESS_KEY}
"""


@dataclass(frozen=True)
class Place:
    """Where a lake is, how its tables are opened without Spark, and how a file is put into it."""

    url: str
    tables: str
    settings: str
    options: Mapping[str, str] | None
    environment: Mapping[str, str]
    put: Callable[[str, str], None]

    def rows(self, table: str, columns: str) -> list[tuple[object, ...]]:
        """What a reader of the table sees, in order."""
        opened = DeltaTable(f"{self.tables}/{table}", storage_options=dict(self.options) if self.options else None)
        found = QueryBuilder().register("t", opened).execute(f"select {columns} from t order by {columns}").read_all()
        return list(zip(*(column.to_pylist() for column in found.columns), strict=True))


@pytest.fixture(params=["shared folder", "bucket"])
def place(request: pytest.FixtureRequest, cluster: Cluster, tmp_path: Path) -> Place:
    """A folder that all machines share and nothing else, or a bucket and nothing else."""
    if request.param == "shared folder":
        folder = cluster.shared / tmp_path.name
        (folder / "in").mkdir(parents=True)
        return Place(str(folder), str(folder), "", None, {}, lambda name, text: put_file(folder / name, text))
    bucket: Bucket = request.getfixturevalue("bucket")
    below = f"{bucket.name}/{tmp_path.name}"

    def put(name: str, text: str) -> None:
        with bucket.system().open_output_stream(f"{below}/{name}") as stream:
            stream.write(text.encode())

    return Place(f"s3a://{below}", f"s3://{below}", S3, bucket.access.delta_options(), bucket.environment(), put)


def put_file(file: Path, text: str) -> None:
    file.write_text(text)


def test_a_platform_runs_on_a_cluster_and_every_row_is_there_once(
    cluster: Cluster,
    place: Place,
    tmp_path: Path,
    kafka: Broker,
    topic: Callable[..., str],
    database: str,
    prove: Prove,
) -> None:
    """Only the master and the place of the lake are other ones than on a laptop; a second run does what is new."""
    home = cluster.private / f"{tmp_path.name}-home"
    home.mkdir()
    out = topic(partitions=3)
    fields = {"master": cluster.master, "lake": place.url, "settings": place.settings, "database": database}
    (home / "floodmark.yaml").write_text(PROJECT.format(**fields, bootstrap=kafka.bootstrap, topic=out))
    (home / "doubling.py").write_text(MILL.format(bootstrap=kafka.bootstrap, topic=out))
    place.put("in/1.jsonl", "".join(json.dumps(event) + "\n" for event in EVENTS[:2]))
    with psycopg.connect(database) as connection:
        connection.execute("create table src as select g::bigint as id from generate_series(1, 50) g")
        connection.execute("alter table src add primary key (id)")
    first = run_floodmark(cluster, home, "run", **place.environment)
    output, _ = first.communicate(timeout=400)
    assert first.returncode == 0, output
    place.put("in/2.jsonl", json.dumps(EVENTS[2]) + "\n")
    with psycopg.connect(database) as connection:
        connection.execute("insert into src select generate_series(51, 60)")
    time.sleep(1)
    second = run_floodmark(cluster, home, "run", **place.environment)
    output, _ = second.communicate(timeout=400)
    assert second.returncode == 0, output
    every = [(number,) for number in range(1, 61)]
    with psycopg.connect(database) as connection:
        copied = connection.execute("select id from copy order by id").fetchall()
    assert place.rows("bronze", "k, at") == [(1, 1), (1, 2), (2, 1)]
    assert place.rows("history", "k, v, valid_from") == [(1, "a", 1), (1, "b", 2), (2, "a", 1)]
    assert place.rows("gold", "date_sk, n") == [(20240101, 2), (20240102, 1)]
    assert place.rows("shop", "id") == copied == place.rows("events", "id") == every
    assert ids_in_topic(kafka.bootstrap, f"{out}-twice") == [2 * number for (number,) in every]
    where = "a bucket" if place.options else "a shared folder"
    found = "every row once in every table, topic and history"
    prove(f"six jobs and a mill on a cluster, their lake and spool in {where}", "", found)
