"""How jobs, plans and previews show themselves, in a notebook and at the prompt of Python."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, overload

from floodmark.hwm.mark import mark_text, short_mark
from floodmark.notebook import fact_table, plain_text, row_table

if TYPE_CHECKING:
    from floodmark.jobs.job import Job, Plan
    from floodmark.sinks.contract import Sink
    from floodmark.sources.contract import Source


PLACES = ("table", "topic", "path", "query")
WIDTH_SHOWN = 40


@dataclass(frozen=True)
class Preview(Sequence["dict[str, object]"]):
    """Rows that the next run would write, each a dict: a sequence that shows itself as a table.

    >>> Preview("orders", ("id", "note"), ({"id": 1, "note": "new"},))
    orders: 1 row
    id  note
    1   new
    """

    job: str
    columns: tuple[str, ...]
    rows: tuple[dict[str, object], ...] = ()
    note: str | None = None
    """What somebody who looks at the rows should know."""

    @overload
    def __getitem__(self, place: int) -> dict[str, object]: ...
    @overload
    def __getitem__(self, place: slice) -> tuple[dict[str, object], ...]: ...
    def __getitem__(self, place: int | slice) -> dict[str, object] | tuple[dict[str, object], ...]:
        return self.rows[place]

    def __len__(self) -> int:
        return len(self.rows)

    def __repr__(self) -> str:
        table = [self.columns, *([plain_text(row[name])[:WIDTH_SHOWN] for name in self.columns] for row in self.rows)]
        widths = [max(len(line[place]) for line in table) for place in range(len(self.columns))]
        lines = ["  ".join(map(str.ljust, line, widths)).rstrip() for line in table] if self.rows else []
        return "\n".join([self._title(), *lines])

    def _repr_html_(self) -> str:
        return row_table(self._title(), self.columns, [[row[name] for name in self.columns] for row in self.rows])

    def _title(self) -> str:
        count = "1 row" if len(self.rows) == 1 else f"{len(self.rows)} rows"
        return f"{self.job}: {count}{f' ({self.note})' if self.note else ''}"


def job_text(job: Job) -> str:
    """A job on one line: where from, where to."""
    sources = ", ".join(map(source_text, job.sources))
    return f"Job({job.name}: {sources} → {', '.join(map(sink_text, job.sinks))})"


def job_html(job: Job) -> str:
    """A job as a table."""
    how = job.transform if isinstance(job.transform, str) else getattr(job.transform, "__name__", None)
    rules = [f"{rule.name} ({rule.action}): {rule.describe()}" for rule in job.rules]
    facts = {"reads": "; ".join(map(source_text, job.sources)), "transform": how, "rules": "; ".join(rules)}
    return fact_table(f"Job {job.name}", {**facts, "writes": "; ".join(map(sink_text, job.sinks)), "every": job.every})


def source_text(source: Source) -> str:
    """What is read, by the kind of source and its place; never by a URL, which may hold a secret."""
    place = next((str(value) for name in PLACES if (value := getattr(source, name, None))), source.name)
    return f"{type(source).__name__} {mark_text(place)}"


def sink_text(sink: Sink) -> str:
    """What is written, under the name that its ledger has."""
    return f"{sink.describe()}" if sink.name in sink.describe() else f"{sink.name}: {sink.describe()}"


def plan_text(plan: Plan) -> str:
    """A plan on one line."""
    return f"Plan({plan.job}: {', '.join(_plan_parts(plan))})"


def plan_html(plan: Plan) -> str:
    """A plan as a table."""
    facts: dict[str, object] = {"mark before": short_mark(plan.mark_before), "mark after": short_mark(plan.mark_after)}
    expected = "not known before reading" if plan.expected_rows is None else plan.expected_rows
    facts |= {"rows expected": expected} if plan.has_work else {}
    facts |= {"held back": f"{plan.rows_held_back:,}: {plan.held_reason}"} if plan.rows_held_back else {}
    facts |= {"open batch": plan.open_batch, "schema changes": "; ".join(plan.schema_changes)}
    restated = [f"{each.sink}: {each.what} {each.values or each.count or ''}".strip() for each in plan.restated]
    facts |= {"restated": "; ".join(restated), "rules": "; ".join(plan.rules), "notes": "; ".join(plan.notes)}
    return fact_table(f"{plan.job}: {'work to do' if plan.has_work else 'nothing new'}", facts)


def _plan_parts(plan: Plan) -> Iterator[str]:
    yield "work to do" if plan.has_work else "nothing new"
    if plan.open_batch is not None:
        yield f"batch {plan.open_batch} is finished first"
    if plan.has_work:
        yield f"mark {short_mark(plan.mark_before)} → {short_mark(plan.mark_after)}"
        yield f"{'?' if plan.expected_rows is None else plan.expected_rows} rows"
    if plan.rows_held_back:
        yield f"{plan.rows_held_back} rows held back: {plan.held_reason}"
