"""What happens in a task: joined rows become elements, the process function is called, its output becomes text."""

from __future__ import annotations

import gc
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeAlias

from floodmark.errors import ElementInvalid
from floodmark.mill.aliases import name_of
from floodmark.mill.calling import Call, caller
from floodmark.mill.codec import Codec
from floodmark.mill.eos import EndOfStream
from floodmark.mill.injection import Attempt, Injector, Position
from floodmark.mill.merging import KEY, merged
from floodmark.mill.mishaps import Mishap, failure, mishap
from floodmark.mill.sheaves import Bundle, Joined, Pairs, bundle_in, sheaf_in
from floodmark.mill.signature import Injected, Signature

if TYPE_CHECKING:
    import pyarrow as pa

ELEMENT = "element"
NO_ATTEMPT = Attempt(0, Position(0, 0))
YOUNG_OBJECTS = 200_000
NO_PAIRS: list[Pairs] = []
Keys: TypeAlias = "Mapping[str, pa.Array]"
Given: TypeAlias = "tuple[int, int, str | None, bool]"
"""One output: of which call it came, its number there, its text, whether it is the end."""
OUTPUT = "partition int, offset bigint, next bigint, sequence int, value string, is_end boolean"


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

    def __post_init__(self) -> None:
        asked = [argument.wanted for argument in self.signature.arguments if isinstance(argument, Injected)]
        self.wants_attempt = Attempt in asked

    def run(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        with caller(self.signature, self.injector) as call, seldom_collected():
            for keys, given in self.given(batches):
                yield told(keys, given, self.grind(given, call))

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

    def grind(self, given: Bundle, call: Call) -> list[Given]:
        """Calls the function for every row."""
        output: list[Given] = []
        elements, bounds, has_window = given.sheaf.elements, given.bounds, self.signature.has_window
        to_text = self.output.to_text if self.output is not None else _no_text
        for number in range(len(bounds) - 1):
            begin, end = bounds[number], bounds[number + 1]
            master = elements[begin:end] if has_window else elements[begin]
            try:
                for sequence, element in enumerate(call(master, *self.beside(given, begin, end))):
                    is_end = isinstance(element, EndOfStream)
                    output.append((number, sequence, None if is_end else to_text(element), is_end))
            except Exception as error:
                raise self.told(error, given.sheaf.position(begin), master) from error
        return output

    def told(self, error: Exception, position: Position, master: object) -> Mishap:
        """What the driver is told of an element that failed."""
        if isinstance(error, ElementInvalid):
            return mishap(error, position.partition, position.offset)
        return failure(name_of(self.root.codec.stream), str(position), error, master)

    def beside(self, given: Bundle, begin: int, end: int) -> tuple[list[Pairs], Attempt]:
        """What the function gets besides the master.

        Left elements with their right ones, by the number of the edge, and what tells a repeated call from another.
        """
        attempt = Attempt(self.batch, given.sheaf.position(begin)) if self.wants_attempt else NO_ATTEMPT
        if not self.edges:
            return NO_PAIRS, attempt
        by_edge: list[Pairs] = [[] for _ in range(self.edges)]
        given.sheaf.gather(begin, end, by_edge)
        return by_edge, attempt


@contextmanager
def seldom_collected() -> Iterator[None]:
    """Elements live for a moment: to look for cycles after every few hundred of them is a quarter of a task's time."""
    before = gc.get_threshold()
    gc.set_threshold(max(before[0], YOUNG_OBJECTS), *before[1:])
    try:
        yield
    finally:
        gc.set_threshold(*before)


def _no_text(element: object) -> None:
    return None


def told(keys: Keys, given: Bundle, output: list[Given]) -> pa.RecordBatch:
    """The output in columns, in front of it the keys of the rows that it came from."""
    import pyarrow as pa
    import pyarrow.compute as pc

    numbers, sequences, texts, ends = zip(*output, strict=True) if output else ((), (), (), ())
    calls, bounds = pa.array(numbers, pa.int64()), pa.array(given.bounds, pa.int64())
    first, last = bounds.take(calls), pc.subtract(bounds.take(pc.add(calls, 1)), 1)
    sheaf = given.sheaf
    columns = {name: column.take(calls) for name, column in keys.items()}
    columns |= {"partition": sheaf.partitions.take(first), "offset": sheaf.offsets.take(first)}
    columns |= {"next": pc.add(sheaf.offsets.take(last), 1), "sequence": pa.array(sequences, pa.int32())}
    columns |= {"value": pa.array(texts, pa.string()), "is_end": pa.array(ends, pa.bool_())}
    return pa.RecordBatch.from_arrays(list(columns.values()), names=list(columns))
