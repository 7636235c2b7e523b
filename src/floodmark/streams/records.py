"""Records of one partition on their way from Arrow into a stream, a column at a time."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import TYPE_CHECKING, Any

from floodmark.probes.kafka import Place
from floodmark.streams.base64_text import bytes_of, text_of
from floodmark.streams.failures import Headers, Raw

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession


@dataclass(frozen=True)
class Records:
    """Neighbouring records of one partition, in the order of their offsets."""

    place: Place
    offsets: Sequence[int]
    keys: Sequence[bytes | None]
    values: Sequence[bytes | None]
    headers: Sequence[Headers | None]
    timestamps: Sequence[int]

    def raw(self, at: int) -> Raw:
        """The record as Kafka gave it."""
        return Raw(self.keys[at], self.values[at], self.headers[at], self.timestamps[at])

    def row(self, at: int, attempt: int = 1) -> tuple[dict[str, object], bytes | None]:
        """The record as a stream's user sees it; (offset, attempt) is a key for what must not be done twice."""
        topic, partition = self.place
        uuid: dict[str, object] = {
            "topic": topic,
            "partition": partition,
            "offset": self.offsets[at],
            "attempt": attempt,
            "key": self.keys[at],
            "headers": self.headers[at],
            "timestamp": self.timestamps[at],
        }
        return uuid, self.values[at]


def as_rows(frame: DataFrame) -> DataFrame:
    """Kafka's own columns in the shape that `records_in_batch` reads."""
    from pyspark.sql import functions as F

    names = ("key", "value", "topic", "partition", "offset")
    # As text: a list that is null, as of every record without headers, takes Spark ten times as long to hand over.
    headers = F.to_json("headers", {"ignoreNullFields": "false"}).alias("headers")
    return frame.select(*names, F.unix_millis("timestamp").alias("timestamp"), headers)


def records_in_batch(batch: pa.RecordBatch) -> Iterator[Records]:
    """What an Arrow batch holds, partition by partition. A row without an offset only names a partition."""
    if not batch.num_rows:
        return
    columns = dict(zip(batch.schema.names, batch.columns, strict=True))
    topics, partitions = columns["topic"].unique(), columns["partition"].unique()
    if len(topics) == len(partitions) == 1:
        yield _records((topics[0].as_py(), partitions[0].as_py()), columns)
        return
    places = zip(columns["topic"].to_pylist(), columns["partition"].to_pylist(), strict=True)
    start = 0
    for place, group in groupby(places):
        length = sum(1 for _ in group)
        yield _records(place, {name: column.slice(start, length) for name, column in columns.items()})
        start += length


def _records(place: Place, columns: Mapping[str, Any]) -> Records:
    is_visit = columns["offset"].null_count > 0
    offsets = [] if is_visit else columns["offset"].to_pylist()
    keys, values = (_all(columns[name]) for name in ("key", "value"))
    headers = list(map(_headers, _all(columns["headers"])))
    return Records(place, offsets, keys, values, headers, columns["timestamp"].to_pylist())


def _all(column: Any) -> list[Any]:  # noqa: ANN401 (pyarrow's own)
    return [None] * len(column) if column.null_count == len(column) else column.to_pylist()


def _headers(text: str | None) -> Headers | None:
    """As Spark's `to_json` writes them: a value is in Base64."""
    if text is None:
        return None
    return tuple((header["key"], bytes_of(header["value"])) for header in json.loads(text))


def _headers_text(headers: Headers | None) -> str | None:
    return None if headers is None else json.dumps([{"key": key, "value": text_of(value)} for key, value in headers])


def saved_rows(spark: SparkSession, records: Mapping[Place, Mapping[int, Raw]]) -> DataFrame:
    """Records that were kept, as Kafka would give them: a partition in one task, in its order."""
    rows = [
        {"topic": topic, "partition": partition, "offset": offset}
        | raw._asdict()
        | {"headers": _headers_text(raw.headers)}
        for (topic, partition), own in records.items()
        for offset, raw in own.items()
    ]
    return _by_place(spark, rows, len(records))


def visiting_rows(spark: SparkSession, places: Iterable[Place]) -> DataFrame:
    """A row without a record for each partition, so that a task goes there."""
    rows = [{"topic": topic, "partition": partition} for topic, partition in places]
    return _by_place(spark, rows, len(rows))


def _by_place(spark: SparkSession, rows: Sequence[Mapping[str, object]], tasks: int) -> DataFrame:
    import pyarrow as pa

    schema = pa.schema(
        [
            ("key", pa.binary()),
            ("value", pa.binary()),
            ("topic", pa.string()),
            ("partition", pa.int32()),
            ("offset", pa.int64()),
            ("timestamp", pa.int64()),
            ("headers", pa.string()),
        ]
    )
    frame = spark.createDataFrame(pa.Table.from_pylist([*rows], schema))
    return frame.repartition(tasks, "topic", "partition").sortWithinPartitions("topic", "partition", "offset")
