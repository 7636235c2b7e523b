"""What a batch would restate: the values whose rows it replaces, and the keys that its target has already."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from floodmark.locations import quote
from floodmark.sinks.contract import OnDelta, TableSink, merges, replaces
from floodmark.spark.tables import DeltaPlace
from floodmark.step.batch import prepare

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from pyspark.sql import DataFrame

    from floodmark.sinks.contract import Sink
    from floodmark.step import Step
    from floodmark.stores.record import Intent

SHOWN = 10


def restated(step: Step, intent: Intent) -> tuple[str, ...]:
    """A line for each sink whose rows would change; the batch is read for it, and nothing is written."""
    tables = [sink for sink in step.work.sinks if merges(sink) or _columns_replaced(sink)]
    if not tables or intent.kind == "refresh":
        return ()
    rows = prepare(step.work, replace(intent, spool=None), step.session()).judgement.kept_rows()
    return tuple(line for sink in tables for line in _lines(sink, rows, step))


def _lines(sink: Sink, rows: DataFrame, step: Step) -> Iterator[str]:
    by = _columns_replaced(sink)
    if by:
        values = rows.select(*map(quote, by)).distinct()
        yield f"{sink.name}: replaces all rows of {_listed(values, by)}"
    elif isinstance(sink, TableSink):
        held = _held_keys(sink, step)
        if held is not None:
            same = rows.select(*map(quote, sink.key)).distinct().join(held, list(sink.key), "left_semi")
            listed = _listed(same, sink.key)
            yield f"{sink.name}: changes rows that are there: {listed}" if listed else f"{sink.name}: adds rows only"


def _columns_replaced(sink: Sink) -> tuple[str, ...]:
    """The columns by whose values rows are replaced; a fact's sink is such a one, under its date."""
    if replaces(sink) and isinstance(sink, TableSink):
        return tuple(sink.by)
    if isinstance(sink, OnDelta) and not isinstance(sink, TableSink):
        return tuple(name for table in sink.tables() if table.mode == "replace" for name in table.by)
    return ()


def _held_keys(sink: TableSink, step: Step) -> DataFrame | None:
    """The keys of a Delta table; None for another one, or one that is not there yet."""
    if not isinstance(sink, OnDelta):
        return None
    [table] = sink.tables()
    location = DeltaPlace(table.path, table.table).location(step.session)
    if location is None or table.schema(step.session) is None:
        return None
    return step.session().read.format("delta").load(location).select(*map(quote, sink.key))


def _listed(values: DataFrame, names: Sequence[str]) -> str:
    """How many there are, and the first of them."""
    count = values.count()
    first = values.orderBy(*map(quote, names)).limit(SHOWN).collect() if count else []
    texts = [", ".join(str(value) for value in row) for row in first]
    shown = "; ".join(texts) + ("; …" if count > SHOWN else "")
    return f"{count} {', '.join(names)} ({shown})" if count else ""
