"""A table is named piece by piece, and bounds are put where a query names them."""

from __future__ import annotations

import pytest

from floodmark.errors import ConfigError
from floodmark.probes.tables import CursorColumn
from floodmark.probes.tables.dialects import Ansi, Postgres
from floodmark.probes.tables.relation import Relation, for_jdbc

SEQ = CursorColumn("seq", "int", "bigint")
WORD = CursorColumn("word", "text", "text")
VALUES = {"after": "3", "upto": "5", "first_run": "FALSE"}


def filled(query: str) -> str:
    return Relation(query=query).sql(Postgres().quote, VALUES)


def test_a_table_is_named_piece_by_piece() -> None:
    """A schema and a table are two names, and each is quoted."""
    assert Relation(table="public.orders").sql(Postgres().quote, {}) == '"public"."orders"'


def test_a_piece_of_a_name_may_have_a_dot_in_quotes() -> None:
    """What stands between quotes is one name, quotes doubled within."""
    assert Relation(table='public."odd.na""me"').sql(Postgres().quote, {}) == '"public"."odd.na""me"'


def test_a_name_with_a_quote_in_it_stays_one_name() -> None:
    """Nobody gets out of a name."""
    assert Relation(table="o; drop table o").sql(Postgres().quote, {}) == '"o; drop table o"'
    assert Ansi("`").quote("a`b") == "`a``b`"


@pytest.mark.parametrize("table", ["", ".", "a..b", 'a."b', "a."])
def test_what_is_no_name_of_a_table_is_refused(table: str) -> None:
    """A half-written name is a mistake, and not some other table."""
    with pytest.raises(ConfigError):
        Relation(table=table).sql(Postgres().quote, {})


def test_a_source_reads_a_table_or_a_query_and_not_both() -> None:
    """Exactly one of them."""
    with pytest.raises(ConfigError):
        Relation(table="a", query="select 1")
    with pytest.raises(ConfigError):
        Relation()


def test_bounds_are_put_where_the_query_names_them() -> None:
    """The three names become literals, as often as they stand there."""
    query = "select * from o where (:first_run or seq > :after) and seq <= :upto and :after < 9"
    assert filled(query) == "(select * from o where (FALSE or seq > 3) and seq <= 5 and 3 < 9\n)"


@pytest.mark.parametrize(
    "innocent",
    [
        "':after'",
        "'it''s :after'",
        '":after"',
        "$$ :after $$",
        "$x$ :after $$ $x$",
        "-- :after\n",
        "/* :after */",
        "a::after",
        "a[1:after]",
        ":afterwards",
        "e'\\' :after'",
    ],
)
def test_what_only_looks_like_a_bound_stays(innocent: str) -> None:
    """Texts, names, comments, casts and slices are the user's own."""
    query = f"select {innocent} from o where seq > :after and seq <= :upto"
    assert filled(query) == f"(select {innocent} from o where seq > 3 and seq <= 5\n)"


@pytest.mark.parametrize("query", ["select :after", "select :upto", "select :first_run", "select :after, :first_run"])
def test_a_query_names_both_bounds_or_neither(query: str) -> None:
    """One of them alone would read too much or too little."""
    with pytest.raises(ConfigError):
        Relation(query=query)


def test_a_query_may_end_in_a_comment_or_a_semicolon() -> None:
    """What is put around it is not swallowed."""
    assert filled("select 1 -- the end") == "(select 1 -- the end\n)"
    assert filled("select 1; ") == "(select 1\n)"


def test_a_question_mark_is_no_parameter_of_jdbc() -> None:
    """The operators of jsonb have one; a text keeps its own."""
    assert for_jdbc("select tags ? 'a?' from o -- ?") == "select tags ?? 'a?' from o -- ?"
