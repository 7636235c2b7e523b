"""One call of the command line: its global options, and what commands get from them when they ask."""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from floodmark.errors import ConfigError, ModuleNeedsSpark, UnknownKind
from floodmark.logs import LEVELS, Format, configure, get_logger, redact
from floodmark.patience import INTERRUPTION_HOOKS

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from floodmark.jobs.job import Job
    from floodmark.project.file import Document, StoreSettings, Variables
    from floodmark.project.kinds import Site
    from floodmark.project.models import Project
    from floodmark.spark.status import WorkInSpark
    from floodmark.stores.contract import MarkStore


log = get_logger(__name__)
LOG_VARIABLE = "FLOODMARK_LOG"


@dataclass(frozen=True)
class LogSettings:
    """What is logged, and how it looks."""

    level: str = "warning"
    format: Format = "pretty"
    is_level_set: bool = False

    @classmethod
    def of(cls, level: str | None, style: str | None) -> LogSettings:
        """The options, else FLOODMARK_LOG (a level, a format, or both with a comma), else the defaults."""
        words = [word.strip().lower() for word in os.environ.get(LOG_VARIABLE, "").split(",") if word.strip()]
        for word in words:
            if word not in (*LEVELS, "json", "pretty"):
                raise UnknownKind(f"word in {LOG_VARIABLE}", word, known=(*LEVELS, "json", "pretty"))
        named = level or next((word for word in words if word in LEVELS), None)
        level = named or cls.level
        style = style or next((word for word in words if word not in LEVELS), cls.format)
        if level.lower() not in LEVELS:
            raise UnknownKind("--log-level", level, known=LEVELS)
        if style not in ("json", "pretty"):
            raise UnknownKind("--log-format", style, known=("json", "pretty"))
        return cls(level.lower(), "json" if style == "json" else "pretty", named is not None)


@dataclass
class LazySession:
    """The Spark session of a command: shared by its jobs, and started only when one of them has rows to move.

    Call it for the session; `stop` ends what it started, and nothing else.
    """

    start: Callable[[], SparkSession]
    _session: SparkSession | None = None
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _is_borrowed: bool = False
    """Whether the session was there before: a program that calls the command line goes on with it."""

    @classmethod
    def of(cls, settings: Mapping[str, str]) -> LazySession:
        """A session with the project's Spark settings, or the one that this process has already."""

        def start() -> SparkSession:
            from floodmark.spark.session import active_session, spark_session

            lazy._is_borrowed = active_session() is not None
            return spark_session(settings)

        lazy = cls(start)
        return lazy

    def __call__(self) -> SparkSession:
        with self._lock:
            if self._session is None:
                self._session = _keeping_our_signals(self.start)
                INTERRUPTION_HOOKS.append(self._cancel_soon)
            return self._session

    def work(self) -> WorkInSpark | None:
        """How far Spark is; None while it has not been started."""
        from floodmark.spark.status import work_in_spark

        return work_in_spark(self._session) if self._session is not None else None

    def interrupt(self) -> None:
        """Stop the Spark jobs that run in it, if it was started."""
        if self._session is not None:
            self._session.interruptAll()

    def abandon(self) -> None:
        """Cancel what runs in a session of its own, and forget it: stopping it in order may take long."""
        if self._session is not None and not self._is_borrowed:
            self._forget()

    def _cancel_soon(self) -> None:
        """In a thread of its own: a signal may have come in the middle of a call of the JVM, which then ends soon."""
        if self._session is not None:
            threading.Thread(target=_cancel_quietly, args=(self._session,), daemon=True).start()

    def _forget(self) -> None:
        with suppress(ValueError):
            INTERRUPTION_HOOKS.remove(self._cancel_soon)
        self._session = None

    def stop(self) -> None:
        """Let a cluster know that the application has ended."""
        if self._session is not None and not self._is_borrowed:
            self._session.stop()
        self._forget()


def _cancel_quietly(session: SparkSession) -> None:
    from floodmark.spark.session import is_connect

    with suppress(Exception):  # whatever it says, this process is about to end
        session.interruptAll() if is_connect(session) else session.sparkContext.cancelAllJobs()


def send_by_value(modules: Sequence[str]) -> None:
    """Let Spark's workers get functions of these modules as they are: a worker has no session to import them with."""
    from pyspark.cloudpickle import register_pickle_by_value

    for name in modules:
        if name in sys.modules:
            register_pickle_by_value(sys.modules[name])  # type: ignore[no-untyped-call]


