"""The process function on Spark: a task calls it for every master element, and its output becomes rows of text.

An element is nearly always of the very class that the signature names, so the loop over the calls looks only at that,
and what the function gives is written as text when the calls of a batch are done.
"""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from datetime import datetime
from itertools import pairwise, repeat
from typing import TYPE_CHECKING, Any, Literal, NoReturn, TypeAlias

from floodmark.errors import ElementInvalid
from floodmark.mill.brokers import OFFSET, PARTITION, VALUE
from floodmark.mill.codec import Codec
from floodmark.mill.codec.types import spark_schema, struct_column
from floodmark.mill.codec.writing import Snapshot
from floodmark.mill.declaration import Declaration
from floodmark.mill.elements import (
    KEY,
    ElementLists,
    Keys,
    NodeShape,
    Pairs,
    calls_in,
    joined_rows,
    merged_calls_in,
    shape_of,
)
from floodmark.mill.injection import Attempt, Injector, Pairing, Position
from floodmark.mill.join_tree import EndOfStream, name_of
from floodmark.mill.signature import Signature
from floodmark.sinks.contract import POSITION
from floodmark.spark.faults import ElementFault
from floodmark.step.transform import code_texts, short_hash

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt
    import pyarrow as pa
    from pyspark.sql import Column, DataFrame
    from pyspark.sql.types import StructField, StructType

Call: TypeAlias = "Callable[[object, Sequence[Pairs], Attempt], object]"
ENDS = "_fm_ends"
NEXT = "_fm_next"
"""Beside an output row: whether the function ended the stream there, and the offset behind what it was given."""
NO_ATTEMPT = Attempt(0, Position(0, 0))
NOTHING_BESIDE: tuple[list[Pairs], Attempt] = ([], NO_ATTEMPT)
YOUNG_OBJECTS = 200_000


