"""jsonl → Delta on 1,000,000 rows, against the plain read-and-write of the same files in the same session."""

from __future__ import annotations

import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from run import Result

import floodmark as fm

ROWS, FILES, ROUNDS = 1_000_000, 8, 5
NOON = "2026-11-15T12:00:00Z"
SCHEMA = "id long, customer string, amount double, placed_at timestamp"


def write_input(folder: Path) -> None:
    folder.mkdir()
    for part in range(FILES):
        first = part * ROWS // FILES
        lines = (
            f'{{"id": {i}, "customer": "c{i % 5000}", "amount": {i % 9973 / 100}, "placed_at": "{NOON}"}}\n'
            for i in range(first, first + ROWS // FILES)
        )
        (folder / f"part-{part}.jsonl").write_text("".join(lines))


def seconds(act: Callable[[], object]) -> float:
    begun = time.monotonic()
    act()
    return time.monotonic() - begun


def run() -> list[Result]:
    spark = fm.spark_session({"spark.master": "local[2]"})
    with tempfile.TemporaryDirectory() as name:
        home = Path(name)
        write_input(home / "in")

        def plain(round_: int) -> None:
            rows = spark.read.schema(SCHEMA).json(str(home / "in"))
            rows.write.format("delta").save(str(home / f"plain-{round_}"))

        def ours(round_: int) -> None:
            job = fm.Job(
                name="bench",
                source=fm.sources.Files(str(home / "in"), format="jsonl", schema=SCHEMA, settle=0),
                sinks=[fm.sinks.Delta(str(home / f"ours-{round_}"))],
            )
            receipt = job.run(spark, fm.stores.open(f"sqlite:///marks-{round_}.db", folder=home))
            assert receipt.rows_written == {"delta": ROWS}, receipt

        plain(0), ours(0)  # both warm
        times = [(seconds(lambda r=r: plain(r)), seconds(lambda r=r: ours(r))) for r in range(1, ROUNDS + 1)]
    ratio = statistics.median(own / reference for reference, own in times)
    reference, own = (statistics.median(column) for column in zip(*times, strict=True))
    detail = f"plain Spark {reference:.2f} s, Floodmark {own:.2f} s, median of {ROUNDS} rounds, {ROWS:,} rows"
    return [Result("jsonl to Delta, Floodmark / plain Spark", ratio, 1.15, detail)]
