"""All jobs together: what lies upstream and downstream of a table or one of its columns, and OpenLineage's events."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import TypeAlias

import floodmark
from floodmark.errors import ConfigError, SourceUnreadable
from floodmark.hwm import Json
from floodmark.jobs.job import Job
from floodmark.jobs.table_readers import needs_between, order
from floodmark.lineage.datasets import Dataset, Direct, Indirect, Influence, Origin, Relation
from floodmark.lineage.flows import Flow, Parts, dataset_of, flow_of, inputs_of
from floodmark.probes.delta import DeltaProbe
from floodmark.sinks import Console

PRODUCER = f"urn:floodmark:{floodmark.__version__}"
SPEC = "https://openlineage.io/spec"
JOB_EVENT = f"{SPEC}/2-0-2/OpenLineage.json#/$defs/JobEvent"
COLUMNS = f"{SPEC}/facets/1-2-0/ColumnLineageDatasetFacet.json#/$defs/ColumnLineageDatasetFacet"
SCHEMA = f"{SPEC}/facets/1-1-1/SchemaDatasetFacet.json#/$defs/SchemaDatasetFacet"
NAMES: Mapping[Direct | Indirect, str] = {
    "as it is": "IDENTITY",
    "by name": "IDENTITY",
    "computed": "TRANSFORMATION",
    "aggregated": "AGGREGATION",
    "filter": "FILTER",
    "join": "JOIN",
    "group": "GROUP_BY",
    "sort": "SORT",
    "window": "WINDOW",
}
BY_NAME = "by name: what is done to the column on the way was not read"


@dataclass(frozen=True)
class Point:
    """A dataset, or one column of it.

    >>> str(Point(Dataset("file", "/lake/orders"), "amount"))
    '/lake/orders.amount'
    """

    dataset: Dataset
    column: str | None = None

    def __str__(self) -> str:
        return str(self.dataset) if self.column is None else f"{self.dataset}.{self.column}"

    def is_(self, dataset: Dataset, column: str) -> bool:
        return self.dataset == dataset and (self.column or "").lower() == column.lower()


@dataclass(frozen=True)
class Hop:
    """A point that another one comes from, or goes to, by a job; `how` is empty between whole tables.

    >>> lineage = lineage_of([fm.Job("silver", fm.sources.Delta("/lake/raw"), [fm.sinks.Delta("/lake/orders")])])
    >>> [(str(hop.point), hop.job) for hop in lineage.upstream(lineage.point("orders"))]
    [('/lake/raw', 'silver')]
    """

    point: Point
    job: str
    how: str = ""
    depth: int = 1


Nearby: TypeAlias = Callable[[Flow, Point], Iterator[Hop]]


@dataclass(frozen=True)
class Lineage:
    """The flows of a project, each after those that fill what it reads.

    >>> lineage = lineage_of([fm.Job("silver", fm.sources.Delta("/lake/raw"), [fm.sinks.Delta("/lake/orders")])])
    >>> [str(dataset) for dataset in lineage.datasets()]
    ['/lake/raw', '/lake/orders']
    """

    flows: tuple[Flow, ...] = field(default=())

    def datasets(self) -> list[Dataset]:
        found = (dataset for flow in self.flows for dataset in (*flow.inputs, *flow.outputs))
        return list(dict.fromkeys(found))

    def upstream(self, point: Point) -> list[Hop]:
        """Everything that it comes from, the nearest first."""
        return self._walk(point, _sources_of)

    def downstream(self, point: Point) -> list[Hop]:
        """Everything that depends on it, the nearest first."""
        return self._walk(point, _targets_of)

    def point(self, text: str) -> Point:
        """The table, or `table.column`, that a person means: by its whole name or the end of it. Raises ConfigError."""
        table, _, column = text.rpartition(".")
        for name, of in ((text, None), (table, column)):
            found = [dataset for dataset in self.datasets() if name and _is_called(dataset, name)]
            if len(found) == 1:
                return Point(found[0], self._column(found[0], of))
            if found:
                listed = ", ".join(map(str, found))
                raise ConfigError(f"'{name}' may be one of: {listed}.", hint="give more of its name")
        known = ", ".join(str(dataset) for dataset in self.datasets())
        raise ConfigError(f"no job reads or fills '{text}'.", hint=f"one of: {known or '(none)'}")

    def _column(self, dataset: Dataset, name: str | None) -> str | None:
        """The column as the table spells it; one that its jobs are known not to fill is refused."""
        filled = [flow.outputs[dataset] for flow in self.flows if dataset in flow.outputs]
        listed = list(dict.fromkeys(each for rows in filled for each in rows.columns))
        spelled = [each for each in listed if name is not None and each.lower() == name.lower()]
        if name is None or spelled or not listed or any(rows.rest for rows in filled):
            return spelled[0] if spelled else name
        raise ConfigError(f"{dataset} has no column '{name}'.", hint=f"one of: {', '.join(listed)}")

    def _walk(self, point: Point, nearby: Nearby) -> list[Hop]:
        found: list[Hop] = []
        seen, front = {point}, [point]
        while front:
            depth = found[-1].depth + 1 if found else 1
            hops = [hop for here in front for flow in self.flows for hop in nearby(flow, here)]
            front = []
            for hop in hops:
                if hop.point not in seen:
                    seen.add(hop.point)
                    found.append(Hop(hop.point, hop.job, hop.how, depth))
                    front.append(hop.point)
        return found


def lineage_of(jobs: Iterable[Job | Parts], columns: Columns | None = None) -> Lineage:
    """The lineage of jobs, from what they say of themselves and from the logs of local Delta tables: no JVM.

    Repeated calls can pass on the `columns` that are known. Raises ConfigError if the SQL of one cannot be parsed.

    >>> query = "SELECT id, cents / 100 AS amount FROM source"
    >>> silver = fm.Job("silver", fm.sources.Delta("/lake/raw"), [fm.sinks.Delta("/lake/orders")], transform=query)
    >>> lineage = lineage_of([silver])
    >>> [str(hop.point) for hop in lineage.upstream(lineage.point("orders.amount"))]
    ['/lake/raw.cents']
    """
    parts = [job if isinstance(job, Parts) else Parts.of_job(job) for job in jobs]
    by_name, columns = {each.name: each for each in parts}, columns or Columns()
    flows: dict[str, Flow] = {}
    for job in order(needed_jobs(parts)):
        flows[job] = flow_of(by_name[job], columns.of)
        columns.learn(flows[job])
    return Lineage(tuple(flows[each.name] for each in parts))


def needed_jobs(jobs: Iterable[Job | Parts]) -> dict[str, tuple[str, ...]]:
    """By job: those that fill what it reads.

    >>> bronze = fm.Job("bronze", fm.sources.Files("/in", schema="id long"), [fm.sinks.Delta("/lake/raw")])
    >>> silver = fm.Job("silver", fm.sources.Delta("/lake/raw"), [fm.sinks.Delta("/lake/orders")])
    >>> needed_jobs([silver, bronze])
    {'silver': ('bronze',), 'bronze': ()}
    """
    parts = [job if isinstance(job, Parts) else Parts.of_job(job) for job in jobs]
    reads = {each.name: inputs_of(each) for each in parts}
    fills = {each.name: {dataset_of(sink) for sink in each.sinks if _is_shared(sink)} for each in parts}
    return needs_between(reads, fills)


def earlier_jobs(jobs: Sequence[Job | Parts]) -> dict[str, tuple[str, ...]]:
    """By job: those before it that it must not run beside, since one of the two fills what the other reads or fills.

    So jobs side by side find the tables as they would one after the other. What a Python function reads by itself is
    not known.

    >>> first = fm.Job("first", fm.sources.Files("/a", schema="id long"), [fm.sinks.Delta("/lake/raw")])
    >>> second = fm.Job("second", fm.sources.Files("/b", schema="id long"), [fm.sinks.Delta("/lake/raw")])
    >>> earlier_jobs([first, second])
    {'first': (), 'second': ('first',)}
    """
    parts = [job if isinstance(job, Parts) else Parts.of_job(job) for job in jobs]
    tables = [
        (each.name, inputs_of(each), {dataset_of(sink) for sink in each.sinks if _is_shared(sink)}) for each in parts
    ]
    return {
        name: tuple(other for other, read, filled in tables[:place] if filled & (reads | fills) or read & fills)
        for place, (name, reads, fills) in enumerate(tables)
    }


def _is_shared(sink: object) -> bool:
    """Whether two jobs with such a sink meet in one place: a console takes the lines of all."""
    return not isinstance(sink, Console)


@dataclass
class Columns:
    """The columns of datasets: as jobs were found to fill them, and as the table's log has them."""

    filled: dict[Dataset, dict[str, None]] = field(default_factory=dict)
    open: set[Dataset] = field(default_factory=set)
    """Of those filled, the ones that may get columns which nobody listed."""
    stored: dict[Dataset, list[str] | None] = field(default_factory=dict)
    read: Callable[[str], list[str] | None] | None = None
    """The columns of the table in a folder of this machine (lineage goes to no network); None: by a look at its log."""

    def learn(self, flow: Flow) -> None:
        for dataset, rows in flow.outputs.items():
            self.filled.setdefault(dataset, {}).update(dict.fromkeys(rows.columns))
            if rows.rest:
                self.open.add(dataset)

    def of(self, dataset: Dataset) -> list[str] | None:
        if dataset not in self.stored:
            self.stored[dataset] = (self.read or columns_in_log)(dataset.name) if dataset.namespace == "file" else None
        stored, listed = self.stored[dataset], self.filled.get(dataset, {})
        is_whole = stored is not None or (listed and dataset not in self.open)
        return list(dict.fromkeys([*(stored or ()), *listed])) if is_whole else None


