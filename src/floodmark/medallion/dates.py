"""Dates as keys: `date_sk` in a declared zone, and a date dimension that grows by itself."""

from __future__ import annotations

from datetime import date
from typing import TYPE_CHECKING
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from floodmark.errors import ConfigError
from floodmark.locations import quote

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession


DATE_SK = "date_sk"


def date_sk(rows: DataFrame, column: str, zone: str) -> Column:
    """The day of a column as yyyyMMdd: a timestamp's day in `zone`, whatever zone the session has.

    A date, and a timestamp without a zone, have their day already.

    >>> rows = spark.sql("SELECT TIMESTAMP'2026-01-02 23:30:00Z' AS moment")
    >>> rows.select(date_sk(rows, "moment", "Europe/Paris").alias("date_sk")).first()
    Row(date_sk=20260103)
    """
    from pyspark.sql import functions as F

    kind = rows.schema[column].dataType.simpleString()
    if kind not in ("date", "timestamp", "timestamp_ntz"):
        raise ConfigError(f"column '{column}' is {kind}, which has no day.", hint="cast it to date or timestamp")
    local = local_time(F.col(quote(column)), zone) if kind == "timestamp" else F.col(quote(column))
    return number_of(local.cast("date"))


def local_time(moment: Column, zone: str) -> Column:
    """What a clock in the zone shows at a timestamp, to the second.

    Casts would ask the session's zone, and lose an hour where its clocks are set back: so it is counted from 1970.

    >>> rows = spark.sql("SELECT TIMESTAMP'2026-01-02 23:30:00Z' AS moment")
    >>> rows.select(local_time(rows.moment, "Europe/Paris").alias("clock")).first().clock.isoformat()
    '2026-01-03T00:30:00'
    """
    from pyspark.sql import functions as F

    require_zone(zone)
    begin = F.lit("1970-01-01 00:00:00").cast("timestamp_ntz")
    utc = begin + F.make_dt_interval(F.lit(0), F.lit(0), F.lit(0), F.unix_seconds(moment).cast("decimal(18,6)"))
    return F.convert_timezone(F.lit("UTC"), F.lit(zone), utc)


def date_rows(spark: SparkSession, first: date, last: date) -> DataFrame:
    """The date dimension from one day to another, both included; weeks and weekdays as ISO 8601 counts them.

    >>> days = date_rows(spark, date(2026, 1, 1), date(2026, 12, 31))
    >>> days.count(), days.first().date_sk
    (365, 20260101)
    """
    from pyspark.sql import functions as F

    days = F.sequence(F.lit(first), F.lit(last))
    each = spark.range(1).select(F.explode(days).alias("date"))
    day = F.col("date")
    weekday = F.weekday(day) + 1
    return each.select(
        number_of(day).alias(DATE_SK),
        day,
        F.year(day).alias("year"),
        F.quarter(day).alias("quarter"),
        F.month(day).alias("month"),
        F.dayofmonth(day).alias("day"),
        F.dayofyear(day).alias("day_of_year"),
        F.weekofyear(day).alias("week"),
        weekday.alias("day_of_week"),
        (weekday >= 6).alias("is_weekend"),
        (F.last_day(day) == day).alias("is_month_end"),
        ((F.last_day(day) == day) & (F.month(day) % 3 == 0)).alias("is_quarter_end"),
        ((F.month(day) == 12) & (F.dayofmonth(day) == 31)).alias("is_year_end"),
    )


def dates_for(rows: DataFrame, column: str = DATE_SK) -> DataFrame:
    """The date dimension for all years that the rows touch: the transform of a job that merges it by `date_sk`.

    The dimension grows with the data that way, in whole years; rows without a date ask for none.

    >>> dates_for(spark.sql("SELECT 20260103 AS date_sk")).count()
    365
    """
    from pyspark.sql import functions as F

    years = (
        rows.select((F.col(quote(column)) / 10000).cast("int").alias("y")).where("y IS NOT NULL").distinct().collect()
    )
    if not years:
        return date_rows(rows.sparkSession, date(1970, 1, 1), date(1970, 1, 1)).limit(0)
    first, last = min(row.y for row in years), max(row.y for row in years)
    return date_rows(rows.sparkSession, date(first, 1, 1), date(last, 12, 31))


def extend_dates(spark: SparkSession, rows: DataFrame, path: str, column: str = DATE_SK) -> int:
    """Add the days of the years that the rows touch and the table at `path` lacks; returns how many were added.

    Nothing is committed where nothing is missing.

    >>> orders = spark.sql("SELECT 20260103 AS date_sk")
    >>> extend_dates(spark, orders, f"{folder}/dates"), extend_dates(spark, orders, f"{folder}/dates")
    (365, 0)
    """
    from floodmark.locations import absolute
    from floodmark.probes.delta import DeltaProbe
    from floodmark.spark.table_files import read_table

    days, location = dates_for(rows, column), absolute(path)
    if DeltaProbe(location).refresh():
        present = read_table(spark, location).select(DATE_SK)
        days = days.join(present, [DATE_SK], "left_anti")
    missing = days.count()
    if missing:
        days.coalesce(1).write.format("delta").mode("append").save(location)
    return missing


def number_of(day: Column) -> Column:
    """A date as yyyyMMdd."""
    from pyspark.sql import functions as F

    return (F.year(day) * 10000 + F.month(day) * 100 + F.dayofmonth(day)).cast("int")


def require_zone(zone: str) -> None:
    """Raise ConfigError for a zone that nobody knows."""
    try:
        ZoneInfo(zone)
    except (ZoneInfoNotFoundError, ValueError, OSError) as error:  # OSError: a folder, or a name that is too long
        raise ConfigError(f"zone {zone!r} is not known.", hint="a name such as Europe/Berlin, or UTC") from error
