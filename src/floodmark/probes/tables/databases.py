"""Databases behind JDBC that are known by name: how each limits a result, tells the time, and keeps its catalog.

What the standard spells for all of them is in `dialects.Ansi`; of a database that is not here, only that is used.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass

from floodmark.probes.tables import CursorColumn, CursorValue
from floodmark.probes.tables.dialects import Ansi, text_literal
from floodmark.probes.tables.relation import Catalog, Relation

PRIMARY, UNIQUE, REQUIRED = "P", "U", "N"
"""What a row of the catalog tells: a column of the primary key, of a unique index, or one that is never null."""


class KnownDatabase(Ansi, ABC):
    """A database whose catalog can be asked, and whose rows of one cursor value can be told apart by their key.

    A key travels as the hexadecimal digits of its texts: no collation takes two of those for one.
    """

    encoding = "utf-8"

    @abstractmethod
    def catalog_sql(self, relation: Relation) -> str:
        """Rows of (what, index, place, column); a column that is NULL makes its index useless to us."""

    @abstractmethod
    def hex_of(self, expression: str) -> str:
        """The bytes of an expression's text, in `encoding`, as hexadecimal digits."""

    def joined(self, texts: Sequence[str]) -> str:
        """Texts with a dash between them."""
        return " || '-' || ".join(texts)

    def pack(self, expressions: Sequence[str]) -> str:
        return self.joined([self.hex_of(each) for each in expressions])

    def pack_literal(self, texts: CursorValue) -> str:
        return text_literal("-".join(text.encode(self.encoding).hex().upper() for text in texts))

    def unpack_key(self, value: object, width: int) -> CursorValue | None:
        if value is None:
            return None
        return tuple(bytes.fromhex(part).decode(self.encoding) for part in str(value).strip().split("-"))


@dataclass(frozen=True)
class MySql(KnownDatabase):
    """MySQL and MariaDB."""

    mark: str = "`"

    def literal(self, value: str | None, column: CursorColumn) -> str:
        """A backslash in a text is doubled, since it means something here."""
        escaped = value.replace("\\", "\\\\") if value is not None and column.kind == "text" else value
        return super().literal(escaped, column)

    def page(self, offset: int, rows: int) -> str:
        return f"LIMIT {rows} OFFSET {offset}"

    def ahead(self, column: CursorColumn, seconds: float) -> str:
        """By the session's zone, in which a TIMESTAMP is shown, and which is the server's unless somebody set it."""
        self.require_moment(column)
        return self.as_column(f"(CURRENT_TIMESTAMP(6) + INTERVAL {seconds:.6f} SECOND)", column)

    def hex_of(self, expression: str) -> str:
        return f"HEX(CONVERT(CAST({expression} AS CHAR) USING utf8mb4))"

    def joined(self, texts: Sequence[str]) -> str:
        """Without CONCAT_WS, which leaves a NULL out."""
        return texts[0] if len(texts) == 1 else "CONCAT(" + ", '-', ".join(texts) + ")"

    def catalog_sql(self, relation: Relation) -> str:
        where = _where(relation, "TABLE_SCHEMA", "DATABASE()")
        what = f"CASE WHEN INDEX_NAME = 'PRIMARY' THEN '{PRIMARY}' ELSE '{UNIQUE}' END"
        whole = "CASE WHEN SUB_PART IS NULL THEN COLUMN_NAME END"
        return (
            f"SELECT {what} w, INDEX_NAME i, SEQ_IN_INDEX p, {whole} c FROM INFORMATION_SCHEMA.STATISTICS"
            f" WHERE NON_UNIQUE = 0 AND {where} UNION ALL {_required(where)}"
        )


@dataclass(frozen=True)
class H2(KnownDatabase):
    """H2, from version 2 on."""

    def ahead(self, column: CursorColumn, seconds: float) -> str:
        """Its session has the zone of the JVM that asks."""
        self.require_moment(column)
        return self.as_column(f"DATEADD('MILLISECOND', {round(seconds * 1000)}, LOCALTIMESTAMP)", column)

    def hex_of(self, expression: str) -> str:
        return f"UPPER(RAWTOHEX(STRINGTOUTF8(CAST({expression} AS VARCHAR))))"

    def text_of(self, expression: str, column: CursorColumn) -> str:
        return expression if column.kind == "text" else f"CAST({expression} AS VARCHAR(64))"

    def catalog_sql(self, relation: Relation) -> str:
        where = _where(relation, "TABLE_SCHEMA", "SCHEMA()")
        what = f"CASE WHEN i.INDEX_TYPE_NAME = 'PRIMARY KEY' THEN '{PRIMARY}' ELSE '{UNIQUE}' END"
        both = "c.INDEX_SCHEMA = i.INDEX_SCHEMA AND c.INDEX_NAME = i.INDEX_NAME"
        mine = where.replace("TABLE_", "i.TABLE_")
        return (
            f"SELECT {what} w, i.INDEX_NAME i, c.ORDINAL_POSITION p, c.COLUMN_NAME c"
            f" FROM INFORMATION_SCHEMA.INDEXES i JOIN INFORMATION_SCHEMA.INDEX_COLUMNS c ON {both}"
            f" WHERE i.INDEX_TYPE_NAME IN ('PRIMARY KEY', 'UNIQUE INDEX') AND {mine} UNION ALL {_required(where)}"
        )


