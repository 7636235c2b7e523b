"""What typed columns can hold exactly: a value that a column would round, shift or drop is refused."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import fields, is_dataclass
from datetime import datetime
from decimal import Decimal

from floodmark.mill.field_types import mentions
from floodmark.mill.key_values import fits_columns
from floodmark.mill.scalars import Unfit


def column_check(cls: type) -> Callable[[object], None] | None:
    """A function that raises Unfit for an element that columns cannot hold; None for a class that needs no check."""
    return require_exact if mentions(cls, Decimal) or mentions(cls, datetime) else None


def require_exact(value: object) -> None:
    """Raises Unfit, with the path to the value."""
    if isinstance(value, Decimal):
        _require_digits(value)
    elif isinstance(value, datetime):
        _require_zone(value)
    elif is_dataclass(value) and not isinstance(value, type):
        for field in fields(value):
            _require_below(getattr(value, field.name), f".{field.name}")
    elif isinstance(value, Mapping):
        for key, one in value.items():
            _require_below(one, f"[{key!r}]")
    elif isinstance(value, list | tuple | set | frozenset):
        for place, one in enumerate(value):
            _require_below(one, f"[{place}]")


def _require_below(value: object, part: str) -> None:
    try:
        require_exact(value)
    except Unfit as unfit:
        raise unfit.below(part) from None


def _require_digits(value: Decimal) -> None:
    if not fits_columns(value):
        raise Unfit(f"{value} has more than 20 digits before the point, or 18 after it")


def _require_zone(value: datetime) -> None:
    if value.tzinfo is None:
        raise Unfit(f"{value.isoformat()} has no time zone, which a column of times needs")
