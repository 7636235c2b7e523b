"""A query's columns, read from its text: which columns of which tables each of them is made of."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import lru_cache, reduce

from sqlglot import exp
from sqlglot.errors import SqlglotError

from floodmark.errors import ConfigError
from floodmark.inputs import parse_sql
from floodmark.lineage.datasets import Direct, Indirect, Influence, Origin, Origins, Relation, Rest, union

Tables = Mapping[str, Relation]
"""What a query can read, by lower-case name."""
Elsewhere = Callable[[str], Relation]
"""What stands for a table that is not among them, by its dotted name."""

DECIDING: Mapping[str, Indirect] = {"where": "filter", "having": "filter", "qualify": "filter", "group": "group"}
TREES_KEPT = 1024
ORDERING = ("order", "sort", "cluster", "distribute")


def columns_of(sql: str, tables: Tables, elsewhere: Elsewhere, dialect: str = "spark") -> Relation:
    """The rows that a query gives. Raises ConfigError if it cannot be parsed."""
    try:
        tree = query_tree(sql, dialect)
        return QueryReader({name.lower(): table for name, table in tables.items()}, elsewhere).query(tree)
    except SqlglotError as error:
        raise ConfigError("the SQL cannot be parsed.", hint="floodmark lint says where") from error
    except RecursionError:
        raise ConfigError("the SQL has too many parts in each other.", hint="split the query") from None


@lru_cache(maxsize=TREES_KEPT)
def query_tree(sql: str, dialect: str) -> exp.Expr:
    """The query, parsed once for all who only read it: lineage looks at each for its tables, and then for columns."""
    return parse_sql(sql, read=dialect)


def expression_origins(sql: str, row: Relation) -> Origins:
    """The columns of a row that an SQL expression over it reads."""
    return columns_of(f"SELECT {sql} AS value FROM row", {"row": row}, lambda name: Relation()).origins("value")


@dataclass(frozen=True)
class QueryReader:
    """Reads queries against tables; a query inside another one sees the tables around it too."""

    tables: Tables
    elsewhere: Elsewhere
    around: Select | None = None

    def query(self, tree: exp.Expr) -> Relation:
        reader = self._with_own_tables(tree)
        if isinstance(tree, exp.SetOperation):
            return union(reader.query(tree.left), reader.query(tree.right))
        if isinstance(tree, exp.Subquery):
            return reader.query(tree.this)
        return Select(tree, reader).relation() if isinstance(tree, exp.Select) else Relation()

    def table(self, node: exp.Expr) -> Relation:
        """What stands in a FROM, under the names that its alias gives to columns."""
        names = list(node.alias_column_names)
        if node.args.get("pivots"):
            return self._stored_rows(node).by_name()
        if isinstance(node, exp.Values):
            return Relation(columns=dict.fromkeys(names, ()))
        return self._stored_rows(node).with_names(names)

    def _stored_rows(self, node: exp.Expr) -> Relation:
        if not isinstance(node, exp.Table):
            return self.query(node.this if isinstance(node, exp.Lateral) else node)
        if isinstance(node.this, exp.Func):  # a function that makes rows reads no table
            return Relation()
        name = ".".join(part.name for part in node.parts)
        return self.tables.get(name.lower()) or self.elsewhere(name)

    def _with_own_tables(self, tree: exp.Expr) -> QueryReader:
        """With the tables that the query defines for itself, each of which sees those before it."""
        defined = tree.ctes if isinstance(tree, exp.Query) else []
        return reduce(lambda reader, cte: reader._with_cte(cte), defined, self)

    def _with_cte(self, cte: exp.CTE) -> QueryReader:
        is_recursive = bool(cte.parent and cte.parent.args.get("recursive"))
        reader = self._with(cte.alias, Relation()) if is_recursive else self  # it reads itself, which adds nothing
        return self._with(cte.alias, reader.query(cte.this).with_names(list(cte.alias_column_names)))

    def _with(self, name: str, table: Relation) -> QueryReader:
        return QueryReader({**self.tables, name.lower(): table}, self.elsewhere, self.around)


@dataclass
class Select:
    """One SELECT: its tables by alias, and what was read of it so far."""

    tree: exp.Select
    reader: QueryReader
    sources: dict[str, Relation] = field(default_factory=dict)
    columns: dict[str, Origins] = field(default_factory=dict)
    spelled: dict[str, str] = field(default_factory=dict)
    """By lower-case name, as the first column of that name is written."""
    rest: list[Rest] = field(default_factory=list)
    inner: list[Relation] = field(default_factory=list)
    influences: list[Influence] = field(default_factory=list)

    def relation(self) -> Relation:
        self._read_sources()
        for projection in self.tree.expressions:
            self._project(projection)
        self._read_conditions()
        made = Relation(columns=self.columns, rest=tuple(self.rest), influences=tuple(dict.fromkeys(self.influences)))
        return made.beside([*self.sources.values(), *self.inner])

    def _read_sources(self) -> None:
        begins, joins = self.tree.find(exp.From), self.tree.args.get("joins") or ()
        first = [begins.this] if begins is not None and begins.parent is self.tree else []
        for node in [*first, *(join.this for join in joins)]:
            reader = replace(self.reader, around=self) if isinstance(node, exp.Lateral) else self.reader
            self.sources[node.alias_or_name.lower()] = reader.table(node)
        for lateral in self.tree.args.get("laterals") or ():
            names = [column.name for column in lateral.args["alias"].columns]
            made = self.origins(lateral.this, "computed")
            self.sources[lateral.alias.lower()] = Relation(columns=dict.fromkeys(names, made))

    def _project(self, projection: exp.Expr) -> None:
        if projection.is_star:
            self._take_all(projection)
            return
        if isinstance(projection, exp.Aliases):  # explode(…) AS (key, value)
            names = [each.name for each in projection.aliases]
            self._add_columns(dict.fromkeys(names, self.origins(projection.this, "computed")))
            return
        plain = projection.unalias()
        how: Direct = "as it is" if isinstance(plain, exp.Column) else _kind_of_computation(plain)
        self._add_columns({projection.alias_or_name or plain.sql("spark"): self.origins(plain, how)})

    def _add_columns(self, columns: Mapping[str, Origins]) -> None:
        self.columns |= columns
        for name in columns:
            self.spelled.setdefault(name.lower(), name)

    def _take_all(self, projection: exp.Expr) -> None:
        """`*`, or `t.*`; columns that it leaves out are not there."""
        star = projection.find(exp.Star)
        parts = star.args if star is not None else {}
        replaced = {each.alias: each.this for each in parts.get("replace") or ()}
        left_out = {name.lower() for name in (*(each.name for each in parts.get("except_") or ()), *replaced)}
        named = projection.table.lower() if isinstance(projection, exp.Column) else None
        taken = [self.sources[named]] if named in self.sources else list(self.sources.values())
        is_open = [source for source in taken if source.rest]
        for source in taken:
            self._add_columns({name: e for name, e in source.columns.items() if name.lower() not in left_out})
            for rest in source.rest:
                how: Direct = rest.how if len(is_open) == 1 else "by name"
                self.rest.append(Rest(rest.dataset, how, rest.without | left_out))
        self._add_columns({name: self.origins(made, _kind_of_computation(made)) for name, made in replaced.items()})

    def _read_conditions(self) -> None:
        for part, how in DECIDING.items():
            self._decide(self.tree.args.get(part), how)
        for part in ORDERING:
            self._decide(self.tree.args.get(part), "sort")
        for join in self.tree.args.get("joins") or ():
            self._decide(join.args.get("on"), "join")
            shared = [self.find(each.name) for each in join.args.get("using") or ()]
            self._add_influences([origin for origins in shared for origin in origins], "join")

    def _decide(self, condition: exp.Expr | None, how: Indirect) -> None:
        if condition is not None:
            self._add_influences(self.origins(condition, "computed"), how)

    def _add_influences(self, origins: Origins | list[Origin], how: Indirect) -> None:
        self.influences += [Influence(each.dataset, each.column, how) for each in origins]

    def origins(self, expression: exp.Expr, how: Direct) -> Origins:
        """The columns that an expression reads; those that only order or split a window are influences."""
        found: list[Origin] = []
        window_parts = _window_parts(expression)
        for node in expression.walk(prune=lambda node: isinstance(node, exp.Query)):
            if isinstance(node, exp.Query):
                found += self._nested(node)
            elif isinstance(node, exp.Column):
                is_split = id(node) in window_parts
                self._add_influences(self._column(node) if is_split else (), "window")
                found += () if is_split else self._column(node)
        return tuple(dict.fromkeys(each.after_step(how) for each in found))

    def _nested(self, query: exp.Query) -> Origins:
        inside = replace(self.reader, around=self).query(query)
        self.inner.append(inside)
        return tuple(each.after_step("computed") for each in inside.every_origin())

    def _column(self, column: exp.Column) -> Origins:
        """`t.c`, `c`, and fields of a struct: `t.c.f`, `c.f`."""
        first, *more = [part.name for part in column.parts]
        source = self.source(first) if more else None
        if source is None:
            return tuple(each.after_step("computed") if more else each for each in self.find(first))
        return tuple(each.after_step("computed") if more[1:] else each for each in source.origins_in_query(more[0]))

    def source(self, alias: str) -> Relation | None:
        around = self.reader.around
        return self.sources.get(alias.lower()) or (around.source(alias) if around else None)

    def find(self, name: str) -> Origins:
        """A column without its table: the one that lists it, else an earlier column here, else those that may."""
        listing = [source for source in self.sources.values() if source.lists(name)]
        if listing:
            return listing[0].origins(name)
        is_open = [source for source in self.sources.values() if source.rest]
        spelled = self.spelled.get(name.lower())
        own = [self.columns[spelled]] if spelled is not None else []
        if own or not is_open:
            around = self.reader.around
            outside = around.find(name) if around else ()
            inside = (origin for source in self.sources.values() for origin in source.origins_in_query(name))
            return own[0] if own else outside or tuple(inside)
        how: Direct = "as it is" if len(is_open) == 1 else "by name"
        return tuple(origin.after_step(how) for source in is_open for origin in source.origins(name))


def _kind_of_computation(expression: exp.Expr) -> Direct:
    return "aggregated" if any(_aggregates(node) for node in expression.find_all(exp.AggFunc)) else "computed"


def _aggregates(node: exp.Expr) -> bool:
    """A function over a window sums up rows too, and keeps each."""
    return not isinstance(node.parent, exp.Window)


def _window_parts(expression: exp.Expr) -> set[int]:
    """The nodes, by identity, that only order or split a window."""
    return {id(node) for part in _splits(expression) for node in part.walk()}


def _splits(expression: exp.Expr) -> Iterator[exp.Expr]:
    for window in expression.find_all(exp.Window):
        yield from window.args.get("partition_by") or ()
        yield from filter(None, [window.args.get("order")])
