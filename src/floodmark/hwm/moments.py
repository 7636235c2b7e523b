"""Points in time as text: nothing is rounded, nothing depends on the time zone of this process."""

from __future__ import annotations

import re
from datetime import datetime, timedelta, timezone

from floodmark.errors import MarkInvalid

EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)

_TEXT = re.compile(
    r"(?P<date>[0-9]{4}-[0-9]{2}-[0-9]{2})"
    r"(?:[T ](?P<hours>[0-9]{2}:[0-9]{2})(?::(?P<seconds>[0-9]{2})(?:[.,](?P<fraction>[0-9]+))?)?"
    r" ?(?P<zone>Z|z|[+-][0-9]{2}(?::?[0-9]{2}(?::?[0-9]{2}(?:\.[0-9]{6})?)?)?)?)?"
)


def utc_moment(kind: str, moment: datetime | str | None) -> datetime:
    """The moment in UTC; now if none is given. A moment without a zone is refused."""
    if moment is None:
        return datetime.now(timezone.utc)
    found, _ = split_moment(kind, moment) if isinstance(moment, str) else (moment, 0)
    if not isinstance(found, datetime) or found.utcoffset() is None:
        raise MarkInvalid(kind, moment, reason="modified_time needs a time zone")
    try:
        return found.astimezone(timezone.utc)
    except OverflowError as error:
        raise MarkInvalid(kind, moment, reason="modified_time is outside the calendar in UTC") from error


def split_moment(kind: str, text: str) -> tuple[datetime, int]:
    """The moment that an ISO text names, and the nanoseconds that a datetime has no room for."""
    found = _TEXT.fullmatch(text.strip())
    if not found:
        raise MarkInvalid(kind, text, reason="not a date and time in ISO form")
    fraction = (found["fraction"] or "").rstrip("0")
    if len(fraction) > 9:
        raise MarkInvalid(kind, text, reason="finer than nanoseconds, and cutting it would lose rows")
    nanoseconds = int(fraction.ljust(9, "0"))
    clock = f"{found['hours'] or '00:00'}:{found['seconds'] or '00'}.{nanoseconds // 1000:06}"
    try:
        naive = datetime.fromisoformat(f"{found['date']}T{clock}")
        moment = naive.replace(tzinfo=_zone(found["zone"])) if found["zone"] else naive
    except ValueError as error:
        raise MarkInvalid(kind, text, reason=str(error)) from error
    return moment, nanoseconds % 1000


def fixed_offset(moment: datetime) -> datetime:
    """The same moment as a plain datetime with a fixed offset: an hour that comes twice a year stays the right one."""
    offset = moment.utcoffset()
    zone = None if offset is None else timezone.utc if not offset else timezone(offset)
    clock = (moment.hour, moment.minute, moment.second, moment.microsecond)
    return datetime(moment.year, moment.month, moment.day, *clock, tzinfo=zone)


def to_nanoseconds(moment: datetime) -> int:
    """Nanoseconds since 1970; a moment without a zone is taken as UTC."""
    aware = moment if moment.tzinfo else moment.replace(tzinfo=timezone.utc)
    return (aware - EPOCH) // timedelta(microseconds=1) * 1000


def database_text(moment: datetime, nanoseconds: int = 0) -> str:
    """The moment as PostgreSQL writes it: `2024-01-01 12:00:00.5+00`."""
    fraction = f"{moment.microsecond:06}{nanoseconds:03}".rstrip("0")
    whole = moment.replace(microsecond=0, tzinfo=None).isoformat(sep=" ")
    return whole + (f".{fraction}" if fraction else "") + _offset_text(moment.utcoffset())


def _offset_text(offset: timedelta | None) -> str:
    if offset is None:
        return ""
    sign, size = ("-", -offset) if offset < timedelta() else ("+", offset)
    text = (EPOCH + size).time().isoformat()
    return sign + (text[:2] if text[2:] == ":00:00" else text[:5] if text[5:] == ":00" else text)


def _zone(text: str) -> timezone:
    if text in "Zz":
        return timezone.utc
    digits = text[1:].replace(":", "").replace(".", "").ljust(12, "0")
    hours, minutes, seconds, micros = int(digits[:2]), int(digits[2:4]), int(digits[4:6]), int(digits[6:])
    size = timedelta(hours=hours, minutes=minutes, seconds=seconds, microseconds=micros)
    return timezone(-size if text[0] == "-" else size) if size else timezone.utc
