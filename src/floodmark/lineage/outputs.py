"""What a sink makes of the rows it gets: the dataset, and its columns."""

from __future__ import annotations

from dataclasses import replace

from floodmark import sinks
from floodmark.lineage import places
from floodmark.lineage.columns import Dataset, Origins, Relation
from floodmark.lineage.queries import expression_origins
from floodmark.sinks.delta_dates import DeltaDates
from floodmark.sinks.own_columns import OWN
from floodmark.sinks.scd_arrival import CHANGE, RENAMED, SNAPSHOT_AT
from floodmark.sinks.scd_versions import INTERVAL


def dataset_of(sink: object) -> Dataset:
    """Where the rows go."""
    if isinstance(sink, sinks.Delta | sinks.Scd1 | DeltaDates):
        return places.delta(sink.path, sink.table)
    if isinstance(sink, sinks.Files):
        return places.folder(sink.path)
    if isinstance(sink, sinks.Kafka):
        return places.topic(sink.bootstrap, sink.topic)
    if isinstance(sink, sinks.Postgres):
        return places.postgres(sink.url, sink.table)
    return Dataset("console" if isinstance(sink, sinks.Console) else "python", str(getattr(sink, "name", sink)))


def written(sink: object, rows: Relation) -> Relation:
    """The columns that the dataset gets; those that only help a sink to choose never reach it."""
    kept = replace(rows, columns={name: each for name, each in rows.columns.items() if not name.startswith(OWN)})
    if isinstance(sink, sinks.Scd1):
        return _with_history(sink, kept)
    if isinstance(sink, sinks.Kafka) and sink.value != "json":
        return _message(sink, kept)
    return kept


def _with_history(sink: sinks.Scd1, rows: Relation) -> Relation:
    columns = dict(rows.columns)
    if sink.changes == "feed":
        columns = {RENAMED.get(name, name): each for name, each in columns.items() if name != CHANGE}
    elif sink.changes == "snapshot" and not sink.sequence:
        columns[SNAPSHOT_AT] = ()
    if isinstance(sink, sinks.Scd2):
        told = replace(rows, columns=columns)
        since = [told.origins(name) for name in (sink.order.moment, sink.first_valid_from) if name]
        columns |= dict.fromkeys(INTERVAL, _computed(since))
    return replace(rows, columns=columns)


def _message(sink: sinks.Kafka, rows: Relation) -> Relation:
    """A message that is one expression, and its key."""
    value = expression_origins(sink.value.partition(":")[2], rows)
    key = {"key": expression_origins(sink.key, rows)} if sink.key else {}
    return replace(rows, columns={**key, "value": value}, rest=())


def _computed(columns: list[Origins]) -> Origins:
    return tuple(dict.fromkeys(origin.made("computed") for origins in columns for origin in origins))
