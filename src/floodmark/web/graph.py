"""The project as a picture: datasets as nodes, jobs as the lines between them, each tinted by its health."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Literal, NamedTuple

from floodmark.health.report import Status, worst
from floodmark.lineage import Dataset, Lineage

if TYPE_CHECKING:
    from floodmark.health.report import Finding
    from floodmark.hwm import Json
    from floodmark.lineage.flows import Flow


Layer = Literal["source", "bronze", "silver", "gold", "other"]
LAYER_WORDS: Mapping[str, Layer] = {
    "bronze": "bronze", "brz": "bronze", "raw": "bronze",
    "silver": "silver", "slv": "silver",
    "gold": "gold", "gld": "gold", "mart": "gold",
}  # fmt: skip
"""What people call the layers, as a folder, a schema or the first word of a table's name."""


class ColumnOrigin(NamedTuple):
    """A column that another one is made of, by a job; short, since a picture may have many thousands of them."""

    dataset: str
    column: str
    job: str
    how: str


@dataclass(frozen=True)
class Node:
    """A table, a topic or a folder of files."""

    id: str
    label: str
    layer: Layer
    status: Status | None
    """None: nobody watches it."""
    jobs: tuple[str, ...] = ()
    """Which jobs fill it."""
    notes: tuple[str, ...] = ()
    """What was found about it."""
    columns: Mapping[str, tuple[ColumnOrigin, ...]] = field(default_factory=dict)
    """Each with the columns that it is made of."""


@dataclass(frozen=True)
class Edge:
    """A job that reads the one and fills the other."""

    source: str
    target: str
    job: str
    status: Status | None


@dataclass(frozen=True)
class Graph:
    """All of them; `unread_jobs` have SQL that only Spark can read, so the picture lacks them and says so."""

    nodes: tuple[Node, ...] = ()
    edges: tuple[Edge, ...] = ()
    unread_jobs: Mapping[str, str] = field(default_factory=dict)

    def serialize(self) -> dict[str, Json]:
        """For the script that draws it."""
        return {"nodes": [vars(node) for node in self.nodes], "edges": [vars(edge) for edge in self.edges]}

    def around(self, job: str) -> Graph:
        """The lines of one job, and what they join."""
        edges = tuple(edge for edge in self.edges if edge.job == job)
        ids = {name for edge in edges for name in (edge.source, edge.target)}
        return Graph(tuple(node for node in self.nodes if node.id in ids), edges)


def graph_of(
    lineage: Lineage,
    statuses: Mapping[str, Status],
    folder: str,
    unread_jobs: Mapping[str, str] | None = None,
    findings: Mapping[str, Sequence[Finding]] | None = None,
) -> Graph:
    """The picture of a project's lineage; `statuses` are those of its jobs, `findings` those about datasets.

    Paths are seen from the project's folder.
    """
    filled = _flows_by_dataset(lineage)
    about = findings or {}
    nodes = [
        _node(dataset, filled.get(dataset, ()), statuses, folder, about.get(str(dataset), ()))
        for dataset in lineage.datasets()
    ]
    edges = [
        Edge(str(read), str(written), flow.job, statuses.get(flow.job))
        for flow in lineage.flows
        for written in flow.outputs
        for read in flow.inputs
    ]
    return Graph(tuple(nodes), tuple(edges), unread_jobs or {})


def _node(
    dataset: Dataset, flows: Sequence[Flow], statuses: Mapping[str, Status], folder: str, findings: Sequence[Finding]
) -> Node:
    """A table does as badly as what was found about it, or as a job that fills it."""
    jobs = [flow.job for flow in flows]
    known = [*(statuses[job] for job in jobs if job in statuses), *(finding.status for finding in findings)]
    origins = _origins(dataset, flows)
    label = str(dataset).removeprefix(f"{folder}/")
    status = worst(known) if known else None
    layer: Layer = layer_of(label) if jobs else "source"
    notes = tuple(dict.fromkeys(each.message for each in findings))
    return Node(str(dataset), label, layer, status, tuple(jobs), notes, origins)


def _origins(dataset: Dataset, flows: Sequence[Flow]) -> dict[str, tuple[ColumnOrigin, ...]]:
    """By column; a flow is only asked for those that it may fill, since a console may have hundreds of flows."""
    filled = [(flow, flow.outputs[dataset], {name.lower() for name in flow.outputs[dataset].columns}) for flow in flows]
    columns = dict.fromkeys(name for _, rows, _ in filled for name in rows.columns)
    return {
        column: tuple(
            ColumnOrigin(str(origin.dataset), origin.column, flow.job, origin.how)
            for flow, rows, names in filled
            if rows.rest or column.lower() in names
            for origin in rows.origins(column)
        )
        for column in columns
    }


def _flows_by_dataset(lineage: Lineage) -> dict[Dataset, list[Flow]]:
    filled: dict[Dataset, list[Flow]] = {}
    for flow in lineage.flows:
        for dataset in flow.outputs:
            filled.setdefault(dataset, []).append(flow)
    return filled


def layer_of(name: str) -> Layer:
    """By a folder or schema of the layer's name, or the first word of the table's: lake/silver/orders, slv_orders."""
    parts = [part for word in PurePosixPath(name).parts for part in word.lower().split(".")]
    first_words = [re.split(r"[_-]", part, maxsplit=1)[0] for part in parts[-1:]]
    return next((LAYER_WORDS[word] for word in [*parts, *first_words] if word in LAYER_WORDS), "other")
