"""Reading a PostgreSQL table: exactly the span, every value unchanged, or an error that names the column."""

from __future__ import annotations

import json
import subprocess
import sys
from datetime import date, datetime
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psycopg
import pytest

from floodmark import Job, sinks
from floodmark import stores as fm_stores
from floodmark.errors import ColumnUnmapped, ConfigError, SourceUnreadable
from floodmark.hwm import HWM, Span
from floodmark.sources import Postgres
from floodmark.sources.contract import Request
from floodmark.sources.tables.cursor import Cursor
from tests.sources.tables.reader import run
from tests.tables import rows_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

HERE = Path(__file__).parent
ODD = "0190b6c0-0000-7000-8000-000000000001"


def span(source: Postgres, mark: HWM[Any] | None = None, **request: Any) -> Span:  # noqa: ANN401 (passed on)
    found = source.look(mark, Request(**request), lambda: pytest.fail("a look needs no Spark"))
    assert found.span is not None
    return found.span


def rows(spark: SparkSession, source: Postgres, of: Span | None = None) -> list[tuple[Any, ...]]:
    return sorted(tuple(row) for row in source.read(spark, of or span(source)).rows.collect())


def failure(spark: SparkSession, source: Postgres) -> SourceUnreadable:
    """What the step shows of a read that failed."""
    of = span(source)
    with pytest.raises(Exception, match="floodmark") as caught:
        source.read(spark, of).rows.collect()
    explained = source.explain(caught.value, spark, of)
    assert explained is not None
    return explained


@pytest.fixture
def orders(database: str) -> str:
    """A table with 1, 2 and 3."""
    run(database, "create table o (seq bigint primary key, v text)", "insert into o values (1,'a'), (2,'b'), (3,'c')")
    return database


def test_the_rows_of_the_span_are_read_and_no_others(spark: SparkSession, orders: str) -> None:
    """What came after the look is of the next batch."""
    source = Postgres(orders, "o", cursor="seq")
    first = span(source)
    run(orders, "insert into o values (4,'d'), (5,'e')")
    second = span(source, first.upto)
    run(orders, "insert into o values (6,'f')")
    assert rows(spark, source, first) == [(1, "a"), (2, "b"), (3, "c")]
    assert rows(spark, source, second) == [(4, "d"), (5, "e")]


def test_a_row_that_came_below_the_lowest_of_a_first_span_is_read(spark: SparkSession, orders: str) -> None:
    """A first batch has no lower end: what lies there would lie below the mark for ever."""
    source = Postgres(orders, "o", cursor="seq", partitions=2)
    first = span(source)
    run(orders, "insert into o values (-8,'z')")
    assert rows(spark, source, first) == [(-8, "z"), (1, "a"), (2, "b"), (3, "c")]


def test_a_start_value_is_the_first_row(spark: SparkSession, orders: str) -> None:
    """Inclusive, also for text."""
    assert rows(spark, Postgres(orders, "o", cursor=Cursor("seq", start=2))) == [(2, "b"), (3, "c")]
    assert rows(spark, Postgres(orders, "o", cursor=Cursor("v", start="b"))) == [(2, "b"), (3, "c")]


def test_latest_reads_no_row(spark: SparkSession, orders: str) -> None:
    """The batch only puts the mark there."""
    assert rows(spark, Postgres(orders, "o", cursor=Cursor("seq", start="latest"))) == []


