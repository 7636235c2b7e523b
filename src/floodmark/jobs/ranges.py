"""A range of a source at or below its mark, piece by piece: from a value that is in it to one that is not."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from floodmark.errors import ConfigError, MarkInvalid, MarkKindMismatch
from floodmark.hwm import HWM, Json
from floodmark.sources.contract import Session, Sight, Source

if TYPE_CHECKING:
    from floodmark.stores.record import JobRecord


@dataclass(frozen=True)
class Bounds:
    """A half-open range as somebody asked for it; None is the beginning, or the mark."""

    start: str | None = None
    stop: str | None = None

    def __str__(self) -> str:
        return f"from {self.start or 'the beginning'} to {self.stop or 'the mark'}"


class Range(Protocol):
    """Rows of one source between two values, in pieces."""

    @property
    def condition(self) -> str | None:
        """What a row of a piece has to keep as well, as SQL: the last piece ends with a value that is not in it."""

    @property
    def is_cut(self) -> bool:
        """Whether the range was asked to go beyond the mark, and ends with it."""

    def piece(self, after: HWM[Any] | None, max_rows: int | None, remembered: Mapping[str, Json]) -> Sight:
        """The next piece behind a mark, or the first one; its span is None if there is none left."""


def range_of(source: Source, mark: HWM[Any], bounds: Bounds, session: Session) -> Range:
    """The range in the words of the source. Raises ConfigError where it is empty, or where there is no order.

    Raises RangeAboveMark for one that begins above the mark.
    """
    from floodmark.jobs.range_offsets import OffsetRange
    from floodmark.jobs.range_tables import TABLES, table_range
    from floodmark.sources import Kafka

    if isinstance(source, TABLES):
        return table_range(source, mark, bounds, session)
    if isinstance(source, Kafka):
        return OffsetRange(source, mark, bounds, session)
    raise ConfigError(
        f"source '{source.name}' has no range of values that could be read again.",
        hint="that works for tables (postgres, jdbc, sqlite) and for Kafka; others: floodmark run --full-refresh",
    )


def mark_in(record: JobRecord, source: Source) -> HWM[Any]:
    """The mark that a range is held against. Raises ConfigError if there is none."""
    mark = record.marks.get(source.name)
    if mark is None:
        raise ConfigError(f"job '{record.job}' has no mark, so nothing was delivered yet.", hint="floodmark run")
    return mark


def placed(mark: HWM[Any], text: str, option: str) -> HWM[Any]:
    """The mark at the value of an option. Raises ConfigError for one that it cannot have."""
    hint = f"write it like the mark: {mark.show()}"
    try:
        found = mark.set_value(text)
        mark.reaches(found.value)
    except MarkInvalid as error:
        raise ConfigError(f"{option} {text}: {error.reason}.", hint=hint) from error
    except MarkKindMismatch as error:  # a moment with a zone, and one without
        raise ConfigError(f"{option} {text}: it cannot be compared with the mark.", hint=hint) from error
    return found


def empty_range(bounds: Bounds) -> ConfigError:
    """What is said of a range in which no value can lie."""
    return ConfigError(
        f"nothing lies {bounds}.", hint="--from is in the range and --to is not: give --to a higher value"
    )
