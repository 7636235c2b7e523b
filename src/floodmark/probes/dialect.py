"""Spark's SQL in the words of the small engine: only what both answer alike; all else is refused by its name.

The engine is DataFusion, which comes with `deltalake`. A function that is not listed here may exist there under the
same name and mean something else, so nobody is answered by it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, TypeAlias

from sqlglot import exp

from floodmark.errors import ConfigError

Family: TypeAlias = Literal["integer", "float", "decimal", "text", "date", "timestamp", "boolean"]
Node: TypeAlias = exp.Expr
NUMBERS, TIMES = ("integer", "float", "decimal"), ("date", "timestamp")
FAMILIES: dict[str, Family] = {
    **dict.fromkeys(("byte", "short", "integer", "long", "tinyint", "smallint", "int", "bigint"), "integer"),
    **dict.fromkeys(("float", "double"), "float"),
    **dict.fromkeys(("string", "text", "varchar", "char"), "text"),
    **dict.fromkeys(("timestamp", "timestamp_ntz", "timestampntz", "timestamptz", "timestampltz"), "timestamp"),
    "decimal": "decimal",
    "date": "date",
    "boolean": "boolean",
}
"""By the names of types, as Delta and SQL have them."""
SAME_FUNCTIONS = (
    *(exp.Count, exp.Sum, exp.Avg, exp.Min, exp.Max, exp.Abs),
    *(exp.Coalesce, exp.Nullif, exp.Nvl2, exp.If, exp.Case, exp.Exists, exp.Greatest, exp.Least),
    *(exp.Upper, exp.Lower, exp.Length, exp.CurrentDate, exp.CurrentTimestamp),
    *(exp.Year, exp.Month, exp.Day, exp.Quarter),
    *(exp.RowNumber, exp.Rank, exp.DenseRank, exp.Lag, exp.Lead),
)
SAME_OPERATORS = (
    *(exp.And, exp.Or, exp.Not, exp.Paren, exp.Neg, exp.Add, exp.Sub, exp.Mul, exp.Mod),
    *(exp.EQ, exp.NEQ, exp.GT, exp.GTE, exp.LT, exp.LTE, exp.NullSafeEQ, exp.Is, exp.Like, exp.ILike),
)
REFUSED_CLAUSES = (exp.Bracket, exp.Lateral, exp.Lambda, exp.Pivot, exp.TableSample, exp.Dot)
"""Arrays count from another number there, and the rest is written in another way."""
MIXED = (
    *(exp.EQ, exp.NEQ, exp.GT, exp.GTE, exp.LT, exp.LTE, exp.NullSafeEQ, exp.Add, exp.Sub, exp.Mul, exp.Mod),
    *(exp.In, exp.Between, exp.Coalesce, exp.Nullif, exp.Greatest, exp.Least),
)
"""Here Spark takes text for a number if the other side is one, and the engine may take the number for text."""
SAME_CASTS: dict[Family, tuple[Family, ...]] = {
    "integer": ("integer", "float", "decimal", "text"),
    "float": ("integer", "decimal"),
    "decimal": ("integer", "float", "decimal"),
    "text": ("integer", "float", "decimal", "text", "date", "timestamp"),
    "date": ("date", "text", "timestamp"),
    "timestamp": ("date", "timestamp"),
    "boolean": ("boolean", "text"),
}
RESULTS: dict[Family, tuple[type[Node], ...]] = {
    "integer": (
        exp.Count,
        exp.CountIf,
        exp.Length,
        exp.DateDiff,
        exp.Year,
        exp.Month,
        exp.Day,
        exp.Quarter,
        exp.RowNumber,
    ),
    "text": (exp.Concat, exp.DPipe, exp.Upper, exp.Lower, exp.Trim, exp.Substring, exp.TimeToStr),
    "date": (exp.TsOrDsToDate, exp.CurrentDate),
    "timestamp": (exp.TimeStrToTime, exp.TimestampTrunc, exp.CurrentTimestamp),
}
OF_THEIR_ARGUMENT = (
    *(exp.Paren, exp.Neg, exp.Abs, exp.Round, exp.Sum, exp.Min, exp.Max, exp.Coalesce, exp.Greatest, exp.Least),
    *(exp.Lag, exp.Lead, exp.Filter, exp.Window, exp.Distinct),
)
PATTERN_PARTS = {"yyyy": "%Y", "MM": "%m", "dd": "%d", "HH": "%H", "mm": "%M", "ss": "%S"}
"""Of Spark's patterns of dates, those that the engine can write the same."""
TRUNCATIONS = ("YEAR", "QUARTER", "MONTH", "WEEK", "DAY", "HOUR", "MINUTE", "SECOND")
DECIMAL_DIGITS = 38


