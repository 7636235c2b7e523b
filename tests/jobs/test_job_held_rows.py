"""A job whose rows wait for a transaction of somebody else: what a run does, remembers and says."""

from __future__ import annotations

from typing import TYPE_CHECKING

import psycopg
import pytest

from floodmark import Job, sinks, stores
from floodmark.cli.output import run_line
from floodmark.sources import Postgres
from floodmark.sources.tables.cursor import Cursor
from tests.tables import rows_of

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from pyspark.sql import SparkSession


@pytest.fixture
def late(database: str) -> Iterator[psycopg.Connection]:
    """100 is taken and not committed yet, 101 is there."""
    with (
        psycopg.connect(database, autocommit=True) as other,
        psycopg.connect(database, application_name="till") as slow,
    ):
        other.execute("create table o (seq bigint primary key, v text)")
        other.execute("insert into o values (99, 'before')")
        slow.execute("insert into o values (100, 'late')")
        other.execute("insert into o values (101, 'early')")
        yield slow


def test_a_row_that_commits_late_is_delivered_once_and_nothing_is_passed_silently(
    spark: SparkSession, database: str, late: psycopg.Connection, tmp_path: Path
) -> None:
    """The runs before it commits read nothing, say why, and the second of them changes no byte of the store."""
    source = Postgres(database, "o", cursor=Cursor("seq", start=100))
    job = Job(name="o", source=source, sinks=[sinks.Delta(f"{tmp_path}/lake")])
    store = stores.open(f"file://{tmp_path}/marks")
    first = job.run(spark, store, waits_for_settling=False)
    after_first = files_of(tmp_path / "marks")
    second = job.run(spark, store, waits_for_settling=False)
    after_second = files_of(tmp_path / "marks")
    pid = late.info.backend_pid
    late.commit()
    third = Job(name="o", source=source, sinks=job.sinks).run(spark, stores.open(f"file://{tmp_path}/marks"))
    assert [(r.rows_read, r.rows_held_back, r.mark_after) for r in (first, second, third)] == [
        (0, 1, None),
        (0, 1, None),
        (2, 0, 101),
    ]
    assert (after_first == after_second, first.outcome, third.outcome) == (True, "held_back", "done")
    assert f"nothing read, 1 held back: 1 rows wait, since a lower one may come from pid {pid} (till)" in run_line(
        first
    )
    assert sorted(row["seq"] for row in rows_of(tmp_path / "lake")) == [100, 101]


def files_of(folder: Path) -> dict[str, bytes]:
    return {str(file): file.read_bytes() for file in sorted(folder.rglob("*")) if file.is_file()}
