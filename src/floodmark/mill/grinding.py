"""What happens in a task: joined rows become elements, the process function is called, its output becomes text."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

from floodmark.errors import ElementInvalid
from floodmark.mill.aliases import name_of
from floodmark.mill.brokers import OFFSET, PARTITION, VALUE
from floodmark.mill.calling import Call, caller
from floodmark.mill.codec import Codec
from floodmark.mill.eos import EndOfStream
from floodmark.mill.injection import Attempt, Injector, Position
from floodmark.mill.mishaps import failure, mishap
from floodmark.mill.signature import Injected, Signature

if TYPE_CHECKING:
    import pyarrow as pa

ELEMENT = "element"
NO_ATTEMPT = Attempt(0, Position(0, 0))
OUTPUT = "partition int, offset bigint, next bigint, sequence int, value string, is_end boolean"


@dataclass(frozen=True)
class Joined:
    """A node of the tree as it stands in a row: how its elements are read, and the nodes joined to it.

    `edge` is the number of the edge that leads to it, as the signature counts them.
    """

    codec: Codec
    edge: int = -1
    branches: tuple[Joined, ...] = ()


class Grain(NamedTuple):
    """An element with the elements that belong to it, one list for each branch; a tuple, since there are millions."""

    element: Any
    partition: int
    offset: int
    partners: tuple[list[Grain], ...] = ()


Pairs: TypeAlias = "list[tuple[Any, list[Any]]]"


@dataclass
class Task:
    """One task's work; rows come with the column `element`: a record, or with windows a list of them."""

    root: Joined
    signature: Signature
    injector: Injector
    output: Codec | None
    batch: int
    edges: int
    wants_attempt: bool = field(init=False)
    out: list[tuple[Any, ...]] = field(default_factory=list)

    def __post_init__(self) -> None:
        asked = [argument.wanted for argument in self.signature.arguments if isinstance(argument, Injected)]
        self.wants_attempt = Attempt in asked

    def run(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        with caller(self.signature, self.injector) as call:
            for batch in batches:
                origins = self.grind(batch, call)
                yield self.told(batch, origins)

    def grind(self, batch: pa.RecordBatch, call: Call) -> list[int]:
        """Calls the function for every row; gives the row that each output came from."""
        column, origins = batch.column(ELEMENT), []
        alone = not self.signature.has_window
        windows = [[grain] for grain in grains(column, self.root)] if alone else lists(column, self.root)
        for row, window in enumerate(windows):
            before = len(self.out)
            self.call(window, call)
            origins += [row] * (len(self.out) - before)
        return origins

    def call(self, window: Sequence[Grain], call: Call) -> None:
        _, partition, offset, _ = window[0]
        behind = window[-1].offset + 1
        given = [grain.element for grain in window] if self.signature.has_window else window[0].element
        try:
            for sequence, output in enumerate(call(given, self.pairs(window), self.attempt(partition, offset))):
                is_end = isinstance(output, EndOfStream)
                text = None if is_end or self.output is None else self.output.to_text(output)
                self.out.append((partition, offset, behind, sequence, text, is_end))
        except ElementInvalid as error:
            raise mishap(error, partition, offset) from None
        except Exception as error:
            raise failure(name_of(self.root.codec.stream), str(Position(partition, offset)), error) from error

    def attempt(self, partition: int, offset: int) -> Attempt:
        """What tells a repeated call from another one; made anew only where the function asks for it."""
        return Attempt(self.batch, Position(partition, offset)) if self.wants_attempt else NO_ATTEMPT

    def pairs(self, window: Sequence[Grain]) -> list[Pairs]:
        """Every left element with its right ones, by the number of the edge between them."""
        if not self.edges:
            return []
        by_edge: list[Pairs] = [[] for _ in range(self.edges)]
        gather(window, self.root, by_edge)
        return by_edge

    def told(self, batch: pa.RecordBatch, origins: list[int]) -> pa.RecordBatch:
        """The output in columns, in front of it the keys of the rows that it came from."""
        import pyarrow as pa

        rows, self.out = self.out, []
        types = [pa.int32(), pa.int64(), pa.int64(), pa.int32(), pa.string(), pa.bool_()]
        names = [part.split()[0] for part in OUTPUT.split(", ")]
        columns = list(zip(*rows, strict=True)) if rows else [()] * len(types)
        arrays = [pa.array(list(column), kind) for column, kind in zip(columns, types, strict=True)]
        keys = [name for name in batch.schema.names if name != ELEMENT]
        taken = [batch.column(name).take(pa.array(origins, pa.int64())) for name in keys]
        return pa.RecordBatch.from_arrays([*taken, *arrays], names=[*keys, *names])


def grains(column: pa.StructArray, node: Joined) -> list[Grain]:
    """The elements of a column of records, with their partners."""
    partitions, offsets = column.field(PARTITION).to_pylist(), column.field(OFFSET).to_pylist()
    places = list(zip(partitions, offsets, strict=True))
    elements = decoded(node.codec, column.field(VALUE).to_pylist(), places)
    partners = [lists(column.field(f"b{place}"), branch) for place, branch in enumerate(node.branches)]
    rows = zip(*partners, strict=True) if partners else ((),) * len(elements)
    return [Grain(element, *place, row) for element, place, row in zip(elements, places, rows, strict=True)]


def lists(column: pa.ListArray, node: Joined) -> list[list[Grain]]:
    """The same for a column of lists of records."""
    import pyarrow.compute as pc

    flat, start, found = grains(column.flatten(), node), 0, []
    for length in pc.list_value_length(column).to_pylist():
        found.append(flat[start : start + length])
        start += length
    return found


def decoded(codec: Codec, texts: list[str | None], places: Sequence[tuple[int, int]]) -> list[Any]:
    """All elements of a batch in one go; only if one of them is bad each by itself, to tell which."""
    try:
        return [codec.decode(raw) for raw in codec.parse_all([text or "null" for text in texts])]
    except (ElementInvalid, ValueError):
        return [decoded_one(codec, text, place) for text, place in zip(texts, places, strict=True)]


def decoded_one(codec: Codec, text: str | None, place: tuple[int, int]) -> object:
    """One element. Raises a mishap with its position."""
    try:
        return codec.from_text(text or "null")
    except ElementInvalid as error:
        raise mishap(error, *place) from None


def gather(window: Sequence[Grain], node: Joined, by_edge: list[Pairs]) -> None:
    """Add the pairs of these elements, and of their partners."""
    for grain in window:
        for branch, partners in zip(node.branches, grain.partners, strict=True):
            by_edge[branch.edge].append((grain.element, [partner.element for partner in partners]))
            gather(partners, branch, by_edge)
