"""A project whose lake, spool, dead letters and quarantine are in a bucket: exactly once, and no secret to be seen."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.cluster.objects import SECRET, Bucket
from tests.proofs import Prove

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(600)]

PROJECT = """\
store: sqlite:///marks.db
spark:
  master: local[2]
  driver.memory: 1g
  hadoop.fs.s3a.endpoint: ${{S3_ENDPOINT}}
  hadoop.fs.s3a.endpoint.region: us-east-1
  hadoop.fs.s3a.path.style.access: "true"
  hadoop.fs.s3a.access.key: ${{AWS_ACCESS_KEY_ID}}
  hadoop.fs.s3a.secret.key: ${{AWS_SECRET_ACCESS_KEY}}
jobs:
  - name: orders
    source: {{type: files, path: in, format: jsonl, schema: "id int, amount double"}}
    transform: {{python: "flow:as_they_are"}}
    rules: [{{check: "amount >= 0", action: quarantine}}]
    sinks:
      - {{type: delta, name: all, path: "s3a://lake/{test}/all"}}
      - {{type: delta, name: newest, path: "s3a://lake/{test}/newest", mode: merge, key: [id]}}
    spool: s3a://lake/{test}/spool
    dead_letters: {{path: "s3a://lake/{test}/dead"}}
    quarantine: {{path: "s3a://lake/{test}/quarantine"}}
"""


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """A project folder with a first day's rows: two good ones, one to quarantine, one that is no JSON.

    A function in Python may give other rows when it is called again, so every batch is frozen in the spool.
    """
    (tmp_path / "floodmark.yaml").write_text(PROJECT.format(test=tmp_path.name))
    (tmp_path / "flow.py").write_text("def as_they_are(rows):\n    return rows\n")
    deliver(
        tmp_path, "day1", ['{"id": 1, "amount": 5}', '{"id": 2, "amount": 7.5}', '{"id": 3, "amount": -1}', "{oops"]
    )
    return tmp_path


def deliver(home: Path, name: str, lines: list[str]) -> None:
    (home / "in").mkdir(exist_ok=True)
    (home / "in" / f"{name}.jsonl").write_text("".join(f"{line}\n" for line in lines))


def run(home: Path, bucket: Bucket, *words: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "floodmark", *words],
        cwd=home,
        env={**os.environ, **bucket.environment(), **environment},
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )


def ids(bucket: Bucket, home: Path, table: str) -> list[int]:
    """What a reader of the table sees."""
    from deltalake import DeltaTable, QueryBuilder

    test = next(line for line in (home / "floodmark.yaml").read_text().splitlines() if "spool:" in line).split("/")[3]
    found = DeltaTable(f"s3://lake/{test}/{table}", storage_options=bucket.access.delta_options())
    rows = QueryBuilder().register("t", found).execute("select id from t order by id").read_all()
    return [each.as_py() for each in rows.column(0)]


def test_batches_go_into_a_bucket_once(home: Path, bucket: Bucket, prove: Prove) -> None:
    """Rows, refused rows and rows that cannot be parsed; a look at what is there needs no Spark."""
    first = run(home, bucket, "run", "--json")
    again = run(home, bucket, "run", "--json")
    deliver(home, "day2", ['{"id": 2, "amount": 8}', '{"id": 4, "amount": 1}'])
    second = run(home, bucket, "run", "--json")
    assert [first.returncode, again.returncode, second.returncode] == [0, 0, 0], first.stderr + second.stderr
    assert json.loads(again.stdout)["runs"][0]["status"] == "nothing_new"
    assert ids(bucket, home, "all") == [1, 2, 2, 4]
    assert ids(bucket, home, "newest") == [1, 2, 4]
    prove("lake, spool, dead letters and quarantine in a bucket", "", "every row once, by append and by merge")


@pytest.mark.parametrize("point", ["after_intent", "after_sink:1", "before_commit"])
def test_a_run_that_is_killed_is_finished_by_the_next_one(home: Path, bucket: Bucket, point: str, prove: Prove) -> None:
    """From the spool in the bucket, into tables in the bucket."""
    killed = run(home, bucket, "run", FLOODMARK_CRASH_AT=point)
    finished = run(home, bucket, "run")
    assert killed.returncode < 0, killed.stderr
    assert finished.returncode == 0, finished.stderr
    assert ids(bucket, home, "all") == [1, 2]
    assert ids(bucket, home, "newest") == [1, 2]
    prove("a run into a bucket is killed between its writes", "", "every row once, by the next run")


def test_no_secret_of_the_bucket_is_shown(home: Path, bucket: Bucket, prove: Prove) -> None:
    """Not by the run, not in a log of everything, not in receipts, not where the bucket cannot be reached."""
    loud = run(home, bucket, "run", "--log-level", "debug")
    history = run(home, bucket, "runs", "--json")
    deliver(home, "day2", ['{"id": 4, "amount": 1}'])
    failed = run(home, Bucket("http://127.0.0.1:9"), "run", "--log-level", "debug")
    texts = [loud.stdout, loud.stderr, history.stdout, failed.stdout, failed.stderr]
    assert SECRET not in "".join(texts)
    assert failed.returncode != 0
    prove("a bucket with a login, in reach and out of reach", "", "the secret is in no output, log or receipt")
