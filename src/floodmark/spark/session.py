"""The Spark session: the one that is there, or a quiet local one with Delta; its settings, and the start of its JVM."""

from __future__ import annotations

import os
import site
import sys
import sysconfig
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from floodmark.errors import SparkUnavailable
from floodmark.errors.causes import cause_of
from floodmark.object_stores import SETTINGS
from floodmark.phases import phase
from floodmark.spark.gateway import ensure_gateway, environment, forget_ended_jvm, is_connect, jvm_exit_code, stop
from floodmark.spark.remote import INVALID_HANDLE

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from pyspark.sql import SparkSession


DELTA_EXTENSION = "io.delta.sql.DeltaSparkSessionExtension"
DELTA_CATALOG = "org.apache.spark.sql.delta.catalog.DeltaCatalog"
PACKAGES = "spark.jars.packages"
REMOTE = "spark.remote"
CLIENT_MODULES = ("grpc", "grpc_status", "zstandard")
"""What PySpark's client of a Connect server needs beside what it brings."""
LOG_SETTINGS = Path(__file__).with_name("log4j2.properties")
SPARK_LOG = "FLOODMARK_SPARK_LOG"

UNBOUNDED = str(2**31 - 1)
"""With any lower bound Spark asks after every row how large its Arrow batch has become: half of the way to Python."""

LOCKED = "floodmark.locked:"
"""How the name of a property of the JVM begins that says which file it has locked, for whichever Python."""

MOST_STAGES = "32"
"""As many stages of all queries are started side by side; more than any machine has cores for."""

_LISTS = {  # settings that hold several values: ours and the user's both count
    "spark.driver.extraClassPath": os.pathsep,
    "spark.driver.extraJavaOptions": " ",
    "spark.executorEnv.PYTHONPATH": os.pathsep,
    "spark.jars": ",",
    "spark.sql.extensions": ",",
}
INSTALLED = ("stdlib", "platstdlib", "purelib", "platlib", "scripts")


def spark_session(settings: Mapping[str, str] | None = None, *, app_name: str = "floodmark") -> SparkSession:
    """The active session as it is, or a new one; `settings` win over ours, and may leave out the `spark.` prefix.

    Raises JavaMissing, ConnectorsMissing, or SparkUnavailable where a local session has no Delta.

    >>> session = spark_session({"sql.shuffle.partitions": "8"})  # the one that is active already, if there is one
    >>> session is spark
    True
    """
    active = active_session()
    if active is not None and is_forgotten(active):
        stop(active)
        active = None
    if active is not None:
        SETTINGS.remember_later(lambda: active.conf.getAll)
        return _with_delta(active)
    chosen = full_names(settings or {})
    SETTINGS.remember(chosen)
    with phase("starting Spark"):
        if remote := chosen.get(REMOTE) or os.environ.get("SPARK_REMOTE"):
            return _start_client(remote, chosen, app_name)
        return _start(chosen, app_name) if _is_provided(chosen) else _start_own(chosen, app_name)


def session_of(spark: SparkSession | Callable[[], SparkSession] | None) -> Callable[[], SparkSession]:
    """What gives a session that is there, or one that is started when it is first needed."""
    if spark is None:
        return spark_session
    return spark if callable(spark) else lambda: spark


def jvm_pid(spark: SparkSession) -> int | None:
    """The process id of the driver's JVM on this host; None where there is none (Spark Connect)."""
    if is_connect(spark):
        return None
    process = getattr(spark.sparkContext._gateway, "proc", None)
    return process.pid if process else os.getppid()  # without a process of ours, spark-submit's JVM started this Python