def columns_in_log(folder: str) -> list[str] | None:
    """Of a Delta table; None where there is none, or its log cannot be read."""
    probe = DeltaProbe(folder)
    try:
        return list(probe.columns()) if probe.refresh() else None
    except SourceUnreadable:
        return None


def _is_called(dataset: Dataset, name: str) -> bool:
    full = f"{dataset.namespace}/{dataset.name}"
    return name in (full, dataset.name) or full.endswith((f"/{name}", f".{name}"))


def _sources_of(flow: Flow, point: Point) -> Iterator[Hop]:
    rows = flow.outputs.get(point.dataset)
    if rows is None:
        return
    if point.column is None:
        yield from (Hop(Point(dataset), flow.job) for dataset in flow.inputs)
        return
    for origin in rows.origins(point.column):
        yield Hop(Point(origin.dataset, origin.column), flow.job, origin.how)


def _targets_of(flow: Flow, point: Point) -> Iterator[Hop]:
    if point.column is None:
        yield from (Hop(Point(each), flow.job) for each in flow.outputs if point.dataset in flow.inputs)
        return
    for dataset, rows in flow.outputs.items():
        names = dict.fromkeys([*rows.columns, *([point.column] if rows.rest else [])])
        for name in names:
            hows = [origin.how for origin in rows.origins(name) if point.is_(origin.dataset, origin.column)]
            yield from (Hop(Point(dataset, name), flow.job, how) for how in hows)
        decides = [each.how for each in rows.influences if point.is_(each.dataset, each.column)]
        yield from (Hop(Point(dataset), flow.job, how) for how in decides)


