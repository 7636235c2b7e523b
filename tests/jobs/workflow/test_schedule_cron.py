"""Quartz expressions, against dates that were looked up in a calendar."""

from __future__ import annotations

from datetime import datetime, timezone

import pytest

from floodmark.errors import ConfigError
from floodmark.jobs.workflow.schedule import parse_schedule


def next_after(expression: str, moment: str, zone: str = "UTC") -> str | None:
    found = parse_schedule(expression, zone).next_after(datetime.fromisoformat(moment).replace(tzinfo=timezone.utc))
    return f"{found:%Y-%m-%d %H:%M:%S}" if found else None


@pytest.mark.parametrize(
    ("expression", "moment", "due"),
    [
        ("0 0 6 * * ?", "2026-11-15 05:59:59", "2026-11-15 06:00:00"),
        ("0 0 6 * * ?", "2026-11-15 06:00:00", "2026-11-16 06:00:00"),
        ("0 0/15 * * * ?", "2026-11-15 23:46:00", "2026-11-16 00:00:00"),
        ("*/10 * * * * ?", "2026-11-15 10:00:03", "2026-11-15 10:00:10"),
        ("0 30 9-17/4 ? * MON-FRI", "2026-11-13 17:30:00", "2026-11-16 09:30:00"),
        ("0 0 0 ? * FRI-MON", "2026-11-16 00:00:00", "2026-11-20 00:00:00"),
        ("0 0 22-2/2 * * ?", "2026-11-15 22:00:00", "2026-11-16 00:00:00"),
        ("0 0 0 L * ?", "2026-02-01 00:00:00", "2026-02-28 00:00:00"),
        ("0 0 0 L-3 * ?", "2026-02-01 00:00:00", "2026-02-25 00:00:00"),
        ("0 0 0 LW * ?", "2026-05-01 00:00:00", "2026-05-29 00:00:00"),
        ("0 0 0 15W * ?", "2026-11-02 00:00:00", "2026-11-16 00:00:00"),
        ("0 0 0 1W * ?", "2026-07-31 00:00:00", "2026-08-03 00:00:00"),
        ("0 0 0 ? * 6L", "2026-11-01 00:00:00", "2026-11-27 00:00:00"),
        ("0 0 0 ? * FRI#3", "2026-11-01 00:00:00", "2026-11-20 00:00:00"),
        ("0 0 0 29 FEB ?", "2026-11-01 00:00:00", "2028-02-29 00:00:00"),
        ("0 0 0 1 1 ? 2030", "2026-11-01 00:00:00", "2030-01-01 00:00:00"),
        ("0 0 0 1 1 ? 2020", "2026-11-01 00:00:00", None),
    ],
)
def test_the_next_tick_is_quartzs(expression: str, moment: str, due: str | None) -> None:
    """Seconds first, 1 is Sunday, and L, W and # mean what Quartz says."""
    assert next_after(expression, moment) == due


@pytest.mark.parametrize(
    ("moment", "due"),
    [
        ("2026-03-28 12:00:00", "2026-03-29 01:30:00"),
        ("2026-10-24 12:00:00", "2026-10-25 00:30:00"),
        ("2026-10-25 00:30:00", "2026-10-26 01:30:00"),
    ],
)
def test_a_day_of_changing_clocks_has_its_tick_once(moment: str, due: str) -> None:
    """02:30 in Berlin does not exist on 29 March and comes twice on 25 October."""
    assert next_after("0 30 2 * * ?", moment, "Europe/Berlin") == due


@pytest.mark.parametrize(
    ("expression", "zone", "named"),
    [
        ("0 6 * * *", "UTC", "5 fields"),
        ("0 0 25 * * ?", "UTC", "'25' is no hour"),
        ("0 0 6 ? * FUN", "UTC", "'FUN' is no day of week"),
        ("0 0/0 6 * * ?", "UTC", "'0/0' is no minute"),
        ("0 0 6 32W * ?", "UTC", "'32' is no day of month"),
        ("0 0 6 1 * MON", "UTC", "both days"),
        ("0 0 6 * * ?", "Mars/Olympus", "Mars/Olympus"),
    ],
)
def test_what_cannot_be_read_is_named(expression: str, zone: str, named: str) -> None:
    """A schedule that never fires is worse than one that is refused."""
    with pytest.raises(ConfigError, match=named):
        parse_schedule(expression, zone)
