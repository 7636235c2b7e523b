"""A node of the join tree as a source of the step: its elements with their keys, from where the last turn stopped."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from floodmark.errors import ElementInvalid
from floodmark.hwm import HWM, Json, Span
from floodmark.mill.brokers import OFFSET, PARTITION, VALUE, Inlet
from floodmark.mill.codec import Codec
from floodmark.mill.eos import MARKER
from floodmark.mill.horizon import EVERYTHING, NOTHING, Level
from floodmark.mill.keys import Key, key_schema
from floodmark.mill.mishaps import mishap
from floodmark.mill.remembering import level_from_json
from floodmark.sources.contract import Reading, Request, Session, Sight

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import Column, DataFrame, SparkSession

DETAIL = "mill"
IS_END = "_fm_is_end"
"""The part of a span's detail that is ours: from which level of keys to which, and how many elements that are."""


@dataclass(frozen=True)
class Feed:
    """One stream with its keys: key 0 orders it, key 1 + i is what its i-th branch is joined by."""

    inlet: Inlet
    codec: Codec
    keys: tuple[Key, ...]

    @property
    def name(self) -> str:
        return self.inlet.source.name

    @property
    def key_names(self) -> list[str]:
        return [f"k{place}" for place in range(len(self.keys))]

    @property
    def has_end_messages(self) -> bool:
        return self.inlet.ends == "by_message"

    def fingerprint(self, session: Session) -> str:
        """A mark says nothing about a stream whose keys are others now, so they are part of what it is."""
        keys = ", ".join(dict.fromkeys(key.expression.fingerprint() for key in self.keys))
        source = self.inlet.source.fingerprint(session)
        return f"{source} by {keys}" if keys else source

    def look(self, mark: HWM[Any] | None, request: Request, session: Session) -> Sight:
        return self.inlet.source.look(mark, request, session)

    def read(self, spark: SparkSession, span: Span) -> Reading:
        """The elements of a turn, in columns partition, offset, value and k0, k1 and so on."""
        rows = self.inlet.source.read(spark, span).rows.select(PARTITION, OFFSET, VALUE)
        if not self.keys:
            return Reading(rows)
        if is_in_runs(span):
            return Reading(numbered_runs(self.with_keys(rows)))
        return Reading(between(self.with_keys(rows), *levels_in(span)))

    def nothing(self, spark: SparkSession) -> DataFrame:
        """The columns of `read`, and no rows."""
        keys = [f"k{place} {key.spark_type}" for place, key in enumerate(self.keys)]
        return spark.createDataFrame([], ", ".join([f"{PARTITION} int, {OFFSET} bigint, {VALUE} string", *keys]))

    def scan(self, spark: SparkSession, span: Span) -> DataFrame:
        """What a turn is planned by: partition, offset, whether it is an end, the keys; the text where one is null."""
        from pyspark.sql import functions as F

        rows = self.inlet.source.read(spark, span).rows
        flagged = rows.withColumn(IS_END, is_end() if self.has_end_messages else F.lit(False))
        keyed = self.with_keys(flagged)
        missing = [F.col(name).isNull() for name in self.key_names]
        bad = F.greatest(F.lit(False), *missing) & ~F.col(IS_END) if missing else F.lit(False)
        rows = keyed.select(PARTITION, OFFSET, IS_END, *self.key_names, F.when(bad, F.col(VALUE)).alias(VALUE))
        return rows if self.inlet.is_ordered or not self.keys else rows.orderBy(*self.key_names)

    def with_keys(self, rows: DataFrame) -> DataFrame:
        """The rows and a column for every key: Spark's own where it can, else by Python beside the data."""
        from pyspark.sql import functions as F

        compiled = {name: key for name, key in zip(self.key_names, self.keys, strict=True) if key.compiled}
        if compiled:
            element = F.from_json(VALUE, key_schema(self.codec, list(compiled.values())))
            parsed = rows.withColumn("_fm_element", element)
            columns = {name: key.column(F.col("_fm_element")) for name, key in compiled.items()}
            rows = parsed.withColumns(columns).drop("_fm_element")
        computed = {name: key for name, key in zip(self.key_names, self.keys, strict=True) if not key.compiled}
        return with_python_keys(rows, self.codec, computed) if computed else rows


def is_end() -> Column:
    """Whether a message is the end of its partition; cheap for those that do not even hold the word."""
    from pyspark.sql import functions as F

    said = F.get_json_object(VALUE, f"$.{MARKER}") == "true"
    return F.coalesce(F.col(VALUE).contains(MARKER) & said, F.lit(False))


