"""Mistakes that only Spark or a server can meet: what fails inside is unwrapped to what its user did."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import floodmark as fm
from floodmark.cli.invocation import LazySession, Tools
from floodmark.errors import SourceUnreadable
from tests.cli.conftest import CommandResult

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from floodmark.testing.servers import Broker

pytestmark = pytest.mark.slow

Floodmark = Callable[..., CommandResult]
UNKNOWN = "{type: files, path: in, settle: 0s}"
LAKE = "[{type: delta, path: lake/orders}]"
ROWS = [{"id": 1, "name": "ada"}, {"id": 2, "name": "x"}]
BEGINNINGS = re.compile(r"^(Error|Try): ", re.MULTILINE)
JAVA = re.compile(r"^\s+at [\w.$]+\(", re.MULTILINE)


def write(folder: Path, *, source: str = UNKNOWN, sinks: str = LAKE, more: str = "") -> None:
    """A project of one job with two rows to read."""
    rest = f"    {more}\n" if more else ""
    (folder / "floodmark.yaml").write_text(f"jobs:\n  - name: orders\n    source: {source}\n    sinks: {sinks}\n{rest}")
    (folder / "in").mkdir()
    (folder / "in" / "a.jsonl").write_text("".join(json.dumps(row) + "\n" for row in ROWS))


@pytest.mark.usefixtures("spark")
@pytest.mark.filterwarnings("ignore:Cannot infer the eval type")  # PySpark says so of every hint that is plain
@pytest.mark.parametrize(
    ("function", "words"),
    [
        ("divides", ["ZeroDivisionError", ", in share)", "fix that line"]),
        ("selects", ["no column 'idd'", "id, name", ", in selects)"]),
        ("counts", ["gave a int and no DataFrame", ", in counts)", "return the DataFrame"]),
        ("fills", ["No space left on device", "df -h"]),
        ("parses", ["ModuleNotFoundError: No module named 'no_such_package'", ", in parse)"]),
    ],
)
def test_what_fails_in_the_users_code_is_told_with_its_line(
    folder: Path, floodmark: Floodmark, function: str, words: list[str]
) -> None:
    """Type, message and line of the user's own file; no stack of Java's."""
    write(folder, more=f"transform: {{python: 'tests.cli.mistakes.shop:{function}'}}")
    said = floodmark("run")
    assert (said.code, [word for word in words if word not in said.err]) == (1, []), said.err
    assert (BEGINNINGS.findall(said.err), JAVA.findall(said.err)) == (["Error", "Try"], [])
    assert "Traceback" not in said.err


@pytest.mark.usefixtures("spark")
@pytest.mark.parametrize(
    ("parts", "words"),
    [
        ({"more": "transform: {sql: select idd from source}"}, ["transform of job 'orders'", "no column 'idd'"]),
        ({"more": "transform: {sql: select no_such(id) as x from source}"}, ["no function 'no_such'", "spark.udf"]),
        ({"more": "transform: {sql: select cast(name as int) as n from source}"}, ["'ada'", "try_cast"]),
        ({"sinks": "[{type: delta, path: x, mode: merge, key: idd}]"}, ["key 'idd'", "id, name", "did you mean id?"]),
        ({"sinks": "[{type: delta, path: /proc/no/lake}]"}, ["/proc/no", "sink 'delta'"]),
        ({"sinks": "[{type: delta, path: 's3a://bucket/lake'}]"}, ["credentials", "AWS_ACCESS_KEY_ID"]),
        (
            {"source": "{type: jdbc, url: 'jdbc:oracle:thin:@//h/x', table: t, cursor: {column: id, unique: true}}"},
            ["no driver", "jars.packages: com.oracle.database.jdbc"],
        ),
        ({"source": "{type: files, path: in, format: parquet, settle: 0s}"}, ["a.jsonl", "not a parquet file"]),
        ({"more": "rules: [{check: nmae > 1, action: fail}]"}, ["rule 'nmae > 1'", "no column 'nmae'", "fix the name"]),
    ],
    ids=["column", "function", "cast", "merge key", "closed folder", "s3", "driver", "format", "rule"],
)
def test_what_fails_in_spark_is_told_in_words(
    folder: Path, floodmark: Floodmark, monkeypatch: pytest.MonkeyPatch, parts: dict[str, str], words: list[str]
) -> None:
    """What and where in one line, and the next step; the whole of it is in the debug log."""
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    write(folder, **parts)
    said = floodmark("run")
    assert (said.code in (1, 2), [word for word in words if word not in said.err]) == (True, []), said.err
    assert (BEGINNINGS.findall(said.err), JAVA.findall(said.err)) == (["Error", "Try"], [])
    assert "Traceback" not in said.err


@pytest.mark.usefixtures("spark")
@pytest.mark.parametrize(
    ("source", "stored", "words"),
    [
        (
            '{type: files, path: in, format: csv, schema: "id long, name string", settle: 0s}',
            b"id;name\n1;ada\n",
            ["a header of 1 column", "the schema has 2", "sep: ';'"],
        ),
        (
            '{type: files, path: in, format: csv, schema: "id long, name string", settle: 0s}',
            b"id,nmae\n1,ada\n",
            ["'id, nmae'", "the schema has id, name", "fix the names"],
        ),
        ('{type: files, path: in, schema: "id long", settle: 0s}', b'[{"id": 1},\n{"id": 2}]\n', ["format: json`"]),
        ('{type: files, path: in, schema: "id long", settle: 0s}', b'{\n  "id": 1\n}\n', ["format: json`"]),
        (
            '{type: files, path: in, schema: "id long, name string", settle: 0s}',
            b'{"id": "x1", "name": "ada"}\n',
            ["line 1", "does not fit id:"],
        ),
    ],
    ids=["width of a header", "names in a header", "a list", "an object on several lines", "a type"],
)
def test_a_file_of_another_form_is_named_with_what_reads_it(
    folder: Path, floodmark: Floodmark, source: str, stored: bytes, words: list[str]
) -> None:
    """The file and its line, and the option or the field that has to change."""
    write(folder, source=source)
    (folder / "in" / "a.jsonl").write_bytes(stored)
    said = floodmark("run")
    assert (said.code, [word for word in ["a.jsonl", *words] if word not in said.err]) == (1, []), said.err
    assert (BEGINNINGS.findall(said.err), JAVA.findall(said.err)) == (["Error", "Try"], [])


@pytest.mark.usefixtures("spark")
def test_a_damaged_file_is_named(folder: Path, floodmark: Floodmark) -> None:
    """Spark says only that a stream has ended."""
    write(folder)
    (folder / "in" / "b.jsonl.gz").write_bytes(b"no gzip")
    said = floodmark("run")
    assert (said.code, "in/b.jsonl.gz is damaged" in said.err, "bring the file again" in said.err) == (1, True, True)


def test_a_wrong_type_in_a_schema_is_a_mistake_of_the_source(spark: SparkSession, tmp_path: Path) -> None:
    """Also where nobody linted, and a transform follows."""
    (tmp_path / "a.jsonl").write_text('{"id": 1}\n')
    source = fm.sources.Files(str(tmp_path), schema="id lnog", settle="0s")
    job = fm.Job("orders", source, [fm.sinks.Delta(str(tmp_path / "lake"))], "select id from source")
    with pytest.raises(SourceUnreadable, match="source 'files' of job 'orders' cannot be read: its schema 'id lnog'"):
        job.run(spark, fm.stores.open("memory"))


NEEDS_SPARK = """\
from pyspark.sql.functions import udf