def _keeping_our_signals(start: Callable[[], SparkSession]) -> SparkSession:
    """PySpark takes SIGINT over to cancel its jobs, in the middle of whatever call of the JVM is under way.

    That fails with a traceback, and a loop that wants to finish its batch needs the signal back anyway.
    """
    ours = signal.getsignal(signal.SIGINT)
    session = start()
    if threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGINT, ours)
    return session


def _open_store(settings: StoreSettings) -> MarkStore:
    from floodmark import stores

    text = list(settings.store) if isinstance(settings.store, tuple) else settings.store
    return stores.open(text, namespace=settings.namespace, folder=settings.folder)


def _build_jobs(project: Project, site: Site, select: Sequence[str]) -> Sequence[Job]:
    from floodmark.project import build_jobs

    return build_jobs(project, site, select)


@dataclass(frozen=True)
class Tools:
    """How a store is opened, jobs are built and Spark is started; tests hand in their own."""

    open_store: Callable[[StoreSettings], MarkStore] = _open_store
    build_jobs: Callable[[Project, Site, Sequence[str]], Sequence[Job]] = _build_jobs
    session: Callable[[Mapping[str, str]], LazySession] = LazySession.of


@dataclass
class Invocation:
    """The global options, and the project behind them: read once, and only as far as a command needs it."""

    tools: Tools = field(default_factory=Tools)
    project: Path | None = None
    target: str | None = None
    env_file: Path | None = None
    logs: LogSettings = LogSettings()
    job_names: tuple[str, ...] = ()
    """Of the jobs that this call has built: what it may leave open is theirs."""
    _variables: Variables | None = None
    _document: Document | None = None
    _project: Project | None = None
    _store: MarkStore | None = None
    _session: LazySession | None = None

    def scrub(self, text: str) -> str:
        """The text without a secret or the value of a variable."""
        return self._variables.scrub(text) if self._variables else redact(text)

    def start_logging(self, default: str | None = None) -> None:
        """Let the `floodmark` loggers be heard on stderr; a command may have a default level of its own."""
        level = default if default and not self.logs.is_level_set else self.logs.level
        configure(level, self.logs.format, scrub=self.scrub)

    def document(self) -> Document:
        """The project file, parsed."""
        from floodmark.project.file import Variables, find_project, read_document, read_env_file

        if self._document is None:
            extra = read_env_file(self.env_file) if self.env_file else {}
            self._variables = Variables({**extra, **os.environ})
            self._document = read_document(find_project(self.project, Path.cwd()), self._variables, target=self.target)
        return self._document

    def loaded_project(self) -> Project:
        """The project file, every field of it checked."""
        from floodmark.project.loading import load

        if self._project is None:
            self._project = load(self.document())
        return self._project

    def store(self) -> MarkStore:
        """The project's mark store."""
        from floodmark.project.file import store_settings

        if self._store is None:
            self._store = self.tools.open_store(store_settings(self.document()))
            log.debug("store opened", store=self._store.describe(), namespace=self._store.namespace)
        return self._store

    def site(self, console: Literal["stdout", "stderr"] = "stdout") -> Site:
        """Where the project's jobs are built."""
        from floodmark.project.kinds import Site

        return Site(self.document().folder, console)

    def jobs(self, select: Sequence[str] = (), *, console: Literal["stdout", "stderr"] = "stdout") -> Sequence[Job]:
        """The selected jobs, ready to run; a module of theirs that needs Spark while it is imported gets it first."""
        try:
            return self.jobs_as_they_are(select, console=console)
        except ModuleNeedsSpark as error:
            log.info("Spark is started first", module=error.module, reason=error.reason)
            self.session()()
            jobs = self.jobs_as_they_are(select, console=console)
            send_by_value(error.imported)
            return jobs

    def jobs_as_they_are(
        self, select: Sequence[str] = (), *, console: Literal["stdout", "stderr"] = "stdout"
    ) -> Sequence[Job]:
        """The selected jobs. Raises ModuleNeedsSpark if one stands in a module that needs a session."""
        jobs = self.tools.build_jobs(self.loaded_project(), self.site(console), select)
        if not jobs:
            raise ConfigError("the project has no jobs.", hint="add one under `jobs:`; floodmark init shows an example")
        self.job_names = tuple(job.name for job in jobs)
        return jobs

    def session(self) -> LazySession:
        """The Spark session of this command; not started by asking for it."""
        if self._session is None:
            self._session = self.tools.session(self.loaded_project().spark_settings())
        return self._session

    def abandon_session(self) -> None:
        """Stop what runs in Spark, and wait for nothing: its JVM ends with this process."""
        if self._session is not None:
            self._session.abandon()

    def close(self) -> None:
        """End what this call started."""
        if self._session is not None:
            self._session.stop()
        if self._store is not None:
            self._store.close()
