"""What happens in a task: joined rows become elements, the process function is called, its output becomes text."""

from __future__ import annotations

import gc
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from itertools import pairwise, repeat
from typing import TYPE_CHECKING, Any, NoReturn, TypeAlias

from floodmark.errors import ElementInvalid
from floodmark.mill.aliases import name_of
from floodmark.mill.calling import Call, caller
from floodmark.mill.codec import Codec
from floodmark.mill.element_texts import Kept
from floodmark.mill.eos import EndOfStream
from floodmark.mill.injection import Attempt, Injector, Position
from floodmark.mill.merging import KEY, merged
from floodmark.mill.mishaps import Mishap, failure, mishap
from floodmark.mill.sheaves import Bundle, Joined, Pairs, bundle_in, sheaf_in
from floodmark.mill.signature import Injected, Signature

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt
    import pyarrow as pa

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
        """The texts of all that was given, null for the end. Raises a mishap for the first that cannot be written."""
        if self.output is not None and None not in output.kept:
            with suppress(ElementInvalid):  # one by one, they tell which it was
                return [*self.output.texts(output.kept)]
        return [self.text(each, given, number) for number, each in zip(output.calls, output.kept, strict=True)]

    def text(self, kept: Kept | None, given: Bundle, number: int) -> str | None:
        try:
            return self.output.texts([kept])[0] if self.output is not None and kept is not None else None
        except ElementInvalid as error:
            raise self.told(error, given, number) from error

    def told(self, error: Exception, given: Bundle, number: int) -> Mishap:
        """What the driver is told of a call that failed, or of what it gave."""
        begin, end = given.bounds[number], given.bounds[number + 1]
        position, elements = given.sheaf.position(begin), given.sheaf.elements
        if isinstance(error, ElementInvalid):
            return mishap(error, position.partition, position.offset)
        master = elements[begin:end] if self.signature.has_window else elements[begin]
        return failure(name_of(self.root.codec.stream), str(position), error, master)


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
