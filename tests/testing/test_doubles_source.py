"""The list of rows as a source: failure as data."""

from __future__ import annotations

import signal
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest

from floodmark.hwm import ColumnIntHWM, Span
from floodmark.sources.contract import Immutable, Request
from floodmark.testing import CRASH, FAIL, InjectedFailure, RowsSource

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def no_session() -> SparkSession:
    """A look must answer without Spark."""
    raise AssertionError("the look asked for Spark")


def row(number: int) -> dict[str, Any]:
    return {"id": number}


def span(after: int, upto: int) -> Span:
    return Span(ColumnIntHWM("rows", after) if after else None, ColumnIntHWM("rows", upto))


def look(source: RowsSource, mark: int | None = None, **request: Any) -> Span | None:  # noqa: ANN401 (passed on)
    held = None if mark is None else ColumnIntHWM("rows", mark)
    return source.look(held, Request(**request), no_session).span


def test_the_mark_counts_the_rows_that_were_delivered() -> None:
    """CRASH and FAIL are not counted: they are no rows."""
    source = RowsSource([row(1), CRASH, row(2), FAIL])
    assert look(source) == span(0, 2)
    assert look(source, 1) == span(1, 2)
    assert look(source, 2) is None


def test_an_empty_list_is_nothing_new() -> None:
    """Not a span without rows."""
    assert look(RowsSource([])) is None


def test_rows_appended_between_runs_are_found() -> None:
    """The test holds the list."""
    rows: list[Any] = [row(1)]
    source = RowsSource(rows)
    rows.append(row(2))
    assert look(source, 1) == span(1, 2)


def test_max_rows_bounds_the_span() -> None:
    """The rest is for the next batch."""
    source = RowsSource([row(1), row(2), row(3)])
    assert look(source, max_rows=2) == span(0, 2)
    assert look(source, 2, max_rows=2) == span(2, 3)


def test_from_leaves_out_so_many_rows() -> None:
    """And looks at no mark."""
    assert look(RowsSource([row(1), row(2), row(3)]), 3, start="1") == span(1, 3)


def test_a_failure_strikes_only_the_span_that_holds_the_row_behind_it() -> None:
    """So that a test can say between which batches it happens."""
    source = RowsSource([row(1), FAIL, row(2), row(3)])
    source._strike(0, 1)
    source._strike(2, 3)
    with pytest.raises(InjectedFailure):
        source._strike(1, 2)


def test_a_failure_at_the_end_strikes_with_the_last_row() -> None:
    """There is no row behind it."""
    source = RowsSource([row(1), row(2), FAIL])
    source._strike(0, 1)
    with pytest.raises(InjectedFailure):
        source._strike(1, 2)


def test_a_failure_strikes_each_time_until_it_is_healed() -> None:
    """Healing takes it out of the list that the test holds."""
    rows: list[Any] = [FAIL, row(1)]
    source = RowsSource(rows)
    with pytest.raises(InjectedFailure):
        source._strike(0, 1)
    with pytest.raises(InjectedFailure):
        source._strike(0, 1)
    source.heal()
    source._strike(0, 1)
    assert rows == [row(1)]


def test_a_crash_kills_the_process_without_a_goodbye() -> None:
    """No cleanup runs, as with kill -9."""
    program = (
        "from floodmark.testing import CRASH, RowsSource\n"
        "try: RowsSource([{'id': 1}, CRASH, {'id': 2}])._strike(0, 2)\n"
        "finally: print('cleaned up')"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (-signal.SIGKILL, "")


def test_a_row_source_never_changes_what_it_delivered() -> None:
    """So the step needs no spool for it."""
    assert isinstance(RowsSource([]), Immutable)


def test_a_name_that_testing_does_not_have_is_an_attribute_error() -> None:
    """As of any module."""
    with pytest.raises(ImportError):
        from floodmark.testing import Nothing  # noqa: F401


@pytest.mark.spark
def test_a_span_gives_its_rows_and_no_others(spark: SparkSession) -> None:
    """In the order of the list."""
    reading = RowsSource([row(1), row(2), row(3), row(4)], "id long").read(spark, span(1, 3))
    assert reading.position is not None
    frame = reading.rows.withColumn("p", reading.position).orderBy("p")
    assert [each.id for each in frame.collect()] == [2, 3]


@pytest.mark.spark
def test_a_schema_is_inferred_if_none_is_given(spark: SparkSession) -> None:
    """With the columns in the order of the dicts."""
    frame = RowsSource([{"v": "a", "id": 1}]).read(spark, span(0, 1)).rows
    assert (frame.columns, [tuple(each) for each in frame.collect()]) == (["v", "id"], [("a", 1)])


@pytest.mark.spark
def test_reading_a_span_with_a_failure_raises_it(spark: SparkSession) -> None:
    """The moment the span is read."""
    with pytest.raises(InjectedFailure):
        RowsSource([FAIL, row(1)]).read(spark, span(0, 1))
