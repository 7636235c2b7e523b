"""Streams in anything that Floodmark reads and writes: tables, topics, files, by their sources and sinks."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

from floodmark.errors import ConfigError
from floodmark.hwm import HWM, Span
from floodmark.mill.aliases import Stream, name_of
from floodmark.mill.brokers import OFFSET, PARTITION, VALUE, Inlet, Outlet, place_of
from floodmark.sinks.contract import Sink
from floodmark.sources.contract import Reading, Request, Session, Sight, Source

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

EXACT_TIMES = {
    "timestampFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSSXXX",
    "timestampNTZFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSS",
    "ignoreNullFields": "false",
}
"""Spark's own format for JSON would cut a time off at its milliseconds."""


@dataclass(frozen=True)
class SourceMessageBroker:
    """Any source as a stream, by the class of its elements, and any sink as output.

    Columns are fields. Rows of a table come in the order of their keys. `ends` with_source: a run is over when
    everything that its look found is joined; never: there may always be more, so only what is final is joined.
    """

    sources: Mapping[Stream, Source]
    sinks: Mapping[Stream, Sink] = field(default_factory=dict)
    ends: Literal["with_source", "never"] = "with_source"

    def __post_init__(self) -> None:
        if self.ends not in ("with_source", "never"):
            raise ConfigError(f"ends={self.ends!r} is not known.", hint="one of: with_source, never")

    def inlet(self, stream: Stream) -> Inlet:
        source = place_of(self.sources, stream, broker="SourceMessageBroker")
        ends: Literal["with_source", "by_message"] = "with_source" if self.ends == "with_source" else "by_message"
        return Inlet(RowsAsElements(source, name_of(stream)), ends=ends, is_ordered=False)

    def outlet(self, stream: Stream) -> Outlet:
        return Outlet(place_of(self.sinks, stream, broker="SourceMessageBroker"), form="columns")


@dataclass(frozen=True)
class RowsAsElements:
    """The rows of a source as elements: each a JSON object of its columns."""

    source: Source
    name: str

    def fingerprint(self, session: Session) -> str:
        return self.source.fingerprint(session)

    def look(self, mark: HWM[Any] | None, request: Request, session: Session) -> Sight:
        return self.source.look(mark, request, session)

    def read(self, spark: SparkSession, span: Span) -> Reading:
        """The rows as partition, offset and value. Raises ConfigError for a source that would leave some out."""
        reading = self.source.read(spark, span)
        if reading.reason is not None:
            raise ConfigError(
                f"the source of {self.name} puts malformed records aside, which a join would miss.",
                hint="give it malformed='fail'",
            )
        return Reading(elements_of(reading.rows.drop(*reading.hidden)))


def elements_of(rows: DataFrame) -> DataFrame:
    """An offset that is the same whenever, and in whatever order, the row is read."""
    from pyspark.sql import functions as F

    from floodmark.spark.delta_tables import quoted

    text = F.to_json(F.struct(*map(quoted, rows.columns)), EXACT_TIMES)
    values = rows.select(text.alias(VALUE))
    offset = F.xxhash64(VALUE).bitwiseAND(F.lit(2**63 - 1))
    return values.select(F.lit(0).alias(PARTITION), offset.alias(OFFSET), VALUE)
