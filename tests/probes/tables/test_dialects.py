"""Names and values in statements about a table: quoted and typed, never pasted."""

from __future__ import annotations

import pytest

from floodmark.errors import SourceUnreadable
from floodmark.probes.tables import CursorColumn, ResolvedCursor
from floodmark.probes.tables.dialects import Postgres, Sqlite
from floodmark.probes.tables.queries import Conditions

SEQ = CursorColumn("seq", "int", "bigint")
WORD = CursorColumn("word", "text", "text")
VALUES = {"after": "3", "upto": "5", "first_run": "FALSE"}


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
