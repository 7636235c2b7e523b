"""What can be told about a job's quality rules without running them."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import sqlglot
from sqlglot import exp

from floodmark.errors import ConfigError
from floodmark.jobs.findings import Finding
from floodmark.jobs.kinds import FilesSource
from floodmark.jobs.lint_sql import asked_again, parse_mistake

if TYPE_CHECKING:
    from floodmark.jobs.kinds import Site
    from floodmark.jobs.kinds_rules import RuleModel
    from floodmark.jobs.project import JobModel

UNITS = frozenset(["year", "quarter", "month", "week", "day", "hour", "minute", "second", "millisecond", "microsecond"])
Found = Callable[[int, str, str, str], Finding]
"""Makes a finding of a rule's position in the job, an id, a message and a hint."""


def lint_rules(job: JobModel, site: Site, found: Found) -> Iterator[Finding]:
    """The findings on all rules of a job, in the order of the file."""
    columns = columns_of(job)
    names: set[str] = set()
    for position, model in enumerate(job.rules):
        try:
            name = model.build(site).name
        except ConfigError as error:
            yield found(position, "FM206", error.message, error.hint)
            continue
        if name in names:
            yield found(position, "FM206", f"two rules are called '{name}'", "give each rule a name")
        names.add(name)
        yield from lint_rule(model, name, columns, lambda *said, at=position: found(at, *said))


def lint_rule(
    model: RuleModel, name: str, columns: frozenset[str] | None, found: Callable[[str, str, str], Finding]
) -> Iterator[Finding]:
    """One rule: whether its SQL can be read and repeated, and whether its columns are there."""
    named = list(model.columns())
    if model.check is not None:
        try:
            condition = sqlglot.parse_one(model.check, read="spark", into=exp.Condition)
        except sqlglot.errors.SqlglotError as error:
            yield found("FM121", f"rule '{name}': {parse_mistake(error)}", "mend the SQL; it is a condition on one row")
            return
        for call in asked_again(condition):
            yield found("FM122", f"rule '{name}' asks {call}: a repeated batch may be judged otherwise", "ask the row")
        named += [column.parts[0].name for column in condition.find_all(exp.Column) if not is_unit(column)]
    if columns is None:
        return
    known = ", ".join(sorted(columns))
    for missing in sorted({each for each in named if each.split(".")[0].lower() not in columns}):
        yield found("FM123", f"rule '{name}' names column '{missing}', and the rows have {known}", "mend the name")


def is_unit(column: exp.Column) -> bool:
    """Whether it is the DAY of timestampdiff(DAY, …), which stands where a column could."""
    return isinstance(column.parent, exp.Func) and column.name.lower() in UNITS


def columns_of(job: JobModel) -> frozenset[str] | None:
    """The columns of the job's rows in lower case, where the file tells them; None where only Spark knows."""
    source = declared(job.source.schema_) if isinstance(job.source, FilesSource) and job.source.schema_ else None
    if job.transform is None:
        return source
    return selected(job.transform.sql, source) if job.transform.sql is not None else None


def selected(sql: str, source: frozenset[str] | None) -> frozenset[str] | None:
    """What a query gives, if its list says so; a bare `*` stands for the columns of the source."""
    try:
        tree: Any = sqlglot.parse_one(sql, read="spark")
    except sqlglot.errors.SqlglotError:
        return None
    stars = [each for each in tree.expressions if isinstance(each, exp.Star)] if isinstance(tree, exp.Select) else []
    if not isinstance(tree, exp.Select) or tree.args.get("joins") or tree.args.get("laterals") or len(stars) > 1:
        return None
    names = [each.alias_or_name.lower() for each in tree.expressions if not isinstance(each, exp.Star)]
    plain_star = stars and source is not None and not stars[0].args.get("except_")
    if not all(names) or "*" in names or (stars and not plain_star):
        return None
    return frozenset(names) | (source if stars and source is not None else frozenset())


def declared(schema: str) -> frozenset[str]:
    """The column names of Spark's DDL; commas inside types part nothing."""
    flat = schema
    while re.search(r"[(<][^()<>]*[)>]", flat):
        flat = re.sub(r"[(<][^()<>]*[)>]", "", flat)
    return frozenset(part.split()[0].strip("`:").lower() for part in flat.split(",") if part.strip())
