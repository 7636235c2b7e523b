"""A turn on Spark: the streams are joined along the tree as DataFrames, and the process function runs over the rows."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from functools import reduce
from typing import TYPE_CHECKING, Literal

from floodmark.mill.aliases import Stream, name_of
from floodmark.mill.brokers import OFFSET, PARTITION, VALUE
from floodmark.mill.codec import Codec
from floodmark.mill.declaration import Declaration
from floodmark.mill.grinding import ELEMENT, OUTPUT, Task
from floodmark.mill.merging import KEY, NODE
from floodmark.mill.sheaves import Joined
from floodmark.mill.spark_schema import spark_schema, typed
from floodmark.sinks.contract import POSITION
from floodmark.step.transform import code_texts, short_hash

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import Column, DataFrame
    from pyspark.sql.types import StructField

ENDS = "_fm_ends"
NEXT = "_fm_next"
"""Beside an output row: whether the function ended the stream there, and the offset behind what it was given."""


@dataclass(frozen=True)
class Milling:
    """The transform of a mill: from the elements of its streams to its output as JSON text, in column `value`."""

    declared: Declaration
    form: Literal["json", "columns"] = "json"
    number: int = 0

    def apply(self, frames: Mapping[str, DataFrame], *, job: str, attempt: str, batch_time: datetime) -> DataFrame:
        from pyspark.sql import functions as F

        if has_one_key(self.declared):
            return self._ground(all_by_key(self.declared, frames), merges=True)
        joined = self._with_partners(self.declared.tree.root, frames)
        record = F.struct(*(name for name in joined.columns if not name.startswith("k")))
        keys = [name for name in joined.columns if name == "k0"]
        rows = joined.select(*keys, record.alias(ELEMENT))
        if self.declared.signature.has_window:
            rows = rows.groupBy("k0").agg(F.sort_array(F.collect_list(ELEMENT)).alias(ELEMENT))
        return self._ground(rows)

    def fingerprint(self) -> str:
        """The function's own code; what the keys are is part of the sources' fingerprints."""
        code = getattr(self.declared.signature.function, "__code__", None)
        texts = code_texts(code) if code else (self.declared.signature.name,)
        return short_hash(self.declared.tree.describe(), *texts)

    def is_deterministic(self) -> bool:
        return False

    def output(self) -> Codec | None:
        """How output is written; columns refuse what they cannot hold exactly."""
        output = self.declared.output
        return output.for_columns() if output is not None and self.form == "columns" else output

    def _with_partners(self, stream: Stream, frames: Mapping[str, DataFrame]) -> DataFrame:
        """The elements of a stream, each with a list of partners for every edge that leaves it."""
        rows = frames[name_of(stream)]
        for place, edge in enumerate(self.declared.tree.edges_from(stream)):
            partners = grouped(self._with_partners(edge.right, frames), f"b{place}")
            rows = rows.join(partners, rows[f"k{place + 1}"] == partners["partner"], edge.how).drop("partner")
            if edge.how == "left":
                rows = rows.withColumn(f"b{place}", or_empty(rows, f"b{place}"))
        return rows

    def _ground(self, rows: DataFrame, *, merges: bool = False) -> DataFrame:
        from pyspark.sql import functions as F
        from pyspark.sql.types import StructType

        declared, number, output = self.declared, self.number, self.output()
        root, edges = joined_shape(declared, declared.tree.root), len(declared.tree.edges)

        def grind(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            task = Task(root, declared.signature, declared.injector, output, number, edges, merges)
            yield from task.run(batches)

        keys = [each for each in rows.schema.fields if each.name == KEY]
        ground = rows.mapInArrow(grind, StructType([*keys, *output_fields()]))
        order = [*(each.name for each in keys), PARTITION, OFFSET, "sequence"]
        return ground.select(
            *self._written(),
            F.struct(F.lit(0).alias("last"), *order).alias(POSITION),
            F.col("is_end").alias(ENDS),
            F.col("next").alias(NEXT),
        )

    def _written(self) -> list[Column | str]:
        """The output as its sink takes it: text, or the fields of the class."""
        from pyspark.sql import functions as F

        output = self.output()
        if self.form == "json" or output is None:
            return [VALUE]
        element = typed(F.col(VALUE), output.cls)
        return [element[name].alias(name) for name in spark_schema(output.cls).names]


def output_fields() -> list[StructField]:
    """The columns that a task adds to a row's keys."""
    from pyspark.sql import types as T

    kinds = {"int": T.IntegerType, "bigint": T.LongType, "string": T.StringType, "boolean": T.BooleanType}
    named = [column.split() for column in OUTPUT.split(", ")]
    return [T.StructField(name, kinds[kind]()) for name, kind in named]


def joined_shape(declared: Declaration, stream: Stream, edge: int = -1) -> Joined:
    """The tree as the rows have it."""
    numbers = {each: number for number, each in enumerate(declared.tree.edges)}
    leaving = declared.tree.edges_from(stream)
    branches = tuple(joined_shape(declared, each.right, numbers[each]) for each in leaving)
    is_inner = edge < 0 or declared.tree.edges[edge].how == "inner"
    return Joined(declared.codecs[stream], edge, branches, is_inner)


def has_one_key(declared: Declaration) -> bool:
    """Whether every edge of the tree is joined by the key that orders its left side: then one sort serves them all."""
    tree = declared.tree
    own = {edge.right: edge.right_expression.fingerprint() for edge in tree.edges}
    own[tree.root] = next((edge.left_expression.fingerprint() for edge in tree.edges), "")
    kinds = {declared.keys[edge][0].kind for edge in tree.edges}
    same = all(edge.left_expression.fingerprint() == own[edge.left] for edge in tree.edges)
    return bool(tree.edges) and tree.window is None and len(kinds) == 1 and same


def all_by_key(declared: Declaration, frames: Mapping[str, DataFrame]) -> DataFrame:
    """The elements of all streams, those of a key together, in the order of key, stream and offset."""
    from pyspark.sql import functions as F

    key = F.col(KEY) + F.lit(0.0) if declared.keys[declared.tree.edges[0]][0].kind == "float" else F.col(KEY)
    streams = [
        frames[name_of(stream)].select(F.lit(number).alias(NODE), key.alias(KEY), PARTITION, OFFSET, VALUE)
        for number, stream in enumerate(declared.tree.nodes)
    ]
    rows = reduce(lambda one, other: one.unionByName(other), streams)
    return rows.repartition(KEY).sortWithinPartitions(KEY, NODE, PARTITION, OFFSET)


def grouped(rows: DataFrame, name: str) -> DataFrame:
    """All elements of a key in one list, in the order of the stream."""
    from pyspark.sql import functions as F

    record = F.struct(*(each for each in rows.columns if not each.startswith("k")))
    together = F.sort_array(F.collect_list(record)).alias(name)
    return rows.groupBy(F.col("k0").alias("partner")).agg(together)


def or_empty(rows: DataFrame, name: str) -> Column:
    """No list becomes a list of nothing."""
    from pyspark.sql import functions as F

    return F.coalesce(F.col(name), F.array().cast(rows.schema[name].dataType))