def job_event(flow: Flow, namespace: str, now: datetime) -> dict[str, Json]:
    """What the job reads and fills, and for every column that it fills those that it is made of."""
    return {
        "eventTime": now.isoformat(),
        "producer": PRODUCER,
        "schemaURL": JOB_EVENT,
        "job": {"namespace": namespace, "name": flow.job},
        "inputs": [name_parts(dataset) for dataset in flow.inputs],
        "outputs": [{**name_parts(dataset), "facets": facets_of(rows)} for dataset, rows in flow.outputs.items()],
    }


def name_parts(dataset: Dataset) -> dict[str, Json]:
    """The dataset's name in its two parts."""
    return {"namespace": dataset.namespace, "name": dataset.name}


def facets_of(rows: Relation) -> dict[str, Json]:
    """The schema where it is whole, the lineage as far as it is known."""
    fields: dict[str, Json] = {name: {"inputFields": _inputs(origins)} for name, origins in rows.columns.items()}
    lineage = _facet(COLUMNS, fields=fields, dataset=_inputs(rows.influences))
    listed: list[Json] = [{"name": name} for name in rows.columns]
    is_whole = bool(listed) and not rows.rest
    return {"columnLineage": lineage, **({"schema": _facet(SCHEMA, fields=listed)} if is_whole else {})}


def _facet(schema: str, **content: Json) -> dict[str, Json]:
    return {"_producer": PRODUCER, "_schemaURL": schema, **content}


def _inputs(columns: Iterable[Origin | Influence]) -> list[Json]:
    return [{**name_parts(e.dataset), "field": e.column, "transformations": [_transformation(e)]} for e in columns]


def _transformation(column: Origin | Influence) -> dict[str, Json]:
    kind = "DIRECT" if isinstance(column, Origin) else "INDIRECT"
    description = BY_NAME if column.how == "by name" else ""
    return {"type": kind, "subtype": NAMES[column.how], "description": description, "masking": False}
