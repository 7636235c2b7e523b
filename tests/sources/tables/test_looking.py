"""Looking at a PostgreSQL table: the span is fixed by one statement of the database, without Spark."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import psycopg
import pytest

from floodmark.errors import ConfigError, CursorNull, MarkInvalid, SourceRegressed, SourceUnreadable, UnknownKind
from floodmark.hwm import HWM, Span
from floodmark.sources import Postgres
from floodmark.sources.contract import Request, Sight
from floodmark.sources.tables.cursor import Cursor
from tests.sources.tables.reader import no_session, run

if TYPE_CHECKING:
    from floodmark.testing.servers import Server


def look(source: Postgres, mark: HWM[Any] | None = None, **request: Any) -> Sight:  # noqa: ANN401 (passed on)
    return source.look(mark, Request(**request), no_session)


def span(source: Postgres, mark: HWM[Any] | None = None, **request: Any) -> Span:  # noqa: ANN401 (passed on)
    found = look(source, mark, **request).span
    assert found is not None
    return found


def upto(source: Postgres, mark: HWM[Any] | None = None, **request: Any) -> HWM[Any]:  # noqa: ANN401 (passed on)
    return span(source, mark, **request).upto


@pytest.fixture
def database(empty_database: str) -> str:
    """Empty, and shared with others."""
    return empty_database


@pytest.fixture
def orders(database: str) -> str:
    """A table with 1, 2 and 3."""
    run(database, "create table o (seq bigint primary key, v text)", "insert into o values (1,'a'), (2,'b'), (3,'c')")
    return database


def test_the_first_look_reaches_from_the_beginning_to_the_highest_row(orders: str) -> None:
    """No mark is no lower bound, and not the value 0."""
    found = look(Postgres(orders, "o", cursor="seq"))
    assert found.span is not None
    assert (found.span.after, found.span.upto.value, found.expected_rows) == (None, 3, 3)


def test_a_full_refresh_begins_at_the_beginning_also_where_the_job_began_at_latest(orders: str) -> None:
    """Else it would put an empty batch in the place of everything."""
    source = Postgres(orders, "o", cursor=Cursor("seq", start="latest"))
    assert (look(source).expected_rows, look(source, whole=True).expected_rows) == (0, 3)


def test_nothing_above_the_mark_is_nothing_new(orders: str) -> None:
    """The same look again, after the mark was raised."""
    source = Postgres(orders, "o", cursor="seq")
    assert look(source, upto(source)).span is None


def test_a_row_above_the_mark_is_the_next_span(orders: str) -> None:
    """Low, high and count, as a dry run shows them."""
    source = Postgres(orders, "o", cursor="seq")
    mark = upto(source)
    run(orders, "insert into o values (4,'d'), (5,'e')")
    found = look(source, mark)
    assert found.span is not None
    assert (found.span.after, found.span.upto.value, found.expected_rows) == (mark, 5, 2)


def test_an_empty_table_has_no_span_and_negative_ids_are_rows_like_others(database: str) -> None:
    """There is no fake first mark that -7 could lie below."""
    run(database, "create table o (seq bigint primary key)")
    source = Postgres(database, "o", cursor="seq")
    assert look(source).span is None
    run(database, "insert into o values (-7), (-1), (0)")
    assert (span(source).after, span(source).upto.value, look(source).expected_rows) == (None, 0, 3)


def test_latest_puts_the_mark_at_the_end_without_rows(orders: str) -> None:
    """Only what comes later is read."""
    source = Postgres(orders, "o", cursor=Cursor("seq", start="latest"))
    found = look(source)
    assert found.span is not None
    assert (found.span.upto.value, found.span.detail, found.expected_rows) == (3, {"void": True}, 0)
    run(orders, "insert into o values (4,'d')")
    assert (span(source, found.span.upto).after, upto(source, found.span.upto).value) == (found.span.upto, 4)


def test_latest_of_an_empty_table_misses_nothing_that_comes(database: str) -> None:
    """The mark is made without a value: all rows lie above it."""
    run(database, "create table o (seq bigint primary key)")
    source = Postgres(database, "o", cursor=Cursor("seq", start="latest"))
    mark = upto(source)
    run(database, "insert into o values (1), (2)")
    assert (mark.value, upto(source, mark).value, look(source, mark).expected_rows) == (None, 2, 2)


def test_a_start_value_is_read_too(orders: str) -> None:
    """Start and --from are inclusive, everywhere."""
    source = Postgres(orders, "o", cursor=Cursor("seq", start=2))
    assert (span(source).detail["from"], look(source).expected_rows) == ("2", 2)
    assert look(Postgres(orders, "o", cursor="seq"), start="3").expected_rows == 1


def test_ids_above_two_to_the_53rd_are_told_apart(database: str) -> None:
    """Nothing passes through a float."""
    run(database, "create table o (seq bigint primary key)", "insert into o values (9007199254740992)")
    source = Postgres(database, "o", cursor="seq")
    mark = upto(source)
    run(database, "insert into o values (9007199254740993)")
    assert (look(source, mark).expected_rows, upto(source, mark).show()) == (1, "9007199254740993")


UNIQUE = Cursor("c", unique=True)
every_kind = pytest.mark.parametrize(
    ("column_type", "low", "high", "shown"),
    [
        ("smallint", "-5", "7", 7),
        ("numeric(38,0)", "9" * 37, "9" * 38, "9" * 38),
        ("numeric(10,2)", "9.50", "10.25", "10.25"),
        ("numeric", "0.1", "0.10000000000000000000000001", "0.10000000000000000000000001"),
        ("date", "2024-02-28", "2024-02-29", "2024-02-29"),
        ("timestamp", "2024-01-01 08:00", "2024-01-01 12:00:00.000001", "2024-01-01 12:00:00.000001"),
        ("timestamptz", "2024-01-01 08:00+00", "2024-01-01 12:00+03", "2024-01-01 09:00:00+00"),
        ("text", "a", "o'brien; --", "o'brien; --"),
        ("text", "Z", "a", "a"),
        ("varchar(20)", "B\\x", "a\\'", "a\\'"),
        (
            "uuid",
            "0190b6c0-0000-7000-8000-000000000001",
            "0190b6c0-0000-7000-8000-000000000002",
            "0190b6c0-0000-7000-8000-000000000002",
        ),
    ],
)


@every_kind
def test_every_kind_of_cursor_finds_what_lies_above_its_mark(
    database: str, column_type: str, low: str, high: str, shown: object
) -> None:
    """The database's own text, at full precision, makes the mark; the mark as a literal finds nothing but the rest."""
    run(database, f"create table o (c {column_type} primary key)")
    source = Postgres(database, "o", cursor="c")
    insert = b"insert into o values ($1)"
    with psycopg.connect(database, autocommit=True, cursor_factory=psycopg.RawCursor) as connection:
        connection.execute(insert, [low])
        first = upto(source)
        connection.execute(insert, [high])
    second = upto(source, first)
    assert (look(source, first).expected_rows, second.show()) == (1, shown)
    assert look(source, second).span is None


