"""How rows get into a table: append, merge or replace, with what each needs, for every sink that is one."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol, runtime_checkable

from floodmark.errors import ConfigError
from floodmark.sinks.contract import DELETE, Sink

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


MODES = ("append", "merge", "replace")


@runtime_checkable
class TableSink(Protocol):
    """A sink that is a table: its mode says what becomes of the rows that are there."""

    @property
    def name(self) -> str: ...

    @property
    def mode(self) -> str:
        """One of MODES."""

    @property
    def key(self) -> tuple[str, ...]:
        """By which a merge knows a row again."""

    @property
    def by(self) -> tuple[str, ...]:
        """A replacement exchanges the rows with the batch's values of these columns; without any, all rows."""

    @property
    def sequence(self) -> tuple[str, ...]:
        """What tells a merge which of two rows is newer; without it, the source's position."""

    @property
    def delete_when(self) -> str | None:
        """SQL: a row for which it holds deletes its key."""


def merges(sink: Sink) -> bool:
    """Whether a row that comes again takes the place of what it was."""
    return isinstance(sink, TableSink) and sink.mode == "merge"


def replaces(sink: Sink) -> bool:
    """Whether the rows of a batch take the place of others."""
    return isinstance(sink, TableSink) and sink.mode == "replace"


def check_modes(sink: TableSink) -> None:
    """Raise ConfigError for a mode that is not known, lacks something, or has an option of another mode."""
    if sink.mode not in MODES:
        raise ConfigError(f"mode: {sink.mode!r} is not known.", hint=f"one of: {', '.join(MODES)}")
    if sink.mode == "merge" and not sink.key:
        raise ConfigError(f"sink '{sink.name}' merges and has no key.", hint="name the columns in `key: [...]`")
    if sink.by and sink.mode != "replace":
        raise ConfigError(f"sink '{sink.name}' has `by` in mode {sink.mode}.", hint="`by` goes with `mode: replace`")
    if (sink.sequence or sink.delete_when) and sink.mode != "merge":
        raise ConfigError(
            f"sink '{sink.name}' has `sequence` or `delete_when` in mode {sink.mode}.", hint="use `mode: merge`"
        )


def mode_fingerprint(sink: TableSink) -> str:
    """The mode and its options: what must not change between a crash and its rerun."""
    parts = {"key": sink.key, "by": sink.by, "sequence": sink.sequence, "delete_when": sink.delete_when}
    options = ", ".join(f"{name} {value}" for name, value in parts.items() if value)
    return f"{sink.mode}{f' ({options})' if options else ''}"


def with_deletes(rows: DataFrame, delete_when: str | None) -> DataFrame:
    """The rows with DELETE, by a condition in SQL; one that is NULL does not hold, and without any no row deletes."""
    from pyspark.sql import functions as F

    return rows.withColumn(DELETE, F.coalesce(F.expr(delete_when or "false"), F.lit(False)))
