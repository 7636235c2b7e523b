"""Mistakes that only Spark or a server can meet: what fails inside is unwrapped to what its user did."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from floodmark.cli.invocation import LazySession, Tools
from tests.cli.conftest import CommandResult

if TYPE_CHECKING:
    from floodmark.testing.servers import Broker

Floodmark = Callable[..., CommandResult]
UNKNOWN = "{type: files, path: in, settle: 0s}"
LAKE = "[{type: delta, path: lake/orders}]"
ROWS = [{"id": 1, "name": "ada"}, {"id": 2, "name": "x"}]
JAVA = re.compile(r"^\s+at [\w.$]+\(", re.MULTILINE)


def write(folder: Path, *, source: str = UNKNOWN, sinks: str = LAKE, more: str = "", code: str = "") -> None:
    """A project of one job with two rows to read, and a module beside it."""
    rest = f"    {more}\n" if more else ""
    (folder / "floodmark.yaml").write_text(f"jobs:\n  - name: orders\n    source: {source}\n    sinks: {sinks}\n{rest}")
    (folder / "in").mkdir()
    (folder / "in" / "a.jsonl").write_text("".join(json.dumps(row) + "\n" for row in ROWS))
    (folder / f"shop_{folder.name}.py").write_text(code)


def python(folder: Path, function: str = "clean") -> str:
    """The transform that stands in this test's own module."""
    return f"transform: {{python: 'shop_{folder.name}:{function}'}}"


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The working folder, under a name that a module may have."""
    here = tmp_path / re.sub(r"\W", "_", tmp_path.name)
    here.mkdir()
    monkeypatch.chdir(here)
    return here


DIVIDES = """\
from pyspark.sql.functions import udf
from pyspark.sql.types import LongType

def share(x):
    return 1 // (x - x)

def clean(rows):
    return rows.withColumn("id", udf(share, LongType())("id"))
"""
SELECTS = 'def clean(rows):\n    return rows.select("idd")\n'
COUNTS = "def clean(rows):\n    return rows.count()\n"
FILLS = """\
import errno, os

def fill(batches):
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), "/scratch/part-1")
    yield from batches

def clean(rows):
    return rows.mapInArrow(fill, rows.schema)
"""
IMPORTS = """\
def parse(batches):
    import no_such_package
    yield from batches

def clean(rows):
    return rows.mapInArrow(parse, rows.schema)
"""


@pytest.mark.usefixtures("spark")
@pytest.mark.parametrize(
    ("code", "words"),
    [
        (DIVIDES, ["ZeroDivisionError", ".py, line 5, in share", "fix that line"]),
        (SELECTS, ["no column 'idd'", "id, name", ".py, line 2, in clean"]),
        (COUNTS, ["gave a int and no DataFrame", ".py, line 1, in clean", "return the DataFrame"]),
        (FILLS, ["No space left on device", "df -h"]),
        (IMPORTS, ["ModuleNotFoundError: No module named 'no_such_package'", ".py, line 2, in parse"]),
    ],
    ids=["in a udf", "no such column", "no frame", "a full disk", "a missing package"],
)
def test_what_fails_in_the_users_code_is_told_with_its_line(
    folder: Path, floodmark: Floodmark, code: str, words: list[str]
) -> None:
    """Type, message and line of the user's own file; no stack of Java's."""
    write(folder, more=python(folder), code=code)
    said = floodmark("run")
    assert (said.code, [word for word in words if word not in said.err]) == (1, [])
    assert (said.err.count("Error: "), said.err.count("Try: "), JAVA.findall(said.err)) == (1, 1, [])
    assert "Traceback" not in said.err


@pytest.mark.usefixtures("spark")
@pytest.mark.parametrize(
    ("parts", "words"),
    [
        ({"more": "transform: {sql: select idd from source}"}, ["transform of job 'orders'", "no column 'idd'"]),
        ({"more": "transform: {sql: select no_such(id) as x from source}"}, ["no function 'no_such'", "spark.udf"]),
        ({"more": "transform: {sql: select cast(name as int) as n from source}"}, ["'ada'", "try_cast"]),
        ({"sinks": "[{type: delta, path: x, mode: merge, key: idd}]"}, ["idd", "id, name"]),
        ({"sinks": "[{type: delta, path: /proc/no/lake}]"}, ["/proc/no/lake", "sink 'delta'"]),
        ({"sinks": "[{type: delta, path: 's3a://bucket/lake'}]"}, ["credentials", "AWS_ACCESS_KEY_ID"]),
        (
            {"source": "{type: jdbc, url: 'jdbc:oracle:thin:@//h/x', table: t, cursor: {column: id, unique: true}}"},
            ["no driver", "jars.packages: com.oracle.database.jdbc"],
        ),
        ({"source": "{type: files, path: in, format: parquet, settle: 0s}"}, ["a.jsonl", "is not a Parquet file"]),
    ],
    ids=["column", "function", "cast", "merge key", "closed folder", "s3", "driver", "format"],
)
def test_what_fails_in_spark_is_told_in_words(
    folder: Path, floodmark: Floodmark, monkeypatch: pytest.MonkeyPatch, parts: dict[str, str], words: list[str]
) -> None:
    """What and where in one line, and the next step; the whole of it is in the debug log."""
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    write(folder, **parts)
    said = floodmark("run")
    assert (said.code in (1, 2), [word for word in words if word not in said.err]) == (True, []), said.err
    assert (said.err.count("Error: "), said.err.count("Try: "), JAVA.findall(said.err)) == (1, 1, [])
    assert "Traceback" not in said.err


NEEDS_SPARK = """\
from pyspark.sql.functions import udf

def twice(x):
    return 2 * x

double = udf(lambda x: twice(x), "long")

def clean(rows):
    return rows.withColumn("id", double("id"))
"""


@pytest.mark.usefixtures("spark")
def test_a_module_that_needs_spark_while_it_is_imported_runs(folder: Path, floodmark: Floodmark) -> None:
    """On the driver it is imported once Spark has started; workers, who have no session, get its functions by value."""
    write(folder, more=python(folder), code=NEEDS_SPARK)
    said = floodmark("run")
    assert (said.code, "2 rows read" in said.out) == (0, True), said.err


def test_a_missing_topic_of_a_sink_is_found_before_spark_starts(
    folder: Path, floodmark: Floodmark, kafka: Broker
) -> None:
    """A JVM takes seconds; the broker answers at once."""
    write(folder, sinks=f"[{{type: kafka, bootstrap: '{kafka.bootstrap}', topic: no-such-topic}}]")
    no_spark = Tools(session=lambda _: LazySession(lambda: pytest.fail("no session is needed")))
    said = floodmark("run", tools=no_spark)
    assert (said.code, "no topic 'no-such-topic'" in said.err, "create: {partitions" in said.err) == (2, True, True)
