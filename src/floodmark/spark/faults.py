"""A word of ours inside a Spark plan, and how it is found again in Spark's long error.

Spark hands on nothing of an executor's error but its text. So whatever stops a plan on purpose (a row that a sink
refuses, a value that no column holds, an element that cannot be read) puts its message between marks, with the kind of
the fault; the driver looks for exactly that kind.
"""

from __future__ import annotations

import json
import re
import shutil
import socket
import uuid
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from floodmark.errors import ElementFailed, ElementInvalid, FloodmarkError
from floodmark.logs import get_logger
from floodmark.spark.session import runs_here

if TYPE_CHECKING:
    from collections.abc import Iterator

    import pyarrow as pa
    from pyspark.sql import Column, DataFrame, SparkSession


log = get_logger(__name__)
Kind = Literal["sink", "value", "malformed", "rewritten", "element", "disk"]
"""A row that a sink refuses; a value of a source that Spark has no place for; a record that cannot be parsed; a commit
that changed rows where only added ones are taken; an element of a mill; a task that does not see the driver's disk."""
END = "[/floodmark]"
MARKER = "_floodmark.marker"
ASKING_TASKS = 64
"""So many that every executor of a cluster of some machines gets one."""
LONGEST_ELEMENT = 200
AWAY = (
    "outcomes come back with the results of tasks: what a lost executor had done in this turn runs again, and a record "
    "that ends its worker stops the stream"
)
_SHARED: dict[tuple[str, str], bool] = {}
"""By application and folder: a cluster does not change its disks while it runs."""
POSITION = "partition %d, offset %d"


def fault_begin(kind: Kind) -> str:
    """What stands before the message; END stands behind it."""
    return f"[floodmark {kind}]"


def fault_text(kind: Kind, message: str) -> str:
    """The message as an error's text carries it."""
    return f"{fault_begin(kind)}{message}{END}"


def raise_in_plan(kind: Kind, message: str | Column) -> Column:
    """An expression that stops the job when it is evaluated: a bad batch is found in the pass that writes it."""
    from pyspark.sql import functions as F

    text = F.lit(message) if isinstance(message, str) else message
    return F.raise_error(F.concat(F.lit(fault_begin(kind)), text, F.lit(END)))


def fault_in(error: Exception, kind: Kind) -> str | None:
    """The message of such a fault, if that is what stopped the job."""
    match = re.search(f"{re.escape(fault_begin(kind))}(.*?){re.escape(END)}", str(error), re.DOTALL)
    is_plan = match is not None and match[1].startswith(",")  # the expression itself, which an error of analysis shows
    return match[1] if match and not is_plan else None


@dataclass(frozen=True)
class FolderMarker:
    """A file that is put into a new folder of this machine before Spark's tasks write there.

    A task that does not find it runs where the disk is another one: what it wrote would be left out without a word. If
    it is gone after the write, somebody removed the folder meanwhile, and with it what was in it by then.
    """

    folder: Path
    value: str

    @classmethod
    def put_into(cls, folder: Path) -> FolderMarker:
        """Make the folder with a marker of its own in it."""
        folder.mkdir(parents=True)
        value = uuid.uuid4().hex
        (folder / MARKER).write_text(value, encoding="ascii")
        return cls(folder, value)

    def is_there(self) -> bool:
        """Whether the folder, seen from here, is the one that was made."""
        try:
            return (self.folder / MARKER).read_text(encoding="ascii") == self.value
        except OSError:
            return False

    def guard(self, rows: DataFrame) -> DataFrame:
        """The rows; each task looks for the marker before its first one, unless all of them run in the driver."""
        return rows if runs_here(rows.sparkSession) else rows.mapInArrow(self.look_first, rows.schema)

    def look_first(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """What a task does on its way to the folder."""
        if not self.is_there():
            raise RuntimeError(fault_text("disk", f"{socket.gethostname()} does not see {self.folder}"))
        yield from batches

    def host_without(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """The machine that this task runs on, if it does not see the folder."""
        import pyarrow as pa

        hosts = [] if self.is_there() else [socket.gethostname()]
        for _ in batches:
            yield pa.RecordBatch.from_pydict({"host": hosts}, schema=pa.schema([("host", pa.string())]))

    def require(self) -> None:
        """Raises FileNotFoundError if the folder was removed since, also if Spark made it again."""
        if not self.is_there():
            raise FileNotFoundError(f"{self.folder} was removed while it was written")


def hosts_without(folder: Path, spark: SparkSession) -> list[str]:
    """Machines of the cluster that do not see this folder of the driver's; it need not be there yet.

    A small job asks: it may miss a machine that happens to get no task of it, so every write looks for itself.
    """
    there = next(each for each in (folder, *folder.parents) if each.is_dir())
    marker = FolderMarker.put_into(there / f"_floodmark-{uuid.uuid4().hex}")
    tasks = ASKING_TASKS
    try:
        found = spark.range(0, tasks, 1, tasks).mapInArrow(marker.host_without, "host string").collect()
    finally:
        shutil.rmtree(marker.folder, ignore_errors=True)
    return sorted({str(row["host"]) for row in found})


def shares_folder(folder: Path, spark: SparkSession) -> bool:
    """Whether every machine of the cluster sees this folder of the driver's; asked once of each cluster."""
    if runs_here(spark):
        return True
    asked = spark.conf.get("spark.app.id", "") or "", str(folder)
    if asked not in _SHARED:
        hosts = hosts_without(folder, spark)
        if hosts:
            log.warning("executors do not see the folder of the stream", folder=str(folder), host=hosts[0], means=AWAY)
        _SHARED[asked] = not hosts
    return _SHARED[asked]


class ElementFault(Exception):
    """What went wrong with one element on an executor: an error of ours, as text that `element_error_in` reads."""

    @classmethod
    def invalid(cls, error: ElementInvalid, partition: int, offset: int) -> ElementFault:
        """An element that cannot be read, with its place."""
        facts = {"stream": error.stream, "field": error.field, "reason": error.reason}
        return cls._of("invalid", {**facts, "position": position_text(partition, offset)})

    @classmethod
    def failed(cls, stream: str, position: str, error: Exception, element: object) -> ElementFault:
        """A process function that raised, with the element that it was given, or with how it begins."""
        reason, text = f"{type(error).__name__}: {error}", repr(element)
        text = text if len(text) <= LONGEST_ELEMENT else f"{text[: LONGEST_ELEMENT - 1]}…"
        return cls._of("failed", {"stream": stream, "position": position, "reason": reason, "element": text})

    @classmethod
    def _of(cls, kind: str, facts: dict[str, str]) -> ElementFault:
        return cls(fault_text("element", json.dumps({"kind": kind, **facts})))


def element_fault(stream: str, reason: str, partition: str, offset: str) -> Column:
    """An expression that stops the job as `ElementFault.invalid` does, at the place that two columns name."""
    from pyspark.sql import functions as F

    facts = {"kind": "invalid", "stream": stream, "field": "", "reason": reason}
    place = F.format_string(POSITION, partition, offset)
    text = F.to_json(F.struct(*(F.lit(fact).alias(name) for name, fact in facts.items()), place.alias("position")))
    return raise_in_plan("element", text)


def element_error_in(error: Exception) -> FloodmarkError | None:
    """The error that an executor met with an element, if it did."""
    text = fault_in(error, "element")
    if text is None:
        return None
    facts = json.loads(text)
    kind = facts.pop("kind")
    return ElementInvalid(**facts) if kind == "invalid" else ElementFailed(**facts)


def position_text(partition: int, offset: int) -> str:
    """Where an element stands, in words."""
    return POSITION % (partition, offset)