def jvm_lock(spark: SparkSession, file: Path) -> Callable[[], None] | None:
    """Have the driver's JVM lock a file, and give what lets go of it; None if somebody has it. It ends with the JVM.

    The JVM and not Python, as it is what commits, and may outlive Python. One thread at a time may ask for a file: a
    JVM that closes a file gives up every lock that it has of it. Raises OSError where the disk knows no locks.
    """
    jvm = spark.sparkContext._jvm
    taken, name = jvm.java.lang.System.getProperties(), f"{LOCKED}{file.resolve()}"  # type: ignore[union-attr]
    if taken.putIfAbsent(name, "") is not None:
        return None  # another Python of this JVM has it, and would lose it once the file were closed here
    try:
        opened = jvm.java.io.RandomAccessFile(str(file), "rw")  # type: ignore[union-attr]
        lock = opened.getChannel().tryLock()
    except Exception as error:
        taken.remove(name)
        reason = getattr(error, "java_exception", None)
        if reason is None:
            raise
        raise OSError(f"Spark's JVM could not lock {file}: {reason}") from error

    def release() -> None:
        opened.close()
        taken.remove(name)

    if lock is None:
        release()
        return None
    return release


def is_forgotten(spark: SparkSession) -> bool:
    """Whether its JVM has ended, or a Connect server no longer knows it: it was idle for long, or the server is new."""
    if not is_connect(spark):
        return jvm_exit_code() is not None
    from pyspark.errors import PySparkException

    try:
        spark.conf.get("spark.app.id", "")
    except PySparkException as error:
        return INVALID_HANDLE in str(error)
    return False


def runs_here(spark: SparkSession) -> bool:
    """Whether every task runs on this machine, and so sees its disks."""
    return not is_connect(spark) and is_local(spark.conf.get("spark.master", "") or "")


def cores(spark: SparkSession) -> int:
    """How many tasks run side by side, as far as the settings tell; a wrong guess costs speed and nothing else."""
    master = spark.conf.get("spark.master", "") or ""
    per_executor, executors = (spark.conf.get(f"spark.executor.{what}", "") for what in ("cores", "instances"))
    if not is_local(master) and per_executor and executors:
        return int(per_executor) * int(executors)
    return local_cores(master)


