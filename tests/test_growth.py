"""A loop runs for months: what it keeps between its ticks does not grow with their number."""

from __future__ import annotations

import gc
import json
import os
import threading
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import pytest

from floodmark.mill.brokers.files import INDEXES, index_of
from floodmark.probes.delta import KEPT_COMMITS, DeltaProbe
from floodmark.stores.memory import MemoryMarkStore
from tests.step.test_engine import NotingEngine, Rows, no_session

if TYPE_CHECKING:
    from deltalake import DeltaTable

TICKS = 10_000
TABLE_SCHEMA = '{"fields": [{"name": "id", "type": "long"}]}'


class LongLog:
    """A Delta table that gets a version with every look: nothing but its log."""

    def __init__(self) -> None:
        self.latest = 0
        self.entries_read = 0

    def version(self) -> int:
        return self.latest

    def update_incremental(self) -> None:
        self.latest += 1

    def history(self, limit: int | None) -> list[dict[str, Any]]:
        first = 0 if limit is None else max(0, self.latest + 1 - limit)
        self.entries_read += self.latest + 1 - first
        return [{"version": version, "operation": "WRITE"} for version in range(self.latest, first - 1, -1)]

    def schema(self) -> LongLog:
        return self

    def to_json(self) -> str:
        return TABLE_SCHEMA


@pytest.fixture
def log(monkeypatch: pytest.MonkeyPatch) -> LongLog:
    table = LongLog()
    monkeypatch.setattr(DeltaProbe, "_open", lambda _probe: cast("DeltaTable", table))
    monkeypatch.setattr(DeltaProbe, "_head_now", lambda _probe: (1, 1))
    monkeypatch.setattr(DeltaProbe, "_has_grown", lambda _probe, _version: True)
    return table


def growth_of(act: Callable[[], object], times: int) -> int:
    """By how many bytes this process holds more after the act was done so often again; it is done as often before."""
    for _ in range(times):
        act()
    gc.collect()
    tracemalloc.start()
    try:
        before = tracemalloc.get_traced_memory()[0]
        for _ in range(times):
            act()
        gc.collect()
        return tracemalloc.get_traced_memory()[0] - before
    finally:
        tracemalloc.stop()


def test_a_probe_of_a_table_does_not_keep_every_commit_that_it_has_seen(log: LongLog) -> None:
    """A reader that keeps up asks for the newest commits only, and each is read once."""
    probe = DeltaProbe("t")
    for version in range(TICKS):
        probe.refresh()
        assert [commit.version for commit in probe.commits(version - 2, version - 1)] == (
            [version - 1] if version else []
        )
        log.latest = max(log.latest, version)
    assert len(probe._commits) <= KEPT_COMMITS + 2
    assert log.entries_read <= TICKS


def test_a_backlog_is_kept_while_it_is_read_and_let_go_afterwards(log: LongLog) -> None:
    """A reader that is far behind looks at all that is above its mark with each batch: it is not read anew."""
    probe, log.latest = DeltaProbe("t"), TICKS
    probe.refresh()
    probe.commits(0, log.latest)
    read_once = log.entries_read
    for after in range(0, 1_000, 100):
        probe.refresh()
        assert len(probe.commits(after, TICKS)) == TICKS - after
    assert log.entries_read - read_once < TICKS // 10
    probe.refresh()
    probe.refresh()
    assert len(probe._commits) <= KEPT_COMMITS


@pytest.mark.slow
def test_ticks_and_batches_leave_nothing_behind_in_the_process() -> None:
    """Neither memory nor threads: the store keeps as much history as it was told."""
    store = MemoryMarkStore(keep_history=10, keep_runs=10)

    def ticks() -> None:
        engine = NotingEngine(store, no_session, [Rows(0), Rows(1), Rows(0)])
        for _ in range(3):
            engine.run()

    threads = threading.active_count()
    assert growth_of(ticks, 300) < 50_000
    assert threading.active_count() <= threads


def test_of_a_file_that_grows_only_the_last_index_is_kept(tmp_path: Path) -> None:
    """Each holds where all elements begin."""
    file, before = tmp_path / "a.json", len(INDEXES)
    for count in range(1, 50):
        file.write_text(json.dumps([{"id": number} for number in range(count)]))
        found = file.stat()
        assert index_of(file, found.st_size, found.st_mtime_ns).count == count
    os.utime(file, ns=(1, 1))
    assert index_of(file, found.st_size, 1).count == 49
    assert len(INDEXES) == before + 1