def in_engine_words(tree: exp.Query, types: Sequence[tuple[str, str]]) -> exp.Query:
    """The query, every part of it as the engine takes it; `types` are the tables' columns. Raises ConfigError."""
    columns, query = ColumnTypes.of(tree, types), tree.copy()
    for node, written in zip(
        reversed(list(query.walk())), reversed(list(tree.walk())), strict=True
    ):  # inner ones first
        answer = _rewrite(node, written, columns)
        if answer is None:
            raise refusal(written)
        if answer is not node:
            node.replace(answer)
    return query


@dataclass(frozen=True)
class ColumnTypes:
    """Of which family the values of a query's columns are, as far as that is known."""

    families: Mapping[str, Family | None]
    aliases: Mapping[str, Node] = field(default_factory=dict)

    @classmethod
    def of(cls, tree: exp.Query, types: Sequence[tuple[str, str]]) -> ColumnTypes:
        families: dict[str, Family | None] = {}
        for name, kind in types:
            family = FAMILIES.get(kind.partition("(")[0].lower())
            families[name.lower()] = family if families.get(name.lower(), family) == family else None
        names = [each.alias.lower() for each in tree.find_all(exp.Alias)]
        aliases = {each.alias.lower(): each.this.copy() for each in tree.find_all(exp.Alias)}
        families |= {name: None for name in names if names.count(name) > 1}  # which of them is meant is not looked into
        known = cls(families, {name: node for name, node in aliases.items() if name not in families})
        shadows = {name: known.family(aliases[name]) for name in names if name in families}
        families |= {name: None for name, family in shadows.items() if family != families[name]}
        return known

    def family(self, node: Node | None) -> Family | None:
        """Of a part of the query; None where nothing is known."""
        if isinstance(node, exp.Column):
            return self._of_column(node.name.lower())
        if isinstance(node, exp.Literal):
            return "text" if node.is_string else _family_of_number(node.name)
        if isinstance(node, exp.Cast):
            return FAMILIES.get(node.to.this.value.lower())
        if isinstance(node, (exp.Add, exp.Sub, exp.Mul, exp.Mod, exp.Div)):
            return self._of_arithmetic(node)
        if isinstance(node, exp.Avg):
            inner = self.family(node.this)
            return "float" if inner == "integer" else inner
        if isinstance(node, exp.Case):
            return self.family(node.args["ifs"][0])
        if isinstance(node, (exp.If, exp.Nvl2)):
            return self.family(node.args["true"])
        given = next((family for family, kinds in RESULTS.items() if isinstance(node, kinds)), None)
        return self.family(node.this) if isinstance(node, OF_THEIR_ARGUMENT) else given

    def _of_column(self, name: str) -> Family | None:
        if name in self.families or name not in self.aliases:
            return self.families.get(name)
        rest = {each: node for each, node in self.aliases.items() if each != name}
        return ColumnTypes(self.families, rest).family(self.aliases[name])

    def _of_arithmetic(self, node: exp.Binary) -> Family | None:
        found = {self.family(node.left), self.family(node.right)}
        if not found <= set(NUMBERS):
            return None
        if "float" in found:
            return "float"
        whole: Family = "float" if isinstance(node, exp.Div) else "integer"
        return "decimal" if "decimal" in found else whole


def _family_of_number(text: str) -> Family:
    if "e" in text.lower():
        return "float"
    return "decimal" if "." in text else "integer"


