"""The session of a command: started once, late, and without taking the signals of a loop."""

from __future__ import annotations

import signal
from typing import TYPE_CHECKING

from floodmark.cli.invocation import LazySession
from floodmark.patience import stop_on

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class Session:
    """Takes SIGINT over when it starts, as PySpark's does."""

    starts = 0

    def __init__(self) -> None:
        Session.starts += 1
        self.stopped = False
        signal.signal(signal.SIGINT, signal.SIG_IGN)

    def stop(self) -> None:
        self.stopped = True


def start() -> SparkSession:
    return Session()  # type: ignore[return-value]


def test_a_session_that_nobody_asked_for_is_not_started() -> None:
    """And so there is nothing to stop either."""
    before = Session.starts
    LazySession(start).stop()
    assert Session.starts == before


def test_all_jobs_share_one_session() -> None:
    """The second one pays nothing."""
    with stop_on(signal.SIGINT):
        session = LazySession(start)
        assert session() is session()


def test_a_loop_has_its_signal_back_after_spark_started() -> None:
    """PySpark would cancel the batch; the loop wants to finish it."""
    with stop_on(signal.SIGINT):
        ours = signal.getsignal(signal.SIGINT)
        LazySession(start)()
        assert signal.getsignal(signal.SIGINT) is ours


def test_what_was_started_is_stopped() -> None:
    """A cluster has to know that the application ended."""
    with stop_on(signal.SIGINT):
        lazy = LazySession(start)
        session = lazy()
        lazy.stop()
    assert session.stopped  # type: ignore[attr-defined]


def test_a_session_that_was_there_before_is_left_alone(spark: SparkSession) -> None:
    """A program that calls the command line goes on with its own."""
    lazy = LazySession.of({})
    assert lazy() is spark
    lazy.stop()
    assert spark.range(1).count() == 1