@pytest.mark.parametrize(
    ("column_type", "expression"),
    [
        ("bigint", "9007199254740992 + n"),
        ("numeric(38,0)", "-99999999999999999999999999999999999999 + n"),
        ("numeric(20,4)", "n / 7.0"),
        ("date", "date '2024-01-01' + n"),
        ("timestamp", "timestamp '2024-01-01' + n * interval '1.000001 s'"),
        ("timestamptz", "timestamptz '2024-01-01 00:00+00' + n * interval '1.000001 s'"),
        ("text", "md5(n::text)"),
    ],
)
def test_partitions_cover_the_span_without_overlap(
    spark: SparkSession, database: str, column_type: str, expression: str
) -> None:
    """Each row once, whatever the cursor is; 20,001 rows are enough to be split."""
    run(
        database,
        f"create table o (n int, c {column_type} primary key)",
        f"insert into o select n, {expression} from generate_series(0, 30000) n",
    )
    source = Postgres(database, "o", cursor="c", partitions=3)
    cut = span(source, span(source, max_rows=10_000).upto)
    read = source.read(spark, cut).rows
    ordered = 'c collate "C"' if column_type == "text" else "c"
    with psycopg.connect(database) as connection:
        upper = connection.execute(f"select n from o order by {ordered} offset 10000".encode()).fetchall()
    assert sorted(row.n for row in read.select("n").collect()) == sorted(n for (n,) in upper)


def test_every_common_type_arrives_unchanged(spark: SparkSession, database: str) -> None:
    """uuid and jsonb as the database writes them, numeric at its declared scale, nulls as nulls."""
    run(
        database,
        "create table o (id bigint primary key, i smallint, d double precision, b boolean, n numeric(38,0),"
        " m numeric(10,2), day date, u uuid, j jsonb, raw bytea, c char(3), net inet)",
        f"insert into o values (1, 2, 0.1, true, {'9' * 38}, 1.50, '2024-02-29', '{ODD}', '{{\"a\": [1, null]}}',"
        " '\\x00ff', 'ab', '10.0.0.1')",
        "insert into o (id) values (2)",
    )
    assert rows(spark, Postgres(database, "o", cursor="id")) == [
        (
            *(1, 2, 0.1, True, Decimal("9" * 38), Decimal("1.50"), date(2024, 2, 29), ODD, '{"a": [1, null]}'),
            *(bytearray(b"\x00\xff"), "ab ", "10.0.0.1/32"),
        ),
        (2, *[None] * 11),
    ]


def test_arrays_arrive_as_arrays(spark: SparkSession, database: str) -> None:
    """With the nulls in them; an empty one is not a null."""
    run(
        database,
        "create table o (id int primary key, a int[], s smallint[], l bigint[], b boolean[], t text[], v varchar(5)[])",
        "insert into o values (1, '{1,null}', '{2}', '{9007199254740993}', '{t,f}', '{x,\"y,z\"}', '{ab}')",
        "insert into o values (2, '{}', null, null, null, '{}', '{}')",
    )
    assert rows(spark, Postgres(database, "o", cursor="id")) == [
        (1, [1, None], [2], [9007199254740993], [True, False], ["x", "y,z"], ["ab"]),
        (2, [], None, None, None, [], []),
    ]


def test_a_number_without_a_scale_fails_by_name(spark: SparkSession, database: str) -> None:
    """Spark would cut it to 18 places."""
    run(
        database,
        "create table o (id int primary key, total numeric)",
        "insert into o values (1, 0.1234567890123456789)",
    )
    with pytest.raises(ColumnUnmapped) as caught:
        rows(spark, Postgres(database, "o", cursor="id"))
    assert (caught.value.column, caught.value.type_name) == ("total", "numeric")


@pytest.mark.parametrize(
    ("wanted", "value"),
    [
        ("string", "0.1234567890123456789"),
        ("decimal(38,20)", Decimal("0.12345678901234567890")),
        ("double", 0.12345678901234568),
    ],
)
def test_a_number_without_a_scale_can_be_mapped(spark: SparkSession, database: str, wanted: str, value: object) -> None:
    """The user says what it becomes."""
    run(
        database,
        "create table o (id int primary key, total numeric)",
        "insert into o values (1, 0.1234567890123456789)",
    )
    assert rows(spark, Postgres(database, "o", cursor="id", types={"total": wanted})) == [(1, value)]


