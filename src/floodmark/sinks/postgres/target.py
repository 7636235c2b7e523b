"""The table a PostgreSQL sink writes to: its name, the columns it has and gets, and the statements that make them.

Also which PostgreSQL type holds a Spark type, how its values travel through COPY, and the way back.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from floodmark.errors import ConfigError
from floodmark.locations import quote

if TYPE_CHECKING:
    from psycopg import Connection
    from psycopg.sql import Composed, Identifier
    from pyspark.sql import Column
    from pyspark.sql.types import DataType, StructField

PLAIN = {
    "boolean": "boolean",
    "tinyint": "smallint",
    "smallint": "smallint",
    "int": "integer",
    "bigint": "bigint",
    "float": "real",
    "double": "double precision",
    "string": "text",
    "void": "text",
    "date": "date",
    "timestamp": "timestamp with time zone",
    "timestamp_ntz": "timestamp without time zone",
    "binary": "bytea",
    "variant": "jsonb",
}
NESTED = ("struct", "array", "map")
NUMERIC = re.compile(r"numeric\((\d+),(\d+)\)")
NOTE = "floodmark: "
"""Begins the comment of a column that we made and whose PostgreSQL type does not tell the Spark type."""
COLUMNS_OF_TABLE = """
SELECT a.attname, format_type(a.atttypid, a.atttypmod), col_description(a.attrelid, a.attnum)
FROM pg_attribute a JOIN pg_class c ON c.oid = a.attrelid JOIN pg_namespace n ON n.oid = c.relnamespace
WHERE n.nspname = %s AND c.relname = %s AND a.attnum > 0 AND NOT a.attisdropped ORDER BY a.attnum
"""
SCHEMA_OF_TABLE = """
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
class Target:
    """The table as it was found: no columns means that it is not there."""

    schema: str
    table: str
    columns: tuple[TargetColumn, ...] = ()

    @classmethod
    def read(cls, connection: Connection, name: str) -> Target:
        schema, table = split_name(name)
        if schema is None:
            row = connection.execute(SCHEMA_OF_TABLE, [table]).fetchone()
            schema = str(row[0]) if row else "public"
        rows = connection.execute(COLUMNS_OF_TABLE, [schema, table]).fetchall()
        return cls(schema, table, tuple(TargetColumn(*row) for row in rows))

    @property
    def exists(self) -> bool:
        return bool(self.columns)

    @property
    def sql(self) -> Composed:
        from psycopg.sql import SQL, Identifier

        return SQL("{}").format(Identifier(self.schema, self.table))

    def columns_for(self, fields: Sequence[StructField]) -> tuple[TargetColumn, ...]:
        """For each field of the rows its column here, found without regard to case as Spark does, or a new one."""
        known = {column.name.lower(): column for column in self.columns}
        return tuple(known.get(field.name.lower()) or _new_column(field) for field in fields)

    def has_unique(self, connection: Connection, key: Sequence[str]) -> bool:
        return connection.execute(UNIQUE, [self.schema, self.table, sorted(key)]).fetchone() is not None

    def takes_copy(self, connection: Connection) -> bool:
        """Whether COPY into it does what INSERT does."""
        return connection.execute(TAKES_COPY, [self.schema, self.table]).fetchone() == (True,)

    def ddl(self, columns: Sequence[TargetColumn], key: Sequence[str]) -> Iterator[Composed]:
        """What makes the table, or adds to it what it does not have; a merge's key becomes the primary key."""
        from psycopg.sql import SQL, Identifier

        if not self.exists:
            primary = [SQL("PRIMARY KEY ({})").format(SQL(", ").join(map(Identifier, key)))] if key else []
            parts = SQL(", ").join([*(column.definition() for column in columns), *primary])
            yield SQL("CREATE TABLE {} ({})").format(self.sql, parts)
        fresh = [column for column in columns if column.is_new]
        if self.exists and fresh:
            added = SQL(", ").join(SQL("ADD COLUMN {}").format(column.definition()) for column in fresh)
            yield SQL("ALTER TABLE {} {}").format(self.sql, added)
        yield from self._comments(columns)

    def _comments(self, columns: Sequence[TargetColumn]) -> Iterator[Composed]:
        """What tells the drift check the Spark types of new columns."""
        from psycopg.sql import SQL, Identifier, Literal

        for column in (column for column in columns if column.is_new and column.note):
            place = Identifier(self.schema, self.table, column.name)
            yield SQL("COMMENT ON COLUMN {} IS {}").format(place, Literal(column.note))


@dataclass(frozen=True)
class TargetColumn:
    """A column as the target spells it; `note` is the comment that a column of our own making gets."""

    name: str
    type: str
    note: str | None = None
    is_new: bool = False

    def definition(self) -> Composed:
        from psycopg.sql import SQL

        return SQL("{} {}").format(self.name_sql(), SQL(self.type))

    def name_sql(self) -> Identifier:
        from psycopg.sql import Identifier

        return Identifier(self.name)

    @property
    def is_text(self) -> bool:
        return self.type == "text" or self.type.startswith(("character", '"char"', "name"))


