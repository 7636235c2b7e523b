"""Jobs of a run side by side in one session: so many at once, each after those that share a table with it."""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from datetime import datetime, timezone
from graphlib import TopologicalSorter
from queue import SimpleQueue
from typing import TypeAlias

from floodmark.jobs.running import Outcome, Runnable, Runner, run_each
from floodmark.stores.record import Receipt

GRACE_SECONDS = 10.0
"""How long jobs may take to notice that they were interrupted, and to give up their leases."""
Ends: TypeAlias = "SimpleQueue[tuple[str, Outcome]]"


@dataclass(frozen=True)
class SideBySide:
    """Runs jobs in threads of one session; `earlier` says by job which others have to end before it begins.

    A job that failed is no reason to leave out those that wait for it: as one after the other, they find what is there.
    """

    runner: Runner
    wait: Callable[[float], bool]
    at_once: int
    earlier: Mapping[str, Collection[str]] = field(default_factory=dict)
    interrupt: Callable[[], None] = lambda: None
    """Stops what the jobs do in Spark, when a person does not want to wait for them."""

    def run(self, jobs: Sequence[Runnable]) -> Iterator[Outcome]:
        """Each job's outcome as it ends; once somebody asked to stop, those that have not begun are skipped."""
        by_name = {job.name: job for job in jobs}
        order = TopologicalSorter({name: [e for e in self.earlier.get(name, ()) if e in by_name] for name in by_name})
        order.prepare()
        ready: SimpleQueue[Runnable | None] = SimpleQueue()
        ends: Ends = SimpleQueue()
        with self._threads(min(self.at_once, len(jobs)), ready, ends):
            while order.is_active():
                for name in sorted(order.get_ready(), key=list(by_name).index):
                    ready.put(by_name[name])
                name, outcome = ends.get()
                order.done(name)
                yield outcome

    @contextmanager
    def _threads(self, count: int, ready: SimpleQueue[Runnable | None], ends: Ends) -> Iterator[None]:
        """Threads that run what is ready; whatever ends the block early stops them, too."""
        stop = threading.Event()
        names = [f"floodmark-job-{number}" for number in range(1, count + 1)]
        # Daemons: a person who interrupts twice must not wait for a job that does not listen.
        threads = [threading.Thread(target=self._work, args=(ready, ends, stop), name=n, daemon=True) for n in names]
        for thread in threads:
            thread.start()
        try:
            yield
        except BaseException:
            stop.set()
            with suppress(Exception):  # Spark may be gone already, and what ended the block is what counts
                self.interrupt()
            raise
        finally:
            for _ in threads:
                ready.put(None)
            for thread in threads:
                thread.join(GRACE_SECONDS if stop.is_set() else None)

    def _work(self, ready: SimpleQueue[Runnable | None], ends: Ends, stop: threading.Event) -> None:
        def stops(seconds: float) -> bool:
            return stop.is_set() or self.wait(seconds)

        while (job := ready.get()) is not None:
            try:
                [outcome] = run_each([job], self.runner, stops)
            except BaseException as error:  # noqa: BLE001 - a function of the user's that exits ends its job, not ours
                outcome = _ended_by(job.name, error)
            ends.put((job.name, outcome))


def _ended_by(job: str, error: BaseException) -> Outcome:
    reason = RuntimeError(f"{type(error).__name__}: {error}")
    return Outcome(Receipt(job, "", "failed", datetime.now(timezone.utc), error=str(reason)), reason)