@pytest.mark.parametrize("wanted", ["decimal(10,2)", "long"])
def test_a_mapping_never_rounds(spark: SparkSession, database: str, wanted: str) -> None:
    """A value that does not fit stops the batch, with its column."""
    run(database, "create table o (id int primary key, total numeric)", "insert into o values (1, 1.25), (2, 1.234)")
    assert "'total' holds 1.2" in failure(spark, Postgres(database, "o", cursor="id", types={"total": wanted})).reason


@pytest.mark.parametrize(
    "column_type", ["time", "interval", "money", "numeric[]", "timestamp[]", "numeric(50,2)", "bit(4)"]
)
def test_a_type_that_spark_would_change_fails_by_name(spark: SparkSession, database: str, column_type: str) -> None:
    """And never arrives as something else."""
    run(database, f"create table o (id int primary key, odd {column_type})", "insert into o values (1, null)")
    with pytest.raises(ColumnUnmapped) as caught:
        rows(spark, Postgres(database, "o", cursor="id"))
    assert caught.value.column == "odd"


def test_a_type_that_spark_does_not_have_can_be_read_as_text(spark: SparkSession, database: str) -> None:
    """As the database writes it, in UTC."""
    run(
        database,
        "create table o (id int primary key, t time, ts timestamptz)",
        "insert into o values (1, '08:30:00.5', 'infinity'), (2, null, '2024-01-01 12:00+03')",
    )
    source = Postgres(database, "o", cursor="id", types={"t": "string", "ts": "string"})
    assert rows(spark, source) == [(1, "08:30:00.5", "infinity"), (2, None, "2024-01-01 09:00:00+00")]


def test_a_number_that_is_none_stops_the_batch_with_its_column(spark: SparkSession, database: str) -> None:
    """PostgreSQL has a NaN of every precision, and Spark's decimals have none."""
    run(database, "create table o (id int primary key, total numeric(10,2))", "insert into o values (1, 'NaN')")
    assert "'total' holds NaN" in failure(spark, Postgres(database, "o", cursor="id")).reason


@pytest.mark.parametrize("column_type", ["timestamp", "timestamptz", "date"])
@pytest.mark.parametrize("value", ["infinity", "-infinity"])
def test_infinity_stops_the_batch_with_its_column(
    spark: SparkSession, database: str, column_type: str, value: str
) -> None:
    """Spark would make it the year 9999, or some other day."""
    run(database, f"create table o (id int primary key, at {column_type})", f"insert into o values (1, '{value}')")
    assert f"'at' holds {value}" in failure(spark, Postgres(database, "o", cursor="id")).reason


def test_an_array_of_two_dimensions_stops_the_batch(spark: SparkSession, database: str) -> None:
    """Spark's arrays have one."""
    run(database, "create table o (id int primary key, a int[])", "insert into o values (1, '{{1,2},{3,4}}')")
    assert "'a' holds" in failure(spark, Postgres(database, "o", cursor="id")).reason


def test_a_cursor_of_numbers_is_not_read_as_text(spark: SparkSession, orders: str) -> None:
    """Its order would be another one."""
    with pytest.raises(ConfigError, match="'seq' is a number"):
        rows(spark, Postgres(orders, "o", cursor="seq", types={"seq": "string"}))


def test_types_of_a_column_that_is_not_there_are_a_mistake(spark: SparkSession, orders: str) -> None:
    """A name that was mistyped would leave the real column unmapped."""
    with pytest.raises(ConfigError, match="totl"):
        rows(spark, Postgres(orders, "o", cursor="seq", types={"totl": "string"}))


def test_a_column_that_was_added_is_seen_by_the_next_batch(spark: SparkSession, orders: str) -> None:
    """Types are asked for each batch; what to do with a new one is the job's policy."""
    source = Postgres(orders, "o", cursor="seq")
    mark = span(source).upto
    run(orders, "alter table o add w int default 7", "insert into o values (4, 'd')")
    assert rows(spark, source, span(source, mark)) == [(4, "d", 7)]


