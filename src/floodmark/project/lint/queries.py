"""The columns that queries name and give, where it is known which there are.

Only what is certain is said: of a table that only Spark knows, a lateral view or a pivot, nothing is.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import TypeAlias

from sqlglot import exp
from sqlglot.errors import SqlglotError
from sqlglot.optimizer.scope import Scope, traverse_scope

from floodmark.errors.configuration import did_you_mean, nearest_names
from floodmark.inputs import parse_statements, sql_tokens

ColumnNames: TypeAlias = "frozenset[str]"
"""In lower case, since Spark does not tell cases apart."""
NOT_COLUMNS = frozenset(
    re.findall(
        r"\w+",
        "current_catalog current_database current_date current_schema current_time current_timestamp "
        "current_timezone current_user grouping__id localtimestamp now session_user user _metadata ",
    )
)
"""Names that Spark knows without a source: functions that need no brackets, and what it adds to files."""
UNITS = frozenset(["year", "quarter", "month", "week", "day", "hour", "minute", "second", "millisecond", "microsecond"])
MOST_QUERIES = 200
"""Within one; nobody writes as many, and following them takes long."""
SHOWN = 12
"""So many columns are listed where one is missing; a wide table would fill the screen."""


@dataclass(frozen=True)
class ColumnMistake:
    """A column or a type that is not there, what it may be, and the line of the query where it stands."""

    message: str
    hint: str
    line: int = 1


def missing_column(name: str, columns: Iterable[str], owner: str) -> ColumnMistake:
    """A name that is not among the columns, with the nearest one, or with what there is."""
    known = sorted(columns)
    listed = ", ".join(known[:SHOWN]) + (f" and {len(known) - SHOWN} more" if len(known) > SHOWN else "")
    near = did_you_mean(nearest_names(name.lower(), known))
    return ColumnMistake(f"there is no column '{name}': {owner} {listed}", near or "fix the name")


def selected_columns(sql: str, source: ColumnNames | None) -> ColumnNames | None:
    """What a query gives, or a few more: nothing else can be in its rows; None where only Spark knows."""
    scopes = _scopes(sql)
    return Followed(source, scopes).given.get(id(scopes[-1])) if scopes else None


def query_mistakes(sql: str, source: ColumnNames | None) -> list[ColumnMistake]:
    """Columns that a query names and that what it reads does not have; `source` has these, if they are known."""
    scopes = _scopes(sql)
    followed = Followed(source, scopes)
    wrong = [each for scope in scopes if not _is_in_expression(scope) for each in followed.mistakes(scope)]
    return list({mistake.message: mistake for mistake in reversed(wrong)}.values())[::-1]


@lru_cache(maxsize=8)  # a query is looked at from several sides, one job after the other
def statements_of(sql: str) -> tuple[exp.Expr, ...]:
    """As `parse_statements`; nobody may change the trees. Raises SqlglotError."""
    return tuple(parse_statements(sql))


@lru_cache(maxsize=8)
def _scopes(sql: str) -> Sequence[Scope]:
    """The queries in a query, inner ones first; none where it cannot be parsed (FM101 says so), or has too many."""
    try:
        if sum(token.text.lower() == "select" for token in sql_tokens(sql)) > MOST_QUERIES:
            return ()
        return traverse_scope(statements_of(sql)[0]) if statements_of(sql) else ()
    except (SqlglotError, RecursionError):
        return ()


@dataclass
class Followed:
    """A query whose columns are followed from `source` through every query in it."""

    source: ColumnNames | None
    scopes: Sequence[Scope]
    given: dict[int, ColumnNames | None] = field(default_factory=dict)
    """By scope, the columns that it gives, or a few more; None where only Spark knows."""

    def __post_init__(self) -> None:
        for scope in self.scopes:
            self.given[id(scope)] = self._output_columns(scope)

    def _output_columns(self, scope: Scope) -> ColumnNames | None:
        query = scope.expression
        if isinstance(query, exp.SetOperation) and scope.set_operation_scopes:
            return self.given.get(id(scope.set_operation_scopes[0]))
        if not isinstance(query, exp.Select):
            return None
        given: set[str] = set()
        for each in query.selects:
            names = self._of_item(each, scope)
            if names is None or "" in names:
                return None
            given |= names
        return frozenset(given)

    def _of_item(self, item: exp.Expr, scope: Scope) -> ColumnNames | None:
        """Of a `*` or `t.*`, the columns of what is read; those that it leaves out are taken for there."""
        if isinstance(item, exp.Star):
            return all_columns(self.tables(scope))
        if isinstance(item, exp.Column) and isinstance(item.this, exp.Star):
            return self.tables(scope).get(item.parts[0].name.lower())
        is_named = isinstance(item, exp.Alias | exp.Column | exp.Dot)
        return frozenset([item.alias_or_name.lower()]) if is_named else None

    def tables(self, scope: Scope) -> dict[str, ColumnNames | None]:
        """What a SELECT reads, by the names that it has there, with its columns; empty where rows come otherwise."""
        select = scope.expression
        if not isinstance(select, exp.Select) or not select.args.get("from_"):
            return {}
        if any(select.args.get(part) for part in ("laterals", "pivots", "match")):
            return {}
        read = [select.args["from_"].this, *(join.this for join in select.args.get("joins") or ())]
        if any(not isinstance(each, exp.Table | exp.Subquery) or each.args.get("joins") for each in read):
            return {}
        return {each.alias_or_name.lower(): self._columns_of(each, scope) for each in read}

    def _columns_of(self, read: exp.Expr, scope: Scope) -> ColumnNames | None:
        """The columns of a table, a named query or a query in brackets; `as t(a, b)` gives them other names."""
        if read.args.get("pivots"):
            return None
        inner = scope.sources.get(read.alias_or_name)
        named = read.alias_column_names or (_cte_names(inner) if isinstance(inner, Scope) else [])
        if named:
            return frozenset(map(str.lower, named))
        if isinstance(inner, Scope):
            return None if _is_recursive(inner) else self.given.get(id(inner))
        is_source = isinstance(inner, exp.Table) and inner.name.lower() == "source" and not inner.db
        return self.source if is_source else None

    def mistakes(self, scope: Scope) -> Iterator[ColumnMistake]:
        """The columns that a SELECT names and that nothing in it has."""
        tables = self.tables(scope)
        if not tables:
            return
        everything, own = all_columns(tables), _own_names(scope.expression, tables)
        for column in _named_columns(scope.expression):
            first, *rest = (part.name for part in column.parts)
            of = tables.get(first.lower()) if rest and first.lower() not in own else None
            is_of_a_table = (rest and first.lower() in tables) or first.lower() in own
            if of is not None and rest[0].lower() not in of | NOT_COLUMNS:
                yield _mistake(rest[0], column, of, _owner([first], scope))
            elif everything is not None and not is_of_a_table:
                yield _mistake(first, column, everything, _owner(list(tables), scope))


def all_columns(tables: Mapping[str, ColumnNames | None]) -> ColumnNames | None:
    """Those of all tables; None if one is not known, or there is none."""
    known = [columns for columns in tables.values() if columns is not None]
    return frozenset[str]().union(*known) if tables and len(known) == len(tables) else None


def _own_names(select: exp.Expr, tables: Mapping[str, ColumnNames | None]) -> set[str]:
    """Names that stand for something in a SELECT: columns that are known, aliases, windows, arguments of functions."""
    names = {name for columns in tables.values() for name in columns or ()} | NOT_COLUMNS
    names |= {each.alias.lower() for each in select.expressions if each.alias}
    names |= {each.name.lower() for each in select.args.get("windows") or ()}
    return names | {each.name.lower() for inner in select.find_all(exp.Lambda) for each in inner.expressions}


def _cte_names(inner: Scope) -> list[str]:
    query = inner.expression.parent
    return list(query.alias_column_names) if isinstance(query, exp.CTE) else []


def _is_recursive(inner: Scope) -> bool:
    """Whether a query may read what it gives itself."""
    around = inner.expression.find_ancestor(exp.With)
    return around is not None and bool(around.args.get("recursive"))


def _is_in_expression(scope: Scope | None) -> bool:
    """Whether it is a query within an expression: there a name may be one of the query around it."""
    while scope is not None:
        if scope.is_subquery or scope.is_udtf:
            return True
        scope = scope.parent
    return False


def _named_columns(select: exp.Expr) -> Iterator[exp.Column]:
    """The columns that a SELECT names itself; a query or a hint in it is not looked into."""
    for node in select.walk(prune=lambda each: each is not select and isinstance(each, exp.Query | exp.Hint)):
        if isinstance(node, exp.Column) and not (
            isinstance(node.this, exp.Star) or is_unit(node) or _is_argument(node)
        ):
            yield node


def is_unit(column: exp.Column) -> bool:
    """Whether it is the DAY of timestampdiff(DAY, …), which stands where a column could."""
    return isinstance(column.parent, exp.Func) and column.name.lower() in UNITS


def _is_argument(column: exp.Column) -> bool:
    """Whether it is the name of an argument, before `=>`."""
    return isinstance(column.parent, exp.Kwarg | exp.PropertyEQ) and column.arg_key == "this"


def _owner(names: Sequence[str], scope: Scope) -> str:
    """Who has the columns, and no others."""
    read = [scope.sources.get(name) for name in names]
    if len(read) == 1 and isinstance(read[0], exp.Table):
        return "the source has"
    called = [name or "the query in brackets" for name in names]
    return f"{' and '.join(called)} {'has' if len(called) == 1 else 'have'}"


def _mistake(name: str, column: exp.Column, columns: ColumnNames, owner: str) -> ColumnMistake:
    missing = missing_column(name, columns, owner)
    return ColumnMistake(missing.message, missing.hint, column.parts[0].meta.get("line", 1))
