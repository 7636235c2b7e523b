"""`floodmark lineage`: where tables and columns come from and who depends on them, offline."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timezone
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from floodmark.cli.invocation import Invocation
from floodmark.cli.output import AsJson, Exclude, Jobs, Select, print_json, print_line, scrub_document, words

if TYPE_CHECKING:
    from floodmark.hwm import Json
    from floodmark.lineage import Dataset, Hop, Lineage, Origin, Point, Relation
    from floodmark.lineage.flows import Flow


app = typer.Typer(add_completion=False)
Table = Annotated[
    str | None,
    typer.Option("--table", metavar="T[.COLUMN]", help="What this table, or column, comes from and goes to."),
]


@app.command()
def lineage(
    ctx: typer.Context,
    jobs: Jobs = None,
    select: Select = None,
    exclude: Exclude = None,
    table: Table = None,
    as_json: AsJson = False,
) -> None:
    """Show which tables each job reads and fills, and of which columns every column is made."""
    from floodmark.lineage import lineage_of
    from floodmark.lineage.flows import Parts
    from floodmark.lineage.graph import job_event

    invocation: Invocation = ctx.obj
    project, site = invocation.loaded_project(), invocation.site()
    found = lineage_of([Parts.of_model(job, site) for job in project.jobs])
    names = [job.name for job in invocation.selected(words(jobs, select), exclude or ())]
    flows = [flow for flow in found.flows if flow.job in names]
    point = found.point(table) if table else None
    if as_json:
        events: list[Json] = [job_event(flow, project.namespace, datetime.now(timezone.utc)) for flow in flows]
        print_json(scrub_document({"events": events, **(_around(found, point) if point else {})}, invocation.scrub))
        return
    text = Words(site.folder)
    for line in text.around(found, point) if point else text.flows(flows):
        print_line(invocation.scrub(line))


def _around(found: Lineage, point: Point) -> dict[str, Json]:
    """What lies upstream and downstream of a table or column, the nearest first."""
    return {
        "point": _point_entry(point),
        "upstream": [_entry(hop) for hop in found.upstream(point)],
        "downstream": [_entry(hop) for hop in found.downstream(point)],
    }


def _entry(hop: Hop) -> dict[str, Json]:
    return {**_point_entry(hop.point), "job": hop.job, "how": hop.how or None, "depth": hop.depth}


def _point_entry(point: Point) -> dict[str, Json]:
    return {"namespace": point.dataset.namespace, "name": point.dataset.name, "field": point.column}


@dataclass(frozen=True)
class Words:
    """Lineage for people: files by their path from the project's folder, other tables by their names."""

    folder: Path

    def flows(self, flows: Sequence[Flow]) -> Iterator[str]:
        if not flows:
            yield "the project has no jobs"
        for flow in flows:
            yield flow.job
            yield from (f"  reads {self._dataset(dataset)}" for dataset in flow.inputs)
            for dataset, rows in flow.outputs.items():
                yield f"  fills {self._dataset(dataset)}"
                yield from (f"    {line}" for line in self._columns(flow, rows))

    def around(self, found: Lineage, point: Point) -> Iterator[str]:
        yield self._point(point)
        for word, hops in (("from", found.upstream(point)), ("to", found.downstream(point))):
            if not hops:
                yield f"  {word}: nothing that is known"
            for hop in hops:
                how = f", {hop.how}" if hop.how else ""
                yield f"  {word}: {'  ' * (hop.depth - 1)}{self._point(hop.point)} (job {hop.job}{how})"

    def _columns(self, flow: Flow, rows: Relation) -> Iterator[str]:
        unknown = "not known" if flow.unread_transform else "nothing it reads"
        for name, origins in rows.columns.items():
            yield f"{name} ← {', '.join(map(self._origin, origins)) or unknown}"
        for rest in rows.rest:
            left_out = f" but {', '.join(sorted(rest.without))}" if rest.without else ""
            maybe = " (by name)" if rest.how == "by name" else ""
            yield f"* ← {self._dataset(rest.dataset)}.*{left_out}{maybe}"
        if rows.influences:
            deciding = dict.fromkeys(f"{self._short(e.dataset)}.{e.column} ({e.how})" for e in rows.influences)
            yield f"rows by {', '.join(deciding)}"
        if flow.unread_transform:
            yield f"{flow.unread_transform} is Python: columns are matched by name, or not at all"

    def _origin(self, origin: Origin) -> str:
        how = f" ({origin.how})" if origin.how != "as it is" else ""
        return f"{self._short(origin.dataset)}.{origin.column}{how}"

    def _point(self, point: Point) -> str:
        return self._dataset(point.dataset) + (f".{point.column}" if point.column else "")

    def _short(self, dataset: Dataset) -> str:
        return self._dataset(dataset) if dataset.namespace == "file" else dataset.name

    def _dataset(self, dataset: Dataset) -> str:
        return str(dataset).removeprefix(f"{self.folder}/")
