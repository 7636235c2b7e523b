"""What PostgreSQL's catalog says of a table: its unique indexes, its primary key, and which columns are never null."""

from __future__ import annotations

import json

from floodmark.probes.cursor_columns import Catalog
from floodmark.probes.cursor_query import Relation
from floodmark.probes.cursor_sql import Postgres, text_literal

SQL = Postgres()
NAMES = (
    "SELECT json_agg(a.attname ORDER BY k.place)"
    " FROM unnest(CAST(i.indkey AS smallint[])) WITH ORDINALITY AS k(number, place)"
    " JOIN pg_attribute AS a ON a.attrelid = i.indrelid AND a.attnum = k.number WHERE k.place <= i.indnkeyatts"
)
"""The columns of an index, without those that it only carries along."""
INDEXES = (
    "FROM pg_index AS i WHERE i.indrelid = c.oid AND i.indisunique AND i.indisvalid AND i.indpred IS NULL"
    " AND 0 <> ALL (CAST(i.indkey AS smallint[]))"
)
"""Unique over the whole table and over plain columns."""
REQUIRED = "SELECT json_agg(attname) FROM pg_attribute WHERE attrelid = c.oid AND attnum > 0 AND attnotnull"


def catalog_sql(relation: Relation) -> str:
    """One statement, which gives one text that `catalog_told` understands; no row if the name is no table's."""
    table = text_literal(relation.sql(SQL.quote, {}))
    # A table with children gives their rows too, and its index does not know them.
    is_whole = (
        "c.relkind IN ('p', 'm') OR (c.relkind = 'r' AND NOT EXISTS (SELECT FROM pg_inherits WHERE inhparent = c.oid))"
    )
    facts = (
        f"'is_known', {is_whole}, 'required', ({REQUIRED}),"
        f" 'unique', (SELECT json_agg(({NAMES})) {INDEXES}), 'key', (SELECT ({NAMES}) {INDEXES} AND i.indisprimary)"
    )
    return f"SELECT CAST(json_build_object({facts}) AS text) FROM pg_class AS c WHERE c.oid = to_regclass({table})"


def catalog_told(text: str) -> Catalog:
    """What that statement said."""
    told = json.loads(text)
    if not told["is_known"]:
        return Catalog()
    unique = tuple(frozenset(names) for names in told["unique"] or ())
    return Catalog(unique, tuple(told["key"] or ()), frozenset(told["required"] or ()))
