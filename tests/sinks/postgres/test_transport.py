"""How a batch is cut into chunks: those of many tasks arrive in any order, and every row is still whole."""

from __future__ import annotations

import csv
import hashlib
import io
import struct
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from itertools import chain, zip_longest
from typing import TYPE_CHECKING, Any, cast

import pyarrow as pa
import pytest

from floodmark.sinks import Postgres
from floodmark.sinks.postgres import transport
from floodmark.sinks.postgres.encoding import BinaryRows, CsvRows
from floodmark.sinks.postgres.statements import Move
from floodmark.sinks.postgres.target import Target
from floodmark.sinks.postgres.transport import BatchRefused, Chunk, CopyIn, StagedChunks, TaskReport, chunks_of
from tests.sinks.batches import batch
from tests.sinks.postgres.test_postgres import ask, staging_tables

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterator, Sequence

    from pyspark.sql import SparkSession

    from floodmark.sinks.postgres.encoding import Encoding

WIDTHS = (10, 200, 4_000, 70_000, 1_000_000)
BINARY, CSV = BinaryRows(("int8", "bytes", "bytes")), CsvRows(("bigint", "text", "text"))
FIELDS, LENGTH = struct.Struct(">h"), struct.Struct(">i")


@pytest.fixture
def long_fields() -> Iterator[None]:
    """Python's reader of CSV refuses long fields unless it is told otherwise, for the whole process."""
    before = csv.field_size_limit(2 * max(WIDTHS))
    yield
    csv.field_size_limit(before)


def md5(text: str) -> str:
    return hashlib.md5(text.encode(), usedforsecurity=False).hexdigest()


def rows_of_task(task: int, rows: int = 20) -> pa.RecordBatch:
    """Rows of every width, each with the checksum of its text."""
    ids = [task * rows + place for place in range(rows)]
    texts = [str(each).ljust(WIDTHS[each % len(WIDTHS)], "x") for each in ids]
    return pa.RecordBatch.from_pydict({"id": ids, "v": texts, "sum": [md5(text) for text in texts]})


def alternately(*tasks: Iterator[Chunk]) -> Iterator[Chunk]:
    """One chunk of each task after the other, as they arrive where several run at once."""
    return (chunk for chunk in chain.from_iterable(zip_longest(*tasks)) if chunk)


def parse_binary(stream: bytes) -> Iterator[tuple[int, str, str]]:
    """The rows of a binary stream, as the server reads them."""
    source = io.BytesIO(stream)
    while head := source.read(FIELDS.size):
        assert FIELDS.unpack(head) == (3,), "this is not where a row begins"
        number, text, total = (source.read(*LENGTH.unpack(source.read(LENGTH.size))) for _ in range(3))
        yield int.from_bytes(number, "big"), text.decode(), total.decode()


def parse_csv(stream: bytes) -> Iterator[tuple[int, str, str]]:
    return ((int(number), text, total) for number, text, total in csv.reader(io.StringIO(stream.decode())))