def test_a_mark_with_quotes_in_it_finds_the_rest(spark: SparkSession, database: str) -> None:
    """Text is compared by its bytes, as a literal."""
    run(
        database,
        "create table o (v text primary key)",
        "insert into o values ('o''brien; --'), ('a'), ('Z'), ('o''brien; --x')",
    )
    source = Postgres(database, "o", cursor="v")
    mark = span(source, max_rows=3).upto
    assert (mark.value, rows(spark, source, span(source, mark))) == ("o'brien; --", [("o'brien; --x",)])


def test_a_query_with_bounds_and_with_operators_of_jsonb(spark: SparkSession, database: str) -> None:
    """The database applies the bounds; its question marks stay operators."""
    run(
        database,
        "create table o (seq int primary key, j jsonb)",
        """insert into o values (1, '{"a": 1}'), (2, '{"b": 1}'), (3, '{"a": 2}')""",
    )
    query = "select seq, j ->> 'a' as a from o where j ? 'a' and (:first_run or seq > :after) and seq <= :upto -- end?"
    source = Postgres(database, query=query, cursor=Cursor("seq", unique=True))
    assert rows(spark, source) == [(1, "1"), (3, "2")]
    assert rows(spark, source, span(source, span(source, max_rows=1).upto)) == [(3, "2")]


def test_hours_that_a_zone_skips_are_read_as_they_are(database: str) -> None:
    """The JVM and the process are in Los Angeles; 02:30 on that day exists in the database alone."""
    run(
        database,
        "create table o (id int primary key, naive timestamp, aware timestamptz)",
        "insert into o values (1, '2024-03-10 02:30:00.123456', '2024-03-10 10:30:00.123456+00'),"
        " (2, '1500-01-01 00:00', '1500-01-01 00:00+00')",
    )
    assert elsewhere(database, "America/Los_Angeles", "id") == [
        ["1", "2024-03-10 02:30:00.123456", "2024-03-10 10:30:00.123456"],
        ["2", "1500-01-01 00:00:00", "1500-01-01 00:00:00"],
    ]


def elsewhere(database: str, zone: str, cursor: str) -> list[list[str]]:
    """The table as a process in another zone reads it."""
    program = [sys.executable, str(HERE / "other_zone.py"), database, zone, cursor]
    done = subprocess.run(
        program, capture_output=True, check=True, text=True, env={"TZ": zone, "PATH": "/usr/bin:/bin"}
    )
    found: list[list[str]] = json.loads(done.stdout)
    return found


