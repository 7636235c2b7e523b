"""Streams in JSON files: an array of objects each, read from the beginning, written when the stream has ended."""

from __future__ import annotations

import os
import shutil
import uuid
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import chain, islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

from floodmark.errors import SourceRegressed, SourceRewritten, SourceUnreadable
from floodmark.hwm import HWM, ColumnIntHWM, Json, Span
from floodmark.mill.brokers import Inlet, Outlet, address_of
from floodmark.mill.brokers.json_array import PIECE_BYTES, ArrayReader, Part
from floodmark.mill.join_tree import Stream, name_of
from floodmark.sinks.contract import POSITION, Batch, Recorded
from floodmark.sinks.files import Files
from floodmark.sinks.files.folders import batch_folder, batch_numbers, manifest_of
from floodmark.sources.contract import Immutable, Reading, Request, Session, Sight

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

ROWS = "partition int, offset bigint, value string"
ARROW_ROWS = 10_000


@dataclass(frozen=True)
class JsonFileMessageBroker:
    """The file of every stream, by the class of its elements; on a cluster, on a disk that all of it sees.

    >>> broker = JsonFileMessageBroker({Order: "orders.json", Shipment: "shipments.json"})
    >>> WaterMill(broker, ship, Order, name="ship").name
    'ship'
    """

    stream_paths: Mapping[Stream, str | os.PathLike[str]]

    def inlet(self, stream: Stream) -> Inlet:
        return Inlet(JsonArray(self._path(stream), name_of(stream)), ends="with_source")

    def outlet(self, stream: Stream) -> Outlet:
        sink = JsonParts(self._path(stream), name_of(stream))
        return Outlet(sink, publish=sink.publish)

    def _path(self, stream: Stream) -> Path:
        return Path(address_of(stream, self.stream_paths, broker="JsonFileMessageBroker")).absolute()


@dataclass(frozen=True)
class ArrayIndex:
    """What one pass over a file found; a file of other size or time is another file."""

    size: int
    modified_ns: int
    parts: tuple[Part, ...]

    @property
    def count(self) -> int:
        return sum(part.count for part in self.parts)


@dataclass(frozen=True)
class JsonArray(Immutable):
    """The elements of one file, on a disk that Spark's executors see too. All of it is there from the beginning."""

    path: Path
    name: str

    def fingerprint(self, session: Session) -> str:
        return f"json file {self.path.absolute()}"

    def look(self, mark: HWM[Any] | None, request: Request, session: Session) -> Sight:
        """One pass over the file counts its elements; a file that did not change is not read again."""
        passed = int(request.start) if request.start else int(mark.value or 0) if mark else 0
        size, modified_ns = self._stat()
        if request.extras.get("file") == [size, modified_ns, passed]:
            return Sight(None, extras=request.extras)
        count = index_of(self.path, size, modified_ns).count
        if count < passed:
            raise SourceRegressed(f"json file {self.path}", mark=f"{passed} elements", highest=f"{count} elements")
        extras: dict[str, Json] = {"file": [size, modified_ns, count]}
        if count == passed:
            return Sight(None, extras=extras)
        upto = count if request.max_rows is None else min(count, passed + max(request.max_rows, 1))
        after = ColumnIntHWM(self.name, passed) if passed else None
        span = Span(after, ColumnIntHWM(self.name, upto), {"reads": upto, "size": size, "modified_ns": modified_ns})
        return Sight(span, expected_rows=upto - passed, extras=extras)

    def read(self, spark: SparkSession, span: Span) -> Reading:
        """The elements of the span in parts, side by side. Raises SourceRewritten if the file is another one now."""
        size, modified_ns = self._stat()
        if [size, modified_ns] != [span.detail["size"], span.detail["modified_ns"]]:
            raise SourceRewritten(
                f"json file {self.path}",
                what="it was written again since the batch was begun",
                hint="bring it back as it was and run again, or `floodmark run --abandon`",
            )
        first, upto = self.offsets(span)[0]
        parts = index_of(self.path, size, modified_ns).parts
        needed = [part for part in parts if part.index < upto and part.index + part.count > first]
        return Reading(_frame(spark, self.path, needed, first, upto))

    def offsets(self, span: Span) -> Mapping[int, tuple[int, int]]:
        first = int(span.after.value or 0) if span.after else 0
        return {0: (first, int(str(span.detail["reads"])))}

    def cut(self, span: Span, *, reads: Mapping[int, int], passes: Mapping[int, int]) -> Span:
        return Span(span.after, ColumnIntHWM(self.name, passes[0]), {**span.detail, "reads": reads[0]})

    def _stat(self) -> tuple[int, int]:
        try:
            found = self.path.stat()
        except OSError as error:
            raise SourceUnreadable(f"json file {self.path}", reason=error.strerror or str(error)) from error
        return found.st_size, found.st_mtime_ns