@dataclass(frozen=True)
class ProcessTransform:
    """The transform of a mill: from the elements of its streams to its output as JSON text, in column `value`."""

    declaration: Declaration
    form: Literal["json", "columns"] = "json"
    number: int = 0

    def apply(self, frames: Mapping[str, DataFrame], *, job: str, attempt: str, batch_time: datetime) -> DataFrame:
        from pyspark.sql import functions as F
        from pyspark.sql.types import StructType

        rows, task = joined_rows(self.declaration, frames), ProcessTask.of(self.declaration, self.output(), self.number)
        keys = [each for each in rows.schema.fields if each.name == KEY]
        output = self.run(task, rows, StructType([*keys, *output_fields()]))
        order = [*(each.name for each in keys), PARTITION, OFFSET, "sequence"]
        return output.select(
            *self._output_columns(),
            F.struct(F.lit(0).alias("last"), *order).alias(POSITION),
            F.col("is_end").alias(ENDS),
            F.col("next").alias(NEXT),
        )

    def run(self, task: ProcessTask, rows: DataFrame, schema: StructType) -> DataFrame:
        """The output of the calls, side by side on the executors."""

        def run(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            yield from task.run(batches)

        return rows.mapInArrow(run, schema)

    def fingerprint(self) -> str:
        """The function's own code; what the keys are is part of the sources' fingerprints."""
        code = getattr(self.declaration.signature.function, "__code__", None)
        texts = code_texts(code) if code else (self.declaration.signature.name,)
        return short_hash(self.declaration.tree.describe(), *texts)

    def is_deterministic(self) -> bool:
        return False

    def output(self) -> Codec | None:
        """How output is written; columns refuse what they cannot hold exactly."""
        output = self.declaration.output
        return output.for_columns() if output is not None and self.form == "columns" else output

    def _output_columns(self) -> list[Column | str]:
        """The output as its sink takes it: text, or the fields of the class."""
        from pyspark.sql import functions as F

        output = self.output()
        if self.form == "json" or output is None:
            return [VALUE]
        element = struct_column(F.col(VALUE), output.cls)
        return [element[name].alias(name) for name in spark_schema(output.cls).names]


@dataclass(frozen=True)
class CallOutput:
    """What the calls over one batch gave: of which call each element came, and a snapshot of it; None is the end."""

    calls: list[int] = field(default_factory=list)
    snapshots: list[Snapshot | None] = field(default_factory=list)


@dataclass(frozen=True)
class ProcessTask:
    """One task's work; `merges` as `Declaration.has_one_key` says."""

    root: NodeShape
    signature: Signature
    injector: Injector
    output: Codec | None
    batch: int
    edge_count: int
    merges: bool = False

    @classmethod
    def of(cls, declaration: Declaration, output: Codec | None, batch: int) -> ProcessTask:
        root, edge_count = shape_of(declaration, declaration.tree.root), len(declaration.tree.edges)
        return cls(
            root, declaration.signature, declaration.injector, output, batch, edge_count, declaration.has_one_key()
        )

    def run(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        has_window = self.signature.has_window
        by_batch = (
            merged_calls_in(batches, self.root) if self.merges else calls_in(batches, self.root, has_window=has_window)
        )
        with caller(self.signature, self.injector) as call, seldom_collecting():
            for keys, masters in by_batch:
                output = self.call_each(masters, call)
                yield output_columns(keys, masters, output.calls, self.texts(output, masters))

    def call_each(self, masters: ElementLists, call: Call) -> CallOutput:
        """Calls the function for every master. What it gives is kept as it is now: the next call may change it."""
        output, number, returns = CallOutput(), 0, self.signature.returns
        expected, snapshot = returns.cls, self.output.snapshot if self.output is not None else _refuse_output
        add_call, add_snapshot = output.calls.append, output.snapshots.append
        try:
            for number, (first, others) in enumerate(zip(self.firsts(masters), self.others(masters), strict=False)):
                returned = call(first, *others)
                if type(returned) is expected:
                    add_call(number)
                    add_snapshot(snapshot(returned))
                    continue
                for element in returns.elements(returned):
                    add_call(number)
                    add_snapshot(None if isinstance(element, EndOfStream) else snapshot(element))
        except Exception as error:
            self.texts(output, masters)  # an earlier element that cannot be written comes first
            raise self.fault_of(error, masters, number) from error
        return output

    def firsts(self, masters: ElementLists) -> Iterable[Any]:
        """What each call gets first: an element, or the list of a window."""
        return masters.lists() if self.signature.has_window else masters.members.elements

    def others(self, masters: ElementLists) -> Iterator[tuple[list[Pairs], Attempt]]:
        """What each call gets besides the master.

        Left elements with their right ones, by the number of the edge, and what tells a repeated call from another.
        """
        wants_attempt = Attempt in (each.type_hint for each in self.signature.injected_arguments)
        if not wants_attempt and not self.signature.mapped_arguments:
            return repeat(NOTHING_BESIDE)
        joined = masters.members
        pairs = joined.each_with_partners() if masters.is_flat() else self.pairs_by_edge(masters)
        if not wants_attempt:
            return zip(pairs, repeat(NO_ATTEMPT), strict=False)
        attempts = (Attempt(self.batch, joined.position(begin)) for begin in masters.bounds)
        return zip(pairs, attempts, strict=False)

    def pairs_by_edge(self, masters: ElementLists) -> Iterator[list[Pairs]]:
        for begin, end in pairwise(masters.bounds):
            pairs: list[Pairs] = [[] for _ in range(self.edge_count)]
            masters.members.gather(begin, end, pairs)
            yield pairs

    def texts(self, output: CallOutput, masters: ElementLists) -> list[str | None]:
        """The texts of all output, null for the end. Raises an ElementFault for the first that cannot be written."""
        if self.output is not None and None not in output.snapshots:
            with suppress(ElementInvalid):  # one by one, they say which it was
                return [*self.output.texts(output.snapshots)]
        return [self.text(each, masters, number) for number, each in zip(output.calls, output.snapshots, strict=True)]

    def text(self, snapshot: Snapshot | None, masters: ElementLists, number: int) -> str | None:
        try:
            return self.output.texts([snapshot])[0] if self.output is not None and snapshot is not None else None
        except ElementInvalid as error:
            raise self.fault_of(error, masters, number) from error

    def fault_of(self, error: Exception, masters: ElementLists, number: int) -> ElementFault:
        """What the driver learns of a call that failed, or of what it gave."""
        begin, end = masters.bounds[number], masters.bounds[number + 1]
        position, elements = masters.members.position(begin), masters.members.elements
        if isinstance(error, ElementInvalid):
            return ElementFault.invalid(error, position.partition, position.offset)
        master = elements[begin:end] if self.signature.has_window else elements[begin]
        return ElementFault.failed(name_of(self.root.codec.stream), str(position), error, master)


@contextmanager
def caller(signature: Signature, injector: Injector) -> Iterator[Call]:
    """How a task calls the function: (master element or list, pairs by number of the edge, attempt) to what it returns.

    Opened once per task.
    """
    with injector.open(signature.injected_types) as provided:
        function = signature.function
        hints = {each.name: each.type_hint for each in signature.injected_arguments}
        fixed = {name: provided[hint] for name, hint in hints.items() if hint is not Attempt}
        attempts = [name for name, hint in hints.items() if hint is Attempt]
        mapped = [(each.name, each.edges) for each in signature.mapped_arguments]

        def call(master: object, pairs: Sequence[Pairs], attempt: Attempt) -> object:
            arguments = dict(fixed)
            for name, edges in mapped:
                own = pairs[edges[0]] if len(edges) == 1 else merged_edges([pairs[edge] for edge in edges])
                arguments[name] = Pairing(own)
            for name in attempts:
                arguments[name] = attempt
            return function(master, **arguments)

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


@contextmanager
def seldom_collecting() -> Iterator[None]:
    """Elements live for a moment: to look for cycles after every few hundred of them is a quarter of a task's time."""
    before = gc.get_threshold()
    gc.set_threshold(max(before[0], YOUNG_OBJECTS), *before[1:])
    try:
        yield
    finally:
        gc.set_threshold(*before)


def _refuse_output(element: object) -> NoReturn:
    raise LookupError(f"{element!r} was given by a function that gives nothing")


def output_fields() -> list[StructField]:
    """The columns of `output_columns` behind the keys."""
    from pyspark.sql import types as T

    columns = {
        PARTITION: T.IntegerType(),
        OFFSET: T.LongType(),
        "next": T.LongType(),
        "sequence": T.IntegerType(),
        VALUE: T.StringType(),
        "is_end": T.BooleanType(),
    }
    return [T.StructField(name, kind) for name, kind in columns.items()]


def output_columns(
    keys: Keys, masters: ElementLists, numbers: Sequence[int], texts: Sequence[str | None]
) -> pa.RecordBatch:
    """The output of these calls, and in front of it the keys of the rows that it came from."""
    import pyarrow as pa
    import pyarrow.compute as pc

    calls, bounds = pa.array(numbers, pa.int64()), pa.array(masters.bounds, pa.int64())
    values, joined = pa.array(texts, pa.string()), masters.members
    first, last = bounds.take(calls), pc.subtract(bounds.take(pc.add(calls, 1)), 1)
    columns = {name: column.take(calls) for name, column in keys.items()}
    columns |= {PARTITION: joined.partitions.take(first), OFFSET: joined.offsets.take(first)}
    columns |= {"next": pc.add(joined.offsets.take(last), 1), "sequence": pa.array(within_calls(calls), pa.int32())}
    columns |= {VALUE: values, "is_end": values.is_null()}
    return pa.RecordBatch.from_arrays(list(columns.values()), names=list(columns))


def within_calls(calls: pa.Array) -> npt.NDArray[np.int64]:
    """For each output its number within its call."""
    import numpy as np

    numbers, places = calls.to_numpy(), np.arange(len(calls))
    begins = np.concatenate(([True], numbers[1:] != numbers[:-1]))[: len(calls)]
    return places - np.maximum.accumulate(np.where(begins, places, 0))
