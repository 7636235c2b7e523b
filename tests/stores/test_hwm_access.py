"""Marks that are set by value over the record of a job: its mark moves, and nothing else."""

from __future__ import annotations

from dataclasses import replace

import pytest

from floodmark import stores
from floodmark.errors import ConfigError
from floodmark.hwm import ColumnIntHWM, FileListHWM
from floodmark.stores.contract import MarkStore
from floodmark.stores.extras import RecordExtras, SinkLedger, SourceMemory
from floodmark.stores.lease import hold
from floodmark.stores.record import JobRecord
from floodmark.testing.laws.records import with_open_intent

SINKS = {"lake": SinkLedger("floodmark.prod.orders.lake", "delta table /lake", 4)}
JOB = JobRecord(
    "orders",
    4,
    marks={"shop": ColumnIntHWM("shop", 40, entity="public.orders")},
    sources={"shop": "postgres shop public.orders"},
    extras=RecordExtras()
    .with_source("shop", SourceMemory(extras={"keys": [7]}, pending={"fence": 1}))
    .with_sinks(SINKS),
)


def kept(record: JobRecord) -> MarkStore:
    """A store in which a run has left this record."""
    store = stores.open("memory")
    with hold(store, "orders") as lease:
        store.commit(replace(record, intent=None), expected=0, lease=lease.lease)
        if record.intent:
            store.intend(record, expected=record.number, lease=lease.lease)
    return store


def test_a_mark_that_is_set_over_a_job_moves_its_mark_and_keeps_the_rest() -> None:
    """Under the source's name and entity, with what its sinks confirmed; only what was pending is about the old one."""
    store = kept(JOB)
    store.set_hwm(ColumnIntHWM("orders", 30))
    moved = store.read("orders")
    assert moved is not None
    assert (moved.number, moved.origin, moved.sources, moved.extras.sinks) == (5, "set", JOB.sources, SINKS)
    assert {name: (mark.value, mark.name, mark.entity) for name, mark in moved.marks.items()} == {
        "shop": (30, "shop", "public.orders")
    }
    assert moved.extras.source("shop") == SourceMemory(extras={"keys": [7]})


def test_a_mark_of_another_kind_is_refused_and_so_is_one_over_several() -> None:
    """The next run could not read on from it."""
    store = kept(JOB)
    with pytest.raises(ConfigError, match="whose mark is a column_int, and a file_list was given"):
        store.set_hwm(FileListHWM("orders"))
    assert store.read("orders") == JOB
    two = replace(JOB, marks={**JOB.marks, "other": ColumnIntHWM("other", 1)})
    with pytest.raises(ConfigError, match="a job with 2 marks"):
        kept(two).set_hwm(ColumnIntHWM("orders", 30))


def test_no_mark_is_set_over_an_open_batch() -> None:
    """Some sinks may have it: to give it up, they have to be fenced."""
    store = kept(with_open_intent(JOB))
    before = store.read("orders")
    with pytest.raises(ConfigError, match="batch 5 of job 'orders' is not finished"):
        store.set_hwm(ColumnIntHWM("orders", 30))
    assert store.read("orders") == before