@every_kind
def test_every_kind_of_cursor_bounds_a_query(
    database: str, column_type: str, low: str, high: str, shown: object
) -> None:
    """Before the highest value is known, :upto lies above every value of the type."""
    run(database, f"create table o (c {column_type})")
    source = Postgres(database, query="select * from o where (:first_run or c > :after) and c <= :upto", cursor=UNIQUE)
    with psycopg.connect(database, autocommit=True, cursor_factory=psycopg.RawCursor) as connection:
        connection.execute(b"insert into o values ($1)", [low])
        first = upto(source)
        connection.execute(b"insert into o values ($1)", [high])
    assert (look(source, first).expected_rows, upto(source, first).show()) == (1, shown)


def test_max_rows_stops_at_a_value_and_never_between_equal_ones(database: str) -> None:
    """All rows of the last value come along: what lies at the mark is never read again."""
    days = "(1, '2024-01-01'), (2, '2024-01-02'), (3, '2024-01-02')"
    run(database, "create table o (id int primary key, day date)", f"insert into o values {days}")
    source = Postgres(database, "o", cursor="day")
    assert str(upto(source, max_rows=2).value) == "2024-01-02"
    assert str(upto(source, max_rows=1).value) == "2024-01-01"


def test_a_table_that_ends_below_the_mark_needs_a_decision(orders: str) -> None:
    """Restored or truncated: both values are shown."""
    source = Postgres(orders, "o", cursor="seq")
    mark = upto(source)
    run(orders, "delete from o where seq > 1")
    with pytest.raises(SourceRegressed) as caught:
        look(source, mark)
    assert (caught.value.mark, caught.value.highest) == ("3", "1")


