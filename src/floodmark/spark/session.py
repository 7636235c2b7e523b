"""The Spark session: the one that is there, or a quiet local one with Delta."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING

from floodmark.errors import SparkUnavailable
from floodmark.spark.connectors import connectors, wanted
from floodmark.spark.gateway import ensure_gateway, environment
from floodmark.spark.java import find_java
from floodmark.spark.settings import DELTA_EXTENSION, SPARK_LOG, full_names, is_local, session_settings

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pyspark.sql import SparkSession


def spark_session(settings: Mapping[str, str] | None = None, *, app_name: str = "floodmark") -> SparkSession:
    """The active session as it is, or a new one; `settings` win over ours, and may leave out the `spark.` prefix.

    Raises JavaMissing, ConnectorsMissing, or SparkUnavailable where a local session has no Delta.
    """
    active = _active_session()
    if active is not None:
        return _with_delta(active)
    chosen = full_names(settings or {})
    if _is_provided(chosen):
        return _start(chosen, app_name)
    return _start_own(chosen, app_name)


def isolated(spark: SparkSession) -> SparkSession:
    """A session beside this one on the same cluster, for statements that need settings of their own."""
    clone = getattr(spark, "cloneSession", None)
    return clone() if is_connect(spark) and clone else spark.newSession()


def jvm_pid(spark: SparkSession) -> int | None:
    """The process id of the driver's JVM on this host; None where there is none (Spark Connect)."""
    if is_connect(spark):
        return None
    process = getattr(spark.sparkContext._gateway, "proc", None)
    return process.pid if process else os.getppid()  # without a process of ours, spark-submit's JVM started this Python


def is_connect(spark: SparkSession) -> bool:
    """Whether this session talks to a Spark Connect server and has no JVM here."""
    return type(spark).__module__.startswith("pyspark.sql.connect")


def _active_session() -> SparkSession | None:
    from pyspark.errors import PySparkRuntimeError
    from pyspark.sql import SparkSession

    try:
        return SparkSession.active()  # also finds the session that another thread made
    except PySparkRuntimeError:
        return None


def _with_delta(active: SparkSession) -> SparkSession:
    if is_connect(active) or not wanted() or not is_local(active.conf.get("spark.master", "") or ""):
        return active
    if DELTA_EXTENSION in (active.conf.get("spark.sql.extensions", "") or ""):
        return active
    raise SparkUnavailable(
        "the active local Spark session was made without Delta.",
        hint="make the session with floodmark.spark_session(), or stop yours first",
    )


def _is_provided(chosen: Mapping[str, str]) -> bool:
    """Whether somebody else decides on master and jars: Databricks, a Connect server, or spark-submit."""
    there = ("DATABRICKS_RUNTIME_VERSION", "SPARK_REMOTE", "PYSPARK_GATEWAY_PORT")
    return "spark.remote" in chosen or any(os.environ.get(name) for name in there)


def _start_own(chosen: Mapping[str, str], app_name: str) -> SparkSession:
    java = find_java()
    jars = connectors(chosen.get("spark.jars.ivySettings")) if wanted() else ()
    settings = session_settings(chosen, jars)
    if not is_local(settings["spark.master"]):
        ensure_gateway(settings, java, ())
        return _start(settings, app_name)
    _quiet_pyspark()
    with environment({"PYSPARK_PYTHON": os.environ.get("PYSPARK_PYTHON", sys.executable)}):  # not any python3 of PATH
        ensure_gateway(settings, java, jars)
        return _start(settings, app_name)


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
        reason = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
        raise SparkUnavailable(
            f"no Spark session could be started: {reason}", hint=f"{SPARK_LOG}=info shows what Spark says"
        ) from error
