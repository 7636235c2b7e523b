"""No tests: a reader that looks as a job does, and reads its spans with the database's own driver, so it is quick."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import psycopg

from floodmark.probes.tables.dialects import Postgres as Dialect
from floodmark.probes.tables.queries import Conditions
from floodmark.sources.contract import Request
from floodmark.sources.tables.reading import ranges, tie_conditions
from tests.sources.tables.reader import no_session

if TYPE_CHECKING:
    from floodmark.hwm import HWM, Json, Span
    from floodmark.sources import Postgres

SQL = Dialect()
PATIENCE_SECONDS = 30.0


@dataclass
class Reader:
    """What a job would have delivered: `newest` as a merge by id, `delivered` as an append counts it."""

    source: Postgres
    every_seconds: float = 0.2
    mark: HWM[Any] | None = None
    extras: Mapping[str, Json] = field(default_factory=dict)
    pending: Mapping[str, Json] = field(default_factory=dict)
    newest: dict[int, tuple[int, str]] = field(default_factory=dict)
    delivered: Counter[int] = field(default_factory=Counter)
    held_at_most: int = 0
    stopping: threading.Event = field(default_factory=threading.Event)
    failures: list[BaseException] = field(default_factory=list)

    @contextmanager
    def reading(self) -> Iterator[None]:
        """It reads during the block, and then until nothing is left."""
        thread = threading.Thread(target=self._work)
        thread.start()
        try:
            yield
        finally:
            self.stopping.set()
            thread.join()
        if self.failures:
            raise self.failures[0]

    def _work(self) -> None:
        try:
            while not self.stopping.wait(self.every_seconds):
                self.tick()
            deadline = time.monotonic() + PATIENCE_SECONDS
            while self.tick() and time.monotonic() < deadline:
                time.sleep(0.05)
        except BaseException as error:  # noqa: BLE001 (it is raised in the test's own thread)
            self.failures.append(error)
        finally:
            self.source.close()

    def tick(self) -> bool:
        """One look, and the span it gave; False if nothing was there and nothing waits."""
        sight = self.source.look(self.mark, Request(extras=self.extras, pending=self.pending), no_session)
        self.held_at_most = max(self.held_at_most, sight.held_back)
        self.extras, self.pending = sight.extras if sight.span else self.extras, sight.pending or self.pending
        if sight.span is not None:
            self._take(sight.span)
            self.mark = sight.span.upto
        return sight.span is not None or sight.held_back > 0

    def _take(self, span: Span) -> None:
        cursor = self.source.probe().cursor()
        (part,) = ranges(span, 1)
        conditions = Conditions(SQL, cursor)
        condition = " and ".join([part.condition(conditions), *tie_conditions(conditions, span)])
        with psycopg.connect(self.source.url, application_name="floodmark/reader") as connection:
            sql = f"select id, v, updated_at::text from o as fm where {condition}"
            for number, v, at in connection.execute(sql.encode()):
                self.newest[number] = (v, at)
                self.delivered[number] += 1