@dataclass(frozen=True)
class SqlServer(KnownDatabase):
    """Microsoft SQL Server, from 2012 on."""

    encoding = "utf-16-le"

    def literal(self, value: str | None, column: CursorColumn) -> str:
        if value is None or column.kind in ("int", "decimal", "text"):
            return super().literal(value, column)
        kind = "date" if column.kind == "date" else "datetime2(7)"
        return f"CAST({text_literal(value.replace(' ', 'T'))} AS {kind})"

    def ahead(self, column: CursorColumn, seconds: float) -> str:
        """The server's own time, whole seconds."""
        self.require_moment(column)
        return self.as_column(f"DATEADD(second, {int(seconds // 1)}, SYSDATETIME())", column)

    def hex_of(self, expression: str) -> str:
        text = f"CAST({expression} AS nvarchar(4000))"
        return f"CONVERT(varchar(max), CONVERT(varbinary(max), {text}), 2)"

    def text_of(self, expression: str, column: CursorColumn) -> str:
        if column.kind == "text":
            return expression
        is_time = column.kind in ("date", "timestamp")
        return f"CONVERT(varchar(64), {expression}{', 126' if is_time else ''})"

    def joined(self, texts: Sequence[str]) -> str:
        return " + '-' + ".join(texts)

    def catalog_sql(self, relation: Relation) -> str:
        name = text_literal(".".join(self.quote(part) for part in relation.parts()))
        what = f"CASE WHEN i.is_primary_key = 1 THEN '{PRIMARY}' ELSE '{UNIQUE}' END"
        joins = "JOIN sys.index_columns k ON k.object_id = i.object_id AND k.index_id = i.index_id"
        joins += " JOIN sys.columns c ON c.object_id = k.object_id AND c.column_id = k.column_id"
        mine = f"object_id = OBJECT_ID(N{name})"
        return (
            f"SELECT {what} w, i.name i, k.key_ordinal p, c.name c FROM sys.indexes i {joins}"
            f" WHERE i.is_unique = 1 AND i.has_filter = 0 AND k.is_included_column = 0 AND i.{mine}"
            f" UNION ALL SELECT '{REQUIRED}', '', 0, name FROM sys.columns WHERE is_nullable = 0 AND {mine}"
        )


@dataclass(frozen=True)
class Oracle(KnownDatabase):
    """Oracle, from 12c on. Its DATE has a time of day, and comes as a timestamp."""

    def ahead(self, column: CursorColumn, seconds: float) -> str:
        """The server's own time."""
        self.require_moment(column)
        return f"(CAST(SYSTIMESTAMP AS TIMESTAMP) + NUMTODSINTERVAL({seconds:.3f}, 'SECOND'))"

    def hex_of(self, expression: str) -> str:
        return f"RAWTOHEX(UTL_RAW.CAST_TO_RAW(CONVERT(TO_CHAR({expression}), 'AL32UTF8')))"

    def text_of(self, expression: str, column: CursorColumn) -> str:
        if column.kind == "timestamp":
            return f"TO_CHAR(CAST({expression} AS TIMESTAMP), 'YYYY-MM-DD\"T\"HH24:MI:SS.FF6')"
        return expression if column.kind == "text" else f"TO_CHAR({expression})"

    def catalog_sql(self, relation: Relation) -> str:
        where = _where(relation, "OWNER", "SYS_CONTEXT('USERENV', 'CURRENT_SCHEMA')")
        mine = where.replace("OWNER", "a.OWNER").replace("TABLE_NAME", "a.TABLE_NAME")
        both = "k.OWNER = a.OWNER AND k.CONSTRAINT_NAME = a.CONSTRAINT_NAME"
        return (
            f"SELECT a.CONSTRAINT_TYPE w, a.CONSTRAINT_NAME i, k.POSITION p, k.COLUMN_NAME c FROM ALL_CONSTRAINTS a"
            f" JOIN ALL_CONS_COLUMNS k ON {both} WHERE a.CONSTRAINT_TYPE IN ('P', 'U') AND a.STATUS = 'ENABLED' AND"
            f" {mine} UNION ALL SELECT '{REQUIRED}', '', 0, COLUMN_NAME FROM ALL_TAB_COLUMNS"
            f" WHERE NULLABLE = 'N' AND {where}"
        )


BY_SCHEME: dict[str, Ansi] = {
    "mysql": MySql(),
    "mariadb": MySql(),
    "h2": H2(),
    "sqlserver": SqlServer(),
    "oracle": Oracle(),
}


def database_behind(url: str) -> Ansi:
    """How the database of a JDBC URL spells things; one that is not known by name, as the standard does."""
    _, _, rest = url.partition(":")
    return BY_SCHEME.get(rest.partition(":")[0].lower(), Ansi())


def parse_catalog_rows(rows: Sequence[Sequence[object]]) -> Catalog:
    """What the rows of `catalog_sql` say; a table without any unique index may be a view: then nobody knows."""
    indexes: dict[str, list[tuple[int, str | None]]] = {}
    primary = next((str(index) for what, index, _, _ in rows if what == PRIMARY), None)
    for what, index, place, column in rows:
        if what != REQUIRED:
            indexes.setdefault(str(index), []).append((int(str(place)), None if column is None else str(column)))
    whole = {
        index: [name for _, name in sorted(parts) if name is not None]
        for index, parts in indexes.items()
        if all(name is not None for _, name in parts)
    }
    required = frozenset(str(column) for what, _, _, column in rows if what == REQUIRED)
    unique = tuple(frozenset(columns) for columns in whole.values()) or None
    return Catalog(unique, tuple(whole.get(primary or "", ())), required)


def _where(relation: Relation, owner: str, current: str) -> str:
    """Which table; one that is named without a schema is of the session's own."""
    *schema, table = relation.parts()
    whose = text_literal(schema[-1]) if schema else current
    return f"{owner} = {whose} AND TABLE_NAME = {text_literal(table)}"


def _required(where: str) -> str:
    return (
        f"SELECT '{REQUIRED}', '', 0, COLUMN_NAME FROM INFORMATION_SCHEMA.COLUMNS WHERE IS_NULLABLE = 'NO' AND {where}"
    )
