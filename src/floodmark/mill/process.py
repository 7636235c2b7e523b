"""A turn on Spark: the streams are joined along the tree as DataFrames, and the process function runs over the rows."""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from datetime import datetime
from functools import reduce
from itertools import pairwise, repeat
from typing import TYPE_CHECKING, Any, Literal, NoReturn, TypeAlias

from floodmark.errors import ElementInvalid
from floodmark.mill.brokers import OFFSET, PARTITION, VALUE
from floodmark.mill.codec import Codec, Kept
from floodmark.mill.codec.types import spark_schema, typed
from floodmark.mill.declaration import Declaration
from floodmark.mill.injection import Attempt, Injector, Pairing, Position
from floodmark.mill.join_tree import EndOfStream, Stream, name_of
from floodmark.mill.joined import KEY, NODE, Bundle, Joined, Pairs, bundle_in, merged, sheaf_in
from floodmark.mill.signature import Injected, Signature
from floodmark.sinks.contract import POSITION
from floodmark.spark.faults import ElementFault
from floodmark.step.transform import code_texts, short_hash

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt
    import pyarrow as pa
    from pyspark.sql import Column, DataFrame
    from pyspark.sql.types import StructField


# One call of the process function in a task, with everything that its signature asks for.
Call: TypeAlias = "Callable[[object, Sequence[Pairs], Attempt], object]"


@contextmanager
def caller(signature: Signature, injector: Injector) -> Iterator[Call]:
    """How a task calls the function: (master element or list, pairs by number of the edge, attempt) to what it returns.

    Opened once per task.
    """
    with injector.opened(signature.wanted) as given:
        function = signature.function
        injected = {each.name: each.wanted for each in signature.arguments if isinstance(each, Injected)}
        fixed = {name: given[wanted] for name, wanted in injected.items() if wanted is not Attempt}
        attempts = [name for name, wanted in injected.items() if wanted is Attempt]
        mapped = [(each.name, each.edges) for each in signature.mapped]

        def call(master: object, pairs: Sequence[Pairs], attempt: Attempt) -> object:
            named = dict(fixed)
            for name, edges in mapped:
                named[name] = Pairing(pairs[edges[0]] if len(edges) == 1 else merged_edges([pairs[e] for e in edges]))
            for name in attempts:
                named[name] = attempt
            return function(master, **named)

        def call_alone(master: object, *_: object) -> object:
            return function(master, **fixed)

        yield call if mapped or attempts else call_alone


def merged_edges(edges: Sequence[Pairs]) -> Pairs:
    """Several edges as one: an element's partners follow each other in the order of the edges."""
    found: dict[int, tuple[Any, list[Any]]] = {}
    for pairs in edges:
        for left, rights in pairs:
            found.setdefault(id(left), (left, []))[1].extend(rights)
    return list(found.values())


# What happens in a task: joined rows become elements, the process function is called, its output becomes text.
ELEMENT = "element"
NO_ATTEMPT = Attempt(0, Position(0, 0))
YOUNG_OBJECTS = 200_000
NOTHING_BESIDE: tuple[list[Pairs], Attempt] = ([], NO_ATTEMPT)
Keys: TypeAlias = "Mapping[str, pa.Array]"
OUTPUT = "partition int, offset bigint, next bigint, sequence int, value string, is_end boolean"


@dataclass
class Output:
    """What the calls over one batch gave: of which call each element came, and what is kept of it; None is the end."""

    calls: list[int] = field(default_factory=list)
    kept: list[Kept | None] = field(default_factory=list)


