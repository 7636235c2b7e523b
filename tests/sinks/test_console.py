"""The console sink."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import pytest

from floodmark.errors import ConfigError
from floodmark.sinks import Console
from floodmark.sinks.contract import POSITION, AtLeastOnce
from tests.sinks.batches import batch, frame

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark


def test_one_json_object_per_row(spark: SparkSession, capsys: pytest.CaptureFixture[str]) -> None:
    """NULL is shown, dates are text, and our own columns are left out."""
    rows = frame(
        spark,
        f"id long, d date, n decimal(5,2), v string, {POSITION} long",
        (1, dt.date(2024, 5, 1), Decimal("1.50"), None, 7),
    )
    assert Console().write(rows, batch(1)) == 1
    assert capsys.readouterr().out == '{"id":1,"d":"2024-05-01","n":1.50,"v":null}\n'


def test_a_table_has_a_header_and_aligned_columns(spark: SparkSession, capsys: pytest.CaptureFixture[str]) -> None:
    """For eyes: as wide as its values."""
    rows = frame(spark, "id long, name string", (1, "Ada"), (22, None)).coalesce(1)
    assert Console(format="table").write(rows, batch(1)) == 2
    assert capsys.readouterr().out == "id  name\n1   Ada\n22  NULL\n"


def test_a_limit_shows_that_many_rows(spark: SparkSession, capsys: pytest.CaptureFixture[str]) -> None:
    """What was shown is what is counted."""
    assert Console(limit=2).write(spark.range(10), batch(1)) == 2
    assert capsys.readouterr().out.count("\n") == 2


def test_rows_go_to_stderr_where_stdout_belongs_to_a_document(
    spark: SparkSession, capsys: pytest.CaptureFixture[str]
) -> None:
    """Under --json nothing but the document may be on stdout."""
    Console(stream="stderr").write(frame(spark, "id long", (1,)), batch(1))
    assert capsys.readouterr() == ("", '{"id":1}\n')


def test_it_remembers_nothing_and_says_so() -> None:
    """A repeated batch is shown again."""
    sink = Console()
    nowhere: Any = None
    assert isinstance(sink, AtLeastOnce)
    assert (sink.recorded("ledger", nowhere), sink.holds_rows(nowhere)) == (None, False)


@pytest.mark.parametrize("options", [{"format": "xml"}, {"limit": 0}])
def test_wrong_options_are_refused_at_once(options: dict[str, Any]) -> None:
    """Before a run begins."""
    with pytest.raises(ConfigError):
        Console(**options)
