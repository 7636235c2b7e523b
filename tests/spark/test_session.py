"""The session: Delta works, nothing is printed, nothing is fetched, and a second session stands beside the first."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from py4j.protocol import CALL_COMMAND_NAME as CALL
from py4j.protocol import REFLECTION_COMMAND_NAME as LOOKUP
from pyspark.sql import Row
from pyspark.sql import functions as F
from pyspark.sql.functions import udf

from floodmark.errors import SparkUnavailable
from floodmark.spark.connectors import connectors
from floodmark.spark.gateway import CLASSES, ensure_gateway
from floodmark.spark.java import find_java
from floodmark.spark.remote import isolated_session
from floodmark.spark.session import jvm_pid, spark_session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

SCRIPT = """
import json
from floodmark import spark_session
spark = spark_session({"master": "local[2]", "driver.memory": "1g"})
spark.range(3).write.format("delta").save("table")
spark.sql("create table named (id bigint) using delta")
print(json.dumps({
    "rows": sorted(row.id for row in spark.read.format("delta").load("table").collect()),
    "zone": spark.conf.get("spark.sql.session.timeZone"),
    "ui": spark.sparkContext.uiWebUrl,
    "partitions": spark.conf.get("spark.sql.shuffle.partitions"),
}))
"""


def run_script(folder: Path) -> subprocess.CompletedProcess[str]:
    connectors()
    nowhere = {**os.environ, "FLOODMARK_IVY_SETTINGS": str(folder / "nowhere.xml")}
    return subprocess.run(
        [sys.executable, "-c", SCRIPT], cwd=folder, env=nowhere, capture_output=True, text=True, check=False
    )


@pytest.mark.crash
def test_a_fresh_process_gets_a_quiet_session_with_delta_and_without_the_network(tmp_path: Path) -> None:
    """Resolving would fail here (its settings do not exist); stderr stays empty; no folder but the table's is made."""
    done = run_script(tmp_path)
    assert done.stderr == ""
    assert json.loads(done.stdout) == {"rows": [0, 1, 2], "zone": "UTC", "ui": None, "partitions": "2"}
    assert os.listdir(tmp_path) == ["table"]  # noqa: PTH208 - hidden files count too


def test_the_active_session_is_used_as_it_is(spark: SparkSession) -> None:
    """A notebook's session is never replaced behind its back."""
    assert spark_session({"spark.sql.shuffle.partitions": "7"}).sparkContext is spark.sparkContext
    assert spark.conf.get("spark.sql.shuffle.partitions") == "2"


def test_python_functions_run_in_this_very_python(spark: SparkSession) -> None:
    """Some other python3 of PATH would lack the packages, or have another version."""
    name = udf(lambda _: sys.prefix, "string")
    assert spark.range(1).select(name("id").alias("prefix")).collect() == [Row(prefix=sys.prefix)]


def test_an_isolated_session_keeps_its_settings_to_itself(spark: SparkSession) -> None:
    """Two jobs side by side must not see each other's transaction settings."""
    with isolated_session(spark) as beside:
        beside.conf.set("spark.databricks.delta.write.txnVersion.autoReset.enabled", "true")
    assert spark.conf.get("spark.databricks.delta.write.txnVersion.autoReset.enabled", None) != "true"


def test_the_jvm_pid_is_that_of_java(spark: SparkSession) -> None:
    """A lease names the JVM that may go on writing after Python was killed."""
    shown = subprocess.run(["ps", "-o", "comm=", "-p", str(jvm_pid(spark))], capture_output=True, text=True, check=True)
    assert "java" in shown.stdout


def test_a_running_jvm_without_the_connectors_is_refused(spark: SparkSession, tmp_path: Path) -> None:
    """A class path cannot change once the JVM runs."""
    with pytest.raises(SparkUnavailable, match="already runs a Spark JVM"):
        ensure_gateway({}, find_java(), [tmp_path / "absent.jar"])


def test_pyspark_asks_the_jvm_once_for_a_function_that_it_calls(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A third of the calls that build a small batch asked for what the call before them had asked for, too."""
    client = spark.sparkContext._gateway._gateway_client  # type: ignore[union-attr]
    F.concat(F.col("a"), F.lit("b")).alias("c")
    asked: list[str] = []
    send = client.send_command

    def listening(command: str, *arguments: Any, **options: Any) -> Any:  # noqa: ANN401 (py4j's own)
        asked.append(command)
        return send(command, *arguments, **options)

    monkeypatch.setattr(client, "send_command", listening)
    F.concat(F.col("a"), F.lit("b")).alias("c")
    assert [command for command in asked if command.startswith(LOOKUP)] == []
    assert len([command for command in asked if command.startswith(CALL)]) >= 3


@pytest.mark.parametrize(("name", "known"), CLASSES.items())
def test_the_classes_that_are_remembered_are_those_that_the_jvm_gives(
    spark: SparkSession, name: str, known: str
) -> None:
    """PySpark imports packages into its view of the JVM: a name means what is found there first."""
    gateway: Any = spark.sparkContext._gateway
    view = type(gateway.jvm)(gateway._gateway_client, "a view", id=gateway.jvm._id)
    assert getattr(view, name)._fqn == known
