"""What one warm batch of ten rows is made of, for each kind of sink: counts and milliseconds; not a benchmark.

python bench/parts.py [KIND …]      append merge replace scd1 scd2 postgres kafka files

Calls over py4j, Spark jobs, looks at Delta logs, connections, fsyncs, each with the time spent inside; then the ten
functions of ours that most time is spent under. The clock is the wall's, so run it on a quiet machine.
"""

from __future__ import annotations

import cProfile
import pstats
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any
from unittest.mock import patch

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))

from bench_small_batches import FEW, Bench  # noqa: E402 - found beside this file

import floodmark as fm  # noqa: E402
from floodmark.testing.servers import kafka_broker, postgres_server  # noqa: E402

if TYPE_CHECKING:
    from floodmark.sinks.contract import Sink
    from floodmark.stores.record import Receipt
    from floodmark.testing.servers import Broker

TURNS = 5
COUNTED = {
    "py4j calls": "py4j.clientserver.JavaClient.send_command",
    "Delta tables opened": "floodmark.probes.delta.DeltaProbe._open",
    "Delta looks": "floodmark.probes.delta.DeltaProbe.refresh",
    "Delta histories read": "floodmark.probes.delta.DeltaProbe._read_log",
    "PostgreSQL connections": "psycopg.connect",
    "fsyncs": "os.fsync",
    "rows to Arrow": "floodmark.sinks.small.rows_as_arrow",
}


class Meter:
    """How often something was called, and how long it took in all."""

    def __init__(self) -> None:
        self.calls, self.seconds = 0, 0.0

    def around(self, act: Callable[..., Any]) -> Callable[..., Any]:
        def metered(*args: Any, **options: Any) -> Any:  # noqa: ANN401 - whatever it is around
            begun = time.perf_counter()
            try:
                return act(*args, **options)
            finally:
                self.calls, self.seconds = self.calls + 1, self.seconds + time.perf_counter() - begun

        return metered


@contextmanager
def metered() -> Iterator[dict[str, Meter]]:
    import importlib

    meters = {name: Meter() for name in COUNTED}
    with ExitStack() as stack:
        for name, target in COUNTED.items():
            path, attribute = target.rsplit(".", 1)
            try:
                owner = importlib.import_module(path)
            except ModuleNotFoundError:
                module, kind = path.rsplit(".", 1)
                owner = getattr(importlib.import_module(module), kind)
            stack.enter_context(patch.object(owner, attribute, meters[name].around(getattr(owner, attribute))))
        yield meters


def sinks_of(bench: Bench, kafka: Broker) -> dict[str, Sink]:
    """One of each kind; two are told apart by what they are asked to do."""
    key: dict[str, Any] = {"key": "customer", "sequence": "placed_at"}
    return {
        "append": fm.sinks.Delta(bench.path()),
        "merge": fm.sinks.Delta(bench.path(), mode="merge", key="id"),
        "replace": fm.sinks.Delta(bench.path(), mode="replace"),
        "scd1": fm.sinks.Scd1(bench.path(), **key),
        "scd2": fm.sinks.Scd2(bench.path(), **key, track=["amount"]),
        "postgres": fm.sinks.Postgres(bench.database, "ours"),
        "kafka": fm.sinks.Kafka(kafka.bootstrap, "orders", key="id", create={"partitions": 1}),
        "files": fm.sinks.Files(bench.path()),
    }


class TimedBench(Bench):
    """A bench whose ticks note how long the run itself took, without the rows that are added before it."""

    last_seconds = 0.0

    def timed(self, run: Callable[[], Receipt], rows: int) -> None:
        begun = time.perf_counter()
        super().timed(run, rows)
        self.last_seconds = time.perf_counter() - begun


def show(kind: str, bench: TimedBench, tick: Callable[[int], None]) -> None:
    """Warm ticks are timed first, without anybody counting; then one is counted, and one profiled."""
    tick(0)
    times = []
    for turn in range(TURNS):
        tick(turn)
        times.append(bench.last_seconds)
    tracker, context = bench.spark.sparkContext.statusTracker(), bench.spark.sparkContext
    context.setJobGroup(f"counted {kind}", kind)
    with metered() as meters:
        tick(0)
    jobs = len(tracker.getJobIdsForGroup(f"counted {kind}"))
    context.setLocalProperty("spark.jobGroup.id", None)  # type: ignore[arg-type]
    print(f"\n{kind}: {statistics.median(times) * 1000:.0f} ms, {jobs} Spark jobs")
    for name, meter in meters.items():
        if meter.calls:
            print(f"  {meter.calls:4} {name:<24} {meter.seconds * 1000:7.1f} ms")
    profile = cProfile.Profile()
    profile.runcall(tick, 0)
    show_functions(profile)


def show_functions(profile: cProfile.Profile) -> None:
    stats = pstats.Stats(profile).stats  # type: ignore[attr-defined]
    own = [(entry[3], place) for place, entry in stats.items() if "floodmark" in place[0] and "/bench/" not in place[0]]
    for seconds, (file, line, name) in sorted(own, reverse=True)[:24]:
        print(f"       {seconds * 1000:7.1f} ms  {Path(file).parent.name}/{Path(file).name}:{line} {name}")


def main(kinds: list[str]) -> None:
    spark = fm.spark_session({"spark.master": "local[2]", "spark.driver.memory": "3g"})
    with tempfile.TemporaryDirectory() as name, postgres_server(Path(name) / "pg") as postgres:
        bench = TimedBench(spark, Path(name), postgres.create_database(), TURNS)
        with kafka_broker(Path(name) / "kafka") as kafka:
            for kind, sink in sinks_of(bench, kafka).items():
                if not kinds or kind in kinds:
                    show(kind, bench, bench.ticks(sink, FEW))


if __name__ == "__main__":
    sys.modules.setdefault("run", __import__("run"))
    main(sys.argv[1:])
