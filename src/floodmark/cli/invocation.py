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
    from floodmark.project.lint import Report as LintReport
    from floodmark.project.models import JobModel, Project
    from floodmark.project.python_jobs import Unseen
    from floodmark.spark.status import WorkInSpark
    from floodmark.stores.contract import MarkStore


log = get_logger(__name__)
CLUSTER = ("spark.master", "spark.remote")
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
        from floodmark.spark.session import is_forgotten

        with self._lock:
            if self._session is not None and is_forgotten(self._session):
                self._forget()
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
        from floodmark.spark.gateway import stop

        if self._session is not None and not self._is_borrowed:
            stop(self._session)
        self._forget()


def _cancel_quietly(session: SparkSession) -> None:
    from floodmark.spark.gateway import is_connect

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

    return in_order(build_jobs(project, site, select))


def in_order(jobs: Sequence[Job]) -> Sequence[Job]:
    """Each job after those that fill what it reads, and else as the project has them."""
    if len(jobs) == 1:
        return jobs
    from floodmark.jobs.table_readers import order
    from floodmark.lineage import needed_jobs

    by_name = {job.name: job for job in jobs}
    return [by_name[name] for name in order(needed_jobs(jobs))]


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
    _unseen: list[Unseen] = field(default_factory=list)
    _needs: dict[str, tuple[str, ...]] | None = None
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
        from floodmark.project.models import PythonJobs

        if self._project is None:
            project = load(self.document())
            if any(isinstance(each, PythonJobs) for each in project.listed):
                project, self._unseen = self._with_python_jobs(project)
            for each in self._unseen:
                log.warning("could not look inside Python jobs", name=each.name, reason=each.error.message)
            self._project = project
        return self._project

    def _with_python_jobs(self, project: Project) -> tuple[Project, list[Unseen]]:
        from floodmark.project.python_jobs import with_python_jobs
        from floodmark.stores.opening import folder_beside

        return with_python_jobs(project, self.site(), lambda: folder_beside(self.store()))

    def _look_again_with_spark(self) -> None:
        """A module may need a session when it is imported: what could not be looked into is, once Spark has started."""
        from floodmark.locations import missing_part

        if not self._unseen:
            return
        project, folder = self.loaded_project(), self.document().folder
        for each in self._unseen:
            if missing_part(each.name, folder) is not None:
                raise each.error  # Spark would not bring it
        self.session()()
        self._project, self._unseen = self._with_python_jobs(project)
        if self._unseen:
            raise self._unseen[0].error

    def lint(self) -> LintReport:
        """What lint says of the project, the jobs that Python gives included."""
        from floodmark.project.lint import lint

        return lint(self.document(), self._with_python_jobs)

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

    def jobs(
        self,
        select: Sequence[str] = (),
        *,
        exclude: Sequence[str] = (),
        console: Literal["stdout", "stderr"] = "stdout",
    ) -> Sequence[Job]:
        """The selected jobs, ready to run, each after those that fill what it reads.

        A module of theirs that needs Spark while it is imported gets it first.
        """
        self.loaded_project()
        self._look_again_with_spark()
        try:
            return self.jobs_as_they_are(select, exclude=exclude, console=console)
        except ModuleNeedsSpark as error:
            log.info("Spark is started first", module=error.module, reason=error.reason)
            self.session()()
            jobs = self.jobs_as_they_are(select, exclude=exclude, console=console)
            send_by_value(error.imported)
            return jobs

    def jobs_as_they_are(
        self,
        select: Sequence[str] = (),
        *,
        exclude: Sequence[str] = (),
        console: Literal["stdout", "stderr"] = "stdout",
    ) -> Sequence[Job]:
        """The selected jobs. Raises ModuleNeedsSpark if one stands in a module that needs a session."""
        from floodmark.project.selection import is_plain

        is_named = not exclude and all(map(is_plain, select))
        names = select if is_named else [job.name for job in self.selected(select, exclude)]
        jobs = self.tools.build_jobs(self.loaded_project(), self.site(console), names)
        if not jobs:
            if self._unseen:
                raise self._unseen[0].error
            raise ConfigError("the project has no jobs.", hint="add one under `jobs:`; floodmark init shows an example")
        self.job_names = tuple(job.name for job in jobs)
        return jobs

    def selected(self, select: Sequence[str] = (), exclude: Sequence[str] = ()) -> list[JobModel]:
        """What the project file says of the selected jobs. Raises JobNotFound, or ConfigError if none is left."""
        from floodmark.project.selection import Selection

        project = self.loaded_project()
        chosen = Selection(select, exclude).of(project.jobs, self.needed_jobs)
        if not chosen and exclude:
            raise ConfigError("--exclude leaves no job.", hint="leave one of its words out")
        return chosen

    def needed_jobs(self) -> dict[str, tuple[str, ...]]:
        """By job of the project, those that fill what it reads."""
        from floodmark.lineage import needed_jobs
        from floodmark.lineage.flows import Parts

        if self._needs is None:
            site = self.site()
            self._needs = needed_jobs(Parts.of_model(job, site) for job in self.loaded_project().jobs)
        return self._needs

    def session(self) -> LazySession:
        """The Spark session of this command; not started by asking for it."""
        if self._session is None:
            self._session = self._ready(self.tools.session(self.loaded_project().spark_settings()))
        return self._session

    def abandon_session(self) -> None:
        """Stop what runs in Spark, and wait for nothing: its JVM ends with this process."""
        if self._session is not None:
            self._session.abandon()

    def _ready(self, session: LazySession) -> LazySession:
        setup = self.loaded_project().setup
        if setup is not None:
            session.start = self._with_setup(session.start, setup)
        return session

    def local_session(self) -> LazySession:
        """As `session`, on this machine: wherever the project runs, its tests need no cluster."""
        if self._session is None:
            settings = {n: v for n, v in self.loaded_project().spark_settings().items() if n not in CLUSTER}
            self._session = self._ready(self.tools.session({**settings, "spark.master": "local[2]"}))
        return self._session

    def _with_setup(self, start: Callable[[], SparkSession], name: str) -> Callable[[], SparkSession]:
        """Start Spark, and let the project's own function make it ready."""
        from floodmark.locations import load_name

        def started() -> SparkSession:
            session = start()
            setup: Callable[[SparkSession], object] = load_name(name, self.document().folder)  # type: ignore[assignment]
            setup(session)
            return session

        return started

    def close(self) -> None:
        """End what this call started."""
        if self._session is not None:
            self._session.stop()
        if self._store is not None:
            self._store.close()
