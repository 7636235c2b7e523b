"""Names and values in statements about a table: quoted and typed, never pasted."""

from __future__ import annotations

import pytest

from floodmark.errors import ConfigError, SourceUnreadable
from floodmark.postgres import Address
from floodmark.probes.tables import CursorColumn, ResolvedCursor
from floodmark.probes.tables.dialects import Ansi, Postgres, Sqlite
from floodmark.probes.tables.queries import Conditions
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


def test_a_text_with_quotes_is_one_literal() -> None:
    """The value of the specification."""
    assert Postgres().literal("o'brien; --", WORD) == "CAST('o''brien; --' AS text)"
    assert Sqlite().literal("o'brien; --", WORD) == "'o''brien; --'"


def test_text_is_compared_by_its_bytes() -> None:
    """A mark is compared so here too; the order of a language is the database's alone."""
    cursor = ResolvedCursor((WORD,))
    assert Conditions(Postgres(), cursor).at_or_below(("a",)) == """fm."word" COLLATE "C" <= CAST('a' AS text)"""
    assert Conditions(Sqlite(), cursor).at_or_below(("a",)) == """fm."word" COLLATE BINARY <= 'a'"""


def test_a_backslash_means_itself_whatever_the_server_is_set_to() -> None:
    """A server may take backslashes in a plain text for escapes."""
    assert Postgres().literal("a\\'", WORD) == "CAST(E'a\\\\''' AS text)"


def test_a_zero_byte_is_refused() -> None:
    """No database can compare it, and C code would end the statement there."""
    with pytest.raises(SourceUnreadable):
        Postgres().literal("a\0b", WORD)


def test_numbers_in_sqlite_are_digits_and_nothing_else() -> None:
    """A literal without quotes has to be a number."""
    assert Sqlite().literal("9007199254740993", SEQ) == "9007199254740993"
    with pytest.raises(ValueError, match="1 or 1"):
        Sqlite().literal("1 or 1", SEQ)


def test_an_address_never_shows_its_login() -> None:
    """Neither in its text nor in its repr."""
    address = Address.parse("postgresql://ann:s3cret@db.example:5433/shop?sslmode=require")
    assert str(address) == "db.example:5433/shop"
    assert "s3cret" not in repr(address)
    assert address.options == {"sslmode": "require"}


@pytest.mark.parametrize(
    "url", ["postgresql://ann:s3cret@db:port/shop", "postgresql://ann:s3cret@db:1,2/shop", "s3cret"]
)
def test_a_url_that_cannot_be_read_is_not_quoted(url: str) -> None:
    """The message of the driver may hold the password."""
    with pytest.raises(ConfigError) as caught:
        Address.parse(url)
    assert "s3cret" not in str(caught.value)
    assert caught.value.__cause__ is None
