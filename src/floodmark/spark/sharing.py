"""Class data sharing: Spark's classes are parsed and verified once, kept in an archive, and mapped by every later JVM.

`python -m floodmark.spark.sharing` makes the archive and says where it is. A JVM that cannot use it (other jars, other
options, another Java) starts as it would without one, and says nothing.
"""

from __future__ import annotations

import atexit
import hashlib
import logging
import os
import subprocess
import sys
import tempfile
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from floodmark.errors import FloodmarkError
from floodmark.spark.java import alone, cache_folder, find_java

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import pyarrow as pa
    from pyspark.sql import SparkSession

    from floodmark.spark.java import Java


SWITCH = "FLOODMARK_CLASS_SHARING"
OPTIONS = "spark.driver.extraJavaOptions"
QUIET = ("-Xshare:auto", "-Xlog:cds=off", "-Xlog:cds+dynamic=off", "-Xlog:class+path=off")
"""An archive that does not fit is no trouble, so the JVM does not speak of it."""
MOST_ARCHIVES = 4
LONGEST_DUMP_SECONDS = 300
CHANGES = "spark.databricks.delta.properties.defaults.enableChangeDataFeed"
NOBODY = "127.0.0.1:1"
ROWS = '{"id": 1, "v": "a", "at": "2026-01-01T00:00:00Z"}\n{"id": 2, "v": "b"}\n'

log = logging.getLogger(__name__)


def is_on() -> bool:
    """Whether archives are used and made; FLOODMARK_CLASS_SHARING=none says no."""
    return os.environ.get(SWITCH, "").lower() != "none" and sys.platform != "win32"


def archive_file(java: Java, jars: Sequence[Path]) -> Path:
    """The archive for this very Java and class path: any other has another one."""
    spec = find_spec("pyspark")
    spark = spec.origin if spec else None
    parts = (java.home, _java_build(java), spark, os.environ.get("SPARK_HOME"), *jars)
    key = hashlib.sha256("\n".join(map(str, parts)).encode()).hexdigest()[:16]
    return cache_folder() / "classes" / f"{key}.jsa"


def _java_build(java: Java) -> str:
    """Its exact version: an archive is of one build alone."""
    try:
        return (java.home / "release").read_text(errors="replace")
    except OSError:
        return str(java.version)


def sharing_options(archive: Path, chosen: str = "") -> tuple[str, ...]:
    """What the JVM is started with; nothing without an archive, or where the user decides on such things."""
    is_decided = any(word in chosen for word in ("-Xshare", "SharedArchive", "ArchiveClasses"))
    if is_decided or not is_on() or not archive.exists() or os.pathsep in str(archive):
        return ()
    return (quoted(f"-XX:SharedArchiveFile={archive}"), *QUIET)


def quoted(option: str) -> str:
    """As Spark takes an option apart: one with a space stands in quotation marks."""
    return f'"{option}"' if " " in option else option


def make_later(archive: Path) -> None:
    """Have the archive made by a process of its own once this one is done; tried once, so a failure costs no more."""
    if not is_on() or archive.exists():
        return
    try:
        archive.parent.mkdir(parents=True, exist_ok=True)
        archive.with_suffix(".tried").touch(exist_ok=False)
    except OSError:  # another run has taken it on, or nothing can be kept here
        return
    atexit.register(_start_maker)


def _start_maker() -> None:
    command = [sys.executable, "-m", "floodmark.spark.sharing", "--later"]
    nothing = subprocess.DEVNULL
    with suppress(OSError):
        subprocess.Popen(
            command, stdin=nothing, stdout=nothing, stderr=nothing, cwd=tempfile.gettempdir(), start_new_session=True
        )


def make(java: Java, jars: Sequence[Path]) -> Path | None:
    """The archive, made if it is not there yet; None if that did not work, which the log says."""
    archive = archive_file(java, jars)
    with alone(archive.with_suffix(".lock")):
        if not archive.exists():
            _dump(archive)
            _forget_old(archive.parent)
    return archive if archive.exists() else None