def tasks_for(spark: SparkSession, parts: int, size: int, per_task: int) -> int | None:
    """In how many tasks so many parts of a batch are read, of `per_task` each at least; None where each is worth one.

    A task costs some milliseconds, and a file of its own in every table that is written.
    """
    wanted = max(cores(spark), -(-size // per_task))
    return wanted if wanted < parts else None


def local_cores(master: str) -> int:
    """As many as `local[2]` says, one for `local`; else those of this machine."""
    count = master.removeprefix("local").strip("[]").split(",")[0] if is_local(master) else "*"
    return int(count or 1) if count.isdigit() or not count else os.cpu_count() or 2


def active_session() -> SparkSession | None:
    """The session of this process, whoever started it; none is started for it."""
    from pyspark.errors import PySparkRuntimeError
    from pyspark.sql import SparkSession

    forget_ended_jvm()
    try:
        return SparkSession.active()  # also finds the session that another thread made
    except PySparkRuntimeError:
        return None


def _with_delta(active: SparkSession) -> SparkSession:
    from floodmark.spark.connectors import brings_connectors

    if is_connect(active) or not brings_connectors() or not is_local(active.conf.get("spark.master", "") or ""):
        return active
    if DELTA_EXTENSION in (active.conf.get("spark.sql.extensions", "") or ""):
        return active
    raise SparkUnavailable(
        "the active local Spark session was made without Delta.",
        hint="make the session with floodmark.spark_session(), or stop yours first",
    )


def _is_provided(chosen: Mapping[str, str]) -> bool:
    """Whether somebody else decides on master and jars: Databricks, or spark-submit."""
    return any(os.environ.get(name) for name in ("DATABRICKS_RUNTIME_VERSION", "PYSPARK_GATEWAY_PORT"))


def _start_client(remote: str, chosen: Mapping[str, str], app_name: str) -> SparkSession:
    """A session of a Spark Connect server, which has the connectors; our modules and the user's go along.

    Raises SparkUnavailable if its client is not installed, or nobody answers there: it would try for ten minutes.
    """
    from floodmark.spark.masters import require_answer

    if any(find_spec(module) is None for module in CLIENT_MODULES):
        hint = "pip install 'pyspark[connect]'"
        raise SparkUnavailable("the client of Spark Connect is not installed.", hint=hint)
    if remote.startswith("sc://"):
        require_answer(remote)
    settings = {name: value for name, value in chosen.items() if name != "spark.master"}
    return _with_modules(_start({**settings, REMOTE: remote}, app_name), chosen)


def _start_own(chosen: Mapping[str, str], app_name: str) -> SparkSession:
    from floodmark.spark import connectors as own  # only for a new session
    from floodmark.spark.java import find_java
    from floodmark.spark.masters import require_answer
    from floodmark.spark.sharing import archive_file, make_later, sharing_options

    require_answer(chosen.get("spark.master", "local[*]"))
    java, ivy_settings = find_java(), chosen.get("spark.jars.ivySettings")
    jars = own.connectors(ivy_settings) if own.brings_connectors() else ()
    if jars and own.asks_for_s3(chosen):
        jars += own.s3_connectors(ivy_settings)
    if jars and is_local(chosen.get("spark.master", "local[*]")):  # Spark itself would ask the registry at every start
        jars += own.package_jars(chosen.get(PACKAGES, ""), ivy_settings)
        chosen = {name: value for name, value in chosen.items() if name != PACKAGES}
    archive = archive_file(java, jars)
    sharing = sharing_options(archive, chosen.get("spark.driver.extraJavaOptions", ""))
    settings = session_settings(chosen, jars, sharing)
    _quiet_pyspark()
    if not is_local(settings["spark.master"]):
        ensure_gateway(settings, java, ())
        return _with_modules(_start(settings, app_name), settings)
    if jars:
        make_later(archive)
    with environment({"PYSPARK_PYTHON": os.environ.get("PYSPARK_PYTHON", sys.executable)}):  # not any python3 of PATH
        ensure_gateway(settings, java, jars)
        return _start(settings, app_name)


def _with_modules(spark: SparkSession, settings: Mapping[str, str]) -> SparkSession:
    """The executors of a cluster know neither this package nor the user's modules, unless they are handed over."""
    from floodmark.spark.shipping import SHIPPING, ship_modules

    if settings.get(SHIPPING, "true").lower() != "false":
        ship_modules(spark, own_folders())
    return spark


def _quiet_pyspark() -> None:
    """PySpark writes every analysis error to stderr with its whole JVM stack, and raises it too: once is enough."""
    from pyspark.logger import PySparkLogger

    for name in ("SQLQueryContextLogger", "DataFrameQueryContextLogger"):
        PySparkLogger.getLogger(name).setLevel("CRITICAL" if SPARK_LOG not in os.environ else "ERROR")


def _start(settings: Mapping[str, str], app_name: str) -> SparkSession:
    from pyspark.sql import SparkSession

    try:
        return SparkSession.builder.config(map=dict(settings)).appName(app_name).getOrCreate()
    except Exception as error:  # Spark fails in its own, Py4J's and Python's ways
        cause = cause_of(error)
        hint = cause.hint or f"{SPARK_LOG}=info shows what Spark says"
        raise SparkUnavailable(f"no Spark session could be started: {cause.reason}", hint=hint) from error


def full_names(settings: Mapping[str, str]) -> dict[str, str]:
    """The user's settings; the `spark.` in front of a name may be left out."""
    return {name if name.startswith("spark.") else f"spark.{name}": str(value) for name, value in settings.items()}


def is_local(master: str) -> bool:
    """Whether driver and executors are one JVM on this machine."""
    return master == "local" or master.startswith("local[")


def session_settings(
    chosen: Mapping[str, str], jars: Sequence[Path], java_options: Sequence[str] = ()
) -> dict[str, str]:
    """Everything a new session is started with; what the user chose wins."""
    master = chosen.get("spark.master", "local[*]")
    own = _local(master, java_options) | _modules() | _call_sites() if is_local(master) else {}
    ours = {"spark.master": master} | own
    if jars:  # spark.jars would copy every jar at each start, so a local driver has them on its class path
        ours |= _delta(jars, "spark.driver.extraClassPath" if is_local(master) else "spark.jars")
    both = {name: _LISTS[name].join([ours[name], chosen[name]]) for name in _LISTS if name in ours and name in chosen}
    return ours | dict(chosen) | both


def _delta(jars: Sequence[Path], place: str) -> dict[str, str]:
    return {
        place: _LISTS[place].join(map(str, jars)),
        "spark.sql.extensions": DELTA_EXTENSION,
        "spark.sql.catalog.spark_catalog": DELTA_CATALOG,
    }


def _local(master: str, java_options: Sequence[str]) -> dict[str, str]:
    import tempfile

    warehouse = Path(tempfile.gettempdir()) / f"floodmark-warehouse-{os.getpid()}"  # made only when a table needs it
    return {
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.memory": "2g",
        "spark.driver.extraJavaOptions": " ".join(
            [f"-Dlog4j2.configurationFile={LOG_SETTINGS.as_uri()}", *java_options]
        ),
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",  # INT96 is read wrongly by others before 1677
        "spark.sql.shuffle.partitions": str(local_cores(master)),
        "spark.sql.catalogImplementation": "in-memory",
        "spark.sql.warehouse.dir": warehouse.as_uri(),
        "spark.sql.execution.arrow.maxBytesPerBatch": UNBOUNDED,
        "spark.sql.inMemoryColumnarStorage.compressed": "false",  # what a turn keeps is read once, and soon
        "spark.databricks.delta.snapshotPartitions": "1",  # one task knows all files of what one machine holds
        # One merge needs nearly all of the hundred that Spark keeps: each would push out what the next compiles again.
        "spark.sql.codegen.cache.maxEntries": "500",
        # Spark begins a thread for each stage of a query, and lets it go after an idle minute: up to a thousand each.
        "spark.sql.shuffleExchange.maxThreadThreshold": MOST_STAGES,
        "spark.sql.resultQueryStage.maxThreadThreshold": MOST_STAGES,
        "spark.sql.ui.retainedExecutions": "50",  # a loop would keep the plans of a thousand, for a page that is off
        "spark.ui.retainedTasks": "10000",  # and what a hundred thousand tasks did
        # Figures that nobody reads, counted anew at every commit.
        "spark.databricks.delta.fileSizeHistogramMetrics.enabled": "false",
        "spark.databricks.delta.checksumDeletedRecordCountsHistogramMetrics.enabled": "false",
        "spark.sql.sources.parallelPartitionDiscovery.parallelism": "8",  # else one task per listed file: seconds
    }


def _modules() -> dict[str, str]:
    """What Spark's Python workers import beside what is installed: they know nothing of a script's folder."""
    folders = own_folders()
    return {"spark.executorEnv.PYTHONPATH": os.pathsep.join(folders)} if folders else {}


def _call_sites() -> dict[str, str]:
    """Spark notes the line of Python behind every operator on columns, in nearly as many calls of the JVM as all the
    rest; it is met in the whole text of an error only, so who wants to read that gets it."""
    wanted = str(SPARK_LOG in os.environ).lower()
    return dict.fromkeys(
        ("spark.python.sql.dataFrameDebugging.enabled", "spark.sql.dataFrameQueryContext.enabled"), wanted
    )


def own_folders(path: Sequence[str] | None = None) -> tuple[str, ...]:
    """The folders of `sys.path` that are not Python's or a package manager's: a script's, a project's, PYTHONPATH.

    A worker runs the same Python, so what is installed it finds by itself; put in front of the standard library, an
    installed backport would take the place of a module there.
    """
    folders = [Path(entry).absolute() for entry in (sys.path if path is None else path)]  # '' is the working folder
    installed = _install_folders()
    own = [each for each in folders if each.is_dir() and installed.isdisjoint((each, *each.parents))]
    return tuple(dict.fromkeys(map(str, own)))


def _install_folders() -> set[Path]:
    """Where Python and package managers put modules."""
    named = (sysconfig.get_path(name) for name in INSTALLED)
    return {Path(found) for found in (*named, *site.getsitepackages(), site.getusersitepackages())}
