"""The table a PostgreSQL sink writes to: its name, the columns it has and gets, and the statements that make them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from floodmark.errors import ConfigError
from floodmark.sinks.postgres_types import note_of, postgres_type

if TYPE_CHECKING:
    from psycopg import Connection
    from psycopg.sql import Composed
    from pyspark.sql.types import StructField

FOUND = """
SELECT a.attname, format_type(a.atttypid, a.atttypmod), col_description(a.attrelid, a.attnum)
FROM pg_attribute a JOIN pg_class c ON c.oid = a.attrelid JOIN pg_namespace n ON n.oid = c.relnamespace
WHERE n.nspname = %s AND c.relname = %s AND a.attnum > 0 AND NOT a.attisdropped ORDER BY a.attnum
"""
HOME = """
SELECT coalesce((SELECT n.nspname FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
                 WHERE c.oid = to_regclass(quote_ident(%s))), current_schema(), 'public')
"""
UNIQUE = """
SELECT 1 FROM pg_index i JOIN pg_class c ON c.oid = i.indrelid JOIN pg_namespace n ON n.oid = c.relnamespace
WHERE n.nspname = %s AND c.relname = %s AND i.indisunique AND i.indisvalid AND i.indimmediate
  AND i.indpred IS NULL AND i.indexprs IS NULL
  AND (SELECT array_agg(a.attname::text ORDER BY a.attname::text)
       FROM unnest(i.indkey[0:i.indnkeyatts - 1]) AS k(attnum)
       JOIN pg_attribute a ON a.attrelid = c.oid AND a.attnum = k.attnum) = %s
"""
TAKES_COPY = """
SELECT c.relkind IN ('r', 'p') AND NOT c.relhasrules AND NOT row_security_active(c.oid)
FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace WHERE n.nspname = %s AND c.relname = %s
"""


@dataclass(frozen=True)
class TargetColumn:
    """A column as the target spells it; `note` is the comment that a column of our own making gets."""

    name: str
    type: str
    note: str | None = None
    is_new: bool = False

    def defined(self) -> Composed:
        from psycopg.sql import SQL, Identifier

        return SQL("{} {}").format(Identifier(self.name), SQL(self.type))

    @property
    def is_text(self) -> bool:
        return self.type == "text" or self.type.startswith(("character", '"char"', "name"))


@dataclass(frozen=True)
class Target:
    """The table as it was found: no columns means that it is not there."""

    schema: str
    table: str
    columns: tuple[TargetColumn, ...] = ()

    @classmethod
    def found(cls, connection: Connection, name: str) -> Target:
        schema, table = split(name)
        if schema is None:
            row = connection.execute(HOME, [table]).fetchone()
            schema = str(row[0]) if row else "public"
        rows = connection.execute(FOUND, [schema, table]).fetchall()
        return cls(schema, table, tuple(TargetColumn(*row) for row in rows))

    @property
    def exists(self) -> bool:
        return bool(self.columns)

    @property
    def sql(self) -> Composed:
        from psycopg.sql import SQL, Identifier

        return SQL("{}").format(Identifier(self.schema, self.table))

    def fitted(self, fields: Sequence[StructField]) -> tuple[TargetColumn, ...]:
        """For each field of the rows its column here, found without regard to case as Spark does, or a new one."""
        known = {column.name.lower(): column for column in self.columns}
        return tuple(known.get(field.name.lower()) or _new(field) for field in fields)

    def has_unique(self, connection: Connection, key: Sequence[str]) -> bool:
        return connection.execute(UNIQUE, [self.schema, self.table, sorted(key)]).fetchone() is not None

    def takes_copy(self, connection: Connection) -> bool:
        """Whether COPY into it does what INSERT does."""
        return connection.execute(TAKES_COPY, [self.schema, self.table]).fetchone() == (True,)

    def made(self, columns: Sequence[TargetColumn], key: Sequence[str]) -> Iterator[Composed]:
        """What makes the table, or adds to it what it does not have; a merge's key becomes the primary key."""
        from psycopg.sql import SQL, Identifier

        if not self.exists:
            primary = [SQL("PRIMARY KEY ({})").format(SQL(", ").join(map(Identifier, key)))] if key else []
            parts = SQL(", ").join([*(column.defined() for column in columns), *primary])
            yield SQL("CREATE TABLE {} ({})").format(self.sql, parts)
        fresh = [column for column in columns if column.is_new]
        if self.exists and fresh:
            added = SQL(", ").join(SQL("ADD COLUMN {}").format(column.defined()) for column in fresh)
            yield SQL("ALTER TABLE {} {}").format(self.sql, added)
        yield from self.noted(columns)

    def noted(self, columns: Sequence[TargetColumn]) -> Iterator[Composed]:
        """What tells the drift check the Spark types of new columns."""
        from psycopg.sql import SQL, Identifier, Literal

        for column in (column for column in columns if column.is_new and column.note):
            place = Identifier(self.schema, self.table, column.name)
            yield SQL("COMMENT ON COLUMN {} IS {}").format(place, Literal(column.note))


def _new(field: StructField) -> TargetColumn:
    kind = postgres_type(field.dataType)
    if kind is None:
        raise ConfigError(
            f"column {field.name} is {field.dataType.simpleString()}, which PostgreSQL has no type for.",
            hint="cast it in the transform, to string for instance",
        )
    return TargetColumn(field.name, kind, note_of(field.dataType), is_new=True)


def split(name: str) -> tuple[str | None, str]:
    """`schema.table` or `table`, each part in double quotes where it holds a dot or a quote; taken as it is spelt."""
    parts, quoted = [""], False
    for sign in name:
        quoted ^= sign == '"'
        if sign == "." and not quoted:
            parts.append("")
        else:
            parts[-1] += sign
    plain = [p[1:-1].replace('""', '"') if len(p) > 1 and p[0] == p[-1] == '"' else p for p in parts]
    if quoted or not all(plain) or len(plain) > 2:
        raise ConfigError(f"table: {name!r} is not a table's name.", hint="schema.table, or table")
    return (plain[0] if len(plain) == 2 else None), plain[-1]
