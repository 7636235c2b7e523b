"""Events and histories in the spec's notation: `a@1` an upsert of value a at 1, `D@3` a delete, `a[1,5)` a version."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from floodmark.sinks import Scd2
from tests.sinks.batches import frame
from tests.tables import rows_of, sorted_rows

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

EVENTS = "k string, at int, v string, note string"


def history(folder: Path, **options: Any) -> Scd2:  # noqa: ANN401 - the sink's own options
    settings = {"key": ("k",), "sequence": ("at",), "track": ("v",), "delete_when": "v = 'D'"}
    return Scd2(str(folder / "t"), **{**settings, **options})


def events(spark: SparkSession, **lines: str) -> DataFrame:
    """`events(spark, x="a@1 b@5")`: two events of key x; `~` stands for NULL, and text behind `/` is the note."""
    rows = [parse_event(key, event) for key, line in lines.items() for event in line.split()]
    return frame(spark, EVENTS, *rows)


def parse_event(key: str, event: str) -> tuple[str | None, int | None, str | None, str | None]:
    said, _, note = event.partition("/")
    value, _, at = said.partition("@")
    return (None if key == "NULL" else key, int(at) if at else None, None if value == "~" else value, note or None)


def version_lines(folder: Path) -> dict[str, str]:
    """The table, a line per key: every version in order, an open end for the current one."""
    found = sorted(rows_of(folder / "t"), key=lambda row: (row.k, row.valid_from))
    lines: dict[str, list[str]] = {}
    for row in found:
        lines.setdefault(row.k, []).append(version(row))
    return {key: " ".join(parts) for key, parts in lines.items()}


def version(row: Any) -> str:  # noqa: ANN401 - a Row of Spark has whatever columns it has
    value = "~" if row.v is None else row.v
    note = f"/{row.note}" if row.note else ""
    end = "" if row.valid_to is None else row.valid_to
    mark = "" if row.is_current == (row.valid_to is None) else "!"
    return f"{value}{note}[{row.valid_from},{end}){mark}"


def whole_table(folder: Path) -> list[tuple[Any, ...]]:
    return sorted_rows(folder / "t")
