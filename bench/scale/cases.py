"""The cases: sources and stores of a size that is simulated, and what a run does with them."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from datetime import datetime, timezone
from pathlib import Path
from types import ModuleType

import floodmark as fm
from floodmark.hwm import KeyValueIntHWM
from floodmark.hwm.mark import HWM
from floodmark.probes.delta import DeltaProbe, note
from floodmark.probes.files import SeenFile
from floodmark.project.file import Variables, read_document
from floodmark.project.loading import load
from floodmark.sources import files as files_source
from floodmark.sources.contract import Request
from floodmark.stores import MarkStore, Receipt, hold
from floodmark.stores.record import JobRecord

NOON = datetime(2026, 11, 17, 12, tzinfo=timezone.utc)
DAY_NS = 86_400 * 10**9
SPARK = {"spark.master": "local[2]", "spark.driver.memory": "2g"}
LEDGER = "floodmark.default.orders.lake"
Acts = Iterator[tuple[str, Callable[[], object]]]


@dataclass(frozen=True)
class Case:
    """What is measured: how many of what, the acts, and the seconds of CPU that each may take at that size."""

    name: str
    size: int
    unit: str
    acts: Callable[[int, Path], Acts]
    bounds: dict[str, float]
    clock: Callable[[], float] = time.process_time
    """Seconds of this process's CPU; of the wall, where Spark does the work."""


def commit(store: MarkStore, mark: HWM[object]) -> None:
    """Save a mark as a run does, with its receipt."""
    with hold(store, "orders") as lease:
        before = store.read("orders") or JobRecord("orders")
        after = replace(before, number=before.number + 1, marks={mark.name: mark}, modified_time=NOON)
        receipt = Receipt("orders", f"run-{after.number}", "done", NOON)
        store.commit(after, expected=before.number, lease=lease.lease, receipt=receipt)


def listed(n: int) -> list[SeenFile]:
    """A listing as a bucket gives it: a thousand files a day."""
    first = 1_790_000_000 * 10**9
    return [
        SeenFile(f"/lake/in/day={number // 1000:05d}/part-{number:09d}.jsonl", 1000, first + number * 10**6)
        for number in range(n)
    ]


def files(n: int, folder: Path) -> Acts:
    """A source that chooses by list, with `n` files: the first look, its mark, and a look that finds nothing."""
    entries = listed(n)
    simulate_listing(files_source, entries)
    source = fm.sources.Files("/lake/in", schema="id long", settle=0)
    store = fm.stores.open("sqlite:///marks.db", folder=folder)
    sights = []

    def session() -> object:
        raise AssertionError("a look starts no Spark")

    yield "first look", lambda: sights.append(source.look(None, Request(), session))
    mark = sights[0].span.upto
    yield "commit of all", lambda: commit(store, mark)
    again = fm.stores.open("sqlite:///marks.db", folder=folder)
    yield "read of the mark", lambda: again.read("orders")
    yield "idle look", lambda: source.look(mark, Request(), session)
    entries += [replace_path(each) for each in entries[-10:]]
    yield "look with ten new", lambda: sights.append(source.look(mark, Request(), session))
    stored = again.read("orders").marks[mark.name]
    yield "commit of ten", lambda: commit(again, stored.update(sights[-1].span.upto.value))


def replace_path(seen: SeenFile) -> SeenFile:
    """Another file, a day later."""
    return SeenFile(seen.path.replace("part-", "new-"), seen.size, seen.mtime_ns + DAY_NS)


def simulate_listing(module: ModuleType, entries: list[SeenFile]) -> None:
    """The source's folder is this list."""
    module.list_files = lambda *_words, **_options: entries  # type: ignore[attr-defined]


def partitions(n: int, folder: Path) -> Acts:
    """A topic of `n` partitions: the mark is their offsets, and each step saves all of them."""
    store = fm.stores.open("sqlite:///marks.db", folder=folder)
    offsets = {number: 10**9 + number for number in range(n)}
    mark = KeyValueIntHWM("orders", offsets)
    yield "first commit", lambda: commit(store, mark)
    moved = mark.update({number: offset + 1000 for number, offset in offsets.items()})
    yield "commit of a step", lambda: commit(store, moved)
    again = fm.stores.open("sqlite:///marks.db", folder=folder)
    yield "read of the mark", lambda: again.read("orders")
    yield "mark as text and back", lambda: KeyValueIntHWM("orders", json.dumps(moved.dump()))


def jobs(n: int, folder: Path) -> Acts:
    """A project of `n` jobs with a mark each: loading it, and the reads of an idle tick of all."""
    lines = "".join(
        f"  - name: job_{number}\n"
        f"    source: {{type: files, path: in/{number}, format: jsonl, schema: 'id long'}}\n"
        f"    sinks: [{{type: delta, path: lake/{number}}}]\n"
        for number in range(n)
    )
    (folder / "floodmark.yaml").write_text(f"store: sqlite:///marks.db\njobs:\n{lines}")
    store = fm.stores.open("sqlite:///marks.db", folder=folder)
    yield "load of the project", lambda: load(read_document(folder / "floodmark.yaml", Variables({})))
    yield "first batch of each", lambda: [commit_of(store, f"job_{number}") for number in range(n)]
    again = fm.stores.open("sqlite:///marks.db", folder=folder)
    yield "idle tick of all", lambda: [again.read(f"job_{number}") for number in range(n)]
    yield "last runs of all", lambda: again.runs(limit=20)


