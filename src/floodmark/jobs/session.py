"""The Spark session of a command: shared by its jobs, and started only when one of them has rows to move."""

from __future__ import annotations

import signal
import threading
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from pyspark.sql import SparkSession


@dataclass
class LazySession:
    """Call it for the session; `stop` ends what it started, and nothing else."""

    start: Callable[[], SparkSession]
    _session: SparkSession | None = None
    _lock: threading.Lock = field(default_factory=threading.Lock)

    @classmethod
    def of(cls, settings: Mapping[str, str]) -> LazySession:
        """A session with the project's Spark settings."""

        def start() -> SparkSession:
            from floodmark.spark.session import spark_session

            return spark_session(settings)

        return cls(start)

    def __call__(self) -> SparkSession:
        with self._lock:
            if self._session is None:
                self._session = _keeping_our_signals(self.start)
            return self._session

    def stop(self) -> None:
        """Let a cluster know that the application has ended."""
        if self._session is not None:
            self._session.stop()
            self._session = None


def _keeping_our_signals(start: Callable[[], SparkSession]) -> SparkSession:
    """PySpark takes SIGINT over to cancel its jobs; a loop that wants to finish its batch needs it back."""
    ours = signal.getsignal(signal.SIGINT)
    session = start()
    if ours is not signal.default_int_handler and threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGINT, ours)
    return session