def _rewrite(node: Node, written: Node, columns: ColumnTypes) -> Node | None:
    """A node as the engine takes it, mostly itself; None if there is no such. Judged by what was written."""
    if isinstance(written, MIXED) and not _is_of_one_kind(written, columns):
        return None
    rewriting = REWRITINGS.get(type(written))
    if rewriting is not None:
        return rewriting(node, written, columns)
    has_meaning = isinstance(written, (exp.Func, exp.Binary, exp.Unary, *REFUSED_CLAUSES))
    return node if not has_meaning or isinstance(written, (*SAME_FUNCTIONS, *SAME_OPERATORS)) else None


def refusal(written: Node) -> ConfigError:
    """Of a part that the engine would answer otherwise, or not at all: a function by its name, else by its text."""
    is_implied = isinstance(written, (exp.TsOrDsToDate, exp.TimeStrToTime)) and isinstance(written.parent, exp.Func)
    text = (written.parent if is_implied and written.parent else written).sql(dialect="spark")
    call = re.match(r"\w+(?=\()", text)
    name = f"{call[0].lower()}(…)" if call else f"`{text}`"
    said = f"{name} could mean something else without Spark, so it is not answered."
    return ConfigError(said, hint="--spark runs it on Spark")


def _is_of_one_kind(written: Node, columns: ColumnTypes) -> bool:
    families = {columns.family(each) for each in written.iter_expressions()}
    if isinstance(written, exp.Sub) and columns.family(written.this) in TIMES:  # two of them are an interval of days
        return isinstance(written.expression, (exp.Interval, exp.Literal))
    return not ("text" in families and families & set(NUMBERS))


def _number(node: Node, written: Node, _columns: ColumnTypes) -> Node | None:
    """1.5 is a decimal for Spark, and a double for the engine."""
    if written.is_string or _family_of_number(written.name) != "decimal":
        return node
    whole, _, fraction = written.name.partition(".")
    digits = max(len(whole.lstrip("0")) + len(fraction), 1)
    text = exp.Literal.string(f"{whole or '0'}.{fraction or '0'}")
    return exp.cast(text, f"decimal({digits}, {len(fraction)})") if digits <= DECIMAL_DIGITS else None


def _cast(node: Node, written: Node, columns: ColumnTypes) -> Node | None:
    target, source = columns.family(written), columns.family(written.this)
    if target is None or source is None or target not in SAME_CASTS[source] or written.args.get("format"):
        return None
    is_rounded = (source, target) == ("float", "decimal")  # a half goes up in the number as it is written
    return exp.Cast(this=_as(node.this, "text") if is_rounded else node.this, to=node.args["to"])


def _text(node: Node, written: Node, columns: ColumnTypes) -> Node | None:
    """Doubles and moments are spelled in another way there."""
    families = {columns.family(each) for each in written.iter_expressions()}
    return node if families <= {"text", "integer"} else None


def _division(node: Node, written: Node, columns: ColumnTypes) -> Node | None:
    """Of whole numbers and doubles; a decimal's digits behind the point would differ, and a zero has to fail."""
    if columns.family(written) != "float":
        return None
    zero, divisor = exp.Literal.number(0), node.expression
    failure = exp.Div(this=exp.Literal.number(1), expression=zero, typed=True, safe=False)
    is_zero = exp.EQ(this=exp.Paren(this=divisor.copy()), expression=zero.copy())
    checked = exp.Case().when(is_zero, failure).else_(divisor.copy())
    return exp.Paren(this=exp.Div(this=_as(node.this, "double"), expression=checked, typed=True, safe=False))


def _whole_number(node: Node, written: Node, columns: ColumnTypes) -> Node | None:
    """Spark's ceil and floor give whole numbers."""
    is_plain = written.args.get("decimals") is None and columns.family(written.this) in NUMBERS
    return _as(node, "bigint") if is_plain else None


def _round(node: Node, written: Node, columns: ColumnTypes) -> Node | None:
    """A half goes up in the number as it is written, not in the nearest double: 1.005 gives 1.01."""
    family, digits = columns.family(written.this), _whole(written.args.get("decimals") or exp.Literal.number(0))
    if family not in NUMBERS or digits is None or digits < 0:
        return None
    if family == "integer":
        return exp.Paren(this=node.this.copy())
    exact = f"decimal({DECIMAL_DIGITS}, {digits})"
    return _as(node.this, exact) if family == "decimal" else _as(_as(_as(node.this, "text"), exact), "double")


