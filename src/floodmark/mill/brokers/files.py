"""A JSON file as a stream: one array of objects, whose mark is how many of them were passed."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

from floodmark.errors import SourceRegressed, SourceRewritten, SourceUnreadable
from floodmark.hwm import HWM, ColumnIntHWM, Json, Span
from floodmark.mill.json_array import ArrayReader
from floodmark.sources.contract import Immutable, Reading, Request, Session, Sight

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

ROWS = "partition int, offset bigint, value string"
PART_ELEMENTS = 50_000
ARROW_ROWS = 10_000


@dataclass(frozen=True)
class Part:
    """Some elements that follow each other: the first one's number and place in the file, and how many."""

    index: int
    byte: int
    count: int


@dataclass(frozen=True)
class Survey:
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
        count = surveyed(self.path, size, modified_ns).count
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
        first, upto = self.lanes(span)[0]
        parts = surveyed(self.path, size, modified_ns).parts
        needed = [part for part in parts if part.index < upto and part.index + part.count > first]
        return Reading(_frame(spark, self.path, needed, first, upto))

    def lanes(self, span: Span) -> Mapping[int, tuple[int, int]]:
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


SURVEYS: dict[tuple[Path, int, int], Survey] = {}
"""Of this process: a look and the reading after it need only one pass."""


def surveyed(path: Path, size: int, modified_ns: int) -> Survey:
    """How many elements a file has, and where some of them begin, so that it can be read in parts."""
    key = (path.absolute(), size, modified_ns)
    if key not in SURVEYS:
        SURVEYS[key] = Survey(size, modified_ns, tuple(_parts(path)))
    return SURVEYS[key]


def _parts(path: Path) -> Iterator[Part]:
    reader = ArrayReader(path)
    objects = reader.objects()
    for _ in objects:
        index, byte = reader.index, reader.byte
        yield Part(index, byte, 1 + sum(1 for _ in islice(objects, PART_ELEMENTS - 1)))


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
    texts = islice(ArrayReader(path, index=part.index, byte=part.byte).objects(), start - part.index, end - part.index)
    for offset in range(start, end, ARROW_ROWS):
        values = list(islice(texts, ARROW_ROWS))
        offsets = pa.array(range(offset, offset + len(values)), pa.int64())
        partitions = pa.array([0] * len(values), pa.int32())
        yield pa.RecordBatch.from_arrays([partitions, offsets, pa.array(values, pa.string())], schema=schema)
