"""Rows that share a value of the cursor: none is lost, none comes twice, and what is remembered stays small."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from floodmark.errors import ConfigError, SourceRegressed, TiesTooMany
from floodmark.probes.tables import LowerBound, TableProbe, UpperBound
from floodmark.sources import Postgres
from floodmark.sources.contract import Request
from floodmark.sources.tables.cursor import Cursor
from floodmark.sources.tables.looking import TableLook
from floodmark.sources.tables.safety import SafeBounds
from tests.sources.tables.reader import Reader, ids, no_session, run

if TYPE_CHECKING:
    from collections.abc import Sequence

T1, T2 = "2024-01-01 10:00:00.000001", "2024-01-01 11:00:00"


@pytest.fixture
def database(empty_database: str) -> str:
    """Empty, and shared with others."""
    return empty_database


@pytest.fixture
def table(database: str) -> str:
    """A table whose rows may share a time."""
    run(database, "create table o (id int primary key, ts timestamp default now())", "create index on o (ts)")
    return database


def reader(table: str, *columns: str, max_rows: int | None = None, **cursor: Any) -> Reader:  # noqa: ANN401 (passed on)
    return Reader(Postgres(table, "o", cursor=Cursor(columns or "ts", safety="none", **cursor)), max_rows)


def test_a_row_that_ties_with_the_mark_is_read_and_the_others_are_not_again(table: str) -> None:
    """The case of the specification: 1 and 2, then 3 at the same microsecond, then nothing."""
    orders = reader(table)
    run(table, f"insert into o values (1, '{T1}'), (2, '{T1}')")
    first, before = orders.batch(), orders.mark
    run(table, f"insert into o values (3, '{T1}')")
    second, after = orders.batch(), orders.mark
    assert (first, second, orders.batch()) == ([1, 2], [3], [])
    assert before is not None
    assert after is not None
    assert (before.value, before.show()) == (after.value, T1)


def test_a_row_that_comes_between_the_look_and_the_read_is_of_the_next_batch(table: str) -> None:
    """Else its key would not be remembered, and it would come twice."""
    orders = reader(table)
    run(table, f"insert into o values (1, '{T1}')")
    sight = orders.look()
    assert sight.span is not None
    run(table, f"insert into o values (2, '{T1}')")
    assert ids(orders.source, sight.span) == [1]
    orders.mark, orders.extras = sight.span.upto, dict(sight.extras)
    assert orders.batch() == [2]


def test_keys_are_forgotten_when_the_mark_moves_on(table: str) -> None:
    """Only those at the mark are kept."""
    orders = reader(table)
    run(table, f"insert into o values (1, '{T1}')")
    orders.batch()
    run(table, f"insert into o values (2, '{T1}'), (3, '{T2}')")
    assert orders.batch() == [2, 3]
    assert orders.extras == {"ties": {"at": "2024-01-01T11:00:00", "keys": ["3"]}}


def test_a_composite_cursor_is_cut_within_a_tie(table: str) -> None:
    """The case of the specification: exactly two rows each, and a mark between rows of one time."""
    orders = reader(table, "ts", "id", max_rows=2)
    run(table, f"insert into o values (1, '{T1}'), (2, '{T1}'), (3, '{T1}'), (4, '{T2}')")
    first, at_first = orders.batch(), orders.mark
    second, at_second = orders.batch(), orders.mark
    assert (first, second, orders.batch()) == ([1, 2], [3, 4], [])
    assert at_first is not None
    assert at_second is not None
    assert (at_first.show(), at_second.show()) == ([T1, 2], [T2, 4])


def test_max_rows_never_cuts_rows_that_one_column_cannot_tell_apart(table: str) -> None:
    """Three share a value, so three are read."""
    orders = reader(table, max_rows=2)
    run(table, f"insert into o values (1, '{T1}'), (2, '{T1}'), (3, '{T1}'), (4, '{T2}')")
    assert (orders.batch(), orders.batch(), orders.batch()) == ([1, 2, 3], [4], [])


def test_a_unique_column_remembers_nothing(table: str) -> None:
    """The catalog says so: an open bound is enough."""
    orders = Reader(Postgres(table, "o", cursor="id"))
    run(table, f"insert into o values (1, '{T1}'), (2, '{T1}')")
    assert (orders.batch(), orders.extras) == ([1, 2], {})


@pytest.mark.parametrize(
    "index", ["unique (ts) where id > 0", "(ts)", "unique (date_trunc('hour', ts))", "unique (ts, id)"]
)
def test_an_index_that_does_not_cover_every_row_makes_no_column_unique(database: str, index: str) -> None:
    """Neither a partial one nor one over an expression or over more columns."""
    on = index.replace("unique ", "")
    unique = "unique" if "unique" in index else ""
    run(database, "create table o (id int primary key, ts timestamp)", f"create {unique} index on o {on}")
    assert not Postgres(database, "o", cursor="ts").probe().cursor().is_unique


def test_an_index_that_only_carries_a_column_along_is_unique_by_the_others(database: str) -> None:
    """INCLUDE adds nothing to the key."""
    run(database, "create table o (id int, ts timestamp)", "create unique index on o (ts) include (id)")
    assert Postgres(database, "o", cursor="ts").probe().cursor().is_unique


def test_a_table_with_children_is_not_unique_by_its_own_index(database: str) -> None:
    """The children's rows are read too, and the index does not know them."""
    run(database, "create table o (id int primary key)", "create table child () inherits (o)")
    with pytest.raises(ConfigError, match="tells them apart"):
        Postgres(database, "o", cursor="id").look(None, Request(), no_session)


