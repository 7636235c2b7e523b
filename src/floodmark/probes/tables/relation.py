"""What a source reads from: a table by name, or a user's query; and how its cursor is found among the columns."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property

from floodmark.errors import ConfigError
from floodmark.probes.tables import Column, CursorColumn, Kind, RequestedCursor, ResolvedCursor

SKIPPED = r"""
    [eE]'(?:[^'\\]|\\.|'')*'          # a text with backslashes
  | '(?:[^']|'')*'                    # a text
  | "(?:[^"]|"")*"                    # a name
  | \$(?P<tag>\w*)\$.*?\$(?P=tag)\$   # a text in dollars
  | --[^\n]*                          # a comment to the end of the line
  | /\*.*?\*/                         # a comment
"""
PARAMETER = re.compile(rf"{SKIPPED}|(?<![\w:\]])(?P<place>:(?P<name>after|upto|first_run)\b)", re.VERBOSE | re.DOTALL)
QUESTION_MARK = re.compile(rf"{SKIPPED}|(?P<place>\?)", re.VERBOSE | re.DOTALL)
PART = re.compile(r'"((?:[^"]|"")+)"|([^."]+)')


@dataclass(frozen=True)
class Relation:
    """A table or a query, exactly one of both; a query may name :after, :upto and :first_run, which are put in."""

    table: str | None = None
    query: str | None = None

    def __post_init__(self) -> None:
        if (self.table is None) == (self.query is None):
            raise ConfigError("a source reads a table or a query.", hint="give either table or query")
        if len(self.parameters & {"after", "upto"}) == 1 or self.parameters == {"first_run"}:
            raise ConfigError(
                f"the query names {', '.join(f':{name}' for name in sorted(self.parameters))} only.",
                hint="name both :after and :upto, or neither: then the bounds are put around the query",
            )

    @property
    def is_bounded(self) -> bool:
        """Whether the query applies the bounds itself."""
        return "after" in self.parameters

    @cached_property
    def parameters(self) -> set[str]:
        """Which of :after, :upto and :first_run the query names."""
        return {found["name"] for found in PARAMETER.finditer(self.query or "") if found["name"]}

    @property
    def entity(self) -> str:
        """A table by its name, a query by its hash: which rows a mark speaks of."""
        if self.table is not None:
            return self.table
        return f"query {hashlib.sha256((self.query or '').encode()).hexdigest()[:12]}"

    def sql(self, quote: Callable[[str], str], values: Mapping[str, str]) -> str:
        """What stands behind FROM; `values` are literals for the names in the query."""
        if self.table is not None:
            return ".".join(map(quote, self.parts()))
        filled = PARAMETER.sub(lambda found: values[found["name"]] if found["name"] else found[0], self.query or "")
        return f"({filled.strip().rstrip(';')}\n)"  # on a line of its own: the query may end in a comment

    def parts(self) -> tuple[str, ...]:
        """The table's name, piece by piece: `public.orders`, or with `"…"` around a piece that has a dot."""
        found = PART.findall(self.table or "")
        parts = tuple(quoted.replace('""', '"') or plain for quoted, plain in found)
        if not parts or not re.fullmatch(rf"(?:{PART.pattern})(?:\.(?:{PART.pattern}))*", self.table or ""):
            raise ConfigError(f"table: {self.table!r} is not the name of a table.", hint="write it like public.orders")
        return parts


def for_jdbc(sql: str) -> str:
    """The statement with its question marks doubled, since JDBC would take each for a parameter."""
    return QUESTION_MARK.sub(lambda found: "??" if found["place"] else found[0], sql)


@dataclass(frozen=True)
class Catalog:
    """What a database says of a table beside its types; of a query, and in some databases of a table, it says nothing.

    `unique` are the columns of each unique index, None if it cannot tell; `key` is the primary key.
    """

    unique: tuple[frozenset[str], ...] | None = None
    key: tuple[str, ...] = ()
    required: frozenset[str] = frozenset()

    def is_unique(self, columns: Iterable[str]) -> bool | None:
        """Whether no two rows agree in these columns; None if nobody knows."""
        if self.unique is None:
            return None
        wanted = frozenset(columns)
        return any(index <= wanted for index in self.unique)


@dataclass(frozen=True)
class CursorFinder:
    """Resolves cursors in one database: `kind_of` says what a mark can follow there, `known_types` lists it."""

    kind_of: Callable[[Column], Kind | None]
    known_types: str

    def cursor(
        self, requested: RequestedCursor, columns: tuple[Column, ...], catalog: Catalog, place: str
    ) -> ResolvedCursor:
        """The cursor. Raises ConfigError for a column that is not there, or that no mark can follow."""
        by_name = {column.name: column for column in columns}
        for name in (*(name for group in requested.columns for name in group), *requested.key):
            if name not in by_name:
                known = ", ".join(by_name)
                raise ConfigError(f"{place} has no column {name!r} to read by.", hint=f"its columns are: {known}")
        resolved = tuple(self._column([by_name[name] for name in group], catalog) for group in requested.columns)
        if requested.has_own_order:
            resolved = (self._in_own_order(resolved),)
        key = requested.key or tuple(name for name in catalog.key if name in by_name)
        return ResolvedCursor(resolved, _is_unique(requested, catalog), key)

    def _column(self, group: list[Column], catalog: Catalog) -> CursorColumn:
        first, *others = group
        kinds = [self._kind(column) for column in group]
        if len({(kind, column.type) for kind, column in zip(kinds, group, strict=True)}) > 1:
            types = ", ".join(f"{column.name} is {column.declaration}" for column in group)
            raise ConfigError(
                f"coalesce: the columns are of different types ({types}).", hint="name columns of one type"
            )
        is_nullable = not any(column.name in catalog.required for column in group)
        return CursorColumn(first.name, kinds[0], first.type, tuple(column.name for column in others), is_nullable)

    def _in_own_order(self, columns: tuple[CursorColumn, ...]) -> CursorColumn:
        if len(columns) > 1 or columns[0].kind != "text":
            names = ", ".join(column.name for column in columns)
            raise ConfigError(
                f"cursor: collation: database is about one column of text, and this is {names}.",
                hint="leave collation out: numbers and times have one order",
            )
        return replace(columns[0], has_own_order=True)

    def _kind(self, column: Column) -> Kind:
        kind = self.kind_of(column)
        if kind is None:
            declared = column.type or "without a type"
            raise ConfigError(
                f"the cursor {column.name!r} is of type {declared}.",
                hint=f"types that a mark follows: {self.known_types}",
            )
        return kind


def kind_by_type(kinds: dict[str, Kind]) -> Callable[[Column], Kind | None]:
    """The kind by the name of the type; a decimal without places behind the point is a whole number."""

    def kind_of(column: Column) -> Kind | None:
        kind = kinds.get(column.type)
        return "int" if kind == "decimal" and column.scale == 0 else kind

    return kind_of


def _is_unique(requested: RequestedCursor, catalog: Catalog) -> bool:
    """The user's word, else the catalog's; where that is silent, several columns were named to be unique together."""
    if requested.is_unique:
        return True
    if any(len(group) > 1 for group in requested.columns):
        return False
    is_unique = catalog.is_unique(name for (name,) in requested.columns)
    return len(requested.columns) > 1 if is_unique is None else is_unique