@dataclass
class Task:
    """One task's work.

    Rows come with the column `element`: a record, or with windows a list of them. Where it `merges`, they are the
    elements of all streams in the order of their key.
    """

    root: Joined
    signature: Signature
    injector: Injector
    output: Codec | None
    batch: int
    edges: int
    merges: bool = False
    wants_attempt: bool = field(init=False)
    wants_pairs: bool = field(init=False)

    def __post_init__(self) -> None:
        asked = [argument.wanted for argument in self.signature.arguments if isinstance(argument, Injected)]
        self.wants_attempt, self.wants_pairs = Attempt in asked, bool(self.signature.mapped)

    def run(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        with caller(self.signature, self.injector) as call, seldom_collected():
            for keys, given in self.given(batches):
                output = self.grind(given, call)
                yield told(keys, given, output.calls, self.texts(output, given))

    def given(self, batches: Iterable[pa.RecordBatch]) -> Iterator[tuple[Keys, Bundle]]:
        """The elements of each call, one by one or those of a window, and the keys that stand beside them."""
        if self.merges:
            yield from (({KEY: keys}, given) for keys, given in merged(batches, self.root))
            return
        for batch in batches:
            column = batch.column(ELEMENT)
            keys = {name: batch.column(name) for name in batch.schema.names if name != ELEMENT}
            if self.signature.has_window:
                yield keys, bundle_in(column, self.root)
            else:
                yield keys, Bundle(range(batch.num_rows + 1), sheaf_in(column, self.root))

    def grind(self, given: Bundle, call: Call) -> Output:
        """Calls the function for every row. What it gives is kept as it is now: the next call may change it."""
        output, number, returns = Output(), 0, self.signature.returns
        expected, keep = returns.cls, self.output.keep if self.output is not None else _nothing
        add_call, add_kept = output.calls.append, output.kept.append
        try:
            for number, (master, beside) in enumerate(zip(self.masters(given), self.beside(given), strict=False)):
                returned = call(master, *beside)
                if type(returned) is expected:
                    add_call(number)
                    add_kept(keep(returned))
                    continue
                for element in returns.elements(returned):
                    add_call(number)
                    add_kept(None if isinstance(element, EndOfStream) else keep(element))
        except Exception as error:
            self.texts(output, given)  # an earlier element that cannot be written comes first
            raise self.told(error, given, number) from error
        return output

    def masters(self, given: Bundle) -> Iterable[Any]:
        """What each call gets first: an element, or the list of a window."""
        elements = given.sheaf.elements
        if not self.signature.has_window:
            return elements
        return (elements[begin:end] for begin, end in pairwise(given.bounds))

    def beside(self, given: Bundle) -> Iterator[tuple[list[Pairs], Attempt]]:
        """What each call gets besides the master.

        Left elements with their right ones, by the number of the edge, and what tells a repeated call from another.
        """
        return self.gathered(given) if self.wants_pairs or self.wants_attempt else repeat(NOTHING_BESIDE)

    def gathered(self, given: Bundle) -> Iterator[tuple[list[Pairs], Attempt]]:
        sheaf, attempt = given.sheaf, NO_ATTEMPT
        pairs = sheaf.each_with_partners() if given.is_flat() else self.by_edge(given)
        for begin, own in zip(given.bounds, pairs, strict=False):
            if self.wants_attempt:
                attempt = Attempt(self.batch, sheaf.position(begin))
            yield own, attempt

    def by_edge(self, given: Bundle) -> Iterator[list[Pairs]]:
        for begin, end in pairwise(given.bounds):
            pairs: list[Pairs] = [[] for _ in range(self.edges)]
            given.sheaf.gather(begin, end, pairs)
            yield pairs

    def texts(self, output: Output, given: Bundle) -> list[str | None]:
        """The texts of all that was given, null for the end. Raises ElementFault for one that cannot be."""
        if self.output is not None and None not in output.kept:
            with suppress(ElementInvalid):  # one by one, they tell which it was
                return [*self.output.texts(output.kept)]
        return [self.text(each, given, number) for number, each in zip(output.calls, output.kept, strict=True)]

    def text(self, kept: Kept | None, given: Bundle, number: int) -> str | None:
        try:
            return self.output.texts([kept])[0] if self.output is not None and kept is not None else None
        except ElementInvalid as error:
            raise self.told(error, given, number) from error

    def told(self, error: Exception, given: Bundle, number: int) -> ElementFault:
        """What the driver is told of a call that failed, or of what it gave."""
        begin, end = given.bounds[number], given.bounds[number + 1]
        position, elements = given.sheaf.position(begin), given.sheaf.elements
        if isinstance(error, ElementInvalid):
            return ElementFault.invalid(error, position.partition, position.offset)
        master = elements[begin:end] if self.signature.has_window else elements[begin]
        return ElementFault.failed(name_of(self.root.codec.stream), str(position), error, master)


@contextmanager
def seldom_collected() -> Iterator[None]:
    """Elements live for a moment: to look for cycles after every few hundred of them is a quarter of a task's time."""
    before = gc.get_threshold()
    gc.set_threshold(max(before[0], YOUNG_OBJECTS), *before[1:])
    try:
        yield
    finally:
        gc.set_threshold(*before)


def _nothing(element: object) -> NoReturn:
    raise LookupError(f"{element!r} was given by a function that gives nothing")


def told(keys: Keys, given: Bundle, numbers: Sequence[int], texts: Sequence[str | None]) -> pa.RecordBatch:
    """The output in columns, in front of it the keys of the rows that it came from."""
    import pyarrow as pa
    import pyarrow.compute as pc

    calls, bounds = pa.array(numbers, pa.int64()), pa.array(given.bounds, pa.int64())
    values = pa.array(texts, pa.string())
    first, last = bounds.take(calls), pc.subtract(bounds.take(pc.add(calls, 1)), 1)
    sheaf = given.sheaf
    columns = {name: column.take(calls) for name, column in keys.items()}
    columns |= {"partition": sheaf.partitions.take(first), "offset": sheaf.offsets.take(first)}
    columns |= {"next": pc.add(sheaf.offsets.take(last), 1), "sequence": pa.array(within_calls(calls), pa.int32())}
    columns |= {"value": values, "is_end": values.is_null()}
    return pa.RecordBatch.from_arrays(list(columns.values()), names=list(columns))


def within_calls(calls: pa.Array) -> npt.NDArray[np.int64]:
    """For each output its number within its call."""
    import numpy as np

    numbers, places = calls.to_numpy(), np.arange(len(calls))
    begins = np.concatenate(([True], numbers[1:] != numbers[:-1]))[: len(calls)]
    return places - np.maximum.accumulate(np.where(begins, places, 0))


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