def test_without_a_key_the_choices_are_named(database: str) -> None:
    """A guess would lose or repeat rows."""
    run(database, "create table o (id int, ts timestamp)")
    with pytest.raises(ConfigError, match=r"key: \[id\].*column: \[ts, id\].*unique: true"):
        Postgres(database, "o", cursor="ts").look(None, Request(), no_session)


def test_a_query_that_applies_its_own_bounds_has_to_be_unique(table: str) -> None:
    """It reads above :after, so it never sees what ties with the mark."""
    query = "select * from o where ts > :after and ts <= :upto"
    with pytest.raises(ConfigError, match=":after"):
        Postgres(table, query=query, cursor="ts", key=["id"]).look(None, Request(), no_session)


def test_a_key_of_several_columns_with_quotes_in_it_tells_rows_apart(database: str) -> None:
    """Keys are literals too."""
    run(database, "create table o (id int, name text, ts timestamp, primary key (id, name))")
    run(database, f"insert into o values (1, 'o''brien; --', '{T1}'), (1, 'a\\b', '{T1}')")
    orders = Reader(Postgres(database, "o", cursor="ts"))
    first = orders.batch()
    run(database, f"insert into o values (2, 'a\\b', '{T1}')")
    assert (first, orders.batch(), orders.batch()) == ([1, 1], [2], [])


def test_a_key_that_two_rows_share_is_refused(database: str) -> None:
    """Of two rows that come one after the other, the second would be taken for the first."""
    run(database, "create table o (id int, ts timestamp)", f"insert into o values (1, '{T1}'), (1, '{T1}')")
    with pytest.raises(ConfigError, match=r"the same id \(1\)"):
        Reader(Postgres(database, "o", key=["id"], cursor="ts")).batch()


def test_rows_that_are_there_at_a_latest_start_are_not_read_later(table: str) -> None:
    """Also those that tie with what comes."""
    orders = reader(table, start="latest")
    run(table, f"insert into o values (1, '{T1}')")
    first = orders.batch()
    run(table, f"insert into o values (2, '{T1}')")
    assert (first, orders.batch()) == ([], [2])


def test_a_mark_that_was_set_by_hand_is_read_above(table: str) -> None:
    """Nobody knows which of its rows were read, and somebody said: up to here."""
    orders = reader(table)
    run(table, f"insert into o values (1, '{T1}'), (2, '{T2}')")
    orders.batch()
    assert orders.mark is not None
    orders.mark = orders.mark.set_value(T1)
    assert orders.batch() == [2]


def test_a_start_that_ends_below_the_mark_forgets_nothing_of_it(table: str) -> None:
    """The mark stays where it is, and so does what was read there."""
    orders = reader(table)
    run(table, f"insert into o values (1, '{T1}'), (2, '{T2}')")
    orders.batch()
    again = orders.source.look(orders.mark, Request(start=T1, max_rows=1, extras=orders.extras), no_session)
    assert again.span is not None
    assert (ids(orders.source, again.span), again.extras) == ([1], orders.extras)


def many(first: int, last: int, at: str) -> str:
    return f"insert into o select n, '{at}' from generate_series({first}, {last}) n"


def test_what_is_remembered_stays_under_64_kilobytes(table: str) -> None:
    """Four thousand keys fit; the record is small whatever the table does."""
    orders = reader(table)
    run(table, many(1, 4000, T1))
    delivered = orders.batch()
    run(table, f"insert into o values (5000, '{T1}')")
    assert (len(delivered), orders.batch()) == (4000, [5000])
    assert len(json.dumps(orders.extras)) < 64 * 1024


