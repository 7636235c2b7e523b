"""Test cases of a project: given rows of a source, expected rows of its sinks; how they are written and compared."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import date, datetime, timezone
from decimal import Decimal, InvalidOperation
from typing import TYPE_CHECKING, Any, TypeAlias

from pydantic import Field, ValidationError, model_validator

from floodmark.errors import ConfigError
from floodmark.inputs import LARGEST_DOCUMENT, read_text
from floodmark.inputs.yaml import parse
from floodmark.project.kinds import Model, Name, Text

if TYPE_CHECKING:
    from pathlib import Path

    from floodmark.project.file import Document


CASE_FILES = ("tests/**/*.yaml", "tests/**/*.yml")
ASIDE = ("quarantine", "dead_letters")
Row: TypeAlias = dict[str, Any]


class Expected(Model):
    """What the tables hold after a batch: all rows of each sink that is named, and of the tables put aside."""

    sinks: Mapping[str, tuple[Row, ...]] = {}
    quarantine: tuple[Row, ...] = ()
    dead_letters: tuple[Row, ...] = ()
    fails: Text | None = Field(default=None, description="words of the error that ends the batch")

    @model_validator(mode="before")
    @classmethod
    def _sinks_by_name(cls, values: object) -> object:
        """Sinks stand beside the others, by their names: `expect: {lake: [...]}`."""
        if not isinstance(values, Mapping):
            return values
        own = {name: values[name] for name in cls.model_fields if name in values and name != "sinks"}
        sinks = {name: rows for name, rows in values.items() if name not in own}
        return {**own, "sinks": sinks.get("sinks") if list(sinks) == ["sinks"] else sinks}

    def tables(self) -> Iterator[tuple[str, tuple[Row, ...]]]:
        """By name of a sink or of a table of rows put aside, the rows that it should hold."""
        yield from self.sinks.items()
        yield from ((name, getattr(self, name)) for name in ASIDE)


class CaseBatch(Model):
    """Rows that arrive together, and what the tables hold once they were read; a row that is text is a raw line."""

    given: tuple[Row | str, ...] | Mapping[Name, tuple[Row, ...]] = ()
    expect: Expected = Expected()


class Case(Model):
    """One story of a job: batches in a row, each a run of its own."""

    name: Text
    job: Name
    schema_: Text | Mapping[Name, Text] | None = Field(
        default=None, alias="schema", description="of the given rows, where the source declares none"
    )
    tables: Mapping[Name, tuple[Row, ...]] = Field(default={}, description="what the SQL reads beside the source")
    batches: tuple[CaseBatch, ...] = Field(min_length=1)

    @model_validator(mode="before")
    @classmethod
    def _one_batch(cls, values: object) -> object:
        """`given` and `expect` without `batches` are a story of one batch."""
        if not isinstance(values, Mapping) or "batches" in values:
            return values
        batch = {name: values[name] for name in ("given", "expect") if name in values}
        return {**{name: value for name, value in values.items() if name not in batch}, "batches": [batch]}


@dataclass(frozen=True)
class PlacedCase:
    """A case with the file and line where it stands."""

    where: str
    case: Case


def read_cases(document: Document) -> list[PlacedCase]:
    """All cases of the project, file by file. Raises ConfigError with file and line."""
    files = sorted({file for pattern in CASE_FILES for file in document.folder.glob(pattern)})
    return [case for file in files for case in _cases_in(file, document)]


def _cases_in(file: Path, document: Document) -> Iterator[PlacedCase]:
    name = str(file.relative_to(document.folder))
    values, lines = parse(read_text(file, hint="check its rights", largest=LARGEST_DOCUMENT), name)
    listed = values if isinstance(values, list) else [values]
    for position, value in enumerate(listed):
        place = (position,) if isinstance(values, list) else ()
        where = f"{name}:{lines.get(place, 1)}"
        try:
            yield PlacedCase(where, Case.model_validate(value))
        except ValidationError as error:
            raise ConfigError(f"{where}: {_first_mistake(error)}.", hint="fix that case") from None


def _first_mistake(error: ValidationError) -> str:
    detail = error.errors(include_input=False)[0]
    return f"{'.'.join(map(str, detail['loc'])) or 'the case'}: {detail['msg'].removeprefix('Value error, ')}"


@dataclass(frozen=True)
class Difference:
    """Where a table holds other rows than a case expects."""

    batch: int
    table: str
    missing: tuple[Row, ...]
    extra: tuple[Row, ...]

    def lines(self) -> Iterator[str]:
        """The rows as a diff."""
        yield f"batch {self.batch}, {self.table}:"
        yield from (f"  - {row_text(row)}" for row in self.missing)
        yield from (f"  + {row_text(row)}" for row in self.extra)


def row_text(row: Mapping[str, Any]) -> str:
    """A row in one line."""
    return json.dumps(row, ensure_ascii=False, default=str)


def compare(batch: int, table: str, expected: Sequence[Row], actual: Sequence[Row]) -> Difference | None:
    """The rows that differ, by the columns that the case names; None if they are the same, in whatever order."""
    left = list(actual)
    missing: list[Row] = []
    for row in expected:
        found = next((each for each in left if matches(each, row)), None)
        if found is None:
            missing.append(row)
        else:
            left.remove(found)
    names = dict.fromkeys(name for row in expected for name in row)
    extra = [{name: row.get(name) for name in names} if names else row for row in left]
    return Difference(batch, table, tuple(missing), tuple(extra)) if missing or extra else None


def matches(actual: object, expected: object) -> bool:
    """Whether a value is the one that a file writes, which has fewer kinds: a moment and a decimal are text there."""
    if isinstance(expected, Mapping):
        return isinstance(actual, Mapping) and all(
            name in actual and matches(actual[name], value) for name, value in expected.items()
        )
    if isinstance(expected, list | tuple):
        if not isinstance(actual, list | tuple) or len(actual) != len(expected):
            return False
        return all(map(matches, actual, expected))
    if isinstance(actual, datetime):
        return _moment(str(expected)) == _moment(actual.isoformat())
    if isinstance(actual, date):
        return str(expected) == actual.isoformat()
    if isinstance(actual, Decimal) and not isinstance(expected, bool):
        return _number(expected) == actual
    if isinstance(actual, bytes):
        return str(expected).encode() == actual
    return (type(actual) is type(expected) and actual == expected) or _number_or_none(actual, expected)


def _number_or_none(actual: object, expected: object) -> bool:
    """1 and 1.0 are one number; true is none, and nothing equals null but null."""
    is_number = isinstance(actual, int | float) and isinstance(expected, int | float)
    return is_number and not isinstance(actual, bool) and not isinstance(expected, bool) and actual == expected


def _number(value: object) -> Decimal | None:
    try:
        return Decimal(str(value))
    except InvalidOperation:
        return None


def _moment(text: str) -> datetime | None:
    try:
        moment = datetime.fromisoformat(text.replace("Z", "+00:00"))
    except ValueError:
        return None
    return moment if moment.tzinfo else moment.replace(tzinfo=timezone.utc)
