"""Date keys and the date dimension."""

from __future__ import annotations

from datetime import date, datetime, timezone
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from floodmark.errors import ConfigError
from floodmark.medallion import date_rows, date_sk, extend_dates

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark
LATE = datetime(2024, 12, 31, 23, 30, tzinfo=timezone.utc)
IN_THE_FOLD = datetime(2024, 10, 27, 22, 30, tzinfo=timezone.utc)
BEFORE_1970 = datetime(1969, 12, 31, 23, 59, 59, tzinfo=timezone.utc)


@pytest.mark.parametrize("session_zone", ["UTC", "America/New_York", "Australia/Lord_Howe"])
def test_a_date_key_is_the_day_in_the_declared_zone_whatever_the_session_says(
    spark: SparkSession, session_zone: str
) -> None:
    """Also in the hour that a session's clock shows twice, and before 1970."""
    own = spark.newSession()
    own.conf.set("spark.sql.session.timeZone", session_zone)
    rows = own.createDataFrame([(LATE,), (IN_THE_FOLD,), (BEFORE_1970,), (None,)], "at timestamp")
    keys = rows.select(date_sk(rows, "at", "Europe/Berlin"), date_sk(rows, "at", "UTC")).collect()
    assert [tuple(row) for row in keys] == [
        (20250101, 20241231),
        (20241027, 20241027),
        (19700101, 19691231),
        (None, None),
    ]


def test_dates_and_times_without_a_zone_have_their_day_already(spark: SparkSession) -> None:
    """Nothing is moved."""
    rows = spark.range(1).selectExpr("date'2024-02-29' AS d", "timestamp_ntz'2024-02-29 23:59:59' AS t", "1 AS n")
    found = rows.select(date_sk(rows, "d", "Asia/Tokyo"), date_sk(rows, "t", "Asia/Tokyo")).collect()
    assert tuple(found[0]) == (20240229, 20240229)
    with pytest.raises(ConfigError, match="column 'n' is int"):
        date_sk(rows, "n", "UTC")


def test_a_zone_that_nobody_knows_is_refused(spark: SparkSession) -> None:
    """Spark would say so in the middle of a run."""
    with pytest.raises(ConfigError, match="Europe/Berlln"):
        date_sk(spark.range(1).selectExpr("current_timestamp() AS t"), "t", "Europe/Berlln")


def test_the_date_dimension_says_what_a_day_is(spark: SparkSession) -> None:
    """Weeks and weekdays by ISO 8601."""
    found = date_rows(spark, date(2024, 3, 30), date(2024, 4, 1))
    assert [tuple(row) for row in found.orderBy("date_sk").collect()] == [
        (20240330, date(2024, 3, 30), 2024, 1, 3, 30, 90, 13, 6, True, False, False, False),
        (20240331, date(2024, 3, 31), 2024, 1, 3, 31, 91, 13, 7, True, True, True, False),
        (20240401, date(2024, 4, 1), 2024, 2, 4, 1, 92, 14, 1, False, False, False, False),
    ]


def test_the_date_dimension_extends_itself_by_whole_years(spark: SparkSession, tmp_path: Path) -> None:
    """By the years that rows touch; where nothing is missing nothing is written."""
    usage = spark.createDataFrame([(20240105,), (20251231,), (None,)], "date_sk int")
    assert extend_dates(spark, usage, str(tmp_path)) == 366 + 365
    before = sorted(tmp_path.rglob("*"))
    assert extend_dates(spark, usage, str(tmp_path)) == 0
    assert sorted(tmp_path.rglob("*")) == before
    assert extend_dates(spark, spark.createDataFrame([(20260101,)], "date_sk int"), str(tmp_path)) == 365
    assert extend_dates(spark, usage.limit(0), str(tmp_path)) == 0