def with_python_keys(rows: DataFrame, codec: Codec, keys: Mapping[str, Key]) -> DataFrame:
    """The rows with keys that only Python can tell; an element without one fails with its position."""
    from pyspark.sql.pandas.types import from_arrow_type
    from pyspark.sql.types import StructField, StructType

    types = {name: from_arrow_type(ARROW_TYPES[key.spark_type]()) for name, key in keys.items()}
    schema = StructType([*rows.schema.fields, *(StructField(name, kind) for name, kind in types.items())])

    def compute(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        yield from (with_computed(batch, codec, keys) for batch in batches)

    return rows.mapInArrow(compute, schema)


def with_computed(batch: pa.RecordBatch, codec: Codec, keys: Mapping[str, Key]) -> pa.RecordBatch:
    """One batch with its computed keys; ends have none."""
    import pyarrow as pa

    places = zip(batch.column(PARTITION).to_pylist(), batch.column(OFFSET).to_pylist(), strict=True)
    ends = batch.column(IS_END).to_pylist() if IS_END in batch.schema.names else [False] * batch.num_rows
    texts = batch.column(VALUE).to_pylist()
    rows = [
        (None,) * len(keys) if end else computed(codec, keys.values(), text, place)
        for text, end, place in zip(texts, ends, places, strict=True)
    ]
    columns = zip(*rows, strict=True) if rows else [()] * len(keys)
    for (name, key), values in zip(keys.items(), columns, strict=True):
        batch = batch.append_column(name, pa.array(list(values), ARROW_TYPES[key.spark_type]()))
    return batch


def computed(codec: Codec, keys: Iterable[Key], text: str | None, place: tuple[int, int]) -> tuple[Any, ...]:
    """The keys of one element. Raises a mishap that the driver can tell of."""
    try:
        values = codec.values_from_text(text or "null")
        return tuple(key.of(values) for key in keys)
    except ElementInvalid as error:
        raise mishap(error, *place) from None


def _arrow(name: str, *arguments: int) -> Callable[[], pa.DataType]:
    def made() -> pa.DataType:
        import pyarrow as pa

        return getattr(pa, name)(*arguments)

    return made


ARROW_TYPES: Mapping[str, Callable[[], pa.DataType]] = {
    "bigint": _arrow("int64"),
    "double": _arrow("float64"),
    "string": _arrow("string"),
    "decimal(38,18)": _arrow("decimal128", 38, 18),
}


def between(rows: DataFrame, after: Level, until: Level) -> DataFrame:
    """The elements that stand at or above one level and below another."""
    kept = rows if after == NOTHING else rows.where(~_is_below(after))
    return kept if until == EVERYTHING else kept.where(_is_below(until))


def _is_below(level: Level) -> Column:
    """(key, partition, offset) against a level of as many parts as it has."""
    from pyspark.sql import functions as F

    if level in (NOTHING, EVERYTHING):
        return F.lit(level == EVERYTHING)
    columns = [F.col("k0"), F.col(PARTITION).cast("bigint"), F.col(OFFSET)]
    below = F.lit(False)
    for column, bound in reversed(list(zip(columns, level[1:], strict=False))):
        below = (column < F.lit(bound)) | ((column == F.lit(bound)) & below)
    return below


def levels_in(span: Span) -> tuple[Level, Level]:
    """From where to where a turn reads, as its intent has it."""
    stored = span.detail.get(DETAIL)
    ours: Mapping[str, Json] = stored if isinstance(stored, dict) else {}
    after, until = ours.get("after"), ours.get("until")
    return (
        level_from_json(after) if after is not None else NOTHING,
        level_from_json(until) if until is not None else EVERYTHING,
    )


def is_in_runs(span: Span) -> bool:
    """Whether windows are runs of neighbours, whose keys need no order."""
    stored = span.detail.get(DETAIL)
    return isinstance(stored, dict) and bool(stored.get("runs"))


def numbered_runs(rows: DataFrame) -> DataFrame:
    """The rows with the number of their run in place of their key."""
    from pyspark.sql import Window
    from pyspark.sql import functions as F

    along = Window.partitionBy(PARTITION).orderBy(OFFSET)
    begins = F.coalesce(F.col("k0") != F.lag("k0").over(along), F.lit(False))
    flagged = rows.withColumn("_fm_begins", begins.cast("bigint"))
    return flagged.withColumn("k0", F.sum("_fm_begins").over(along)).drop("_fm_begins")


def elements_in(span: Span) -> int:
    """How many elements of a stream a turn reads."""
    stored = span.detail.get(DETAIL)
    return int(str(stored.get("elements", 0))) if isinstance(stored, dict) else 0
