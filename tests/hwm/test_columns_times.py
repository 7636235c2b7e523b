"""Marks on dates and timestamps: no rounding, no guessed zone."""
# ruff: noqa: DTZ001 - columns without a zone are what is tested

from __future__ import annotations

from datetime import date, datetime, timedelta, timezone
from zoneinfo import ZoneInfo

import pytest

from floodmark.errors import MarkInvalid, MarkKindMismatch
from floodmark.hwm import ColumnDateHWM, ColumnDateTimeHWM

INDIA = timezone(timedelta(hours=5, minutes=30))


@pytest.mark.parametrize(
    "given", ["2023-12-30", " 2023-12-30 ", "2023-12-30T00:00:00", date(2023, 12, 30), datetime(2023, 12, 30)]
)
def test_a_date_mark_accepts_a_day_however_it_is_written(given: object) -> None:
    """A datetime at midnight without a zone is a day."""
    assert ColumnDateHWM("d", given).value == date(2023, 12, 30)


@pytest.mark.parametrize(
    "given",
    [
        1,
        1.0,
        "1",
        "2023-02-30",
        "yesterday",
        "",
        True,
        datetime(2023, 12, 30, 1),
        datetime(2023, 12, 30, tzinfo=timezone.utc),
    ],
)
def test_a_date_mark_refuses_what_is_not_exactly_a_day(given: object) -> None:
    """Cutting a time off would cover rows of the same day that were not read."""
    with pytest.raises(MarkInvalid):
        ColumnDateHWM("d", given)


def test_a_date_moves_by_days() -> None:
    """2023-12-30 and two days is the new year."""
    assert (ColumnDateHWM("d", "2023-12-30") + timedelta(days=2)).value == date(2024, 1, 1)
    assert (ColumnDateHWM("d", "2024-01-01") - timedelta(days=2)).value == date(2023, 12, 30)


@pytest.mark.parametrize("by", [2, timedelta(hours=30), "2 days"])
def test_a_date_refuses_to_move_by_less_than_days(by: object) -> None:
    """Python would drop the hours without a word."""
    with pytest.raises(MarkInvalid):
        ColumnDateHWM("d", "2023-12-30") + by


def test_leaving_the_calendar_is_refused() -> None:
    """A mark's own error, not one of the calendar's."""
    with pytest.raises(MarkInvalid):
        ColumnDateHWM("d", date.max) + timedelta(days=1)


@pytest.mark.parametrize(
    ("given", "value"),
    [
        ("2024-01-01T12:00:00Z", datetime(2024, 1, 1, 12, tzinfo=timezone.utc)),
        ("2024-01-01T12:00:00.000001z", datetime(2024, 1, 1, 12, 0, 0, 1, tzinfo=timezone.utc)),
        ("2024-01-01 12:00:00.5+00", datetime(2024, 1, 1, 12, 0, 0, 500_000, tzinfo=timezone.utc)),
        ("2024-01-01T12:00:00+05:30", datetime(2024, 1, 1, 12, tzinfo=INDIA)),
        ("2024-01-01T12:00+0530", datetime(2024, 1, 1, 12, tzinfo=INDIA)),
        ("2024-01-01T12:00:00.123456", datetime(2024, 1, 1, 12, 0, 0, 123_456)),
        ("2024-01-01T12:00:00.123456000", datetime(2024, 1, 1, 12, 0, 0, 123_456)),
        ("2024-01-01", datetime(2024, 1, 1)),
        (date(2024, 1, 1), datetime(2024, 1, 1)),
        ("null", None),
    ],
)
def test_a_timestamp_keeps_its_precision_and_its_zone(given: object, value: datetime | None) -> None:
    """Naive stays naive, aware stays aware, and no microsecond is lost."""
    assert ColumnDateTimeHWM("t", given).value == value


@pytest.mark.parametrize(
    "given",
    [1, 1.5, "1", "abc", "", True, "2024-13-01T00:00:00", "2024-01-01T24:00:00", "2024-01-01T12:00:00+25", "infinity"],
)
def test_a_timestamp_mark_refuses_what_is_no_timestamp(given: object) -> None:
    """A number could be seconds, milliseconds or a day: nobody guesses."""
    with pytest.raises(MarkInvalid):
        ColumnDateTimeHWM("t", given)


def test_nanoseconds_are_refused_and_not_cut() -> None:
    """A mark that was cut lies below the row it came from."""
    with pytest.raises(MarkInvalid, match="finer than microseconds"):
        ColumnDateTimeHWM("t", "2024-01-01T12:00:00.1234567")


def test_comparing_naive_with_aware_is_a_mismatch_with_both_in_it() -> None:
    """Which of them is later depends on a zone that nobody named."""
    mark = ColumnDateTimeHWM("t", "2024-01-01T12:00:00Z")
    with pytest.raises(MarkKindMismatch) as caught:
        mark.update("2025-01-01T12:00:00")
    assert caught.value.left is mark
    assert caught.value.right == datetime(2025, 1, 1, 12)


def test_marks_with_and_without_a_zone_have_no_order_but_are_unequal() -> None:
    """Equality always has an answer."""
    aware, naive = ColumnDateTimeHWM("t", "2024-01-01T12:00:00Z"), ColumnDateTimeHWM("t", "2024-01-01T12:00:00")
    assert aware != naive
    with pytest.raises(MarkKindMismatch):
        _ = aware < naive


def test_the_hour_that_comes_twice_stays_the_right_one_when_stored() -> None:
    """A zone by name becomes the offset that held at that moment."""
    second = datetime(2023, 10, 29, 2, 30, fold=1, tzinfo=ZoneInfo("Europe/Berlin"))
    mark = ColumnDateTimeHWM("t", second)
    assert mark.serialize()["value"] == "2023-10-29T02:30:00+01:00"
    assert ColumnDateTimeHWM.deserialize(mark.serialize()) == mark


@pytest.mark.parametrize(
    ("given", "shown"),
    [
        ("2024-01-01T08:00:00", "2024-01-01 08:00:00"),
        ("2024-01-01T08:00:00.120000", "2024-01-01 08:00:00.12"),
        ("2024-01-01T08:00:00Z", "2024-01-01 08:00:00+00"),
        ("2024-01-01T08:00:00-03:30", "2024-01-01 08:00:00-03:30"),
        ("1890-01-01T08:00:00+00:19:32", "1890-01-01 08:00:00+00:19:32"),
    ],
)
def test_people_are_shown_a_timestamp_as_the_database_writes_it(given: str, shown: str) -> None:
    """So that it can be pasted into a query, and back into `marks set`."""
    mark = ColumnDateTimeHWM("t", given)
    assert mark.show() == shown
    assert mark.set_value(mark.show()) is mark


def test_a_timestamp_moves_by_a_timedelta() -> None:
    """Hours and microseconds count here."""
    assert (ColumnDateTimeHWM("t", "2024-01-01T00:00:00Z") - timedelta(microseconds=1)).show() == (
        "2023-12-31 23:59:59.999999+00"
    )