def commit_of(store: MarkStore, job: str) -> None:
    with hold(store, job) as lease:
        mark = fm.hwm.ColumnIntHWM("id", 1)
        record = JobRecord(job, number=1, marks={"id": mark}, modified_time=NOON)
        store.commit(record, expected=0, lease=lease.lease, receipt=Receipt(job, "run", "done", NOON))


def commits(n: int, folder: Path) -> Acts:
    """A Delta table of `n` commits of ours with a checkpoint before the last fifty: looks at it, and its ledger."""
    table = folder / "lake"
    write_log(table, n)
    probe = DeltaProbe(str(table))
    yield "first look", probe.refresh
    yield "last batch of a ledger", lambda: probe.last_batch(LEDGER)
    yield "look that finds nothing", probe.refresh


def write_log(table: Path, n: int) -> None:
    """A log as ours is: each commit adds a file and takes an earlier one away, and says whose batch it was."""
    import pyarrow as pa
    from deltalake import DeltaTable, write_deltalake

    write_deltalake(str(table), pa.table({"id": [1]}))
    log = table / "_delta_log"
    for version in range(1, n):
        (log / f"{version:020d}.json").write_text(commit_text(version))
        if version == n - 50:
            DeltaTable(str(table)).create_checkpoint()


def commit_text(version: int) -> str:
    """One commit in Delta's own words."""
    path, at = f"part-{version}.parquet", 1_790_000_000_000 + version
    text = note(LEDGER, version, "d" * 16)
    added = {"path": path, "partitionValues": {}, "size": 1, "modificationTime": at, "dataChange": True}
    removed = {"path": f"part-{version - 1}.parquet", "deletionTimestamp": at, "dataChange": True}
    actions: list[dict[str, object]] = [
        {"commitInfo": {"timestamp": at, "operation": "WRITE", "operationParameters": {}, "userMetadata": text}},
        {"txn": {"appId": LEDGER, "version": version, "lastUpdated": at}},
        {"add": {**added, "stats": '{"numRecords":1}'}},
    ]
    actions += [{"remove": removed}] if version > 1 else []
    return "".join(json.dumps(action) + "\n" for action in actions)


def rows(n: int, folder: Path) -> Acts:
    """`n` lines of 100 bytes in eight files, into Delta by Spark; one batch before has warmed everything up."""
    (folder / "in").mkdir()
    job = fm.Job(
        "rows",
        fm.sources.Files(str(folder / "in"), schema="id long, text string", settle=0),
        [fm.sinks.Delta(str(folder / "lake"))],
    )
    spark, store = fm.spark_session(SPARK), fm.stores.open("sqlite:///marks.db", folder=folder)
    (folder / "in" / "warm.jsonl").write_text(line(0) * 1000)
    job.run(spark, store)
    for part in range(8):
        (folder / "in" / f"{part}.jsonl").write_text("".join(map(line, range(part, n, 8))))
    yield "batch from files into Delta", lambda: job.run(spark, store)
    spark.stop()


def line(number: int) -> str:
    """A hundred bytes."""
    return f'{{"id": {number:012d}'.replace(": 0", ": 1") + f', "text": "{"x" * 64}"}}\n'


def messages(n: int, folder: Path) -> Acts:
    """`n` messages of 100 bytes in eight partitions, into Delta by Spark."""
    from confluent_kafka import Producer

    from floodmark.testing.servers import kafka_broker

    with kafka_broker(folder / "kafka") as broker:
        broker.create_topic("scale", 8)
        value = {"format": "json", "schema": "id long, text string"}
        source = fm.sources.Kafka(broker.bootstrap, "scale", value=value, columns=())
        job = fm.Job("messages", source, [fm.sinks.Delta(str(folder / "lake"))])
        spark, store = fm.spark_session(SPARK), fm.stores.open("sqlite:///marks.db", folder=folder)
        producer = Producer({"bootstrap.servers": broker.bootstrap, "queue.buffering.max.messages": 10_000_000})
        for count in (1000, n):
            for number in range(count):
                producer.produce("scale", line(number).encode(), partition=number % 8)
            producer.flush(120)
            if count == 1000:
                job.run(spark, store)
        yield "batch from Kafka into Delta", lambda: job.run(spark, store)
        spark.stop()
        broker.kill()


CASES = {
    case.name: case
    for case in (
        Case(
            "files",
            1_000_000,
            "files",
            files,
            {
                "first look": 10,
                "commit of all": 20,
                "read of the mark": 10,
                "idle look": 5,
                "look with ten new": 5,
                "commit of ten": 5,
            },
        ),
        Case(
            "partitions",
            10_000,
            "partitions",
            partitions,
            {"first commit": 1, "commit of a step": 1, "read of the mark": 0.5, "mark as text and back": 0.5},
        ),
        Case(
            "jobs",
            1_000,
            "jobs",
            jobs,
            {"load of the project": 10, "first batch of each": 20, "idle tick of all": 1, "last runs of all": 1},
        ),
        Case(
            "commits",
            100_000,
            "commits",
            commits,
            {"first look": 10, "last batch of a ledger": 1, "look that finds nothing": 0.5},
        ),
        Case("rows", 2_000_000, "rows", rows, {"batch from files into Delta": 30}, clock=time.monotonic),
        Case("messages", 1_000_000, "messages", messages, {"batch from Kafka into Delta": 20}, clock=time.monotonic),
    )
}