def test_a_table_that_was_emptied_needs_a_decision(orders: str) -> None:
    """No row at all lies below every mark."""
    source = Postgres(orders, "o", cursor="seq")
    mark = upto(source)
    run(orders, "truncate o")
    with pytest.raises(SourceRegressed):
        look(source, mark)


def test_rows_without_a_cursor_stop_the_look(database: str) -> None:
    """No mark would ever reach them."""
    run(database, "create table o (seq bigint unique)", "insert into o values (1), (null), (null)")
    with pytest.raises(CursorNull) as caught:
        look(Postgres(database, "o", cursor="seq"))
    assert (caught.value.column, caught.value.rows) == ("seq", 2)


def test_rows_without_a_cursor_can_be_left_out_and_are_counted(database: str) -> None:
    """Left out by decision, and shown at each look."""
    run(database, "create table o (seq bigint unique)", "insert into o values (1), (null), (null)")
    found = look(Postgres(database, "o", cursor=Cursor("seq", on_null="exclude")))
    assert (found.expected_rows, found.held_back) == (1, 2)


@pytest.mark.parametrize("column_type", ["timestamp", "date"])
def test_a_cursor_at_infinity_is_named(database: str, column_type: str) -> None:
    """No mark can follow it."""
    run(database, f"create table o (c {column_type} unique)", "insert into o values ('infinity')")
    with pytest.raises(SourceUnreadable, match="'infinity'"):
        look(Postgres(database, "o", cursor="c"))


def test_a_start_with_a_zone_is_refused_on_a_column_without_one(database: str) -> None:
    """Which moment is meant could only be guessed."""
    run(database, "create table o (c timestamp unique)")
    with pytest.raises(MarkInvalid):
        look(Postgres(database, "o", cursor="c"), start="2024-01-01 08:00+00")


def test_a_query_is_read_by_its_own_column(orders: str) -> None:
    """Without :after and :upto the bounds are put around it."""
    source = Postgres(orders, query="select seq * 10 as tens, v from o -- all", cursor=Cursor("tens", unique=True))
    assert (upto(source).value, look(source, upto(source)).span) == (30, None)


def test_a_query_that_names_its_bounds_gets_them(orders: str) -> None:
    """First without a mark, then above it."""
    query = "select * from o where (:first_run or seq > :after) and seq <= :upto"
    source = Postgres(orders, query=query, cursor=Cursor("seq", unique=True))
    mark = upto(source)
    run(orders, "insert into o values (4,'d')")
    assert (mark.value, upto(source, mark).value, look(source, mark).expected_rows) == (3, 4, 1)


@every_kind
def test_a_query_without_a_guard_reads_all_of_a_first_run(
    database: str, column_type: str, low: str, high: str, shown: object
) -> None:
    """Where the query does not name :first_run, :after lies below every value."""
    run(database, f"create table o (c {column_type})")
    source = Postgres(database, query="select * from o where c > :after and c <= :upto", cursor=UNIQUE)
    with psycopg.connect(database, autocommit=True, cursor_factory=psycopg.RawCursor) as connection:
        connection.cursor().executemany(b"insert into o values ($1)", [[low], [high]])
    assert (look(source).expected_rows, upto(source).show()) == (2, shown)


def test_a_start_value_is_read_by_a_query_with_bounds_too(orders: str) -> None:
    """Its own `> :after` would leave the first row out."""
    source = Postgres(
        orders, query="select * from o where seq > :after and seq <= :upto", cursor=Cursor("seq", 2, unique=True)
    )
    assert look(source).expected_rows == 2


def test_names_with_quotes_and_dots_are_names(database: str) -> None:
    """Identifiers are quoted, whatever is in them."""
    run(database, 'create table "o; -- "".x" ("se""q" bigint unique)', 'insert into "o; -- "".x" values (1)')
    assert upto(Postgres(database, '"o; -- "".x"', cursor='se"q')).value == 1