class TestAJob:
    """The cases of the specification, with a Delta table as the sink."""

    def job(self, database: str, folder: Path, cursor: str | Cursor = "seq") -> Job:
        return Job(name="o", source=Postgres(database, "o", cursor=cursor), sinks=[sinks.Delta(str(folder / "lake"))])

    def test_rows_arrive_once_and_the_mark_follows(self, spark: SparkSession, orders: str, tmp_path: Path) -> None:
        """1, 2, 3; then nothing and not a byte of the store changed; then 4."""
        store = fm_stores.open(f"file://{tmp_path}/marks")
        job = self.job(orders, tmp_path)
        first = job.run(spark, store=store)
        assert (first.rows_read, first.mark_after) == (3, 3)
        before = contents(tmp_path / "marks")
        again = job.run(spark, store=store)
        assert (again.status, again.mark_after, contents(tmp_path / "marks")) == ("nothing_new", 3, before)
        run(orders, "insert into o values (4, 'd')")
        assert job.run(spark, store=store).mark_after == 4
        assert lake(tmp_path) == [1, 2, 3, 4]

    def test_an_empty_table_has_no_mark(self, spark: SparkSession, database: str, tmp_path: Path) -> None:
        """Then -7, -1, 0 arrive, and the mark is 0."""
        run(database, "create table o (seq bigint primary key)")
        store = fm_stores.open("memory")
        job = self.job(database, tmp_path)
        assert job.run(spark, store=store).mark_after is None
        run(database, "insert into o values (-7), (-1), (0)")
        assert (job.run(spark, store=store).mark_after, lake(tmp_path)) == (0, [-7, -1, 0])

    def test_latest_takes_only_what_comes(self, spark: SparkSession, orders: str, tmp_path: Path) -> None:
        """The mark is 3 after the first run, and nothing was delivered."""
        store = fm_stores.open("memory")
        job = self.job(orders, tmp_path, Cursor("seq", start="latest"))
        first = job.run(spark, store=store)
        assert (first.rows_read, first.mark_after) == (0, 3)
        run(orders, "insert into o values (4, 'd')")
        assert (job.run(spark, store=store).mark_after, lake(tmp_path)) == (4, [4])

    def test_a_row_that_gets_its_cursor_later_replaces_itself(self, spark: SparkSession, database: str) -> None:
        """It was read without one, and comes again with it: into a merge, so it stands there once."""
        run(database, "create table o (seq int primary key, at timestamp, v text)")
        run(database, "insert into o values (1, '2024-01-01', 'a'), (2, null, 'b')")
        source = Postgres(database, "o", cursor=Cursor("at", on_null="include"))
        sink = sinks.Postgres(database, "mart", mode="merge", key=("seq",))
        job, store = Job(name="o", source=source, sinks=[sink]), fm_stores.open("memory")
        first = job.run(spark, store=store)
        run(database, "update o set at = '2024-01-02', v = 'c' where seq = 2", "insert into o values (3, null, 'd')")
        second, third = job.run(spark, store=store), job.run(spark, store=store)
        assert (first.rows_read, second.rows_read, third.status) == (2, 2, "nothing_new")
        with psycopg.connect(database) as connection:
            mart = connection.execute("select seq, v from mart order by seq").fetchall()
        assert mart == [(1, "a"), (2, "c"), (3, "d")]

    def test_infinity_is_shown_by_the_run(self, spark: SparkSession, database: str, tmp_path: Path) -> None:
        """The error names the column, and the mark did not move."""
        run(database, "create table o (seq int primary key, at timestamp)", "insert into o values (1, 'infinity')")
        store = fm_stores.open("memory")
        with pytest.raises(SourceUnreadable, match="'at' holds infinity"):
            self.job(database, tmp_path).run(spark, store=store)
        record = store.read("o")
        assert record is not None
        assert record.marks == {}

    @pytest.mark.crash
    def test_a_naive_mark_is_the_same_in_every_zone(self, database: str, tmp_path: Path) -> None:
        """08:00 is the mark; a process in Los Angeles reads the 12:00 row, one in Tokyo then finds nothing."""
        run(database, "create table o (ts timestamp primary key)", "insert into o values ('2024-01-01 08:00')")
        assert self.run_in("UTC", database, tmp_path) == [1, "2024-01-01 08:00:00"]
        run(database, "insert into o values ('2024-01-01 12:00')")
        assert self.run_in("America/Los_Angeles", database, tmp_path) == [1, "2024-01-01 12:00:00"]
        assert self.run_in("Asia/Tokyo", database, tmp_path) == [0, "2024-01-01 12:00:00"]

    def run_in(self, zone: str, database: str, folder: Path) -> list[Any]:
        program = [sys.executable, str(HERE / "other_zone.py"), database, zone, "ts", str(folder)]
        env = {"TZ": zone, "PATH": "/usr/bin:/bin"}
        done = subprocess.run(program, capture_output=True, check=True, text=True, env=env)
        found: list[Any] = json.loads(done.stdout)
        return found


def contents(folder: Path) -> dict[str, bytes]:
    return {str(path): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def lake(folder: Path) -> list[int]:
    return sorted(row.seq for row in rows_of(folder / "lake"))


def test_a_moment_is_the_same_to_python(spark: SparkSession, database: str) -> None:
    """Naive stays naive, to the microsecond."""
    run(database, "create table o (at timestamp primary key)", "insert into o values ('2024-01-01 08:00:00.000001')")
    assert rows(spark, Postgres(database, "o", cursor="at")) == [(datetime(2024, 1, 1, 8, 0, 0, 1),)]  # noqa: DTZ001