def test_rows_below_a_tie_that_cannot_be_remembered_are_read_and_then_somebody_decides(table: str) -> None:
    """Twenty thousand rows of one statement, and nothing that says that no more come."""
    orders = reader(table)
    run(table, f"insert into o values (0, '{T1}')", many(1, 20_000, T2))
    assert orders.batch() == [0]
    with pytest.raises(TiesTooMany, match=r"\[ts, id\]"):
        orders.batch()


def test_a_tie_that_cannot_be_remembered_is_read_once_something_lies_above_it(table: str) -> None:
    """Then the mark is not within it."""
    orders = reader(table)
    run(table, many(1, 20_000, T1), f"insert into o values (20001, '{T2}')")
    assert (len(orders.batch()), orders.batch()) == (20_001, [])


def test_max_rows_passes_a_tie_that_cannot_be_remembered(table: str) -> None:
    """It is never cut, so the batch ends at the next value."""
    orders = reader(table, max_rows=10)
    run(table, many(1, 20_000, T1), many(20_001, 20_040, T2))
    assert (len(orders.batch()), orders.batch()) == (20_040, [])


class FinalUpTo:
    """A fence that was passed at a value."""

    def __init__(self, probe: TableProbe, value: str) -> None:
        self.probe, self.value = probe, value

    def bounds(
        self, low: LowerBound, max_rows: int | None, upper: Sequence[UpperBound], request: Request
    ) -> SafeBounds:
        every = (*upper, UpperBound((self.value,), reason="may still get company", is_final=True))
        return SafeBounds(self.probe.bounds(low, max_rows, every), every)


def test_a_tie_that_cannot_be_remembered_is_read_once_it_is_final(table: str) -> None:
    """With an open bound: there is nothing to remember."""
    run(table, many(1, 20_000, T1), f"insert into o values (20001, '{T2}')")
    probe = Postgres(table, "o", cursor="ts").probe()
    sight = TableLook("o", "o", "o", Cursor("ts"), probe, guard=FinalUpTo(probe, T1)).look(None, Request())
    assert sight.span is not None
    assert (sight.span.upto.show(), sight.extras, sight.expected_rows) == (T1, {}, 20_000)
    assert (sight.held_back, sight.held_reason) == (1, "1 rows may still get company")


def test_a_tie_that_cannot_be_remembered_is_read_behind_a_passed_fence(table: str) -> None:
    """As after a bulk update: nobody else writes, so nothing can come at its moment any more."""
    orders = Reader(Postgres(table, "o", cursor="ts"))
    run(table, many(1, 20_000, T1))
    assert (len(orders.batch()), orders.batch(), "ties" in orders.extras) == (20_000, [], False)


def test_a_day_is_not_over_because_nobody_writes_now(database: str) -> None:
    """Rows of a day come until it ends, so what cannot be remembered of the last one waits."""
    run(database, "create table o (id int primary key, day date default now())")
    run(database, "insert into o values (0, '2024-01-01')")
    run(database, "insert into o select n, '2024-01-02' from generate_series(1, 20000) n")
    orders = Reader(Postgres(database, "o", cursor="day"))
    first, held = orders.batch(), orders.look()
    run(database, "insert into o values (20001, '2024-01-02'), (20002, '2024-01-03')")
    assert (first, held.span, held.held_back) == ([0], None, 20_000)
    assert len(orders.batch()) == 20_002


def test_text_in_the_databases_own_order_is_compared_by_the_database(database: str) -> None:
    """Without a word about bytes, so that the column's own index serves; other orders are tried behind JDBC."""
    run(database, "create table o (id int primary key, code text not null unique)")
    run(database, "insert into o values (1, 'a'), (2, 'b')")
    words = reader(database, "code", collation="database")
    first = words.batch()
    run(database, "insert into o values (3, 'c'), (4, 'd')")
    words.max_rows = 1
    assert (first, [words.batch(), words.batch(), words.batch()]) == ([1, 2], [[3], [4], []])
    assert "COLLATE" not in words.source.probe().query(LowerBound(("d",))).bounds_sql(1)


def test_a_table_whose_text_went_back_in_its_own_order_is_noticed(database: str) -> None:
    """By the database: b is gone, and a is not above it."""
    run(database, "create table o (id int primary key, code text not null unique)")
    run(database, "insert into o values (1, 'a'), (2, 'b')")
    words = reader(database, "code", collation="database")
    words.batch()
    run(database, "delete from o where code = 'b'")
    with pytest.raises(SourceRegressed):
        words.look()


def test_an_order_of_its_own_is_for_one_column_of_text(table: str) -> None:
    """Numbers and times have one order."""
    with pytest.raises(ConfigError, match="about one column of text"):
        reader(table, "ts", collation="database").look()