def twice(x):
    return 2 * x

double = udf(lambda x: twice(x), "long")

def clean(rows):
    return rows.withColumn("id", double("id"))
"""


@pytest.mark.crash
def test_a_module_that_needs_spark_while_it_is_imported_runs(folder: Path) -> None:
    """On the driver it is imported once Spark has started; workers, who have no session, get its functions by value."""
    write(folder, more="transform: {python: 'needy:clean'}")
    (folder / "needy.py").write_text(NEEDS_SPARK)
    command = [sys.executable, "-m", "floodmark.cli", "run"]
    ran = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    assert (ran.returncode, "2 rows read" in ran.stdout) == (0, True), ran.stderr


def test_a_master_that_does_not_answer_is_two_lines(folder: Path) -> None:
    """And no JVM is started to find out: a process of its own, since the suite has a session."""
    write(folder)
    with (folder / "floodmark.yaml").open("a") as file:
        file.write("spark: {master: 'spark://nohost.invalid:7077'}\n")
    command = [sys.executable, "-m", "floodmark.cli", "run"]
    ran = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    assert (ran.returncode, "there is no host 'nohost.invalid'" in ran.stderr) == (1, True)
    assert [line.split(":")[0] for line in ran.stderr.splitlines()] == ["Error", "Try"]


def test_a_missing_topic_of_a_sink_is_found_before_spark_starts(
    folder: Path, floodmark: Floodmark, kafka: Broker
) -> None:
    """A JVM takes seconds; the broker answers at once."""
    write(folder, sinks=f"[{{type: kafka, bootstrap: '{kafka.bootstrap}', topic: no-such-topic}}]")
    no_spark = Tools(session=lambda _: LazySession(lambda: pytest.fail("no session is needed")))
    said = floodmark("run", tools=no_spark)
    assert (said.code, "no topic 'no-such-topic'" in said.err, "create: {partitions" in said.err) == (2, True, True)


def test_a_missing_topic_of_a_source_is_found_before_spark_starts(
    folder: Path, floodmark: Floodmark, kafka: Broker
) -> None:
    """By its name, with what makes it."""
    write(folder, source=f"{{type: kafka, bootstrap: '{kafka.bootstrap}', topic: no-such-topic, value: text}}")
    no_spark = Tools(session=lambda _: LazySession(lambda: pytest.fail("no session is needed")))
    said = floodmark("run", tools=no_spark)
    assert (said.code, "no-such-topic" in said.err) == (1, True), said.err
    assert "Try: fix the name in `topic:`, or make it: `kafka-topics --create --topic NAME`" in said.err
    assert BEGINNINGS.findall(said.err) == ["Error", "Try"]
