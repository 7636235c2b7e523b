"""The JVM behind a session: how it is started, what it may say, what it has to know, and what is left when it ends."""

from __future__ import annotations

import os
import signal
import subprocess
import threading
from contextlib import contextmanager, suppress
from typing import IO, TYPE_CHECKING, Any

from floodmark.errors import SparkUnavailable
from floodmark.object_stores import is_secret

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from pathlib import Path
    from subprocess import Popen

    from pyspark.sql import SparkSession

    from floodmark.spark.java import Java


LAUNCHER, SHORT_LIVED = "SPARK_LAUNCHER_OPTS", "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -Xshare:auto"
"""spark-submit, which finds its Java by JAVA_HOME, asks a JVM of its own for the command line: a matter of moments."""
STDERR = 2
OUT_OF_MEMORY = 52
"""The exit code that Spark gives itself then."""
JVM_ENDS_SECONDS = 3.0
CLASSES = {
    "org.apache.spark.sql.functions": "org.apache.spark.sql.functions",
    "functions": "org.apache.spark.sql.functions",
    "PythonUtils": "org.apache.spark.api.python.PythonUtils",
    "PythonSQLUtils": "org.apache.spark.sql.api.python.PythonSQLUtils",
}
"""The classes that PySpark calls to build a plan, under the names that it looks them up by."""
CHATTER = (  # the JVM itself prints these, so no log setting can silence them
    b"WARNING: Using incubator modules",
    b"Picked up JAVA_TOOL_OPTIONS",
    b"NOTE: Picked up JDK_JAVA_OPTIONS",
)


def ensure_gateway(settings: Mapping[str, str], java: Java, classpath: Sequence[Path]) -> None:
    """Start the JVM of this process, or check that the one that runs already has the class path.

    Raises SparkUnavailable if it has not: a class path cannot be changed once the JVM runs.
    """
    from pyspark import SparkContext

    with SparkContext._lock:
        if SparkContext._gateway is None:
            _launch(settings, java)
        _check_class_path(classpath)


def _launch(settings: Mapping[str, str], java: Java) -> None:
    from pyspark import SparkConf, SparkContext
    from pyspark.errors import PySparkRuntimeError
    from pyspark.java_gateway import launch_gateway

    conf = SparkConf(loadDefaults=False).setAll(list(launch_settings(settings).items()))
    variables = {"JAVA_HOME": str(java.home), LAUNCHER: os.environ.get(LAUNCHER, SHORT_LIVED)}
    try:
        with environment(variables), _killed_if_interrupted():
            gateway = launch_gateway(conf, {"stderr": subprocess.PIPE})  # type: ignore[no-untyped-call]
    except PySparkRuntimeError as error:
        raise SparkUnavailable(
            f"{java} could not start Spark's JVM.", hint="FLOODMARK_SPARK_LOG=info shows what Spark says"
        ) from error
    threading.Thread(target=_relay, args=(gateway.proc.stderr,), name="floodmark-jvm-stderr", daemon=True).start()
    SparkContext._ensure_initialized(gateway=gateway)
    remember_classes(SparkContext._jvm)


def remember_classes(jvm: Any) -> None:  # noqa: ANN401 (py4j has no types)
    """Let py4j ask the JVM once whether these classes and their functions are there.

    It asks before each call, and a name that is no class by itself is looked for in every jar: a third of the calls
    that build a small batch were such questions.
    """
    from py4j.java_gateway import JavaClass, JavaMember

    class RememberedClass(JavaClass):  # type: ignore[misc]
        """A class of the JVM that keeps the functions it was asked for; values of its fields may change."""

        def __getattr__(self, name: str) -> Any:  # noqa: ANN401
            member = super().__getattr__(name)
            if isinstance(member, JavaMember):
                setattr(self, name, member)
            return member

    vars(jvm).update({name: RememberedClass(known, jvm._gateway_client) for name, known in CLASSES.items()})


