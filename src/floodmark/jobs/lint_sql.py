"""What can be told about a transform's SQL without running it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING

import sqlglot
from sqlglot import exp

from floodmark.jobs.findings import Finding

if TYPE_CHECKING:
    Found = Callable[[str, str, str], Finding]

CLOCKS = (exp.CurrentTimestamp, exp.CurrentDate, exp.CurrentTime)
DICE = frozenset({"rand", "randn", "random", "uuid", "shuffle", "uniform"})
NAMED_CLOCKS = frozenset({"now", "getdate", "localtimestamp", "current_timestamp"})
PLACES = frozenset({"monotonically_increasing_id", "spark_partition_id"})


def lint_sql(sql: str, found: Found, sources: Sequence[str] = ("source",)) -> Iterator[Finding]:
    """The findings on one query over these sources; `found` makes one of a rule, a message and a hint."""
    try:
        statements = [statement for statement in sqlglot.parse(sql, read="spark") if statement is not None]
    except sqlglot.errors.SqlglotError as error:
        yield found("FM101", parse_mistake(error), "mend the SQL; it is Spark's dialect")
        return
    if len(statements) != 1 or not isinstance(statements[0], exp.Query):
        yield found("FM104", "the transform has to be one SELECT", f"write one query over {_listed(sources)}")
        return
    yield from _tables(statements[0], found, sources)
    yield from _functions(statements[0], found)


def lint_expression(sql: str, found: Found) -> Iterator[Finding]:
    """The findings on one expression over a row."""
    try:
        expression = sqlglot.parse_one(sql, read="spark")
    except sqlglot.errors.SqlglotError as error:
        yield found("FM101", parse_mistake(error), "mend the SQL; it is Spark's dialect")
        return
    yield from _functions(expression, found)


def parse_mistake(error: sqlglot.errors.SqlglotError) -> str:
    """What is wrong and where in the query; sqlglot's own text is coloured for a terminal."""
    first = error.errors[0] if isinstance(error, sqlglot.errors.ParseError) and error.errors else {}
    if not first:
        return "the SQL cannot be parsed"
    near = f"line {first.get('line')}, column {first.get('col')}, near '{first.get('highlight')}'"
    return f"the SQL cannot be parsed ({near}): {first.get('description')}"


def _listed(sources: Sequence[str]) -> str:
    return ", ".join(f"`{name}`" for name in sources)


def _tables(query: exp.Query, found: Found, sources: Sequence[str]) -> Iterator[Finding]:
    own = {cte.alias.lower() for cte in query.find_all(exp.CTE)}
    tables = {".".join(part.name for part in table.parts) for table in query.find_all(exp.Table)}
    names = {name for name in tables if name.lower() not in own}
    others = sorted(name for name in names if name.lower() not in {each.lower() for each in sources})
    if sources[0].lower() not in {name.lower() for name in names}:
        yield found("FM102", f"the SQL does not read `{sources[0]}`", f"select … from {sources[0]}")
    for name in others:
        yield found(
            "FM105",
            f"{name} is read as it is at that moment: no mark covers it, and a repeat may see other rows",
            "make it a job of its own, or know that late changes of it are not delivered again",
        )


def _functions(query: exp.Expr, found: Found) -> Iterator[Finding]:
    clocks = {call.sql("spark").lower() for call in query.find_all(*CLOCKS)}
    named = {_name(call) for call in query.find_all(exp.Func)}
    for call in sorted(clocks | (named & NAMED_CLOCKS - {"current_timestamp"})):
        yield found("FM103", f"{call} is another moment when a batch is repeated", "use :batch_time, which is not")
    for call in sorted(named & DICE):
        yield found(
            "FM103", f"{call} gives other values when a batch is repeated", "derive it from the row, as with md5"
        )
    for call in sorted(named & PLACES):
        yield found("FM103", f"{call} depends on how Spark splits the rows", "number rows by a column of theirs")


def asked_again(condition: exp.Expr) -> list[str]:
    """Calls in a condition that may answer otherwise the second time."""
    clocks = {call.sql("spark").lower() for call in condition.find_all(*CLOCKS)}
    named = {_name(call) for call in condition.find_all(exp.Func)}
    return sorted(clocks | (named & (DICE | PLACES | NAMED_CLOCKS - {"current_timestamp"})))


def _name(call: exp.Func) -> str:
    return (call.name if isinstance(call, exp.Anonymous) else call.sql_name()).lower()
