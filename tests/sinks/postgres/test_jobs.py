"""Jobs into PostgreSQL, on a real server: a run that was paused in its write, and a database that lost its end."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import psycopg
import pytest

import floodmark as fm
from floodmark.errors import CodeChanged, Overtaken, SinkBehind, SinkFailed
from floodmark.sinks import Postgres
from floodmark.testing import RowsSource
from tests.sinks.postgres.test_defaults import with_default
from tests.sinks.postgres.test_postgres import ask

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession

    from floodmark.sinks.contract import Batch
    from floodmark.stores.contract import MarkStore

FIVE, TEN = ([{"id": number} for number in range(1, last + 1)] for last in (5, 10))
IDS = "select id from numbers order by id"


def first_code(rows: DataFrame) -> DataFrame:
    return rows.select("id")


def corrected_code(rows: DataFrame) -> DataFrame:
    return rows.selectExpr("id + 0 as id")


def numbers(url: str, rows: list[dict[str, int]], code: Callable[[DataFrame], DataFrame] = first_code) -> fm.Job:
    return fm.Job("numbers", RowsSource(rows), [Postgres(url, "numbers")], code)


@pytest.fixture(params=["own", "joined", "serializable"])
def store(request: pytest.FixtureRequest, database: str, tmp_path: Path) -> MarkStore:
    """Marks elsewhere, or in the database of the rows, where they move in one transaction, however strict it is."""
    if request.param == "serializable":
        with_default(database, "default_transaction_isolation", "serializable")
    return fm.stores.open(f"sqlite:///{tmp_path}/marks.db" if request.param == "own" else database)


@pytest.fixture
def thaw(
    spark: SparkSession, database: str, store: MarkStore, monkeypatch: pytest.MonkeyPatch
) -> Callable[[], int | None]:
    """A first batch is there, and a run stands still at the beginning of the write of the second one: lets it go on."""
    numbers(database, FIVE).run(spark, store)
    write, paused = Postgres.write_joined, []

    def stand_still(sink: Postgres, rows: DataFrame, batch: Batch, in_transaction: Any) -> int | None:  # noqa: ANN401
        paused.append((sink, rows.select("*"), batch))
        raise TimeoutError("paused here")

    with monkeypatch.context() as patch:
        patch.setattr(Postgres, "write_joined", stand_still)
        with pytest.raises(SinkFailed):
            numbers(database, TEN).run(spark, store)
    [(sink, rows, batch)] = paused
    return lambda: write(sink, rows, batch, lambda *_: None)


def test_a_run_that_goes_on_behind_the_fence_writes_nothing(
    spark: SparkSession, database: str, store: MarkStore, thaw: Callable[[], int | None]
) -> None:
    """The batch was dropped, since the code is another one, and its rows came under the next number."""
    assert numbers(database, TEN, corrected_code).run(spark, store).number == 3
    with pytest.raises(Overtaken):
        thaw()
    assert ask(database, IDS) == [(each["id"],) for each in TEN]


def test_a_run_that_goes_on_just_before_the_fence_has_written_its_batch(
    spark: SparkSession,
    database: str,
    store: MarkStore,
    thaw: Callable[[], int | None],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The next run asks the ledger after its fence, and so does not deliver the same rows under another number."""
    fence = Postgres.fence

    def late(sink: Postgres, *asked: Any) -> None:  # noqa: ANN401
        monkeypatch.setattr(Postgres, "fence", fence)
        assert thaw() == 5
        fence(sink, *asked)

    monkeypatch.setattr(Postgres, "fence", late)
    with pytest.raises(CodeChanged):
        numbers(database, TEN, corrected_code).run(spark, store)
    assert numbers(database, TEN).run(spark, store).number == 2
    assert ask(database, IDS) == [(each["id"],) for each in TEN]


def test_a_database_that_failed_over_without_its_last_transaction_is_noticed(
    spark: SparkSession, database: str, tmp_path: Path
) -> None:
    """The standby had not got it yet: rows and ledger are as they were before, and the mark is ahead of both."""
    store = fm.stores.open(f"sqlite:///{tmp_path}/marks.db")
    numbers(database, FIVE).run(spark, store)
    with psycopg.connect(database) as before:
        standby = before.execute("select * from floodmark_ledger").fetchone()
        assert standby is not None
    numbers(database, TEN).run(spark, store)
    ask(database, "delete from numbers where id > 5")
    ask(database, f"update floodmark_ledger set number = 1, digest = '{standby[2]}', rows = 5")
    with pytest.raises(SinkBehind) as stop:
        numbers(database, [*TEN, {"id": 11}]).run(spark, store)
    assert (stop.value.recorded, stop.value.confirmed, stop.value.exit_code) == (1, 2, 5)
    assert ask(database, IDS) == [(each["id"],) for each in FIVE]
