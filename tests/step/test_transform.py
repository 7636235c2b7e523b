"""What is known about a transform without running it."""

from __future__ import annotations

from datetime import datetime, timezone

import pytest

from floodmark.errors import ConfigError
from floodmark.step import Function, Sql
from floodmark.step.repeatable import volatile_calls
from floodmark.step.transform import program_fingerprint

NOON = datetime(2026, 11, 15, 12, 0, tzinfo=timezone.utc)


@pytest.mark.parametrize(
    "query",
    [
        "select * from source",
        "select id, upper(name) as name, amount * 100 as cents from source where amount > 0",
        "with big as (select * from source where n > 5) select count(*) as n, max(id) as top from big",
        "select id, :batch_time as seen_at from source",
    ],
)
def test_plain_queries_over_the_source_are_known_to_repeat(query: str) -> None:
    """They need no spool."""
    assert Sql(query).is_deterministic()


@pytest.mark.parametrize(
    "query",
    [
        "select *, current_timestamp() as at from source",
        "select *, now() as at from source",
        "select *, uuid() as u from source",
        "select *, rand() as r from source",
        "select my_function(id) from source",
        "select * from source limit 5",
        "select sum(amount) from source",
        "select *, row_number() over (order by day) as n from source",
        "select s.* from source s join other_table o on s.id = o.id",
        "select first(name) from source group by id",
    ],
)
def test_whatever_may_answer_otherwise_the_second_time_is_not(query: str) -> None:
    """A clock, chance, an order that ties, another table, a function nobody knows: such a batch is spooled."""
    assert not Sql(query).is_deterministic()


@pytest.mark.parametrize(
    "call",
    [
        "sum(id)", "regr_count(id, n)", "bitmap_or_agg(b)", "hll_sketch_agg(id)", "try_sum(id)", "kurtosis(id)",
        "percentile_disc(0.5) within group (order by id)", "my_function(id)", "tools.my_function(id)",
    ],
)  # fmt: skip
def test_a_call_that_may_make_one_row_of_many_is_not_taken_for_row_by_row(call: str) -> None:
    """An aggregate of Spark that the parser does not know, or a function that only the user knows."""
    assert not Sql(f"select {call} as x from source").is_row_by_row()


@pytest.mark.parametrize("call", ["upper(name)", "explode(xs)", "uuid()", "if(n > 1, cast(n as int), 0)"])
def test_a_call_over_one_row_is_row_by_row(call: str) -> None:
    """Its rows are judged and counted in the pass that writes."""
    assert Sql(f"select {call} as x from source where n > 0").is_row_by_row()


def test_the_place_of_a_row_is_carried_through_a_function_of_the_user() -> None:
    """It is nearly always one of a row; where it is an aggregate, Spark refuses the query."""
    text = Sql("select my_function(id) as x from source").sql_over({"source": "v1"}, NOON, carried=["_fm_position"])
    assert text == "select my_function(id) as x , _fm_position from v1 AS `source`"


def test_the_place_of_a_row_is_not_carried_through_an_aggregate() -> None:
    """The row of all rows has none; Spark would refuse the query."""
    text = Sql("select regr_count(id, n) as x from source").sql_over({"source": "v1"}, NOON, carried=["_fm_position"])
    assert text == "select regr_count(id, n) as x from v1 AS `source`"


def test_only_the_table_named_source_is_replaced() -> None:
    """Columns, texts, aliases, tables of a schema and the query's own names stay as they were written."""
    query = "with x as (select source from `source`) select 'source', db.source.id from Source s, db.source"
    assert Sql(query).sql_over({"source": "v1"}, NOON) == (
        "with x as (select source from v1 AS `source`) select 'source', db.source.id from v1 s, db.source"
    )


def test_a_query_that_names_its_own_source_keeps_it() -> None:
    """A common table expression hides the table of the same name."""
    query = "with source as (select 1 as id) select * from source"
    assert Sql(query).sql_over({"source": "v1"}, NOON) == query


def test_batch_time_is_a_literal_and_never_touched_inside_a_text() -> None:
    """It is our own value, so nothing of a user's is pasted."""
    written = Sql("select ':batch_time', :batch_time from source").sql_over({"source": "v"}, NOON)
    assert written == "select ':batch_time', TIMESTAMP '2026-11-15 12:00:00+00:00' from v AS `source`"


@pytest.mark.parametrize(
    ("query", "written"),
    [
        ("select id, v from source", "select id, v , _fm_position from v1 AS `source`"),
        (
            "select extract(year from t) as y\nfrom source where id > 1",
            "select extract(year from t) as y\n, _fm_position from v1 AS `source` where id > 1",
        ),
    ],
)
def test_a_plain_select_carries_the_position_for_the_sinks(query: str, written: str) -> None:
    """Else a narrow list of columns would cost a keyed sink the order of the source."""
    assert Sql(query).sql_over({"source": "v1"}, NOON, carried=["_fm_position"]) == written


@pytest.mark.parametrize(
    "query",
    [
        "select * from source",
        "select s.* from source s",
        "select distinct id from source",
        "select id, count(*) as n from source group by id",
        "select max(id) as id from source",
        "select a.id from source a join source b on a.id = b.id",
        "with x as (select id from source) select id from x",
        "select id from (select id from source) t",
        "select id from source union all select id from source",
    ],
)
def test_where_a_row_is_no_longer_one_of_the_source_nothing_is_added(query: str) -> None:
    """A star has it already; a group or a join has no one position."""
    written = Sql(query).sql_over({"source": "v1"}, NOON, carried=["_fm_position"])
    assert "_fm_position" not in written


def test_sql_that_cannot_be_parsed_says_where() -> None:
    """Before anything runs."""
    with pytest.raises(ConfigError, match="cannot be parsed"):
        Sql("select from where").is_deterministic()


def test_a_function_changes_its_fingerprint_with_its_code() -> None:
    """Also where only a constant, or a function inside it, changed."""
    prints = {
        Function(f).fingerprint() for f in (lambda df: 1, lambda df: 2, lambda df: lambda: 1, lambda df: lambda: 2)
    }
    assert len(prints) == 4


def test_the_program_of_a_function_is_the_file_it_stands_in() -> None:
    """Two functions of one module share it; SQL has only our own version."""
    here, there = Function(lambda df: df), Function(lambda df: None)
    assert program_fingerprint(here) == program_fingerprint(there) != program_fingerprint(Sql("select 1"))


@pytest.mark.parametrize(
    ("sql", "calls"),
    [
        ("select now() as t from source", {"now": "clock"}),
        ("select current_date as d, uuid() as u from source", {"current_date": "clock", "uuid": "chance"}),
        ("select monotonically_increasing_id() as n from source", {"monotonically_increasing_id": "partition"}),
        ("select first(v) as v, ours(v) as w from source", {"first": "order", "ours": "unknown"}),
        ("select upper(v) as v from source where id > 1", {}),
    ],
)
def test_each_call_that_may_answer_otherwise_has_its_reason(sql: str, calls: dict[str, str]) -> None:
    """One list decides what is frozen and what `lint` warns of."""
    assert volatile_calls(sql) == calls
