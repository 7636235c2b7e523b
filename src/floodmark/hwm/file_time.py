"""A mark on the modification time of files, with the path to tell apart files of one instant."""

from __future__ import annotations

from datetime import datetime, timedelta, timezone
from decimal import Decimal
from typing import TYPE_CHECKING, ClassVar, NamedTuple

from floodmark.errors import MarkInvalid
from floodmark.hwm.json_text import from_json_text
from floodmark.hwm.kinds import register
from floodmark.hwm.moments import EPOCH, database_text, split_moment, to_nanoseconds
from floodmark.hwm.numbers import EXACT, exact_decimal
from floodmark.hwm.ordered import OrderedHWM
from floodmark.hwm.paths import directory_path, file_path

if TYPE_CHECKING:
    from floodmark.hwm.mark import Json

_ONE, _SECOND = Decimal(1), Decimal(10**9)
_FIRST = to_nanoseconds(datetime.min.replace(tzinfo=timezone.utc))
_LAST = to_nanoseconds(datetime.max.replace(tzinfo=timezone.utc)) + 999


class FileMoment(NamedTuple):
    """A file in the order of modification: nanoseconds since 1970, then the path; without one, every file of then."""

    modified_ns: int
    path: str | None = None

    @property
    def modified(self) -> datetime:
        """The modification time, cut to the microseconds that a datetime has room for."""
        return EPOCH + timedelta(microseconds=self.modified_ns // 1000)


@register
class FileModifiedTimeHWM(OrderedHWM[FileMoment]):
    """Everything up to (modification time, path). A time is a datetime, ISO text or seconds since 1970; no zone is UTC.

    Nanoseconds, as `st_mtime_ns` gives them, are told from seconds by a `FileMoment`.
    """

    kind: ClassVar[str] = "file_modification_time"
    entity_alias: ClassVar[str | None] = "directory"

    def parse_entity(self, entity: object) -> str:
        return directory_path(self.kind, entity)

    def read(self, value: object) -> FileMoment:
        if isinstance(value, FileMoment):
            return self._moment(value.modified_ns, value.path, value)
        pair = from_json_text(self.kind, value)
        if not isinstance(pair, (tuple, list)):
            return self._moment(self._nanoseconds(pair), None, value)
        if len(pair) != 2:
            raise MarkInvalid(self.kind, value, reason="not (modification time, path)")
        return self._moment(self._nanoseconds(pair[0]), pair[1], value)

    def write(self, value: FileMoment) -> Json:
        return [database_text(value.modified, value.modified_ns % 1000), value.path]

    def at_or_below(self, low: FileMoment, high: FileMoment) -> bool:
        return _rank(low) <= _rank(high)

    def shift(self, value: FileMoment, by: object, sign: int) -> FileMoment:
        if not isinstance(by, timedelta):
            raise MarkInvalid(self.kind, by, reason="a time moves by a timedelta")
        return FileMoment(value.modified_ns + sign * (by // timedelta(microseconds=1)) * 1000)

    def _moment(self, nanoseconds: int, path: object, given: object) -> FileMoment:
        if isinstance(nanoseconds, bool) or not isinstance(nanoseconds, int) or not _FIRST <= nanoseconds <= _LAST:
            raise MarkInvalid(
                self.kind, given, reason="outside the calendar; a number is seconds, FileMoment takes nanoseconds"
            )
        return FileMoment(nanoseconds, None if path is None else file_path(self.kind, path, self.entity))

    def _nanoseconds(self, value: object) -> int:
        if isinstance(value, datetime):
            return to_nanoseconds(value) + int(getattr(value, "nanosecond", 0))
        if isinstance(value, str):
            moment, nanoseconds = split_moment(self.kind, value)
            return to_nanoseconds(moment) + nanoseconds
        seconds = Decimal(repr(value)) if isinstance(value, float) else exact_decimal(self.kind, value)
        if not seconds.is_finite() or EXACT.remainder(EXACT.multiply(seconds, _SECOND), _ONE):
            raise MarkInvalid(self.kind, value, reason="not seconds since 1970, down to nanoseconds")
        return int(EXACT.multiply(seconds, _SECOND))


def _rank(moment: FileMoment) -> tuple[int, bool, str]:
    # A mark at a time alone lies above every file of that time.
    return moment.modified_ns, moment.path is None, moment.path or ""