INDEXES: dict[Path, ArrayIndex] = {}
"""Of this process, for the file as it was last: a look and the reading after it need only one pass."""


def index_of(path: Path, size: int, modified_ns: int) -> ArrayIndex:
    """How many elements a file has, and where some of them begin, so that it can be read in parts."""
    index = INDEXES.get(path.absolute())
    if index is None or (index.size, index.modified_ns) != (size, modified_ns):
        index = INDEXES[path.absolute()] = ArrayIndex(size, modified_ns, tuple(ArrayReader(path).parts()))
    return index


def _frame(spark: SparkSession, path: Path, parts: Sequence[Part], first: int, upto: int) -> DataFrame:
    """A task for each part; what of it lies outside the span is skipped where it is read."""

    def read(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for number in batch.column(0).to_pylist():
                yield from rows_of(path, parts[number], first, upto)

    return spark.range(0, len(parts), 1, max(len(parts), 1)).mapInArrow(read, ROWS)


def rows_of(path: Path, part: Part, first: int, upto: int) -> Iterator[pa.RecordBatch]:
    """The elements of one part, in Arrow's form and bounded pieces."""
    import pyarrow as pa

    schema = pa.schema([("partition", pa.int32()), ("offset", pa.int64()), ("value", pa.string())])
    start, end = max(part.index, first), min(part.index + part.count, upto)
    every = chain.from_iterable(ArrayReader(path, index=part.index, byte=part.byte).pieces())
    texts = islice(every, start - part.index, end - part.index)
    for offset in range(start, end, ARROW_ROWS):
        values = list(islice(texts, ARROW_ROWS))
        offsets = pa.array(range(offset, offset + len(values)), pa.int64())
        partitions = pa.array([0] * len(values), pa.int32())
        yield pa.RecordBatch.from_arrays([partitions, offsets, pa.array(values, pa.string())], schema=schema)


@dataclass(frozen=True)
class JsonParts:
    """Lines of JSON text in a hidden folder beside the file, a part per turn, in the order of their positions.

    It is no Atomic sink, so that the step keeps the rows before they are sorted: Spark samples what it sorts, and
    the process function would run once more for that.
    """

    path: Path
    name: str

    @property
    def parts(self) -> Files:
        return Files(str(self._folder), format="text", name=self.name)

    def describe(self) -> str:
        return f"json file {self.path}"

    def fingerprint(self) -> str:
        return f"json file {self.path.absolute()}"

    def recorded(self, ledger: str, session: Session) -> Recorded | None:
        return self.parts.recorded(ledger, session)

    def holds_rows(self, session: Session) -> bool:
        return self.parts.holds_rows(session)

    def write(self, rows: DataFrame, batch: Batch) -> int | None:
        return self.parts.write(rows.orderBy(POSITION), batch)

    def fence(self, ledger: str, number: int, session: Session) -> None:
        self.parts.fence(ledger, number, session)

    def needs_position(self) -> bool:
        return True

    def publish(self) -> None:
        """Put all parts together in a file of another name, and that one in its place; twice gives the same file."""
        self.path.parent.mkdir(parents=True, exist_ok=True)
        temporary = self.path.with_name(f".{self.path.name}.{uuid.uuid4().hex}.tmp")
        try:
            with temporary.open("w", encoding="utf-8", newline="") as file:
                file.write("[")
                for number, text in enumerate(self._texts()):
                    file.write(f", {text}" if number else text)
                file.write("]")
                file.flush()
                os.fsync(file.fileno())
            temporary.replace(self.path)
        except BaseException:
            with suppress(OSError):
                temporary.unlink()
            raise

    def discard_parts(self) -> None:
        """Forget what was written before, for an output that begins anew; the file stays until the next one is done."""
        with suppress(FileNotFoundError):
            shutil.rmtree(self._folder)

    @property
    def _folder(self) -> Path:
        return self.path.absolute().with_name(f".{self.path.name}.parts")

    def _texts(self) -> Iterator[str]:
        """The elements of all parts, many at a time, with what stands between two of them in the array."""
        for number in sorted(batch_numbers(self._folder)):
            for part in sorted(manifest_of(self._folder, number).files):
                with (batch_folder(self._folder, number) / part).open(encoding="utf-8", newline="\n") as file:
                    while lines := file.readlines(PIECE_BYTES):
                        yield "".join(lines).rstrip("\n").replace("\n", ", ")