def _dump(archive: Path) -> None:
    """Run what most runs do in a JVM that writes its classes down when it ends; the archive appears whole or not."""
    arriving = archive.with_suffix(".arriving")
    arriving.unlink(missing_ok=True)
    log.info("writing Spark's classes down, once, into %s", archive)
    command = [sys.executable, "-c", "import sys; from floodmark.spark import sharing; sharing.rehearse(sys.argv[1])"]
    environment = {**os.environ, SWITCH: "none"}
    try:
        done = subprocess.run(
            [*command, str(arriving)], capture_output=True, env=environment, timeout=LONGEST_DUMP_SECONDS, check=False
        )
    except subprocess.TimeoutExpired:
        log.warning("Spark's classes were not written down within %d seconds", LONGEST_DUMP_SECONDS)
    else:
        if done.returncode == 0 and arriving.exists():
            arriving.replace(archive)
        else:
            log.warning("Spark's classes could not be written down: %s", _last_line(done.stderr))
    arriving.unlink(missing_ok=True)


def _last_line(output: bytes) -> str:
    return (output.decode(errors="replace").strip().splitlines() or ["nothing was said"])[-1]


def _forget_old(folder: Path) -> None:
    """Archives are large: those of earlier versions go."""
    newest = sorted(folder.glob("*.jsa"), key=lambda each: each.stat().st_mtime, reverse=True)
    for old in newest[MOST_ARCHIVES:]:
        old.unlink(missing_ok=True)


def rehearse(archive: str) -> None:
    """What most runs do, in a JVM that dumps its classes at its end; called in a process of its own."""
    from floodmark.spark.session import spark_session

    options = f"{quoted(f'-XX:ArchiveClassesAtExit={archive}')} -Xlog:disable"
    spark = spark_session({"master": "local[2]", "driver.memory": "1g", OPTIONS: options, CHANGES: "true"})
    jvm = spark.sparkContext._gateway.proc  # type: ignore[union-attr]
    with tempfile.TemporaryDirectory(prefix="floodmark-classes-") as folder:
        _rehearse_tables(spark, Path(folder))
        _rehearse_servers(spark)
    spark.stop()
    jvm.stdin.close()
    jvm.wait(LONGEST_DUMP_SECONDS)


def _rehearse_tables(spark: SparkSession, folder: Path) -> None:
    from pyspark.sql import functions as F

    (folder / "rows.jsonl").write_text(ROWS)
    schema = "id long, v string, at timestamp, _corrupt_record string"
    rows = spark.read.schema(schema).json(str(folder / "rows.jsonl")).where("_corrupt_record is null")
    lines = spark.read.text(str(folder / "rows.jsonl")).select(F.from_json("value", "id long, v string").alias("row"))
    table = str(folder / "table")
    rows.drop("_corrupt_record").write.format("delta").option("txnAppId", "a").option("txnVersion", "1").save(table)
    rows.select("id", "v", "at").write.format("delta").mode("append").save(table)
    lines.selectExpr("row.*").createOrReplaceTempView("lines")
    spark.sql(
        f"merge into delta.`{table}` t using (select id, max(v) as v from lines group by id) s on t.id = s.id "
        "when matched then update set v = s.v when not matched then insert (id, v) values (s.id, s.v)"
    ).collect()
    changes = spark.read.format("delta").option("readChangeFeed", "true").option("startingVersion", "1").load(table)
    changes.join(spark.read.format("delta").load(table).select("id"), "id").write.parquet(str(folder / "parquet"))
    spark.read.parquet(str(folder / "parquet")).toArrow()
    spark.range(2).mapInArrow(_unchanged, "id long").collect()


def _unchanged(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    yield from batches


def _rehearse_servers(spark: SparkSession) -> None:
    """Nobody answers there; the classes are loaded all the same."""
    with suppress(Exception):
        patience = {f"kafka.{name}": "1000" for name in ("default.api.timeout.ms", "request.timeout.ms")}
        options = {"kafka.bootstrap.servers": NOBODY, "assign": '{"t":[0]}', **patience}
        options |= {"startingOffsets": '{"t":{"0":0}}', "endingOffsets": '{"t":{"0":1}}'}
        spark.read.format("kafka").options(**options).load().collect()
    with suppress(Exception):
        spark.read.jdbc(f"jdbc:postgresql://{NOBODY}/d", "t", properties={"driver": "org.postgresql.Driver"})


def main(arguments: Sequence[str]) -> int:
    """Make the archive and say in one line where it is."""
    from floodmark.spark.connectors import brings_connectors, connectors

    if "--later" in arguments and hasattr(os, "nice"):
        os.nice(10)  # nobody waits for it
    if not is_on() or not brings_connectors():
        print("class sharing is switched off")
        return 0
    try:
        archive = make(find_java(), connectors())
    except FloodmarkError as error:
        print(f"Error: {error.message}\nTry: {error.hint}", file=sys.stderr)
        return error.exit_code
    print(f"Spark's classes in {archive}" if archive else "Spark starts without an archive of its classes")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