def test_the_fingerprint_tells_table_column_and_type_and_no_login(orders: str) -> None:
    """What must not change under a mark, and nothing that is secret."""
    source = Postgres(orders, "o", cursor="seq")
    password = orders.split(":")[2].split("@", maxsplit=1)[0]
    text = source.fingerprint(no_session)
    assert text.startswith("postgres 127.0.0.1:")
    assert text.endswith(" o by seq (bigint)")
    assert password not in text + repr(source)


def test_a_column_that_changed_its_type_has_another_fingerprint(orders: str) -> None:
    """Also while a loop keeps its connection: after the one look that failed by it."""
    source = Postgres(orders, "o", cursor="seq")
    mark, before = upto(source), source.fingerprint(no_session)
    run(orders, "alter table o alter seq type text")
    with pytest.raises(SourceUnreadable):
        look(source, mark)
    assert (before[-8:], source.fingerprint(no_session)[-6:]) == ("(bigint)", "(text)")


def test_a_table_that_is_not_there_is_unreadable(database: str) -> None:
    """And never a table without rows."""
    with pytest.raises(SourceUnreadable, match="does not exist"):
        look(Postgres(database, "nothing", cursor="seq"))


def test_a_column_that_is_not_there_is_a_mistake_of_the_project(orders: str) -> None:
    """The message lists those that are."""
    with pytest.raises(ConfigError, match="seq, v"):
        look(Postgres(orders, "o", cursor="id"))


def test_a_column_that_does_not_grow_is_refused(database: str) -> None:
    """A boolean has no mark."""
    run(database, "create table o (c boolean)")
    with pytest.raises(ConfigError, match="boolean"):
        look(Postgres(database, "o", cursor="c"))


def test_a_lost_connection_fails_one_look_and_the_next_one_connects(orders: str) -> None:
    """What could not be seen is not "nothing new"."""
    source = Postgres(orders, "o", cursor="seq")
    mark = upto(source)
    with psycopg.connect(orders, autocommit=True) as connection:
        ours = (
            "select pg_terminate_backend(pid, 5000) from pg_stat_activity where application_name = 'floodmark/postgres'"
        )
        connection.execute(ours.encode())
    with pytest.raises(SourceUnreadable):
        look(source, mark)
    assert look(source, mark).span is None


def test_a_server_that_is_down_is_unreadable(postgres: Server, orders: str) -> None:
    """Until it is back; the loop goes on by itself."""
    source = Postgres(orders, "o", cursor="seq")
    mark = upto(source)
    postgres.stop()
    with pytest.raises(SourceUnreadable):
        look(source, mark)
    with pytest.raises(SourceUnreadable):
        look(source, mark)
    postgres.start()
    assert look(source, mark).span is None


def test_our_session_is_read_only_and_named(orders: str) -> None:
    """Operators see who looks, and nothing we send can write."""
    query = "select 1 as seq, set_config('x.y', 'z', false) as v"
    source = Postgres(orders, query=query, cursor=Cursor("seq", unique=True), name="shop")
    look(source)
    probe = source.probe()
    asked = "select current_setting('application_name'), current_setting('transaction_read_only')"
    assert probe.fetch(asked) == [("floodmark/shop", "on")]


def test_an_idle_look_asks_little_over_a_connection_that_is_there(orders: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A loop looks every few milliseconds: what an idle look costs the server is counted in statements."""
    source = Postgres(orders, "o", cursor="seq")
    mark = upto(source)
    sent: list[object] = []
    execute = psycopg.Connection.execute
    monkeypatch.setattr(psycopg.Connection, "execute", lambda own, sql: sent.append(sql) or execute(own, sql))
    monkeypatch.setattr(psycopg.Connection, "connect", None)
    source.fingerprint(no_session)
    look(source, mark)
    assert len(sent) == 3, sent


def test_a_policy_for_nulls_that_nobody_knows_is_refused() -> None:
    """With what there is instead."""
    with pytest.raises(UnknownKind):
        Cursor("seq", on_null="guess")  # type: ignore[arg-type]