def launch_settings(settings: Mapping[str, str]) -> dict[str, str]:
    """What the JVM is started with: everybody may read its command line, so a secret follows with the session."""
    return {name: value for name, value in settings.items() if not is_secret(name)}


@contextmanager
def _killed_if_interrupted() -> Iterator[None]:
    """Let no JVM outlive a start that was interrupted: it cannot say where it listens, and would wait for ever."""
    from pyspark import java_gateway

    started: list[Popen[bytes]] = []
    start = java_gateway.Popen  # type: ignore[attr-defined]

    def remembered(*arguments: Any, **options: Any) -> Popen[bytes]:  # noqa: ANN401 (Popen's own)
        started.append(start(*arguments, **options))
        return started[-1]

    java_gateway.Popen = remembered  # type: ignore[assignment,attr-defined]
    try:
        yield
    except BaseException:
        for process in started:
            process.kill()
        raise
    finally:
        java_gateway.Popen = start  # type: ignore[attr-defined]


@contextmanager
def environment(variables: Mapping[str, str]) -> Iterator[None]:
    """These variables while Spark starts, and the user's own again afterwards."""
    before = {name: os.environ.get(name) for name in variables}
    os.environ.update(variables)
    try:
        yield
    finally:
        os.environ.update({name: value for name, value in before.items() if value is not None})
        for name in (name for name, value in before.items() if value is None):
            os.environ.pop(name, None)


def _relay(stream: IO[bytes]) -> None:
    for line in stream:
        if not line.startswith(CHATTER):
            os.write(STDERR, line)


def _check_class_path(classpath: Sequence[Path]) -> None:
    from pyspark import SparkContext

    jvm = SparkContext._jvm
    if not classpath or jvm is None:
        return
    there = set(str(jvm.java.lang.System.getProperty("java.class.path")).split(os.pathsep))
    if not there.issuperset(map(str, classpath)):
        raise SparkUnavailable(
            "this process already runs a Spark JVM without the connectors.",
            hint="call floodmark.spark_session() before any other session is made",
        )


def is_connect(spark: SparkSession) -> bool:
    """Whether this session talks to a Spark Connect server and has no JVM here."""
    return type(spark).__module__.startswith("pyspark.sql.connect")


def jvm_exit_code(error: Exception | None = None) -> int | None:
    """How the JVM of this process ended; None while it lives, and where there is none of ours.

    An error of the line to it may come some moments before its end.
    """
    from pyspark import SparkContext

    process = getattr(SparkContext._gateway, "proc", None)
    if process is None:
        return None
    is_of_the_line = isinstance(error, OSError) or type(error).__module__.startswith("py4j")
    with suppress(subprocess.TimeoutExpired):
        return int(process.wait(JVM_ENDS_SECONDS if is_of_the_line else 0))
    return None


def jvm_loss(error: Exception) -> SparkUnavailable | None:
    """What to say if an error comes from a JVM that has ended; None if it lives."""
    code = jvm_exit_code(error)
    if code is None:
        return None
    reasons = {OUT_OF_MEMORY: "it had no memory left", -signal.SIGKILL: "it was killed, perhaps for want of memory"}
    reason = reasons.get(code, f"its exit code is {code}")
    hint = "run again; give it more memory (`driver.memory: 4g` under `spark:`), or read less at a time (`max_rows`)"
    return SparkUnavailable(f"Spark's JVM has ended: {reason}.", hint=hint)


def forget_ended_jvm() -> None:
    """Let PySpark begin another JVM where the one of this process has ended: it would talk to that for ever."""
    from pyspark import SparkContext
    from pyspark.sql import SparkSession as Session

    if jvm_exit_code() is not None:
        SparkContext._gateway = SparkContext._jvm = SparkContext._active_spark_context = None
        Session._instantiatedSession = None


def stop(spark: SparkSession) -> None:
    """End a session; one whose JVM has ended is over already."""
    if is_connect(spark) or jvm_exit_code() is None:
        spark.stop()
    else:
        forget_ended_jvm()