def _substring(node: Node, written: Node, columns: ColumnTypes) -> Node | None:
    """For Spark 0 is the first letter too, and a negative number counts from the end."""
    start, length = _whole(written.args.get("start")), _whole(written.args.get("length") or exp.Literal.number(0))
    if start is None or start < 0 or length is None or length < 0 or columns.family(written.this) != "text":
        return None
    node.set("start", exp.Literal.number(max(start, 1)))
    return node


def _trim(node: Node, written: Node, _columns: ColumnTypes) -> Node | None:
    return node if written.expression is None else None


def _date_format(node: Node, written: Node, _columns: ColumnTypes) -> Node | None:
    pattern = re.search(r", '([A-Za-z0-9 :/.,_-]*)'\)$", written.sql(dialect="spark"))
    if pattern is None:
        return None
    parts = re.findall(r"[A-Za-z]+|[^A-Za-z]+", pattern[1])
    if any(part.isalpha() and part not in PATTERN_PARTS for part in parts):
        return None
    text = exp.Literal.string("".join(PATTERN_PARTS.get(part, part) for part in parts))
    return exp.Anonymous(this="to_char", expressions=[node.this.copy(), text])


def _moment(node: Node, written: Node, columns: ColumnTypes) -> Node | None:
    return _as(node.this, "timestamp") if columns.family(written.this) in ("text", *TIMES) else None


def _date(node: Node, written: Node, columns: ColumnTypes) -> Node | None:
    is_plain = written.args.get("format") is None and columns.family(written.this) in ("text", *TIMES)
    return _as(node.this, "date") if is_plain else None


def _date_difference(node: Node, written: Node, _columns: ColumnTypes) -> Node | None:
    """In days, from the second to the first."""
    if written.args.get("unit") is not None:
        return None
    return exp.Paren(this=exp.Sub(this=_as(node.this, "int"), expression=_as(node.expression, "int")))


def _truncation(node: Node, written: Node, columns: ColumnTypes) -> Node | None:
    unit = written.args.get("unit")
    is_same = unit is not None and unit.name.upper() in TRUNCATIONS and columns.family(written.this) == "timestamp"
    return node if is_same else None


def _count_if(node: Node, _written: Node, _columns: ColumnTypes) -> Node | None:
    """Zero, and not NULL, where there are no rows."""
    return exp.Count(this=exp.Case().when(node.this.copy(), exp.Literal.number(1)))


def _part_of_time(node: Node, written: Node, columns: ColumnTypes) -> Node | None:
    part = exp.Extract(this=exp.var(type(written).__name__.upper()), expression=node.this.copy())
    return part if columns.family(written.this) == "timestamp" else None


def _day_of_week(node: Node, _written: Node, _columns: ColumnTypes) -> Node | None:
    """Sunday is 1 for Spark, and 0 for the engine."""
    day = exp.Extract(this=exp.var("DOW"), expression=node.this.copy())
    return exp.Paren(this=exp.Add(this=day, expression=exp.Literal.number(1)))


def _as(node: Node, kind: str) -> Node:
    return exp.Cast(this=node.copy(), to=exp.DataType.build(kind))


def _whole(node: Node | None) -> int | None:
    """The number that a literal is, if it is a whole one that is not negative."""
    return int(node.name) if isinstance(node, exp.Literal) and not node.is_string and node.name.isdecimal() else None


REWRITINGS: Mapping[type[Node], Callable[[Node, Node, ColumnTypes], Node | None]] = {
    exp.Literal: _number,
    exp.Cast: _cast,
    exp.TryCast: _cast,
    exp.Concat: _text,
    exp.DPipe: _text,
    exp.Div: _division,
    exp.Ceil: _whole_number,
    exp.Floor: _whole_number,
    exp.Round: _round,
    exp.Substring: _substring,
    exp.Trim: _trim,
    exp.TimeToStr: _date_format,
    exp.TimeStrToTime: _moment,
    exp.TsOrDsToDate: _date,
    exp.DateDiff: _date_difference,
    exp.TimestampTrunc: _truncation,
    exp.CountIf: _count_if,
    exp.Hour: _part_of_time,
    exp.Minute: _part_of_time,
    exp.Second: _part_of_time,
    exp.DayOfWeek: _day_of_week,
}
