"""The sink in memory that tests of jobs use."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from floodmark.errors import Overtaken
from floodmark.sinks.contract import POSITION, Recorded
from floodmark.testing import InjectedFailure, ListSink
from tests.sinks.batches import batch, frame

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark
LEDGER = "floodmark.prod.orders.list"
NOWHERE: Any = None


def test_it_collects_rows_once_per_number(spark: SparkSession) -> None:
    """A real ledger: what is tested with it holds for real sinks."""
    sink = ListSink()
    rows = frame(spark, f"id long, {POSITION} long", (1, 5))
    assert (sink.write(rows, batch(1)), sink.write(rows, batch(1)), sink.rows) == (1, 1, [{"id": 1}])
    assert sink.recorded(LEDGER, NOWHERE) == Recorded(1, "d1")


def test_a_refresh_replaces_what_it_holds(spark: SparkSession) -> None:
    """In one step, as the contract says."""
    sink = ListSink(rows=[{"id": 1}])
    sink.write(frame(spark, "id long", (2,)), batch(1, kind="refresh"))
    assert sink.rows == [{"id": 2}]


def test_it_fails_as_often_as_it_is_told(spark: SparkSession) -> None:
    """Failure is data: nothing is patched, nothing is written."""
    sink = ListSink(fail_times=1)
    with pytest.raises(InjectedFailure):
        sink.write(frame(spark, "id long", (1,)), batch(1))
    assert sink.rows == []
    assert sink.write(frame(spark, "id long", (1,)), batch(1)) == 1


def test_a_fence_takes_the_number(spark: SparkSession) -> None:
    """Whoever comes with it or a lower one writes nothing, and is stopped."""
    sink = ListSink()
    sink.fence(LEDGER, 3, NOWHERE)
    for number in (3, 2):
        with pytest.raises(Overtaken):
            sink.write(frame(spark, "id long", (1,)), batch(number))
    assert sink.rows == []
