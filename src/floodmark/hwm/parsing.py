"""Values from what users and drivers give, exactly or not at all: numbers, moments, JSON text, lengths of time.

Nothing is rounded, and nothing depends on the time zone of this process.
"""

from __future__ import annotations

import re
from datetime import datetime, timedelta, timezone
from decimal import Context, Decimal, Inexact
from operator import index

from floodmark.errors import ConfigError, MarkInvalid
from floodmark.inputs import parse_json

LARGEST_EXACT_FLOAT = 2**53
MOST_DIGITS = 4000
"""Python neither reads nor writes a whole number of more than 4300 digits as text."""
_TOO_LARGE = 10**MOST_DIGITS
EXACT = Context(prec=200_000, traps=[Inexact])
"""Decimal arithmetic that never rounds; the default context would, at 28 digits."""

_WHOLE = re.compile(r"[+-]?[0-9]+")
_WHOLE_OR_ZEROS = re.compile(r"([+-]?[0-9]+)(?:\.0*)?")
_DECIMAL = re.compile(r"[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]{1,6})?")
EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)
_MOMENT = re.compile(
    r"(?P<date>[0-9]{4}-[0-9]{2}-[0-9]{2})"
    r"(?:[T ](?P<hours>[0-9]{2}:[0-9]{2})(?::(?P<seconds>[0-9]{2})(?:[.,](?P<fraction>[0-9]+))?)?"
    r" ?(?P<zone>Z|z|[+-][0-9]{2}(?::?[0-9]{2}(?::?[0-9]{2}(?:\.[0-9]{6})?)?)?)?)?"
)
UNITS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
_DURATION = re.compile(r"\s*(\d+(?:\.\d+)?)\s*(ms|s|m|h|d)?\s*")


def strict_int(kind: str, value: object) -> int:
    """A whole number given as one, or as its digits; never a float."""
    if type(value) is int and -_TOO_LARGE < value < _TOO_LARGE:
        return value  # the usual case first: a list of files asks this two million times
    if isinstance(value, str):
        return _from_digits(kind, value, _WHOLE.fullmatch(value.strip()) and value.strip())
    if isinstance(value, bool):
        raise MarkInvalid(kind, value, reason="not a whole number")
    try:
        return _within_size(kind, index(value))  # type: ignore[arg-type]  # ints of other libraries have an index too
    except TypeError as error:
        raise MarkInvalid(kind, value, reason="not a whole number") from error


def whole_number(kind: str, value: object) -> int:
    """A whole number in any spelling that names it exactly: 1, "1.0", 1.0, Decimal("1.0")."""
    if isinstance(value, str):
        found = _WHOLE_OR_ZEROS.fullmatch(value.strip())
        return _from_digits(kind, value, found and found[1])
    if isinstance(value, float):
        return _from_float(kind, value)
    if isinstance(value, Decimal):
        return _within_size(kind, int(_whole_decimal(kind, value)))
    return strict_int(kind, value)


def exact_decimal(kind: str, value: object) -> Decimal:
    """A decimal that is exactly what was given, within what a database's numeric can hold."""
    if isinstance(value, Decimal):
        found = value
    elif isinstance(value, str) and _DECIMAL.fullmatch(value.strip()):
        found = Decimal(value.strip())
    elif isinstance(value, float):
        found = Decimal(repr(value))
        if not found.is_finite() or found != Decimal(value):
            raise MarkInvalid(kind, value, reason="this float is not exactly a decimal; give it as text")
    elif isinstance(value, str):
        raise MarkInvalid(kind, value, reason="not a decimal number")
    else:
        found = Decimal(strict_int(kind, value))
    return _storable(kind, found)


def display_int(value: int) -> int | str:
    """A whole number that stays exact where JSON is read with floats."""
    return value if abs(value) <= LARGEST_EXACT_FLOAT else str(value)


def _storable(kind: str, value: Decimal) -> Decimal:
    if not value.is_finite():
        raise MarkInvalid(kind, value, reason="not a finite number")
    exponent = value.as_tuple().exponent
    if value.adjusted() >= 131_072 or (isinstance(exponent, int) and exponent < -16_383):
        raise MarkInvalid(kind, value, reason="more digits than a database's numeric can hold")
    return value


def _whole_decimal(kind: str, value: Decimal) -> Decimal:
    if _storable(kind, value) != value.to_integral_value():
        raise MarkInvalid(kind, value, reason="not a whole number")
    return value


def _from_float(kind: str, value: float) -> int:
    if not value.is_integer():
        raise MarkInvalid(kind, value, reason="not a whole number")
    if abs(value) > LARGEST_EXACT_FLOAT:
        raise MarkInvalid(kind, value, reason="a float this large was rounded already; give an int or text")
    return int(value)


def _from_digits(kind: str, value: str, digits: str | None) -> int:
    if not digits:
        raise MarkInvalid(kind, value, reason="not a whole number")
    if len(digits) > MOST_DIGITS:
        raise MarkInvalid(kind, f"{digits[:20]}…", reason=f"more than {MOST_DIGITS} digits")
    return int(digits)


def _within_size(kind: str, value: int) -> int:
    if abs(value) >= _TOO_LARGE:
        raise MarkInvalid(kind, "a number", reason=f"more than {MOST_DIGITS} digits")
    return value


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
    found = _MOMENT.fullmatch(text.strip())
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


def from_json_text(kind: str, value: object) -> object:
    """What a person typed as JSON, for the kinds whose value is more than one word; anything else as it is."""
    if not isinstance(value, str) or not value.lstrip().startswith(("[", "{")):
        return value

    def without_doubles(pairs: list[tuple[str, object]]) -> dict[str, object]:
        found = dict(pairs)
        if len(found) < len(pairs):
            raise MarkInvalid(kind, value, reason="a key is there twice")
        return found

    try:
        meant: object = parse_json(value, parse_float=Decimal, object_pairs_hook=without_doubles)
    except MarkInvalid:
        raise
    except ValueError as error:
        raise MarkInvalid(kind, value, reason=f"not JSON: {error}") from error
    return meant


def seconds_in(duration: str | float, *, field: str) -> float:
    """The seconds of `500ms`, `5s`, `10m`, `1h`, `7d` or a bare number; `field` is named if it cannot be read."""
    found = _DURATION.fullmatch(str(duration))
    if not found:
        raise ConfigError(f"{field}: {duration!r} is not a duration.", hint="write it like 500ms, 5s, 10m, 1h or 7d")
    number, unit = found.groups()
    return float(number) * UNITS[unit or "s"]


def wait_seconds(given: float | str | None, *, field: str) -> float | None:
    """The seconds of a number of milliseconds, as watermill counts, or of text with its unit; None is for ever.

    Infinity is for ever too. Raises ConfigError for what is no length of time.
    """
    if given is None or given == float("inf"):
        return None
    seconds = given / 1000 if isinstance(given, (int, float)) else seconds_in(given, field=field)
    if not seconds > 0:
        raise ConfigError(f"{field}: {given!r} is no time to wait.", hint="milliseconds, or text like '20s'")
    return seconds