def not_older(new: str, sequence: Sequence[TargetColumn]) -> Composed:
    """Left to right, with NULL below every value."""
    from psycopg.sql import SQL

    rest = SQL(" AND {}").format(not_older(new, sequence[1:])) if len(sequence) > 1 else SQL("")
    ours, stored = (sortable(side, sequence[0]) for side in (new, "t"))
    above = "({n} > {o} OR ({o} IS NULL AND {n} IS NOT NULL) OR ({n} IS NOT DISTINCT FROM {o}{rest}))"
    return SQL(above).format(n=ours, o=stored, rest=rest)


def sortable(side: str, column: TargetColumn) -> Composed:
    """Texts by their bytes, as Spark orders them and the other sinks do, whatever the database's language is."""
    from psycopg.sql import SQL, Identifier

    return SQL("{}{}").format(Identifier(side, column.name), SQL(' COLLATE "C"' if column.is_text else ""))


def _new_column(field: StructField) -> TargetColumn:
    kind = postgres_type(field.dataType)
    if kind is None:
        raise ConfigError(
            f"column {field.name} is {field.dataType.simpleString()}, which PostgreSQL has no type for.",
            hint="cast it in the transform, to string for instance",
        )
    return TargetColumn(field.name, kind, note_of(field.dataType), is_new=True)


def split_name(name: str) -> tuple[str | None, str]:
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


def postgres_type(kind: DataType) -> str | None:
    """The type of a column that we make; None if PostgreSQL has no place for such values."""
    name = kind.simpleString()
    if name.startswith("decimal"):
        return f"numeric{name.removeprefix('decimal')}"
    if name.startswith("time("):
        return "time without time zone"
    if name.startswith(("varchar", "char")):
        return "text"
    return "jsonb" if kind.typeName() in NESTED else PLAIN.get(name)


def note_of(kind: DataType) -> str | None:
    """What the column's comment has to say so that the drift check knows its Spark type again."""
    column = postgres_type(kind)
    if column is None or kind.simpleString() in ("void", spark_type(column, None).simpleString()):
        return None
    return NOTE + kind.json()


def spark_type(postgres: str, comment: str | None) -> DataType:
    """The Spark type whose rows a column takes; anything that PostgreSQL parses from text takes strings."""
    from pyspark.sql import types as T

    if comment and comment.startswith(NOTE):
        one = {"name": "c", "type": json.loads(comment.removeprefix(NOTE)), "nullable": True, "metadata": {}}
        return T.StructType.fromJson({"type": "struct", "fields": [one]}).fields[0].dataType
    if postgres.startswith("numeric"):
        return _decimal(postgres)
    if postgres.startswith("timestamp"):
        return T.TimestampType() if postgres.endswith("with time zone") else T.TimestampNTZType()
    known = {"boolean": T.BooleanType, "smallint": T.ShortType, "integer": T.IntegerType, "bigint": T.LongType}
    more = {"real": T.FloatType, "double precision": T.DoubleType, "date": T.DateType, "bytea": T.BinaryType}
    return {**known, **more}.get(postgres, T.StringType)()


def _decimal(postgres: str) -> DataType:
    from pyspark.sql.types import DecimalType

    digits = NUMERIC.fullmatch(postgres)
    precision, scale = (int(digits[1]), int(digits[2])) if digits else (38, 18)
    return DecimalType(precision, scale) if precision <= 38 and scale <= precision else DecimalType(38, 18)


def transfer_type(field: StructField) -> str:
    """The Spark type that a value has on its way: what PostgreSQL keeps as text or JSON is text."""
    kind = field.dataType
    name = kind.simpleString()
    is_text = (
        kind.typeName() in (*NESTED, "variant") or name == "void" or name.startswith(("string", "varchar", "char"))
    )
    return "string" if is_text else name


def binary_column(field: StructField) -> Column:
    """The column as the binary format takes it; whatever Arrow holds as PostgreSQL does goes as it is."""
    from pyspark.sql import functions as F

    column = F.col(quote(field.name))
    if field.dataType.typeName() in (*NESTED, "variant"):
        return F.to_json(column, {"ignoreNullFields": "false"}).alias(field.name)
    return column.cast("string").alias(field.name) if field.dataType.simpleString() == "void" else column


def text_column(field: StructField) -> Column:
    """The column as CSV takes it: what Arrow does not write as PostgreSQL reads it becomes text in Spark."""
    from pyspark.sql import functions as F

    column, name = F.col(quote(field.name)), field.dataType.simpleString()
    if name == "binary":
        return F.concat(F.lit("\\x"), F.hex(column)).alias(field.name)
    return column.cast("string").alias(field.name) if name.startswith("time(") else binary_column(field)
