"""Flows as OpenLineage tells them: one JobEvent for each, as its collectors take them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime

import floodmark
from floodmark.hwm import Json
from floodmark.lineage.columns import Dataset, Direct, Indirect, Influence, Origin, Relation
from floodmark.lineage.flows import Flow

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


def job_event(flow: Flow, namespace: str, now: datetime) -> dict[str, Json]:
    """What the job reads and fills, and for every column that it fills those that it is made of."""
    return {
        "eventTime": now.isoformat(),
        "producer": PRODUCER,
        "schemaURL": JOB_EVENT,
        "job": {"namespace": namespace, "name": flow.job},
        "inputs": [named(dataset) for dataset in flow.inputs],
        "outputs": [{**named(dataset), "facets": _facets(rows)} for dataset, rows in flow.outputs.items()],
    }


def named(dataset: Dataset) -> dict[str, Json]:
    """The dataset's name in its two parts."""
    return {"namespace": dataset.namespace, "name": dataset.name}


def _facets(rows: Relation) -> dict[str, Json]:
    """The schema is told where it is whole, the lineage as far as it is known."""
    fields: dict[str, Json] = {name: {"inputFields": _inputs(origins)} for name, origins in rows.columns.items()}
    lineage = _facet(COLUMNS, fields=fields, dataset=_inputs(rows.influences))
    listed: list[Json] = [{"name": name} for name in rows.columns]
    is_whole = bool(listed) and not rows.rest
    return {"columnLineage": lineage, **({"schema": _facet(SCHEMA, fields=listed)} if is_whole else {})}


def _facet(schema: str, **content: Json) -> dict[str, Json]:
    return {"_producer": PRODUCER, "_schemaURL": schema, **content}


def _inputs(columns: Iterable[Origin | Influence]) -> list[Json]:
    return [{**named(e.dataset), "field": e.column, "transformations": [_transformation(e)]} for e in columns]


def _transformation(column: Origin | Influence) -> dict[str, Json]:
    kind = "DIRECT" if isinstance(column, Origin) else "INDIRECT"
    described = BY_NAME if column.how == "by name" else ""
    return {"type": kind, "subtype": NAMES[column.how], "description": described, "masking": False}