@pytest.mark.parametrize("most_bytes", [100, 100_000, 3_000_000])
@pytest.mark.parametrize(("encoding", "parse"), [(BINARY, parse_binary), (CSV, parse_csv)], ids=["binary", "csv"])
@pytest.mark.usefixtures("long_fields")
def test_rows_stay_whole_where_chunks_of_tasks_alternate(
    encoding: Encoding,
    parse: Callable[[bytes], Iterator[tuple[int, str, str]]],
    most_bytes: int,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A chunk that ended within a row would be read as one row with the bytes of another task."""
    monkeypatch.setattr(transport, "MOST_BYTES", most_bytes)
    tasks = [rows_of_task(task) for task in range(3)]
    chunks = list(alternately(*(chunks_of(iter([task]), encoding) for task in tasks)))
    rows = list(parse(b"".join(bytes(chunk.content) for chunk in chunks)))
    assert sorted(number for number, _, _ in rows) == list(range(60))
    assert [number for number, text, total in rows if md5(text) != total] == []
    assert sum(chunk.rows for chunk in chunks) == 60


def test_a_chunk_is_no_larger_than_it_may_be_unless_one_row_is(monkeypatch: pytest.MonkeyPatch) -> None:
    """The driver holds a few of them: what they take must not grow with the batch."""
    monkeypatch.setattr(transport, "MOST_BYTES", 100_000)
    narrow = pa.RecordBatch.from_pydict({"id": range(5_000), "v": ["x" * 200] * 5_000, "sum": ["s"] * 5_000})
    assert max(len(chunk.content) for chunk in chunks_of(iter([narrow]), BINARY)) < 110_000
    wide = [(chunk.rows, len(chunk.content) > 100_000) for chunk in chunks_of(iter([rows_of_task(0)]), BINARY)]
    assert {rows for rows, is_large in wide if is_large} == {1}


@pytest.mark.parametrize("staged", [False, True], ids=["direct", "staged"])
def test_every_row_of_many_tasks_arrives_as_it_was_whatever_its_width(
    spark: SparkSession, database: str, staged: bool
) -> None:
    """From ten bytes to a megabyte, each with its own checksum; more than one chunk of every task."""
    width = "CASE WHEN id % 50 = 0 THEN 1000000 WHEN id % 20 = 1 THEN 70000 WHEN id % 3 = 1 THEN 4000 ELSE 10 END"
    texts = spark.range(0, 3_000, 1, 3).selectExpr("id", f"rpad(concat(id, '-'), {width}, md5(string(id))) AS v")
    rows = texts.selectExpr("id", "v", "md5(v) AS total")
    assert Postgres(database, "wide", staged=staged).write(rows, batch(1)) == 3_000
    assert ask(database, "select count(*), count(distinct id), sum((md5(v) <> total)::int) from wide") == [
        (3_000, 3_000, 0)
    ]
    assert staging_tables(database) == []


@dataclass(frozen=True)
class StagingDouble:
    """A staging table with these chunks."""

    staged: tuple[Chunk, ...]

    def chunks(self, _connection: object, winners: Sequence[TaskReport]) -> Generator[Chunk, None, None]:
        assert [each.attempt for each in winners] == [7, 8]
        yield from self.staged


class ServerDouble:
    """A server whose connections nobody asks anything."""

    def connect(self) -> AbstractContextManager[None]:
        return nullcontext()


def staged_chunks(*staged: Chunk) -> StagedChunks:
    winners = (TaskReport(0, 7, 2), TaskReport(1, 8, 1))
    return StagedChunks(cast("Any", ServerDouble()), cast("Any", StagingDouble(staged)), winners)


def test_what_is_staged_is_what_the_tasks_reported() -> None:
    """Then it is passed on, in its order."""
    chunks = staged_chunks(Chunk(2, b"ab"), Chunk(1, b"c"))
    assert (list(chunks.read()), chunks.reported_rows) == ([Chunk(2, b"ab"), Chunk(1, b"c")], 3)


@pytest.mark.parametrize("staged", [(), (Chunk(2, b"ab"),), (Chunk(2, b"ab"), Chunk(2, b"cd"))], ids=len)
def test_staged_rows_that_are_not_the_reported_ones_are_refused(staged: tuple[Chunk, ...]) -> None:
    """A staging table has no log: after a crash of the server it is empty, and the batch must not be taken for done."""
    with pytest.raises(BatchRefused, match="the tasks copied 3 rows"):
        list(staged_chunks(*staged).read())


@pytest.mark.parametrize("moved", [0, 2, 4])
def test_rows_that_the_target_took_are_those_that_the_tasks_reported(moved: int) -> None:
    """Or nothing is committed: the server counts what it took itself."""

    class Copy(CopyIn):
        def into(self, _connection: object, _table: object) -> int:
            return moved

    class Table(Target):
        def takes_copy(self, _connection: object) -> bool:
            return True

    move = Move(Table("public", "orders"), (), Copy(BINARY, (), staged_chunks()))
    with pytest.raises(BatchRefused, match=f"but {moved} are staged"):
        move.append(cast("Any", None))
